//! Decides how an effect runs under its key, or without one, and what becomes of its transaction.

use std::future::{Future, poll_fn};
use std::panic::{self, AssertUnwindSafe};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use steady_core::idempotency::{Scope, State};

use super::claim::{Claim, claim, is_over};
use super::effect::{PgEffect, PgTx, Trouble};
use super::fault::{Kind, is_last_word, kind};
use super::ledger::{Inner, ran};
use super::options::Isolation;
use super::outbox;
use super::pool::Conn;
use super::record::{self, Call, Kept};
use super::statement::{Refusal, refusal};
use super::tx::{Tx, check_age, durable, now, write_time};
use super::wire::args;
use crate::error::{BoxError, LedgerError};
use crate::guard::quietly;
use crate::outbox::message::Outgoing;
use crate::record::code;
use crate::transaction::{Answer, asks_for_input};

/// What an effect came to, without its type.
pub(super) enum Ran {
    Commit(Vec<u8>),
    Reject(Vec<u8>),
    Abort(BoxError),
    Unencodable,
}

/// An effect that has run, in a transaction that is still open.
struct Effected {
    conn: Conn,
    state: State,
    body: Vec<u8>,
    outgoing: Vec<Outgoing>,
}

/// Why there is no answer.
enum Stop {
    Refused(LedgerError),
    /// Nothing is there, and it can run again.
    Again(LedgerError),
}

impl From<LedgerError> for Stop {
    fn from(error: LedgerError) -> Self {
        Self::Refused(error)
    }
}

/// What follows from an error before the commit was asked for.
fn stop(error: tokio_postgres::Error) -> Stop {
    if kind(&error) == Kind::GivenUp { Stop::Again(error.into()) } else { Stop::Refused(error.into()) }
}

/// How that was sent whose answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// In a transaction that already held the lock of its key: once that is free, the transaction is over.
    UnderLock,
    /// Together with the lock. The server may not have read it yet, and do so later: that the lock is free and nothing is
    /// there proves nothing.
    WithLock,
}

/// How long a caller waits for a call whose end nobody knows.
pub(super) const SOON: Duration = Duration::from_millis(100);
/// The longest first pause before an effect runs again, and the longest of all. In milliseconds.
const PAUSE: u64 = 10;
const LONGEST_PAUSE: u64 = 500;

pub(super) struct Runs<'a> {
    inner: &'a Inner,
}

impl<'a> Runs<'a> {
    pub(super) fn new(inner: &'a Inner) -> Self {
        Self { inner }
    }

    pub(super) async fn keyed<'e, T, F>(&self, call: &Call, effect: &mut F) -> Result<Answer, LedgerError>
    where
        T: Serialize + DeserializeOwned + Send,
        F: for<'b> FnMut(&'b mut PgTx<'e>) -> PgEffect<'b, T> + Send,
    {
        let mut left = self.inner.attempts;
        loop {
            match self.keyed_once(call, effect).await {
                Ok(answer) => return Ok(answer),
                Err(Stop::Refused(error)) => return Err(error),
                Err(Stop::Again(error)) => left = self.pause(left, error).await?,
            }
        }
    }

    pub(super) async fn unkeyed<'e, T, F>(&self, scope: &Scope, effect: &mut F) -> Result<Vec<u8>, LedgerError>
    where
        T: Serialize + DeserializeOwned + Send,
        F: for<'b> FnMut(&'b mut PgTx<'e>) -> PgEffect<'b, T> + Send,
    {
        let mut left = self.inner.attempts;
        loop {
            match self.unkeyed_once(scope, effect).await {
                Ok(body) => return Ok(body),
                Err(Stop::Refused(error)) => return Err(error),
                Err(Stop::Again(error)) => left = self.pause(left, error).await?,
            }
        }
    }

    /// Waits for a random while, so that two who disturbed each other do not do so again.
    async fn pause(&self, left: u32, error: LedgerError) -> Result<u32, LedgerError> {
        let left = left.saturating_sub(1);
        if left == 0 {
            return Err(error);
        }
        let tried = self.inner.attempts.saturating_sub(left).min(10);
        let ceiling = (PAUSE << tried).min(LONGEST_PAUSE);
        let [random]: [u8; 1] = self.inner.entropy.bytes()?;
        tokio::time::sleep(Duration::from_millis(ceiling * u64::from(random) / 255)).await;
        Ok(left)
    }

