//! Decides on which connection the application reads, and how many reads there are at once. None of them is one that a
//! call waits for: a read may take its time, and wait for a call.

use std::sync::Arc;
use std::time::Instant;

use crate::error::LedgerError;
use crate::file::{Access, Db, Site};
use crate::guard::Inside;
use crate::sync::{Condvar, Mutex, wait, wait_for};

/// How many reads run at once. Each has a connection of its own, which is kept for the next one.
const MOST: usize = 8;

/// The connections that the application reads from.
pub(crate) struct Reads {
    site: Arc<Site>,
    places: Mutex<Places>,
    /// A place became free.
    freed: Condvar,
}

#[derive(Default)]
struct Places {
    idle: Vec<Db>,
    taken: usize,
    closed: bool,
}

impl Reads {
    pub(crate) fn new(site: Arc<Site>) -> Self {
        Self { site, places: Mutex::default(), freed: Condvar::new() }
    }

    /// Does some work with a connection of its own. If all are in use, it waits for one as long as for another process.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&Db) -> Result<R, LedgerError>) -> Result<R, LedgerError> {
        if Inside::is_here() {
            return Err(LedgerError::Reentrant);
        }
        let mut place = self.take()?;
        let db = match place.db.take() {
            Some(db) => db,
            None => self.site.connect(Access::Read)?,
        };
        let result = work(&db);
        // One that is still in a transaction is closed instead.
        if db.conn.is_autocommit() {
            place.db = Some(db);
        }
        result
    }

    fn take(&self) -> Result<Place<'_>, LedgerError> {
        let start = Instant::now();
        let mut places = self.places.lock();
        loop {
            if places.closed {
                return Err(LedgerError::Closed);
            }
            if places.taken < MOST {
                places.taken += 1;
                self.site.meters.reading.set(places.taken as u64);
                return Ok(Place { reads: self, db: places.idle.pop() });
            }
            let patience = self.site.busy_timeout.saturating_sub(start.elapsed());
            if patience.is_zero() {
                return Err(LedgerError::Busy { operation: None });
            }
            places = wait_for(&self.freed, places, patience);
        }
    }

    /// Closes the connections for good, once the reads that use them are done.
    pub(crate) fn close(&self) -> Result<(), LedgerError> {
        if Inside::is_here() {
            return Err(LedgerError::Reentrant);
        }
        let mut places = self.places.lock();
        places.closed = true;
        while places.taken > 0 {
            places = wait(&self.freed, places);
        }
        let close = |db: Db| db.conn.close().map_err(|(_, error)| error.into());
        places.idle.drain(..).map(close).fold(Ok(()), Result::and)
    }
}

/// The right to read, and the connection that is to be kept for the next one.
struct Place<'a> {
    reads: &'a Reads,
    db: Option<Db>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut places = self.reads.places.lock();
        places.idle.extend(self.db.take());
        places.taken -= 1;
        self.reads.site.meters.reading.set(places.taken as u64);
        drop(places);
        self.reads.freed.notify_all();
    }
}
