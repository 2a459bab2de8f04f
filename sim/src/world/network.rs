//! The shipped client machine and the shipped server kernel, with a virtual network between them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use steady_core::backoff::Jitter;
use steady_core::client::{CallOptions, CancelSignal, Client, Config, Finished, Input, Output, Transport};
use steady_core::id::{CallId, ClientId, RequestId, WireId};
use steady_core::kernel::{Connection, Exchange, ServerConfig, Service};
use steady_core::progress::Progress;
use steady_core::rpc::{self, Body, Message, encode, method};
use steady_core::time::Instant;

use super::executor::{Executor, TaskId};
use super::link::VirtualLink;

/// How far apart client and server are.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "plain settings")]
pub struct NetworkOptions {
    /// The transport between them.
    pub transport: Transport,
    /// How long a message takes to the server.
    pub to_server: Duration,
    /// How long a message takes to the client.
    pub to_client: Duration,
    /// How much longer a proxy keeps the end of a stream, or a cancellation, to itself.
    pub held_by_proxy: Duration,
}

/// An answer, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "JSON-RPC has exactly these two")]
pub enum Answer {
    /// A result.
    Result(String),
    /// An error object.
    Error(String),
}

/// Something that crossed the network, or was sent off to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wire {
    /// When it was sent.
    pub at: Instant,
    /// Whether the client sent it.
    pub from_client: bool,
    /// The message, or what happened instead of one, in parentheses.
    pub text: String,
}

#[derive(Clone, Debug)]
struct Payload {
    method: String,
    /// The members of the parameters beside `_meta`.
    params: String,
}

enum Flight {
    ToServer(WireId, String),
    CloseStream(WireId),
    ToClient(String),
}

/// What an exchange wrote, by its request.
type Written = Arc<Mutex<Vec<String>>>;

/// A client, a server and what is between them.
pub struct Network<S: Service> {
    executor: Executor,
    service: Arc<S>,
    options: NetworkOptions,
    client: Client<Payload, Answer>,
    link: VirtualLink,
    exchanges: BTreeMap<WireId, TaskId>,
    written: Written,
    flights: BTreeMap<(Instant, u64), Flight>,
    next_flight: u64,
    /// All that crossed, in order.
    pub wires: Vec<Wire>,
    /// How each call ended, and when.
    pub finished: BTreeMap<CallId, (Instant, Finished<Answer>)>,
    /// The progress that reached the application.
    pub progress: Vec<(Instant, CallId, Progress)>,
}

impl<S: Service> Network<S> {
    /// A fresh client and a fresh server.
    #[must_use]
    pub fn new(service: S, options: NetworkOptions) -> Self {
        let mut executor = Executor::new();
        let service = Arc::new(service);
        let link = VirtualLink::default();
        if options.transport == Transport::Stdio {
            let server =
                Connection::<S, _>::new(Arc::clone(&service), link.clone(), executor.ports(), ServerConfig::default());
            executor.spawn(async move {
                // A virtual link does not fail; the end of input ends it.
                let _ended = server.await;
            });
        }
        let jitter = Jitter::seeded(ClientId::new(1), 0);
        Self {
            client: Client::new(executor.now(), Config::new(options.transport), jitter),
            executor,
            service,
            options,
            link,
            exchanges: BTreeMap::new(),
            written: Written::default(),
            flights: BTreeMap::new(),
            next_flight: 0,
            wires: Vec::new(),
            finished: BTreeMap::new(),
            progress: Vec::new(),
        }
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.executor.now()
    }

    /// The client machine, to look at its counters.
    #[must_use]
    pub const fn client(&self) -> &Client<impl Clone + use<S>, Answer> {
        &self.client
    }

    /// Calls a tool. `arguments` is a JSON object. `None`: the client is at its cap.
    pub fn call(&mut self, tool: &str, arguments: &str, options: CallOptions) -> Option<CallId> {
        let mut params = b"\"name\":".to_vec();
        encode::string(&mut params, tool);
        params.extend_from_slice(b",\"arguments\":");
        params.extend_from_slice(arguments.as_bytes());
        let params = String::from_utf8(params).ok()?;
        let payload = Payload { method: method::TOOLS_CALL.to_owned(), params };
        let call = self.client.call(self.now(), payload, options).ok()?;
        self.drain_client();
        Some(call)
    }

    /// The application gives a call up.
    pub fn cancel(&mut self, call: CallId) {
        self.client.cancel(self.now(), call);
        self.drain_client();
    }

    /// Ends the client's link.
    pub fn close(&mut self) {
        self.link.close();
    }

    /// Lets everything happen up to `until`.
    pub fn run_until(&mut self, until: Instant) {
        loop {
            self.executor.run_ready();
            self.collect();
            self.drain_client();
            let flight = self.flights.first_key_value().map(|((at, _), _)| *at);
            let wake_at = match self.client.poll_output() {
                Output::Idle { wake_at } => wake_at,
                _ => continue,
            };
            let next = [flight, self.executor.next_alarm(), wake_at].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else {
                self.executor.advance_to(until);
                return;
            };
            self.executor.advance_to(next);
            // What is in hand beats a timer that was not handled yet.
            self.land();
            self.client.handle_timeout(self.now());
        }
    }

