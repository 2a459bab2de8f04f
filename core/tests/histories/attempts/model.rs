//! What a client owes its callers and its server, from operations and outputs alone.

use std::time::Duration;

use steady_core::backoff::Backoff;
use steady_core::client::{CallOptions, Outcome, Output, Transport};
use steady_core::deadline::Limits;
use steady_core::id::{Attempt, CallId, WireId};
use steady_core::idempotency::Key;
use steady_core::progress::Progress;
use steady_core::retry::{Contract, SendPhase, Verdict};
use steady_core::time::Instant;

use super::super::history::{Seen, ensure};
use super::{Calls, Class, Out};

pub(super) const INTERVAL: Duration = Duration::from_millis(10);
pub(super) const BACKOFF: Backoff = super::backoff(8, 16);
const IDLE: Duration = Duration::from_millis(50);
const MAXIMUM: Duration = Duration::from_millis(80);

impl Class {
    fn contract(self) -> Contract {
        match self {
            Self::Safe => Contract::Safe,
            Self::Keyed => Contract::Conditional(Key::parse("order-7").expect("a key")),
            Self::Unsafe => Contract::Unsafe,
        }
    }

    const fn attempts(self) -> u16 {
        match self {
            Self::Keyed => 3,
            Self::Safe | Self::Unsafe => 2,
        }
    }

    pub(super) fn options(self) -> CallOptions {
        let limits = Limits { idle: Some(IDLE), maximum: Some(MAXIMUM) };
        CallOptions { limits, contract: self.contract(), attempts: self.attempts(), ..CallOptions::default() }
    }
}

/// The answer to this attempt, and to no other.
pub(super) fn answer(wire: WireId) -> u32 {
    u32::try_from(wire.number()).unwrap_or(u32::MAX)
}

pub(super) struct Call {
    pub(super) id: CallId,
    class: Class,
    idle_at: Instant,
    max_at: Instant,
    attempt: Attempt,
    retry_at: Option<Instant>,
    /// A request of it is to be sent, or out.
    wired: bool,
    /// The request that is out.
    taken: Option<WireId>,
    wires: Vec<WireId>,
    maybe_sent: bool,
    /// Progress the server made, by attempt.
    accepted: Vec<(Attempt, Progress)>,
    accepted_at: Instant,
    /// The attempt and the value that the application heard of last.
    shown: (Attempt, Option<Progress>),
    /// How it ends, and the signal that is owed for it.
    end: Option<(Outcome<u32>, Option<Verdict>)>,
    signal: Option<WireId>,
    finished: bool,
}

impl Call {
    fn end(&mut self, outcome: Outcome<u32>) {
        let maybe = self.maybe_sent || self.taken.is_some();
        let phase = if maybe { SendPhase::MaybeSent } else { SendPhase::NeverSent };
        let taken = self.taken.take();
        self.wired = false;
        let verdict = match outcome {
            Outcome::Answered(_) => None,
            Outcome::Cancelled | Outcome::IdleTimeout | Outcome::MaxTimeout | Outcome::NeverSent | Outcome::Unknown => {
                self.signal = taken;
                Some(self.class.contract().verdict(phase))
            }
        };
        self.end = Some((outcome, verdict));
    }

    fn lost(&mut self, now: Instant, maybe_sent: bool) {
        self.maybe_sent |= maybe_sent && self.taken.is_some();
        (self.wired, self.taken) = (false, None);
        let may = self.class != Class::Unsafe || !self.maybe_sent;
        if may && self.attempt.number() < self.class.attempts() {
            self.retry_at = Some(now + BACKOFF.delay(self.attempt, &mut super::jitter()));
            self.attempt = self.attempt.next();
        } else {
            self.end(if self.maybe_sent { Outcome::Unknown } else { Outcome::NeverSent });
        }
    }

    fn send_if_due(&mut self, now: Instant, link_up: bool) {
        if link_up && self.end.is_none() && self.retry_at.is_some_and(|at| at <= now) {
            (self.wired, self.retry_at) = (true, None);
        }
    }

    /// The newest value of the attempt, as the application should hear of it in the end.
    fn newest(&self, attempt: Attempt) -> Option<Progress> {
        self.accepted.iter().rev().find(|(of, _)| *of == attempt).map(|(_, value)| *value)
    }
}

pub(super) struct Model {
    pub(super) calls: Vec<Call>,
    pub(super) stray_cancellations: u64,
    pub(super) seen: Seen,
    link_up: bool,
    late: u64,
    unknown: u64,
    refused: u64,
    last_wire: Option<WireId>,
}

impl Model {
    pub(super) fn new() -> Self {
        let (calls, seen) = (Vec::new(), Seen::new());
        Self { calls, stray_cancellations: 0, seen, link_up: true, late: 0, unknown: 0, refused: 0, last_wire: None }
    }

