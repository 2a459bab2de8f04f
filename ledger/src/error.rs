//! Decides what a caller learns when a call has no answer: whose fault it is, and what is certain about the effect.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use steady_core::idempotency::CanonicalError;
use thiserror::Error;

/// An error of any type, as it comes out of an effect.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a ledger has no answer. No message holds a key, an argument, a secret or a result.
///
/// Unless a variant says otherwise, this call had no effect, and a retry with the same key is safe.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LedgerError {
    // The call's fault.
    /// The arguments have no canonical form.
    #[error("the arguments cannot be compared with those of a retry: {0}")]
    InvalidArguments(CanonicalError),
    /// The key already belongs to other arguments, to another version of the operation, or to a task while this call is
    /// none, or the other way round.
    #[error("the idempotency key belongs to another call: repeat the first call unchanged, or choose a new key")]
    Mismatch,
    /// The key ran, and its result is past its retention. It never runs again.
    #[error(
        "the call ran earlier, but its result is no longer kept: look up its outcome, and use a new key for new work"
    )]
    ResultExpired,
    /// The stored result is intact, but is not of the type that was asked for.
    #[error("the stored result has another type: ask for the type that the operation's first run returned")]
    ResultType,

    /// The key is shorter than [`Options::min_key_len`](crate::Options::min_key_len).
    #[error("the idempotency key has less than {min} bytes: choose one that nobody else chooses")]
    InvalidKey {
        /// How many bytes it has to have.
        min: usize,
    },
    /// The key is not on record and carries a time beyond [`Options::key_horizon`](crate::Options::key_horizon). **It may
    /// have run, so long ago that nothing is known of it any more.** It does not run now.
    #[error(
        "the idempotency key carries a time that is too long ago: look up what it was for, and use a new key for new work"
    )]
    KeyTooOld,
    /// A text or a payload is larger than what is stored.
    #[error("the {part} is larger than {limit} bytes: make it shorter")]
    TooLarge {
        /// What is too large.
        part: &'static str,
        /// How many bytes it may have.
        limit: usize,
    },

    // Nobody's fault: the effect belongs to another call.
    /// Another call holds the key.
    #[error("another call with this idempotency key is under way: retry in {} ms with the same key", .retry_after.as_millis())]
    InFlight {
        /// How long until that call's lease ends.
        retry_after: Duration,
    },
    /// An earlier call with this key may have had its effect. It is not run again.
    #[error(
        "an earlier call with this idempotency key may have run: reconcile it before anything else, do not use a new key"
    )]
    InDoubt,

    /// The attempt has no say in its key any more: another attempt took over, or somebody resolved it otherwise.
    #[error("another attempt or a person has decided about this key: read what is stored under it")]
    Stale,
    /// The key is not in doubt.
    #[error("the key is not in doubt, so there is nothing to resolve: read what is stored under it")]
    NotInDoubt,

    /// The message is neither dead nor in doubt.
    #[error("the message does not wait for anybody's decision: list those that do")]
    NotStuck,

    // The effect's fault. It is rolled back.
    /// The effect gave up.
    #[error("the operation failed and was rolled back: retry with the same key once its cause is gone")]
    Aborted(#[source] BoxError),
    /// The effect panicked.
    #[error("the operation panicked and was rolled back: fix it, then retry with the same key")]
    Panicked,
    /// The effect tried something that only the ledger may do: to end its transaction, change the schema or settings,
    /// or touch the ledger's own tables. Or the schema option names one of those.
    #[error(
        "SQL of the application used what is the ledger's alone, and was rolled back: let an effect only read and write \
         its own rows, and let the schema option only define tables of its own"
    )]
    Forbidden,
    /// A statement of the effect made SQLite end the transaction, as `INSERT OR ROLLBACK` or a full disk does. The source
    /// is what SQLite said then, if it is known.
    #[error(
        "a statement of the operation ended its transaction, so nothing was kept: see the source; replace OR ROLLBACK by \
         OR ABORT if it has that"
    )]
    TransactionLost(#[source] Option<BoxError>),
    /// The effect's SQL ran for longer than [`Options::effect_time`](crate::Options::effect_time).
    #[error(
        "the operation's SQL ran for longer than its limit and was rolled back: make it shorter, or raise the limit"
    )]
    TimeLimit,
    /// The result asks the caller for input. Such a result is never an outcome (rule I5).
    #[error(
        "the operation returned an input_required result, which is not an outcome: ask before the ledger is called"
    )]
    NotFinal,
    /// The result does not survive being encoded as JSON and decoded again.
    #[error(
        "the operation's result does not round-trip through JSON, so it was rolled back: fix its Serialize or Deserialize"
    )]
    Encoding,
    /// A ledger was called from inside an effect or a read.
    #[error("a ledger was called from inside an effect or a read: use the transaction that was passed in")]
    Reentrant,

    // The environment's fault.
    /// Other connections kept the file locked for the whole busy timeout, or an effect of this ledger keeps the writer.
    #[error("the ledger is busy{}: retry later with the same key", Blamed(.operation.as_deref()))]
    Busy {
        /// The operation whose effect holds the writer, if it is this ledger's.
        operation: Option<Box<str>>,
    },
    /// The write-ahead log is as large as [`Options::wal_limit`](crate::Options::wal_limit) allows, as somebody reads from
    /// an old snapshot.
    #[error("the ledger's log is full, as {} from an old snapshot: end that read, then retry with the same key", Readers(*.reading))]
    LogFull {
        /// How many reads of this ledger ([`Ledger::read`](crate::Ledger::read)) are under way. If there is none, it is
        /// another connection: a backup, a check, or another process.
        reading: u64,
    },
    /// As many messages as fit wait in the outbox. The effect is rolled back.
    #[error("the outbox is full: let its relays deliver, then retry with the same key")]
    OutboxFull,
    /// The commit failed, and so did finding out what became of it. **The effect may be durable.**
    #[error("whether the operation was committed is unknown: retry with the same key, or reconcile it if it had none")]
    CommitUnknown(#[source] BoxError),
    /// The ledger was closed.
    #[error("the ledger is closed: open it again")]
    Closed,
    /// The database failed in another way. The effect is rolled back.
    #[error("the ledger's database failed: see the source, then retry with the same key")]
    Storage(#[source] BoxError),

    // The file's fault.
    /// What is stored is not what was written. Nothing is answered from it.
    #[error("the ledger is corrupt: {part}; stop using the file and restore it from a backup")]
    Corrupt {
        /// The part that is damaged.
        part: &'static str,
    },
    /// The file is no ledger. It was not touched.
    #[error("the file is not a ledger: give the path of a ledger, or of a new file")]
    ForeignFile,
    /// The file was written by a newer release. It was not touched.
    #[error("the ledger has schema {found}, newer than this program's {known}: use a newer release of the program")]
    NewerSchema {
        /// The file's schema.
        found: i64,
        /// The newest schema this release knows.
        known: i64,
    },
    /// The file has an older schema, and was to be left as it is.
    #[error(
        "the ledger has schema {found}, older than this program's {known}: open it once with the program that owns it"
    )]
    OlderSchema {
        /// The file's schema.
        found: i64,
        /// The schema this release writes.
        known: i64,
    },
    /// The file was made with another secret, so no fingerprint in it could match.
    #[error("the ledger was made with another secret: configure the one that it was made with")]
    WrongSecret,
    /// The SQLite in use has a known way to lose commits.
    #[error("SQLite {version} can lose commits of a write-ahead log: use 3.51.3 or newer, such as the bundled one")]
    OldSqlite {
        /// Its version number, as in `sqlite3_libversion_number`.
        version: i32,
    },
    /// The database is a standby, which may not know yet what its primary has acknowledged.
    #[error("the database is a standby: connect to the primary, replays come from there too")]
    NotPrimary,
    /// The database can forget what it has acknowledged.
    #[error(
        "the database can lose what it has acknowledged, as {setting} is {found}: set fsync and full_page_writes to on, \
         and synchronous_commit to on or remote_apply"
    )]
    NotDurable {
        /// The setting.
        setting: Box<str>,
        /// What it is set to.
        found: Box<str>,
    },
    /// The connection would cross a network without encryption.
    #[error(
        "the connection to the database would not be encrypted: connect over TLS, or say sslmode=disable if the network \
         is trusted"
    )]
    Unencrypted,
    /// The file lies on a file system that other machines share: see
    /// [`Options::network_file_system`](crate::Options::network_file_system). It was not touched.
    #[error("the file is on a network file system ({kind}), where commits can be lost: put it on a local disk")]
    NetworkFileSystem {
        /// The type of the file system, as the system names it.
        kind: Box<str>,
    },
    /// The file cannot have a write-ahead log here.
    #[error("the database cannot use a write-ahead log (journal mode {mode}): put it on a local, writable file system")]
    NoWal {
        /// The journal mode that SQLite chose instead.
        mode: Box<str>,
    },
}

