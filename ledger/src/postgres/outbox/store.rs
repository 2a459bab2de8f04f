//! Decides how messages lie in the table. A change names the state and the token that it starts from.

use sha2::{Digest, Sha256};
use steady_core::idempotency::{Key, Scope};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::Place;
use crate::error::LedgerError;
use crate::external::store::stored_key;
use crate::outbox::machine::{Message, Phase, Unsure};
use crate::outbox::message::Outgoing;
use crate::outbox::store::{code, is_done};
use crate::postgres::record::Call;
use crate::postgres::tx::Tx;
use crate::postgres::wire::{Wire, args};
use crate::time::JUMP;

const CHANGED: &str = "a message changed inside a transaction";
const CORRUPT: LedgerError = LedgerError::Corrupt { part: "the state of a message is none that exists" };

/// A message in its row.
pub(super) struct Placed {
    pub(super) id: i64,
    pub(super) scope: Scope,
    pub(super) key: Key,
    pub(super) ordinal: u32,
    pub(super) ordering_key: Option<Box<str>>,
    pub(super) message: Message,
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

fn count(row: &Row, column: usize) -> Result<u32, LedgerError> {
    u32::try_from(row.get::<_, i32>(column)).map_err(|_| CORRUPT)
}

fn read(row: &Row) -> Result<Placed, LedgerError> {
    let phase = match (row.get::<_, i16>(6), row.get::<_, Option<i64>>(8)) {
        (1, None) => Phase::Pending { next: row.get(7) },
        (2, Some(lease_until)) => Phase::Sending { lease_until },
        (3, None) => Phase::Delivered,
        (4, None) => Phase::Dead,
        (5, None) => Phase::InDoubt,
        (6, None) => Phase::Skipped,
        (..) => return Err(CORRUPT),
    };
    let unsure = match (row.get(14), row.get::<_, Option<i32>>(15)) {
        (Some(since), Some(attempt)) => Some(Unsure { since, attempt: u32::try_from(attempt).map_err(|_| CORRUPT)? }),
        (..) => None,
    };
    let message = Message {
        phase,
        attempts: count(row, 9)?,
        token: row.get::<_, Option<&[u8]>>(10).and_then(|bytes| bytes.try_into().ok()),
        sent: row.get(11),
        lease: row.get(12),
        deadline: row.get(13),
        unsure,
        reason: row.get::<_, Option<String>>(16).map(Into::into),
    };
    Ok(Placed {
        id: row.get(0),
        scope: Scope::new(row.get::<_, String>(1), row.get::<_, String>(2)),
        key: stored_key(row.get(3))?,
        ordinal: count(row, 4)?,
        ordering_key: row.get::<_, Option<String>>(5).map(Into::into),
        message,
    })
}

fn read_all(rows: &[Row]) -> Result<Vec<Placed>, LedgerError> {
    rows.iter().map(read).collect()
}

/// Keeps others from a line until the end of the transaction. Two lines can share a lock.
pub(super) async fn lock_line(wire: &Wire, target: &str, ordering_key: &str) -> Result<(), LedgerError> {
    let length = u64::try_from(target.len()).unwrap_or(u64::MAX).to_be_bytes();
    let hash = Sha256::new().chain_update(length).chain_update(target).chain_update(ordering_key).finalize();
    let number = i64::from_be_bytes(hash.first_chunk().copied().unwrap_or_default());
    wire.run("SELECT pg_advisory_xact_lock($1)", args![number => INT8]).await?;
    Ok(())
}

/// For a transaction that sees one moment: gives it up if the head of a line that it sees is not what it was any more.
pub(super) async fn pin_head(wire: &Wire, target: &str, ordering_key: &str) -> Result<(), LedgerError> {
    let sql = "SELECT 1 FROM ledger_outbox WHERE target = $1 AND ordering_key = $2 AND head FOR UPDATE";
    wire.first(sql, args![target => TEXT, ordering_key => TEXT]).await?;
    Ok(())
}

/// Adds a message. Its line is locked. A second head means that this transaction sees one moment, and there was none then:
/// it has to begin again.
pub(super) async fn insert(
    wire: &Wire,
    call: &Call,
    ordinal: u32,
    message: &Outgoing,
    now: i64,
) -> Result<(), LedgerError> {
    let sql =
        "INSERT INTO ledger_outbox(principal, operation, key, ordinal, target, ordering_key, payload, deadline_ms,
                                         next_ms, sent_ms, state, attempts, lease_ms, head)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, 1, 0, 0, NOT EXISTS (
                   SELECT 1 FROM ledger_outbox WHERE target = $5 AND ordering_key = $6 AND state IN (1, 2, 4, 5)))";
    let ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
    let ordering_key = message.ordering_key.as_deref();
    let values = args![
        &*call.scope.principal => TEXT, &*call.scope.operation => TEXT, call.key.as_str() => TEXT, ordinal => INT4,
        &*message.target => TEXT, ordering_key => TEXT, &message.payload[..] => BYTEA, message.deadline => INT8,
        now => INT8,
    ];
    match wire.run(sql, values).await {
        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => Err(LedgerError::Busy { operation: None }),
        done => Ok(done.map(drop)?),
    }
}

