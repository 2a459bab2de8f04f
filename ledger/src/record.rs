//! Decides how a key's record lies in the tables, and refuses rows that no release of this ledger wrote.

use rusqlite::{Connection, OptionalExtension, Row};
use steady_core::idempotency::{Key, Record, Scope, State};
use steady_core::time::WallTime;

use crate::error::LedgerError;
use crate::request::Reconciled;
use crate::secret::Secret;
use crate::time::Timekeeper;

/// A keyed call, reduced to what is stored of it.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) scope: Scope,
    pub(crate) key: Key,
    pub(crate) fingerprint: [u8; 32],
    pub(crate) secret: Secret,
    pub(crate) clock: Timekeeper,
    /// How long its result is replayed, in milliseconds.
    pub(crate) retention_ms: i64,
    /// How old a new key may be that carries a time, in milliseconds.
    pub(crate) horizon_ms: Option<i64>,
    /// How many messages may wait in the outbox.
    pub(crate) outbox_capacity: u32,
}

impl Call {
    /// The same call with the fingerprint of what is stored.
    pub(crate) fn of(&self, record: &Record) -> Self {
        Self { fingerprint: record.fingerprint, ..self.clone() }
    }
}

/// A record as it was read.
pub(crate) struct Stored {
    pub(crate) record: Record,
    pub(crate) executions: u64,
    pub(crate) recorded_at: WallTime,
    pub(crate) digest: Option<[u8; 32]>,
    pub(crate) body: Option<Vec<u8>>,
    /// How `digest` comes from the body.
    pub(crate) seal: Seal,
}

/// How the digest of a result comes from its bytes.
pub(crate) type Seal = fn(&Secret, fingerprint: &[u8; 32], state: u8, body: &[u8]) -> [u8; 32];

impl Stored {
    /// The bytes of the result, if they are those that were stored with this record.
    pub(crate) fn verified(self, secret: &Secret) -> Result<Vec<u8>, LedgerError> {
        let (Some(digest), Some(body)) = (self.digest, self.body) else {
            return Err(LedgerError::Corrupt { part: "the result of a key is missing" });
        };
        if (self.seal)(secret, &self.record.fingerprint, code(self.record.state), &body) != digest {
            return Err(LedgerError::Corrupt { part: "the result of a key does not match its digest" });
        }
        Ok(body)
    }

    /// Whether it has this outcome.
    pub(crate) fn is_outcome(&self, secret: &Secret, state: State, body: &[u8]) -> bool {
        self.record.state == state
            && self.digest == Some((self.seal)(secret, &self.record.fingerprint, code(state), body))
    }

    pub(crate) fn has_result(&self) -> bool {
        matches!(self.record.state, State::Committed | State::Rejected)
    }

    pub(crate) fn reconciled(&self) -> Reconciled {
        Reconciled {
            state: self.record.state,
            executions: self.executions,
            recorded_at: self.recorded_at,
            expires_at: self.record.expires_at,
        }
    }
}

pub(crate) const CORRUPT_STATE: LedgerError = LedgerError::Corrupt { part: "the state of a key is none that exists" };

pub(crate) const fn code(state: State) -> u8 {
    match state {
        State::Started { .. } => 1,
        State::Committed => 2,
        State::Rejected => 3,
        State::InDoubt => 4,
        State::Expired => 5,
    }
}

pub(crate) fn state(code: i64, lease_until: Option<i64>) -> Option<State> {
    match (code, lease_until.map(WallTime::from_unix_millis)) {
        (1, Some(lease_until)) => Some(State::Started { lease_until }),
        (2, None) => Some(State::Committed),
        (3, None) => Some(State::Rejected),
        (4, None) => Some(State::InDoubt),
        (5, None) => Some(State::Expired),
        (..) => None,
    }
}

const FIND: &str = "
    SELECT k.fingerprint, k.state, k.lease_until_ms, k.executions, k.recorded_ms, k.expires_ms, k.result_digest, r.body
    FROM ledger_key AS k LEFT JOIN ledger_result AS r ON r.id = k.result_id
    WHERE k.principal = ?1 AND k.operation = ?2 AND k.key = ?3";

