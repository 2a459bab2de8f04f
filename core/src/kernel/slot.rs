//! The slot of one request: its machine, the progress it holds back, and who waits to hear of its end, under one lock.
//!
//! Lock order is slot, then queue, and every push happens under the slot's lock: that is why no progress can follow the
//! final and nothing can follow a cancellation, whichever thread comes first.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::task::Waker;

use super::mutant;
use super::queue::OutboundQueue;
use super::sync::{Arc, Mutex, MutexGuard};
use super::trace::RequestSpan;
use crate::coordinator::{Effect, Ended, Event, Seat, ServedRequest};
use crate::deadline::Clock;
use crate::id::RequestId;
use crate::outbound::SendPermit;
use crate::progress::Progress;
use crate::request::Terminal;
use crate::rpc::{RpcError, code, encode};
use crate::time::Instant;

/// Why a handler should stop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// The client cancelled the request, perhaps with a reason for people.
    Cancelled(Option<Box<str>>),
    /// The client is gone: end of input, a closed stream, a broken link.
    Disconnected,
    /// The server's own deadline ran out; the client was told.
    Deadline(Clock),
    /// The server ended its listen; the client was told.
    Ended,
    /// The server is shutting down and its time is over; the client was told.
    Shutdown,
}

/// A request that its handler and the connection share.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(super) id: RequestId,
    pub(super) queue: Arc<OutboundQueue>,
    pub(super) span: RequestSpan,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    request: ServedRequest,
    held: Held,
    /// Whether the consumer knows that something is held.
    signalled: bool,
    /// Whether the held value still waits for its turn.
    waits: bool,
    reason: Option<CancelReason>,
    over_at: Option<Instant>,
    /// Open uncancellable sections.
    shields: u32,
    /// Whether the request ended inside of one: only the end of that one moves the grace period, not a later one's.
    ended_shielded: bool,
    waiters: Vec<(u64, Waker)>,
    next_waiter: u64,
}

/// The progress that the rate limit holds back; its text buffer is reused.
#[derive(Debug, Default)]
struct Held {
    progress: f64,
    total: Option<f64>,
    message: String,
}

/// What an event ended, as the coordinator needs to know it. The permit was used up inside the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done(Option<Terminal>);

impl Ended for Done {
    fn ended(&self) -> Option<Terminal> {
        self.0
    }
}

/// Whether the handler may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    InFlight,
    /// Over since this time, outside of any uncancellable section.
    Over(Instant),
    /// Over, inside of an uncancellable section.
    Shielded,
}

impl Slot {
    pub(super) fn new(id: RequestId, request: ServedRequest, queue: Arc<OutboundQueue>, span: RequestSpan) -> Self {
        let state = State {
            request,
            held: Held::default(),
            signalled: false,
            waits: false,
            reason: None,
            over_at: None,
            shields: 0,
            ended_shielded: false,
            waiters: Vec::new(),
            next_waiter: 0,
        };
        Self { id, queue, span, state: Mutex::new(state) }
    }

    /// Progress that may be coalesced. Whether it was accepted.
    pub(super) fn report(&self, now: Instant, value: Progress, total: Option<f64>, message: &str) -> bool {
        let (mut state, effect) = self.decide(now, Event::Report(value));
        let handle = state.request.id();
        match effect {
            Effect::Forward => {
                self.supersede(&mut state, false);
                if mutant::is("push-outside-lock") {
                    drop(state);
                }
                let _answer_of_the_policy = self.queue.progress(handle, value.value(), total, message);
                true
            }
            Effect::Hold { until } => {
                self.supersede(&mut state, true);
                state.held.progress = value.value();
                state.held.total = total;
                state.held.message.clear();
                state.held.message.push_str(message);
                if !core::mem::replace(&mut state.signalled, true) {
                    self.queue.tell(|signals| signals.held.push((handle, until)));
                }
                true
            }
            Effect::Quiet => true,
            Effect::Nothing | Effect::Refused | Effect::TooLate(_) => {
                self.queue.gates.refused.add_one();
                false
            }
            ended @ (Effect::Release | Effect::Respond { .. } | Effect::Expired { .. } | Effect::Silent(_)) => {
                self.settle(state, now, ended);
                false
            }
        }
    }

    /// Progress that may not be coalesced, and its text: queued once there is room. The gate is asked only then, so that two
    /// reports of one request that wait leave in an order that increases, or not at all. Whether it was queued.
    pub(super) fn poll_report_all(
        &self,
        cx: &core::task::Context<'_>,
        now: Instant,
        value: Progress,
        body: &[u8],
    ) -> core::task::Poll<bool> {
        let mut state = self.state.lock();
        let handle = state.request.id();
        let mut effect = Effect::Nothing;
        let over = state.request.terminal().is_some();
        let mut accept = || {
            effect = state.request.handle(now, Event::ReportNow(value));
            effect == Effect::Forward
        };
        let queued = if over || body.is_empty() {
            core::task::Poll::Ready(accept())
        } else {
            self.queue.poll_lossless_if(cx, handle, body, accept)
        };
        if effect == Effect::Forward {
            self.supersede(&mut state, false);
        } else if effect == Effect::Refused {
            self.queue.gates.refused.add_one();
        }
        self.settle(state, now, effect);
        queued
    }