    /// The call this far back from the newest.
    pub(super) fn back(&self, back: usize) -> Option<(usize, CallId)> {
        let index = self.calls.len().checked_sub(back + 1)?;
        Some((index, self.calls[index].id))
    }

    pub(super) fn newest(&self, back: usize) -> Option<WireId> {
        self.calls[self.back(back)?.0].wires.last().copied()
    }

    pub(super) fn oldest(&self, back: usize) -> Option<WireId> {
        self.calls[self.back(back)?.0].wires.first().copied()
    }

    pub(super) fn call(&mut self, now: Instant, id: CallId, class: Class) {
        let mut call = Call {
            id,
            class,
            idle_at: now + IDLE,
            max_at: now + MAXIMUM,
            attempt: Attempt::FIRST,
            retry_at: Some(now),
            wired: false,
            taken: None,
            wires: Vec::new(),
            maybe_sent: false,
            accepted: Vec::new(),
            accepted_at: now,
            shown: (Attempt::FIRST, None),
            end: None,
            signal: None,
            finished: false,
        };
        call.send_if_due(now, self.link_up);
        self.calls.push(call);
    }

    pub(super) fn give_up(&mut self, call: usize, outcome: Outcome<u32>) {
        if let Some(call) = self.calls.get_mut(call).filter(|call| call.end.is_none()) {
            call.end(outcome);
        }
    }

