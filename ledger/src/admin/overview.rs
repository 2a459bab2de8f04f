//! Decides what an operator sees of a ledger. Stored results are shown by [`Ledger::stored_result`] alone.

use rusqlite::OptionalExtension;
use serde::Serialize;
use steady_core::idempotency::{Key, Scope, State};

use crate::error::LedgerError;
use crate::file::{Access, Db};
use crate::ledger::Ledger;
use crate::record;
use crate::writer::unit::Unit;

/// A ledger at one moment. Times are Unix milliseconds, sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Overview {
    /// The version of its tables.
    pub schema: i64,
    /// When the file became a ledger.
    pub created_ms: i64,
    /// Size of the database, without its log.
    pub file_bytes: u64,
    /// Keys by state: their name and their number.
    pub keys: Vec<(&'static str, u64)>,
    /// Effects that ran without a key.
    pub keyless_executions: u64,
    /// When the oldest key that is started or in doubt reached that state.
    pub oldest_open_ms: Option<i64>,
    /// Outbox messages by state.
    pub outbox: Vec<(&'static str, u64)>,
    /// Tasks by status.
    pub tasks: Vec<(String, u64)>,
}

/// Which keys to list. Each part that is given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a plain filter, meant to be written out with ..Default::default()")]
pub struct KeyFilter {
    /// The caller.
    pub principal: Option<Box<str>>,
    /// The operation.
    pub operation: Option<Box<str>>,
    /// The name of the state, as in [`KeyRow::state`].
    pub state: Option<Box<str>>,
}

/// A key, without its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyRow {
    /// Who called.
    pub principal: String,
    /// What was called.
    pub operation: String,
    /// The business key.
    pub key: String,
    /// `started`, `committed`, `rejected`, `in_doubt` or `expired`.
    pub state: &'static str,
    /// How many times its effect was committed, as far as this ledger knows.
    pub executions: u32,
    /// When it reached its state, in Unix milliseconds.
    pub recorded_ms: i64,
    /// Until when its result is replayed, in Unix milliseconds.
    pub expires_ms: i64,
}

/// A message that waits for somebody's decision, without its payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MessageRow {
    /// The system that it is for.
    pub target: String,
    /// Whose effect left it.
    pub principal: String,
    /// What was called.
    pub operation: String,
    /// The business key.
    pub key: String,
    /// Its place among the messages of its key, from 0.
    pub ordinal: u32,
    /// `dead` or `in_doubt`.
    pub state: &'static str,
    /// How often it was sent.
    pub attempts: u32,
    /// Why it is stuck, as its sender said.
    pub reason: Option<String>,
}

/// The names of states, in the order of their codes, which start at 1.
pub(crate) const KEY_STATES: [&str; 5] = ["started", "committed", "rejected", "in_doubt", "expired"];
pub(crate) const OUTBOX_STATES: [&str; 6] = ["pending", "sending", "delivered", "dead", "in_doubt", "skipped"];

/// What a state is called in output for operators.
#[must_use]
pub const fn state_name(state: State) -> &'static str {
    match state {
        State::Started { .. } => KEY_STATES[0],
        State::Committed => KEY_STATES[1],
        State::Rejected => KEY_STATES[2],
        State::InDoubt => KEY_STATES[3],
        State::Expired => KEY_STATES[4],
    }
}

