//! Decides the order of things in a transaction: key, effect, record, commit, and only then an answer.

use std::panic::{self, AssertUnwindSafe};

use rusqlite::{Connection, ErrorCode};
use steady_core::idempotency::{Scope, State, Verdict, decide};

use crate::effect::{EffectTx, Job, Outcome};
use crate::error::LedgerError;
use crate::file::Db;
use crate::guard::{Inside, Speaker};
use crate::record::{self, Call, Stored};
use crate::secret::Secret;

/// A transaction that holds the write lock from its start, and rolls back unless it is committed.
pub(crate) struct Transaction<'a>(&'a Connection);

impl<'a> Transaction<'a> {
    pub(crate) fn begin(db: &'a Db) -> Result<Self, LedgerError> {
        db.conn.execute_batch("BEGIN IMMEDIATE")?;
        Ok(Self(&db.conn))
    }

    pub(crate) fn commit(self) -> Result<(), CommitFailure> {
        let committed = self.0.execute_batch("COMMIT");
        // A transaction that is still open was not committed, whatever the reason.
        committed.map_err(|error| CommitFailure { error, certain: !self.0.is_autocommit() })
    }
}

/// A commit that failed.
pub(crate) struct CommitFailure {
    error: rusqlite::Error,
    /// Whether it is certain that nothing was committed.
    certain: bool,
}

impl CommitFailure {
    /// What to say if nothing was committed: a constraint that is checked at the commit is the effect's fault.
    pub(crate) fn nothing_committed(self) -> LedgerError {
        match self.error.sqlite_error_code() {
            Some(ErrorCode::ConstraintViolation) => LedgerError::Aborted(self.error.into()),
            Some(_) | None => self.error.into(),
        }
    }

    /// What to say if there is no key to look up.
    pub(crate) fn without_key(self) -> LedgerError {
        if self.certain { self.nothing_committed() } else { LedgerError::CommitUnknown(self.error.into()) }
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

/// The bytes of an answer.
pub(crate) struct Answer {
    pub(crate) body: Vec<u8>,
    pub(crate) replayed: bool,
}

/// How a transaction ended, if nothing before its commit failed.
pub(crate) enum Ending {
    Committed(Answer),
    /// The commit failed with this. What is durable must be looked up.
    Unknown(CommitFailure),
}

/// The answer that follows from what is stored; none if the effect has to run.
pub(crate) fn settle(stored: Option<Stored>, call: &Call<'_>, secret: &Secret) -> Result<Option<Answer>, LedgerError> {
    match (decide(stored.as_ref().map(|stored| &stored.record), &call.fingerprint, call.clock.now()), stored) {
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
pub(crate) fn run_keyed(db: &Db, call: &Call<'_>, secret: &Secret, job: Job) -> Result<Ending, LedgerError> {
    let transaction = Transaction::begin(db)?;
    if let Some(answer) = settle(record::find(&db.conn, call.scope, call.key)?, call, secret)? {
        return Ok(Ending::Committed(answer));
    }
    let (state, body) = run_effect(db, job)?;
    record::insert(&db.conn, call, secret, state, &body)?;
    Ok(end(transaction, body))
}

/// Runs a call without a key, and counts it.
pub(crate) fn run_unkeyed(db: &Db, scope: &Scope, job: Job) -> Result<Ending, LedgerError> {
    let transaction = Transaction::begin(db)?;
    let (state, body) = run_effect(db, job)?;
    if state == State::Committed {
        record::count_unkeyed(&db.conn, scope)?;
    }
    Ok(end(transaction, body))
}

fn end(transaction: Transaction<'_>, body: Vec<u8>) -> Ending {
    match transaction.commit() {
        Ok(()) => Ending::Committed(Answer { body, replayed: false }),
        Err(failure) => Ending::Unknown(failure),
    }
}

/// Runs an effect inside a savepoint, so that a refusal leaves nothing of it but the refusal.
fn run_effect(db: &Db, mut job: Job) -> Result<(State, Vec<u8>), LedgerError> {
    db.conn.execute_batch("SAVEPOINT ledger_effect")?;
    let outcome = {
        let _speaking = db.guard.speak(Speaker::Effect);
        let _inside = Inside::enter();
        let mut tx = EffectTx::new(&db.conn);
        panic::catch_unwind(AssertUnwindSafe(|| job(&mut tx)))
    };
    if db.conn.is_autocommit() {
        return Err(LedgerError::TransactionLost);
    }
    if db.guard.has_denied() {
        return Err(LedgerError::Forbidden);
    }
    match outcome {
        Ok(Outcome::Commit(body)) => {
            db.conn.execute_batch("RELEASE ledger_effect")?;
            Ok((State::Committed, body))
        }
        Ok(Outcome::Reject(body)) => {
            db.conn.execute_batch("ROLLBACK TO ledger_effect; RELEASE ledger_effect")?;
            Ok((State::Rejected, body))
        }
        Ok(Outcome::Abort(cause)) => Err(LedgerError::Aborted(cause)),
        Ok(Outcome::Unencodable) => Err(LedgerError::Encoding),
        Err(_) => Err(LedgerError::Panicked),
    }
}
