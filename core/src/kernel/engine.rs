//! A server without a link: texts in, texts out. The connection loop and the HTTP exchange both wrap it.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;
use core::pin::Pin;
use core::task::{Context as TaskContext, Waker};
use core::time::Duration;

use serde_json::value::RawValue;

use super::Ports;
use super::context::Context;
use super::handler::{HandlerTask, Run};
use super::port::BadFrame;
use super::queue::{OutboundQueue, Signals};
use super::service::{Answer, Call, Service};
use super::slot::{CancelReason, Slot};
use super::sync::Arc;
use crate::coordinator::{self, Cancelled, Event, Polled, Refusal, RequestCoordinator, Start};
use crate::id::RequestId;
use crate::outbound::{self, Batch, Handle, Item, Popped};
use crate::rpc::{
    self, Cancellation, Message, RequestMeta, RpcError, code, encode, method, read_cancellation, request_meta,
};
use crate::time::Instant;

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
    /// How long a closing connection waits for its handlers to end and its queue to drain. Default 100 ms.
    pub drain: Duration,
    /// How long a link may accept no byte while some wait, before it counts as broken. Default 5 minutes.
    pub write_stall: Duration,
    /// Messages handled in one turn before timers and writes get theirs. Default 64.
    pub turn_budget: usize,
    /// Who calls, where the transport does not authenticate callers: the scope of idempotency keys. Default none.
    pub principal: Option<Box<str>>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            requests: coordinator::Config::default(),
            outbound: outbound::Config::default(),
            grace: Duration::from_secs(5),
            drain: Duration::from_millis(100),
            write_stall: Duration::from_secs(300),
            turn_budget: 64,
            principal: None,
        }
    }
}

/// What was counted on one connection, beside the coordinator's own counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerCounters {
    /// What the coordinator counted.
    pub requests: coordinator::Counters,
    /// Frames and messages that could not be read.
    pub bad_messages: u64,
    /// Cancellations without a readable `requestId`.
    pub cancelled_malformed: u64,
    /// Notifications other than cancellations, and answers: a server asks for neither (rule M1).
    pub ignored: u64,
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
    prefix: String,
    /// Cancelled requests of which a message may wait in the transport's own buffer.
    pub(super) purged: Vec<Handle>,
    counters: ServerCounters,
}

impl<S: Service> Engine<S> {
    pub(super) fn new(service: StdArc<S>, ports: Ports, config: ServerConfig) -> Self {
        let outbound = outbound::Config { finals: config.requests.in_flight, ..config.outbound };
        Self {
            service,
            coordinator: RequestCoordinator::new(config.requests),
            queue: Arc::new(OutboundQueue::new(outbound)),
            ports,
            principal: config.principal.as_deref().map(StdArc::from),
            config,
            signals: Signals::default(),
            prefix: String::new(),
            purged: Vec::new(),
            counters: ServerCounters::default(),
        }
    }

    /// A message arrived.
    pub(super) fn receive(&mut self, now: Instant, text: &str) {
        match rpc::parse(text) {
            Ok(Message::Request { id, method, params }) => self.request(now, id, &method, params),
            Ok(Message::Notification { method, params }) if method == method::CANCELLED => {
                self.cancelled(now, params);
            }
            Ok(Message::Notification { .. } | Message::Response { .. }) => self.counters.ignored += 1,
            Err(bad) => {
                self.counters.bad_messages += 1;
                if let Some(code) = bad.code() {
                    // An error under the id of a request in flight would settle that one (rule C10).
                    let id = bad.id().filter(|id| !self.coordinator.is_duplicate(id));
                    self.refuse(id, &RpcError::new(code, bad.to_string()));
                }
            }
        }
    }

    /// Something arrived that is no text of a message.
    pub(super) fn receive_bad(&mut self, bad: BadFrame) {
        self.counters.bad_messages += 1;
        match bad {
            BadFrame::TooLong => {
                let what = "the message is longer than this server accepts";
                self.refuse(None, &RpcError::new(code::PARSE_ERROR, what));
            }
            // As like a line of a log as a message: answering it could make two peers talk for ever (rule S2).
            BadFrame::NotUtf8 => {}
        }
    }

    fn request(&mut self, now: Instant, id: RequestId, method: &str, params: Option<&RawValue>) {
        let meta = match request_meta(method, params) {
            Ok(meta) => meta,
            // An error under the id of a request in flight would settle that one (rule C10).
            Err(_) if self.coordinator.is_duplicate(&id) => return self.refuse_duplicate(),
            Err(error) => return self.refuse(Some(&id), &error.into()),
        };
        self.admit(now, id, method, params, meta);
    }

