//! Decides how relays in many replicas share the messages: each is claimed with its row locked, and rows that somebody else
//! has locked are passed by. How a message moves is decided as for a file.
//!
//! A line (messages to a target with one ordering key) has an advisory lock. Who adds to it or moves its head holds that,
//! so ids in a line are in the order of the commits.

mod relay;
mod store;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use steady_core::backoff::SmallRng;
use steady_core::id::Attempt;
use steady_core::idempotency::{Key, Scope};
use steady_core::time::WallTime;

use super::ledger::{Inner, PgLedger};
use super::options::Isolation;
use super::record::Call;
use super::wire::{Wire, args};
use crate::audit::By;
use crate::error::LedgerError;
use crate::outbox::machine::{Phase, Sender, Terms};
use crate::outbox::message::Outgoing;
use crate::outbox::{LAST_DOUBLING, MAX_CLAIM, MessageId, Report, Stuck, Target};
use crate::time::millis;
use relay::Decision;
use store::Placed;

/// The messages to one target: as [`Outbox`](crate::Outbox), over all replicas. Clones are the same.
#[derive(Clone)]
pub struct PgOutbox {
    ledger: PgLedger,
    target: Arc<Target>,
}

impl PgLedger {
    /// The messages to a target.
    #[must_use]
    pub fn outbox(&self, target: Target) -> PgOutbox {
        PgOutbox { ledger: self.clone(), target: Arc::new(target) }
    }
}

/// What a relay knows of its target.
struct Side<'a> {
    target: &'a str,
    terms: Terms,
    /// The longest pause between two attempts, in milliseconds.
    longest_pause: i64,
}

/// Which message.
type Place<'a> = (&'a Scope, &'a Key, u32);

impl PgOutbox {
    /// Takes up to `max` messages (256 at most) that are due: as [`Outbox::claim`](crate::Outbox::claim). Relays that claim
    /// at the same time get different ones, and none waits for another.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading and writing can fail. After [`LedgerError::CommitUnknown`] messages may be
    /// claimed by nobody: their lease ends by itself.
    pub async fn claim(&self, max: u32, lease: Duration) -> Result<Vec<PgDelivery>, LedgerError> {
        let inner = &*self.ledger.inner;
        let token = inner.entropy.bytes()?;
        let lease = inner.lease(lease);
        let started = Instant::now();
        let tx = inner.begin().await?;
        let claimed = relay::claim(&tx, &self.side(), token, max.min(MAX_CLAIM), millis(lease)).await;
        let claimed = tx.end(inner, claimed).await?;
        let delivery = |(placed, payload): (Placed, Vec<u8>)| {
            let Placed { scope, key, ordinal, ordering_key, message, .. } = placed;
            PgDelivery {
                outbox: self.clone(),
                upstream_key: inner.secret.message_key(&scope, &key, ordinal),
                id: MessageId { scope, key, ordinal },
                ordering_key,
                payload,
                sender: Sender { token, attempt: message.attempts },
                lease_until: WallTime::from_unix_millis(message.sent.saturating_add(message.lease)),
                live: (started, Duration::from_millis(message.lease.unsigned_abs())),
            }
        };
        Ok(claimed.into_iter().map(delivery).collect())
    }

    /// Messages that are dead or in doubt: as [`Outbox::stuck`](crate::Outbox::stuck).
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading can fail.
    pub async fn stuck(&self, limit: u32) -> Result<Vec<Stuck>, LedgerError> {
        let inner = &*self.ledger.inner;
        let conn = inner.pool.get().await?;
        let found = store::stuck(&conn, &self.target.name, limit).await?;
        conn.put_back();
        let listed = found.into_iter().map(|placed| {
            let Placed { scope, key, ordinal, ordering_key, message, .. } = placed;
            Stuck {
                upstream_key: inner.secret.message_key(&scope, &key, ordinal),
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

    /// Sends a message that is dead or in doubt again: as [`Outbox::requeue`](crate::Outbox::requeue).
    ///
    /// # Errors
    ///
    /// As [`Outbox::requeue`](crate::Outbox::requeue).
    pub async fn requeue(
        &self,
        id: &MessageId,
        deadline: Option<WallTime>,
        actor: &str,
        note: &str,
    ) -> Result<(), LedgerError> {
        let decision = Decision::Requeue { deadline: deadline.map(WallTime::unix_millis) };
        self.decide(id, &decision, By { actor, note }).await
    }

    /// Gives up a message: as [`Outbox::skip`](crate::Outbox::skip).
    ///
    /// # Errors
    ///
    /// As [`Outbox::requeue`](crate::Outbox::requeue).
    pub async fn skip(&self, id: &MessageId, actor: &str, note: &str) -> Result<(), LedgerError> {
        self.decide(id, &Decision::Skip, By { actor, note }).await
    }

    async fn decide(&self, id: &MessageId, decision: &Decision, by: By<'_>) -> Result<(), LedgerError> {
        by.check()?;
        let inner = &*self.ledger.inner;
        let tx = inner.begin().await?;
        let decided = relay::decide(&tx, &self.side(), place(id), decision, by).await;
        tx.end(inner, decided).await
    }

    fn side(&self) -> Side<'_> {
        let Target { name, upstream, backoff, attempts } = &*self.target;
        Side {
            target: name,
            terms: Terms { upstream: *upstream, attempts: attempts.get().into() },
            longest_pause: millis(backoff.cap),
        }
    }
}

fn place(id: &MessageId) -> Place<'_> {
    (&id.scope, &id.key, id.ordinal)
}

impl fmt::Debug for PgOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgOutbox").field("target", &self.target).finish_non_exhaustive()
    }
}

