//! Decides how a transaction of the ledger begins, how time goes in it, and how it is found out whether it was committed
//! when the answer to its commit is lost.
//!
//! Each leaves a receipt, a random token, beside what it writes. Who has to find out inserts the same token: if that
//! conflicts, the transaction is committed; if not, it is not, **and never will be**, as its own insert would conflict.

use std::time::{Duration, Instant};

use steady_core::time::WallTime;
use tokio_postgres::Row;

use super::fault::{Kind, kind};
use super::ledger::Inner;
use super::options::Isolation;
use super::pool::Conn;
use super::schema;
use super::wire::{Arg, Wire, args};
use crate::error::LedgerError;
use crate::retention::age::carried_time;
use crate::time::{Known, Tick};
use steady_core::idempotency::Key;

/// The advisory lock of those who write down the time.
const CLOCK_LOCK: i64 = 0x6c65_6467_6572_0001;
/// The pauses between two looks at a commit that is still under way.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_millis(500);

/// What the database shows as the time, in Unix milliseconds; `$1` overrides it.
macro_rules! now {
    () => {
        "coalesce($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
    };
}
pub(super) use now;

/// Sees to it that the commit waits for the disk. Another one that shares the connection, through a pooler, may have left it
/// with another setting. To set it costs, so it is only done where it has to be; and with the last statement, since a setting
/// can change up to there.
macro_rules! durable {
    () => {
        "CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
              THEN set_config('synchronous_commit', 'on', true) END"
    };
}
pub(super) use durable;

/// A transaction that is open. Dropped, it is rolled back, and its connection closed.
pub(crate) struct Tx {
    conn: Conn,
    pub(crate) tick: Tick,
    known: Known,
    /// New keys that carry a time before this one are refused.
    forgotten: Option<i64>,
}

impl Tx {
    pub(crate) fn wire(&self) -> &Wire {
        &self.conn
    }

    pub(crate) fn shown(&self) -> WallTime {
        WallTime::from_unix_millis(self.tick.shown)
    }

    pub(crate) fn now(&self) -> WallTime {
        WallTime::from_unix_millis(self.tick.now)
    }

