//! The table of calls: wire ids, attempts, deadlines, and the queue of what is to be done.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::io::{Input, Output};
use super::listens::{Listens, Notice};
use super::{CallOptions, Config, Counters, Finished, Outcome};
use crate::backoff::Jitter;
use crate::id::{Attempt, CallId, SubscriptionId, WireId};
use crate::progress::{self, Gate, Progress};
use crate::request::{self, Request, Terminal};
use crate::retry::{BudgetEffect, BudgetEvent, RetryBudget, SendPhase, Verdict};
use crate::subscription;
use crate::time::Instant;

/// Why a call was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The cap of calls in flight is reached.
    #[error("there are {limit} calls in flight already: wait for one to end, or raise the limit")]
    Full {
        /// The cap.
        limit: usize,
    },
    /// It repeats an earlier call, and the retry budget is empty.
    #[error("the retries of this client are used up: wait until the budget has refilled")]
    NoBudget,
}

#[derive(Clone, Debug)]
struct Call<P> {
    request: Request,
    gate: Gate,
    held: Option<Progress>,
    payload: P,
    options: CallOptions,
    attempt: Attempt,
    /// The id of the attempt that may be running; none in a pause.
    wire: Option<WireId>,
    /// Over all attempts so far.
    phase: SendPhase,
    retry_at: Option<Instant>,
    armed_at: Option<Instant>,
}

/// A client's calls. `P` is what is sent, `R` is an answer. See the [module](super).
#[derive(Clone, Debug)]
pub struct Client<P, R> {
    pub(super) config: Config,
    jitter: Jitter,
    budget: RetryBudget,
    calls: BTreeMap<CallId, Call<P>>,
    wires: BTreeMap<WireId, CallId>,
    deadlines: BTreeSet<(Instant, CallId)>,
    /// Bounded by what one event can cause: a few for each call in flight.
    pub(super) outputs: VecDeque<Output<P, R>>,
    pub(super) listens: Listens,
    next_call: u64,
    next_wire: u64,
    /// The newest attempt that was handed out: no server has heard of a later one.
    newest_out: Option<WireId>,
    pub(super) link_up: bool,
    counters: Counters,
}

impl<P: Clone, R> Client<P, R> {
    /// No calls; the link is there.
    #[must_use]
    pub fn new(now: Instant, config: Config, jitter: Jitter) -> Self {
        Self {
            budget: RetryBudget::new(now, config.budget),
            config,
            jitter,
            calls: BTreeMap::new(),
            wires: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            outputs: VecDeque::new(),
            listens: Listens::default(),
            next_call: 1,
            next_wire: 1,
            newest_out: None,
            link_up: true,
            counters: Counters::default(),
        }
    }

    /// Starts a call.
    ///
    /// # Errors
    /// [`CallError::Full`] at the cap; [`CallError::NoBudget`] for one that [repeats](CallOptions::repeats) another.
    pub fn call(&mut self, now: Instant, payload: P, options: CallOptions) -> Result<CallId, CallError> {
        if self.calls.len() >= self.config.in_flight {
            return Err(CallError::Full { limit: self.config.in_flight });
        }
        let event = if options.repeats { BudgetEvent::RetryWanted } else { BudgetEvent::CallStarted };
        if self.budget.handle(now, event) == BudgetEffect::Denied {
            return Err(CallError::NoBudget);
        }
        let id = CallId::new(self.next_call);
        self.next_call += 1;
        let call = Call {
            request: Request::start(now, options.limits),
            gate: Gate::new(self.config.progress_interval),
            held: None,
            payload,
            options,
            attempt: Attempt::FIRST,
            wire: None,
            phase: SendPhase::NeverSent,
            retry_at: Some(now),
            armed_at: None,
        };
        self.calls.insert(id, call);
        self.send_if_due(now, id);
        self.arm(id);
        Ok(id)
    }

    /// The application gives a call up, or dropped it. Settled at once; nothing if it was over.
    pub fn cancel(&mut self, now: Instant, call: CallId) {
        self.end(now, call, request::Event::Cancel);
    }