/// The message of this key at this place, locked with its line.
pub(super) async fn find(
    tx: &Tx,
    target: &str,
    (scope, key, ordinal): Place<'_>,
) -> Result<Option<Placed>, LedgerError> {
    let ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
    let names = args![
        &*scope.principal => TEXT, &*scope.operation => TEXT, key.as_str() => TEXT, ordinal => INT4, target => TEXT,
    ];
    // The line first, in the order of those who add to it: its key never changes.
    let sql = select!("WHERE principal = $1 AND operation = $2 AND key = $3 AND ordinal = $4 AND target = $5");
    let Some(row) = tx.first(sql, names).await? else { return Ok(None) };
    if let Some(line) = row.get::<_, Option<&str>>(5) {
        lock_line(tx.wire(), target, line).await?;
    }
    let sql =
        select!("WHERE principal = $1 AND operation = $2 AND key = $3 AND ordinal = $4 AND target = $5 FOR UPDATE");
    tx.first(sql, names).await?.as_ref().map(read).transpose()
}

/// Messages that can be sent now and that nobody else is at, the one that has waited for the longest time first.
pub(super) async fn due(tx: &Tx, target: &str, longest_pause: i64, limit: u32) -> Result<Vec<Placed>, LedgerError> {
    let (now, limit) = (tx.tick.shown, i64::from(limit));
    let sql = select!(
        "WHERE target = $1 AND state = 1 AND head AND next_ms <= $2 ORDER BY next_ms, id LIMIT $3
         FOR UPDATE SKIP LOCKED"
    );
    let mut found = read_all(&tx.rows(sql, args![target => TEXT, now => INT8, limit => INT8]).await?)?;
    let room = limit.saturating_sub(i64::try_from(found.len()).unwrap_or(i64::MAX));
    if room > 0 {
        // What waits for longer than any pause was told so by a clock that has since gone back.
        let sql = select!(
            "WHERE target = $1 AND state = 1 AND head AND next_ms > $2 ORDER BY next_ms, id LIMIT $3
             FOR UPDATE SKIP LOCKED"
        );
        let unreal = now.saturating_add(longest_pause).saturating_add(JUMP);
        found.extend(read_all(&tx.rows(sql, args![target => TEXT, unreal => INT8, room => INT8]).await?)?);
    }
    Ok(found)
}

/// Messages whose lease may be over and that nobody else is at.
pub(super) async fn leased(tx: &Tx, target: &str, limit: u32) -> Result<Vec<Placed>, LedgerError> {
    let sql = select!(
        "WHERE target = $1 AND state = 2 AND (lease_until_ms <= $2 OR lease_until_ms - $2 - $3 > lease_ms) LIMIT $4
         FOR UPDATE SKIP LOCKED"
    );
    let values = args![target => TEXT, tx.tick.shown => INT8, JUMP => INT8, i64::from(limit) => INT8];
    read_all(&tx.rows(sql, values).await?)
}

/// Messages that wait for a person, the oldest first.
pub(super) async fn stuck(wire: &Wire, target: &str, limit: u32) -> Result<Vec<Placed>, LedgerError> {
    let sql = select!("WHERE target = $1 AND state IN (4, 5) ORDER BY id LIMIT $2");
    read_all(&wire.rows(sql, args![target => TEXT, i64::from(limit) => INT8]).await?)
}

pub(super) async fn payload(tx: &Tx, id: i64) -> Result<Vec<u8>, LedgerError> {
    let row = tx.first("SELECT payload FROM ledger_outbox WHERE id = $1", args![id => INT8]).await?;
    let payload = row.and_then(|row| row.get::<_, Option<Vec<u8>>>(0));
    payload.ok_or(LedgerError::Corrupt { part: "the payload of a message is missing" })
}

/// Puts `after` in the place of what was read. A message that is done leaves its line to the next one.
pub(super) async fn put(tx: &Tx, target: &str, placed: &Placed, after: &Message) -> Result<(), LedgerError> {
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
    let sql = "UPDATE ledger_outbox
               SET state = $4, attempts = $5, token = $6, sent_ms = $7, lease_ms = $8, lease_until_ms = $9, next_ms = $10,
                   deadline_ms = $11, unsure_ms = $12, unsure_attempt = $13, reason = $14,
                   payload = CASE WHEN $15 THEN NULL ELSE payload END, head = head AND NOT $15
               WHERE id = $1 AND state = $2 AND token IS NOT DISTINCT FROM $3";
    let state = |phase| i16::try_from(code(phase)).unwrap_or(0);
    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let token = |token: &Option<[u8; 16]>| token.map(Vec::from);
    let values = args![
        placed.id => INT8, state(before.phase) => INT2, token(&before.token) => BYTEA, state(after.phase) => INT2,
        number(after.attempts) => INT4, token(&after.token) => BYTEA, after.sent => INT8, after.lease => INT8,
        lease_until => INT8, next => INT8, after.deadline => INT8, after.unsure.map(|unsure| unsure.since) => INT8,
        after.unsure.map(|unsure| number(unsure.attempt)) => INT4, after.reason.as_deref() => TEXT, done => BOOL,
    ];
    tx.one(CHANGED, sql, values).await?;
    match &placed.ordering_key {
        Some(line) if done => leave(tx, target, line).await,
        Some(_) | None => Ok(()),
    }
}

/// The next of a line comes first. The line is locked.
async fn leave(tx: &Tx, target: &str, line: &str) -> Result<(), LedgerError> {
    let sql = "UPDATE ledger_outbox SET head = true
               WHERE id = (SELECT min(id) FROM ledger_outbox
                           WHERE target = $1 AND ordering_key = $2 AND state IN (1, 2, 4, 5))";
    tx.run(sql, args![target => TEXT, line => TEXT]).await.map(drop)
}