    pub(crate) async fn rows(&self, sql: &str, args: &[Arg<'_>]) -> Result<Vec<Row>, LedgerError> {
        Ok(self.conn.rows(sql, args).await?)
    }

    pub(crate) async fn first(&self, sql: &str, args: &[Arg<'_>]) -> Result<Option<Row>, LedgerError> {
        Ok(self.conn.first(sql, args).await?)
    }

    pub(crate) async fn run(&self, sql: &str, args: &[Arg<'_>]) -> Result<u64, LedgerError> {
        Ok(self.conn.run(sql, args).await?)
    }

    /// Changes one row, which is there and locked.
    pub(crate) async fn one(&self, part: &'static str, sql: &str, args: &[Arg<'_>]) -> Result<(), LedgerError> {
        if self.run(sql, args).await? == 1 { Ok(()) } else { Err(LedgerError::Corrupt { part }) }
    }

    /// Refuses a new key that is too old: see [`LedgerError::KeyTooOld`].
    pub(crate) fn check_age(&self, inner: &Inner, key: &Key) -> Result<(), LedgerError> {
        check_age(key, self.forgotten, inner.horizon_ms, self.tick.shown)
    }

    /// Commits if there is an answer, else rolls back.
    pub(crate) async fn end<T, E: From<LedgerError>>(self, inner: &Inner, answer: Result<T, E>) -> Result<T, E> {
        match answer {
            Ok(answer) => self.commit(inner).await.map(|()| answer).map_err(E::from),
            Err(error) => {
                self.roll_back().await;
                Err(error)
            }
        }
    }

    /// If this fails, the connection is closed, which does the same.
    pub(crate) async fn roll_back(self) {
        if self.conn.batch("ROLLBACK").await.is_ok() {
            self.conn.put_back();
        }
    }

    /// The connection apart, for an effect.
    pub(super) fn split(self) -> (Conn, Rest) {
        let Self { conn, tick, known, forgotten } = self;
        (conn, Rest { tick, known, forgotten })
    }

    pub(super) async fn commit(self, inner: &Inner) -> Result<(), LedgerError> {
        let token: [u8; 16] = inner.entropy.bytes()?;
        let sql = concat!("INSERT INTO ledger_receipt(token, at_ms) VALUES ($1, $2) RETURNING ", durable!());
        let values = args![&token[..] => BYTEA, self.tick.now => INT8];
        self.conn.ready(sql, values).await?;
        let (receipt, done) = self.conn.both(self.conn.raw().run(sql, values), self.conn.raw().batch("COMMIT")).await;
        match (receipt, done) {
            (Ok(_), Ok(())) => {
                inner.latest.store(self.known.latest, std::sync::atomic::Ordering::Relaxed);
                self.conn.put_back();
                Ok(())
            }
            // Without its receipt a transaction cannot commit.
            (Err(error), _) if kind(&error) != Kind::Lost => {
                self.roll_back().await;
                Err(error.into())
            }
            (_, Err(error)) if kind(&error) != Kind::Lost => Err(error.into()),
            (Err(error), _) | (_, Err(error)) => {
                drop(self.conn);
                inner.meters.looked_up.add();
                was_committed(inner, &token, self.tick.now, error).await
            }
        }
    }
}

/// A transaction without its connection.
pub(super) struct Rest {
    tick: Tick,
    known: Known,
    forgotten: Option<i64>,
}

impl Rest {
    pub(super) fn join(self, conn: Conn) -> Tx {
        let Self { tick, known, forgotten } = self;
        Tx { conn, tick, known, forgotten }
    }
}

/// Refuses a new key whose tombstone may be gone, or that is beyond the horizon.
pub(super) fn check_age(
    key: &Key,
    forgotten: Option<i64>,
    horizon_ms: Option<i64>,
    shown: i64,
) -> Result<(), LedgerError> {
    let Some(born) = carried_time(key) else { return Ok(()) };
    let horizon = horizon_ms.map(|horizon| shown.saturating_sub(horizon));
    let refused = forgotten.max(horizon).is_some_and(|refused| born.unix_millis() < refused);
    if refused { Err(LedgerError::KeyTooOld) } else { Ok(()) }
}

/// Finds out whether the transaction with this receipt was committed, and sees to it that it is not later.
async fn was_committed(
    inner: &Inner,
    token: &[u8; 16],
    at: i64,
    error: tokio_postgres::Error,
) -> Result<(), LedgerError> {
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    let unknown = loop {
        match fence(inner, token, at).await {
            Ok(true) => return Ok(()),
            Ok(false) => return Err(LedgerError::Storage(error.into())),
            Err(_) if start.elapsed() < inner.commit_time => {}
            Err(last) => break last,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    };
    Err(LedgerError::CommitUnknown(unknown.into()))
}

/// Whether the receipt is there. If not, this one's is from now on, so that nobody else can leave it.
///
/// It tells itself apart from the transaction's by its time, a millisecond later: the answer to the commit of a fence may be
/// lost as well, and the next look must not take it for the transaction's.
async fn fence(inner: &Inner, token: &[u8; 16], at: i64) -> Result<bool, LedgerError> {
    let conn = inner.pool.fresh().await?;
    // One that is still under way is waited for, but not for ever.
    conn.batch("BEGIN; SET LOCAL lock_timeout = '2s'; SET LOCAL synchronous_commit = on").await?;
    let sql = "INSERT INTO ledger_receipt(token, at_ms) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    conn.run(sql, args![&token[..] => BYTEA, at.saturating_add(1) => INT8]).await?;
    let sql = "SELECT at_ms FROM ledger_receipt WHERE token = $1";
    let left: Option<i64> = conn.first(sql, args![&token[..] => BYTEA]).await?.map(|row| row.get(0));
    conn.batch("COMMIT").await?;
    conn.put_back();
    Ok(left == Some(at))
}

impl Inner {
    /// Begins a transaction at this moment. The next to look at the clock also writes down what it shows.
    pub(crate) async fn begin(&self) -> Result<Tx, LedgerError> {
        self.begin_as(Isolation::ReadCommitted).await
    }

    pub(super) async fn begin_as(&self, isolation: Isolation) -> Result<Tx, LedgerError> {
        let mut conn = self.pool.get().await?;
        let sql = concat!(
            "SELECT ",
            now!(),
            ", latest_ms, ahead_ms, forgotten_ms, schema, set_config('idle_in_transaction_session_timeout', $2, true) FROM ledger_meta"
        );
        let clock = self.clock_ms();
        let values = args![clock => INT8, self.idle_limit => TEXT];
        let begin = isolation.begin();
        let mut answers = conn.both(conn.raw().batch(begin), conn.raw().first(sql, values)).await;
        if answers.0.is_err() {
            // The server has closed it since it was last used. Nothing has been done.
            conn = self.pool.anew(conn).await?;
            answers = conn.both(conn.raw().batch(begin), conn.raw().first(sql, values)).await;
        }
        answers.0?;
        let row = answers.1?.ok_or(LedgerError::ForeignFile)?;
        schema::check(row.get(4))?;
        let before = Known { latest: row.get(1), ahead: row.get(2) };
        let (after, tick) = before.look(row.get(0));
        let tx = Tx { conn, tick, known: after, forgotten: row.get(3) };
        if before.is_behind(after) {
            write_time(tx.wire(), before, after).await?;
        }
        Ok(tx)
    }

    /// What the clock of the deployment shows; none if that is the database's.
    pub(crate) fn clock_ms(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now().unix_millis())
    }
}

/// Writes down the time, unless somebody else is about to.
pub(super) async fn write_time(wire: &Wire, before: Known, after: Known) -> Result<(), tokio_postgres::Error> {
    let sql = "UPDATE ledger_meta SET latest_ms = $1, ahead_ms = $2
               WHERE id = 1 AND latest_ms = $3 AND pg_try_advisory_xact_lock($4)";
    let values = args![after.latest => INT8, after.ahead => INT8, before.latest => INT8, CLOCK_LOCK => INT8];
    wire.run(sql, values).await.map(drop)
}
