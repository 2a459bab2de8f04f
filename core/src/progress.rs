//! Progress of one request: a strictly increasing gate with a rate limit that always keeps the last value.
//!
//! ```text
//!   Report(v), v greater than every one before
//!      rate allows it ──► Forward
//!      too soon       ──► Hold { until }   (a later one replaces it; Tick at `until` ──► Release)
//!   Report(v), v not greater ──► Refused
//!   Finish ──► Release if one is held, then closed      Discard ──► closed
//! ```
//!
//! Both sides run it: a server so that a busy handler does not flood the wire, a client so that a busy server does not
//! flood the application (rule P4). A held value is accepted progress all the same: it counts as activity (rule T2).
//!
//! Invariants: `PROG-1` forwarded values strictly increase (rule P2); `PROG-2` the last accepted value is forwarded or
//! released before the end, unless the request was cancelled; `PROG-3` nothing passes after the end (rule P3).
//!
//! ```
//! use core::time::Duration;
//! use steady_core::progress::{Effect, Event, Gate, Progress};
//! use steady_core::time::Instant;
//!
//! let ms = Instant::from_millis;
//! let at = |v: f64| Event::Report(Progress::new(v).unwrap());
//! let mut gate = Gate::new(Duration::from_millis(50));
//! assert_eq!(gate.handle(ms(0), at(1.0)), Effect::Forward);
//! assert_eq!(gate.handle(ms(10), at(1.0)), Effect::Refused);
//! assert_eq!(gate.handle(ms(20), at(2.0)), Effect::Hold { until: ms(50) });
//! assert_eq!(gate.handle(ms(50), Event::Tick), Effect::Release);
//! ```

use core::time::Duration;

use crate::time::Instant;

/// The default shortest time between two progress notifications a server sends for one token: 50 ms, twenty a second.
pub const SERVER_INTERVAL: Duration = Duration::from_millis(50);

/// The default shortest time between two progress values a client hands to the application for one call: 10 ms.
pub const CLIENT_INTERVAL: Duration = Duration::from_millis(10);

/// A progress value: a finite number, totally ordered, `-0` equal to `0`.
///
/// ```
/// use steady_core::progress::Progress;
/// assert!(Progress::new(f64::NAN).is_none());
/// assert!(Progress::new(-1.5) < Progress::new(0.0));
/// assert_eq!(Progress::new(-0.0), Progress::new(0.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Progress(i64);

impl Progress {
    /// The value as an ordered number; `None` for NaN and the infinities, which JSON cannot carry.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        // Adding zero turns -0 into 0. Flipping the lower 63 bits of negatives makes the bit order the numeric one.
        let bits = (value + 0.0).to_bits().cast_signed();
        let ordered = bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed();
        value.is_finite().then_some(Self(ordered))
    }

    /// The number again.
    #[must_use]
    pub fn value(self) -> f64 {
        let bits = self.0 ^ ((self.0 >> 63).cast_unsigned() >> 1).cast_signed();
        f64::from_bits(bits.cast_unsigned())
    }
}

/// What happened to a [`Gate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "an event of a leaf machine is matched without a rest arm")]
pub enum Event {
    /// Progress was reported.
    Report(Progress),
    /// Progress was reported that must not be held back: no rate limit, the order still counts.
    ReportNow(Progress),
    /// Time has passed.
    Tick,
    /// The request completed.
    Finish,
    /// The request was cancelled or lost: what is held is dropped.
    Discard,
}

/// What a [`Gate`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "an effect of a leaf machine is matched without a rest arm")]
pub enum Effect {
    /// Nothing to do.
    Nothing,
    /// Accepted: pass it on. A value that was held is superseded.
    Forward,
    /// Accepted, too soon to pass on: keep it in place of any held one, and tick at `until`.
    Hold {
        /// When it may go.
        until: Instant,
    },
    /// Pass on the value that is held.
    Release,
    /// Not greater than the last one, or after the end: drop and count it.
    Refused,
}

/// The gate of one request or call. See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gate {
    interval: Duration,
    last: Option<Progress>,
    next_at: Instant,
    held: bool,
    closed: bool,
}

impl Gate {
    /// A gate that passes one value in `interval` and holds the newest of the others; zero switches the limit off.
    #[must_use]
    pub const fn new(interval: Duration) -> Self {
        Self { interval, last: None, next_at: Instant::ZERO, held: false, closed: false }
    }