    fn send(&mut self, delay: Duration, from_client: bool, text: String, flight: Flight) {
        self.wires.push(Wire { at: self.now(), from_client, text });
        self.next_flight += 1;
        self.flights.insert((self.now() + delay, self.next_flight), flight);
    }

    fn drain_client(&mut self) {
        let NetworkOptions { to_server, held_by_proxy, .. } = self.options;
        loop {
            match self.client.poll_output() {
                Output::Idle { .. } => return,
                Output::Send { wire, payload, .. } => {
                    let line = request_line(wire, &payload);
                    self.send(to_server, true, line.clone(), Flight::ToServer(wire, line));
                }
                Output::Signal { wire, signal: CancelSignal::Notify } => {
                    let mut line = Vec::new();
                    encode::cancelled(&mut line, &request_id(wire), Some("no longer needed"));
                    let line = String::from_utf8_lossy(&line).into_owned();
                    self.send(to_server + held_by_proxy, true, line.clone(), Flight::ToServer(wire, line));
                }
                Output::Signal { wire, signal: CancelSignal::CloseStream } => {
                    let text = format!("(closes the response stream of request {})", wire.number());
                    self.send(to_server + held_by_proxy, true, text, Flight::CloseStream(wire));
                }
                Output::Progress { call, value } => self.progress.push((self.now(), call, value)),
                Output::Finished { call, finished } => {
                    self.finished.insert(call, (self.now(), finished));
                }
            }
        }
    }

    /// Takes what the server wrote.
    fn collect(&mut self) {
        let mut lines = self.link.take_lines();
        lines.append(&mut self.written.lock().unwrap_or_else(PoisonError::into_inner));
        for line in lines {
            self.send(self.options.to_client, false, line.clone(), Flight::ToClient(line));
        }
    }

    /// Delivers what has arrived by now.
    fn land(&mut self) {
        while let Some(entry) = self.flights.first_entry().filter(|entry| entry.key().0 <= self.executor.now()) {
            match entry.remove() {
                Flight::ToServer(_, line) if self.options.transport == Transport::Stdio => self.link.deliver(line),
                Flight::ToServer(wire, line) => self.post(wire, &line),
                Flight::CloseStream(wire) => {
                    if let Some(task) = self.exchanges.remove(&wire) {
                        self.executor.kill(task);
                    }
                }
                Flight::ToClient(line) => self.receive(&line),
            }
        }
    }

    /// A POST arrives: one exchange, whose body is polled until its answer is out.
    fn post(&mut self, wire: WireId, line: &str) {
        let (ports, service) = (self.executor.ports(), Arc::clone(&self.service));
        let mut exchange = Exchange::start(service, ports, ServerConfig::default(), line);
        let written = Arc::clone(&self.written);
        let body = std::future::poll_fn(move |cx| {
            loop {
                let mut message = Vec::new();
                let Poll::Ready(last) = exchange.poll_message(cx, &mut message) else { return Poll::Pending };
                if !message.is_empty() {
                    let text = String::from_utf8_lossy(&message).into_owned();
                    written.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                }
                if last != Some(false) {
                    return Poll::Ready(());
                }
            }
        });
        let task = self.executor.spawn(body);
        self.exchanges.insert(wire, task);
    }

    fn receive(&mut self, line: &str) {
        let now = self.now();
        let input = match rpc::parse(line) {
            Ok(Message::Response { id: Some(RequestId::Integer(id)), body }) => {
                let answer = match body {
                    Body::Result(result) => Answer::Result(result.get().to_owned()),
                    Body::Error(error) => Answer::Error(error.get().to_owned()),
                };
                wire_id(id).map(|wire| Input::Response { wire, answer })
            }
            Ok(Message::Notification { method, params: Some(params) }) if method == method::PROGRESS => {
                rpc::read_progress(params.get()).and_then(|(token, value)| match token.0 {
                    RequestId::Integer(id) => wire_id(id).map(|wire| Input::Progress { wire, value }),
                    RequestId::String(_) => None,
                })
            }
            Ok(Message::Request { .. } | Message::Notification { .. } | Message::Response { .. }) | Err(_) => None,
        };
        if let Some(input) = input {
            self.client.handle_input(now, input);
        }
    }
}

fn request_id(wire: WireId) -> RequestId {
    RequestId::Integer(i64::try_from(wire.number()).unwrap_or(i64::MAX))
}

fn wire_id(id: i64) -> Option<WireId> {
    u64::try_from(id).ok().map(WireId::new)
}

fn request_line(wire: WireId, payload: &Payload) -> String {
    let params = format!(
        "{{{},\"_meta\":{{\"io.modelcontextprotocol/protocolVersion\":\"{}\",\
         \"io.modelcontextprotocol/clientCapabilities\":{{}},\"progressToken\":{}}}}}",
        payload.params,
        rpc::PROTOCOL_VERSION,
        wire.number(),
    );
    let mut line = Vec::new();
    encode::request(&mut line, &request_id(wire), &payload.method, &params);
    String::from_utf8_lossy(&line).into_owned()
}