    async fn keyed_once<'e, T, F>(&self, call: &Call, effect: &mut F) -> Result<Answer, Stop>
    where
        T: Serialize + DeserializeOwned + Send,
        F: for<'b> FnMut(&'b mut PgTx<'e>) -> PgEffect<'b, T> + Send,
    {
        let inner = self.inner;
        if inner.isolation == Isolation::Serializable
            && let Some(answer) = inner.known(call).await?
        {
            return Ok(answer);
        }
        let mut conn = inner.pool.get().await?;
        let mut claimed = claim(inner, &conn, call).await;
        if claimed.as_ref().is_err_and(|error| kind(error) == Kind::Lost) {
            // The server has closed it since it was last used. Nothing is claimed.
            conn = inner.pool.anew(conn).await?;
            claimed = claim(inner, &conn, call).await;
        }
        let claim = match claimed {
            Ok(Some(claim)) => claim,
            Ok(None) => return Err(LedgerError::ForeignFile.into()),
            Err(error) => return Err(roll_back(conn, stop(error)).await),
        };
        if claim.taken || !claim.free {
            return self.taken(conn, call, &claim).await;
        }
        if let Err(error) = check_age(&call.key, claim.forgotten, inner.horizon_ms, claim.shown) {
            return Err(roll_back(conn, error.into()).await);
        }
        let effected = match self.effect(conn, Some(Vec::new()), effect).await {
            Ok(effected) => effected,
            Err(stop) => return self.unless_known(call, stop).await,
        };
        if effected.state == State::Rejected {
            if effected.conn.batch("ROLLBACK").await.is_ok() {
                effected.conn.put_back();
            }
            return self.refuse(call, &effected.body).await;
        }
        self.finish(effected, call, &claim).await
    }

