//! Decides what a ledger on PostgreSQL may forget: what one in a file may. Replicas can collect at the same time: each passes
//! by what the others have locked.

use steady_core::idempotency::Key;

use super::external::sweep;
use super::ledger::{Inner, PgLedger};
use super::partition;
use super::record::day;
use super::tx::Tx;
use super::wire::args;
use crate::audit::By;
use crate::error::LedgerError;
use crate::external::store::{SWEEP, stored_key};
use crate::retention::age::carried_time;
use crate::retention::{BATCH, Collected};

/// For how long receipts are kept beyond the time in which somebody asks for them, in milliseconds.
const RECEIPTS: i64 = 10 * 60 * 1000;

impl PgLedger {
    /// Deletes what is past its retention, up to `limit` rows, at most 500 in one transaction: as
    /// [`Ledger::collect`](crate::Ledger::collect). Call it now and then in any replica.
    ///
    /// Large results go a day at a time, with the table of their day, and are not counted.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as writing can fail. What was collected before stays so.
    pub async fn collect(&self, limit: u32) -> Result<Collected, LedgerError> {
        let inner = &*self.inner;
        let mut total = Collected::default();
        loop {
            let tx = inner.begin().await?;
            let tick = tx.tick;
            let batch = collect(&tx, inner, BATCH.min(limit - total.rows())).await;
            total = total.and(tx.end(inner, batch).await?);
            if !total.more || total.rows() >= limit {
                let conn = inner.pool.get().await?;
                partition::turn(&conn, tick.now, inner.retention_ms, tick.sure).await?;
                conn.put_back();
                return Ok(total);
            }
        }
    }

    /// Takes what the clock shows for the time: as [`Ledger::trust_clock`](crate::Ledger::trust_clock).
    ///
    /// # Errors
    ///
    /// As [`Ledger::trust_clock`](crate::Ledger::trust_clock).
    pub async fn trust_clock(&self, actor: &str, note: &str) -> Result<(), LedgerError> {
        By { actor, note }.check()?;
        let inner = &*self.inner;
        let tx = inner.begin().await?;
        let shown = tx.tick.shown;
        let done = trust(&tx, actor, note).await;
        tx.end(inner, done).await?;
        inner.latest.store(shown, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }
}

async fn trust(tx: &Tx, actor: &str, note: &str) -> Result<(), LedgerError> {
    let sql = "INSERT INTO ledger_clock_audit(before_ms, after_ms, actor, note)
               SELECT latest_ms, $1, $2, $3 FROM ledger_meta";
    tx.run(sql, args![tx.tick.shown => INT8, actor => TEXT, note => TEXT]).await?;
    let sql = "UPDATE ledger_meta SET latest_ms = $1, ahead_ms = NULL WHERE id = 1";
    tx.run(sql, args![tx.tick.shown => INT8]).await.map(drop)
}

fn count(rows: u64) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

async fn collect(tx: &Tx, inner: &Inner, limit: u32) -> Result<Collected, LedgerError> {
    let tick = tx.tick;
    let in_doubt = count(sweep(tx).await? as u64);
    let mut collected = Collected { in_doubt, held_back: !tick.sure, ..Collected::default() };
    let sql = "DELETE FROM ledger_outbox WHERE id IN (
                   SELECT id FROM ledger_outbox WHERE state IN (3, 6) ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)";
    collected.messages = count(tx.run(sql, args![i64::from(limit) => INT8]).await?);
    if tick.sure {
        collected.expired = expire(tx, limit - collected.rows()).await?;
        if let Some(horizon) = inner.horizon_ms {
            let before = tick.now.saturating_sub(horizon);
            collected.forgotten = forget(tx, before, limit - collected.rows()).await?;
        }
        let sql = "DELETE FROM ledger_receipt WHERE token IN (
                       SELECT token FROM ledger_receipt WHERE at_ms < $1 ORDER BY at_ms LIMIT $2 FOR UPDATE SKIP LOCKED)";
        let old = tick.now.saturating_sub(RECEIPTS).saturating_sub(crate::time::millis(inner.commit_time));
        tx.run(sql, args![old => INT8, i64::from(BATCH) => INT8]).await?;
        let sql = "DELETE FROM ledger_result_rest WHERE (day, id) IN (
                       SELECT day, id FROM ledger_result_rest WHERE day < $1 LIMIT $2 FOR UPDATE SKIP LOCKED)";
        tx.run(sql, args![day(tick.now) => INT4, i64::from(BATCH) => INT8]).await?;
    }
    collected.more = collected.rows() >= limit || collected.in_doubt >= SWEEP;
    Ok(collected)
}

