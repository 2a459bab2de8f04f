//! Decides which rows may go. Nothing that is open does: no key that is started or in doubt, no message that is not
//! done, no result whose key still has a message or a task under way.

use rusqlite::Connection;
use steady_core::idempotency::Scope;

use super::Collected;
use super::age::carried_time;
use crate::error::LedgerError;
use crate::external::store::{SWEEP, stored_key, sweep};
use crate::file::Db;
use crate::record::Call;
use crate::time::Timekeeper;

/// How far a collection came, in milliseconds. What it passed by has to stay: the next transaction of the same collection
/// does not look at it again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    expires: i64,
    born: i64,
}

impl Place {
    pub(super) const START: Self = Self { expires: i64::MIN, born: i64::MIN };
}

/// Collects up to `limit` rows, in one savepoint.
pub(super) fn collect(
    db: &Db,
    clock: &Timekeeper,
    horizon_ms: Option<i64>,
    from: &mut Place,
    limit: u32,
) -> Result<Collected, LedgerError> {
    let conn = &db.conn;
    let tick = clock.tick(conn)?;
    let mut collected =
        Collected { in_doubt: count(sweep(conn, tick)?), held_back: !tick.sure, ..Collected::default() };
    collected.messages = messages(conn, limit)?;
    if tick.sure {
        collected.expired = expire(conn, &mut from.expires, tick.now, limit - collected.rows())?;
        if let Some(horizon_ms) = horizon_ms {
            let before = tick.now.saturating_sub(horizon_ms);
            collected.forgotten = forget(conn, &mut from.born, before, limit - collected.rows())?;
        }
    }
    collected.more = collected.rows() >= limit || collected.in_doubt >= SWEEP;
    Ok(collected)
}

