//! Time that comes in from outside: a monotonic [`Instant`] without a `now()`, and a [`WallTime`] for durable records.
//!
//! The two never meet in the core: a deadline is an `Instant`, a row in a database is a `WallTime`.

use core::fmt;
use core::time::Duration;

/// A point on a monotonic clock: nanoseconds since an origin that the shell picks once.
///
/// It is an ordinary value (`Hash`, `Ord`, printable, comparable across runs), so a machine that holds deadlines can be
/// copied, searched and compared. Arithmetic saturates: the far future is [`Instant::MAX`], never a panic.
///
/// ```
/// use core::time::Duration;
/// use steady_core::time::Instant;
///
/// let start = Instant::ZERO;
/// let later = start + Duration::from_millis(500);
/// assert_eq!(later.saturating_since(start), Duration::from_millis(500));
/// assert_eq!(start.saturating_since(later), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the shell's clock.
    pub const ZERO: Self = Self(0);
    /// About 584 years after the origin.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `millis` milliseconds after the origin, saturating.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl core::ops::Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}ms", self.0 / 1_000_000, self.0 / 1_000 % 1_000)
    }
}

/// Wall-clock time, in milliseconds since the Unix epoch. For durable records only: it may jump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(i64);

impl WallTime {
    /// The time `millis` milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_unix_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_millis(self) -> i64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Instant::MAX + Duration::from_secs(1), Instant::MAX);
        assert_eq!(Instant::ZERO + Duration::MAX, Instant::MAX);
        assert_eq!(Instant::from_millis(u64::MAX), Instant::MAX);
        assert_eq!(Instant::from_millis(2).to_string(), "2.000ms");
    }

    extern crate std;
    use std::string::ToString;
}