pub(crate) fn name(names: &[&'static str], code: i64) -> &'static str {
    let known = usize::try_from(code).ok().and_then(|code| code.checked_sub(1)).and_then(|at| names.get(at));
    known.copied().unwrap_or("unknown")
}

pub(crate) fn code(name: &str) -> Option<i64> {
    KEY_STATES.iter().zip(1..).find(|(known, _)| **known == name).map(|(_, code)| code)
}

impl Ledger {
    /// The ledger at one moment.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading can fail.
    pub fn overview(&self) -> Result<Overview, LedgerError> {
        let db = self.site().connect(Access::Read)?;
        let snapshot = db.conn.unchecked_transaction()?;
        let overview = overview(&db)?;
        snapshot.finish()?;
        Ok(overview)
    }

    /// The first `limit` keys that fit the filter, by principal, operation and key.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading can fail. A state that does not exist fits nothing.
    pub fn keys(&self, filter: &KeyFilter, limit: u32) -> Result<Vec<KeyRow>, LedgerError> {
        let db = self.site().connect(Access::Read)?;
        let state = match filter.state.as_deref() {
            None => None,
            Some(name) => match code(name) {
                Some(code) => Some(code),
                None => return Ok(Vec::new()),
            },
        };
        let mut statement = db.conn.prepare(
            "SELECT principal, operation, key, state, executions, recorded_ms, expires_ms FROM ledger_key
             WHERE (?1 IS NULL OR principal = ?1) AND (?2 IS NULL OR operation = ?2) AND (?3 IS NULL OR state = ?3)
             ORDER BY principal, operation, key LIMIT ?4",
        )?;
        let rows = statement.query_map((&filter.principal, &filter.operation, state, limit), |row| {
            Ok(KeyRow {
                principal: row.get(0)?,
                operation: row.get(1)?,
                key: row.get(2)?,
                state: name(&KEY_STATES, row.get(3)?),
                executions: row.get(4)?,
                recorded_ms: row.get(5)?,
                expires_ms: row.get(6)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The first `limit` messages of all targets that are dead or in doubt, by target and age. See
    /// [`Outbox::stuck`](crate::Outbox::stuck) for what to do about them.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading can fail.
    pub fn stuck_messages(&self, limit: u32) -> Result<Vec<MessageRow>, LedgerError> {
        let db = self.site().connect(Access::Read)?;
        let mut statement = db.conn.prepare(
            "SELECT target, principal, operation, key, ordinal, state, attempts, reason FROM ledger_outbox
             WHERE state IN (4, 5) ORDER BY target, id LIMIT ?1",
        )?;
        let rows = statement.query_map([limit], |row| {
            Ok(MessageRow {
                target: row.get(0)?,
                principal: row.get(1)?,
                operation: row.get(2)?,
                key: row.get(3)?,
                ordinal: row.get(4)?,
                state: name(&OUTBOX_STATES, row.get(5)?),
                attempts: row.get(6)?,
                reason: row.get(7)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Gives up to `pages` unused pages of the database back to the file system, in one short transaction. Returns how
    /// many bytes. After a collection the pages are there to be used again, so a file that is to grow again needs none of
    /// this.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as writing can fail.
    pub fn shrink(&self, pages: u32) -> Result<u64, LedgerError> {
        self.inner.writer.wait(Unit::new("ledger", move |db| {
            let count = || db.conn.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0));
            let before = count()?;
            // Zero would mean all.
            if pages > 0 {
                let mut freed = db.conn.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
                let mut rows = freed.query([])?;
                while rows.next()?.is_some() {}
            }
            let size = db.conn.query_row("PRAGMA page_size", [], |row| row.get::<_, i64>(0))?;
            Ok(before.saturating_sub(count()?).saturating_mul(size).unsigned_abs())
        }))
    }

    /// The stored result of a key: JSON, as it is replayed. It can hold what only its caller may see.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Corrupt`] if it is not what was stored.
    pub fn stored_result(&self, scope: &Scope, key: &Key) -> Result<Option<Vec<u8>>, LedgerError> {
        let db = self.site().connect(Access::Read)?;
        match record::find(&db.conn, scope, key)? {
            Some(stored) if stored.has_result() => stored.verified(self.secret()).map(Some),
            Some(_) | None => Ok(None),
        }
    }
}

fn overview(db: &Db) -> Result<Overview, LedgerError> {
    let conn = &db.conn;
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    let counts = |sql: &str, names: &[&'static str]| -> rusqlite::Result<Vec<(&'static str, u64)>> {
        conn.prepare(sql)?
            .query_map([], |row| Ok((name(names, row.get(0)?), row.get::<_, i64>(1)?.unsigned_abs())))?
            .collect()
    };
    let tasks = "SELECT status, count(*) FROM ledger_task GROUP BY status ORDER BY status";
    let tasks = conn
        .prepare(tasks)?
        .query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs())))?
        .collect::<Result<_, _>>()?;
    let bytes = number("PRAGMA page_count")?.saturating_mul(number("PRAGMA page_size")?);
    let open = "SELECT min(recorded_ms) FROM (SELECT recorded_ms FROM ledger_key WHERE state = 1
                                            UNION ALL SELECT recorded_ms FROM ledger_key WHERE state = 4)";
    Ok(Overview {
        schema: number("PRAGMA user_version")?,
        created_ms: number("SELECT created_ms FROM ledger_meta")?,
        file_bytes: bytes.unsigned_abs(),
        keys: counts("SELECT state, count(*) FROM ledger_key GROUP BY state ORDER BY state", &KEY_STATES)?,
        keyless_executions: number("SELECT coalesce(sum(executions), 0) FROM ledger_unkeyed")?.unsigned_abs(),
        oldest_open_ms: conn.query_row(open, [], |row| row.get(0)).optional()?.flatten(),
        outbox: counts("SELECT state, count(*) FROM ledger_outbox GROUP BY state ORDER BY state", &OUTBOX_STATES)?,
        tasks,
    })
}