    /// An effect that came to nothing may have run for nothing: its key can have got its record in the moment before it was
    /// claimed. Then that is the answer.
    async fn unless_known(&self, call: &Call, stop: Stop) -> Result<Answer, Stop> {
        let Stop::Refused(error) = stop else { return Err(stop) };
        if let LedgerError::Storage(_) = error {
            return Err(error.into());
        }
        match self.inner.known(call).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) | Err(LedgerError::Storage(_) | LedgerError::Busy { .. } | LedgerError::Closed) => {
                Err(error.into())
            }
            Err(verdict) => Err(verdict.into()),
        }
    }

    /// The key has a record, or somebody works on it.
    async fn taken(&self, conn: Conn, call: &Call, claim: &Claim) -> Result<Answer, Stop> {
        if conn.batch("ROLLBACK").await.is_ok() {
            conn.put_back();
        }
        match self.inner.known(call).await? {
            Some(answer) => Ok(answer),
            // Those who only look hold the key too, for a moment.
            None if !claim.free => Err(LedgerError::InFlight { retry_after: SOON }.into()),
            // It went in between.
            None => Err(Stop::Again(LedgerError::Busy { operation: None })),
        }
    }

    /// Runs the effect. What is no outcome rolls back.
    async fn effect<'e, T, F>(
        &self,
        conn: Conn,
        outgoing: Option<Vec<Outgoing>>,
        effect: &mut F,
    ) -> Result<Effected, Stop>
    where
        T: Serialize + DeserializeOwned + Send,
        F: for<'b> FnMut(&'b mut PgTx<'e>) -> PgEffect<'b, T> + Send,
    {
        let mut tx = PgTx::new(conn.share(), outgoing);
        let work = async { effect(&mut tx).await };
        let outcome = tokio::time::timeout(self.inner.effect_time, caught(work)).await;
        let Ok(outcome) = outcome else {
            // A statement may still run: its connection is closed, and the database ends it by itself.
            return Err(LedgerError::TimeLimit.into());
        };
        let outcome = outcome.map(ran);
        let (outgoing, Trouble { forbidden, failed }) = tx.end();
        let refusal = match (forbidden, failed) {
            (true, _) => Some(LedgerError::Forbidden.into()),
            (false, Some((Kind::Lost, text))) => return Err(LedgerError::Storage(text.into()).into()),
            (false, Some((Kind::GivenUp, _))) => Some(Stop::Again(LedgerError::Busy { operation: None })),
            (false, Some((Kind::Refused, text))) if matches!(outcome, Ok(Ran::Commit(_))) => {
                Some(LedgerError::TransactionLost(Some(text.into())).into())
            }
            (false, Some((Kind::Refused, _)) | None) => None,
        };
        if let Some(refusal) = refusal {
            quietly(|| drop(outcome));
            return Err(roll_back(conn, refusal).await);
        }
        let error = match outcome {
            Ok(Ran::Commit(body) | Ran::Reject(body)) if asks_for_input(&body) => LedgerError::NotFinal,
            Ok(Ran::Commit(body)) => return Ok(Effected { conn, state: State::Committed, body, outgoing }),
            Ok(Ran::Reject(body)) => return Ok(Effected { conn, state: State::Rejected, body, outgoing }),
            Ok(Ran::Abort(cause)) if is_cancelled(&cause) => LedgerError::TimeLimit,
            Ok(Ran::Abort(cause)) => LedgerError::Aborted(cause),
            Ok(Ran::Unencodable) => LedgerError::Encoding,
            Err(payload) => {
                quietly(|| drop(payload));
                LedgerError::Panicked
            }
        };
        Err(roll_back(conn, error.into()).await)
    }

    /// Stores the result beside the effect, and commits.
    async fn finish(&self, effected: Effected, call: &Call, claim: &Claim) -> Result<Answer, Stop> {
        let inner = self.inner;
        let Effected { conn, body, outgoing, .. } = effected;
        let (after, tick) = claim.known.look(claim.shown);
        if claim.known.is_behind(after) {
            write_time(&conn, claim.known, after).await.map_err(stop)?;
        }
        let recorded = claim.shown.max(claim.known.latest);
        let expires = recorded.saturating_add(call.retention_ms);
        let Kept { small, day, id } = record::keep(&conn, &body, expires).await.map_err(stop)?;
        let seal = record::seal(&inner.secret, &call.fingerprint, code(State::Committed), &body);
        // A key that got its record meanwhile is refused by its index. That this is no longer the transaction of the claim,
        // by a null in `executions`, which may have none. Either way the commit that goes out with it does nothing. What that
        // commit waits for is looked at last.
        let sql = concat!(
            "INSERT INTO ledger_key(principal, operation, key, fingerprint, state, executions, recorded_ms,
                                          expires_ms, result, result_day, result_id, result_digest)
                   VALUES ($1, $2, $3, $4, 2, CASE WHEN pg_current_xact_id()::text = $5 THEN 1 END, $6, $7, $8, $9, $10,
                           $11)
                   RETURNING ",
            durable!()
        );
        let values = args![
            &*call.scope.principal => TEXT, &*call.scope.operation => TEXT, call.key.as_str() => TEXT,
            &call.fingerprint[..] => BYTEA, claim.number => TEXT, recorded => INT8, expires => INT8, small => BYTEA,
            day => INT4, id => INT8, &seal[..] => BYTEA,
        ];
        let (stored, done) = if outgoing.is_empty() {
            conn.ready(sql, values).await.map_err(stop)?;
            conn.both(conn.raw().run(sql, values), conn.raw().batch("COMMIT")).await
        } else {
            // Messages name the row of their key.
            match conn.run(sql, values).await {
                Ok(rows) => {
                    if let Err(error) = outbox::enqueue(inner, &conn, call, &outgoing, tick.shown).await {
                        let again = matches!(error, LedgerError::Busy { .. });
                        return Err(roll_back(conn, if again { Stop::Again(error) } else { error.into() }).await);
                    }
                    (Ok(rows), conn.batch("COMMIT").await)
                }
                Err(error) => (Err(error), Ok(())),
            }
        };
        match (stored, done) {
            (Ok(0), Ok(())) => Err(LedgerError::Corrupt { part: "the table of keys did not take a row" }.into()),
            (Ok(_), Ok(())) => {
                inner.latest.fetch_max(after.latest, std::sync::atomic::Ordering::Relaxed);
                outbox::wake(inner, &conn, &outgoing).await;
                conn.put_back();
                inner.meters.committed.add();
                Ok(Answer { body, replayed: false })
            }
            (Err(error), _) | (Ok(_), Err(error)) if kind(&error) == Kind::Lost => {
                drop(conn);
                self.find_out(call, error, Sent::UnderLock).await.map_err(Stop::Refused)
            }
            (Err(error), _) => self.not_stored(conn, call, error).await,
            // A constraint that is checked at the commit is the effect's fault.
            (Ok(_), Err(error)) => Err(match error.code() {
                Some(code) if code.code().starts_with("23") => LedgerError::Aborted(error.into()).into(),
                _ => stop(error),
            }),
        }
    }

    /// The row of the key was refused, and with it all that its effect did.
    async fn not_stored(&self, conn: Conn, call: &Call, error: tokio_postgres::Error) -> Result<Answer, Stop> {
        if kind(&error) == Kind::GivenUp {
            return Err(roll_back(conn, stop(error)).await);
        }
        if refusal(&error) == Some(Refusal::Taken) {
            // Somebody else's came in between: that is the answer, or there is none any more.
            let gone = roll_back(conn, Stop::Again(LedgerError::Busy { operation: None })).await;
            return self.inner.known(call).await?.ok_or(gone);
        }
        let lost = LedgerError::TransactionLost(Some(error.into()));
        Err(roll_back(conn, lost.into()).await)
    }

    /// Stores a refusal, of which nothing else is kept.
    async fn refuse(&self, call: &Call, body: &[u8]) -> Result<Answer, Stop> {
        let inner = self.inner;
        let conn = inner.pool.get().await?;
        let sql = concat!(
            "WITH held AS MATERIALIZED (
                 SELECT pg_try_advisory_xact_lock($2) AS free, ",
            durable!(),
            ", greatest((SELECT latest_ms FROM ledger_meta), ",
            now!(),
            ") AS now)
             INSERT INTO ledger_key(principal, operation, key, fingerprint, state, executions, recorded_ms, expires_ms,
                                    result, result_digest)
             SELECT $3, $4, $5, $6, 3, 0, now, now + $7, $8, $9 FROM held WHERE free ON CONFLICT DO NOTHING RETURNING 1"
        );
        let seal = record::seal(&inner.secret, &call.fingerprint, code(State::Rejected), body);
        let clock = inner.clock_ms();
        let values = args![
            clock => INT8, call.lock => INT8, &*call.scope.principal => TEXT, &*call.scope.operation => TEXT,
            call.key.as_str() => TEXT, &call.fingerprint[..] => BYTEA, call.retention_ms => INT8, body => BYTEA,
            &seal[..] => BYTEA,
        ];
        match conn.rows(sql, values).await {
            Ok(rows) => {
                conn.put_back();
                if rows.is_empty() {
                    // Somebody else was faster: that is the answer, or will be.
                    let soon = Stop::Again(LedgerError::InFlight { retry_after: SOON });
                    return inner.known(call).await?.ok_or(soon);
                }
                Ok(Answer { body: body.to_vec(), replayed: false })
            }
            Err(error) if kind(&error) == Kind::Lost => {
                drop(conn);
                self.find_out(call, error, Sent::WithLock).await.map_err(Stop::Refused)
            }
            Err(error) => Err(stop(error)),
        }
    }

    /// What became of a commit whose answer is lost: what is stored under the key, once nobody works on it any more.
    pub(super) async fn find_out(
        &self,
        call: &Call,
        error: tokio_postgres::Error,
        sent: Sent,
    ) -> Result<Answer, LedgerError> {
        let inner = self.inner;
        inner.meters.looked_up.add();
        let start = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            let looked = is_over(inner, call).await;
            if let Ok(Some(there)) = looked {
                if !there {
                    let over = sent == Sent::UnderLock || is_last_word(&error);
                    let error = error.into();
                    return Err(if over { LedgerError::Storage(error) } else { LedgerError::CommitUnknown(error) });
                }
                match inner.known(call).await {
                    Ok(Some(answer)) => return Ok(answer),
                    Ok(None) | Err(LedgerError::Storage(_) | LedgerError::Busy { .. }) => {}
                    Err(refusal) => return Err(refusal),
                }
            }
            if start.elapsed() >= inner.commit_time {
                let last = looked.err().map_or_else(|| Box::new(error) as BoxError, BoxError::from);
                return Err(LedgerError::CommitUnknown(last));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Runs an effect in a transaction that goes on after it.
    pub(super) async fn inside<'e, F>(&self, tx: Tx, effect: &mut F) -> Result<Tx, LedgerError>
    where
        F: for<'b> FnMut(&'b mut PgTx<'e>) -> PgEffect<'b, ()> + Send,
    {
        let (conn, rest) = tx.split();
        match self.effect(conn, None, effect).await {
            Ok(Effected { conn, state: State::Committed, .. }) => Ok(rest.join(conn)),
            Ok(Effected { conn, .. }) => {
                rest.join(conn).roll_back().await;
                Err(LedgerError::Aborted("the effect refused".into()))
            }
            Err(Stop::Refused(error) | Stop::Again(error)) => Err(error),
        }
    }

    async fn unkeyed_once<'e, T, F>(&self, scope: &Scope, effect: &mut F) -> Result<Vec<u8>, Stop>
    where
        T: Serialize + DeserializeOwned + Send,
        F: for<'b> FnMut(&'b mut PgTx<'e>) -> PgEffect<'b, T> + Send,
    {
        let inner = self.inner;
        let tx = inner.begin_as(inner.isolation).await?;
        let (conn, rest) = tx.split();
        let Effected { conn, state, body, .. } = self.effect(conn, None, effect).await?;
        if state == State::Rejected {
            if conn.batch("ROLLBACK").await.is_ok() {
                conn.put_back();
            }
            return Ok(body);
        }
        let [lane]: [u8; 1] = inner.entropy.bytes()?;
        let sql = "INSERT INTO ledger_unkeyed(principal, operation, lane, executions) VALUES ($1, $2, $3, 1)
                   ON CONFLICT(principal, operation, lane) DO UPDATE SET executions = ledger_unkeyed.executions + 1";
        let lane = i16::from(lane % 16);
        let counted = conn.run(sql, args![&*scope.principal => TEXT, &*scope.operation => TEXT, lane => INT2]).await;
        if let Err(error) = counted {
            return Err(roll_back(conn, stop(error)).await);
        }
        match rest.join(conn).commit(inner).await {
            Ok(()) => Ok(body),
            // It was given up, so nothing of it is there.
            Err(error @ LedgerError::Busy { .. }) => Err(Stop::Again(error)),
            Err(error) => Err(error.into()),
        }
    }
}

const LAST_PAUSE: Duration = Duration::from_millis(500);

async fn roll_back(conn: Conn, why: Stop) -> Stop {
    if conn.batch("ROLLBACK").await.is_ok() {
        conn.put_back();
    }
    why
}

/// Whether an effect gave up because its statement took too long.
fn is_cancelled(cause: &BoxError) -> bool {
    use super::effect::PgSqlError;
    let error = match cause.downcast_ref::<PgSqlError>() {
        Some(PgSqlError::Database(error)) => Some(error),
        Some(PgSqlError::Forbidden) | None => cause.downcast_ref::<tokio_postgres::Error>(),
    };
    error.and_then(tokio_postgres::Error::code).is_some_and(|code| code.code() == "57014")
}

type Caught<T> = Result<T, Box<dyn std::any::Any + Send>>;

/// The same work, whose panic is an answer.
async fn caught<T>(work: impl Future<Output = T>) -> Caught<T> {
    let mut work = pin!(work);
    poll_fn(|cx| match panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Err(payload) => Poll::Ready(Err(payload)),
    })
    .await
}
