//! Decides when the write-ahead log moves into the database: after some commits, when nobody writes for a while, and down
//! to nothing when it has become large. Answers do not wait for it, and it waits for no reader.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::LedgerError;
use crate::lane::Lane;
use crate::stats::SharedMeters;

/// How many pages the log gets before it is moved, and how many more before that is tried again.
const PAGES: u64 = 1000;
/// A log that is larger than this is cut to nothing once it is moved, in bytes.
const LARGE: u64 = 64 * 1024 * 1024;
/// How long the writer waits for work before it moves what is in the log.
pub(super) const IDLE: Duration = Duration::from_secs(1);

/// Looks after the log of one writer.
pub(super) struct Upkeep {
    meters: SharedMeters,
    /// How large the log may become, in bytes.
    limit: u64,
    /// How many pages the log had when it was last looked at.
    seen: AtomicU64,
    /// At how many pages it is moved next.
    due: AtomicU64,
}

impl Upkeep {
    pub(super) fn new(meters: SharedMeters, limit: u64) -> Self {
        Self { meters, limit, seen: AtomicU64::new(0), due: AtomicU64::new(PAGES) }
    }

    /// Before a batch: refuses it if the log is at its limit and cannot begin anew.
    pub(super) fn make_room(&self, lane: &Lane) -> Result<(), LedgerError> {
        if self.meters.wal_bytes() <= self.limit {
            return Ok(());
        }
        // Also a reader of all that is in the log keeps it from beginning anew: only to cut it shows that there is none.
        if let Ok(true) = lane.checkpoint(true) {
            self.meters.checkpoints.add();
            self.meters.wal_pages.set(0);
            return Ok(());
        }
        Err(LedgerError::LogFull { reading: self.meters.reading.get() })
    }

    /// After a batch: moves the log if it has become long.
    pub(super) fn after_batch(&self, lane: &Lane) {
        let pages = self.meters.wal_pages.get();
        if pages < self.seen.swap(pages, Ordering::Relaxed) {
            // It began anew.
            self.due.store(PAGES, Ordering::Relaxed);
        }
        if pages >= self.due.load(Ordering::Relaxed) {
            self.checkpoint(lane);
        }
    }

    /// Whether there is something to move when nobody writes.
    pub(super) fn is_wanted(&self) -> bool {
        self.meters.wal_pages.get() > 0
    }

    /// Moves the log into the database as far as no reader is in the way. That it fails is no harm: it is tried again.
    pub(super) fn checkpoint(&self, lane: &Lane) {
        // If the log does not begin anew after this, it is not moved again after each batch.
        let pages = self.meters.wal_pages.get();
        let large = self.meters.wal_bytes() > LARGE;
        if let Ok(true) = lane.checkpoint(large) {
            self.meters.checkpoints.add();
            self.meters.wal_pages.set(0);
        }
        self.due.store(pages.saturating_add(PAGES), Ordering::Relaxed);
    }
}