/// The operation that a message names, if there is one.
struct Blamed<'a>(Option<&'a str>);

impl fmt::Display for Blamed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |operation| write!(f, " with {operation:?}"))
    }
}

/// Who keeps the log from being emptied.
struct Readers(u64);

impl fmt::Display for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("another connection reads"),
            reading => write!(f, "one of {reading} reads of this ledger, or another connection, reads"),
        }
    }
}

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> Self {
        Self::from_sqlite(&Arc::new(error))
    }
}

impl LedgerError {
    /// Whether it is the fault of the effect alone, and nothing that the file holds has a part in it.
    pub(crate) const fn is_of_effect(&self) -> bool {
        matches!(
            self,
            Self::Aborted(_)
                | Self::Panicked
                | Self::Forbidden
                | Self::TransactionLost(_)
                | Self::TimeLimit
                | Self::NotFinal
                | Self::Encoding
        )
    }

    /// The same answer for another call that shared the transaction.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Busy { operation } => Self::Busy { operation: operation.clone() },
            Self::Corrupt { part } => Self::Corrupt { part },
            Self::LogFull { reading } => Self::LogFull { reading: *reading },
            Self::Closed => Self::Closed,
            Self::ForeignFile => Self::ForeignFile,
            Self::NewerSchema { found, known } => Self::NewerSchema { found: *found, known: *known },
            Self::OlderSchema { found, known } => Self::OlderSchema { found: *found, known: *known },
            Self::WrongSecret => Self::WrongSecret,
            Self::NotPrimary => Self::NotPrimary,
            Self::Unencrypted => Self::Unencrypted,
            Self::NotDurable { setting, found } => Self::NotDurable { setting: setting.clone(), found: found.clone() },
            Self::Storage(_)
            | Self::InvalidArguments(_)
            | Self::Mismatch
            | Self::ResultExpired
            | Self::ResultType
            | Self::InFlight { .. }
            | Self::InDoubt
            | Self::Stale
            | Self::NotInDoubt
            | Self::TooLarge { .. }
            | Self::NotStuck
            | Self::InvalidKey { .. }
            | Self::KeyTooOld
            | Self::OutboxFull
            | Self::Aborted(_)
            | Self::Panicked
            | Self::Forbidden
            | Self::TransactionLost(_)
            | Self::TimeLimit
            | Self::NotFinal
            | Self::Encoding
            | Self::Reentrant
            | Self::CommitUnknown(_)
            | Self::OldSqlite { .. }
            | Self::NetworkFileSystem { .. }
            | Self::NoWal { .. } => Self::Storage(self.chain().into()),
        }
    }

    /// The message with that of its source.
    fn chain(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }

    /// What an error of SQLite means. It is shared, as it can be the answer to many.
    pub(crate) fn from_sqlite(error: &Arc<rusqlite::Error>) -> Self {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseCorrupt, DatabaseLocked, NotADatabase};
        match error.sqlite_error_code() {
            Some(DatabaseBusy | DatabaseLocked) => Self::Busy { operation: None },
            Some(DatabaseCorrupt) => Self::Corrupt { part: "the database file is damaged" },
            Some(NotADatabase) => Self::ForeignFile,
            Some(_) | None => Self::Storage(Arc::clone(error).into()),
        }
    }
}