/// One message that is to be sent, once, before its lease ends, and then reported on: as [`Delivery`](crate::Delivery).
#[must_use = "a message without a report goes out again, or ends up in doubt"]
pub struct PgDelivery {
    outbox: PgOutbox,
    id: MessageId,
    upstream_key: Box<str>,
    ordering_key: Option<Box<str>>,
    payload: Vec<u8>,
    sender: Sender,
    lease_until: WallTime,
    live: (Instant, Duration),
}

impl PgDelivery {
    /// Which message it is.
    #[must_use]
    pub const fn id(&self) -> &MessageId {
        &self.id
    }

    /// The idempotency key for the target: as [`Delivery::upstream_key`](crate::Delivery::upstream_key).
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

    /// Until when it may be sent and its answer be waited for, by the clock of the ledger. Never later than its deadline.
    #[must_use]
    pub const fn lease_until(&self) -> WallTime {
        self.lease_until
    }

    /// Whether its lease is still running. Look at it right before sending.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.live.0.elapsed() < self.live.1
    }

    /// Says what became of it: as [`Delivery::report`](crate::Delivery::report).
    ///
    /// # Errors
    ///
    /// As [`Delivery::report`](crate::Delivery::report).
    pub async fn report(&self, report: Report<'_>) -> Result<(), LedgerError> {
        let inner = &*self.outbox.ledger.inner;
        let (pause, word) = (self.pause()?, report.word());
        let tx = inner.begin().await?;
        let told = relay::report(&tx, &self.outbox.side(), place(&self.id), (self.sender, &word), pause).await;
        tx.end(inner, told).await
    }

    /// The pause after this attempt, in milliseconds.
    fn pause(&self) -> Result<i64, LedgerError> {
        let mut jitter = SmallRng::from_entropy(self.outbox.ledger.inner.entropy.bytes()?);
        let attempt = (1..self.sender.attempt.min(LAST_DOUBLING)).fold(Attempt::FIRST, |attempt, _| attempt.next());
        Ok(millis(self.outbox.target.backoff.delay_from(attempt, &mut jitter)))
    }
}

/// Shows neither key nor payload.
impl fmt::Debug for PgDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgDelivery")
            .field("target", &self.outbox.target.name)
            .field("scope", &self.id.scope)
            .field("ordinal", &self.id.ordinal)
            .field("attempt", &self.sender.attempt)
            .finish_non_exhaustive()
    }
}

/// How long a count of the messages is good enough while there is much room. In milliseconds.
const COUNT_LASTS: i64 = 1000;

/// Writes the messages of an effect beside its outcome.
pub(super) async fn enqueue(
    inner: &Inner,
    wire: &Wire,
    call: &Call,
    outgoing: &[Outgoing],
    shown: i64,
) -> Result<(), LedgerError> {
    if outgoing.is_empty() {
        return Ok(());
    }
    make_room(inner, wire, outgoing.len(), shown).await?;
    // In one order, so that two effects do not wait for each other's lines.
    let lines: BTreeSet<_> =
        outgoing.iter().filter_map(|message| Some((&*message.target, message.ordering_key.as_deref()?))).collect();
    for (target, ordering_key) in lines {
        store::lock_line(wire, target, ordering_key).await?;
        if inner.isolation != Isolation::ReadCommitted {
            // This transaction sees the line as it was before it waited.
            store::pin_head(wire, target, ordering_key).await?;
        }
    }
    for (ordinal, message) in (0_u32..).zip(outgoing) {
        store::insert(wire, call, ordinal, message, shown).await?;
    }
    Ok(())
}

async fn make_room(inner: &Inner, wire: &Wire, more: usize, shown: i64) -> Result<(), LedgerError> {
    let capacity = inner.outbox_capacity;
    let more = u32::try_from(more).unwrap_or(u32::MAX);
    let (seen_at, seen) = (inner.outbox_seen.0.load(Ordering::Relaxed), inner.outbox_seen.1.load(Ordering::Relaxed));
    if shown.saturating_sub(seen_at).unsigned_abs() < COUNT_LASTS.unsigned_abs() && seen < capacity / 2 {
        inner.outbox_seen.1.fetch_add(more, Ordering::Relaxed);
        return Ok(());
    }
    let sql = "SELECT count(*) FROM (SELECT 1 FROM ledger_outbox WHERE state IN (1, 2, 4, 5) LIMIT $1) AS open";
    let row = wire.first(sql, args![i64::from(capacity) => INT8]).await?;
    let open = row.map_or(0, |row| u32::try_from(row.get::<_, i64>(0)).unwrap_or(u32::MAX));
    inner.outbox_seen.1.store(open.saturating_add(more), Ordering::Relaxed);
    inner.outbox_seen.0.store(shown, Ordering::Relaxed);
    if open.saturating_add(more) > capacity { Err(LedgerError::OutboxFull) } else { Ok(()) }
}

/// Tells relays that wait of these messages, which are committed. They look by themselves if this is lost.
pub(super) async fn wake(inner: &Inner, wire: &Wire, outgoing: &[Outgoing]) {
    if !inner.notify || outgoing.is_empty() {
        return;
    }
    let told = wire.run("SELECT pg_notify('ledger_outbox', '')", args![]).await;
    drop(told);
}
