//! The ledger that all servers of a world share, in two forms that give the same verdicts.
//!
//! The effect is an entry in a table of its own and a change of an account's balance, in the transaction of the key. Its
//! receipt has both numbers, so a result that changes later, or an effect that went, is seen.

mod memory;
mod sqlite;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde::{Deserialize, Serialize};
use steady_ledger::Tasks;

use super::mutant::Mutant;
pub use memory::Memory;
pub use sqlite::Sqlite;

/// The most that the business takes in one go.
pub const MOST_AMOUNT: u32 = 100;
/// The argument that tells calls apart, and is no part of what a key means.
pub(super) const ORDER: &str = "order";

/// When the worlds begin, in milliseconds since 1970.
pub(super) const EPOCH: i64 = 1_785_000_000_000;

/// The text of a key: with a horizon a UUID of version 7, which carries the time.
pub(super) fn key_text(key: u32, horizon_ms: u64) -> String {
    match horizon_ms {
        0 => format!("key-{key}"),
        _ => format!("{:08x}-{:04x}-7000-8000-{key:012}", EPOCH >> 16, EPOCH & 0xFFFF),
    }
}

/// The number in such a text; `key-3.7` is what a client that is broken on purpose makes of key 3.
pub(super) fn key_number(text: &str) -> Option<u32> {
    let number = text.strip_prefix("key-").map_or_else(|| text.rsplit('-').next(), |rest| rest.split('.').next());
    number?.parse().ok()
}

/// What the effect came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "an effect of two numbers, or a refusal")]
pub struct Receipt {
    /// Its number: 1 is the first effect in the ledger. 0 for a refusal.
    pub number: i64,
    /// The balance after it. 0 for a refusal.
    pub balance: i64,
    /// Whether the business refused.
    pub refused: bool,
}

impl Receipt {
    pub(super) const REFUSED: Self = Self { number: 0, balance: 0, refused: true };

    pub(super) const fn wrote(self) -> Wrote {
        if self.refused { Wrote::Refusal } else { Wrote::Effect }
    }
}

/// A call of the ledger.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "what a call has")]
pub struct Entry<'a> {
    /// The number of the call.
    pub order: usize,
    /// Its key, if it has one.
    pub key: Option<u32>,
    /// How much.
    pub amount: u32,
    /// The arguments as they came.
    pub arguments: &'a str,
    /// The text of the key.
    pub key_text: &'a str,
}

/// What a transaction came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a server must decide each")]
pub enum Verdict {
    /// It ran.
    Fresh(Receipt),
    /// An earlier one did.
    Replayed(Receipt),
    /// The key has other arguments.
    Mismatch,
    /// The key ran, and its result is not kept any more.
    Expired,
    /// The key carries a time beyond the horizon.
    TooOld,
    /// The process died in it.
    Died,
    /// The ledger failed.
    Failed(String),
}

/// How far a transaction gets whose process dies in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a commit is durable or it is not")]
pub enum Death {
    /// All is written, and nothing committed.
    BeforeCommit,
    /// It is committed, and nobody was told.
    AfterCommit,
}

/// What of a transaction is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an effect, a refusal, or nothing")]
pub enum Wrote {
    /// Nothing.
    Nothing,
    /// The refusal of the business, under its key.
    Refusal,
    /// The effect, and its key.
    Effect,
}

/// An effect that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a row")]
pub struct Effect {
    /// Its number.
    pub number: i64,
    /// The key it ran for.
    pub key: Option<u32>,
    /// How much.
    pub amount: u32,
}

/// One process's handle on the ledger. Dropping it is a crash of the process: what was committed is there, and nothing else.
pub trait Store: Send + Sync {
    /// Runs a call in one transaction: what it came to, and what of it is durable.
    fn execute(&self, entry: &Entry<'_>, death: Option<Death>) -> (Verdict, Wrote);

    /// Collects what may be forgotten; how much it was.
    ///
    /// # Errors
    /// What is wrong with the file, as text.
    fn collect(&self) -> Result<usize, String>;

    /// The ledger's durable tasks, if it has any.
    fn tasks(&self) -> Option<Tasks> {
        None
    }

    /// Of a ledger that is broken on purpose: whether the key is free, in a transaction of its own.
    fn is_free(&self, entry: &Entry<'_>) -> bool;

    /// Of a ledger that is broken on purpose: runs an effect whatever is known of the key.
    fn force(&self, entry: &Entry<'_>) -> (Verdict, Wrote);

    /// Of a ledger that is broken on purpose: commits what was answered before.
    fn flush(&self);
}

/// Opens handles on one ledger, one for each process.
pub trait Vault: Send + Sync {
    /// A handle for a process that starts.
    ///
    /// # Errors
    /// What is wrong with the file, as text.
    fn open(&self) -> Result<Arc<dyn Store>, String>;

    /// All effects that are durable, in their order.
    ///
    /// # Errors
    /// What is wrong with the file, as text.
    fn effects(&self) -> Result<Vec<Effect>, String>;
}

/// The wall clock of all servers, in milliseconds since 1970.
#[derive(Clone, Debug)]
pub struct WallClock(Arc<AtomicI64>);

impl WallClock {
    /// A clock that stands at this time.
    #[must_use]
    pub fn new(ms: i64) -> Self {
        Self(Arc::new(AtomicI64::new(ms)))
    }

    /// What it shows.
    #[must_use]
    pub fn ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set(&self, ms: i64) {
        self.0.store(ms, Ordering::Relaxed);
    }
}

/// The fake ledger.
#[must_use]
pub fn memory(clock: WallClock, retention_ms: i64, mutant: Option<Mutant>) -> Box<dyn Vault> {
    Box::new(memory::MemoryVault::new(clock, retention_ms, mutant))
}

/// The real ledger, in this file. Without a horizon (0) tombstones stay.
#[must_use]
pub fn sqlite(path: &Path, clock: WallClock, retention_ms: i64, horizon_ms: u64) -> Box<dyn Vault> {
    Box::new(sqlite::SqliteVault::new(path, clock, retention_ms, horizon_ms))
}

/// What a process has whose ledger does not open.
pub(super) struct NoStore;

impl Store for NoStore {
    fn execute(&self, _: &Entry<'_>, _: Option<Death>) -> (Verdict, Wrote) {
        (Verdict::Failed("it did not open".to_owned()), Wrote::Nothing)
    }

    fn collect(&self) -> Result<usize, String> {
        Err("it did not open".to_owned())
    }

    fn is_free(&self, _: &Entry<'_>) -> bool {
        false
    }

    fn force(&self, entry: &Entry<'_>) -> (Verdict, Wrote) {
        self.execute(entry, None)
    }

    fn flush(&self) {}
}
