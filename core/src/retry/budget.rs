//! The retry budget: a token bucket that all calls of one client share.
//!
//! Decides whether a retry that the matrix allows may go out now, so that retries stay a fraction of the traffic when a
//! server fails for everybody.
//!
//! ```text
//!               CallStarted: + earn_permille / 1000
//!               time:        + reserve_per_second * elapsed
//!                     │
//!                     ▼
//!            ┌──────────────────┐   RetryWanted, level >= 1: - 1   ──► Granted
//!            │ 0 ≤ level ≤ cap  │
//!            └──────────────────┘   RetryWanted, level <  1        ──► Denied
//! ```
//!
//! | tie | rule |
//! |---|---|
//! | time and an event at one instant | the reserve of the elapsed time is added first, then the event is handled |
//! | `now` before an earlier `now` | counts as the later one: no time has passed |
//!
//! Invariant: `RETRY-4` the level stays within `0..=capacity`, and a denied retry costs nothing.

use crate::time::Instant;

/// The rates of a [`RetryBudget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BudgetConfig {
    /// What one call earns, in thousandths of a retry. Default 200: one retry for every five calls.
    pub earn_permille: u32,
    /// The reserve: retries that flow in each second without any call, so that a quiet client can retry at all.
    /// Default 10. Zero turns it off.
    pub reserve_per_second: u32,
    /// The most retries that can be saved up, and what a new budget holds. Default 100: ten seconds of the reserve.
    pub capacity: u32,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self { earn_permille: 200, reserve_per_second: 10, capacity: 100 }
    }
}

/// What happened to the budget's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetEvent {
    /// A call made its first attempt.
    CallStarted,
    /// A call that the matrix allows to be repeated wants to be.
    RetryWanted,
}

/// The budget's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum BudgetEffect {
    /// The call earned its fraction, up to the capacity.
    Earned,
    /// The retry may go out; one token is spent.
    Granted,
    /// The budget is empty: end the call with the outcome it has. Nothing is spent.
    Denied,
}

/// Retries of all calls of one client, as a token bucket in integers. No allocation.
///
/// ```
/// use steady_core::retry::{BudgetConfig, BudgetEffect, BudgetEvent, RetryBudget};
/// use steady_core::time::Instant;
///
/// let now = Instant::ZERO;
/// let mut budget = RetryBudget::new(now, BudgetConfig { capacity: 1, ..BudgetConfig::default() });
/// assert_eq!(budget.handle(now, BudgetEvent::RetryWanted), BudgetEffect::Granted);
/// assert_eq!(budget.handle(now, BudgetEvent::RetryWanted), BudgetEffect::Denied);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RetryBudget {
    config: BudgetConfig,
    /// Billionths of a retry: the unit in which a rate per second times nanoseconds is exact.
    level: u64,
    last: Instant,
}

impl RetryBudget {
    /// A full budget at `now`.
    #[must_use]
    pub const fn new(now: Instant, config: BudgetConfig) -> Self {
        Self { config, level: config.capacity as u64 * TOKEN, last: now }
    }

    /// The one transition.
    pub fn handle(&mut self, now: Instant, event: BudgetEvent) -> BudgetEffect {
        self.refill(now);
        let effect = match event {
            BudgetEvent::CallStarted => {
                self.add(u64::from(self.config.earn_permille) * (TOKEN / 1000));
                BudgetEffect::Earned
            }
            BudgetEvent::RetryWanted => match self.level.checked_sub(TOKEN) {
                Some(level) => {
                    self.level = level;
                    BudgetEffect::Granted
                }
                None => BudgetEffect::Denied,
            },
        };
        debug_assert!(self.level <= self.limit(), "RETRY-4: the level is bounded");
        effect
    }

    /// Whole retries that could be granted at the time of the last event.
    #[must_use]
    pub const fn available(&self) -> u64 {
        self.level / TOKEN
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_since(self.last).as_nanos();
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        self.add(elapsed.saturating_mul(u64::from(self.config.reserve_per_second)));
        self.last = self.last.max(now);
    }

    fn add(&mut self, billionths: u64) {
        self.level = self.level.saturating_add(billionths).min(self.limit());
    }

    const fn limit(&self) -> u64 {
        self.config.capacity as u64 * TOKEN
    }
}

/// One retry in the budget's unit.
const TOKEN: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn drain(budget: &mut RetryBudget, now: Instant) -> u64 {
        let mut granted = 0;
        while budget.handle(now, BudgetEvent::RetryWanted) == BudgetEffect::Granted {
            granted += 1;
        }
        granted
    }

    #[test]
    fn five_calls_earn_one_retry() {
        let now = Instant::ZERO;
        let mut budget = RetryBudget::new(now, BudgetConfig::default());
        assert_eq!(drain(&mut budget, now), 100);
        for _ in 0..4 {
            assert_eq!(budget.handle(now, BudgetEvent::CallStarted), BudgetEffect::Earned);
            assert_eq!(budget.handle(now, BudgetEvent::RetryWanted), BudgetEffect::Denied);
        }
        assert_eq!(budget.handle(now, BudgetEvent::CallStarted), BudgetEffect::Earned);
        assert_eq!(drain(&mut budget, now), 1);
    }

    #[test]
    fn the_reserve_flows_in_exactly_and_is_bounded() {
        let mut now = Instant::ZERO;
        let mut budget = RetryBudget::new(now, BudgetConfig::default());
        assert_eq!(drain(&mut budget, now), 100);
        // A thousand steps of a millisecond lose nothing to rounding.
        for _ in 0..1000 {
            now = now + Duration::from_millis(1);
            let _ = budget.handle(now, BudgetEvent::CallStarted);
        }
        assert_eq!(budget.available(), 100, "10 by time and 200 by calls, bounded by 100");
        assert_eq!(drain(&mut budget, now), 100);
        now = now + Duration::from_nanos(99_999_999);
        assert_eq!(drain(&mut budget, now), 0);
        now = now + Duration::from_nanos(1);
        assert_eq!(drain(&mut budget, now), 1);
        assert_eq!(drain(&mut budget, Instant::MAX), 100);
    }

    #[test]
    fn time_going_backwards_earns_nothing() {
        let later = Instant::from_millis(10_000);
        let mut budget = RetryBudget::new(later, BudgetConfig::default());
        assert_eq!(drain(&mut budget, later), 100);
        assert_eq!(drain(&mut budget, Instant::ZERO), 0);
        assert_eq!(drain(&mut budget, later), 0);
    }

    #[test]
    fn extreme_budgets_do_not_overflow() {
        let config = BudgetConfig { earn_permille: u32::MAX, reserve_per_second: u32::MAX, capacity: u32::MAX };
        let mut budget = RetryBudget::new(Instant::ZERO, config);
        assert_eq!(budget.handle(Instant::MAX, BudgetEvent::CallStarted), BudgetEffect::Earned);
        assert_eq!(budget.available(), u64::from(u32::MAX));
        let none = BudgetConfig { capacity: 0, ..config };
        let mut budget = RetryBudget::new(Instant::ZERO, none);
        assert_eq!(budget.handle(Instant::MAX, BudgetEvent::RetryWanted), BudgetEffect::Denied);
    }
}
