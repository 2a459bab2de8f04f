//! Decides which tables a ledger on PostgreSQL has, and how they come there: one replica after another.

use super::options::PgOptions;
use super::pool::Conn;
use super::wire::args;
use crate::error::LedgerError;
use crate::options::{Entropy, Opening};
use crate::secret::Secret;
use crate::time::millis;

/// What each schema adds to the one before it.
const STEPS: [&str; 1] = [include_str!("schema/postgres-1.sql")];
/// The schema that this release reads and writes.
pub(crate) const NEWEST: i64 = STEPS.len() as i64;
/// The advisory lock of those who create or change tables.
const SCHEMA_LOCK: i64 = 0x6c65_6467_6572_0000;

/// Refuses the tables of another release.
pub(super) fn check(found: i64) -> Result<(), LedgerError> {
    let known = NEWEST;
    match found {
        _ if found == known => Ok(()),
        _ if found > known => Err(LedgerError::NewerSchema { found, known }),
        _ => Err(LedgerError::OlderSchema { found, known }),
    }
}

/// What the database says of itself.
pub(super) struct Found {
    pub(super) secret: Secret,
    pub(super) latest_ms: i64,
    pub(super) retention_ms: i64,
    pub(super) horizon_ms: Option<i64>,
}

/// Creates what is not there, and reads what is.
pub(super) async fn open(conn: &Conn, options: &PgOptions) -> Result<Found, LedgerError> {
    conn.batch("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit = on").await?;
    conn.run("SELECT pg_advisory_xact_lock($1)", args![SCHEMA_LOCK => INT8]).await?;
    let there = conn.first("SELECT to_regclass('ledger_meta') IS NOT NULL", args![]).await?;
    let there = there.is_some_and(|row| row.get(0));
    let creates = options.opening == Opening::CreateOrMigrate;
    if !there {
        if !creates {
            return Err(LedgerError::ForeignFile);
        }
        create(conn, options.secret.as_ref(), &options.entropy).await?;
    }
    if creates {
        keep(conn, options).await?;
        if options.schema.to_ascii_lowercase().contains("ledger_") {
            return Err(LedgerError::Forbidden);
        }
        conn.batch(&options.schema).await?;
    }
    let found = read(conn, options.secret.as_ref()).await?;
    conn.batch("COMMIT").await?;
    Ok(found)
}

async fn create(conn: &Conn, secret: Option<&Secret>, entropy: &Entropy) -> Result<(), LedgerError> {
    for step in STEPS {
        conn.batch(step).await?;
    }
    let made = match secret {
        Some(_) => None,
        None => Some(Secret::new(entropy.bytes()?)),
    };
    let check = secret.or(made.as_ref()).map(Secret::check).unwrap_or_default();
    let sql = "INSERT INTO ledger_meta(id, schema, secret, secret_check, created_ms)
               VALUES (1, $1, $2, $3, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)";
    let stored = made.as_ref().map(|secret| &secret.bytes()[..]);
    conn.run(sql, args![NEWEST => INT8, stored => BYTEA, &check[..] => BYTEA]).await?;
    Ok(())
}

/// Writes down what this program has configured, for tools beside it.
async fn keep(conn: &Conn, options: &PgOptions) -> Result<(), LedgerError> {
    let sql = "UPDATE ledger_meta SET retention_ms = $1, horizon_ms = $2
               WHERE id = 1 AND (retention_ms, horizon_ms) IS DISTINCT FROM ($1, $2)";
    let horizon = options.key_horizon.map(millis);
    conn.run(sql, args![millis(options.retention) => INT8, horizon => INT8]).await?;
    Ok(())
}

async fn read(conn: &Conn, secret: Option<&Secret>) -> Result<Found, LedgerError> {
    let sql = "SELECT schema, secret, secret_check, latest_ms, retention_ms, horizon_ms FROM ledger_meta";
    let row = conn.first(sql, args![]).await?.ok_or(LedgerError::ForeignFile)?;
    check(row.get(0))?;
    let stored = row.get::<_, Option<&[u8]>>(1).and_then(|bytes| bytes.try_into().ok()).map(Secret::new);
    let secret = secret.cloned().or(stored).ok_or(LedgerError::WrongSecret)?;
    if secret.check() != row.get::<_, &[u8]>(2) {
        return Err(LedgerError::WrongSecret);
    }
    Ok(Found { secret, latest_ms: row.get(3), retention_ms: row.get(4), horizon_ms: row.get(5) })
}
