//! What the ledger promises, on real files.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clock;
mod conformance;
mod effects;
mod external;
mod external_model;
mod files;
#[path = "../support/golden.rs"]
mod golden;
mod inventory;
mod leases;
mod migration;
mod model;
mod once;
mod outbox;
mod outbox_model;
#[path = "../support/peer.rs"]
mod peer;
mod privacy;
mod reads;
mod replay;
mod retention;
mod schemas;
#[path = "../support/sqlite.rs"]
mod sqlite;
mod states;
#[path = "../support/task_port.rs"]
mod task_port;
mod tasks;
mod writer;
mod writer_faults;

use std::path::Path;

use serde::{Deserialize, Serialize};
use steady_ledger::{EffectError, EffectTx, Executed, Key, Ledger, LedgerError, Options, Request, Scope, rusqlite};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS stock(sku TEXT PRIMARY KEY, units INTEGER NOT NULL CHECK(units >= 0)) STRICT;
    INSERT OR IGNORE INTO stock VALUES ('a-1', 1000000), ('b-2', 1);
    CREATE TABLE IF NOT EXISTS reservation(id INTEGER PRIMARY KEY, sku TEXT NOT NULL, units INTEGER NOT NULL) STRICT;
";

/// The result of a reservation: what a tool would answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Reserved {
    id: i64,
    notes: Vec<String>,
}

fn options() -> Options {
    Options { schema: SCHEMA.into(), ..Options::default() }
}

/// A shop in a directory of its own.
struct Shop {
    dir: tempfile::TempDir,
    ledger: Ledger,
}

impl Shop {
    fn open() -> Self {
        Self::open_with(options())
    }

    fn open_with(options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(dir.path().join("shop.db"), options).unwrap();
        Self { dir, ledger }
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("shop.db")
    }

    fn reservations(&self) -> i64 {
        reservations(&self.ledger)
    }

    /// A connection that knows nothing of the ledger, to look and to tamper.
    fn stranger(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }
}

fn scope() -> Scope {
    Scope::new("tenant-1", "reserve_inventory")
}

fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

fn arguments(sku: &str, units: i64) -> String {
    format!(r#"{{"sku":"{sku}","units":{units}}}"#)
}

/// Takes units of `a-1` out of stock, and writes a reservation.
fn reserve(tx: &mut EffectTx<'_>) -> Result<Reserved, EffectError<Reserved>> {
    tx.execute("UPDATE stock SET units = units - ?2 WHERE sku = ?1", ("a-1", 2))?;
    tx.execute("INSERT INTO reservation(sku, units) VALUES (?1, ?2)", ("a-1", 2))?;
    Ok(Reserved { id: tx.last_insert_rowid(), notes: vec!["kept".into()] })
}

fn call(ledger: &Ledger, key_text: &str) -> Result<Executed<Reserved>, LedgerError> {
    ledger.execute(&Request::new(&scope(), &key(key_text), &arguments("a-1", 2)), reserve)
}

fn reservations(ledger: &Ledger) -> i64 {
    ledger.read(|tx| tx.query_row("SELECT count(*) FROM reservation", [], |row| row.get(0))).unwrap()
}

fn open(path: &Path) -> Ledger {
    Ledger::open(path, options()).unwrap()
}