fn count(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

/// Deletes messages that are done.
fn messages(conn: &Connection, limit: u32) -> Result<u32, LedgerError> {
    let mut statement = conn.prepare_cached(
        "DELETE FROM ledger_outbox WHERE id IN (SELECT id FROM ledger_outbox WHERE state IN (3, 6) ORDER BY id LIMIT ?1)",
    )?;
    Ok(count(statement.execute([limit])?))
}

struct Due {
    scope: Scope,
    key: String,
    result: Option<i64>,
    /// What they are sorted by.
    time: i64,
}

/// Makes tombstones of keys whose result is no longer replayed.
fn expire(conn: &Connection, from: &mut i64, now: i64, limit: u32) -> Result<u32, LedgerError> {
    let due = select(
        conn,
        "SELECT principal, operation, key, result_id, expires_ms FROM ledger_key AS k
         WHERE state IN (2, 3) AND expires_ms >= ?3 AND expires_ms <= ?1
           AND NOT EXISTS (SELECT 1 FROM ledger_outbox AS o
                           WHERE o.principal = k.principal AND o.operation = k.operation AND o.key = k.key
                             AND o.state NOT IN (3, 6))
           AND NOT EXISTS (SELECT 1 FROM ledger_task AS t
                           WHERE t.principal = k.principal AND t.operation = k.operation AND t.key = k.key
                             AND t.status IN ('working', 'input_required'))
         ORDER BY expires_ms LIMIT ?2",
        (now, limit, *from),
    )?;
    let mut bury = conn.prepare_cached(
        "UPDATE ledger_key SET state = 5, result_id = NULL, result_digest = NULL, born_ms = ?4
         WHERE principal = ?1 AND operation = ?2 AND key = ?3 AND state IN (2, 3)",
    )?;
    let mut delete = conn.prepare_cached("DELETE FROM ledger_result WHERE id = ?1")?;
    for Due { scope, key, result, time } in &due {
        *from = *time;
        let born = carried_time(&stored_key(key)?).map(|born| born.unix_millis());
        bury.execute((&*scope.principal, &*scope.operation, key, born))?;
        delete.execute([result])?;
    }
    Ok(count(due.len()))
}

/// Deletes tombstones whose keys carry a time before this one, once it is written down that such keys are refused.
///
/// Refused is what is not later than a key that was deleted, and not all before the horizon: if a clock was wrong, the keys
/// of today are still good once it is right.
fn forget(conn: &Connection, from: &mut i64, before: i64, limit: u32) -> Result<u32, LedgerError> {
    let due = select(
        conn,
        "SELECT principal, operation, key, result_id, born_ms FROM ledger_key AS k
         WHERE state = 5 AND born_ms >= ?3 AND born_ms < ?1
           AND NOT EXISTS (SELECT 1 FROM ledger_outbox AS o
                           WHERE o.principal = k.principal AND o.operation = k.operation AND o.key = k.key)
           AND NOT EXISTS (SELECT 1 FROM ledger_task AS t
                           WHERE t.principal = k.principal AND t.operation = k.operation AND t.key = k.key)
         ORDER BY born_ms LIMIT ?2",
        (before, limit, *from),
    )?;
    let Some(last) = due.last() else { return Ok(0) };
    *from = last.time;
    conn.prepare_cached("UPDATE ledger_meta SET forgotten_ms = max(coalesce(forgotten_ms, ?1), ?1) WHERE id = 1")?
        .execute([last.time.saturating_add(1)])?;
    let mut audit =
        conn.prepare_cached("DELETE FROM ledger_audit WHERE principal = ?1 AND operation = ?2 AND key = ?3")?;
    let mut delete = conn
        .prepare_cached("DELETE FROM ledger_key WHERE principal = ?1 AND operation = ?2 AND key = ?3 AND state = 5")?;
    for Due { scope, key, .. } in &due {
        audit.execute((&*scope.principal, &*scope.operation, key))?;
        delete.execute((&*scope.principal, &*scope.operation, key))?;
    }
    Ok(count(due.len()))
}

/// Those until a time, at most so many, from a time on.
fn select(conn: &Connection, sql: &str, until_limit_from: (i64, u32, i64)) -> Result<Vec<Due>, LedgerError> {
    let mut statement = conn.prepare_cached(sql)?;
    let rows = statement.query_map(until_limit_from, |row| {
        let scope = Scope::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?);
        Ok(Due { scope, key: row.get(2)?, result: row.get(3)?, time: row.get(4)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

impl Call {
    /// Refuses a new key whose tombstone may be gone, or that is beyond the horizon: it may have run long ago.
    ///
    /// What was deleted is written down in the file, so neither a clock that goes back nor a handle with another horizon
    /// lets such a key run again.
    pub(crate) fn check_age(&self, conn: &Connection) -> Result<(), LedgerError> {
        let Some(born) = carried_time(&self.key) else { return Ok(()) };
        let forgotten: Option<i64> = conn
            .prepare_cached("SELECT forgotten_ms FROM ledger_meta WHERE id = 1")?
            .query_row([], |row| row.get(0))?;
        let horizon = self.horizon_ms.map(|horizon| self.clock.shown().unix_millis().saturating_sub(horizon));
        let refused = forgotten.max(horizon).is_some_and(|refused| born.unix_millis() < refused);
        if refused { Err(LedgerError::KeyTooOld) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use steady_core::idempotency::Key;
    use steady_core::time::WallTime;

    use super::*;
    use crate::effect::EffectTx;
    use crate::file::Access;
    use crate::options::{Clock, Executor, Options};
    use crate::outbox::Message;
    use crate::{Ledger, Request};

    /// However many of those there are, one collection reads them once.
    #[test]
    fn a_collection_goes_on_behind_what_has_to_stay() {
        let dir = tempfile::tempdir().unwrap();
        let now = Arc::new(AtomicI64::new(0));
        let read = Arc::clone(&now);
        let clock = Clock::new(move || WallTime::from_unix_millis(read.load(Ordering::Relaxed)));
        let options = Options { clock, retention: Duration::ZERO, executor: Executor::Inline, ..Options::default() };
        let ledger = Ledger::open(dir.path().join("shop.db"), options).unwrap();
        for (time, key, has_message) in [(0, "order-1", true), (1, "order-2", false), (2, "order-3", false)] {
            now.store(time, Ordering::Relaxed);
            let effect = move |tx: &mut EffectTx<'_>| {
                if has_message {
                    tx.enqueue(Message::new("bank", "x"))?;
                }
                Ok(0)
            };
            let (scope, key) = (Scope::new("tenant-1", "charge"), Key::parse(key).unwrap());
            ledger.execute(&Request::new(&scope, &key, "{}"), effect).unwrap().into_inner();
        }
        let db = ledger.site().connect(Access::Write).unwrap();
        let mut from = Place::START;
        let expired = |from: &mut Place, limit| collect(&db, &ledger.inner.clock, None, from, limit).unwrap().expired;
        assert_eq!(expired(&mut from, 1), 1);
        assert_eq!(from.expires, 1);
        db.conn.execute("UPDATE ledger_outbox SET state = 3, head = 0, payload = NULL", []).unwrap();
        assert_eq!(expired(&mut from, 10), 1, "the first is behind it");
        assert_eq!(expired(&mut Place::START.clone(), 10), 1);
    }
}
