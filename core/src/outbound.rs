//! The bounded outbound buffer: what waits for a slow reader, and what happens when it is full.
//!
//! Two rings make one FIFO. The *evictable* ring holds progress and notices; it coalesces and drops its oldest. The *kept*
//! ring holds final responses, lossless progress and refusals; it never loses one, it refuses. Every kept message is
//! stamped with the evictable position it must follow, so the order of arrival is the order of departure.
//!
//! | full | answer |
//! |---|---|
//! | progress of a token that already waits | the newest replaces it in place ([`Coalesce`]) |
//! | evictable messages or bytes | the oldest evictable message is dropped and marked as [`Lost`] |
//! | final responses or their bytes | refused, with the permit and the text handed back: a final never evicts a final |
//! | lossless progress, refusals | refused; the caller waits for room, or stops reading |
//!
//! Invariants: `OUT-1` no more than the capacity waits, in messages and in bytes; `OUT-2` a final that was accepted is
//! popped, exactly once; `OUT-3` nothing of a request follows its final (rule P3), nothing of it is popped after a purge
//! (rule C3); `OUT-4` progress of a token leaves in the order it came; `OUT-5` a loss is reported until it is taken.
//!
//! All operations are O(1) (amortised over the messages they drop) and reuse the memory of earlier messages.

mod batch;
mod config;
mod entry;
mod queue;

pub use batch::Batch;
pub use config::{Coalesce, Config};
pub use entry::{Item, Lost, Popped, Pushed, Refused};
pub use queue::Outbound;

#[cfg(feature = "std")]
pub(crate) use entry::{RETAINED, Slot};

/// One stream of messages through the buffer: a request, or a topic of notices. Its index is dense and reused, its
/// generation is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Handle {
    /// The handle with this dense index and this generation (counted from 1).
    #[must_use]
    pub const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    /// The dense index, below the number of handles that are open at once.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }
}

/// The right to queue one final response, which only ending a request in flight yields (`REQ-2`).
///
/// It cannot be copied or made by hand: whoever holds it is the one winner of the race for that request.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "a permit that is dropped leaves its request without an answer"]
pub struct SendPermit {
    handle: Handle,
}

impl SendPermit {
    pub(crate) const fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// The request that it is for.
    #[must_use]
    pub const fn handle(&self) -> Handle {
        self.handle
    }
}