    /// A value was accepted, and `waits` or goes on; one that waited is superseded.
    fn supersede(&self, state: &mut State, waits: bool) {
        if core::mem::replace(&mut state.waits, waits) {
            self.queue.gates.superseded.add_one();
        }
    }

    /// A notification of this request, queued once there is room and unless it is over. Whether it was queued.
    pub(super) fn poll_notify(&self, cx: &core::task::Context<'_>, body: &[u8]) -> core::task::Poll<bool> {
        let state = self.state.lock();
        if state.request.terminal().is_some() {
            return core::task::Poll::Ready(false);
        }
        self.queue.poll_lossless_if(cx, state.request.id(), body, || true)
    }

    /// The handler's answer: it is queued if the request is still in flight, and dropped otherwise. Whether it was queued.
    pub(super) fn complete(&self, now: Instant, answer: &Result<String, RpcError>) -> bool {
        let mut body = Vec::new();
        match answer {
            Ok(result) => encode::result(&mut body, &self.id, result),
            Err(error) => encode::error(&mut body, Some(&self.id), error),
        }
        let (mut state, effect) = self.decide(now, Event::Complete);
        let Effect::Respond { permit, release } = effect else { return false };
        self.respond(&mut state, permit, release, body);
        true
    }

    /// Answers in the handler's place, which is told why, if the request is still in flight.
    pub(super) fn fail(&self, now: Instant, error: &RpcError, reason: CancelReason) -> bool {
        let (mut state, effect) = self.decide(now, Event::Complete);
        let Effect::Respond { permit, release } = effect else { return false };
        let mut body = Vec::new();
        encode::error(&mut body, Some(&self.id), error);
        self.respond(&mut state, permit, release, body);
        let waiters = state.end(now, Some(reason));
        drop(state);
        wake(waiters);
        self.span.failed(error.code);
        true
    }

    /// Hands an event of the connection to the machine and does what it says.
    pub(super) fn handle_event(&self, now: Instant, event: Event) -> Done {
        let (mut state, effect) = self.decide(now, event);
        if event == Event::Tick {
            state.signalled = false;
        }
        let done = Done(effect.ended());
        self.settle(state, now, effect);
        done
    }

    /// Cancels the request from beside its connection, which hears of it at its next turn: at once nothing more is sent
    /// (rule C3). Whether it was in flight.
    pub(super) fn cancel(&self, now: Instant, reason: CancelReason) -> bool {
        if self.handle_event(now, Event::Cancel).ended().is_none() {
            return false;
        }
        let handle = self.state.lock().request.id();
        self.queue.purge(handle);
        self.span.cancelled(&reason);
        self.explain(reason);
        self.queue.tell(|signals| signals.held.push((handle, now)));
        true
    }

    /// Says why the request ended, to those who wait for its end. Without a reason of its own, the first one stays.
    pub(super) fn explain(&self, reason: CancelReason) {
        let mut state = self.state.lock();
        state.reason.get_or_insert(reason);
        let waiters = core::mem::take(&mut state.waiters);
        drop(state);
        wake(waiters);
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.state.lock().request.wake_at()
    }

    pub(super) fn max_at(&self) -> Option<Instant> {
        self.state.lock().request.max_at()
    }

    /// Why the handler should stop, if it should.
    pub(super) fn reason(&self) -> Option<CancelReason> {
        self.state.lock().reason.clone()
    }

    /// Where the handler stands. The waker is registered under `key`, for the end or for its explanation.
    pub(super) fn standing(&self, key: &mut Option<u64>, waker: &Waker) -> Standing {
        let mut state = self.state.lock();
        // Between a cancellation and its explanation the request is over without a reason yet: those who wait for the
        // reason must be registered then too.
        let old = state.register(key, waker);
        let standing = match state.over_at {
            Some(_) if state.shields > 0 => Standing::Shielded,
            Some(at) => Standing::Over(at),
            None => Standing::InFlight,
        };
        drop(state);
        // Not under the lock: what ends with a waker may be a task that holds this very request.
        drop(old);
        standing
    }

    pub(super) fn forget_waiter(&self, key: u64) {
        let mut state = self.state.lock();
        let at = state.waiters.iter().position(|(waiter, _)| *waiter == key);
        let gone = at.map(|at| state.waiters.swap_remove(at));
        drop(state);
        drop(gone);
    }

