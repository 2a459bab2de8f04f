//! Decides what time it is for a ledger whose clock may jump.
//!
//! The file keeps the latest time that is sure. A clock behind it stands still there until it has caught up, so nothing
//! becomes young again. A clock far ahead of it is believed in what is harmless if wrong (a lease is over), but nothing
//! is deleted on its word until a later look confirms it:
//!
//! ```text
//!            up to 1 h ahead, or behind: sure
//!               ┌──────┐
//!               ▼      │      more than 1 h ahead
//!             ┌────────┴─┐ ───────────────────────────► ┌───────┐
//!             │   sure   │                              │ ahead │ ─┐ less than a minute after
//!             └──────────┘ ◄─────────────────────────── └───────┘ ◄┘ the look that jumped
//!                      back within 1 h, or at least a minute on: sure
//! ```
//!
//! Leases and pauses go by what the clock shows instead: they are short, and one that was set by a clock which has since
//! gone back counts as over (see [`is_reached`]). A window in which another system recognises a request has to be open by
//! both.
//!
//! A machine that was off for a week passes through `ahead` once. A clock that stays wrong for longer than a minute is
//! believed in the end: then results expire early, which costs replays and runs nothing twice. Once it is put right, time
//! stands still until it has caught up: results are kept for longer, requests outside are in doubt rather than sent again,
//! and a message with a deadline waits. An operator ends that with [`Ledger::trust_clock`](crate::Ledger::trust_clock).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use steady_core::time::WallTime;

use crate::error::LedgerError;
use crate::options::Clock;

/// How far a clock may have moved since the latest sure time, in milliseconds.
pub(crate) const JUMP: i64 = 60 * 60 * 1000;
/// How much later a second look has to be to confirm a first one, in milliseconds.
const CONFIRMATION: i64 = 60 * 1000;
/// Time is stored in steps of this, so that not every transaction writes it. In milliseconds.
const STEP: i64 = 1000;

/// The time of a ledger. Clones share it.
#[derive(Clone)]
pub(crate) struct Timekeeper {
    clock: Clock,
    latest: Arc<AtomicI64>,
}

/// One look at the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick {
    /// What the clock shows, in milliseconds.
    pub(crate) shown: i64,
    /// The time: never before one that was sure.
    pub(crate) now: i64,
    /// The latest that it can be, if a time that is not confirmed was right.
    pub(crate) at_latest: i64,
    /// Whether something may be deleted because of it.
    pub(crate) sure: bool,
}

/// What the file knows of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) latest: i64,
    pub(crate) ahead: Option<i64>,
}

impl Timekeeper {
    pub(crate) fn new(clock: Clock, conn: &Connection) -> rusqlite::Result<Self> {
        Ok(Self { clock, latest: Arc::new(AtomicI64::new(known(conn)?.latest)) })
    }

    /// What the clock shows, right or wrong: for leases and pauses, which would never end while time stands still.
    pub(crate) fn shown(&self) -> WallTime {
        self.clock.now()
    }

    /// The time, without a look at the file.
    pub(crate) fn now(&self) -> WallTime {
        self.shown().max(WallTime::from_unix_millis(self.latest.load(Ordering::Relaxed)))
    }

    /// Looks at the clock as [`Timekeeper::tick`] does, once in a while: for those who are here anyway, so that a file that
    /// is in use is never far behind its clock.
    pub(crate) fn keep_up(&self, conn: &Connection) -> Result<(), LedgerError> {
        let ahead = self.shown().unix_millis().saturating_sub(self.latest.load(Ordering::Relaxed));
        if ahead < STEP { Ok(()) } else { self.tick(conn).map(drop) }
    }

    /// Takes what the clock shows for the time, whatever the file knew before. Returns what that was, and what it is now.
    pub(crate) fn trust(&self, conn: &Connection) -> Result<(i64, i64), LedgerError> {
        let (before, after) = (known(conn)?.latest, self.shown().unix_millis());
        conn.prepare_cached("UPDATE ledger_meta SET latest_ms = ?1, ahead_ms = NULL WHERE id = 1")?.execute([after])?;
        self.latest.store(after, Ordering::Relaxed);
        Ok((before, after))
    }