/// Keys as three lists, as the database takes many at once.
struct Names(Vec<String>, Vec<String>, Vec<String>);

/// Makes tombstones of keys whose result is no longer replayed.
async fn expire(tx: &Tx, limit: u32) -> Result<u32, LedgerError> {
    let sql = "SELECT principal, operation, key FROM ledger_key AS k
               WHERE state IN (2, 3) AND expires_ms <= $1
                   AND NOT EXISTS (SELECT 1 FROM ledger_outbox AS o
                                   WHERE o.principal = k.principal AND o.operation = k.operation AND o.key = k.key
                                       AND o.state NOT IN (3, 6))
                   AND NOT EXISTS (SELECT 1 FROM ledger_task AS t
                                   WHERE t.principal = k.principal AND t.operation = k.operation AND t.key = k.key
                                       AND t.status IN ('working', 'input_required'))
               ORDER BY expires_ms LIMIT $2 FOR UPDATE SKIP LOCKED";
    let rows = tx.rows(sql, args![tx.tick.now => INT8, i64::from(limit) => INT8]).await?;
    let mut names = Names(Vec::new(), Vec::new(), Vec::new());
    let mut born = Vec::new();
    for row in &rows {
        let key: Key = stored_key(row.get(2))?;
        born.push(carried_time(&key).map(|born| born.unix_millis()));
        names.0.push(row.get(0));
        names.1.push(row.get(1));
        names.2.push(key.as_str().to_owned());
    }
    let sql = "UPDATE ledger_key AS k
               SET state = 5, result = NULL, result_day = NULL, result_id = NULL, result_digest = NULL, born_ms = d.born
               FROM unnest($1, $2, $3, $4) AS d(principal, operation, key, born)
               WHERE k.principal = d.principal AND k.operation = d.operation AND k.key = d.key AND k.state IN (2, 3)";
    let values = args![
        names.0 => TEXT_ARRAY, names.1 => TEXT_ARRAY, names.2 => TEXT_ARRAY, born => INT8_ARRAY,
    ];
    tx.run(sql, values).await?;
    Ok(count(rows.len() as u64))
}

/// Deletes tombstones whose keys carry a time before this one, once it is written down that such keys are refused.
async fn forget(tx: &Tx, before: i64, limit: u32) -> Result<u32, LedgerError> {
    let sql = "SELECT principal, operation, key, born_ms FROM ledger_key AS k
               WHERE state = 5 AND CASE state WHEN 1 THEN lease_until_ms WHEN 4 THEN recorded_ms ELSE born_ms END < $1
                   AND NOT EXISTS (SELECT 1 FROM ledger_outbox AS o
                                   WHERE o.principal = k.principal AND o.operation = k.operation AND o.key = k.key)
                   AND NOT EXISTS (SELECT 1 FROM ledger_task AS t
                                   WHERE t.principal = k.principal AND t.operation = k.operation AND t.key = k.key)
               ORDER BY CASE state WHEN 1 THEN lease_until_ms WHEN 4 THEN recorded_ms ELSE born_ms END
               LIMIT $2 FOR UPDATE SKIP LOCKED";
    let rows = tx.rows(sql, args![before => INT8, i64::from(limit) => INT8]).await?;
    let Some(last) = rows.last() else { return Ok(0) };
    let refused = last.get::<_, i64>(3).saturating_add(1);
    let sql = "UPDATE ledger_meta SET forgotten_ms = greatest(coalesce(forgotten_ms, $1), $1) WHERE id = 1";
    tx.run(sql, args![refused => INT8]).await?;
    let column = |at: usize| rows.iter().map(|row| row.get(at)).collect::<Vec<String>>();
    let names = Names(column(0), column(1), column(2));
    let values = args![names.0 => TEXT_ARRAY, names.1 => TEXT_ARRAY, names.2 => TEXT_ARRAY];
    for sql in [
        "DELETE FROM ledger_audit AS k USING unnest($1, $2, $3) AS d(principal, operation, key)
         WHERE k.principal = d.principal AND k.operation = d.operation AND k.key = d.key",
        "DELETE FROM ledger_key AS k USING unnest($1, $2, $3) AS d(principal, operation, key)
         WHERE k.principal = d.principal AND k.operation = d.operation AND k.key = d.key AND k.state = 5",
    ] {
        tx.run(sql, values).await?;
    }
    Ok(count(rows.len() as u64))
}