    pub(super) fn shield(&self) {
        self.state.lock().shields += 1;
    }

    pub(super) fn unshield(&self, now: Instant) {
        let mut state = self.state.lock();
        state.shields = state.shields.saturating_sub(1);
        // Whoever keeps the grace period is told, since a handler that now waits for something else would not be polled
        // again, and an alarm that rang inside of the section rings no more.
        if state.shields == 0 && state.over_at.is_some() {
            // The period starts at the end of the section in which the request ended, so that the handler can act on what
            // it did in it. A section that began later only puts the drop off.
            if core::mem::take(&mut state.ended_shielded) {
                state.over_at = Some(now);
            }
            let waiters = core::mem::take(&mut state.waiters);
            drop(state);
            wake(waiters);
        }
    }

    /// Hands an event to the machine. The lock is the caller's until what follows from the event is done.
    fn decide(&self, now: Instant, event: Event) -> (MutexGuard<'_, State>, Effect) {
        let mut state = self.state.lock();
        if mutant::is("decide-on-a-copy") {
            let mut request = state.request;
            let effect = request.handle(now, event);
            drop(state);
            state = self.state.lock();
            state.request = request;
            return (state, effect);
        }
        let effect = state.request.handle(now, event);
        (state, effect)
    }

    fn settle(&self, mut state: MutexGuard<'_, State>, now: Instant, effect: Effect) {
        let waiters = match effect {
            Effect::Nothing
            | Effect::Forward
            | Effect::Hold { .. }
            | Effect::Quiet
            | Effect::Refused
            | Effect::TooLate(_) => return,
            Effect::Release => {
                self.release(&mut state);
                return;
            }
            Effect::Respond { permit, release } => {
                // Only a listen is completed from outside of its handler (rule C5).
                let mut body = Vec::new();
                encode::listen_end(&mut body, &self.id);
                self.respond(&mut state, permit, release, body);
                state.end(now, Some(CancelReason::Ended))
            }
            Effect::Expired { permit, clock } => {
                let mut body = Vec::new();
                encode::error(&mut body, Some(&self.id), &deadline_error(clock));
                self.queue.finish(permit, body);
                self.span.expired(clock);
                state.end(now, Some(CancelReason::Deadline(clock)))
            }
            Effect::Silent(_) => state.end(now, None),
        };
        drop(state);
        wake(waiters);
    }

    fn respond(&self, state: &mut State, permit: SendPermit, release: bool, body: Vec<u8>) {
        if release {
            self.release(state);
        }
        self.queue.finish(permit, body);
    }

    fn release(&self, state: &mut State) {
        state.waits = false;
        let held = &state.held;
        let _answer_of_the_policy = self.queue.progress(state.request.id(), held.progress, held.total, &held.message);
    }
}

impl State {
    fn end(&mut self, now: Instant, reason: Option<CancelReason>) -> Vec<(u64, Waker)> {
        self.over_at = Some(now);
        self.ended_shielded = self.shields > 0;
        match reason {
            // Whoever cancelled explains it in a moment, and wakes the waiters then.
            None => Vec::new(),
            Some(reason) => {
                self.reason.get_or_insert(reason);
                core::mem::take(&mut self.waiters)
            }
        }
    }

    /// The waker that this one replaces, to be dropped without the lock.
    #[must_use]
    fn register(&mut self, key: &mut Option<u64>, waker: &Waker) -> Option<Waker> {
        let known = key.and_then(|key| self.waiters.iter_mut().find(|(waiter, _)| *waiter == key));
        if let Some((_, stored)) = known {
            return (!stored.will_wake(waker)).then(|| core::mem::replace(stored, waker.clone()));
        }
        let fresh = self.next_waiter;
        self.next_waiter += 1;
        *key = Some(fresh);
        self.waiters.push((fresh, waker.clone()));
        None
    }
}

impl Seat for Arc<Slot> {
    type Effect = Done;

    fn handle(&mut self, now: Instant, event: Event) -> Done {
        self.handle_event(now, event)
    }

    fn wake_at(&self) -> Option<Instant> {
        Slot::wake_at(self)
    }

    fn terminal(&self) -> Option<Terminal> {
        self.state.lock().request.terminal()
    }
}

fn wake(waiters: Vec<(u64, Waker)>) {
    if mutant::is("wake-no-waiter") {
        return;
    }
    waiters.into_iter().for_each(|(_, waker)| waker.wake());
}

fn deadline_error(clock: Clock) -> RpcError {
    let which = match clock {
        Clock::Idle => "without progress",
        Clock::Maximum => "in all",
    };
    let message = format!("the server's deadline for this request ran out (its limit {which})");
    RpcError::new(code::DEADLINE, message)
}
