//! What a shell does with coordinator and buffer, and each answer of theirs held against the model.

use std::collections::{BTreeMap, BTreeSet};

use steady_core::coordinator::{Cancelled, Config, Effect, Event, Polled, RequestCoordinator, ServedRequest, Start};
use steady_core::deadline::Clock;
use steady_core::id::{ProgressToken, RequestId};
use steady_core::outbound::{self, Handle, Item, Outbound, Popped, Pushed, SendPermit};
use steady_core::progress::Progress;
use steady_core::time::Instant;

use super::super::history::ensure;
use super::model::{self, End, Line, Model};
use super::{Mutant, Op};

pub(super) struct World {
    now: Instant,
    coordinator: RequestCoordinator<ServedRequest>,
    outbound: Outbound,
    pub(super) model: Model,
    mutant: Option<Mutant>,
    /// The newest request under each id.
    newest: BTreeMap<i64, Handle>,
    running: BTreeSet<Handle>,
    /// Progress that the rate limit holds back, and until when.
    held: BTreeMap<Handle, (u8, Instant)>,
    /// What a handler still has of a request that was cancelled.
    silenced: BTreeMap<Handle, ServedRequest>,
}

impl World {
    pub(super) fn new(mutant: Option<Mutant>) -> Self {
        let config = Config {
            in_flight: model::CAP,
            stragglers: model::STRAGGLERS,
            listens: 1024,
            limits: model::LIMITS,
            progress_interval: model::INTERVAL,
        };
        // Roomy, so that no progress is evicted: what eviction does is the buffer's own model.
        let buffer = outbound::Config { finals: model::CAP, lossless: 2, ..outbound::Config::default() };
        Self {
            now: Instant::ZERO,
            coordinator: RequestCoordinator::new(config),
            outbound: Outbound::new(buffer),
            model: Model::default(),
            mutant,
            newest: BTreeMap::new(),
            running: BTreeSet::new(),
            held: BTreeMap::new(),
            silenced: BTreeMap::new(),
        }
    }

