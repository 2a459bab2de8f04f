//! Whether a server that ended is started again, and after which pause.

use std::collections::VecDeque;
use std::time::Duration;

use steady_core::backoff::{Backoff, Jitter};
use steady_core::id::Attempt;
use steady_core::time::Instant;

/// How often a server is started again. The default is three times within a minute, after pauses of up to 250 ms, 500 ms
/// and a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct Restart {
    /// Unexpected ends within [`within`](Self::within) that are followed by a new start; the next one ends the client.
    pub crashes: usize,
    /// Over which time ends are counted. Default one minute.
    pub within: Duration,
    /// The pauses: they grow with the ends that are counted, with full jitter.
    pub backoff: Backoff,
}

impl Default for Restart {
    fn default() -> Self {
        Self { crashes: 3, within: Duration::from_secs(60), backoff: Backoff::default() }
    }
}

/// The ends that count. It holds at most [`Restart::crashes`] of them and one more.
pub(super) struct Crashes {
    policy: Option<Restart>,
    times: VecDeque<Instant>,
    jitter: Jitter,
}

impl Crashes {
    pub(super) fn new(policy: Option<Restart>, jitter: Jitter) -> Self {
        Self { policy, times: VecDeque::new(), jitter }
    }

    /// The server ended unexpectedly, or could not be started. The pause before the next start; `None`: there is none.
    pub(super) fn crashed(&mut self, now: Instant) -> Option<Duration> {
        let policy = self.policy?;
        self.times.retain(|at| now.saturating_since(*at) < policy.within);
        if self.times.len() >= policy.crashes {
            return None;
        }
        self.times.push_back(now);
        let attempt = (1..self.times.len()).fold(Attempt::FIRST, |attempt, _| attempt.next());
        Some(policy.backoff.delay(attempt, &mut self.jitter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steady_core::id::ClientId;

    #[test]
    fn so_many_within_the_time_and_then_no_more() {
        let policy = Restart { crashes: 2, within: Duration::from_secs(10), ..Restart::default() };
        let mut crashes = Crashes::new(Some(policy), Jitter::seeded(ClientId::new(1), 0));
        let at = Instant::from_millis;
        assert!(crashes.crashed(at(0)).is_some_and(|pause| pause <= Duration::from_millis(250)));
        assert!(crashes.crashed(at(9_000)).is_some_and(|pause| pause <= Duration::from_millis(500)));
        assert_eq!(crashes.crashed(at(9_999)), None);
        assert!(crashes.crashed(at(10_000)).is_some(), "the first counts no more");
        assert_eq!(crashes.crashed(at(10_001)), None);
    }

    #[test]
    fn without_a_policy_there_is_no_restart() {
        assert_eq!(Crashes::new(None, Jitter::seeded(ClientId::new(1), 0)).crashed(Instant::ZERO), None);
    }
}
