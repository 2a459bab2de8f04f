//! Decides what an operator sees of a ledger on PostgreSQL.

use steady_core::idempotency::{Key, Scope};

use super::ledger::PgLedger;
use super::record;
use super::wire::args;
use crate::admin::overview::{KEY_STATES, OUTBOX_STATES, code, name};
use crate::admin::{KeyFilter, KeyRow, MessageRow, Overview};
use crate::error::LedgerError;

impl PgLedger {
    /// The ledger at one moment: as [`Ledger::overview`](crate::Ledger::overview). Its size is that of its tables and their
    /// indices.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading can fail.
    pub async fn overview(&self) -> Result<Overview, LedgerError> {
        let conn = self.inner.pool.get().await?;
        conn.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let sql = "SELECT schema, created_ms,
                          (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
                           WHERE c.relkind = 'r' AND c.relname LIKE 'ledger\\_%'
                               AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'ledger_meta'::regclass)),
                          (SELECT coalesce(sum(executions), 0)::bigint FROM ledger_unkeyed),
                          (SELECT min(recorded_ms) FROM ledger_key WHERE state IN (1, 4))
                   FROM ledger_meta";
        let meta = conn.first(sql, args![]).await?.ok_or(LedgerError::ForeignFile)?;
        let keys = "SELECT state::bigint, count(*) FROM ledger_key GROUP BY state ORDER BY state";
        let keys = conn.rows(keys, args![]).await?;
        let outbox = "SELECT state::bigint, count(*) FROM ledger_outbox GROUP BY state ORDER BY state";
        let outbox = conn.rows(outbox, args![]).await?;
        let tasks = "SELECT status, count(*) FROM ledger_task GROUP BY status ORDER BY status COLLATE \"C\"";
        let tasks = conn.rows(tasks, args![]).await?;
        conn.batch("COMMIT").await?;
        conn.put_back();
        let count = |row: &tokio_postgres::Row| row.get::<_, i64>(1).unsigned_abs();
        Ok(Overview {
            schema: meta.get(0),
            created_ms: meta.get(1),
            file_bytes: meta.get::<_, i64>(2).unsigned_abs(),
            keys: keys.iter().map(|row| (name(&KEY_STATES, row.get(0)), count(row))).collect(),
            keyless_executions: meta.get::<_, i64>(3).unsigned_abs(),
            oldest_open_ms: meta.get(4),
            outbox: outbox.iter().map(|row| (name(&OUTBOX_STATES, row.get(0)), count(row))).collect(),
            tasks: tasks.iter().map(|row| (row.get(0), count(row))).collect(),
        })
    }

    /// The first `limit` keys that fit the filter: as [`Ledger::keys`](crate::Ledger::keys).
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading can fail.
    pub async fn keys(&self, filter: &KeyFilter, limit: u32) -> Result<Vec<KeyRow>, LedgerError> {
        let state = match filter.state.as_deref() {
            None => None,
            Some(name) => match code(name) {
                Some(code) => Some(code),
                None => return Ok(Vec::new()),
            },
        };
        let sql = "SELECT principal, operation, key, state::bigint, executions, recorded_ms, expires_ms FROM ledger_key
                   WHERE ($1 IS NULL OR principal = $1) AND ($2 IS NULL OR operation = $2) AND ($3 IS NULL OR state = $3)
                   ORDER BY principal, operation, key LIMIT $4";
        let values = args![
            filter.principal.as_deref() => TEXT, filter.operation.as_deref() => TEXT, state => INT8,
            i64::from(limit) => INT8,
        ];
        let conn = self.inner.pool.get().await?;
        let rows = conn.rows(sql, values).await?;
        conn.put_back();
        let read = |row: &tokio_postgres::Row| KeyRow {
            principal: row.get(0),
            operation: row.get(1),
            key: row.get(2),
            state: name(&KEY_STATES, row.get(3)),
            executions: u32::try_from(row.get::<_, i16>(4)).unwrap_or(0),
            recorded_ms: row.get(5),
            expires_ms: row.get(6),
        };
        Ok(rows.iter().map(read).collect())
    }

    /// The first `limit` messages of all targets that are dead or in doubt: as
    /// [`Ledger::stuck_messages`](crate::Ledger::stuck_messages).
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading can fail.
    pub async fn stuck_messages(&self, limit: u32) -> Result<Vec<MessageRow>, LedgerError> {
        let sql =
            "SELECT target, principal, operation, key, ordinal, state::bigint, attempts, reason FROM ledger_outbox
                   WHERE state IN (4, 5) ORDER BY target, id LIMIT $1";
        let conn = self.inner.pool.get().await?;
        let rows = conn.rows(sql, args![i64::from(limit) => INT8]).await?;
        conn.put_back();
        let number = |row: &tokio_postgres::Row, at: usize| u32::try_from(row.get::<_, i32>(at)).unwrap_or(0);
        let read = |row: &tokio_postgres::Row| MessageRow {
            target: row.get(0),
            principal: row.get(1),
            operation: row.get(2),
            key: row.get(3),
            ordinal: number(row, 4),
            state: name(&OUTBOX_STATES, row.get(5)),
            attempts: number(row, 6),
            reason: row.get(7),
        };
        Ok(rows.iter().map(read).collect())
    }

    /// The stored result of a key: as [`Ledger::stored_result`](crate::Ledger::stored_result).
    ///
    /// # Errors
    ///
    /// [`LedgerError::Corrupt`] if it is not what was stored.
    pub async fn stored_result(&self, scope: &Scope, key: &Key) -> Result<Option<Vec<u8>>, LedgerError> {
        let conn = self.inner.pool.get().await?;
        let found = record::find(&conn, scope, key).await?;
        conn.put_back();
        match found {
            Some((stored, _)) if stored.has_result() => stored.verified(&self.inner.secret).map(Some),
            Some(_) | None => Ok(None),
        }
    }
}
