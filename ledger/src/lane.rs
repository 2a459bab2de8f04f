//! Decides who may use a connection, and when a connection can no longer be trusted.
//!
//! A lane is one connection behind a lock. Whoever leaves it in the middle of a transaction, by a panic or by an error
//! that could not be rolled back, loses it: it is closed, which rolls back, and the next one opens another. That has to
//! find the same ledger: what another file does not hold says nothing.

use std::mem;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::error::LedgerError;
use crate::file::{Access, Db, Site};
use crate::guard::Inside;
use crate::sync::Mutex;

pub(crate) struct Lane {
    site: Arc<Site>,
    access: Access,
    slot: Mutex<Slot>,
    /// What tells which secret the file was made with, as the first connection found it. A backup has the same.
    secret_check: OnceLock<[u8; 32]>,
}

enum Slot {
    Open(Db),
    Lost,
    Closed,
}

impl Lane {
    pub(crate) fn new(site: Arc<Site>, access: Access, db: Db) -> Self {
        Self { site, access, slot: Mutex::new(Slot::Open(db)), secret_check: OnceLock::new() }
    }

    /// Does some work with the connection, alone.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&Db) -> Result<R, LedgerError>) -> Result<R, LedgerError> {
        if Inside::is_here() {
            return Err(LedgerError::Reentrant);
        }
        let mut slot = self.slot.lock();
        let (db, is_known) = match mem::replace(&mut *slot, Slot::Lost) {
            Slot::Open(db) => (db, self.secret_check.get().is_some()),
            Slot::Lost => (self.site.connect(self.access)?, false),
            Slot::Closed => {
                *slot = Slot::Closed;
                return Err(LedgerError::Closed);
            }
        };
        if !is_known {
            self.identify(&db)?;
        }
        let result = work(&db);
        if db.conn.is_autocommit() {
            *slot = Slot::Open(db);
        }
        result
    }

    /// Refuses a file that was made with another secret than the first one.
    fn identify(&self, db: &Db) -> Result<(), LedgerError> {
        let sql = "SELECT secret_check FROM ledger_meta WHERE id = 1";
        let found = db.conn.query_row(sql, [], |row| row.get(0))?;
        if *self.secret_check.get_or_init(|| found) == found { Ok(()) } else { Err(LedgerError::WrongSecret) }
    }

    /// Moves the write-ahead log into the database, without waiting for readers. Says whether all of it is there; then, if
    /// asked to, it cuts the log to nothing.
    pub(crate) fn checkpoint(&self, truncate: bool) -> Result<bool, LedgerError> {
        let sql = if truncate { "PRAGMA wal_checkpoint(TRUNCATE)" } else { "PRAGMA wal_checkpoint(PASSIVE)" };
        self.with(|db| {
            db.conn.busy_timeout(Duration::ZERO)?;
            let row = db
                .conn
                .query_row(sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
            db.conn.busy_timeout(self.site.busy_timeout)?;
            let (busy, in_log, moved) = row?;
            Ok(busy == 0 && in_log == moved)
        })
    }

    /// Gives up the connection: the next user gets a new one.
    pub(crate) fn renew(&self) {
        let mut slot = self.slot.lock();
        match *slot {
            Slot::Open(_) | Slot::Lost => *slot = Slot::Lost,
            Slot::Closed => {}
        }
    }

    /// Closes the connection for good, once its current user is done.
    pub(crate) fn close(&self) -> Result<(), LedgerError> {
        if Inside::is_here() {
            return Err(LedgerError::Reentrant);
        }
        match mem::replace(&mut *self.slot.lock(), Slot::Closed) {
            Slot::Open(db) => db.conn.close().map_err(|(_, error)| error.into()),
            Slot::Lost | Slot::Closed => Ok(()),
        }
    }
}
