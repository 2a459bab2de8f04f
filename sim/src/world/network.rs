//! The shipped client machine and the shipped server kernel, with a virtual network between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use steady_core::backoff::Jitter;
use steady_core::client::{CallOptions, CancelSignal, Client, Config, Finished, Input, Output, Transport};
use steady_core::id::{CallId, ClientId, WireId};
use steady_core::kernel::{Connection, Exchange, ServerConfig, ServerCounters, Service, Stats};
use steady_core::progress::Progress;
use steady_core::time::Instant;

use super::executor::{Executor, TaskId};
use super::link::VirtualLink;
use crate::wire::{self, Answer, ToolRequest};

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
    /// The request that it belongs to, if any.
    pub request: Option<WireId>,
    /// If it gives that request up: how.
    pub signal: Option<CancelSignal>,
}

/// What is under way.
struct Flight {
    /// Its place in the list of all that crossed.
    wire: usize,
    what: Cargo,
}

enum Cargo {
    ToServer(WireId, String),
    CloseStream(WireId),
    /// Of this request, if it names one.
    ToClient(Option<WireId>, String),
}

/// What an exchange wrote, by its request.
type Written = Arc<Mutex<Vec<String>>>;

/// A client, a server and what is between them.
pub struct Network<S: Service> {
    executor: Executor,
    service: Arc<S>,
    options: NetworkOptions,
    client: Client<ToolRequest, Answer>,
    link: VirtualLink,
    exchanges: BTreeMap<WireId, TaskId>,
    /// Attempts whose response stream the client has closed (HTTP): what still arrives on it is thrown away.
    closed: BTreeSet<WireId>,
    written: Written,
    stats: Stats,
    flights: BTreeMap<(Instant, u64), Flight>,
    next_flight: u64,
    /// All that crossed, in order.
    pub wires: Vec<Wire>,
    /// How each call ended, and when.
    pub finished: BTreeMap<CallId, (Instant, Finished<Answer>)>,
    /// The progress that reached the application.
    pub progress: Vec<(Instant, CallId, Progress)>,
    /// The attempts of each call, in the order in which they were sent.
    pub attempts: Vec<(CallId, WireId)>,
    /// What reached the client and was ignored there, and counted.
    pub ignored: Vec<(Instant, WireId, String)>,
    /// What never arrived because its stream broke, as places in [`wires`](Self::wires).
    pub lost: Vec<usize>,
}