    fn out(&mut self, wire: WireId) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| call.taken == Some(wire))
    }

    pub(super) fn answer(&mut self, wire: WireId) {
        match self.out(wire) {
            Some(call) => call.end(Outcome::Answered(answer(wire))),
            None if wire.number() == u64::MAX => self.unknown += 1,
            None => self.late += 1,
        }
    }

    pub(super) fn progress(&mut self, now: Instant, wire: WireId, value: Progress) {
        let Some(call) = self.out(wire) else {
            self.unknown += 1;
            return;
        };
        if call.newest(call.attempt).is_some_and(|newest| value <= newest) {
            self.refused += 1;
        } else if now >= call.max_at {
            call.end(Outcome::MaxTimeout);
        } else {
            call.idle_at = now + IDLE;
            call.accepted_at = now;
            call.accepted.push((call.attempt, value));
        }
    }

    pub(super) fn attempt_lost(&mut self, now: Instant, wire: WireId, maybe_sent: bool) {
        if let Some(call) = self.out(wire) {
            call.lost(now, maybe_sent);
        }
    }

    pub(super) fn link_lost(&mut self, now: Instant) {
        self.link_up = false;
        self.calls.iter_mut().filter(|call| call.wired).for_each(|call| call.lost(now, true));
    }

    pub(super) fn link_up(&mut self, now: Instant) {
        self.link_up = true;
        self.calls.iter_mut().for_each(|call| call.send_if_due(now, true));
    }

    pub(super) fn timeout(&mut self, now: Instant) {
        for call in self.calls.iter_mut().filter(|call| call.end.is_none()) {
            if now >= call.idle_at && call.idle_at < call.max_at {
                call.end(Outcome::IdleTimeout);
            } else if now >= call.max_at {
                call.end(Outcome::MaxTimeout);
            }
            call.send_if_due(now, self.link_up);
        }
    }

    pub(super) fn output(&mut self, output: &Out) -> Result<(), String> {
        match output {
            Output::Send { call, wire, attempt, payload } => self.sent(*call, *wire, *attempt, *payload),
            Output::Signal { wire, signal } => {
                ensure!(*signal == Transport::Stdio.cancel_signal(), "rule C2: {signal:?}");
                let owed = self.calls.iter_mut().find(|call| call.signal == Some(*wire));
                let Some(owed) = owed else { return Err(format!("CALL-5: a signal for {wire} is not owed")) };
                owed.signal = None;
                self.seen.insert("signal");
                Ok(())
            }
            Output::Progress { call, value } => self.reported(*call, *value),
            Output::Finished { call, finished } => {
                let known = self.known(*call)?;
                ensure!(!known.finished, "CALL-1: {call} ended twice");
                known.finished = true;
                let expected = known.end.clone();
                let got = (finished.outcome.clone(), finished.verdict);
                ensure!(expected.as_ref() == Some(&got), "{call}: {expected:?} is due, it got {got:?}");
                let newest = known.newest(known.shown.0);
                let all = newest == known.shown.1 || !matches!(got.0, Outcome::Answered(_));
                ensure!(all, "PROG-2: {call} ended without its last progress {newest:?}");
                self.seen.insert(name(&got.0));
                Ok(())
            }
            Output::Listen { .. }
            | Output::Gap { .. }
            | Output::Notice { .. }
            | Output::Unsubscribed { .. }
            | Output::Idle { .. } => Err(format!("nobody asked for {output:?}")),
        }
    }

    fn known(&mut self, call: CallId) -> Result<&mut Call, String> {
        self.calls.iter_mut().find(|known| known.id == call).ok_or_else(|| format!("{call} was never started"))
    }

    fn sent(&mut self, call: CallId, wire: WireId, attempt: Attempt, payload: u32) -> Result<(), String> {
        ensure!(self.last_wire < Some(wire), "CALL-2: {wire} was used before");
        self.last_wire = Some(wire);
        let index = self.calls.iter().position(|known| known.id == call);
        let known = self.known(call)?;
        ensure!(known.wired && known.taken.is_none(), "CALL-4: {call} must not be sent now");
        ensure!(attempt == known.attempt, "{call} is at {}, not at {attempt}", known.attempt);
        ensure!(index == usize::try_from(payload).ok(), "another call's payload: {payload}");
        known.taken = Some(wire);
        known.wires.push(wire);
        known.shown = (attempt, None);
        self.seen.insert(if attempt == Attempt::FIRST { "send" } else { "resend" });
        Ok(())
    }

    fn reported(&mut self, call: CallId, value: Progress) -> Result<(), String> {
        let known = self.known(call)?;
        ensure!(!known.finished, "rule P3: progress of {call} after its end");
        ensure!(known.accepted.contains(&(known.shown.0, value)), "{call} never reported {value:?}");
        ensure!(known.shown.1 < Some(value), "PROG-1: {value:?} after {:?}", known.shown.1);
        known.shown.1 = Some(value);
        self.seen.insert("progress");
        Ok(())
    }

    /// Nothing that was due has been left out.
    pub(super) fn drained(
        &mut self,
        now: Instant,
        wake_at: Option<Instant>,
        after_timeout: bool,
        client: &Calls,
    ) -> Result<(), String> {
        for call in &self.calls {
            let id = call.id;
            ensure!(call.finished == call.end.is_some(), "{id} did not end: {:?} is due", call.end);
            ensure!(call.signal.is_none(), "CALL-5: no signal for {id}");
            ensure!(call.wired == call.taken.is_some(), "{id} is not sent although nothing hinders");
            let retry_at = call.retry_at.filter(|_| self.link_up);
            let due = retry_at.map_or(call.idle_at, |at| at.min(call.idle_at)).min(call.max_at);
            ensure!(call.finished || wake_at.is_some_and(|at| at <= due), "{id} is due at {due}, woken at {wake_at:?}");
            let newest = call.newest(call.shown.0);
            let shown = newest == call.shown.1 || now < call.accepted_at + INTERVAL;
            ensure!(!after_timeout || call.finished || shown, "PROG-2: {newest:?} of {id} is kept back");
        }
        let live = self.calls.iter().filter(|call| !call.finished).count();
        ensure!(client.in_flight() == live, "CALL-1: {live} are alive, not {}", client.in_flight());
        let counters = client.counters();
        let counted =
            (counters.late_answers, counters.unknown_ids, counters.refused_progress, counters.stray_cancellations);
        let expected = (self.late, self.unknown, self.refused, self.stray_cancellations);
        ensure!(counted == expected, "{expected:?} came astray, {counted:?} were counted");
        Ok(())
    }

    pub(super) fn all_over(&self) -> Result<(), String> {
        let left = self.calls.iter().find(|call| !call.finished);
        left.map_or(Ok(()), |call| Err(format!("CALL-1: {} never ended", call.id)))
    }

    pub(super) fn last_wire(&self, call: CallId) -> WireId {
        let wires = self.calls.iter().filter(|known| known.id == call).flat_map(|known| &known.wires);
        wires.last().copied().expect("an answer to something")
    }

    /// A further attempt of a call, which a wrong machine makes.
    pub(super) fn send_again(&self, call: CallId) -> Out {
        let index = self.calls.iter().position(|known| known.id == call).expect("known");
        let wire = WireId::new(self.last_wire.map_or(1, |wire| wire.number() + 1));
        let payload = u32::try_from(index).expect("few");
        Output::Send { call, wire, attempt: self.calls[index].attempt.next(), payload }
    }
}

const fn name(outcome: &Outcome<u32>) -> &'static str {
    match outcome {
        Outcome::Answered(_) => "answered",
        Outcome::Cancelled => "cancelled",
        Outcome::IdleTimeout => "idle",
        Outcome::MaxTimeout => "maximum",
        Outcome::NeverSent => "never sent",
        Outcome::Unknown => "unknown",
    }
}
