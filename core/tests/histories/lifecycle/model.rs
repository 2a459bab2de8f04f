//! What a server owes each request: one end, one final or silence, and its progress in order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use steady_core::coordinator::Refusal;
use steady_core::deadline::Limits;
use steady_core::outbound::Handle;
use steady_core::progress::Progress;
use steady_core::time::Instant;

use super::super::history::{Seen, ensure};

pub(super) const CAP: usize = 4;
pub(super) const STRAGGLERS: usize = 3;
pub(super) const INTERVAL: Duration = Duration::from_millis(20);
const IDLE: Duration = Duration::from_millis(50);
const MAXIMUM: Duration = Duration::from_millis(120);
pub(super) const LIMITS: Limits = Limits { idle: Some(IDLE), maximum: Some(MAXIMUM) };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Result,
    Idle,
    Maximum,
    Silence,
}

impl End {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Result => "result",
            Self::Idle => "idle",
            Self::Maximum => "maximum",
            Self::Silence => "silence",
        }
    }

    pub(super) fn of(text: &str) -> Self {
        let ends = [Self::Result, Self::Idle, Self::Maximum, Self::Silence];
        ends.into_iter().find(|end| end.text() == text).expect("a text of ours")
    }
}

/// What left the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Progress(Progress),
    Final(End),
}

#[derive(Debug)]
pub(super) struct Request {
    id: i64,
    pub(super) token: Option<i64>,
    listen: bool,
    idle_at: Option<Instant>,
    max_at: Option<Instant>,
    /// Values that were accepted, and whether each must arrive.
    accepted: Vec<(Progress, bool)>,
    popped: Option<Progress>,
    pub(super) end: Option<End>,
    answered: bool,
    /// Its id is in use: no final of it has left, and it was not silenced.
    present: bool,
}

impl Request {
    fn due(&self, now: Instant) -> Option<End> {
        let idle = self.idle_at.filter(|at| *at <= now);
        let max = self.max_at.filter(|at| *at <= now);
        match (idle, max) {
            (Some(idle), Some(max)) if idle < max => Some(End::Idle),
            (_, Some(_)) => Some(End::Maximum),
            (Some(_), None) => Some(End::Idle),
            (None, None) => None,
        }
    }
}

#[derive(Default)]
pub(super) struct Model {
    pub(super) requests: BTreeMap<Handle, Request>,
    pub(super) closed: bool,
    pub(super) seen: Seen,
}

impl Model {
    fn present(&self) -> impl Iterator<Item = &Request> {
        self.requests.values().filter(|request| request.present)
    }

    /// In flight, and handlers that outlive their request.
    pub(super) fn counts(&self, running: &BTreeSet<Handle>) -> (usize, usize) {
        let stragglers = running.iter().filter(|handle| !self.requests[handle].present).count();
        (self.present().count(), stragglers)
    }

    pub(super) fn refusal(&mut self, id: i64, token: Option<i64>, running: &BTreeSet<Handle>) -> Option<Refusal> {
        let (in_flight, stragglers) = self.counts(running);
        let (refusal, kind) = if self.present().any(|request| request.id == id) {
            (Refusal::DuplicateId, "duplicate id")
        } else if self.closed {
            (Refusal::Closed, "closed")
        } else if token.is_some() && self.present().any(|request| request.token == token) {
            (Refusal::DuplicateToken, "duplicate token")
        } else if in_flight >= CAP || stragglers >= STRAGGLERS {
            (Refusal::Full(CAP), if stragglers >= STRAGGLERS { "straggler" } else { "full" })
        } else {
            return None;
        };
        self.seen.insert(kind);
        Some(refusal)
    }

    pub(super) fn start(&mut self, now: Instant, handle: Handle, id: i64, token: Option<i64>, listen: bool) {
        let at = |limit| (!listen).then_some(now + limit);
        let request = Request {
            id,
            token,
            listen,
            idle_at: at(IDLE),
            max_at: at(MAXIMUM),
            accepted: Vec::new(),
            popped: None,
            end: None,
            answered: false,
            present: true,
        };
        let before = self.requests.insert(handle, request);
        assert!(before.is_none(), "a handle is never used again");
    }

    fn in_flight(&mut self, handle: Handle) -> Option<&mut Request> {
        self.requests.get_mut(&handle).filter(|request| request.end.is_none())
    }