    pub(super) fn apply(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Start(id) => self.start(id, Some(id / 2), false),
            Op::StartQuiet(id) => self.start(id, None, false),
            Op::StartListen(id) => self.start(id, None, true),
            Op::Report(id, value) => self.report(id, value, false),
            Op::ReportLossless(id, value) => {
                // Without room its handler waits.
                if self.outbound.lossless_fits(1) { self.report(id, value, true) } else { Ok(()) }
            }
            Op::Complete(id) => self.complete(id),
            Op::EndListen(id) => self.newest.get(&id).copied().map_or(Ok(()), |handle| self.end_listen(handle)),
            Op::HandlerEnds(id) => {
                if let Some(&handle) = self.newest.get(&id) {
                    self.handler_ends(handle);
                }
                Ok(())
            }
            Op::Cancel(id) => self.cancel(&id.into(), self.newest.get(&id).copied()),
            Op::CancelOtherType(id) => self.cancel(&RequestId::from(id.to_string().as_str()), None),
            Op::Wait(ms) => {
                self.now = self.now + std::time::Duration::from_millis(ms.into());
                Ok(())
            }
            Op::Before | Op::Onto => {
                self.go(u64::from(op == Op::Before));
                Ok(())
            }
            Op::Poll => self.poll(),
            Op::Pop => self.pop().map(drop),
            Op::Close => self.close(),
            Op::AdmitNoMore => {
                self.coordinator.drain();
                self.model.closed = true;
                Ok(())
            }
        }?;
        let counted = (self.coordinator.in_flight(), self.coordinator.stragglers());
        let expected = self.model.counts(&self.running);
        ensure!(counted == expected, "COORD-1, COORD-3: {expected:?} in flight and stragglers, it counts {counted:?}");
        ensure!(self.coordinator.armed() <= counted.0, "more deadlines than requests");
        Ok(())
    }

    fn start(&mut self, id: i64, token: Option<i64>, listen: bool) -> Result<(), String> {
        let expected = self.model.refusal(id, token, &self.running);
        let start = Start { id: id.into(), token: token.map(|token| ProgressToken(token.into())), listen };
        let started = self.coordinator.start(self.now, start, |request| request);
        ensure!(started.err() == expected, "{expected:?} is due, it answered {started:?}");
        if let Ok(handle) = started {
            self.outbound.open(handle, "p");
            self.coordinator.arm_deadline(handle);
            self.running.insert(handle);
            self.newest.insert(id, handle);
            self.model.start(self.now, handle, id, token, listen);
        }
        Ok(())
    }

    /// What its handler sees of a request: also one that was cancelled. Nothing once the handler has ended.
    fn hand(&mut self, id: i64, event: Event) -> Option<(Handle, Effect)> {
        let handle = *self.newest.get(&id)?;
        let running = self.running.contains(&handle);
        let seat = match self.coordinator.seat(handle) {
            Some(seat) => seat,
            None => self.silenced.get_mut(&handle)?,
        };
        running.then(|| (handle, seat.handle(self.now, event)))
    }

    fn report(&mut self, id: i64, value: u8, lossless: bool) -> Result<(), String> {
        let progress = Progress::new(f64::from(value)).expect("finite");
        let event = if lossless { Event::ReportNow(progress) } else { Event::Report(progress) };
        let Some((handle, effect)) = self.hand(id, event) else { return Ok(()) };
        let expected = self.model.report(self.now, handle, value, lossless);
        let token = self.model.requests[&handle].token.is_some();
        match effect {
            Effect::Forward => {
                ensure!(expected == Ok(true) && token, "it forwards {value}, and {expected:?} is due");
                self.held.remove(&handle);
                self.push(handle, value, lossless)
            }
            Effect::Hold { until } => {
                ensure!(expected == Ok(true) && token && !lossless, "it holds {value}, and {expected:?} is due");
                ensure!(until > self.now && until <= self.now + model::INTERVAL, "it holds {value} until {until}");
                self.coordinator.arm(handle, until);
                self.held.insert(handle, (value, until));
                self.model.seen.insert("held");
                Ok(())
            }
            Effect::Quiet => {
                ensure!(expected == Ok(true) && !token, "it is quiet about {value}, and {expected:?} is due");
                self.model.seen.insert("quiet");
                if self.mutant == Some(Mutant::ReportsToNobody) { self.push(handle, value, false) } else { Ok(()) }
            }
            Effect::Refused => {
                ensure!(expected == Ok(false), "it refuses {value}, and {expected:?} is due");
                Ok(())
            }
            Effect::Expired { permit, clock } => {
                ensure!(expected == Err(End::Maximum) && clock == Clock::Maximum, "rule T5: {clock:?} of {value}");
                self.answer(permit, End::Maximum)
            }
            Effect::Nothing | Effect::Release | Effect::Respond { .. } | Effect::Silent(_) | Effect::TooLate(_) => {
                Err(format!("a report is answered {effect:?}"))
            }
        }
    }

    fn push(&mut self, handle: Handle, value: u8, lossless: bool) -> Result<(), String> {
        if lossless {
            ensure!(self.outbound.lossless(handle, value.to_string().as_bytes()), "no room for lossless progress");
        } else {
            let pushed = self.outbound.progress(handle, f64::from(value), None, "");
            ensure!(matches!(pushed, Pushed::Queued | Pushed::Coalesced), "progress of an open request: {pushed:?}");
        }
        Ok(())
    }

    fn complete(&mut self, id: i64) -> Result<(), String> {
        let Some((handle, effect)) = self.hand(id, Event::Complete) else { return Ok(()) };
        match effect {
            Effect::Respond { permit, release } => self.respond(handle, permit, release)?,
            Effect::TooLate(terminal) => {
                ensure!(self.model.requests[&handle].end.is_some(), "REQ-1: {terminal} before its end");
            }
            other => return Err(format!("a completion is answered {other:?}")),
        }
        self.handler_ends(handle);
        Ok(())
    }

    fn respond(&mut self, handle: Handle, permit: SendPermit, release: bool) -> Result<(), String> {
        let held = self.held.remove(&handle);
        ensure!(held.is_some() == release, "PROG-2: {held:?} is held, release is {release}");
        if let Some((value, _)) = held.filter(|_| self.mutant != Some(Mutant::ForgetsAKeptValue)) {
            self.push(handle, value, false)?;
        }
        self.answer(permit, End::Result)
    }

    fn answer(&mut self, permit: SendPermit, end: End) -> Result<(), String> {
        let handle = permit.handle();
        self.held.remove(&handle);
        self.model.end(handle, end)?;
        let queued = self.outbound.finish(permit, end.text().as_bytes().to_vec());
        ensure!(queued.is_ok(), "OUT-2: no place for a final");
        if self.mutant == Some(Mutant::FreesTheIdTooEarly) {
            self.coordinator.release(handle);
        }
        Ok(())
    }

    fn handler_ends(&mut self, handle: Handle) {
        if self.running.remove(&handle) {
            self.coordinator.handler_ended(handle);
        }
    }

    fn end_listen(&mut self, handle: Handle) -> Result<(), String> {
        let open = self.model.is_open_listen(handle);
        let ended = self.coordinator.end_listen(self.now, handle);
        ensure!(ended.is_ok() == open, "COORD-5: an open listen: {open}");
        let Ok(ended) = ended else { return Ok(()) };
        self.model.seen.insert("listen ended");
        let Effect::Respond { permit, release } = ended.effect else { return Err("no permit".to_owned()) };
        self.respond(handle, permit, release)
    }

    fn cancel(&mut self, id: &RequestId, newest: Option<Handle>) -> Result<(), String> {
        let expected = newest.and_then(|handle| self.model.cancel(handle));
        if let Some(handle) = newest.filter(|_| self.mutant == Some(Mutant::AnswersACancelledRequest))
            && let Some(seat) = self.coordinator.seat(handle)
            && let Effect::Respond { permit, .. } = seat.handle(self.now, Event::Complete)
        {
            return self.answer(permit, End::Result);
        }
        match self.coordinator.cancel(self.now, id) {
            Cancelled::Ended(handle, seat) => {
                ensure!(expected == Some(true) && newest == Some(handle), "it cancels, and {expected:?} is due");
                self.silence(handle, seat);
            }
            Cancelled::TooLate(_) => ensure!(expected == Some(false), "too late, and {expected:?} is due"),
            Cancelled::Unknown => ensure!(expected.is_none(), "unknown, and {expected:?} is due"),
        }
        Ok(())
    }

    fn silence(&mut self, handle: Handle, seat: ServedRequest) {
        if self.mutant != Some(Mutant::LeavesWhatWasCancelled) {
            self.outbound.purge(handle);
        }
        self.held.remove(&handle);
        self.silenced.insert(handle, seat);
    }

    fn close(&mut self) -> Result<(), String> {
        let ended = self.coordinator.close(self.now, Event::Lost);
        let handles: BTreeSet<Handle> = ended.iter().map(|(handle, _)| *handle).collect();
        let expected = self.model.close();
        ensure!(handles == expected, "{expected:?} were in flight, {handles:?} ended");
        for (handle, seat) in ended {
            self.silence(handle, seat);
        }
        Ok(())
    }

    fn wake_at(&self) -> Option<Instant> {
        // Nothing is due at the origin, so this is but a look.
        match self.coordinator.clone().poll(Instant::ZERO) {
            Polled::Idle { wake_at } => wake_at,
            Polled::Acted(..) => None,
        }
    }

    fn go(&mut self, before: u64) {
        let at = self.wake_at().map(|at| Instant::from_nanos(at.as_nanos().saturating_sub(before)));
        self.now = at.map_or(self.now, |at| at.max(self.now));
    }

    fn poll(&mut self) -> Result<(), String> {
        for _ in 0..100 {
            match self.coordinator.poll(self.now) {
                Polled::Acted(handle, Effect::Release) => {
                    let Some((value, _)) = self.held.remove(&handle) else {
                        return Err("it releases, and nothing is held".to_owned());
                    };
                    self.push(handle, value, false)?;
                }
                Polled::Acted(_, Effect::Expired { permit, clock }) => {
                    let end = if clock == Clock::Idle { End::Idle } else { End::Maximum };
                    let due = self.model.due(self.now, permit.handle());
                    ensure!(due == Some(end), "{end:?} at {}, and {due:?} is due", self.now);
                    self.answer(permit, end)?;
                }
                Polled::Acted(_, Effect::Nothing | Effect::TooLate(_)) => {}
                Polled::Acted(_, other) => return Err(format!("a tick is answered {other:?}")),
                Polled::Idle { wake_at } => {
                    ensure!(wake_at.is_none_or(|at| at > self.now), "COORD-4: {wake_at:?} at {}", self.now);
                    let held = self.held.values().map(|(_, until)| *until).min();
                    let due = self.model.next_due().into_iter().chain(held).min();
                    ensure!(
                        due.is_none() || wake_at.is_some() && wake_at <= due,
                        "due at {due:?}, woken at {wake_at:?}"
                    );
                    return Ok(());
                }
            }
        }
        Err("COORD-4: it does not come to rest".to_owned())
    }

    fn pop(&mut self) -> Result<bool, String> {
        let Some((Popped { handle, last }, line)) = self.outbound.pop(show) else { return Ok(false) };
        let handle = handle.ok_or("there are no refusals here")?;
        if !(last && self.mutant == Some(Mutant::DropsAFinal)) {
            self.model.popped(handle, line)?;
        }
        let again = match line {
            Line::Final(_) => self.mutant == Some(Mutant::AnswersTwice),
            Line::Progress(_) => self.mutant == Some(Mutant::ReportsBackwards),
        };
        if again {
            self.model.popped(handle, line)?;
        }
        ensure!(last == matches!(line, Line::Final(_)), "the last message of a request is its final");
        if last {
            self.model.released(handle);
            let released = self.coordinator.release(handle);
            ensure!(released.is_some() || self.mutant.is_some(), "its id was free before its answer left");
        }
        Ok(true)
    }

    /// Listens are ended, clocks run out, everything leaves: each request had one final, or silence.
    pub(super) fn come_to_rest(&mut self) -> Result<(), String> {
        let handles: Vec<Handle> = self.coordinator.handles().collect();
        for handle in handles {
            self.end_listen(handle)?;
        }
        for _ in 0..100 {
            self.apply(Op::Poll)?;
            while self.pop()? {}
            if self.coordinator.in_flight() == 0 {
                break;
            }
            self.go(0);
        }
        for handle in std::mem::take(&mut self.running) {
            self.coordinator.handler_ended(handle);
        }
        let left = (self.coordinator.in_flight(), self.coordinator.stragglers(), self.coordinator.armed());
        ensure!(left == (0, 0, 0), "requests, stragglers and deadlines are left: {left:?}");
        ensure!(self.outbound.is_empty() && self.held.is_empty(), "messages are left");
        self.model.all_over()
    }
}

fn show(item: Item<'_>) -> Line {
    match item {
        Item::Progress { progress, .. } => Line::Progress(Progress::new(progress).expect("finite")),
        Item::Text(text) => {
            let text = std::str::from_utf8(text).expect("UTF-8");
            match text.parse() {
                Ok(value) => Line::Progress(Progress::new(value).expect("finite")),
                Err(_) => Line::Final(End::of(text)),
            }
        }
    }
}
