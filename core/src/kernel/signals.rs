//! What is told beside the messages of the outbound queue: to its consumer, and to the counters.

use alloc::vec::Vec;

use super::sync::Counter;
use crate::outbound::{Handle, Pushed};
use crate::time::Instant;

/// What the gates of all requests did to progress. Slots write here, so it shares no cache line with what others read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Gates {
    /// A value that was held back gave way to a newer one.
    pub(super) superseded: Counter,
    /// A value did not increase, or its request was over.
    pub(super) refused: Counter,
}

/// What handlers and publishers told the consumer since it last looked.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Requests whose held progress may go at this time.
    pub(super) held: Vec<(Handle, Instant)>,
    /// Requests whose handler has ended.
    pub(super) ended: Vec<Handle>,
    /// Listens of which there is something to take.
    pub(super) listens: Vec<Handle>,
    /// What became of progress and notices in the buffer.
    pub(super) coalesced: u64,
    pub(super) dropped: u64,
    /// The most that waited: messages and text bytes.
    pub(super) high: (usize, usize),
}

impl Signals {
    /// Whether the consumer has something to do for them.
    pub(super) const fn are_urgent(&self) -> bool {
        !self.held.is_empty() || !self.ended.is_empty() || !self.listens.is_empty()
    }

    #[inline]
    pub(super) fn note(&mut self, pushed: Pushed) -> Pushed {
        match pushed {
            Pushed::Queued | Pushed::Closed => {}
            Pushed::Coalesced => self.coalesced += 1,
            Pushed::Evicted(count) => self.dropped += count as u64,
        }
        pushed
    }

    /// So much waits now: messages, and the text bytes of both kinds.
    #[inline]
    pub(super) fn note_high(&mut self, messages: usize, (evictable, kept): (usize, usize)) {
        let (high, high_bytes) = self.high;
        self.high = (high.max(messages), high_bytes.max(evictable + kept));
    }
}
