//! Decides what of a ledger is the deployment's choice.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use steady_core::time::WallTime;

use crate::error::{BoxError, LedgerError};
use crate::secret::Secret;
use crate::task::TaskLimits;

/// How to open a ledger. Every field has a default: `Options { schema: ".. ".into(), ..Options::default() }`.
#[derive(Clone, Debug)]
pub struct Options {
    /// SQL that creates the application's own tables in the ledger's file, so that effects can use them. It runs in one
    /// transaction at every open, so it must be idempotent (`CREATE TABLE IF NOT EXISTS`). It may not end that
    /// transaction, set pragmas, or name anything `ledger_*`, not even in a comment. Default: none.
    pub schema: Cow<'static, str>,
    /// How long to wait for other connections to the file, 24 days at most. Default: 5 s.
    pub busy_timeout: Duration,
    /// How long a result is replayed. After that its key is refused, and still never runs again. Default: 7 days.
    ///
    /// This and `key_horizon` are written down in the file: under [`Opening::Existing`] what its program last configured
    /// counts instead.
    pub retention: Duration,
    /// How old a new key may be if it carries its time, as a UUID of version 7 and a ULID (in upper case) do. Older ones are
    /// refused before anything runs, and in return [`Ledger::collect`](crate::Ledger::collect) deletes their tombstones
    /// too. Other keys are not concerned. Choose it longer than any client retries. Default: none, tombstones stay for ever.
    pub key_horizon: Option<Duration>,
    /// The shortest key that is taken, in bytes. A short key is easily chosen twice. Default: 1.
    pub min_key_len: usize,
    /// How many messages may wait in the outbox, over all targets; an effect that leaves more is rolled back. Default:
    /// 100,000.
    pub outbox_capacity: u32,
    /// The key of the fingerprints. Default: 32 random bytes, made with the file and kept in it.
    pub secret: Option<Secret>,
    /// Where the ledger reads the time of its records. Default: the system's clock.
    pub clock: Clock,
    /// Where secrets and task ids come from. Default: the operating system.
    pub entropy: Entropy,
    /// What an answer survives. Default: a power cut.
    pub durability: Durability,
    /// How long the SQL of one effect or read may run: after that it is interrupted and rolled back. Rust code between
    /// statements cannot be stopped; an effect that is stuck in it turns later calls away as
    /// [`LedgerError::Busy`] after the same time, on a thread of the ledger's own: see [`Executor`]. Default: 5 s.
    pub effect_time: Duration,
    /// How large the write-ahead log may become, in bytes, and by one commit more. It grows for as long as somebody reads
    /// from one snapshot; beyond this, writes are refused as [`LedgerError::LogFull`] until that read ends. Default: 1 GiB.
    pub wal_limit: u64,
    /// The longest lease of an outside effect, a message or a task; a longer one is cut to it. What its holder is lost with
    /// stays as it is until the end of its lease: nobody can resolve it, and no other worker takes it. Default: 24 h.
    pub max_lease: Duration,
    /// Who runs what writes. Default: a thread of the ledger's own.
    pub executor: Executor,
    /// Which files are opened. Default: every ledger, and new ones are created.
    pub opening: Opening,
    /// How many tasks there may be, and how large. Default: see [`TaskLimits`].
    pub tasks: TaskLimits,
    /// Whether to take a file on a network file system, where SQLite's write-ahead log can lose commits and damage the
    /// file as soon as a second machine opens it. On Linux such a file is refused as
    /// [`LedgerError::NetworkFileSystem`]; elsewhere, and under a VFS of your own, nothing is looked at. Default: false.
    pub network_file_system: bool,
    /// The name of the SQLite VFS that the file is opened with; it must be registered. Default: SQLite's default.
    pub vfs: Option<Cow<'static, str>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: Cow::Borrowed(""),
            busy_timeout: Duration::from_secs(5),
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            key_horizon: None,
            min_key_len: 1,
            outbox_capacity: 100_000,
            secret: None,
            clock: Clock::default(),
            entropy: Entropy::default(),
            durability: Durability::Full,
            effect_time: Duration::from_secs(5),
            wal_limit: 1 << 30,
            max_lease: Duration::from_secs(24 * 60 * 60),
            executor: Executor::Thread,
            opening: Opening::CreateOrMigrate,
            tasks: TaskLimits::default(),
            network_file_system: false,
            vfs: None,
        }
    }
}

/// What an acknowledged answer survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// A crash of the process or of the machine, and a power cut: every commit is synced (`synchronous = FULL`).
    Full,
    /// A crash of the process only. **A power cut can take back what was acknowledged**: a key then looks as if it had
    /// never run, and a retry runs it again. The file stays intact (`synchronous = NORMAL`).
    ProcessCrash,
}

/// Which files are opened as ledgers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Opening {
    /// Creates a file that is not there or empty, and brings one of an older schema to the newest. Programs of an older
    /// release refuse it from then on.
    CreateOrMigrate,
    /// Only a ledger of this release's schema; nothing in it is changed. For tools beside the program that owns the file.
    Existing,
}

/// Who runs what writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Executor {
    /// A thread of the ledger's own, which gathers the calls that wait into one commit.
    Thread,
    /// The thread that calls, one call after another. Deterministic, and without group commit; an async call blocks.
    /// **Nothing turns later calls away while an effect is stuck: they wait for it, for as long as it takes.**
    Inline,
}

/// A source of random bytes.
#[derive(Clone)]
pub struct Entropy(Arc<Fill>);

type Fill = dyn Fn(&mut [u8]) -> Result<(), BoxError> + Send + Sync;

impl Entropy {
    /// A source that fills a buffer with bytes that nobody can guess.
    pub fn new(fill: impl Fn(&mut [u8]) -> Result<(), BoxError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(fill))
    }

    pub(crate) fn bytes<const N: usize>(&self) -> Result<[u8; N], LedgerError> {
        let mut bytes = [0; N];
        (self.0)(&mut bytes).map_err(LedgerError::Storage)?;
        Ok(bytes)
    }
}

/// The operating system.
impl Default for Entropy {
    fn default() -> Self {
        Self::new(|bytes| Ok(getrandom::fill(bytes)?))
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}

/// A source of wall-clock time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> WallTime + Send + Sync>);

impl Clock {
    /// A clock that asks `now`.
    pub fn new(now: impl Fn() -> WallTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> WallTime {
        (self.0)()
    }
}

/// The system's clock.
impl Default for Clock {
    fn default() -> Self {
        Self::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            WallTime::from_unix_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
        })
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
