//! Decides the order of things in a transaction: key, effect, record, commit, and only then an answer.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode};
use steady_core::idempotency::{Scope, State, Verdict, decide};
use steady_core::mrtr::is_final;
use steady_core::time::WallTime;

use crate::effect::{EffectTx, Job, Outcome};
use crate::error::LedgerError;
use crate::file::Db;
use crate::guard::{Inside, Speaker, quietly};
use crate::outbox::{self, message::Outgoing};
use crate::record::{self, Call, Stored};
use crate::schema;
use crate::secret::Secret;

// Each names the ledger, so that no effect can reach the compiled statement (see `guard::names_ledger`).
const BEGIN: &str = "BEGIN IMMEDIATE /* ledger_ */";
const SCHEMA: &str = "PRAGMA user_version /* ledger_ */";
const COMMIT: &str = "COMMIT /* ledger_ */";

/// A transaction that holds the write lock from its start, and rolls back unless it is committed.
pub(crate) struct Transaction<'a>(&'a Connection);

impl<'a> Transaction<'a> {
    pub(crate) fn begin(db: &'a Db) -> Result<Self, LedgerError> {
        run_statement(&db.conn, BEGIN)?;
        Ok(Self(&db.conn))
    }

    /// As [`Transaction::begin`], if the file still has the schema that this release writes: a newer one may have migrated
    /// it since it was opened.
    pub(crate) fn begin_known(db: &'a Db) -> Result<Self, LedgerError> {
        let transaction = Self::begin(db)?;
        let found = db.conn.prepare_cached(SCHEMA)?.query_row([], |row| row.get(0))?;
        let known = schema::NEWEST;
        if found == known { Ok(transaction) } else { Err(LedgerError::NewerSchema { found, known }) }
    }

    pub(crate) fn commit(self) -> Result<(), CommitFailure> {
        // A transaction that is still open was not committed, whatever the reason.
        run_statement(self.0, COMMIT)
            .map_err(|error| CommitFailure { error: Arc::new(error), certain: !self.0.is_autocommit() })
    }
}

impl Drop for Transaction<'_> {
    /// If this fails, the transaction is still there, and the lane gives up the connection.
    fn drop(&mut self) {
        if !self.0.is_autocommit() {
            drop(self.0.execute_batch("ROLLBACK"));
        }
    }
}

fn run_statement(conn: &Connection, sql: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(sql)?.execute([]).map(drop)
}

/// What can be undone of a transaction without undoing the rest.
pub(crate) struct Savepoint<'a>(&'a Connection);

impl<'a> Savepoint<'a> {
    pub(crate) fn set(db: &'a Db) -> Result<Self, LedgerError> {
        run_statement(&db.conn, "SAVEPOINT ledger_unit")?;
        Ok(Self(&db.conn))
    }

    /// Keeps or undoes what was written since. An error means that the whole transaction is gone, or has to go.
    pub(crate) fn end(self, keep: bool) -> Result<(), LedgerError> {
        if self.0.is_autocommit() {
            return Err(LedgerError::TransactionLost(None));
        }
        if !keep {
            undo_unit(self.0)?;
        }
        run_statement(self.0, "RELEASE ledger_unit")?;
        Ok(())
    }
}

/// Undoes what the current unit wrote.
pub(crate) fn undo_unit(conn: &Connection) -> rusqlite::Result<()> {
    run_statement(conn, "ROLLBACK TO ledger_unit")
}

/// A commit that failed.
pub(crate) struct CommitFailure {
    error: Arc<rusqlite::Error>,
    /// Whether it is certain that nothing was committed.
    certain: bool,
}

impl CommitFailure {
    /// One of unknown outcome.
    #[cfg(test)]
    pub(crate) fn unknown() -> Self {
        Self { error: Arc::new(rusqlite::Error::InvalidQuery), certain: false }
    }

    pub(crate) fn is_certain(&self) -> bool {
        self.certain
    }

    /// What to say if nothing was committed: a constraint that is checked at the commit is the effect's fault.
    pub(crate) fn nothing_committed(&self) -> LedgerError {
        match self.error.sqlite_error_code() {
            Some(ErrorCode::ConstraintViolation) => LedgerError::Aborted(Arc::clone(&self.error).into()),
            Some(_) | None => LedgerError::from_sqlite(&self.error),
        }
    }

    /// What to say if there is nothing to look up.
    pub(crate) fn without_look_up(&self) -> LedgerError {
        if self.certain {
            return self.nothing_committed();
        }
        LedgerError::CommitUnknown(Arc::clone(&self.error).into())
    }
}

/// The bytes of an answer.
pub(crate) struct Answer {
    pub(crate) body: Vec<u8>,
    pub(crate) replayed: bool,
}

/// The answer that follows from what is stored; none if the effect has to run.
pub(crate) fn settle(stored: Option<Stored>, call: &Call) -> Result<Option<Answer>, LedgerError> {
    settle_at(stored, &call.fingerprint, &call.secret, (call.clock.shown(), call.clock.now()))
}

