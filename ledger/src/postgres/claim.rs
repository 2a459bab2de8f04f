//! Decides when a key is a call's to work on: while its transaction holds the lock of the key. The row of the key comes with
//! the result.

use super::ledger::Inner;
use super::options::Isolation;
use super::pool::Conn;
use super::record::Call;
use super::schema;
use super::tx::now;
use super::wire::args;
use crate::error::LedgerError;
use crate::time::Known;

/// What the claim of a key found.
pub(super) struct Claim {
    /// Nobody else works on the key.
    pub(super) free: bool,
    /// It had a record when this was asked, which was before the lock was had: that it had none proves nothing. Then its
    /// effect runs for nothing, and its row is refused.
    pub(super) taken: bool,
    /// The transaction.
    pub(super) number: String,
    pub(super) shown: i64,
    pub(super) known: Known,
    pub(super) forgotten: Option<i64>,
}

/// The statement of a claim, with what it takes to say that there is a record.
macro_rules! claim {
    ($taken:literal) => {
        concat!(
            "SELECT pg_try_advisory_xact_lock($2), ",
            now!(),
            ", latest_ms, ahead_ms, forgotten_ms, pg_current_xact_id()::text, ",
            $taken,
            ", set_config('statement_timeout', $3, true), set_config('idle_in_transaction_session_timeout', $4, true) \
             FROM ledger_meta WHERE schema = $8"
        )
    };
}

/// Begins a transaction and claims the key in it, in one round trip. None if the tables are those of another release.
pub(super) async fn claim(inner: &Inner, conn: &Conn, call: &Call) -> Result<Option<Claim>, tokio_postgres::Error> {
    let sql = match inner.isolation {
        Isolation::ReadCommitted | Isolation::RepeatableRead => {
            claim!("EXISTS (SELECT 1 FROM ledger_key WHERE principal = $5 AND operation = $6 AND key = $7)")
        }
        // To look in vain would be to depend on every call that adds a key near by: who looks does so before.
        Isolation::Serializable => claim!("$5 = $6 AND $6 = $7 AND false"),
    };
    let clock = inner.clock_ms();
    let values = args![
        clock => INT8, call.lock => INT8, inner.effect_limit => TEXT, inner.idle_limit => TEXT,
        &*call.scope.principal => TEXT, &*call.scope.operation => TEXT, call.key.as_str() => TEXT,
        schema::NEWEST => INT8,
    ];
    let (begun, row) = conn.both(conn.raw().batch(inner.isolation.begin()), conn.raw().first(sql, values)).await;
    begun?;
    Ok(row?.map(|row| Claim {
        free: row.get(0),
        shown: row.get(1),
        known: Known { latest: row.get(2), ahead: row.get(3) },
        forgotten: row.get(4),
        number: row.get(5),
        taken: row.get(6),
    }))
}

/// Whether the key has a record; none while somebody works on it, who may be the one that is asked about.
pub(super) async fn is_over(inner: &Inner, call: &Call) -> Result<Option<bool>, LedgerError> {
    let conn = inner.pool.fresh().await?;
    conn.batch(Isolation::ReadCommitted.begin()).await?;
    let free = conn.first("SELECT pg_try_advisory_xact_lock($1)", args![call.lock => INT8]).await?;
    let mut over = None;
    if free.is_some_and(|row| row.get(0)) {
        // In a statement of its own: it sees what was committed before the lock was free.
        let sql = "SELECT EXISTS (SELECT 1 FROM ledger_key WHERE principal = $1 AND operation = $2 AND key = $3)";
        let names = args![&*call.scope.principal => TEXT, &*call.scope.operation => TEXT, call.key.as_str() => TEXT];
        over = conn.first(sql, names).await?.map(|row| row.get(0));
    }
    conn.batch("ROLLBACK").await?;
    conn.put_back();
    Ok(over)
}
