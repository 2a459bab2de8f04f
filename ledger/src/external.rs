//! Decides how an effect in another system is brought under a key: started before it is sent, and then committed,
//! rejected, or honestly in doubt.
//!
//! ```text
//!             not sent, for certain
//!          ┌──────────────────────────┐         ┌── the owner reports
//!          ▼                          │         ▼
//!      (absent) ── begin ──►  ┌───────┴─┐ ─► committed | rejected ─► expired
//!                             │ started │            ▲
//!   begin again, if the other └────┬────┘            │ the owner reports late,
//!   system is idempotent and  ▲    │ "I do not know", │ or somebody resolves it
//!   its window is open        │    ▼ or lease over   │
//!                             │ ┌──────────┐         │
//!                             └─┤ in doubt ├─────────┘
//!                               └──────────┘
//! ```
//!
//! No arrow is taken by time alone but the one into doubt. Each attempt has a random token: what comes from a sender
//! whose token was replaced or removed changes nothing.

pub(crate) mod attempt;
pub(crate) mod run;
pub(crate) mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use steady_core::idempotency::{Key, Scope, State};
use steady_core::time::WallTime;

pub use attempt::Attempt;

use crate::audit::{self, AuditEntry, By};
use crate::effect::decode;
use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::record::{self, Call};
use crate::request::Request;
use crate::time::Tick;
use crate::transaction::settle;
use crate::writer::unit::{Answering, Unit};
use run::Began;
use store::Token;

/// How an effect in another system is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct External {
    /// How long one attempt may take, from [`Ledger::begin`] to the last byte of its answer. Then it is in doubt. Cut to
    /// [`Options::max_lease`](crate::Options::max_lease).
    pub lease: Duration,
    /// What the other system does with a request that it has seen. Default: nobody knows.
    pub upstream: Upstream,
}

impl External {
    /// An effect that takes `lease` at most, in a system of which nothing is known.
    #[must_use]
    pub const fn new(lease: Duration) -> Self {
        Self { lease, upstream: Upstream::Unknown }
    }

    /// The same effect, in such a system.
    #[must_use]
    pub const fn upstream(self, upstream: Upstream) -> Self {
        Self { upstream, ..self }
    }
}

/// What another system does with a request that it has seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Upstream {
    /// It may do it again, so nothing is ever sent to it twice.
    Unknown,
    /// It does a request with the same idempotency key once for at least this long, counted from the first. A key in
    /// doubt may be sent again by the next call, if the attempt ends a minute before the window does.
    Idempotent {
        /// How long it knows the key.
        window: Duration,
    },
}

/// What is left of a window when the last re-send may still be under way, beside its lease. In milliseconds.
const MARGIN: i64 = 60 * 1000;

/// Whether another system still knows a request for as long as another one can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Open,
    /// It does, unless a time that is not confirmed was right.
    Unsure,
    Over,
}

impl Window {
    /// For a first request at `first`, a window until `until`, and an attempt that takes `lease` from now on. A clock that
    /// went back behind the first request says nothing.
    pub(crate) fn of(first: i64, until: i64, lease: i64, tick: Tick) -> Self {
        let ends = |from: i64| from.saturating_add(lease).saturating_add(MARGIN);
        if tick.shown < first || ends(tick.now) >= until {
            return Self::Over;
        }
        if ends(tick.at_latest) >= until { Self::Unsure } else { Self::Open }
    }
}

/// What a call with an outside effect comes to.
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "a call is either answered or has to be sent")]
pub enum Begun<T> {
    /// It came to its end earlier: its answer, committed or rejected, decoded from the stored bytes.
    Replayed(T),
    /// It is this caller's to send, and that is durable.
    Send(Attempt),
}

/// Shows no result.
impl<T> fmt::Debug for Begun<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replayed(_) => f.write_str("Replayed(..)"),
            Self::Send(attempt) => f.debug_tuple("Send").field(attempt).finish(),
        }
    }
}

/// What somebody found out about a key in doubt.
#[derive(Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there are two outcomes")]
pub enum Resolved<T> {
    /// The other system did it. Callers get this value.
    Committed(T),
    /// The other system did not do it and never will. Callers get this value.
    Rejected(T),
}

/// Shows no result.
impl<T> fmt::Debug for Resolved<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Committed(_) => "Committed(..)",
            Self::Rejected(_) => "Rejected(..)",
        })
    }
}

