//! Decides how the messages of committed effects leave: each after its commit, at least once and never twice by guess,
//! in the order of its line, until it is delivered or a person gives it up.
//!
//! What is sent is durably "being sent" before. So a message that is pending after a crash was never sent, and one that
//! was being sent may have been: that one goes out again only to a target that is declared to recognise it.

pub(crate) mod machine;
pub(crate) mod message;
mod run;
pub(crate) mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use steady_core::backoff::{Backoff, SmallRng};
use steady_core::id::Attempt;
use steady_core::idempotency::{Key, Scope};
use steady_core::time::WallTime;

pub use message::{EnqueueError, Message};

use crate::audit::By;
use crate::error::LedgerError;
use crate::external::Upstream;
use crate::ledger::Ledger;
use crate::time::millis;
use crate::writer::unit::{Answering, Unit};
use machine::{Phase, Sender, Terms, Word};
use run::{Claimed, Decision, Place, Side};

/// How many messages one claim hands out, at most. Each can have a payload of 64 KiB.
pub(crate) const MAX_CLAIM: u32 = 256;
/// How much of a reason is kept, in bytes.
const MAX_REASON: usize = 1024;
/// From here on the pause no longer grows, whatever its base.
pub(crate) const LAST_DOUBLING: u32 = 64;

/// A system that messages are delivered to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Target {
    /// Its name, as in [`Message::target`].
    pub name: Box<str>,
    /// What it does with a message that it has seen. Default: nobody knows, so nothing is sent twice by guess.
    pub upstream: Upstream,
    /// The pauses between attempts, each drawn between zero and its ceiling. Default: from 1 s, up to 5 minutes.
    pub backoff: Backoff,
    /// How often a message is sent before it is dead. Default: 10.
    pub attempts: NonZeroU16,
}

impl Target {
    /// The target of this name, of which nothing is known.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>) -> Self {
        Self {
            name: name.into(),
            upstream: Upstream::Unknown,
            backoff: Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(300) },
            attempts: NonZeroU16::MIN.saturating_add(9),
        }
    }

    /// The same target, which does this with what it has seen.
    #[must_use]
    pub fn upstream(self, upstream: Upstream) -> Self {
        Self { upstream, ..self }
    }
}

/// The messages to one target, for a relay and for the people who look after it. Clones are the same.
///
/// A message that is dead or in doubt holds back those after it with its ordering key, and no others.
#[derive(Clone)]
pub struct Outbox {
    ledger: Ledger,
    target: Arc<Target>,
}

/// Which message of which key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MessageId {
    /// Who called what.
    pub scope: Scope,
    /// The business key.
    pub key: Key,
    /// Its place among the messages of the key, from 0.
    pub ordinal: u32,
}

/// A message that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// Which one.
    pub id: MessageId,
    /// The idempotency key that the target got.
    pub upstream_key: Box<str>,
    /// What waits behind it.
    pub ordering_key: Option<Box<str>>,
    /// Whether it may have been delivered. Else it was not: it is dead.
    pub in_doubt: bool,
    /// How often it was sent.
    pub attempts: u32,
    /// When it was last sent, or left, if it never was.
    pub last_sent_at: WallTime,
    /// Why it is stuck, as its last sender or the ledger said.
    pub reason: Box<str>,
}

/// What a relay says about a message that it was given.
///
/// A reason is kept up to 1024 bytes, and is shown to the people who look after the outbox: no payload belongs into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report<'a> {
    /// The target took it. Its payload is removed.
    Delivered,
    /// The target did not take it, **for certain**, but may later: a refused connection, "too many requests". It goes
    /// out again after a pause, or is dead if it has no attempts left.
    Retry {
        /// Why.
        reason: &'a str,
    },
    /// The target will never take it. It is dead.
    Reject {
        /// Why.
        reason: &'a str,
    },
    /// Nobody knows whether the target took it: a timeout, a lost connection. It goes out again only to a target that
    /// recognises it.
    InDoubt {
        /// Why.
        reason: &'a str,
    },
    /// Nothing of it was sent, **for certain**. It can be claimed again at once.
    NotSent,
}

impl Report<'_> {
    pub(crate) fn word(self) -> Word {
        let kept = |reason: &str| {
            let fits = |(at, char): &(usize, char)| at + char.len_utf8() <= MAX_REASON;
            reason.char_indices().take_while(fits).map(|(_, char)| char).collect::<String>().into()
        };
        match self {
            Self::Delivered => Word::Delivered,
            Self::Retry { reason } => Word::Retry(kept(reason)),
            Self::Reject { reason } => Word::Reject(kept(reason)),
            Self::InDoubt { reason } => Word::InDoubt(kept(reason)),
            Self::NotSent => Word::NotSent,
        }
    }
}

impl Ledger {
    /// The messages to a target.
    #[must_use]
    pub fn outbox(&self, target: Target) -> Outbox {
        Outbox { ledger: self.clone(), target: Arc::new(target) }
    }
}

