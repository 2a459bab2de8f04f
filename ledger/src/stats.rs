//! Decides what a deployment can see of a ledger at work, without a look at the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ledger::Ledger;

/// What happened since a ledger was opened by this handle and its clones, and what waits now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes of the write-ahead log in use, as of the last commit of this handle. It grows for as long as somebody reads
    /// from one snapshot, up to [`Options::wal_limit`](crate::Options::wal_limit), and shrinks again with the first
    /// commit after that.
    pub wal_bytes: u64,
    /// How many reads of the application ([`Ledger::read`]) are under way.
    pub reading: u64,
    /// How often the log was moved into the database in whole.
    pub checkpoints: u64,
    /// How many calls wait for the writer.
    pub queued: usize,
    /// The most that have waited at once.
    pub queued_most: usize,
    /// How many calls were refused because the writer was busy.
    pub turned_away: u64,
    /// Transactions that were committed.
    pub batches: u64,
    /// Calls and reports that were carried out in them.
    pub committed: u64,
    /// Those that failed and left nothing, or whose commit is unknown.
    pub failed: u64,
    /// Commits whose outcome had to be looked up.
    pub looked_up: u64,
    /// Calls that were answered from what is stored.
    pub replays: u64,
}

/// A number that only grows, or is replaced.
#[derive(Debug, Default)]
pub(crate) struct Meter(AtomicU64);

impl Meter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the parts of a ledger count.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    /// Pages in the write-ahead log, and the size of each.
    pub(crate) wal_pages: Meter,
    pub(crate) page_size: Meter,
    pub(crate) reading: Meter,
    pub(crate) checkpoints: Meter,
    pub(crate) turned_away: Meter,
    pub(crate) batches: Meter,
    pub(crate) committed: Meter,
    pub(crate) failed: Meter,
    pub(crate) looked_up: Meter,
    pub(crate) replays: Meter,
}

/// Shared by all parts of a ledger. Not one of the types that loom stands in for: nothing is decided by it.
pub(crate) type SharedMeters = Arc<Meters>;

/// The header of a write-ahead log, and of each page in it, in bytes.
const WAL_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;

impl Meters {
    pub(crate) fn wal_bytes(&self) -> u64 {
        match self.wal_pages.get() {
            0 => 0,
            pages => WAL_HEADER + pages * (FRAME_HEADER + self.page_size.get()),
        }
    }
}

impl Ledger {
    /// What the ledger has done since it was opened. Cheap: it reads some counters, one after another.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (queued, queued_most) = self.inner.writer.depth();
        let meters = &*self.inner.meters;
        Stats {
            wal_bytes: meters.wal_bytes(),
            reading: meters.reading.get(),
            checkpoints: meters.checkpoints.get(),
            queued,
            queued_most,
            turned_away: meters.turned_away.get(),
            batches: meters.batches.get(),
            committed: meters.committed.get(),
            failed: meters.failed.get(),
            looked_up: meters.looked_up.get(),
            replays: meters.replays.get(),
        }
    }
}
