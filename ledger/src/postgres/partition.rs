//! Decides where large results go: into a table for the day on which they expire, which then goes in whole. What finds no
//! day of its own goes to the rest, and is deleted row by row.

use std::collections::BTreeSet;
use std::time::Duration;

use super::pool::Conn;
use super::record::day;
use super::wire::{Wire, args};
use crate::error::LedgerError;
use crate::options::Clock;
use crate::time::millis;

/// How many days ahead tables are made.
const AHEAD: i32 = 32;
/// The advisory lock of those who make or drop them.
const LOCK: i64 = 0x6c65_6467_6572_0002;

/// Makes the tables of the days to come, at the opening of a ledger.
pub(super) async fn prepare(conn: &Conn, clock: Option<&Clock>, retention: Duration) -> Result<(), LedgerError> {
    let now = match clock {
        Some(clock) => clock.now().unix_millis(),
        None => {
            let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
            conn.first(sql, args![]).await?.map_or(0, |row| row.get(0))
        }
    };
    turn(conn, now, millis(retention), false).await.map(drop)
}

/// Makes the tables of the days to come, and drops those whose day is over, if that is so for certain. Returns whether it
/// could: somebody who reads for long is not waited for.
pub(super) async fn turn(wire: &Wire, now: i64, retention_ms: i64, sure: bool) -> Result<bool, LedgerError> {
    wire.batch("BEGIN; SET LOCAL lock_timeout = '500ms'").await?;
    let turned = turn_in(wire, now, retention_ms, sure).await;
    match turned {
        Ok(()) => {
            wire.batch("COMMIT").await?;
            Ok(true)
        }
        Err(LedgerError::Busy { .. }) => {
            wire.batch("ROLLBACK").await?;
            Ok(false)
        }
        Err(error) => {
            wire.batch("ROLLBACK").await?;
            Err(error)
        }
    }
}

async fn turn_in(wire: &Wire, now: i64, retention_ms: i64, sure: bool) -> Result<(), LedgerError> {
    let free = wire.first("SELECT pg_try_advisory_xact_lock($1)", args![LOCK => INT8]).await?;
    if !free.is_some_and(|row| row.get(0)) {
        return Err(LedgerError::Busy { operation: None });
    }
    let sql = "SELECT c.relname::text FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
               WHERE i.inhparent = 'ledger_result'::regclass";
    let rows = wire.rows(sql, args![]).await?;
    let days: BTreeSet<i32> =
        rows.iter().filter_map(|row| row.get::<_, &str>(0).strip_prefix("ledger_result_d")?.parse().ok()).collect();
    let today = day(now);
    let last = day(now.saturating_add(retention_ms)).saturating_add(1).min(today.saturating_add(AHEAD));
    for day in (today..=last).filter(|day| !days.contains(day)) {
        let next = day.saturating_add(1);
        // Attached, it takes only a weak lock of the others.
        let sql = format!(
            "CREATE TABLE ledger_result_d{day}(LIKE ledger_result INCLUDING DEFAULTS INCLUDING CONSTRAINTS);
             ALTER TABLE ledger_result ATTACH PARTITION ledger_result_d{day} FOR VALUES FROM ({day}) TO ({next})"
        );
        wire.batch(&sql).await?;
    }
    if sure {
        for day in days.range(..today) {
            wire.batch(&format!("DROP TABLE ledger_result_d{day}")).await?;
        }
    }
    Ok(())
}
