//! A ledger in a SQLite file, as the suite of `mcp-steady-ledger-conformance` asks it.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use steady_conformance::{
    Answer, Call, Effect, HORIZON, KeyState, Known, LEASE, RETENTION, START_MS, Subject, Ticket, Upstream, Word,
};
use steady_ledger::{
    Attempt, Begun, Clock, EffectError, EffectTx, Executed, Executor, External, Key, Ledger, LedgerError, Options,
    Request, Resolved, Scope, State, WallTime,
};

/// A clock that goes on when it is told to.
#[derive(Clone)]
pub(crate) struct Hands(Arc<AtomicI64>);

impl Hands {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(START_MS)))
    }

    pub(crate) fn clock(&self) -> Clock {
        let hands = self.clone();
        Clock::new(move || WallTime::from_unix_millis(hands.0.load(Ordering::Relaxed)))
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

pub(crate) fn names(call: &Call) -> (Scope, Key) {
    (Scope::new(&*call.principal, &*call.operation), Key::parse(&call.key).unwrap())
}

/// An error, in the words of the suite.
pub(crate) fn refused(error: &(impl Display + ?Sized), ledger: Option<&LedgerError>) -> Answer {
    match ledger {
        Some(LedgerError::Mismatch) => Answer::Mismatch,
        Some(LedgerError::InFlight { .. }) => Answer::InFlight,
        Some(LedgerError::InDoubt) => Answer::InDoubt,
        Some(LedgerError::ResultExpired) => Answer::Expired,
        Some(LedgerError::KeyTooOld) => Answer::TooOld,
        Some(LedgerError::Stale) => Answer::Stale,
        Some(LedgerError::NotInDoubt) => Answer::NotInDoubt,
        Some(LedgerError::Aborted(_)) => Answer::Aborted,
        Some(LedgerError::Panicked) => Answer::Panicked,
        Some(LedgerError::InvalidArguments(_)) => Answer::InvalidArguments,
        Some(_) | None => Answer::Other(error.to_string()),
    }
}

pub(crate) fn executed(executed: Result<Executed<i64>, LedgerError>) -> Answer {
    match executed {
        Ok(Executed::Fresh(value)) => Answer::Fresh(value),
        Ok(Executed::Replayed(value)) => Answer::Replayed(value),
        Err(error) => refused(&error, Some(&error)),
    }
}

pub(crate) fn done(done: Result<(), LedgerError>) -> Answer {
    done.map_or_else(|error| refused(&error, Some(&error)), |()| Answer::Done)
}

pub(crate) fn external(upstream: Upstream) -> External {
    External::new(LEASE).upstream(match upstream {
        Upstream::Unknown => steady_ledger::Upstream::Unknown,
        Upstream::Idempotent(window) => steady_ledger::Upstream::Idempotent { window },
    })
}

pub(crate) fn known(state: State, executions: u64) -> Known {
    let state = match state {
        State::Started { .. } => KeyState::Started,
        State::Committed => KeyState::Committed,
        State::Rejected => KeyState::Rejected,
        State::InDoubt => KeyState::InDoubt,
        State::Expired => KeyState::Expired,
    };
    Known { state, executions }
}

/// The subject.
pub(crate) struct Sqlite {
    dir: tempfile::TempDir,
    hands: Hands,
    ledger: Ledger,
    attempts: Vec<Attempt>,
}

impl Sqlite {
    pub(crate) fn new() -> Self {
        let (dir, hands) = (tempfile::tempdir().unwrap(), Hands::new());
        let ledger = Self::open(&dir, &hands);
        Self { dir, hands, ledger, attempts: Vec::new() }
    }

    fn open(dir: &tempfile::TempDir, hands: &Hands) -> Ledger {
        let schema = "CREATE TABLE IF NOT EXISTS effect(principal TEXT, operation TEXT, key TEXT) STRICT";
        let options = Options {
            schema: schema.into(),
            clock: hands.clock(),
            retention: RETENTION,
            key_horizon: Some(HORIZON),
            executor: Executor::Inline,
            ..Options::default()
        };
        Ledger::open(dir.path().join("shop.db"), options).unwrap()
    }
}

impl Subject for Sqlite {
    fn execute(&mut self, call: &Call, effect: Effect) -> Answer {
        let (scope, key) = names(call);
        let row = (call.principal.clone(), call.operation.clone(), call.key.clone());
        let work = move |tx: &mut EffectTx<'_>| {
            tx.execute("INSERT INTO effect VALUES (?1, ?2, ?3)", (&row.0, &row.1, &row.2))?;
            match effect {
                Effect::Commit(value) => Ok(value),
                Effect::Reject(value) => Err(EffectError::Reject(value)),
                Effect::Abort => Err(EffectError::Abort("planned".into())),
                Effect::Panic => std::panic::resume_unwind(Box::new("planned")),
            }
        };
        executed(self.ledger.execute(&Request::new(&scope, &key, &call.arguments), work))
    }

    fn begin(&mut self, call: &Call, upstream: Upstream) -> Answer {
        let (scope, key) = names(call);
        match self.ledger.begin::<i64>(&Request::new(&scope, &key, &call.arguments), &external(upstream)) {
            Ok(Begun::Replayed(value)) => Answer::Replayed(value),
            Ok(Begun::Send(attempt)) => {
                let number = attempt.number();
                self.attempts.push(attempt);
                Answer::Send(self.attempts.len() - 1, number)
            }
            Err(error) => refused(&error, Some(&error)),
        }
    }

    fn report(&mut self, ticket: Ticket, word: Word) -> Answer {
        let attempt = &self.attempts[ticket];
        done(match word {
            Word::Commit(value) => attempt.commit(&value),
            Word::Reject(value) => attempt.reject(&value),
            Word::InDoubt => attempt.in_doubt(),
            Word::NotSent => attempt.not_sent(),
        })
    }

    fn resolve(&mut self, call: &Call, committed: bool, value: i64) -> Answer {
        let (scope, key) = names(call);
        let outcome = if committed { Resolved::Committed(value) } else { Resolved::Rejected(value) };
        done(self.ledger.resolve(&scope, &key, &outcome, "operator", ""))
    }

    fn look(&mut self, call: &Call) -> Option<Known> {
        let (scope, key) = names(call);
        let found = self.ledger.reconcile(&scope, &key).unwrap();
        found.map(|found| known(found.state, found.executions))
    }

    fn rows(&mut self, call: &Call) -> u64 {
        let sql = "SELECT count(*) FROM effect WHERE principal = ?1 AND operation = ?2 AND key = ?3";
        let row = (&call.principal, &call.operation, &call.key);
        self.ledger.read(|tx| tx.query_row(sql, row, |row| row.get::<_, u32>(0))).unwrap().into()
    }

    fn advance(&mut self, by: Duration) {
        self.hands.advance(by);
    }

    fn collect(&mut self) {
        self.ledger.trust_clock("operator", "").unwrap();
        while self.ledger.collect(1000).unwrap().more {}
    }

    /// Attempts keep the handle that began them, as those of another process would.
    fn restart(&mut self) {
        self.ledger = Self::open(&self.dir, &self.hands);
    }
}