impl Outbox {
    /// Takes up to `max` messages (256 at most) that are due, to send each within `lease`, which is cut to
    /// [`Options::max_lease`](crate::Options::max_lease). That they are being sent is durable before this returns.
    ///
    /// A lease ends with the deadline of its message. Messages whose lease is over without a word are found here: see
    /// [`Report::InDoubt`].
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading and writing can fail.
    pub fn claim(&self, max: u32, lease: Duration) -> Result<Vec<Delivery>, LedgerError> {
        let (unit, sender) = self.claiming(max, lease)?;
        let claimed = self.ledger.inner.writer.wait(unit)?;
        Ok(self.deliveries(claimed, sender))
    }

    /// As [`Outbox::claim`], without blocking. Handed over at once; if the future is dropped, what was claimed is found
    /// once its lease is over.
    ///
    /// # Errors
    ///
    /// As [`Outbox::claim`].
    pub fn claim_async(
        &self,
        max: u32,
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<Delivery>, LedgerError>> + Send + use<> {
        let outbox = self.clone();
        let claiming = self.claiming(max, lease).and_then(|(unit, token)| {
            let answering = outbox.ledger.inner.writer.submit(unit)?;
            Ok((answering, token))
        });
        async move {
            let (answering, token) = claiming?;
            let claimed = answering.await.unwrap_or(Err(LedgerError::Closed))?;
            Ok(outbox.deliveries(claimed, token))
        }
    }

    /// Messages that are dead or in doubt, at most `limit` of them, the oldest first.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading can fail.
    pub fn stuck(&self, limit: u32) -> Result<Vec<Stuck>, LedgerError> {
        let found = self.ledger.inner.reader.with(|db| store::stuck(&db.conn, &self.target.name, limit))?;
        let listed = found.into_iter().map(|placed| {
            let store::Placed { scope, key, ordinal, ordering_key, message, .. } = placed;
            Stuck {
                upstream_key: self.ledger.inner.secret.message_key(&scope, &key, ordinal),
                id: MessageId { scope, key, ordinal },
                ordering_key,
                in_doubt: message.phase == Phase::InDoubt,
                attempts: message.attempts,
                last_sent_at: WallTime::from_unix_millis(message.sent),
                reason: message.reason.unwrap_or_default(),
            }
        });
        Ok(listed.collect())
    }

    /// Sends a message that is dead or in doubt again, with all its attempts and this deadline, and writes down that
    /// `actor` wanted it and why. **Of one in doubt, the target may get a second copy.**
    ///
    /// # Errors
    ///
    /// [`LedgerError::NotStuck`] if it is neither; [`LedgerError::TooLarge`] for an `actor` of more than 255 bytes or a
    /// `note` of more than 4096.
    pub fn requeue(
        &self,
        id: &MessageId,
        deadline: Option<WallTime>,
        actor: &str,
        note: &str,
    ) -> Result<(), LedgerError> {
        let decision = Decision::Requeue { deadline: deadline.map(WallTime::unix_millis) };
        self.ledger.inner.writer.wait(self.deciding(id, decision, actor, note)?)
    }

    /// Gives up a message that is pending, dead or in doubt, or that was found to have arrived: its payload is removed,
    /// and the next one with its ordering key goes on. Writes down that `actor` wanted it and why.
    ///
    /// # Errors
    ///
    /// As [`Outbox::requeue`].
    pub fn skip(&self, id: &MessageId, actor: &str, note: &str) -> Result<(), LedgerError> {
        self.ledger.inner.writer.wait(self.deciding(id, Decision::Skip, actor, note)?)
    }

    fn deciding(
        &self,
        id: &MessageId,
        decision: Decision,
        actor: &str,
        note: &str,
    ) -> Result<(Unit<()>, Answering<()>), LedgerError> {
        By { actor, note }.check()?;
        let (actor, note): (Box<str>, Box<str>) = (actor.into(), note.into());
        let shared = Arc::new((self.side(), id.place(), decision));
        let later = Arc::clone(&shared);
        let (unit, answering) = Unit::new("outbox", move |db| {
            run::decide(db, &shared.0, &shared.1, &shared.2, By { actor: &actor, note: &note })
        });
        let unit = unit.look_up(move |db| run::look_up_decide(db, &later.0, &later.1, &later.2));
        Ok((unit, answering))
    }

    fn side(&self) -> Side {
        let Target { name, upstream, backoff, attempts } = &*self.target;
        Side {
            target: name.clone(),
            terms: Terms { upstream: *upstream, attempts: attempts.get().into() },
            longest_pause: millis(backoff.cap),
            clock: self.ledger.inner.clock.clone(),
        }
    }

    fn claiming(&self, max: u32, lease: Duration) -> Result<(Claiming, [u8; 16]), LedgerError> {
        let token = self.ledger.inner.entropy.bytes()?;
        let side = Arc::new(self.side());
        let later = Arc::clone(&side);
        let (max, lease) = (max.min(MAX_CLAIM), self.ledger.lease(lease));
        let (unit, answering) = Unit::new("outbox", move |db| run::claim(db, &side, token, max, millis(lease)));
        Ok(((unit.look_up(move |db| run::look_up_claim(db, &later, token)), answering), token))
    }

    fn deliveries(&self, claimed: Vec<Claimed>, token: [u8; 16]) -> Vec<Delivery> {
        let delivery = |Claimed { placed, payload }| {
            let store::Placed { scope, key, ordinal, ordering_key, message, .. } = placed;
            let lease_until = WallTime::from_unix_millis(message.sent.saturating_add(message.lease));
            Delivery {
                outbox: self.clone(),
                upstream_key: self.ledger.inner.secret.message_key(&scope, &key, ordinal),
                id: MessageId { scope, key, ordinal },
                ordering_key,
                payload,
                sender: Sender { token, attempt: message.attempts },
                lease_until,
            }
        };
        claimed.into_iter().map(delivery).collect()
    }
}

type Claiming = (Unit<Vec<Claimed>>, Answering<Vec<Claimed>>);

impl MessageId {
    fn place(&self) -> Place {
        Place { scope: self.scope.clone(), key: self.key.clone(), ordinal: self.ordinal }
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("target", &self.target).finish_non_exhaustive()
    }
}

/// One message that is to be sent, once, before its lease ends, and then reported on.
///
/// A report that failed can be repeated, and a repeated report changes nothing. A late one counts unless the message was
/// claimed again, or a person decided about it: then it is [`LedgerError::Stale`], as it is for a message that was
/// delivered and cleared away. Dropped without a report, the message is found once its lease is over.
#[must_use = "a message without a report goes out again, or ends up in doubt"]
pub struct Delivery {
    outbox: Outbox,
    id: MessageId,
    upstream_key: Box<str>,
    ordering_key: Option<Box<str>>,
    payload: Vec<u8>,
    sender: Sender,
    lease_until: WallTime,
}

impl Delivery {
    /// Which message it is.
    #[must_use]
    pub const fn id(&self) -> &MessageId {
        &self.id
    }

