//! How many clients make their nth attempt in which 100 ms, and how many the policy would let.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use steady_core::id::Attempt;

use super::{Herd, millis};

/// The length of a window.
pub const WINDOW: Duration = Duration::from_millis(100);

/// The nth attempt of all clients.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AttemptWindows {
    /// Which attempt: 1 is the first after the loss.
    pub attempt: u16,
    /// Clients that made it.
    pub clients: u32,
    /// The most of them in one of the windows, which are counted from the loss.
    pub busiest: u32,
    /// When that window begins, in milliseconds after the loss.
    pub busiest_at_ms: u64,
    /// The most of them in any 100 ms, wherever those begin. Of many windows that hold 125 clients each by the policy, the
    /// luckiest holds a quarter more by chance alone; in a fleet of 100,000 it stays within the fifth too.
    pub busiest_anywhere: u32,
    /// The share of the fleet that is, in thousandths.
    pub share_permille: u32,
    /// The share that the policy puts into the busiest window, in thousandths, rounded up.
    pub policy_permille: u32,
    /// The most clients that may fall into one window: that share of the fleet, and on top a fifth of it, or five standard
    /// deviations where the fleet is so small that chance adds more.
    pub allowed: u32,
    /// How many begin in each 100 ms after the loss, by the start of those in milliseconds; empty ones are left out.
    pub windows: BTreeMap<u64, u32>,
    #[serde(skip)]
    times: Vec<Duration>,
}

impl AttemptWindows {
    pub(super) fn new(before: usize, herd: &Herd) -> Self {
        let attempt = (0..before).fold(Attempt::FIRST, |attempt, _| attempt.next());
        // Exact, where thousandths are not: a fleet of a million has windows of 12,500.
        let (window, ceiling) = (WINDOW.as_nanos(), herd.backoff.ceiling(attempt).as_nanos().max(WINDOW.as_nanos()));
        let mean = u128::from(herd.clients) * window * 1000 / ceiling;
        // In thousandths. Three more, as the few of a tiny fleet are not spread as many are.
        let allowed = (mean + (mean / 5).max(5 * (mean * 1000).isqrt())) / 1000 + 3;
        Self {
            attempt: attempt.number(),
            clients: 0,
            busiest: 0,
            busiest_at_ms: 0,
            busiest_anywhere: 0,
            share_permille: 0,
            policy_permille: herd.backoff.share_permille(attempt, WINDOW),
            allowed: u32::try_from(allowed).unwrap_or(u32::MAX).min(herd.clients),
            windows: BTreeMap::new(),
            times: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, after_the_loss: Duration) {
        let start = millis(after_the_loss) / millis(WINDOW) * millis(WINDOW);
        *self.windows.entry(start).or_default() += 1;
        self.times.push(after_the_loss);
    }

    /// Finds the busiest windows.
    pub(super) fn finish(&mut self, herd: &Herd) {
        self.times.sort_unstable();
        let mut first = 0;
        for (last, at) in self.times.iter().enumerate() {
            while self.times.get(first).is_some_and(|from| *at >= *from + WINDOW) {
                first += 1;
            }
            let count = u32::try_from(last + 1 - first).unwrap_or(u32::MAX);
            self.busiest_anywhere = self.busiest_anywhere.max(count);
        }
        for (start, count) in &self.windows {
            if *count > self.busiest {
                (self.busiest, self.busiest_at_ms) = (*count, *start);
            }
        }
        self.clients = u32::try_from(self.times.len()).unwrap_or(u32::MAX);
        let share = u64::from(self.busiest) * 1000 / u64::from(herd.clients.max(1));
        self.share_permille = u32::try_from(share).unwrap_or(1000);
        self.times = Vec::new();
    }

    /// Whether the busiest window holds no more than the policy and chance let.
    #[must_use]
    pub fn keeps_its_share(&self) -> bool {
        self.busiest <= self.allowed
    }
}