/// As [`settle`], for what the clock shows, and for the time that is never before one that was sure.
pub(crate) fn settle_at(
    stored: Option<Stored>,
    fingerprint: &[u8; 32],
    secret: &Secret,
    (shown, now): (WallTime, WallTime),
) -> Result<Option<Answer>, LedgerError> {
    let record = stored.as_ref().map(|stored| stored.record);
    let now = match record.map(|record| record.state) {
        // A lease is a matter of the clock as it is.
        Some(State::Started { .. }) => shown,
        Some(State::Committed | State::Rejected | State::InDoubt | State::Expired) | None => now,
    };
    match (decide(record.as_ref(), fingerprint, now), stored) {
        (Verdict::Execute, _) => Ok(None),
        (Verdict::Replay, Some(stored)) => Ok(Some(Answer { body: stored.verified(secret)?, replayed: true })),
        (Verdict::Replay, None) => Err(LedgerError::Corrupt { part: "a record vanished" }),
        (Verdict::Mismatch, _) => Err(LedgerError::Mismatch),
        (Verdict::InFlight { retry_after }, _) => Err(LedgerError::InFlight { retry_after }),
        (Verdict::InDoubt, _) => Err(LedgerError::InDoubt),
        (Verdict::Expired, _) => Err(LedgerError::ResultExpired),
    }
}

/// Runs a keyed call, unless its record says otherwise.
pub(crate) fn run_keyed(db: &Db, call: &Call, job: &mut Job) -> Result<Answer, LedgerError> {
    if let Some(answer) = settle(record::find(&db.conn, &call.scope, &call.key)?, call)? {
        return Ok(answer);
    }
    call.check_age(&db.conn)?;
    let mut outgoing = Vec::new();
    let (state, body) = run_effect(db, job, Some(&mut outgoing))?;
    record::insert(&db.conn, call, state, &body)?;
    if state == State::Committed {
        outbox::store::enqueue(&db.conn, call, &outgoing)?;
    }
    Ok(Answer { body, replayed: false })
}

/// What became of a keyed call whose commit has an unknown outcome.
pub(crate) fn look_up(db: &Db, call: &Call) -> Result<Option<Answer>, LedgerError> {
    let stored = record::find(&db.conn, &call.scope, &call.key);
    settle(stored.map_err(|error| LedgerError::CommitUnknown(error.into()))?, call)
}

/// Runs a call without a key, and counts it.
pub(crate) fn run_unkeyed(db: &Db, scope: &Scope, job: &mut Job) -> Result<Vec<u8>, LedgerError> {
    let (state, body) = run_effect(db, job, None)?;
    if state == State::Committed {
        record::count_unkeyed(&db.conn, scope)?;
    }
    Ok(body)
}

/// Runs an effect in the savepoint of its unit, so that a refusal leaves nothing of it but the refusal. Its messages go
/// to `outgoing`; without one it may have none.
pub(crate) fn run_effect(
    db: &Db,
    job: &mut Job,
    outgoing: Option<&mut Vec<Outgoing>>,
) -> Result<(State, Vec<u8>), LedgerError> {
    let (outcome, loss) = {
        let _speaking = db.guard.speak(Speaker::Effect);
        let _limit = db.guard.limit_time();
        let _inside = Inside::enter();
        let mut tx = EffectTx::new(&db.conn, outgoing);
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| job(&mut tx)));
        (outcome, tx.into_loss())
    };
    let refusal = if db.guard.is_out_of_time() {
        Some(LedgerError::TimeLimit)
    } else if db.conn.is_autocommit() {
        Some(LedgerError::TransactionLost(loss))
    } else if db.guard.has_denied() {
        Some(LedgerError::Forbidden)
    } else {
        None
    };
    if let Some(refusal) = refusal {
        quietly(|| drop(outcome));
        return Err(refusal);
    }
    match outcome {
        Ok(Outcome::Commit(body) | Outcome::Reject(body)) if asks_for_input(&body) => Err(LedgerError::NotFinal),
        Ok(Outcome::Commit(body)) => Ok((State::Committed, body)),
        Ok(Outcome::Reject(body)) => {
            undo_unit(&db.conn)?;
            Ok((State::Rejected, body))
        }
        Ok(Outcome::Abort(cause)) => Err(LedgerError::Aborted(cause)),
        Ok(Outcome::Unencodable) => Err(LedgerError::Encoding),
        Err(payload) => {
            quietly(|| drop(payload));
            Err(LedgerError::Panicked)
        }
    }
}

/// Whether a result is one that MCP forbids to be final (rule I5). Only an object can say so.
pub(crate) fn asks_for_input(body: &[u8]) -> bool {
    body.starts_with(b"{") && str::from_utf8(body).is_ok_and(|body| !is_final(body))
}
