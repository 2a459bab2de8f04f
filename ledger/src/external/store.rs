//! Decides how an attempt lies in the tables. Every change names the state that it starts from.

use rusqlite::{Connection, OptionalExtension};
use steady_core::idempotency::{Key, Scope, State};
use steady_core::time::WallTime;

use crate::audit::{self, About, Action, By, LEDGER};
use crate::error::LedgerError;
use crate::record::{self, Call};
use crate::time::{self, JUMP, Tick};

/// What only the owner of an attempt knows.
pub(crate) type Token = [u8; 16];

/// How many keys are put in doubt in one transaction.
pub(crate) const SWEEP: u32 = 500;
const CHANGED: LedgerError = LedgerError::Corrupt { part: "an open key changed inside a transaction" };

/// The latest attempt of an open key.
pub(crate) struct Open {
    pub(crate) token: Token,
    pub(crate) number: u32,
    pub(crate) lease_ms: i64,
    pub(crate) first_sent_ms: i64,
    pub(crate) resend_until_ms: Option<i64>,
}

pub(crate) fn find(conn: &Connection, scope: &Scope, key: &Key) -> Result<Option<Open>, LedgerError> {
    let mut statement = conn.prepare_cached(
        "SELECT token, number, lease_ms, first_sent_ms, resend_until_ms FROM ledger_attempt
         WHERE principal = ?1 AND operation = ?2 AND key = ?3",
    )?;
    let open = statement.query_row((&*scope.principal, &*scope.operation, key.as_str()), |row| {
        Ok(Open {
            token: row.get(0)?,
            number: row.get(1)?,
            lease_ms: row.get(2)?,
            first_sent_ms: row.get(3)?,
            resend_until_ms: row.get(4)?,
        })
    });
    Ok(open.optional()?)
}

/// Whether nobody is presumed to be at work on an open key any more.
pub(crate) fn is_abandoned(state: State, open: Option<&Open>, now: i64) -> bool {
    match state {
        State::InDoubt => true,
        State::Started { lease_until } => {
            time::is_reached(lease_until.unix_millis(), open.map_or(i64::MAX, |open| open.lease_ms), now)
        }
        State::Committed | State::Rejected | State::Expired => false,
    }
}

/// The first attempt of a new key.
pub(crate) fn start(conn: &Connection, call: &Call, open: &Open) -> Result<(), LedgerError> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO ledger_key(principal, operation, key, fingerprint, state, executions, lease_until_ms, recorded_ms,
                                expires_ms)
         VALUES (?1, ?2, ?3, ?4, 1, 0, ?5, ?6, ?6)",
    )?;
    let Call { scope, key, fingerprint, .. } = call;
    let lease_until = open.first_sent_ms.saturating_add(open.lease_ms);
    statement.execute((
        &*scope.principal,
        &*scope.operation,
        key.as_str(),
        fingerprint,
        lease_until,
        open.first_sent_ms,
    ))?;
    let mut statement = conn.prepare_cached(
        "INSERT INTO ledger_attempt(principal, operation, key, token, number, lease_ms, first_sent_ms, resend_until_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    statement.execute((
        &*scope.principal,
        &*scope.operation,
        key.as_str(),
        open.token,
        open.number,
        open.lease_ms,
        open.first_sent_ms,
        open.resend_until_ms,
    ))?;
    Ok(())
}

/// Another attempt of a key that was abandoned. The attempt before it loses its say.
pub(crate) fn restart(conn: &Connection, call: &Call, next: &Open, tick: Tick) -> Result<(), LedgerError> {
    let Call { scope, key, .. } = call;
    let mut statement = conn.prepare_cached(
        "UPDATE ledger_key SET state = 1, lease_until_ms = ?4, recorded_ms = ?5
         WHERE principal = ?1 AND operation = ?2 AND key = ?3 AND state IN (1, 4)",
    )?;
    let lease_until = tick.shown.saturating_add(next.lease_ms);
    only_one(statement.execute((&*scope.principal, &*scope.operation, key.as_str(), lease_until, tick.now))?)?;
    let mut statement = conn.prepare_cached(
        "UPDATE ledger_attempt SET token = ?4, number = ?5, lease_ms = ?6
         WHERE principal = ?1 AND operation = ?2 AND key = ?3 AND number = ?5 - 1",
    )?;
    only_one(statement.execute((
        &*scope.principal,
        &*scope.operation,
        key.as_str(),
        next.token,
        next.number,
        next.lease_ms,
    ))?)?;
    audit::write(conn, About::key(scope, key), tick.now, Action::Resent, LEDGER)
}

/// A started key becomes in doubt. Its attempt keeps its say.
pub(crate) fn doubt(conn: &Connection, scope: &Scope, key: &Key, now: i64, why: Action) -> Result<(), LedgerError> {
    let mut statement = conn.prepare_cached(
        "UPDATE ledger_key SET state = 4, lease_until_ms = NULL, recorded_ms = ?4
         WHERE principal = ?1 AND operation = ?2 AND key = ?3 AND state = 1",
    )?;
    only_one(statement.execute((&*scope.principal, &*scope.operation, key.as_str(), now))?)?;
    audit::write(conn, About::key(scope, key), now, why, LEDGER)
}

