//! Decides how messages lie in the table. A change names the state and the token that it starts from, and the first of a
//! line is marked, so that a long line behind a dead message costs nothing.

use rusqlite::{Connection, OptionalExtension, Row};
use steady_core::idempotency::{Key, Scope};

use super::machine::{Message, Phase, Unsure};
use super::message::Outgoing;
use crate::error::LedgerError;
use crate::external::store::{Token, stored_key};
use crate::record::Call;
use crate::time::JUMP;

const CHANGED: LedgerError = LedgerError::Corrupt { part: "a message changed inside a transaction" };
const CORRUPT_STATE: LedgerError = LedgerError::Corrupt { part: "the state of a message is none that exists" };

/// A message in its row.
pub(super) struct Placed {
    pub(super) id: i64,
    pub(super) scope: Scope,
    pub(super) key: Key,
    pub(super) ordinal: u32,
    pub(super) ordering_key: Option<Box<str>>,
    pub(super) message: Message,
}

pub(crate) const fn code(phase: Phase) -> i64 {
    match phase {
        Phase::Pending { .. } => 1,
        Phase::Sending { .. } => 2,
        Phase::Delivered => 3,
        Phase::Dead => 4,
        Phase::InDoubt => 5,
        Phase::Skipped => 6,
    }
}

pub(crate) const fn is_done(phase: Phase) -> bool {
    matches!(phase, Phase::Delivered | Phase::Skipped)
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, principal, operation, key, ordinal, ordering_key, state, next_ms, lease_until_ms, attempts, token,
                    sent_ms, lease_ms, deadline_ms, unsure_ms, unsure_attempt, reason
             FROM ledger_outbox ",
            $rest
        )
    };
}

fn read(row: &Row<'_>) -> Result<Placed, LedgerError> {
    let phase = match (row.get::<_, i64>(6)?, row.get::<_, Option<i64>>(8)?) {
        (1, None) => Phase::Pending { next: row.get(7)? },
        (2, Some(lease_until)) => Phase::Sending { lease_until },
        (3, None) => Phase::Delivered,
        (4, None) => Phase::Dead,
        (5, None) => Phase::InDoubt,
        (6, None) => Phase::Skipped,
        (..) => return Err(CORRUPT_STATE),
    };
    let unsure = match (row.get(14)?, row.get(15)?) {
        (Some(since), Some(attempt)) => Some(Unsure { since, attempt }),
        (..) => None,
    };
    let message = Message {
        phase,
        attempts: row.get(9)?,
        token: row.get(10)?,
        sent: row.get(11)?,
        lease: row.get(12)?,
        deadline: row.get(13)?,
        unsure,
        reason: row.get(16)?,
    };
    Ok(Placed {
        id: row.get(0)?,
        scope: Scope::new(row.get::<_, String>(1)?, row.get::<_, String>(2)?),
        key: stored_key(&row.get::<_, String>(3)?)?,
        ordinal: row.get(4)?,
        ordering_key: row.get(5)?,
        message,
    })
}

fn read_all(mut rows: rusqlite::Rows<'_>) -> Result<Vec<Placed>, LedgerError> {
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// Writes the messages of an effect beside its outcome.
pub(crate) fn enqueue(conn: &Connection, call: &Call, outgoing: &[Outgoing]) -> Result<(), LedgerError> {
    if outgoing.is_empty() {
        return Ok(());
    }
    let count = i64::try_from(outgoing.len()).unwrap_or(i64::MAX);
    let room = "UPDATE ledger_meta SET outbox_open = outbox_open + ?1 WHERE id = 1 AND outbox_open <= ?2 - ?1";
    if conn.prepare_cached(room)?.execute((count, call.outbox_capacity))? != 1 {
        return Err(LedgerError::OutboxFull);
    }
    let now = call.clock.shown().unix_millis();
    let mut statement = conn.prepare_cached(
        "INSERT INTO ledger_outbox(principal, operation, key, ordinal, target, ordering_key, payload, deadline_ms, next_ms,
                                   sent_ms, state, attempts, lease_ms, head)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, 1, 0, 0, NOT EXISTS (
             SELECT 1 FROM ledger_outbox WHERE target = ?5 AND ordering_key = ?6 AND state IN (1, 2, 4, 5)))",
    )?;
    for (ordinal, message) in (0_u32..).zip(outgoing) {
        statement.execute((
            &*call.scope.principal,
            &*call.scope.operation,
            call.key.as_str(),
            ordinal,
            &*message.target,
            message.ordering_key.as_deref(),
            &message.payload,
            message.deadline,
            now,
        ))?;
    }
    Ok(())
}

/// The message of this key at this place.
pub(super) fn find(
    conn: &Connection,
    target: &str,
    (scope, key, ordinal): (&Scope, &Key, u32),
) -> Result<Option<Placed>, LedgerError> {
    let mut statement = conn.prepare_cached(select!(
        "WHERE principal = ?1 AND operation = ?2 AND key = ?3 AND ordinal = ?4 AND target = ?5"
    ))?;
    let rows = statement.query((&*scope.principal, &*scope.operation, key.as_str(), ordinal, target))?;
    Ok(read_all(rows)?.pop())
}

