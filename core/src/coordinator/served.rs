//! One request on the server's side: its terminal state, its progress gate, and the one permit to answer it.
//!
//! | event | in flight | over |
//! |---|---|---|
//! | report, greater than the last | [`Effect::Forward`], [`Effect::Hold`]; [`Effect::Quiet`] without a token | [`Effect::Refused`] |
//! | report, not greater | [`Effect::Refused`]; the idle clock is not touched | [`Effect::Refused`] |
//! | report at or after the maximum | [`Effect::Expired`] (rule T5) | [`Effect::Refused`] |
//! | complete | [`Effect::Respond`] with the permit | [`Effect::TooLate`] |
//! | cancel, lost | [`Effect::Silent`]: nobody may answer any more | [`Effect::TooLate`] |
//! | tick | [`Effect::Expired`], [`Effect::Release`] or nothing | [`Effect::TooLate`] |
//!
//! Invariants: `REQ-2` at most one permit; `SRV-1` a server's own deadline answers one error, silence belongs to
//! cancellation alone (rule C8).

use core::time::Duration;

use crate::deadline::{Clock, Limits};
use crate::outbound::{Handle, SendPermit};
use crate::progress::{self, Gate, Progress};
use crate::request::{self, Request, Terminal};
use crate::time::Instant;

/// What happened to a served request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "an event of a leaf machine is matched without a rest arm")]
pub enum Event {
    /// Its handler reported progress that may be coalesced.
    Report(Progress),
    /// Its handler reported progress that may not.
    ReportNow(Progress),
    /// Its handler has the answer.
    Complete,
    /// The peer cancelled it.
    Cancel,
    /// The peer is gone.
    Lost,
    /// Time has passed.
    Tick,
}

/// What a served request answers. Holds the permit where there is one.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "an effect of a leaf machine is matched without a rest arm")]
pub enum Effect {
    /// Nothing to do.
    Nothing,
    /// Queue this progress.
    Forward,
    /// Keep this progress in place of any kept one, and tick at `until`.
    Hold {
        /// When it may go.
        until: Instant,
    },
    /// Queue the progress that was kept.
    Release,
    /// Accepted as activity; the peer did not ask for progress.
    Quiet,
    /// Not greater than the last, or too late: drop and count it.
    Refused,
    /// Queue the answer, after the kept progress if `release` is set.
    Respond {
        /// The right to do so.
        permit: SendPermit,
        /// Whether a kept progress value goes first (`PROG-2`).
        release: bool,
    },
    /// A clock ran out: queue an error that says so.
    Expired {
        /// The right to do so.
        permit: SendPermit,
        /// The clock.
        clock: Clock,
    },
    /// It ended in this way, and nothing more is sent for it (rule C3).
    Silent(Terminal),
    /// It had ended before.
    TooLate(Terminal),
}

impl Effect {
    /// How the request ended, if this event ended it.
    #[must_use]
    pub fn ended(&self) -> Option<Terminal> {
        match self {
            Self::Respond { .. } => Some(Terminal::Completed),
            Self::Expired { clock, .. } => Some((*clock).into()),
            Self::Silent(terminal) => Some(*terminal),
            Self::Nothing
            | Self::Forward
            | Self::Hold { .. }
            | Self::Release
            | Self::Quiet
            | Self::Refused
            | Self::TooLate(_) => None,
        }
    }
}

/// One served request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServedRequest {
    request: Request,
    gate: Gate,
    wants_progress: bool,
    handle: Handle,
}

impl ServedRequest {
    /// In flight from `now`. `interval` is the shortest time between two progress notifications.
    #[must_use]
    pub fn start(now: Instant, handle: Handle, limits: Limits, wants_progress: bool, interval: Duration) -> Self {
        // Progress that nobody asked for is activity and no more: the gate never holds any back.
        let interval = if wants_progress { interval } else { Duration::ZERO };
        Self { request: Request::start(now, limits), gate: Gate::new(interval), wants_progress, handle }
    }

    /// The one transition.
    pub fn handle(&mut self, now: Instant, event: Event) -> Effect {
        match event {
            Event::Report(value) => self.report(now, progress::Event::Report(value)),
            Event::ReportNow(value) => self.report(now, progress::Event::ReportNow(value)),
            Event::Complete => self.end(now, request::Event::Complete),
            Event::Cancel => self.end(now, request::Event::Cancel),
            Event::Lost => self.end(now, request::Event::Lost),
            Event::Tick => {
                let ended = self.end(now, request::Event::Tick);
                let released = ended == Effect::Nothing
                    && self.gate.handle(now, progress::Event::Tick) == progress::Effect::Release;
                if released { Effect::Release } else { ended }
            }
        }
    }

    /// Its handle.
    #[must_use]
    pub const fn id(&self) -> Handle {
        self.handle
    }

    /// How it ended, if it has.
    #[must_use]
    pub const fn terminal(&self) -> Option<Terminal> {
        self.request.terminal()
    }

    /// When it wants its next tick.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        match (self.request.wake_at(), self.gate.wake_at()) {
            (Some(clock), Some(held)) => Some(clock.min(held)),
            (clock, held) => clock.or(held),
        }
    }

    /// When its maximum runs out, if it has one.
    #[must_use]
    pub const fn max_at(&self) -> Option<Instant> {
        self.request.max_at()
    }

    fn report(&mut self, now: Instant, event: progress::Event) -> Effect {
        let mut gate = self.gate;
        let passed = gate.handle(now, event);
        if passed == progress::Effect::Refused {
            return Effect::Refused;
        }
        // Only what the gate accepts is activity (REQ-3); at or after the maximum even that saves nothing.
        let ended = self.end(now, request::Event::Progress);
        if ended != Effect::Nothing {
            return ended;
        }
        self.gate = gate;
        match passed {
            progress::Effect::Forward if self.wants_progress => Effect::Forward,
            progress::Effect::Forward => Effect::Quiet,
            progress::Effect::Hold { until } => Effect::Hold { until },
            progress::Effect::Nothing | progress::Effect::Release | progress::Effect::Refused => Effect::Refused,
        }
    }

    fn end(&mut self, now: Instant, event: request::Event) -> Effect {
        let terminal = match self.request.handle(now, event) {
            request::Effect::Nothing | request::Effect::Extended => return Effect::Nothing,
            request::Effect::TooLate(terminal) => return Effect::TooLate(terminal),
            request::Effect::Settled(terminal) => terminal,
        };
        let permit = SendPermit::new(self.handle);
        match terminal {
            Terminal::Completed => {
                let release = self.gate.handle(now, progress::Event::Finish) == progress::Effect::Release;
                Effect::Respond { permit, release }
            }
            Terminal::IdleTimeout => self.expire(now, permit, Clock::Idle),
            Terminal::MaxTimeout => self.expire(now, permit, Clock::Maximum),
            Terminal::Cancelled | Terminal::Lost => {
                let _nothing: progress::Effect = self.gate.handle(now, progress::Event::Discard);
                Effect::Silent(terminal)
            }
        }
    }

    fn expire(&mut self, now: Instant, permit: SendPermit, clock: Clock) -> Effect {
        let _nothing: progress::Effect = self.gate.handle(now, progress::Event::Discard);
        Effect::Expired { permit, clock }
    }
}