impl<S: Service> Network<S> {
    /// A fresh client and a fresh server.
    #[must_use]
    pub fn new(service: S, options: NetworkOptions) -> Self {
        let mut executor = Executor::new();
        let service = Arc::new(service);
        let link = VirtualLink::default();
        let stats = Stats::new();
        if options.transport == Transport::Stdio {
            let config = ServerConfig { stats: stats.clone(), ..ServerConfig::default() };
            let server = Connection::<S, _>::new(Arc::clone(&service), link.clone(), executor.ports(), config);
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
            closed: BTreeSet::new(),
            written: Written::default(),
            stats,
            flights: BTreeMap::new(),
            next_flight: 0,
            wires: Vec::new(),
            finished: BTreeMap::new(),
            progress: Vec::new(),
            attempts: Vec::new(),
            ignored: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.executor.now()
    }

    /// The client machine, to look at its counters.
    #[must_use]
    pub const fn client(&self) -> &Client<ToolRequest, Answer> {
        &self.client
    }

    /// What the server counted, published once a turn.
    #[must_use]
    pub fn server(&self) -> ServerCounters {
        self.stats.snapshot()
    }

    /// Calls a tool. `arguments` is a JSON object. `None`: the client is at its cap.
    pub fn call(&mut self, tool: &str, arguments: &str, options: CallOptions) -> Option<CallId> {
        let call = self.client.call(self.now(), ToolRequest::new(tool, arguments), options).ok()?;
        self.drain_client();
        Some(call)
    }

    /// The application gives a call up.
    pub fn cancel(&mut self, call: CallId) {
        self.client.cancel(self.now(), call);
        self.drain_client();
    }

    /// The network breaks the response stream of an attempt, for both sides at once (HTTP), and takes with it what is under
    /// way on it: the request itself, too, if it has not arrived. `false`: there is no stream that could break, because the
    /// attempt is on stdio, was answered, or was closed and the server knows it.
    pub fn break_stream(&mut self, wire: WireId) -> bool {
        if self.options.transport == Transport::Stdio {
            return false;
        }
        let exchange = self.exchanges.remove(&wire);
        let is_request = |flight: &Flight| matches!(flight.what, Cargo::ToServer(of, _) if of == wire);
        if exchange.is_none() && !self.flights.values().any(is_request) {
            return false;
        }
        exchange.into_iter().for_each(|task| self.executor.kill(task));
        let lost = &mut self.lost;
        self.flights.retain(|_, flight| {
            let on_it = is_request(flight) || matches!(flight.what, Cargo::ToClient(of, _) if of == Some(wire));
            lost.extend(on_it.then_some(flight.wire));
            !on_it
        });
        self.client.handle_input(self.now(), Input::StreamLost { wire });
        self.drain_client();
        true
    }

    /// Sends a line that no client machine wrote: of a client that is broken on purpose. On HTTP it is a POST of its own.
    pub fn inject(&mut self, line: &str) {
        // No attempt gets this far.
        let cargo = Cargo::ToServer(WireId::new(u64::MAX), line.into());
        let wire = Wire { at: self.now(), from_client: true, text: line.into(), request: None, signal: None };
        self.send(self.options.to_server, wire, cargo);
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
            let wake_at = self.drain_client();
            let flight = self.flights.first_key_value().map(|((at, _), _)| *at);
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

    fn send(&mut self, delay: Duration, wire: Wire, what: Cargo) {
        self.next_flight += 1;
        let flight = Flight { wire: self.wires.len(), what };
        self.wires.push(wire);
        self.flights.insert((self.now() + delay, self.next_flight), flight);
    }

    /// Sends what the client wants to be sent for an attempt.
    fn send_for(&mut self, wire: WireId, signal: Option<CancelSignal>, delay: Duration, text: String, what: Cargo) {
        let told = Wire { at: self.now(), from_client: true, text, request: Some(wire), signal };
        self.send(self.options.to_server + delay, told, what);
    }

    /// Does what the client wants; when it wants to be woken.
    fn drain_client(&mut self) -> Option<Instant> {
        let held = self.options.held_by_proxy;
        loop {
            match self.client.poll_output() {
                Output::Idle { wake_at } => return wake_at,
                Output::Send { call, wire, payload, .. } => {
                    self.attempts.push((call, wire));
                    let line = payload.line(wire);
                    self.send_for(wire, None, Duration::ZERO, line.clone(), Cargo::ToServer(wire, line));
                }
                Output::Signal { wire, signal: signal @ CancelSignal::Notify } => {
                    let line = wire::cancellation(wire);
                    self.send_for(wire, Some(signal), held, line.clone(), Cargo::ToServer(wire, line));
                }
                Output::Signal { wire, signal: signal @ CancelSignal::CloseStream } => {
                    let text = format!("(closes the response stream of request {})", wire.number());
                    self.closed.insert(wire);
                    self.send_for(wire, Some(signal), held, text, Cargo::CloseStream(wire));
                }
                Output::Progress { call, value } => self.progress.push((self.now(), call, value)),
                Output::Finished { call, finished } => {
                    self.finished.insert(call, (self.now(), finished));
                }
                // This client neither subscribes nor follows tasks.
                Output::Listen { .. } | Output::Gap { .. } | Output::Notice { .. } | Output::Unsubscribed { .. } => {}
            }
        }
    }

    /// Takes what the server wrote.
    fn collect(&mut self) {
        let mut lines = self.link.take_lines();
        lines.append(&mut self.written.lock().unwrap_or_else(PoisonError::into_inner));
        for line in lines {
            let request = request_of(&line);
            let wire = Wire { at: self.now(), from_client: false, text: line.clone(), request, signal: None };
            self.send(self.options.to_client, wire, Cargo::ToClient(request, line));
        }
    }

    /// Delivers what has arrived by now.
    fn land(&mut self) {
        while let Some(entry) = self.flights.first_entry().filter(|entry| entry.key().0 <= self.executor.now()) {
            match entry.remove().what {
                Cargo::ToServer(_, line) if self.options.transport == Transport::Stdio => self.link.deliver(line),
                Cargo::ToServer(wire, line) => self.post(wire, &line),
                Cargo::CloseStream(wire) => {
                    if let Some(task) = self.exchanges.remove(&wire) {
                        self.executor.kill(task);
                    }
                }
                Cargo::ToClient(_, line) => {
                    if let Some(input) = wire::read(&line) {
                        self.hear(input);
                    }
                }
            }
        }
    }

    /// The client reads a message; what it ignores and counts is noted.
    fn hear(&mut self, input: Input<Answer>) {
        let (wire, what) = match &input {
            Input::Response { wire, .. } => (*wire, "a response"),
            Input::Progress { wire, .. } => (*wire, "progress"),
            Input::Cancelled { wire } => (*wire, "a cancellation"),
            Input::NotSent { .. }
            | Input::StreamLost { .. }
            | Input::Acknowledged { .. }
            | Input::Notice { .. }
            | Input::ListenEnded { .. }
            | Input::Heard
            | Input::LinkLost
            | Input::LinkUp => return self.client.handle_input(self.executor.now(), input),
        };
        let before = self.client.counters();
        let closed = self.closed.contains(&wire);
        if matches!(input, Input::Response { .. }) {
            // The last of its stream.
            self.closed.remove(&wire);
            self.exchanges.remove(&wire);
        }
        // Of a stream that the client has closed its HTTP layer hands on nothing.
        if !closed {
            self.client.handle_input(self.executor.now(), input);
        }
        if closed || self.client.counters() != before {
            self.ignored.push((self.executor.now(), wire, what.to_owned()));
        }
    }

    /// A POST arrives: one exchange, whose body is polled until its answer is out.
    fn post(&mut self, wire: WireId, line: &str) {
        let (ports, service) = (self.executor.ports(), Arc::clone(&self.service));
        let config = ServerConfig { stats: self.stats.clone(), ..ServerConfig::default() };
        let mut exchange = Exchange::start(service, ports, config, line);
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
}

/// The attempt that a line of the server belongs to.
fn request_of(line: &str) -> Option<WireId> {
    match wire::read(line) {
        Some(Input::Response { wire, .. } | Input::Progress { wire, .. } | Input::Cancelled { wire }) => Some(wire),
        _ => None,
    }
}
