//! A server without a link: texts in, texts out. The connection loop and the HTTP exchange both wrap it.

mod listens;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;
use core::time::Duration;

use serde_json::value::RawValue;

use super::Ports;
use super::context::Context;
use super::exchange::Request;
use super::foreign::Foreign;
use super::handler::{BlockingTask, HandlerTask, Run};
use super::port::BadFrame;
use super::queue::OutboundQueue;
use super::service::{Answer, Call, Service};
use super::shutdown::Shutdown;
use super::signals::Signals;
use super::slot::{CancelReason, Slot};
use super::stats::{ServerCounters, Stats};
use super::sync::Arc;
use super::trace::{self, RequestSpan};
use crate::coordinator::{self, Cancelled, Event, Polled, Refusal, RequestCoordinator, Start};
use crate::id::RequestId;
use crate::outbound::{self, Batch, Handle, Item, Popped};
use crate::rpc::{
    self, Cancellation, Message, RequestMeta, RpcError, checked_meta, code, encode, method, read_cancellation,
};
use crate::time::Instant;
use crate::transport::Transport;
use listens::Listens;

/// Messages taken from the queue under one lock. Those that still wait there can coalesce.
const MESSAGES: usize = 32;

/// Limits of a served connection or exchange.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct ServerConfig {
    /// Admission, clocks, progress rate.
    pub requests: coordinator::Config,
    /// Capacities of the outbound buffer. The number of finals is taken from the cap of requests in flight.
    pub outbound: outbound::Config,
    /// How long a handler may go on after its request is over, before it is dropped. Default 5 s.
    pub grace: Duration,
    /// How long a closing connection waits for its handlers to end. Default 100 ms.
    pub drain: Duration,
    /// How long, after its handlers, a closing connection waits for what is written to leave: a file or a terminal takes
    /// its time, and a client that reads nothing more is given up then. Default 1 s.
    pub flush: Duration,
    /// What ends this server from outside. Keep a clone to throw it. Default: a handle of its own.
    pub shutdown: Shutdown,
    /// How long requests may go on after [`Shutdown::drain`]; what is left then is answered with an error. Default 1.5 s,
    /// since the usual hosts kill a server 2 s after they asked it to end.
    pub shutdown_limit: Duration,
    /// How long a link may accept no byte while some wait, before it counts as broken. Default 5 minutes.
    pub write_stall: Duration,
    /// Messages handled in one turn before timers and writes get theirs. Default 64.
    pub turn_budget: usize,
    /// Longest result, in bytes of its text; a longer one becomes an error that says so, and the connection goes on.
    /// Default 16 MiB, which is also what a client of ours reads.
    pub max_result: usize,
    /// Where to add what is counted. Keep a clone to read it. Default: a handle of its own.
    pub stats: Stats,
    /// What carries the bytes, as OpenTelemetry names it: `pipe`, `tcp`, `unix`. Default `pipe`.
    pub network_transport: &'static str,
    /// Who calls, where the transport does not authenticate callers: the scope of idempotency keys. Default none.
    pub principal: Option<Box<str>>,
    /// Which revisions of the protocol are served. Default both eras: the modern one, and the three before it that most
    /// clients in use still open with.
    pub eras: Eras,
}

/// Which revisions of the protocol a server serves, or a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there are two eras")]
pub enum Eras {
    /// Each peer in its own: 2026-07-28, or 2025-11-25, 2025-06-18, 2025-03-26 after a handshake.
    #[default]
    Both,
    /// 2026-07-28 only. A client that opens with `initialize` is told so (rule M8).
    Modern,
    /// The three older ones only.
    Legacy,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            requests: coordinator::Config::default(),
            outbound: outbound::Config::default(),
            grace: Duration::from_secs(5),
            drain: Duration::from_millis(100),
            flush: Duration::from_secs(1),
            shutdown: Shutdown::new(),
            shutdown_limit: Duration::from_millis(1500),
            write_stall: Duration::from_secs(300),
            turn_budget: 64,
            max_result: 16 << 20,
            stats: Stats::new(),
            network_transport: "pipe",
            principal: None,
            eras: Eras::default(),
        }
    }
}

/// A server of one connection or exchange.
pub(super) struct Engine<S> {
    service: StdArc<S>,
    coordinator: RequestCoordinator<Arc<Slot>>,
    pub(super) queue: Arc<OutboundQueue>,
    pub(super) ports: Ports,
    pub(super) config: ServerConfig,
    principal: Option<StdArc<str>>,
    signals: Signals,
    listens: Listens,
    transport: Transport,
    /// Progress that was replaced in the buffer.
    coalesced: u64,
    prefix: String,
    /// Cancelled requests of which a message may wait in the transport's own buffer.
    pub(super) purged: Vec<Handle>,
    counters: ServerCounters,
    /// What of the counters the shared statistics have.
    published: ServerCounters,
}