    /// Something happened outside.
    pub fn handle_input(&mut self, now: Instant, input: Input<R>) {
        if input.of_server().is_some_and(|wire| !self.is_out(wire)) {
            self.counters.unknown_ids += 1;
            return;
        }
        match input {
            Input::Response { wire, answer } => self.respond(now, wire, answer),
            Input::Progress { wire, value } => self.progress(now, wire, value),
            Input::Cancelled { wire: _ } => self.counters.stray_cancellations += 1,
            Input::NotSent { wire } => self.lost(now, wire, SendPhase::NeverSent),
            Input::StreamLost { wire } => self.lost(now, wire, SendPhase::MaybeSent),
            Input::Acknowledged { wire } => self.listening(now, wire, subscription::Event::Acknowledged, None),
            Input::Notice { wire, notice, about } => {
                self.listening(now, wire, subscription::Event::Message, Some((notice, about)));
            }
            Input::Heard => self.heard(now),
            Input::ListenEnded { wire, refused: false } => {
                self.listening(now, wire, subscription::Event::FinalResult, None);
            }
            Input::ListenEnded { wire, refused: true } => {
                self.listening(now, wire, subscription::Event::Refused, None);
            }
            Input::LinkLost => {
                self.link_up = false;
                self.lose_listens(now);
                while let Some((&wire, _)) = self.wires.first_key_value() {
                    self.attempt_failed(now, wire, SendPhase::MaybeSent);
                }
            }
            Input::LinkUp => {
                self.link_up = true;
                let waiting: alloc::vec::Vec<CallId> = self.calls.keys().copied().collect();
                for call in waiting {
                    self.send_if_due(now, call);
                    self.arm(call);
                }
                self.relink_listens(now);
            }
        }
    }

