//! The two clocks of a request: an idle clock that accepted progress resets, and a maximum that nothing moves.
//!
//! ```text
//!            Activity (before the maximum): idle clock starts again
//!              ┌────┐
//!   start ──► running ── Tick, a clock has run out ──► Elapsed(Idle | Maximum)
//! ```
//!
//! | at the same instant | who wins |
//! |---|---|
//! | idle and maximum both run out | the earlier one; [`Clock::Maximum`] when they run out together |
//! | activity in hand, idle ran out but was not handled yet | the activity: what is in hand beats an unhandled timer |
//! | activity in hand at or after the maximum | the maximum: progress saves nothing there (rule T5) |
//!
//! Invariants: `DEADLINE-1` the maximum is written once, at the start; `DEADLINE-2` no activity at or after the maximum
//! changes anything.
//!
//! ```
//! use core::time::Duration;
//! use steady_core::deadline::{Clock, Deadline, Effect, Event, Limits};
//! use steady_core::time::Instant;
//!
//! let ms = Instant::from_millis;
//! let limits = Limits { idle: Some(Duration::from_millis(500)), maximum: Some(Duration::from_millis(2000)) };
//! let mut deadline = Deadline::start(ms(0), limits);
//! assert_eq!(deadline.handle(ms(400), Event::Activity), Effect::Extended);
//! assert_eq!(deadline.wake_at(), Some(ms(900)));
//! assert_eq!(deadline.handle(ms(899), Event::Tick), Effect::Nothing);
//! assert_eq!(deadline.handle(ms(900), Event::Tick), Effect::Elapsed(Clock::Idle));
//! ```

use core::time::Duration;

use crate::time::Instant;

/// How long a request may take. `None` switches a clock off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "the two clocks of rules T1 and T2")]
pub struct Limits {
    /// Longest silence: the time without accepted progress after which the request ends.
    pub idle: Option<Duration>,
    /// Longest life, counted from the start, whatever progress arrives (rule T2).
    pub maximum: Option<Duration>,
}

/// Which of the two clocks ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the two clocks of rules T1 and T2")]
pub enum Clock {
    /// No accepted progress for the idle limit.
    Idle,
    /// The maximum since the start.
    Maximum,
}

/// What happened to a [`Deadline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "an event of a leaf machine is matched without a rest arm")]
pub enum Event {
    /// Progress that the gate accepted. Keep-alives are not activity (rule T3).
    Activity,
    /// Time has passed.
    Tick,
}

/// What a [`Deadline`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "an effect of a leaf machine is matched without a rest arm")]
pub enum Effect {
    /// Nothing to do.
    Nothing,
    /// The idle clock started again.
    Extended,
    /// This clock has run out.
    Elapsed(Clock),
}

/// The two clocks of one request. See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deadline {
    idle: Option<Duration>,
    idle_at: Option<Instant>,
    max_at: Option<Instant>,
}

impl Deadline {
    /// Both clocks start at `now`.
    #[must_use]
    pub fn start(now: Instant, limits: Limits) -> Self {
        Self {
            idle: limits.idle,
            idle_at: limits.idle.map(|idle| now + idle),
            max_at: limits.maximum.map(|maximum| now + maximum),
        }
    }

    /// The one transition.
    pub fn handle(&mut self, now: Instant, event: Event) -> Effect {
        match event {
            Event::Activity if self.max_at.is_some_and(|at| now >= at) => Effect::Elapsed(Clock::Maximum),
            Event::Activity => {
                self.idle_at = self.idle.map(|idle| now + idle);
                Effect::Extended
            }
            Event::Tick => self.due(now).map_or(Effect::Nothing, Effect::Elapsed),
        }
    }

    /// When the next clock runs out, if none is switched off.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        match (self.idle_at, self.max_at) {
            (Some(idle), Some(max)) => Some(idle.min(max)),
            (idle, max) => idle.or(max),
        }
    }

    /// When the maximum runs out, if there is one. It never moves (`DEADLINE-1`).
    #[must_use]
    pub const fn max_at(&self) -> Option<Instant> {
        self.max_at
    }

    fn due(&self, now: Instant) -> Option<Clock> {
        let idle = self.idle_at.filter(|at| now >= *at);
        let max = self.max_at.filter(|at| now >= *at);
        match (idle, max) {
            (Some(idle), Some(max)) if idle < max => Some(Clock::Idle),
            (_, Some(_)) => Some(Clock::Maximum),
            (Some(_), None) => Some(Clock::Idle),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { idle: Some(Duration::from_millis(500)), maximum: Some(Duration::from_millis(2000)) };

    fn ms(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn the_earlier_clock_is_named_and_a_tie_is_the_maximum() {
        let mut deadline = Deadline::start(ms(0), LIMITS);
        assert_eq!(deadline.handle(ms(9000), Event::Tick), Effect::Elapsed(Clock::Idle));
        let limits = Limits { idle: Some(Duration::from_millis(2000)), ..LIMITS };
        let mut deadline = Deadline::start(ms(0), limits);
        assert_eq!(deadline.handle(ms(2000), Event::Tick), Effect::Elapsed(Clock::Maximum));
    }

    #[test]
    fn a_switched_off_clock_never_runs_out() {
        let mut deadline = Deadline::start(ms(0), Limits::default());
        assert_eq!(deadline.wake_at(), None);
        assert_eq!(deadline.handle(Instant::MAX, Event::Tick), Effect::Nothing);
        assert_eq!(deadline.handle(Instant::MAX, Event::Activity), Effect::Extended);
    }

    #[test]
    fn the_maximum_is_counted_from_the_start_and_never_moves() {
        let mut deadline = Deadline::start(ms(7), LIMITS);
        assert_eq!(deadline.max_at(), Some(ms(2007)));
        assert_eq!(deadline.handle(ms(400), Event::Activity), Effect::Extended);
        assert_eq!(deadline.max_at(), Some(ms(2007)), "DEADLINE-1");
        assert_eq!(Deadline::start(ms(7), Limits::default()).max_at(), None);
    }

    #[test]
    fn activity_at_the_maximum_changes_nothing() {
        let mut deadline = Deadline::start(ms(0), LIMITS);
        let before = deadline;
        assert_eq!(deadline.handle(ms(2000), Event::Activity), Effect::Elapsed(Clock::Maximum));
        assert_eq!(deadline, before, "DEADLINE-2");
    }
}