/// The record of a key, as of the current transaction.
pub(crate) fn find(conn: &Connection, scope: &Scope, key: &Key) -> Result<Option<Stored>, LedgerError> {
    let mut statement = conn.prepare_cached(FIND)?;
    let row = statement.query_row((&*scope.principal, &*scope.operation, key.as_str()), read).optional()?;
    row.map(|stored| stored.ok_or(CORRUPT_STATE)).transpose()
}

fn read(row: &Row<'_>) -> rusqlite::Result<Option<Stored>> {
    let Some(state) = state(row.get(1)?, row.get(2)?) else {
        return Ok(None);
    };
    let time = |column| row.get(column).map(WallTime::from_unix_millis);
    Ok(Some(Stored {
        record: Record { fingerprint: row.get(0)?, state, expires_at: time(5)? },
        executions: row.get::<_, u32>(3)?.into(),
        recorded_at: time(4)?,
        digest: row.get(6)?,
        body: row.get(7)?,
        seal: Secret::digest,
    }))
}

/// Stores the outcome of a call beside its effect. Fails if the key has a record.
pub(crate) fn insert(conn: &Connection, call: &Call, state: State, body: &[u8]) -> Result<(), LedgerError> {
    let (result, digest) = store_result(conn, call, state, body)?;
    call.clock.keep_up(conn)?;
    let now = call.clock.now().unix_millis();
    let mut statement = conn.prepare_cached(
        "INSERT INTO ledger_key(principal, operation, key, fingerprint, state, executions, result_id, result_digest,
                                recorded_ms, expires_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    statement.execute((
        &*call.scope.principal,
        &*call.scope.operation,
        call.key.as_str(),
        call.fingerprint,
        code(state),
        i64::from(state == State::Committed),
        result,
        digest,
        now,
        now.saturating_add(call.retention_ms),
    ))?;
    Ok(())
}

/// Stores the bytes of an outcome. Returns what its key has to name: their id and their digest.
pub(crate) fn store_result(
    conn: &Connection,
    call: &Call,
    state: State,
    body: &[u8],
) -> Result<(i64, [u8; 32]), LedgerError> {
    conn.prepare_cached("INSERT INTO ledger_result(body) VALUES (?1)")?.execute([body])?;
    Ok((conn.last_insert_rowid(), call.secret.digest(&call.fingerprint, code(state), body)))
}

/// Counts a committed effect without a key.
pub(crate) fn count_unkeyed(conn: &Connection, scope: &Scope) -> Result<(), LedgerError> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO ledger_unkeyed(principal, operation, executions) VALUES (?1, ?2, 1)
         ON CONFLICT(principal, operation) DO UPDATE SET executions = executions + 1",
    )?;
    statement.execute((&*scope.principal, &*scope.operation))?;
    Ok(())
}

/// How many effects without a key were committed in this scope.
pub(crate) fn unkeyed(conn: &Connection, scope: &Scope) -> Result<u64, LedgerError> {
    let mut statement =
        conn.prepare_cached("SELECT executions FROM ledger_unkeyed WHERE principal = ?1 AND operation = ?2")?;
    let count = statement.query_row((&*scope.principal, &*scope.operation), |row| row.get::<_, i64>(0)).optional()?;
    Ok(count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rusqlite::StatementStatus;

    use super::*;
    use crate::file::{Access, Keeping, Site};
    use crate::options::{Clock, Durability, Entropy, Opening};

    /// A lookup takes some microseconds, and to compile its statement several times as long.
    #[test]
    fn a_lookup_is_compiled_once() {
        let dir = tempfile::tempdir().unwrap();
        let site = Site {
            path: dir.path().join("shop.db"),
            vfs: None,
            busy_timeout: Duration::from_secs(5),
            durability: Durability::Full,
            effect_time: Duration::from_secs(5),
            meters: Arc::default(),
            opening: Opening::CreateOrMigrate,
            network_file_system: false,
        };
        let keeping = Keeping { retention_ms: 0, horizon_ms: None };
        let writer = site.found(None, &Entropy::default(), "", Clock::default(), keeping).unwrap().db;
        let reader = site.connect(Access::Read).unwrap();
        for db in [&writer, &reader] {
            for key in ["order-1", "order-2", "order-3"] {
                let found = find(&db.conn, &Scope::new("tenant-1", "charge"), &Key::parse(key).unwrap());
                assert!(found.unwrap().is_none());
            }
            let statement = db.conn.prepare_cached(FIND).unwrap();
            assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
        }
    }
}