    /// Whether a report is accepted, or the end that it finds.
    pub(super) fn report(&mut self, now: Instant, handle: Handle, value: u8, lossless: bool) -> Result<bool, End> {
        let value = Progress::new(f64::from(value)).expect("finite");
        let Some(request) = self.in_flight(handle) else { return Ok(false) };
        if request.accepted.last().is_some_and(|(last, _)| value <= *last) {
            return Ok(false);
        }
        if request.max_at.is_some_and(|at| at <= now) {
            return Err(End::Maximum);
        }
        request.idle_at = request.idle_at.map(|_| now + IDLE);
        request.accepted.push((value, lossless));
        Ok(true)
    }

    pub(super) fn end(&mut self, handle: Handle, end: End) -> Result<(), String> {
        let Some(request) = self.in_flight(handle) else { return Err(format!("REQ-2: {end:?} after the end")) };
        request.end = Some(end);
        Ok(())
    }

    pub(super) fn due(&mut self, now: Instant, handle: Handle) -> Option<End> {
        self.in_flight(handle).and_then(|request| request.due(now))
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let live = self.requests.values().filter(|request| request.end.is_none());
        live.flat_map(|request| [request.idle_at, request.max_at]).flatten().min()
    }

    pub(super) fn is_open_listen(&mut self, handle: Handle) -> bool {
        self.in_flight(handle).is_some_and(|request| request.listen)
    }

    /// Whether a cancellation of this request ends it; nothing if its id names none any more.
    pub(super) fn cancel(&mut self, handle: Handle) -> Option<bool> {
        let request = self.requests.get_mut(&handle).filter(|request| request.present)?;
        let ends = request.end.is_none();
        if ends {
            (request.end, request.present) = (Some(End::Silence), false);
            self.seen.insert("silence");
        }
        Some(ends)
    }

    pub(super) fn close(&mut self) -> BTreeSet<Handle> {
        self.closed = true;
        let handles: Vec<Handle> = self.requests.keys().copied().collect();
        handles.into_iter().filter(|handle| self.cancel(*handle) == Some(true)).collect()
    }

    pub(super) fn popped(&mut self, handle: Handle, line: Line) -> Result<(), String> {
        let Some(request) = self.requests.get_mut(&handle) else { return Err(format!("{handle:?} is unknown")) };
        ensure!(request.end != Some(End::Silence), "rule C3: {line:?} of a cancelled request");
        ensure!(!request.answered, "OUT-3: {line:?} after the final");
        let popped = request.popped;
        let skipped = |upto: Option<Progress>| {
            let kept = request.accepted.iter().filter(|(_, lossless)| *lossless).map(|(value, _)| *value);
            kept.into_iter().any(|value| Some(value) > popped && upto.is_none_or(|upto| value < upto))
        };
        match line {
            Line::Progress(value) => {
                ensure!(request.token.is_some(), "rule P1: progress that nobody asked for");
                let accepted = request.accepted.iter().find(|(accepted, _)| *accepted == value);
                let Some((_, lossless)) = accepted else { return Err(format!("{value:?} was never accepted")) };
                ensure!(popped < Some(value), "OUT-4: {value:?} after {popped:?}");
                ensure!(!skipped(Some(value)), "OUT-4: {value:?} before lossless progress");
                self.seen.insert(if *lossless { "lossless" } else { "progress" });
                request.popped = Some(value);
            }
            Line::Final(end) => {
                ensure!(request.end == Some(end), "{end:?} leaves, and {:?} is due", request.end);
                let last = request.accepted.last().map(|(value, _)| *value);
                let shown = end != End::Result || request.token.is_none() || last == popped;
                ensure!(shown, "PROG-2: the last progress {last:?} was kept back");
                ensure!(request.token.is_none() || !skipped(None), "lossless progress was lost");
                self.seen.insert(end.text());
                request.answered = true;
            }
        }
        Ok(())
    }

    pub(super) fn released(&mut self, handle: Handle) {
        if let Some(request) = self.requests.get_mut(&handle) {
            request.present = false;
        }
    }

    pub(super) fn all_over(&self) -> Result<(), String> {
        for request in self.requests.values() {
            let Some(end) = request.end else { return Err(format!("request {} never ended", request.id)) };
            ensure!((end == End::Silence) != request.answered, "OUT-2: request {} ended as {end:?}", request.id);
        }
        Ok(())
    }
}