    /// Looks at the clock, and stores what is sure in the current transaction.
    pub(crate) fn tick(&self, conn: &Connection) -> Result<Tick, LedgerError> {
        let clock = self.clock.now().unix_millis();
        let before = known(conn)?;
        let (after, tick) = before.look(clock);
        if before.is_behind(after) {
            let mut statement =
                conn.prepare_cached("UPDATE ledger_meta SET latest_ms = ?1, ahead_ms = ?2 WHERE id = 1")?;
            statement.execute((after.latest, after.ahead))?;
        }
        // Not the later of both: the file may have been told to go by the clock, see `trust`.
        self.latest.store(after.latest, Ordering::Relaxed);
        Ok(tick)
    }
}

impl Known {
    /// What is known after a look at a clock that shows this, and what the look tells.
    pub(crate) fn look(self, clock: i64) -> (Self, Tick) {
        let after = self.then(clock);
        let now = clock.max(after.latest);
        let at_latest = self.ahead.map_or(now, |ahead| ahead.max(now));
        (after, Tick { shown: clock, now, at_latest, sure: after.ahead.is_none() })
    }

    /// Whether `after` is worth to be stored.
    pub(crate) fn is_behind(self, after: Self) -> bool {
        after.ahead != self.ahead || after.latest.saturating_sub(self.latest) >= STEP
    }

    fn then(self, clock: i64) -> Self {
        if clock.saturating_sub(self.latest) <= JUMP {
            return Self { latest: self.latest.max(clock), ahead: None };
        }
        match self.ahead {
            Some(ahead) if clock.saturating_sub(ahead) >= CONFIRMATION => Self { latest: clock, ahead: None },
            Some(ahead) => Self { ahead: Some(ahead.min(clock)), ..self },
            None => Self { ahead: Some(clock), ..self },
        }
    }
}

fn known(conn: &Connection) -> rusqlite::Result<Known> {
    conn.prepare_cached("SELECT latest_ms, ahead_ms FROM ledger_meta WHERE id = 1")?
        .query_row([], |row| Ok(Known { latest: row.get(0)?, ahead: row.get(1)? }))
}

/// Whether a time that was set `length` before it is reached. One that is further off than that was set by a clock that
/// has since gone back, and counts as reached: whoever waits for it would wait for the difference too.
pub(crate) fn is_reached(at: i64, length: i64, now: i64) -> bool {
    at <= now || at.saturating_sub(now).saturating_sub(JUMP) > length
}

/// A duration in milliseconds, as far as they can be counted.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Known = Known { latest: 1_000_000, ahead: None };

    #[test]
    fn a_clock_that_goes_back_stands_still() {
        assert_eq!(START.then(5), START);
        assert_eq!(START.then(i64::MIN), START);
        assert_eq!(START.then(1_000_500), Known { latest: 1_000_500, ahead: None });
    }

    #[test]
    fn a_jump_ahead_is_not_sure_until_a_later_look_confirms_it() {
        let far = 1_000_000 + JUMP + 1;
        let jumped = START.then(far);
        assert_eq!(jumped, Known { latest: 1_000_000, ahead: Some(far) });
        assert_eq!(jumped.then(far + CONFIRMATION - 1), jumped);
        assert_eq!(jumped.then(far + CONFIRMATION), Known { latest: far + CONFIRMATION, ahead: None });
        assert_eq!(jumped.then(1_000_001), Known { latest: 1_000_001, ahead: None });
        let further = START.then(i64::MAX);
        assert_eq!(further.then(far), jumped, "a smaller jump starts the confirmation anew");
        assert_eq!(further.then(i64::MAX), further);
    }

    #[test]
    fn a_lease_is_over_at_its_end_or_when_the_clock_went_back_behind_its_start() {
        assert!(is_reached(100, 50, 100) && !is_reached(100, 50, 99));
        assert!(!is_reached(JUMP + 100, 50, 50) && is_reached(JUMP + 101, 50, 50));
        assert!(!is_reached(i64::MAX, i64::MAX, 0));
    }
}
