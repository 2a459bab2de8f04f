//! How often somebody may ask, in a memory of fixed size.

use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;

use crate::kernel::sync::Mutex;
use crate::time::Instant;

/// How many requests are let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "plain settings")]
pub struct Rate {
    /// In the long run. Zero stands for one.
    pub per_second: u32,
    /// At once, after a pause. Zero stands for one.
    pub burst: u32,
}

impl Rate {
    fn interval(self) -> Duration {
        Duration::from_secs(1) / self.per_second.max(1)
    }
}

/// A limit for each of many names. A name's cell keeps when the next request is due in the long run; names whose hashes
/// meet share a cell, and so their rate: the table never grows, and is never full.
pub(super) struct Limiter {
    rate: Rate,
    cells: Mutex<Box<[Instant]>>,
}

impl Limiter {
    pub(super) fn new(rate: Rate, cells: usize) -> Self {
        Self { rate, cells: Mutex::new(vec![Instant::ZERO; cells.max(1)].into()) }
    }

    /// Whether this name may go on now; if not, after which pause.
    pub(super) fn admit(&self, now: Instant, name: &[&str]) -> Result<(), Duration> {
        let mut cells = self.cells.lock();
        let at = usize::try_from(hash(name) % cells.len() as u64).unwrap_or(0);
        let Some(due) = cells.get_mut(at) else { return Ok(()) };
        let from = (*due).max(now);
        let tolerance = self.rate.interval().saturating_mul(self.rate.burst.max(1) - 1);
        let ahead = from.saturating_since(now);
        if ahead > tolerance {
            return Err(ahead.saturating_sub(tolerance));
        }
        *due = from + self.rate.interval();
        Ok(())
    }
}

/// FNV-1a. Task ids are random, so nobody can aim at a cell.
fn hash(name: &[&str]) -> u64 {
    let bytes = name.iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate_then_the_burst_again() {
        let limiter = Limiter::new(Rate { per_second: 10, burst: 3 }, 64);
        let at = Instant::from_millis;
        let ask = |millis| limiter.admit(at(millis), &["ann", "t"]);
        assert_eq!([ask(1000), ask(1000), ask(1000)], [Ok(()); 3]);
        assert_eq!(ask(1000), Err(Duration::from_millis(100)));
        assert_eq!(ask(1050), Err(Duration::from_millis(50)), "a refusal costs nothing");
        assert_eq!((ask(1100), ask(1100)), (Ok(()), Err(Duration::from_millis(100))));
        assert_eq!([ask(9000), ask(9000), ask(9000)], [Ok(()); 3]);
        assert!(ask(9000).is_err());
        assert_eq!(limiter.admit(at(9000), &["bob", "t"]), Ok(()), "another caller's own");
    }

    #[test]
    fn one_cell_is_shared_and_settings_of_zero_are_one() {
        let limiter = Limiter::new(Rate { per_second: 0, burst: 0 }, 0);
        assert_eq!(limiter.admit(Instant::from_millis(1), &["a"]), Ok(()));
        assert_eq!(limiter.admit(Instant::from_millis(1), &["b"]), Err(Duration::from_secs(1)));
        assert_eq!(limiter.admit(Instant::from_millis(1001), &["b"]), Ok(()));
    }
}