/// A key in doubt, and what to ask the other system for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InDoubt {
    /// Who called what.
    pub scope: Scope,
    /// The business key.
    pub key: Key,
    /// The idempotency key that the other system got.
    pub upstream_key: Box<str>,
    /// Since when it is in doubt.
    pub since: WallTime,
    /// How many attempts there were.
    pub attempts: u32,
    /// When the first one began; none if a release before outside effects wrote it.
    pub first_sent_at: Option<WallTime>,
}

impl Ledger {
    /// Asks for the right to send the effect of `request` to another system. Only one caller gets it; the others get
    /// its answer, or wait for it.
    ///
    /// That it was started is durable before this returns [`Begun::Send`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use steady_ledger::{Begun, External, Key, Ledger, Options, Request, Scope};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let ledger = Ledger::open(dir.path().join("shop.db"), Options::default())?;
    /// # fn pay(upstream_key: &str) -> Result<String, std::io::Error> { Ok("paid".to_owned()) }
    /// let scope = Scope::new("tenant-1", "pay");
    /// let key = Key::parse("invoice-7")?;
    /// let request = Request::new(&scope, &key, r#"{"amount":"12.00"}"#);
    /// let receipt = match ledger.begin(&request, &External::new(Duration::from_secs(30)))? {
    ///     Begun::Replayed(receipt) => receipt,
    ///     Begun::Send(attempt) => match pay(attempt.upstream_key()) {
    ///         Ok(receipt) => {
    ///             attempt.commit(&receipt)?;
    ///             receipt
    ///         }
    ///         Err(error) => {
    ///             attempt.in_doubt()?;
    ///             return Err(error.into());
    ///         }
    ///     },
    /// };
    /// assert_eq!(receipt, "paid");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LedgerError::InFlight`] while another attempt has its lease; [`LedgerError::InDoubt`] once nobody knows what
    /// became of one; else as [`Ledger::execute`].
    pub fn begin<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        external: &External,
    ) -> Result<Begun<T>, LedgerError> {
        let beginning = self.beginning(request, external)?;
        if let Some(answer) = self.known(&beginning.call)? {
            return replayed(&answer, self);
        }
        let began = self.inner.writer.wait(beginning.unit())?;
        beginning.end(self.clone(), began)
    }

    /// As [`Ledger::begin`], without blocking the thread that polls. Handed over at once; if the future is dropped, the
    /// key is in doubt once its lease is over, as nobody can tell that nothing was sent.
    ///
    /// # Errors
    ///
    /// As [`Ledger::begin`].
    pub fn begin_async<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        external: &External,
    ) -> impl Future<Output = Result<Begun<T>, LedgerError>> + Send + use<T> {
        let ledger = self.clone();
        let begun = self.beginning(request, external).and_then(|beginning| {
            let answering = ledger.inner.writer.submit(beginning.unit())?;
            Ok((beginning, answering))
        });
        async move {
            let (beginning, answering) = begun?;
            let began = answering.await.unwrap_or(Err(LedgerError::Closed))?;
            beginning.end(ledger, began)
        }
    }

    /// Gives a key in doubt the outcome that `actor` found out, and writes down who and why.
    ///
    /// # Errors
    ///
    /// [`LedgerError::NotInDoubt`] if there is nothing to resolve; [`LedgerError::InFlight`] while an attempt has its
    /// lease; [`LedgerError::TooLarge`] for an `actor` of more than 255 bytes or a `note` of more than 4096;
    /// [`LedgerError::NotFinal`] and [`LedgerError::Encoding`] for a value that cannot be an outcome.
    pub fn resolve<T: Serialize + DeserializeOwned>(
        &self,
        scope: &Scope,
        key: &Key,
        resolved: &Resolved<T>,
        actor: &str,
        note: &str,
    ) -> Result<(), LedgerError> {
        self.inner.writer.wait(self.resolving(scope, key, resolved, actor, note)?)
    }

    fn resolving<T: Serialize + DeserializeOwned>(
        &self,
        scope: &Scope,
        key: &Key,
        resolved: &Resolved<T>,
        actor: &str,
        note: &str,
    ) -> Result<(Unit<()>, Answering<()>), LedgerError> {
        By { actor, note }.check()?;
        let (state, value) = match resolved {
            Resolved::Committed(value) => (State::Committed, value),
            Resolved::Rejected(value) => (State::Rejected, value),
        };
        let body: Arc<[u8]> = attempt::body(value)?.into();
        let call = self.call_without_fingerprint(scope, key);
        let (later, same) = (call.clone(), Arc::clone(&body));
        let (actor, note): (Box<str>, Box<str>) = (actor.into(), note.into());
        let (unit, answering) = Unit::new(&scope.operation, move |db| {
            run::resolve(db, &call, state, &body, By { actor: &actor, note: &note })
        });
        Ok((unit.look_up(move |db| run::look_up_resolve(db, &later, state, &same)), answering))
    }

    /// What was decided about a key and its outbox messages out of the plain course of things: the latest 1000 entries,
    /// the oldest of them first.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading can fail.
    pub fn audit(&self, scope: &Scope, key: &Key) -> Result<Vec<AuditEntry>, LedgerError> {
        self.inner.reader.with(|db| audit::list(&db.conn, scope, key))
    }

    /// Keys that are in doubt, at most `limit` of them, those that have been so for the longest time first. Leases that
    /// are over are put in doubt before.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading and writing can fail.
    pub fn in_doubt(&self, limit: u32) -> Result<Vec<InDoubt>, LedgerError> {
        while self.sweep()? >= store::SWEEP as usize {}
        let found = self.inner.reader.with(|db| store::in_doubt(&db.conn, limit))?;
        let listed = found.into_iter().map(|found| {
            let store::Doubtful { scope, key, since, attempts, first_sent_at } = found;
            let upstream_key = self.upstream_key(&scope, &key);
            InDoubt { scope, key, upstream_key, since, attempts, first_sent_at }
        });
        Ok(listed.collect())
    }

    /// The idempotency key that another system gets for this key: see [`Attempt::upstream_key`].
    #[must_use]
    pub fn upstream_key(&self, scope: &Scope, key: &Key) -> Box<str> {
        self.inner.secret.upstream_key(scope, key)
    }

    /// Puts keys in doubt whose lease is over, a bounded number in one transaction. Returns how many.
    pub(crate) fn sweep(&self) -> Result<usize, LedgerError> {
        let clock = self.inner.clock.clone();
        self.inner.writer.wait(Unit::new("ledger", move |db| run::sweep(db, &clock)))
    }

    /// What is stored, if it is a final answer. A miss proves nothing, and neither does a lease.
    fn known(&self, call: &Call) -> Result<Option<Vec<u8>>, LedgerError> {
        let stored = self.inner.reader.with(|db| record::find(&db.conn, &call.scope, &call.key))?;
        let is_final = |stored: &record::Stored| match stored.record.state {
            State::Committed | State::Rejected | State::Expired => true,
            State::Started { .. } | State::InDoubt => false,
        };
        Ok(settle(stored.filter(is_final), call)?.map(|answer| answer.body))
    }

    fn beginning(&self, request: &Request<'_>, external: &External) -> Result<Beginning, LedgerError> {
        let external = External { lease: self.lease(external.lease), ..*external };
        Ok(Beginning { call: Arc::new(self.call(request)?), token: self.inner.entropy.bytes()?, external })
    }
}

fn replayed<T: DeserializeOwned>(body: &[u8], ledger: &Ledger) -> Result<Begun<T>, LedgerError> {
    let value = decode(body).ok_or(LedgerError::ResultType)?;
    ledger.inner.meters.replays.add();
    Ok(Begun::Replayed(value))
}

/// A call that asks for the right to send.
struct Beginning {
    call: Arc<Call>,
    token: Token,
    external: External,
}

impl Beginning {
    fn unit(&self) -> (Unit<Began>, Answering<Began>) {
        let (call, later, token, external) =
            (Arc::clone(&self.call), Arc::clone(&self.call), self.token, self.external);
        let (unit, answering) = Unit::new(&self.call.scope.operation, move |db| run::begin(db, &call, external, token));
        (unit.look_up(move |db| run::look_up_begin(db, &later, token)), answering)
    }

    fn end<T: DeserializeOwned>(self, ledger: Ledger, began: Began) -> Result<Begun<T>, LedgerError> {
        match began {
            Began::Settled(answer) => replayed(&answer.body, &ledger),
            Began::Held(held) => Ok(Begun::Send(Attempt::new(ledger, self.call, self.token, &held))),
            Began::InDoubt => Err(LedgerError::InDoubt),
        }
    }
}