/// An open key gets its outcome, and nobody has a say in it any more.
pub(crate) fn finish(conn: &Connection, call: &Call, now: i64, state: State, body: &[u8]) -> Result<(), LedgerError> {
    let Call { scope, key, .. } = call;
    let (result, digest) = record::store_result(conn, call, state, body)?;
    let mut statement = conn.prepare_cached(
        "UPDATE ledger_key SET state = ?4, executions = ?5, result_id = ?6, result_digest = ?7, lease_until_ms = NULL,
                               recorded_ms = ?8, expires_ms = ?9
         WHERE principal = ?1 AND operation = ?2 AND key = ?3 AND state IN (1, 4)",
    )?;
    only_one(statement.execute((
        &*scope.principal,
        &*scope.operation,
        key.as_str(),
        record::code(state),
        i64::from(state == State::Committed),
        result,
        digest,
        now,
        now.saturating_add(call.retention_ms),
    ))?)?;
    end_attempt(conn, scope, key)
}

/// An open key that nothing was ever sent for is as if it had never come.
pub(crate) fn forget(conn: &Connection, scope: &Scope, key: &Key) -> Result<(), LedgerError> {
    end_attempt(conn, scope, key)?;
    let mut statement = conn.prepare_cached(
        "DELETE FROM ledger_key WHERE principal = ?1 AND operation = ?2 AND key = ?3 AND state IN (1, 4)",
    )?;
    only_one(statement.execute((&*scope.principal, &*scope.operation, key.as_str()))?)
}

fn end_attempt(conn: &Connection, scope: &Scope, key: &Key) -> Result<(), LedgerError> {
    // A file of schema 1 can have open keys without one.
    conn.prepare_cached("DELETE FROM ledger_attempt WHERE principal = ?1 AND operation = ?2 AND key = ?3")?
        .execute((&*scope.principal, &*scope.operation, key.as_str()))?;
    Ok(())
}

fn only_one(changed: usize) -> Result<(), LedgerError> {
    if changed == 1 { Ok(()) } else { Err(CHANGED) }
}

/// Puts keys in doubt whose lease is over. Returns how many; there may be more.
pub(crate) fn sweep(conn: &Connection, tick: Tick) -> Result<usize, LedgerError> {
    let mut statement = conn.prepare_cached(
        "SELECT k.principal, k.operation, k.key
         FROM ledger_key AS k LEFT JOIN ledger_attempt AS a USING (principal, operation, key)
         WHERE k.state = 1 AND (k.lease_until_ms <= ?1 OR k.lease_until_ms - ?1 - ?2 > a.lease_ms) LIMIT ?3",
    )?;
    let rows = statement.query_map((tick.shown, JUMP, SWEEP), |row| {
        Ok((Scope::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?), row.get::<_, String>(2)?))
    })?;
    let abandoned = rows.collect::<Result<Vec<_>, _>>()?;
    for (scope, key) in &abandoned {
        doubt(conn, scope, &stored_key(key)?, tick.now, Action::LeaseExpired)?;
    }
    Ok(abandoned.len())
}

pub(crate) fn stored_key(text: &str) -> Result<Key, LedgerError> {
    Key::parse(text).map_err(|_| LedgerError::Corrupt { part: "a stored key is none" })
}

/// A key in doubt.
pub(crate) struct Doubtful {
    pub(crate) scope: Scope,
    pub(crate) key: Key,
    pub(crate) since: WallTime,
    pub(crate) attempts: u32,
    pub(crate) first_sent_at: Option<WallTime>,
}

/// Keys in doubt, those that have been so for the longest time first.
pub(crate) fn in_doubt(conn: &Connection, limit: u32) -> Result<Vec<Doubtful>, LedgerError> {
    let mut statement = conn.prepare_cached(
        "SELECT k.principal, k.operation, k.key, k.recorded_ms, coalesce(a.number, 1), a.first_sent_ms
         FROM ledger_key AS k LEFT JOIN ledger_attempt AS a USING (principal, operation, key)
         WHERE k.state = 4 ORDER BY k.recorded_ms LIMIT ?1",
    )?;
    let mut rows = statement.query([limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Doubtful {
            scope: Scope::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?),
            key: stored_key(row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?)?,
            since: WallTime::from_unix_millis(row.get(3)?),
            attempts: row.get(4)?,
            first_sent_at: row.get::<_, Option<i64>>(5)?.map(WallTime::from_unix_millis),
        });
    }
    Ok(found)
}

/// Writes down what somebody found out.
pub(crate) fn note(conn: &Connection, call: &Call, now: i64, action: Action, by: By<'_>) -> Result<(), LedgerError> {
    audit::write(conn, About::key(&call.scope, &call.key), now, action, by)
}
