//! Decides how a key's record lies in the tables.

use sha2::{Digest, Sha256};
use steady_core::idempotency::{Key, Record, Scope};
use steady_core::time::WallTime;
use tokio_postgres::Row;

use super::wire::{Wire, args};
use crate::error::LedgerError;
use crate::record::{CORRUPT_STATE, Stored, state};
use crate::secret::Secret;

/// A keyed call, reduced to what is stored of it.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) scope: Scope,
    pub(crate) key: Key,
    pub(crate) fingerprint: [u8; 32],
    /// What those take who work on this key.
    pub(crate) lock: i64,
    /// How long its result is replayed, in milliseconds.
    pub(crate) retention_ms: i64,
}

/// Up to here a result lies with its key. Beyond, PostgreSQL would put it elsewhere anyway.
const SMALL: usize = 2000;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The day of a time, in days since 1970.
pub(super) fn day(millis: i64) -> i32 {
    i32::try_from(millis.div_euclid(DAY_MS)).unwrap_or(i32::MAX)
}

/// What a result is verified by: one that the database can make, in a statement that is the whole effect.
pub(super) fn seal(secret: &Secret, fingerprint: &[u8; 32], state: u8, body: &[u8]) -> [u8; 32] {
    let key = secret.result_key(fingerprint, state);
    let inner = Sha256::new().chain_update(key).chain_update(body).finalize();
    Sha256::new().chain_update(key).chain_update(inner).finalize().into()
}

macro_rules! find {
    ($rest:literal) => {
        concat!(
            "SELECT fingerprint, state, lease_until_ms, executions, recorded_ms, expires_ms, result_digest, result,
                    result_day, result_id, (extract(epoch FROM clock_timestamp()) * 1000)::bigint
             FROM ledger_key WHERE principal = $1 AND operation = $2 AND key = $3",
            $rest
        )
    };
}

/// The record of a key as it is committed, and what the database's clock shows.
pub(crate) async fn find(wire: &Wire, scope: &Scope, key: &Key) -> Result<Option<(Stored, i64)>, LedgerError> {
    look(wire, find!(""), scope, key).await
}

/// The record of a key, which nobody else can change until the end of the transaction.
pub(crate) async fn lock(wire: &Wire, scope: &Scope, key: &Key) -> Result<Option<Stored>, LedgerError> {
    Ok(look(wire, find!(" FOR UPDATE"), scope, key).await?.map(|(stored, _)| stored))
}

async fn look(wire: &Wire, sql: &str, scope: &Scope, key: &Key) -> Result<Option<(Stored, i64)>, LedgerError> {
    let names = args![&*scope.principal => TEXT, &*scope.operation => TEXT, key.as_str() => TEXT];
    let Some(row) = wire.first(sql, names).await? else { return Ok(None) };
    let mut stored = read(&row).ok_or(CORRUPT_STATE)?;
    if let (Some(day), Some(id)) = (row.get::<_, Option<i32>>(8), row.get::<_, Option<i64>>(9)) {
        let sql = "SELECT body FROM ledger_result WHERE day = $1 AND id = $2";
        stored.body = wire.first(sql, args![day => INT4, id => INT8]).await?.map(|row| row.get(0));
    }
    Ok(Some((stored, row.get(10))))
}

fn read(row: &Row) -> Option<Stored> {
    let time = |column| WallTime::from_unix_millis(row.get(column));
    let fixed = |column: usize| row.get::<_, Option<&[u8]>>(column).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    Some(Stored {
        record: Record {
            fingerprint: fixed(0)?,
            state: state(row.get::<_, i16>(1).into(), row.get(2))?,
            expires_at: time(5),
        },
        executions: u64::try_from(row.get::<_, i16>(3)).ok()?,
        recorded_at: time(4),
        digest: fixed(6),
        body: row.get(7),
        seal,
    })
}

/// Where a result is.
pub(super) struct Kept<'a> {
    pub(super) small: Option<&'a [u8]>,
    pub(super) day: Option<i32>,
    pub(super) id: Option<i64>,
}

/// Puts a large result where it can go with its day. A small one goes with its key.
pub(super) async fn keep<'a>(wire: &Wire, body: &'a [u8], expires_ms: i64) -> Result<Kept<'a>, tokio_postgres::Error> {
    if body.len() <= SMALL {
        return Ok(Kept { small: Some(body), day: None, id: None });
    }
    let sql = "INSERT INTO ledger_result(day, body) VALUES ($1, $2) RETURNING id";
    let day = day(expires_ms);
    let row = wire.first(sql, args![day => INT4, body => BYTEA]).await?;
    Ok(Kept { small: None, day: Some(day), id: row.map(|row| row.get(0)) })
}
