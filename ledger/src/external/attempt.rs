//! Decides what the sender of an outside effect may say about it, and how often.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use steady_core::idempotency::State;
use steady_core::time::WallTime;

use super::run::{self, Held, Word};
use super::store::Token;
use crate::effect::encode;
use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::record::Call;
use crate::transaction::asks_for_input;
use crate::writer::unit::{Answering, Unit};

/// The right to send one effect to another system, and the duty to say what became of it.
///
/// Send it once, with the [upstream key](Attempt::upstream_key), before the [lease](Attempt::lease_until) ends, and do
/// not wait for its answer for longer. Then say what is certain:
///
/// | certain | say |
/// |---|---|
/// | the other system did it | [`commit`](Attempt::commit) |
/// | the other system refused, for good | [`reject`](Attempt::reject) |
/// | nothing was sent | [`not_sent`](Attempt::not_sent) |
/// | nothing: a timeout, a lost connection, an answer that cannot be read | [`in_doubt`](Attempt::in_doubt) |
///
/// A report that failed can be repeated, and a repeated report changes nothing. A definite report is taken even after
/// the key is in doubt, unless somebody resolved it or another attempt took over: then it is [`LedgerError::Stale`].
/// Dropped without a word, the attempt leaves its key started; from the end of its lease on the key is in doubt.
#[must_use = "a key whose attempt says nothing ends up in doubt"]
pub struct Attempt {
    ledger: Ledger,
    call: Arc<Call>,
    token: Token,
    upstream_key: Box<str>,
    number: u32,
    lease_until: WallTime,
}

impl Attempt {
    pub(super) fn new(ledger: Ledger, call: Arc<Call>, token: Token, held: &Held) -> Self {
        let upstream_key = call.secret.upstream_key(&call.scope, &call.key);
        Self { ledger, call, token, upstream_key, number: held.number, lease_until: held.lease_until }
    }

    /// The idempotency key for the other system: 40 characters of `a-z2-7`, the same for each attempt of this key. It is
    /// derived, as the keys of two callers may be equal and the other system sees only one of them.
    #[must_use]
    pub fn upstream_key(&self) -> &str {
        &self.upstream_key
    }

    /// Which attempt of the key this is, from 1. A later one means that an earlier one may have been sent.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Until when it may be sent and its answer be waited for.
    #[must_use]
    pub const fn lease_until(&self) -> WallTime {
        self.lease_until
    }

    /// Whether its lease is still running. Look at it right before sending.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.call.clock.shown() < self.lease_until
    }

    /// The other system did it, and `value` is what callers get from now on.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Stale`] if another attempt or a person has decided otherwise; [`LedgerError::NotFinal`] and
    /// [`LedgerError::Encoding`] for a value that cannot be an outcome, which leaves the attempt as it was. After any
    /// other error the report can be repeated.
    pub fn commit<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<(), LedgerError> {
        self.say(outcome(State::Committed, value)?)
    }

    /// As [`Attempt::commit`], without blocking; handed over at once, whatever becomes of the future.
    ///
    /// # Errors
    ///
    /// As [`Attempt::commit`].
    pub fn commit_async<T: Serialize + DeserializeOwned>(
        &self,
        value: &T,
    ) -> impl Future<Output = Result<(), LedgerError>> + Send + use<T> {
        self.say_async(outcome(State::Committed, value))
    }

    /// The other system refused for good, and `value` is what callers get from now on.
    ///
    /// # Errors
    ///
    /// As [`Attempt::commit`].
    pub fn reject<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<(), LedgerError> {
        self.say(outcome(State::Rejected, value)?)
    }

    /// As [`Attempt::reject`], in the way of [`Attempt::commit_async`].
    ///
    /// # Errors
    ///
    /// As [`Attempt::commit`].
    pub fn reject_async<T: Serialize + DeserializeOwned>(
        &self,
        value: &T,
    ) -> impl Future<Output = Result<(), LedgerError>> + Send + use<T> {
        self.say_async(outcome(State::Rejected, value))
    }

    /// Nobody knows what became of it. The key waits for [`Ledger::resolve`], or for a re-send that is declared safe.
    ///
    /// # Errors
    ///
    /// As [`Attempt::commit`], as far as there is no value.
    pub fn in_doubt(&self) -> Result<(), LedgerError> {
        self.say(Word::InDoubt)
    }

    /// As [`Attempt::in_doubt`], in the way of [`Attempt::commit_async`].
    ///
    /// # Errors
    ///
    /// As [`Attempt::in_doubt`].
    pub fn in_doubt_async(&self) -> impl Future<Output = Result<(), LedgerError>> + Send + use<> {
        self.say_async(Ok(Word::InDoubt))
    }

    /// Nothing of it was sent, **for certain**, and nothing will be: a retry with the same key begins anew. If it is not
    /// the first attempt, those before it leave the key in doubt.
    ///
    /// # Errors
    ///
    /// As [`Attempt::in_doubt`].
    pub fn not_sent(&self) -> Result<(), LedgerError> {
        self.say(Word::NotSent)
    }

    /// As [`Attempt::not_sent`], in the way of [`Attempt::commit_async`].
    ///
    /// # Errors
    ///
    /// As [`Attempt::in_doubt`].
    pub fn not_sent_async(&self) -> impl Future<Output = Result<(), LedgerError>> + Send + use<> {
        self.say_async(Ok(Word::NotSent))
    }

    fn say(&self, word: Word) -> Result<(), LedgerError> {
        self.ledger.inner.writer.wait(self.unit(word))
    }

    fn say_async(
        &self,
        word: Result<Word, LedgerError>,
    ) -> impl Future<Output = Result<(), LedgerError>> + Send + use<> {
        let answering = word.and_then(|word| self.ledger.inner.writer.submit(self.unit(word)));
        async move { answering?.await.unwrap_or(Err(LedgerError::Closed)) }
    }

    pub(super) fn unit(&self, word: Word) -> (Unit<()>, Answering<()>) {
        let (call, token, word) = (Arc::clone(&self.call), self.token, Arc::new(word));
        let (later, same) = (Arc::clone(&call), Arc::clone(&word));
        let operation = Arc::clone(&call);
        let (unit, answering) = Unit::new(&operation.scope.operation, move |db| run::report(db, &call, token, &word));
        (unit.look_up(move |db| run::look_up_report(db, &later, token, &same)), answering)
    }
}

/// Shows no key.
impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("scope", &self.call.scope)
            .field("number", &self.number)
            .field("lease_until", &self.lease_until)
            .finish_non_exhaustive()
    }
}

/// The bytes of an outcome.
pub(crate) fn body<T: Serialize + DeserializeOwned>(value: &T) -> Result<Vec<u8>, LedgerError> {
    let body = encode(value).ok_or(LedgerError::Encoding)?;
    if asks_for_input(&body) { Err(LedgerError::NotFinal) } else { Ok(body) }
}

fn outcome<T: Serialize + DeserializeOwned>(state: State, value: &T) -> Result<Word, LedgerError> {
    Ok(Word::Outcome(state, body(value)?))
}
