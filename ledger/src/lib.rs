//! Runs a mutation once for a business key, durably.
//!
//! A request id only matches an answer to a question: it does not keep a retried call from charging a card twice. The
//! [`Ledger`] does. It checks the key, runs the effect, counts it and stores its result in **one** transaction of one
//! SQLite file, and answers only after that transaction is on disk. A retry with the same key and the same arguments
//! gets the stored result; with other arguments it is refused; and no passage of time makes a key run again.
//!
//! ```
//! use steady_ledger::{EffectError, Executed, Key, Ledger, Options, Request, Scope};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("shop.db");
//! let schema = "CREATE TABLE IF NOT EXISTS stock(sku TEXT PRIMARY KEY, left INTEGER NOT NULL) STRICT;
//!               INSERT OR IGNORE INTO stock VALUES ('a-1', 10);";
//! let ledger = Ledger::open(&path, Options { schema: schema.into(), ..Options::default() })?;
//!
//! let scope = Scope::new("tenant-1", "reserve_inventory");
//! let key = Key::parse("order-7")?;
//! let reserve = || {
//!     ledger.execute(&Request::new(&scope, &key, r#"{"sku":"a-1","quantity":2}"#), |tx| {
//!         tx.execute("UPDATE stock SET left = left - 2 WHERE sku = 'a-1'", [])?;
//!         Ok(tx.query_row("SELECT left FROM stock WHERE sku = 'a-1'", [], |row| row.get::<_, i64>(0))?)
//!     })
//! };
//! assert_eq!(reserve()?, Executed::Fresh(8));
//! assert_eq!(reserve()?, Executed::Replayed(8));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Invariants** (each has a test of its name's meaning in `tests/`):
//!
//! - A key of a scope has at most one committed effect, over all handles, processes and restarts on one file.
//! - Nothing is answered that is not on disk, and nothing is on disk without its key.
//! - Every answer, fresh or replayed, is decoded from stored bytes: no two callers share a value.
//! - Raw arguments are never stored. What is stored of them is a keyed hash.
//! - An effect cannot end, split or outlive its transaction.
//! - An effect in another system ([`Ledger::begin`]) is durably started before it may be sent. It is sent again only to a
//!   system that is declared to recognise it; else its key is in doubt until its sender or a person says what happened.
//! - A message ([`EffectTx::enqueue`], [`Ledger::outbox`]) leaves only after the commit of its effect, in the order of its
//!   line, and under the same rule.
//! - Nothing that is open is ever collected, and no clock makes a key run again ([`Ledger::collect`]).
//! - A durable [task](Tasks) is created with its key, has one worker at a time and one end, and is never run again by
//!   itself while a step outside of the file may be under way.
//!
//! The promise covers power cuts as far as the disk keeps what it says it has synced, and one machine: SQLite's
//! write-ahead log does not work over network file systems, so on Linux a file on one is refused. The log is bounded
//! ([`Options::wal_limit`]): while somebody reads for long, writes are refused in the end.
#![forbid(unsafe_code)]

pub mod admin;
mod audit;
mod background;
mod effect;
mod error;
mod external;
mod file;
mod guard;
mod lane;
mod ledger;
mod mount;
mod mutant;
mod options;
mod outbox;
#[cfg(feature = "postgres")]
mod postgres;
mod reads;
mod record;
mod request;
mod retention;
mod schema;
mod secret;
mod stats;
mod sync;
mod task;
mod time;
mod transaction;
mod writer;

pub use audit::{Action, AuditEntry};
pub use background::{Background, Stop};
pub use effect::{EffectError, EffectTx, ReadTx};
pub use error::{BoxError, LedgerError};
pub use external::{Attempt, Begun, External, InDoubt, Resolved, Upstream};
pub use ledger::Ledger;
pub use options::{Clock, Durability, Entropy, Executor, Opening, Options};
pub use outbox::{Delivery, EnqueueError, Message, MessageId, Outbox, Report, Stuck, Target};
#[cfg(feature = "postgres")]
pub use postgres::{
    ImportError, Imported, Isolation, PgAttempt, PgBegun, PgDelivery, PgEffect, PgLedger, PgOptions, PgOutbox,
    PgSqlError, PgTasks, PgTx, PgWake, PgWakes,
};
pub use request::{Executed, Reconciled, Request, Unkeyed};
pub use retention::Collected;
pub use secret::Secret;
pub use stats::Stats;
pub use task::{
    Body, Changed, Checkpoint, Claimed, Input, Lease, LiveTask, Progress, Resolution, Snapshot, TaskError, TaskId,
    TaskLimits, TaskSpec, Tasks,
};

/// The SQLite binding whose [`rusqlite::Params`], [`rusqlite::Row`] and errors an effect uses.
pub use rusqlite;
pub use steady_core::backoff::Backoff;
pub use steady_core::idempotency::{CanonicalError, Key, Scope, State};
pub use steady_core::task::{Revision, Status};
pub use steady_core::time::WallTime;
/// The PostgreSQL binding whose types, rows and errors an effect on [`PgLedger`] uses.
#[cfg(feature = "postgres")]
pub use tokio_postgres;