impl<S: Service> Engine<S> {
    pub(super) fn new(service: StdArc<S>, ports: Ports, config: ServerConfig, transport: Transport) -> Self {
        let outbound = outbound::Config { finals: config.requests.in_flight, ..config.outbound };
        Self {
            service,
            coordinator: RequestCoordinator::new(config.requests),
            queue: Arc::new(OutboundQueue::new(outbound)),
            ports,
            principal: config.principal.as_deref().map(StdArc::from),
            config,
            signals: Signals::default(),
            listens: Listens::default(),
            transport,
            coalesced: 0,
            prefix: String::new(),
            purged: Vec::new(),
            counters: ServerCounters::default(),
            published: ServerCounters::default(),
        }
    }

    /// A message arrived. What is no request of the modern revision, and no cancellation, is handed back: it is refused, or
    /// belongs to another one.
    pub(super) fn receive<'a>(&mut self, now: Instant, text: &'a str) -> Option<Foreign<'a>> {
        self.count_in(text);
        match rpc::parse_with_params(text) {
            // `read` is what the library itself reads of `params`.
            Ok((Message::Request { id, method, params }, read)) => match checked_meta(&method, params, &read) {
                Ok(meta) => {
                    self.admit(now, Request { id, method, params, meta, read, key_header: None });
                    None
                }
                Err(error) => Some(Foreign::Request { id, method, params, error }),
            },
            Ok((Message::Notification { method, params }, _)) if method == method::CANCELLED => {
                self.cancelled(now, params);
                None
            }
            Ok((message, _)) => Foreign::of(message),
            Err(bad) => Some(Foreign::Bad(bad)),
        }
    }

    /// A message arrived on a link that speaks the older revisions only: all but a cancellation is handed back.
    pub(super) fn receive_foreign<'a>(&mut self, now: Instant, text: &'a str) -> Option<Foreign<'a>> {
        self.count_in(text);
        match rpc::parse(text) {
            Ok(Message::Notification { method, params }) if method == method::CANCELLED => {
                self.cancelled(now, params);
                None
            }
            Ok(message) => Foreign::of(message),
            Err(bad) => Some(Foreign::Bad(bad)),
        }
    }

    const fn count_in(&mut self, text: &str) {
        self.counters.messages_in += 1;
        self.counters.bytes_in += text.len() as u64;
    }

    /// What [`receive`](Self::receive) handed back belongs to nobody.
    pub(super) fn reject(&mut self, foreign: Foreign<'_>) {
        match foreign {
            Foreign::Request { id, error, .. } => self.refuse_request(&id, &error.into()),
            Foreign::Notification { .. } | Foreign::Response { .. } => self.counters.ignored += 1,
            Foreign::Bad(bad) => {
                self.counters.bad_messages += 1;
                trace::bad_message();
                if let Some(code) = bad.code() {
                    // An error under the id of a request in flight would settle that one (rule C10).
                    let id = bad.id().filter(|id| !self.coordinator.is_duplicate(id));
                    self.refuse(id, &RpcError::new(code, bad.to_string()));
                }
            }
        }
    }

    /// Refuses a text of which no request is known.
    pub(super) fn refuse_text(&mut self, error: &RpcError) {
        self.counters.bad_messages += 1;
        trace::bad_message();
        self.refuse(None, error);
    }

    /// Refuses a request before it is admitted.
    pub(super) fn refuse_request(&mut self, id: &RequestId, error: &RpcError) {
        // An error under the id of a request in flight would settle that one (rule C10).
        if self.coordinator.is_duplicate(id) { self.refuse_duplicate() } else { self.refuse(Some(id), error) }
    }

    /// Something arrived that is no text of a message.
    pub(super) fn receive_bad(&mut self, bad: BadFrame) {
        self.counters.bad_messages += 1;
        trace::bad_message();
        match bad {
            BadFrame::TooLong => {
                let what = "the message is longer than this server accepts";
                self.refuse(None, &RpcError::new(code::PARSE_ERROR, what));
            }
            // As like a line of a log as a message: answering it could make two peers talk for ever (rule S2).
            BadFrame::NotUtf8 | BadFrame::Foreign => {}
        }
    }

    /// A request whose metadata is read and right.
    pub(super) fn admit(&mut self, now: Instant, request: Request<'_>) {
        self.admit_to(now, request, |service, call, context| service.call(call, context));
    }

    /// The same, answered by `serve`.
    #[inline]
    pub(super) fn admit_to(
        &mut self,
        now: Instant,
        request: Request<'_>,
        serve: impl FnOnce(&StdArc<S>, Call, Context) -> Answer,
    ) {
        let Request { id, method, params, meta, read, key_header } = request;
        let method = &*method;
        let RequestMeta { progress_token: token, log_level, .. } = meta;
        let listen = method == method::LISTEN;
        let start = Start { id: id.clone(), token: token.clone(), listen };
        let (queue, transport) = (&self.queue, self.config.network_transport);
        let text = params.map_or("{}", RawValue::get);
        let seat = |request| {
            let span = RequestSpan::start(&id, method, text, transport);
            Arc::new(Slot::new(id.clone(), request, Arc::clone(queue), span))
        };
        let handle = match self.coordinator.start(now, start, seat) {
            Ok(handle) => handle,
            Err(Refusal::DuplicateId) => return self.refuse_duplicate(),
            Err(refusal @ Refusal::DuplicateToken) => {
                return self.refuse(Some(&id), &RpcError::invalid_params(refusal.to_string()));
            }
            Err(refusal @ (Refusal::Full(_) | Refusal::TooManyListens(_) | Refusal::Closed)) => {
                return self.refuse(Some(&id), &RpcError::new(code::OVERLOADED, refusal.to_string()));
            }
        };
        self.prefix.clear();
        if let Some(token) = &token {
            encode::progress_prefix(&mut self.prefix, token);
        }
        self.queue.open(handle, &self.prefix);
        let Some(slot) = self.coordinator.seat(handle).map(|slot| Arc::clone(slot)) else { return };
        let context = Context {
            slot: Arc::clone(&slot),
            timer: StdArc::clone(&self.ports.timer),
            token: token.filter(|_| !listen).map(StdArc::new),
            log_level,
            listen,
            principal: self.principal.clone(),
        };
        let call = Call::new(method, text, &read.call, key_header);
        self.run(handle, slot, |service| serve(service, call, context));
    }

    /// Starts the handler; most end here, at their first poll.
    #[inline]
    fn run(&mut self, handle: Handle, slot: Arc<Slot>, serve: impl FnOnce(&StdArc<S>) -> Answer) {
        let run = Run::new(slot, handle, StdArc::clone(&self.ports.timer), self.config.max_result);
        let service = &self.service;
        match run.guard(|| serve(service)) {
            Ok(Answer::Ready(outcome)) => run.complete(&outcome),
            Err(panic) => run.complete(&Err(panic)),
            Ok(Answer::Later(future)) => {
                if let Some(task) = HandlerTask::start(future, run, self.config.grace) {
                    self.ports.spawn.spawn(Box::pin(task));
                    self.coordinator.arm_deadline(handle);
                }
            }
            Ok(Answer::Listen(subscription)) => self.listen(handle, &run, subscription),
            Ok(Answer::Blocking(job)) => {
                let task = BlockingTask::new(job, run);
                self.ports.spawn.spawn_blocking(Box::new(move || task.run()));
                self.coordinator.arm_deadline(handle);
            }
        }
    }

    fn cancelled(&mut self, now: Instant, params: Option<&RawValue>) {
        let Some(Cancellation { id, reason }) = params.and_then(|params| read_cancellation(params.get())) else {
            self.counters.cancelled_malformed += 1;
            return;
        };
        match self.coordinator.cancel(now, &id) {
            Cancelled::Ended(handle, slot) => self.forget(handle, &slot, CancelReason::Cancelled(reason)),
            Cancelled::TooLate(_) | Cancelled::Unknown => {}
        }
    }

    fn refuse_duplicate(&mut self) {
        let error = RpcError::new(code::INVALID_REQUEST, Refusal::DuplicateId.to_string());
        self.refuse(None, &error);
    }

    fn refuse(&mut self, id: Option<&RequestId>, error: &RpcError) {
        trace::refused(error.code);
        let mut body = Vec::new();
        encode::error(&mut body, id, error);
        // Input is read only while a refusal has a place.
        let placed = self.queue.refuse(body);
        debug_assert!(placed, "input was read although no refusal had a place");
    }

    /// Whether the next message may be read: its refusal would have a place, and the cap is not held by requests whose
    /// answers only wait to leave.
    pub(super) fn can_read(&self) -> bool {
        let at_cap = self.coordinator.in_flight() >= self.config.requests.in_flight;
        self.queue.can_read(at_cap)
    }

    /// Hears what handlers said since the last time.
    pub(super) fn hear(&mut self) {
        let mut signals = core::mem::take(&mut self.signals);
        self.queue.take_signals(&mut signals);
        for (handle, until) in signals.held.drain(..) {
            self.coordinator.arm(handle, until);
        }
        for handle in signals.ended.drain(..) {
            self.coordinator.handler_ended(handle);
        }
        self.listens.ready(signals.listens.drain(..));
        let counters = &mut self.counters;
        counters.progress_dropped += core::mem::take(&mut signals.dropped);
        self.coalesced += core::mem::take(&mut signals.coalesced);
        let (messages, bytes) = core::mem::take(&mut signals.high);
        counters.queue_high = counters.queue_high.max(messages as u64);
        counters.queue_high_bytes = counters.queue_high_bytes.max(bytes as u64);
        self.signals = signals;
    }

    /// Hears what handlers said, handles what is due, and answers with the next deadline.
    pub(super) fn poll_timers(&mut self, now: Instant) -> Option<Instant> {
        self.hear();
        loop {
            match self.coordinator.poll(now) {
                Polled::Acted(..) => {}
                Polled::Idle { wake_at } => return wake_at,
            }
        }
    }

    /// Takes the oldest message that waits to leave.
    pub(super) fn pop<R>(&mut self, mut encode: impl FnMut(Item<'_>) -> R) -> Option<(Popped, R)> {
        let popped = self.queue.pop(&mut encode).or_else(|| self.pull(encode))?;
        self.counters.messages_out += 1;
        if let (Popped { handle: Some(handle), last: true }, _) = popped {
            drop(self.coordinator.release(handle));
        }
        Some(popped)
    }

    /// Takes the oldest messages that wait to leave, then some of the listens, lending each to `encode`; whether there were
    /// any.
    pub(super) fn pop_into(
        &mut self,
        batch: &mut Batch,
        bytes: usize,
        mut encode: impl FnMut(Popped, Item<'_>),
    ) -> bool {
        self.queue.pop_into(batch, MESSAGES, bytes);
        let any = !batch.is_empty();
        let room = bytes.saturating_sub(batch.bytes());
        batch.drain(|popped, item| {
            self.counters.messages_out += 1;
            encode(popped, item);
            if let Popped { handle: Some(handle), last: true } = popped {
                drop(self.coordinator.release(handle));
            }
        });
        // One of a listen in each batch: answers that fill every batch keep none of them waiting for good.
        any | self.pull_into(room.max(1), encode)
    }
}

impl<S> Engine<S> {
    /// Ends everything in silence: the peer is gone.
    pub(super) fn close(&mut self, now: Instant, event: Event) {
        for (handle, slot) in self.coordinator.close(now, event) {
            self.forget(handle, &slot, CancelReason::Disconnected);
        }
    }

    /// Admits nothing more, and ends the open listens, which would go on for ever (rules C5 and L4).
    pub(super) fn drain(&mut self) {
        self.coordinator.drain();
        let handles: Vec<Handle> = self.coordinator.handles().collect();
        for handle in handles.into_iter().filter(|handle| self.coordinator.is_listen(*handle)) {
            // One of the hub's ends after what it owes.
            if !self.listens.drain(handle) {
                self.listens.end(handle);
            }
        }
        self.end_listens();
    }

    /// Answers whatever is still in flight with an error: the time to finish is over.
    pub(super) fn cut(&mut self, now: Instant) {
        let error = RpcError::new(code::OVERLOADED, Refusal::Closed.to_string());
        self.end_rest();
        let handles: Vec<Handle> = self.coordinator.handles().collect();
        for handle in handles {
            let failed = |slot: &mut Arc<Slot>| slot.fail(now, &error, CancelReason::Shutdown);
            self.counters.shut_down += u64::from(self.coordinator.seat(handle).is_some_and(failed));
        }
    }

    /// The slot of its first request.
    pub(super) fn first_slot(&mut self) -> Option<Arc<Slot>> {
        let handle = self.coordinator.handles().next()?;
        self.coordinator.seat(handle).map(|slot| Arc::clone(slot))
    }

    /// Handlers that still run.
    pub(super) fn running(&self) -> usize {
        self.coordinator.stragglers()
    }

    pub(super) fn counters(&self) -> ServerCounters {
        let gates = &self.queue.gates;
        ServerCounters {
            requests: self.coordinator.counters(),
            progress_coalesced: self.coalesced + self.queue.superseded(),
            progress_refused: gates.refused.get(),
            ..self.counters
        }
    }

    /// The link took this many bytes.
    pub(super) const fn sent(&mut self, bytes: usize) {
        self.counters.bytes_out += bytes as u64;
    }

    /// Adds what is new to the shared statistics.
    pub(super) fn publish(&mut self) {
        if self.config.stats.is_read() {
            let counters = self.counters();
            self.config.stats.publish(&counters, &mut self.published);
        }
    }

    /// Requests in flight: running, or answered and not yet sent.
    pub(super) fn in_flight(&self) -> usize {
        self.coordinator.in_flight()
    }

    fn forget(&mut self, handle: Handle, slot: &Arc<Slot>, reason: CancelReason) {
        self.listens.close(handle);
        self.queue.purge(handle);
        self.purged.push(handle);
        slot.span.cancelled(&reason);
        slot.explain(reason);
    }
}