/// The messages that can be sent now, the one that has waited for the longest time first.
pub(super) fn due(
    conn: &Connection,
    target: &str,
    now: i64,
    longest_pause: i64,
    limit: u32,
) -> Result<Vec<Placed>, LedgerError> {
    let mut statement = conn.prepare_cached(select!(
        "WHERE target = ?1 AND state = 1 AND head = 1 AND next_ms <= ?2 ORDER BY next_ms, id LIMIT ?3"
    ))?;
    let mut found = read_all(statement.query((target, now, limit))?)?;
    let room = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
    if room > 0 {
        // What waits for longer than any pause was told so by a clock that has since gone back.
        let mut statement = conn.prepare_cached(select!(
            "WHERE target = ?1 AND state = 1 AND head = 1 AND next_ms > ?2 ORDER BY next_ms, id LIMIT ?3"
        ))?;
        let unreal = now.saturating_add(longest_pause).saturating_add(JUMP);
        found.extend(read_all(statement.query((target, unreal, room))?)?);
    }
    Ok(found)
}

/// The messages whose lease may be over.
pub(super) fn leased(conn: &Connection, target: &str, now: i64, limit: u32) -> Result<Vec<Placed>, LedgerError> {
    let mut statement = conn.prepare_cached(select!(
        "WHERE target = ?1 AND state = 2 AND (lease_until_ms <= ?2 OR lease_until_ms - ?2 - ?3 > lease_ms) LIMIT ?4"
    ))?;
    read_all(statement.query((target, now, JUMP, limit))?)
}

/// The messages that a claim holds.
pub(super) fn claimed(conn: &Connection, target: &str, token: Token) -> Result<Vec<Placed>, LedgerError> {
    let mut statement =
        conn.prepare_cached(select!("WHERE target = ?1 AND state = 2 AND token = ?2 ORDER BY next_ms, id"))?;
    read_all(statement.query((target, token))?)
}

/// The messages that wait for a person, the oldest first.
pub(super) fn stuck(conn: &Connection, target: &str, limit: u32) -> Result<Vec<Placed>, LedgerError> {
    let mut statement = conn.prepare_cached(select!("WHERE target = ?1 AND state IN (4, 5) ORDER BY id LIMIT ?2"))?;
    read_all(statement.query((target, limit))?)
}

pub(super) fn payload(conn: &Connection, id: i64) -> Result<Vec<u8>, LedgerError> {
    let payload: Option<Vec<u8>> = conn
        .prepare_cached("SELECT payload FROM ledger_outbox WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?
        .flatten();
    payload.ok_or(LedgerError::Corrupt { part: "the payload of a message is missing" })
}

/// Puts `after` in the place of what was read. A message that is done leaves its line to the next one.
pub(super) fn put(conn: &Connection, placed: &Placed, after: &Message) -> Result<(), LedgerError> {
    let before = &placed.message;
    if before == after {
        return Ok(());
    }
    let (next, lease_until) = match after.phase {
        Phase::Pending { next } => (next, None),
        Phase::Sending { lease_until } => (after.sent, Some(lease_until)),
        Phase::Delivered | Phase::Dead | Phase::InDoubt | Phase::Skipped => (after.sent, None),
    };
    let done = is_done(after.phase);
    let mut statement = conn.prepare_cached(
        "UPDATE ledger_outbox
         SET state = ?4, attempts = ?5, token = ?6, sent_ms = ?7, lease_ms = ?8, lease_until_ms = ?9, next_ms = ?10,
             deadline_ms = ?11, unsure_ms = ?12, unsure_attempt = ?13, reason = ?14,
             payload = iif(?15, NULL, payload), head = iif(?15, 0, head)
         WHERE id = ?1 AND state = ?2 AND token IS ?3",
    )?;
    let changed = statement.execute(rusqlite::params![
        placed.id,
        code(before.phase),
        before.token,
        code(after.phase),
        after.attempts,
        after.token,
        after.sent,
        after.lease,
        lease_until,
        next,
        after.deadline,
        after.unsure.map(|unsure| unsure.since),
        after.unsure.map(|unsure| unsure.attempt),
        after.reason,
        done,
    ])?;
    if changed != 1 {
        return Err(CHANGED);
    }
    if done { leave(conn, placed) } else { Ok(()) }
}

/// A message is done: there is room for another one, and the next of its line comes first.
fn leave(conn: &Connection, placed: &Placed) -> Result<(), LedgerError> {
    conn.prepare_cached("UPDATE ledger_meta SET outbox_open = outbox_open - 1 WHERE id = 1")?.execute([])?;
    let mut statement = conn.prepare_cached(
        "UPDATE ledger_outbox SET head = 1
         WHERE id = (SELECT min(o.id) FROM ledger_outbox AS o JOIN ledger_outbox AS gone ON gone.id = ?1
                     WHERE o.target = gone.target AND o.ordering_key = gone.ordering_key AND o.state IN (1, 2, 4, 5))",
    )?;
    statement.execute([placed.id])?;
    Ok(())
}
