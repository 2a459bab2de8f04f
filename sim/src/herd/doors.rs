//! The replicas of a server as a load balancer fills them: who comes to which, how many in each 100 ms, and who is taken.

use serde::Serialize;
use steady_core::time::Instant;

use super::{Herd, WINDOW, millis};

/// What the replicas had to take.
///
/// A **load factor** is the rate at the busiest replica in its busiest 100 ms, over the rate at which its share of the fleet
/// would come evenly within one second. With 10,000 clients for each replica, a factor of 4 is 4,000 questions in 100 ms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Load {
    /// Replicas.
    pub replicas: u32,
    /// The most questions that came to one of them in 100 ms, counted from the loss; the refused ones too.
    pub busiest: u32,
    /// When those 100 ms begin, in milliseconds after the loss.
    pub busiest_at_ms: u64,
    /// The load factor of that, in thousandths.
    pub peak_permille: u64,
    /// The most that came to one of them in 100 ms after all were back.
    pub busiest_open: u32,
    /// The load factor of that, in thousandths.
    pub peak_open_permille: u64,
    /// Questions that were refused because a replica had taken as many in these 100 ms as it takes.
    pub refused_full: u64,
}

impl Load {
    pub(super) fn of(herd: &Herd) -> Self {
        Self { replicas: herd.replicas.max(1), ..Self::default() }
    }

    /// Computes the load factors.
    pub(super) fn finish(&mut self, herd: &Herd) {
        // Evenly within a second: a tenth of the replica's share in each 100 ms. The factor is in thousandths.
        let factor = |busiest: u32| {
            let scaled = u64::from(busiest) * u64::from(self.replicas) * 1000 * 1000 / millis(WINDOW);
            scaled.checked_div(herd.clients.into()).unwrap_or(0)
        };
        (self.peak_permille, self.peak_open_permille) = (factor(self.busiest), factor(self.busiest_open));
    }
}

/// One replica.
pub(super) struct Door {
    lost: Instant,
    back_at: Instant,
    accepts: u32,
    /// The present window: its number, what came in it, and what of that found the replica there.
    window: u64,
    asked: u32,
    open: u32,
}

impl Door {
    pub(super) fn new(lost: Instant, herd: &Herd) -> Self {
        let accepts = herd.accepts.unwrap_or(u32::MAX);
        Self { lost, back_at: lost + herd.outage, accepts, window: 0, asked: 0, open: 0 }
    }

    /// A question comes, not before the one before it; whether it is taken.
    pub(super) fn takes(&mut self, arrives: Instant, load: &mut Load) -> bool {
        let window = millis(arrives.saturating_since(self.lost)) / millis(WINDOW);
        if window != self.window {
            (self.window, self.asked, self.open) = (window, 0, 0);
        }
        self.asked += 1;
        if self.asked > load.busiest {
            (load.busiest, load.busiest_at_ms) = (self.asked, window * millis(WINDOW));
        }
        if arrives < self.back_at {
            return false;
        }
        self.open += 1;
        load.busiest_open = load.busiest_open.max(self.open);
        let taken = self.open <= self.accepts;
        load.refused_full += u64::from(!taken);
        taken
    }
}

/// The clients of each replica: a load balancer goes by their addresses.
pub(super) fn shares(herd: &Herd) -> Vec<Vec<u32>> {
    let replicas = herd.replicas.max(1);
    let mut shares: Vec<Vec<u32>> = (0..replicas).map(|_| Vec::new()).collect();
    for client in 0..herd.clients {
        // The finaliser of a 64-bit hash: neighbours go anywhere.
        let word = (u64::from(client) ^ (u64::from(client) >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let replica = usize::try_from((word ^ (word >> 31)) % u64::from(replicas)).unwrap_or(0);
        if let Some(share) = shares.get_mut(replica) {
            share.push(client);
        }
    }
    shares
}
