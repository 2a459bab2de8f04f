//! One request's terminal state: the machine under both the server's coordinator and the client's calls.
//!
//! ```text
//!                    Complete ──► Completed
//!                    Cancel   ──► Cancelled
//!   InFlight ──┬──   Lost     ──► Lost
//!    ▲   │     │     Tick / Progress, a clock has run out ──► IdleTimeout | MaxTimeout
//!    └───┘     └───  every state on the right is terminal and sticky
//!   Progress
//! ```
//!
//! | in hand at the same instant | who wins |
//! |---|---|
//! | completion or cancellation, and a clock that was not handled yet | the completion or cancellation |
//! | completion and cancellation | the one handled first; the other is [`Effect::TooLate`] |
//! | progress at or after the maximum | the maximum (rule T5) |
//! | progress after the idle clock ran out, before it was handled | the progress |
//!
//! Invariants: `REQ-1` exactly one terminal state, for ever; `REQ-2` the right to answer is given at most once, and never
//! after a cancellation or a loss (rule C3); `REQ-3` only accepted progress moves the idle clock (rule T2).
//!
//! ```
//! use steady_core::deadline::Limits;
//! use steady_core::request::{Effect, Event, Request, Terminal};
//! use steady_core::time::Instant;
//!
//! let mut request = Request::start(Instant::ZERO, Limits::default());
//! assert_eq!(request.handle(Instant::ZERO, Event::Cancel), Effect::Settled(Terminal::Cancelled));
//! assert_eq!(request.handle(Instant::ZERO, Event::Complete), Effect::TooLate(Terminal::Cancelled));
//! ```

use core::fmt;

use crate::deadline::{self, Clock, Deadline, Limits};
use crate::time::Instant;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every way a request can end; callers must decide each")]
pub enum Terminal {
    /// It has its answer, a result or an error.
    Completed,
    /// It was cancelled before it had one.
    Cancelled,
    /// No accepted progress for the idle limit.
    IdleTimeout,
    /// The maximum since its start ran out.
    MaxTimeout,
    /// The link to the peer was lost: whether it ran is unknown.
    Lost,
}

impl From<Clock> for Terminal {
    fn from(clock: Clock) -> Self {
        match clock {
            Clock::Idle => Self::IdleTimeout,
            Clock::Maximum => Self::MaxTimeout,
        }
    }
}

impl fmt::Display for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::IdleTimeout => "idle timeout",
            Self::MaxTimeout => "maximum timeout",
            Self::Lost => "lost",
        })
    }
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a state of a leaf machine is matched without a rest arm")]
pub enum State {
    /// Nothing has ended it yet.
    InFlight,
    /// It has ended, for good.
    Over(Terminal),
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "an event of a leaf machine is matched without a rest arm")]
pub enum Event {
    /// Its answer is there.
    Complete,
    /// It was cancelled.
    Cancel,
    /// Progress that the gate accepted.
    Progress,
    /// The link to the peer is gone.
    Lost,
    /// Time has passed.
    Tick,
}

/// What a request answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "an effect of a leaf machine is matched without a rest arm")]
pub enum Effect {
    /// Nothing to do.
    Nothing,
    /// The idle clock started again.
    Extended,
    /// The request ended with this event, in this way.
    Settled(Terminal),
    /// It had ended before, in this way; the event changed nothing.
    TooLate(Terminal),
}

/// One request. See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    state: State,
    deadline: Deadline,
}

impl Request {
    /// In flight from `now`, under both clocks.
    #[must_use]
    pub fn start(now: Instant, limits: Limits) -> Self {
        Self { state: State::InFlight, deadline: Deadline::start(now, limits) }
    }

    /// The one transition.
    pub fn handle(&mut self, now: Instant, event: Event) -> Effect {
        let terminal = match self.state {
            State::Over(terminal) => return Effect::TooLate(terminal),
            State::InFlight => match event {
                Event::Complete => Terminal::Completed,
                Event::Cancel => Terminal::Cancelled,
                Event::Lost => Terminal::Lost,
                Event::Progress => match self.deadline.handle(now, deadline::Event::Activity) {
                    deadline::Effect::Nothing => return Effect::Nothing,
                    deadline::Effect::Extended => return Effect::Extended,
                    deadline::Effect::Elapsed(clock) => clock.into(),
                },
                Event::Tick => match self.deadline.handle(now, deadline::Event::Tick) {
                    deadline::Effect::Nothing | deadline::Effect::Extended => return Effect::Nothing,
                    deadline::Effect::Elapsed(clock) => clock.into(),
                },
            },
        };
        self.state = State::Over(terminal);
        Effect::Settled(terminal)
    }