    /// Time has passed. Too early it does nothing; after it no deadline at or before `now` remains.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, id));
            let Some(call) = self.calls.get_mut(&id) else { continue };
            call.armed_at = None;
            if call.gate.handle(now, progress::Event::Tick) == progress::Effect::Release {
                self.release_held(id);
            }
            self.end(now, id, request::Event::Tick);
            self.send_if_due(now, id);
            self.arm(id);
        }
        self.tick_listens(now);
    }

    fn lost(&mut self, now: Instant, wire: WireId, phase: SendPhase) {
        if !self.listen_event(now, wire, subscription::Event::Lost, None) {
            self.attempt_failed(now, wire, phase);
        }
    }

    fn listening(&mut self, now: Instant, wire: WireId, event: subscription::Event, notice: Option<Notice<R>>) {
        if !self.listen_event(now, wire, event, notice) {
            // Of a listen request that was given up, or of none.
            self.count_stray(wire, true);
        }
    }

    /// What to do next. Call until [`Output::Idle`].
    pub fn poll_output(&mut self) -> Output<P, R> {
        let output = self.outputs.pop_front().unwrap_or_else(|| Output::Idle { wake_at: self.wake_at() });
        self.hand_out(&output);
        output
    }

    /// Attempts are handed out in the order of their ids.
    fn hand_out(&mut self, output: &Output<P, R>) {
        match output {
            Output::Send { wire, .. } => self.newest_out = Some(*wire),
            Output::Listen { plan, .. } => self.newest_out = Some(plan.wire()),
            Output::Signal { .. }
            | Output::Progress { .. }
            | Output::Finished { .. }
            | Output::Gap { .. }
            | Output::Notice { .. }
            | Output::Unsubscribed { .. }
            | Output::Idle { .. } => {}
        }
    }

    /// Whether a server can have heard of this attempt.
    fn is_out(&self, wire: WireId) -> bool {
        self.newest_out.is_some_and(|newest| wire <= newest)
    }

    fn wake_at(&self) -> Option<Instant> {
        let calls = self.deadlines.first().map(|(at, _)| *at);
        let deadlines = [calls, self.listens.wake_at(self.link_up)];
        deadlines.into_iter().flatten().min()
    }

    /// The oldest of the outputs that need no link, then [`Output::Idle`]. What is for the link stays, in its order, until
    /// [`poll_link`](Self::poll_link) takes it: a link that takes nothing now keeps no caller from being settled, and a
    /// request that is still here when its call ends leaves no trace of it on the wire.
    pub fn poll_local(&mut self) -> Output<P, R> {
        match self.outputs.iter().position(|output| !output.is_for_link()) {
            Some(at) => self.outputs.remove(at).unwrap_or(Output::Idle { wake_at: None }),
            None => Output::Idle { wake_at: self.wake_at() },
        }
    }

    /// The oldest of the outputs that are for the link: [`Output::Send`], [`Output::Signal`], [`Output::Listen`].
    pub fn poll_link(&mut self) -> Option<Output<P, R>> {
        let at = self.outputs.iter().position(Output::is_for_link)?;
        let output = self.outputs.remove(at)?;
        self.hand_out(&output);
        Some(output)
    }

    /// Whether something is for the link.
    #[must_use]
    pub fn wants_link(&self) -> bool {
        self.outputs.iter().any(Output::is_for_link)
    }

    /// How many outputs wait to be taken. Those are all for the link once [`poll_local`](Self::poll_local) was idle.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.outputs.len()
    }

    /// The call that this attempt is out for.
    #[must_use]
    pub fn call_of(&self, wire: WireId) -> Option<CallId> {
        self.wires.get(&wire).copied().filter(|_| self.is_out(wire))
    }

    /// The subscription whose listen request, which is out, has this id.
    #[must_use]
    pub fn subscription_of(&self, wire: WireId) -> Option<SubscriptionId> {
        self.listens.of(wire).filter(|_| self.is_out(wire))
    }

    /// There will be no link any more: every call ends as never sent or unknown, every subscription is closed.
    pub fn give_up(&mut self, now: Instant) {
        self.handle_input(now, Input::LinkLost);
        let calls: alloc::vec::Vec<CallId> = self.calls.keys().copied().collect();
        for call in calls {
            self.end(now, call, request::Event::Lost);
        }
        self.close_listens(now);
    }

    /// Calls in flight, pauses included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.calls.len()
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    fn respond(&mut self, now: Instant, wire: WireId, answer: R) {
        let Some(&id) = self.wires.get(&wire) else { return self.count_stray(wire, true) };
        let Some(call) = self.calls.get_mut(&id) else { return };
        let request::Effect::Settled(Terminal::Completed) = call.request.handle(now, request::Event::Complete) else {
            return;
        };
        if call.gate.handle(now, progress::Event::Finish) == progress::Effect::Release {
            self.release_held(id);
        }
        // The server has answered: there is nobody to signal.
        self.wires.remove(&wire);
        self.finish(id, Outcome::Answered(answer), None);
    }

    fn progress(&mut self, now: Instant, wire: WireId, value: Progress) {
        let Some(&id) = self.wires.get(&wire) else { return self.count_stray(wire, false) };
        let Some(call) = self.calls.get_mut(&id) else { return };
        let mut gate = call.gate;
        let passed = gate.handle(now, progress::Event::Report(value));
        if passed == progress::Effect::Refused {
            self.counters.refused_progress += 1;
            return;
        }
        if self.end(now, id, request::Event::Progress) {
            return;
        }
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.gate = gate;
        match passed {
            progress::Effect::Forward => {
                call.held = None;
                self.outputs.push_back(Output::Progress { call: id, value });
            }
            progress::Effect::Hold { .. } => call.held = Some(value),
            progress::Effect::Nothing | progress::Effect::Release | progress::Effect::Refused => {}
        }
        self.arm(id);
    }

    fn release_held(&mut self, id: CallId) {
        if let Some(value) = self.calls.get_mut(&id).and_then(|call| call.held.take()) {
            self.outputs.push_back(Output::Progress { call: id, value });
        }
    }

    fn count_stray(&mut self, wire: WireId, answer: bool) {
        if answer && self.is_out(wire) {
            self.counters.late_answers += 1;
        } else {
            self.counters.unknown_ids += 1;
        }
    }

    /// Feeds an event that may end a call without an answer; whether it did.
    fn end(&mut self, now: Instant, id: CallId, event: request::Event) -> bool {
        let Some(call) = self.calls.get_mut(&id) else { return true };
        let request::Effect::Settled(terminal) = call.request.handle(now, event) else { return false };
        let outcome = match (terminal, call.phase) {
            (Terminal::Cancelled, _) => Outcome::Cancelled,
            (Terminal::IdleTimeout, _) => Outcome::IdleTimeout,
            (Terminal::MaxTimeout, _) => Outcome::MaxTimeout,
            (Terminal::Lost, SendPhase::NeverSent) => Outcome::NeverSent,
            (Terminal::Completed | Terminal::Lost, _) => Outcome::Unknown,
        };
        let (wire, before, contract) = (call.wire, call.phase, call.options.contract.clone());
        // An attempt that is out may have reached the server; one that nobody took yet is not out.
        let out = wire.filter(|wire| !self.retract(*wire));
        let verdict = contract.verdict(if out.is_some() { SendPhase::MaybeSent } else { before });
        if let Some(wire) = wire {
            self.wires.remove(&wire);
        }
        if let Some(wire) = out {
            self.outputs.push_back(Output::Signal { wire, signal: self.config.transport.cancel_signal() });
        }
        self.finish(id, outcome, Some(verdict));
        true
    }

    fn finish(&mut self, id: CallId, outcome: Outcome<R>, verdict: Option<Verdict>) {
        if let Some(call) = self.calls.remove(&id) {
            if let Some(at) = call.armed_at {
                self.deadlines.remove(&(at, id));
            }
            self.outputs.push_back(Output::Finished { call: id, finished: Finished { outcome, verdict } });
        }
    }

    /// Takes back the request of an attempt that was not handed out yet; whether it was there.
    pub(super) fn retract(&mut self, wire: WireId) -> bool {
        let here = |output: &Output<P, R>| match output {
            Output::Send { wire: sent, .. } => *sent == wire,
            Output::Listen { plan, .. } => plan.wire() == wire,
            Output::Signal { .. }
            | Output::Progress { .. }
            | Output::Finished { .. }
            | Output::Gap { .. }
            | Output::Notice { .. }
            | Output::Unsubscribed { .. }
            | Output::Idle { .. } => false,
        };
        let position = self.outputs.iter().position(here);
        position.is_some_and(|position| self.outputs.remove(position).is_some())
    }

    /// An attempt ended without an answer: send again after a pause, or end the call.
    fn attempt_failed(&mut self, now: Instant, wire: WireId, phase: SendPhase) {
        let Some(id) = self.wires.remove(&wire) else { return };
        // What nobody took yet did not leave, whatever the link says.
        let phase = if self.retract(wire) { SendPhase::NeverSent } else { phase };
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.wire = None;
        call.phase = call.phase.worst(phase);
        let allowed = match call.options.contract.verdict(call.phase) {
            Verdict::Retry | Verdict::RetrySameKey => call.attempt.number() < call.options.attempts,
            Verdict::ReconcileFirst => false,
        };
        if !allowed || self.budget.handle(now, BudgetEvent::RetryWanted) != BudgetEffect::Granted {
            self.end(now, id, request::Event::Lost);
            return;
        }
        let pause = self.config.backoff.delay(call.attempt, &mut self.jitter);
        call.retry_at = Some(now + pause);
        call.attempt = call.attempt.next();
        self.counters.retries += 1;
        self.arm(id);
    }

    /// An id that was never used (`CALL-2`, `SUB-2`).
    pub(super) fn fresh_wire(&mut self) -> WireId {
        let wire = WireId::new(self.next_wire);
        self.next_wire += 1;
        wire
    }

    fn send_if_due(&mut self, now: Instant, id: CallId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if !self.link_up || call.retry_at.is_none_or(|at| now < at) {
            return;
        }
        call.retry_at = None;
        // A fresh token starts a fresh sequence (rule P2): what the attempt before it had reached counts no more.
        call.gate = Gate::new(self.config.progress_interval);
        call.held = None;
        let wire = self.fresh_wire();
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.wire = Some(wire);
        let (attempt, payload) = (call.attempt, call.payload.clone());
        self.wires.insert(wire, id);
        self.outputs.push_back(Output::Send { call: id, wire, attempt, payload });
    }

    /// Puts the call's next deadline into the order, if it is earlier than the one that is there. A later one is put in
    /// when the earlier one comes up.
    fn arm(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        // A retry that is due waits for the link, not for the clock.
        let retry_at = call.retry_at.filter(|_| self.link_up);
        let wake_at = [call.request.wake_at(), call.gate.wake_at(), retry_at].into_iter().flatten().min();
        let Some(at) = wake_at else { return };
        if call.armed_at.is_some_and(|armed| armed <= at) {
            return;
        }
        if let Some(armed) = call.armed_at.replace(at) {
            self.deadlines.remove(&(armed, id));
        }
        self.deadlines.insert((at, id));
    }
}