    /// A request whose metadata is read and right.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        id: RequestId,
        method: &str,
        params: Option<&RawValue>,
        meta: RequestMeta<'_>,
    ) {
        let RequestMeta { progress_token: token, .. } = meta;
        let listen = method == method::LISTEN;
        let start = Start { id: id.clone(), token: token.clone(), listen };
        let queue = &self.queue;
        let seat = |request| Arc::new(Slot::new(id.clone(), request, Arc::clone(queue)));
        let handle = match self.coordinator.start(now, start, seat) {
            Ok(handle) => handle,
            Err(Refusal::DuplicateId) => return self.refuse_duplicate(),
            Err(refusal @ Refusal::DuplicateToken) => {
                return self.refuse(Some(&id), &RpcError::invalid_params(refusal.to_string()));
            }
            Err(refusal @ (Refusal::Full(_) | Refusal::Closed)) => {
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
            token: token.map(StdArc::new),
            principal: self.principal.clone(),
        };
        let call = Call::new(method, params.map_or("{}", RawValue::get));
        self.run(handle, slot, call, context);
    }

    /// Starts the handler; most end here, at their first poll.
    fn run(&mut self, handle: Handle, slot: Arc<Slot>, call: Call, context: Context) {
        let run = Run::new(slot, StdArc::clone(&self.ports.timer));
        let service = &self.service;
        match Run::guard(|| service.call(call, context)) {
            Ok(Answer::Ready(outcome)) => run.complete(&outcome),
            Err(panic) => run.complete(&Err(panic)),
            Ok(Answer::Later(future)) => {
                let mut task = Box::pin(HandlerTask::new(future, run, self.config.grace));
                let mut cx = TaskContext::from_waker(Waker::noop());
                if Future::poll(Pin::as_mut(&mut task), &mut cx).is_pending() {
                    self.ports.spawn.spawn(task);
                    self.coordinator.arm_deadline(handle);
                }
            }
            Ok(Answer::Blocking(job)) => {
                self.ports.spawn.spawn_blocking(Box::new(move || {
                    // It may have waited for a thread longer than anybody waits for it.
                    if run.slot.reason().is_some() {
                        return;
                    }
                    let outcome = Run::guard(job).unwrap_or_else(Err);
                    run.complete(&outcome);
                }));
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
    pub(super) fn pop<R>(&mut self, encode: impl FnOnce(Item<'_>) -> R) -> Option<(Popped, R)> {
        let popped = self.queue.pop(encode)?;
        if let (Popped { handle: Some(handle), last: true }, _) = popped {
            drop(self.coordinator.release(handle));
        }
        Some(popped)
    }

    /// Takes the oldest messages that wait to leave, lending each to `encode`; whether there were any.
    pub(super) fn pop_into(
        &mut self,
        batch: &mut Batch,
        bytes: usize,
        mut encode: impl FnMut(Popped, Item<'_>),
    ) -> bool {
        self.queue.pop_into(batch, MESSAGES, bytes);
        let any = !batch.is_empty();
        batch.drain(|popped, item| {
            encode(popped, item);
            if let Popped { handle: Some(handle), last: true } = popped {
                drop(self.coordinator.release(handle));
            }
        });
        any
    }
}

impl<S> Engine<S> {
    /// Ends everything in silence: the peer is gone.
    pub(super) fn close(&mut self, now: Instant, event: Event) {
        for (handle, slot) in self.coordinator.close(now, event) {
            self.forget(handle, &slot, CancelReason::Disconnected);
        }
    }

    /// Ends what the server may end by itself: its open listens, each with its result (rules C5 and L4).
    pub(super) fn end_listens(&mut self, now: Instant) {
        let handles: Vec<Handle> = self.coordinator.handles().collect();
        for handle in handles {
            // The slot queues the result by itself; anything that is no open listen stays as it is.
            let _stays = self.coordinator.end_listen(now, handle);
        }
    }

    /// Handlers that still run.
    pub(super) fn running(&self) -> usize {
        self.coordinator.stragglers()
    }

    pub(super) fn counters(&self) -> ServerCounters {
        ServerCounters { requests: self.coordinator.counters(), ..self.counters }
    }

    /// Requests in flight: running, or answered and not yet sent.
    pub(super) fn in_flight(&self) -> usize {
        self.coordinator.in_flight()
    }

    fn forget(&mut self, handle: Handle, slot: &Arc<Slot>, reason: CancelReason) {
        self.queue.purge(handle);
        self.purged.push(handle);
        slot.explain(reason);
    }
}
