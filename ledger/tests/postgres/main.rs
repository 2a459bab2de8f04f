//! What the ledger promises, on PostgreSQL. All tests of this program share one throw-away server; without PostgreSQL they
//! say that they are skipped.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "a skipped test and a long run report themselves")]

mod chaos;
mod claims;
mod cli;
#[path = "../support/cluster.rs"]
mod cluster;
mod conformance;
mod effects;
mod held;
mod history;
mod import;
mod loss;
mod outbox;
#[path = "../support/peer.rs"]
mod peer;
#[path = "../support/pg_subject.rs"]
mod pg_subject;
mod pooler;
mod shop;
#[path = "../support/sqlite.rs"]
mod sqlite;
#[path = "../support/task_port.rs"]
mod task_port;
mod tasks;
mod tls;

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

/// What a test's futures run on.
fn runtime() -> Arc<Runtime> {
    Arc::new(Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

/// How much of something to do: what the variable says, or the default.
fn amount(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}
