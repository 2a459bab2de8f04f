//! The deadlines of many requests: the next one in O(1), arming and expiry in O(log n).
//!
//! Progress moves a deadline later without telling the heap. The heap then wakes too early, the request says its real
//! deadline, and is armed again: a request that reports often costs nothing here.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use crate::outbound::Handle;
use crate::time::Instant;

#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Handle)>>,
}

impl Timers {
    pub(super) fn arm(&mut self, at: Instant, handle: Handle) {
        self.heap.push(Reverse((at, handle)));
    }

    pub(super) fn next(&self) -> Option<(Instant, Handle)> {
        self.heap.peek().map(|Reverse(next)| *next)
    }

    pub(super) fn pop(&mut self) {
        self.heap.pop();
    }

    /// Drops nodes that no longer count once they outnumber the `live` ones, so that the heap stays within twice of them.
    pub(super) fn tidy(&mut self, live: usize, counts: impl Fn(Instant, Handle) -> bool) {
        if self.heap.len() > 2 * live + 64 {
            self.heap.retain(|Reverse((at, handle))| counts(*at, *handle));
        }
    }
}
