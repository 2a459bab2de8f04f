//! The outbound buffer under overload, tick by tick, beside a queue without a limit.

use serde::Serialize;
use steady_core::id::ProgressToken;
use steady_core::kernel::OutboundQueue;
use steady_core::outbound::{Config, Handle, Pushed};
use steady_core::rpc::encode;

const REQUESTS: u32 = 100;
const CAPACITY: usize = 64;
const TICKS: usize = 60;
/// Messages that arrive in a tick, until the load ends.
const LOAD: usize = 24;
const LOAD_ENDS: usize = 30;
/// What a reader takes in a tick.
const READS: usize = 8;

/// What waits after each tick.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Buffer {
    requests: u32,
    capacity: usize,
    /// Messages that arrive in a tick, and what a reader takes in one.
    load: usize,
    reads: usize,
    /// The last tick with a load, counted from one.
    load_ends: usize,
    /// In the shipped buffer.
    ours: Vec<usize>,
    /// In a queue without a limit.
    unbounded: Vec<usize>,
    coalesced: usize,
    dropped: usize,
}

pub(super) fn buffer() -> Buffer {
    let queue = OutboundQueue::new(Config { capacity: CAPACITY, ..Config::default() });
    let handles: Vec<Handle> = (0..REQUESTS).map(|index| Handle::new(index, 1)).collect();
    for (handle, index) in handles.iter().zip(0_i64..) {
        let mut prefix = String::new();
        encode::progress_prefix(&mut prefix, &ProgressToken(index.into()));
        queue.open(*handle, &prefix);
    }
    let mut found = Buffer {
        requests: REQUESTS,
        capacity: CAPACITY,
        load: LOAD,
        reads: READS,
        load_ends: LOAD_ENDS,
        ours: vec![],
        unbounded: vec![],
        coalesced: 0,
        dropped: 0,
    };
    let (mut waiting, mut values) = (0_usize, 0_u32);
    // Each second message is of one of the ten that report the most.
    let chatty = handles.iter().take(10).cycle();
    let mut reporting = handles.iter().cycle().zip(chatty).flat_map(|(any, often)| [any, often]);
    for tick in 0..TICKS {
        let arrive = if tick < LOAD_ENDS { LOAD } else { 0 };
        for handle in reporting.by_ref().take(arrive) {
            values += 1;
            match queue.progress(*handle, values.into(), None, "working") {
                Pushed::Queued | Pushed::Closed => {}
                Pushed::Coalesced => found.coalesced += 1,
                Pushed::Evicted(count) => found.dropped += count,
            }
        }
        waiting = (waiting + arrive).saturating_sub(READS);
        for _ in 0..READS {
            let _read = queue.pop(|_| ());
        }
        found.ours.push(queue.occupancy().0);
        found.unbounded.push(waiting);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_buffer_stays_in_its_capacity_and_a_queue_without_a_limit_grows() {
        let found = buffer();
        assert!(found.ours.iter().all(|waiting| *waiting <= CAPACITY));
        assert!(found.ours.iter().any(|waiting| *waiting >= CAPACITY - READS), "it is full");
        assert_eq!(found.unbounded.iter().max(), Some(&((LOAD - READS) * LOAD_ENDS)));
        assert!(found.dropped > 0 && found.coalesced > 0);
        assert_eq!(found.ours.last(), Some(&0));
    }
}
