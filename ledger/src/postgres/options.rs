//! Decides what of a ledger on PostgreSQL is the deployment's choice.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::options::{Clock, Entropy, Opening};
use crate::secret::Secret;
use crate::task::TaskLimits;

/// How to open a ledger on PostgreSQL. Every field has a default:
/// `PgOptions { schema: ".. ".into(), ..PgOptions::default() }`.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct PgOptions {
    /// SQL that creates the application's own tables, so that effects can use them. It runs in one transaction at every
    /// open, one replica after another, so it must be idempotent (`CREATE TABLE IF NOT EXISTS`). Default: none.
    pub schema: Cow<'static, str>,
    /// Whether the ledger's tables are created if they are not there. Default: they are.
    pub opening: Opening,
    /// How many connections this handle and its clones use at most. More calls wait, for as long as
    /// [`busy_timeout`](Self::busy_timeout). Default: 16.
    pub connections: NonZeroU32,
    /// Whether statements are prepared once for each connection, which is faster. **Only without a pooler, or with one
    /// that knows prepared statements**: pgbouncer 1.21 or newer with `max_prepared_statements`. Default: false, which
    /// is safe with every pooler in transaction mode.
    pub prepared: bool,
    /// How long to wait for a connection, and to connect. Default: 5 s.
    pub busy_timeout: Duration,
    /// How transactions see each other: see [`Isolation`]. Default: [`Isolation::ReadCommitted`].
    pub isolation: Isolation,
    /// How often an effect runs at most whose transaction the database gave up for the sake of another one (a deadlock, a
    /// serialisation failure). Default: 5.
    pub attempts: NonZeroU32,
    /// How long an effect may take; then its transaction is rolled back. The database gives up a transaction whose program
    /// is gone or silent after twice as long. Default: 5 s.
    pub effect_time: Duration,
    /// How long it is tried to find out what became of a commit whose answer was lost. Default: 30 s.
    pub commit_time: Duration,
    /// Whether those who wait with [`PgLedger::wakes`](crate::PgLedger::wakes) are told of messages and tasks. It costs a
    /// statement after the commit. Default: true.
    pub notify: bool,
    /// As [`Options::retention`](crate::Options::retention). Default: 7 days.
    pub retention: Duration,
    /// As [`Options::key_horizon`](crate::Options::key_horizon). Default: none.
    pub key_horizon: Option<Duration>,
    /// As [`Options::min_key_len`](crate::Options::min_key_len). Default: 1.
    pub min_key_len: usize,
    /// How many messages may wait in the outbox, over all targets; an effect that leaves more is rolled back. Calls that
    /// commit at the same moment do not see each other's messages, and below half of it nobody counts for a second, so it
    /// can be exceeded by what commits at once. Default: 100,000.
    pub outbox_capacity: u32,
    /// As [`Options::secret`](crate::Options::secret). Default: 32 random bytes, kept in the database.
    pub secret: Option<Secret>,
    /// Where the ledger reads the time of its records. Default: the clock of the database, which is one for all replicas.
    pub clock: Option<Clock>,
    /// Where secrets and task ids come from. Default: the operating system.
    pub entropy: Entropy,
    /// As [`Options::max_lease`](crate::Options::max_lease). Default: 24 h.
    pub max_lease: Duration,
    /// How many tasks there may be, and how large. Default: see [`TaskLimits`].
    pub tasks: TaskLimits,
}

impl Default for PgOptions {
    fn default() -> Self {
        let few = |number: u32| NonZeroU32::MIN.saturating_add(number - 1);
        Self {
            schema: Cow::Borrowed(""),
            opening: Opening::CreateOrMigrate,
            connections: few(16),
            prepared: false,
            busy_timeout: Duration::from_secs(5),
            isolation: Isolation::ReadCommitted,
            attempts: few(5),
            effect_time: Duration::from_secs(5),
            commit_time: Duration::from_secs(30),
            notify: true,
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            key_horizon: None,
            min_key_len: 1,
            outbox_capacity: 100_000,
            secret: None,
            clock: None,
            entropy: Entropy::default(),
            max_lease: Duration::from_secs(24 * 60 * 60),
            tasks: TaskLimits::default(),
        }
    }
}

/// How the transaction of an effect sees those beside it. The key is safe in each: it is a row that only one transaction
/// can write.
///
/// What differs is the application's own rows. Where the database finds that transactions beside each other would not come
/// to what one after another would, it gives one of them up: then **nothing of it is there, and the effect runs again**, up
/// to [`PgOptions::attempts`] times, after a short random pause. So an effect must have no effect outside of its
/// transaction, in any mode: a deadlock can end one under `ReadCommitted` too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Each statement sees what is committed by then. Lock what you read before you decide by it (`FOR UPDATE`), or decide
    /// in the statement that writes.
    ReadCommitted,
    /// All statements see one moment. What was changed since cannot be written.
    RepeatableRead,
    /// As if there were no others.
    Serializable,
}

impl Isolation {
    pub(super) const fn begin(self) -> &'static str {
        match self {
            Self::ReadCommitted => "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
            Self::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
            Self::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE",
        }
    }
}
