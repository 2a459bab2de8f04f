//! Decides what a ledger may forget: results, and of tombstones only those whose keys say themselves how old they are.
//!
//! | what | goes when | what stays |
//! |---|---|---|
//! | the result of a key | its retention is over | the tombstone: the key never runs again |
//! | a message that is done | at once (its payload went before) | the audit |
//! | a tombstone | its key carries a time beyond the horizon | the rule that such keys are refused |
//! | a key that is started or in doubt, a message that is not done | never | |

pub(crate) mod age;
mod store;

use serde::Serialize;

use crate::audit::By;
use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::writer::unit::Unit;

/// How many rows one transaction collects, so that nobody waits for long.
pub(crate) const BATCH: u32 = 500;

/// What a collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Collected {
    /// Results that were deleted. Their keys are tombstones now.
    pub expired: u32,
    /// Tombstones that were deleted, as their keys are beyond the horizon.
    pub forgotten: u32,
    /// Messages that were deleted, as they were delivered or skipped.
    pub messages: u32,
    /// Keys that were put in doubt, as their lease was over. They are not collected.
    pub in_doubt: u32,
    /// Whether there may be more to collect, or to put in doubt.
    pub more: bool,
    /// Whether nothing was collected because of its age, as the clock has jumped ahead by more than an hour. A call at
    /// least a minute later goes on, if the clock has not gone back.
    pub held_back: bool,
}

impl Collected {
    /// How many rows were deleted.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.expired + self.forgotten + self.messages
    }

    /// The sum of two collections, the second after the first.
    #[must_use]
    pub fn and(self, next: Self) -> Self {
        Self {
            expired: self.expired + next.expired,
            forgotten: self.forgotten + next.forgotten,
            messages: self.messages + next.messages,
            in_doubt: self.in_doubt.saturating_add(next.in_doubt),
            more: next.more,
            held_back: next.held_back,
        }
    }
}

impl Ledger {
    /// Takes what the clock shows for the time, also if the file has seen a later one, and writes down who said so: for
    /// after a wrong clock that was far ahead for longer than a minute, and so was believed. Until this, or until the clock
    /// has caught up, time stands still for results, and messages with a deadline wait.
    ///
    /// **Be sure that the clock is right now.** The later time is what keeps a request from being sent again to a system
    /// that may have forgotten it. Keys that were refused as too old stay so.
    ///
    /// # Errors
    ///
    /// [`LedgerError::TooLarge`] for an `actor` of more than 255 bytes or a `note` of more than 4096; and as far as writing
    /// can fail.
    pub fn trust_clock(&self, actor: &str, note: &str) -> Result<(), LedgerError> {
        By { actor, note }.check()?;
        let (actor, note): (Box<str>, Box<str>) = (actor.into(), note.into());
        let clock = self.inner.clock.clone();
        let unit = Unit::new("ledger", move |db| {
            let (before, after) = clock.trust(&db.conn)?;
            let sql = "INSERT INTO ledger_clock_audit(before_ms, after_ms, actor, note) VALUES (?1, ?2, ?3, ?4)";
            db.conn.prepare_cached(sql)?.execute((before, after, &*actor, &*note))?;
            Ok(())
        });
        self.inner.writer.wait(unit)
    }

    /// Deletes what is past its retention, up to `limit` rows, at most 500 in one transaction. Call it now and then, from
    /// a thread that may block; nothing is collected by itself. Tasks go by [`Tasks::collect_expired`](crate::Tasks::collect_expired),
    /// free pages of the file by [`Ledger::shrink`].
    ///
    /// Time counts as the latest that the file has seen: a clock that goes back makes nothing young again, and one that
    /// jumps ahead by more than an hour deletes nothing until a call at least a minute later confirms it.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as writing can fail. What was collected before stays so.
    pub fn collect(&self, limit: u32) -> Result<Collected, LedgerError> {
        let mut total = Collected::default();
        let mut from = store::Place::START;
        loop {
            let batch = BATCH.min(limit - total.rows());
            let (clock, horizon_ms) = (self.inner.clock.clone(), self.inner.horizon_ms);
            // Each run of the unit starts from the same place: a transaction before it may have been rolled back.
            let unit = Unit::new("ledger", move |db| {
                let mut next = from;
                Ok((store::collect(db, &clock, horizon_ms, &mut next, batch)?, next))
            });
            let (collected, next) = self.inner.writer.wait(unit)?;
            (total, from) = (total.and(collected), next);
            if !total.more || total.rows() >= limit {
                return Ok(total);
            }
        }
    }
}