    /// The idempotency key for the target: 40 characters of `a-z2-7`, the same for each attempt of this message.
    #[must_use]
    pub fn upstream_key(&self) -> &str {
        &self.upstream_key
    }

    /// Its ordering key.
    #[must_use]
    pub fn ordering_key(&self) -> Option<&str> {
        self.ordering_key.as_deref()
    }

    /// What it says.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.sender.attempt
    }

    /// Until when it may be sent and its answer be waited for. Never later than its deadline.
    #[must_use]
    pub const fn lease_until(&self) -> WallTime {
        self.lease_until
    }

    /// Whether its lease is still running. Look at it right before sending.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.outbox.ledger.inner.clock.shown() < self.lease_until
    }

    /// Says what became of it.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Stale`] if it is somebody else's by now; else as far as reading and writing can fail.
    pub fn report(&self, report: Report<'_>) -> Result<(), LedgerError> {
        self.outbox.ledger.inner.writer.wait(self.unit(report)?)
    }

    /// As [`Delivery::report`], without blocking; handed over at once, whatever becomes of the future.
    ///
    /// # Errors
    ///
    /// As [`Delivery::report`].
    pub fn report_async(&self, report: Report<'_>) -> impl Future<Output = Result<(), LedgerError>> + Send + use<> {
        let answering = self.unit(report).and_then(|unit| self.outbox.ledger.inner.writer.submit(unit));
        async move { answering?.await.unwrap_or(Err(LedgerError::Closed)) }
    }

    fn unit(&self, report: Report<'_>) -> Result<(Unit<()>, Answering<()>), LedgerError> {
        let sender = self.sender;
        let pause = self.pause()?;
        let shared = Arc::new((self.outbox.side(), self.id.place(), report.word()));
        let later = Arc::clone(&shared);
        let (unit, answering) =
            Unit::new("outbox", move |db| run::report(db, &shared.0, &shared.1, sender, &shared.2, pause));
        let unit = unit.look_up(move |db| run::look_up_report(db, &later.0, &later.1, sender, &later.2));
        Ok((unit, answering))
    }

    /// The pause after this attempt, in milliseconds.
    fn pause(&self) -> Result<i64, LedgerError> {
        let mut jitter = SmallRng::from_entropy(self.outbox.ledger.inner.entropy.bytes()?);
        let attempt = (1..self.sender.attempt.min(LAST_DOUBLING)).fold(Attempt::FIRST, |attempt, _| attempt.next());
        Ok(millis(self.outbox.target.backoff.delay_from(attempt, &mut jitter)))
    }
}

/// Shows neither key nor payload.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("target", &self.outbox.target.name)
            .field("scope", &self.id.scope)
            .field("ordinal", &self.id.ordinal)
            .field("attempt", &self.sender.attempt)
            .field("lease_until", &self.lease_until)
            .finish_non_exhaustive()
    }
}