    /// The one transition.
    pub fn handle(&mut self, now: Instant, event: Event) -> Effect {
        if self.closed {
            return match event {
                Event::Report(_) | Event::ReportNow(_) => Effect::Refused,
                Event::Tick | Event::Finish | Event::Discard => Effect::Nothing,
            };
        }
        match event {
            Event::Report(value) | Event::ReportNow(value) if self.last.is_some_and(|last| value <= last) => {
                Effect::Refused
            }
            Event::Report(value) if now < self.next_at => {
                self.last = Some(value);
                self.held = true;
                Effect::Hold { until: self.next_at }
            }
            Event::Report(value) | Event::ReportNow(value) => {
                self.last = Some(value);
                self.pass(now);
                Effect::Forward
            }
            Event::Tick if self.held && now >= self.next_at => {
                self.pass(now);
                Effect::Release
            }
            Event::Tick => Effect::Nothing,
            Event::Finish => {
                self.closed = true;
                if core::mem::take(&mut self.held) { Effect::Release } else { Effect::Nothing }
            }
            Event::Discard => {
                self.closed = true;
                self.held = false;
                Effect::Nothing
            }
        }
    }

    /// When a held value may go; none if nothing is held.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        self.held.then_some(self.next_at)
    }

    fn pass(&mut self, now: Instant) {
        self.held = false;
        self.next_at = now + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    fn ms(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn report(value: f64) -> Event {
        Event::Report(Progress::new(value).expect("a number"))
    }

    #[test]
    fn numbers_keep_their_order_and_value() {
        let numbers = [f64::MIN, -2.5, -1.0, -f64::MIN_POSITIVE, 0.0, f64::MIN_POSITIVE, 1.0, 1.5, f64::MAX];
        let ordered: Vec<Progress> = numbers.iter().filter_map(|n| Progress::new(*n)).collect();
        assert!(ordered.is_sorted_by(|a, b| a < b));
        assert!(ordered.iter().zip(numbers).all(|(p, n)| p.value().to_bits() == n.to_bits()));
        for refused in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Progress::new(refused), None);
        }
    }

    #[test]
    fn repeated_and_decreasing_values_are_refused_while_one_is_held_too() {
        let mut gate = Gate::new(Duration::from_millis(50));
        assert_eq!(gate.handle(ms(0), report(5.0)), Effect::Forward);
        assert_eq!(gate.handle(ms(1), report(6.0)), Effect::Hold { until: ms(50) });
        for value in [4.0, 5.0, 6.0] {
            assert_eq!(gate.handle(ms(2), report(value)), Effect::Refused);
        }
    }

    #[test]
    fn the_last_value_is_kept_and_released_once() {
        let mut gate = Gate::new(Duration::from_millis(50));
        assert_eq!(gate.handle(ms(0), report(1.0)), Effect::Forward);
        assert_eq!(gate.wake_at(), None);
        assert_eq!(gate.handle(ms(1), report(2.0)), Effect::Hold { until: ms(50) });
        assert_eq!(gate.wake_at(), Some(ms(50)));
        assert_eq!(gate.handle(ms(49), Event::Tick), Effect::Nothing);
        assert_eq!(gate.handle(ms(50), Event::Tick), Effect::Release);
        assert_eq!(gate.wake_at(), None);
        assert_eq!(gate.handle(ms(50), Event::Tick), Effect::Nothing);
        assert_eq!(gate.handle(ms(60), report(3.0)), Effect::Hold { until: ms(100) });
        assert_eq!(gate.handle(ms(61), Event::Finish), Effect::Release, "PROG-2");
        assert_eq!(gate.handle(ms(62), report(4.0)), Effect::Refused, "PROG-3");
        assert_eq!(gate.handle(ms(500), Event::Tick), Effect::Nothing);
    }

    #[test]
    fn a_cancellation_drops_what_is_held() {
        let mut gate = Gate::new(Duration::from_millis(50));
        assert_eq!(gate.handle(ms(0), report(1.0)), Effect::Forward);
        assert_eq!(gate.handle(ms(1), report(2.0)), Effect::Hold { until: ms(50) });
        assert_eq!(gate.handle(ms(2), Event::Discard), Effect::Nothing);
        assert_eq!(gate.handle(ms(50), Event::Tick), Effect::Nothing);
        assert_eq!(gate.wake_at(), None);
    }

    #[test]
    fn lossless_reports_pass_without_the_rate_but_in_order() {
        let mut gate = Gate::new(Duration::from_millis(50));
        let now = |value| Event::ReportNow(Progress::new(value).expect("a number"));
        assert_eq!(gate.handle(ms(0), now(1.0)), Effect::Forward);
        assert_eq!(gate.handle(ms(0), now(2.0)), Effect::Forward);
        assert_eq!(gate.handle(ms(0), now(2.0)), Effect::Refused);
    }
}
