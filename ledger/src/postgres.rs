//! The ledger on PostgreSQL, for many replicas. It keeps the promises of the ledger in a file, with a database that others
//! look after.
//!
//! ```text
//!  one call                                                     another one with its key, in any replica
//!  BEGIN, claim: the try-lock of the key, and it has no row ───► the try-lock of the key is taken: in flight, at once
//!  effect: statements of the application
//!  INSERT the key with its result, COMMIT ────────────────────► the key has a row: read it, replay
//!     │
//!     └─ no answer to the COMMIT ─► connect anew, wait until nobody holds the key, read it: there, or not, for certain
//! ```
//!
//! **What it needs of the database** (checked on every connection): the primary, `fsync`, `full_page_writes`, and
//! `synchronous_commit` at `on` or `remote_apply`. A failover to a standby that lags behind loses what it had not got:
//! then keys run again. Who fails over automatically needs `synchronous_standby_names` with a quorum.
//!
//! **Poolers.** Nothing outlives a transaction on its connection: no session settings, locks or notifications, and no
//! prepared statements unless [`PgOptions::prepared`] says so. So pgbouncer in transaction mode is fine. Only
//! [`PgLedger::wakes`] needs a direct connection.

mod admin;
mod audit;
mod check;
mod claim;
mod drive;
mod effect;
mod external;
mod fault;
mod guard;
mod import;
mod ledger;
mod options;
mod outbox;
mod partition;
mod pool;
mod record;
mod retention;
mod run;
mod schema;
mod statement;
mod task;
mod tx;
mod wake;
mod wire;

pub use effect::{PgEffect, PgSqlError, PgTx};
pub use external::{PgAttempt, PgBegun};
pub use import::{ImportError, Imported};
pub use ledger::PgLedger;
pub use options::{Isolation, PgOptions};
pub use outbox::{PgDelivery, PgOutbox};
pub use task::PgTasks;
pub use wake::{PgWake, PgWakes};