    /// Where it is.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// How it ended, if it has.
    #[must_use]
    pub const fn terminal(&self) -> Option<Terminal> {
        match self.state {
            State::InFlight => None,
            State::Over(terminal) => Some(terminal),
        }
    }

    /// When its next clock runs out; none once it has ended.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        match self.state {
            State::InFlight => self.deadline.wake_at(),
            State::Over(_) => None,
        }
    }

    /// When its maximum runs out, if it has one.
    #[must_use]
    pub const fn max_at(&self) -> Option<Instant> {
        self.deadline.max_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    const LIMITS: Limits =
        Limits { idle: Some(Duration::from_millis(500)), maximum: Some(Duration::from_millis(2000)) };

    fn ms(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn statement_05_progress_may_reset_the_idle_timeout_never_the_maximum() {
        let mut request = Request::start(ms(0), LIMITS);
        for at in [400, 800, 1200] {
            assert_eq!(request.handle(ms(at), Event::Tick), Effect::Nothing);
            assert_eq!(request.handle(ms(at), Event::Progress), Effect::Extended);
        }
        assert_eq!(request.handle(ms(1500), Event::Tick), Effect::Nothing, "alive at 1500");
        assert_eq!(request.handle(ms(1699), Event::Progress), Effect::Extended);
        assert_eq!(request.handle(ms(1999), Event::Progress), Effect::Extended);
        assert_eq!(request.wake_at(), Some(ms(2000)), "progress at 1999 does not move the maximum");
        assert_eq!(request.handle(ms(2000), Event::Tick), Effect::Settled(Terminal::MaxTimeout));
    }

    #[test]
    fn without_progress_the_idle_clock_ends_it_at_500() {
        let mut request = Request::start(ms(0), LIMITS);
        assert_eq!(request.handle(ms(499), Event::Tick), Effect::Nothing);
        assert_eq!(request.handle(ms(500), Event::Tick), Effect::Settled(Terminal::IdleTimeout));
    }

    #[test]
    fn progress_in_hand_at_the_maximum_does_not_save_it() {
        let mut request = Request::start(ms(0), LIMITS);
        assert_eq!(request.handle(ms(2000), Event::Progress), Effect::Settled(Terminal::MaxTimeout));
    }

    #[test]
    fn what_is_in_hand_beats_an_unhandled_timer() {
        for (event, terminal) in [(Event::Complete, Terminal::Completed), (Event::Cancel, Terminal::Cancelled)] {
            let mut request = Request::start(ms(0), LIMITS);
            assert_eq!(request.handle(ms(9000), event), Effect::Settled(terminal));
        }
        let mut request = Request::start(ms(0), LIMITS);
        assert_eq!(request.handle(ms(501), Event::Progress), Effect::Extended);
    }

    #[test]
    fn every_terminal_state_is_sticky_under_every_event() {
        let events = [Event::Complete, Event::Cancel, Event::Progress, Event::Lost, Event::Tick];
        let ends = [
            (ms(1), Event::Complete),
            (ms(1), Event::Cancel),
            (ms(1), Event::Lost),
            (ms(500), Event::Tick),
            (ms(2000), Event::Progress),
        ];
        for (at, end) in ends {
            let mut request = Request::start(ms(0), LIMITS);
            let Effect::Settled(terminal) = request.handle(at, end) else { panic!("{end:?} ends it") };
            let over = request;
            for event in events {
                for now in [ms(0), at, Instant::MAX] {
                    assert_eq!(request.handle(now, event), Effect::TooLate(terminal), "REQ-1");
                    assert_eq!(request, over);
                }
            }
            assert_eq!((request.wake_at(), request.terminal()), (None, Some(terminal)));
            assert_eq!(request.state(), State::Over(terminal));
        }
    }

    #[test]
    fn in_flight_it_has_clocks_and_no_end() {
        let request = Request::start(ms(1), LIMITS);
        assert_eq!((request.state(), request.terminal()), (State::InFlight, None));
        assert_eq!((request.wake_at(), request.max_at()), (Some(ms(501)), Some(ms(2001))));
    }

    #[test]
    fn ends_are_told_apart_in_a_log() {
        use Terminal::{Cancelled, Completed, IdleTimeout, Lost, MaxTimeout};
        let told = [Completed, Cancelled, IdleTimeout, MaxTimeout, Lost].map(|terminal| alloc::format!("{terminal}"));
        assert_eq!(told, ["completed", "cancelled", "idle timeout", "maximum timeout", "lost"]);
    }
}
