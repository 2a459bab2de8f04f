//! The work that the proofs do: numbered calls, whose number says what their effect is like.

use std::path::Path;

use serde::{Deserialize, Serialize};
use steady_crash_vfs::Disk;
use steady_ledger::{EffectError, EffectTx, Executed, Key, Ledger, LedgerError, Options, Request, Scope, Secret};

/// A row of `effect` for every run of an effect: nothing here keeps a second one from being seen.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL) STRICT;
    INSERT OR IGNORE INTO account VALUES (1, 0);
    CREATE TABLE IF NOT EXISTS effect(id INTEGER PRIMARY KEY, key TEXT NOT NULL, pad TEXT NOT NULL) STRICT;
    CREATE INDEX IF NOT EXISTS effect_key ON effect(key);
    CREATE TABLE IF NOT EXISTS walk_in(id INTEGER PRIMARY KEY) STRICT;
";

/// What a call answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    /// The row of the effect; none if the business refused.
    pub(crate) effect: Option<i64>,
    /// Makes results, and rows, of many sizes.
    pad: String,
}

impl Receipt {
    /// What the call of this number answers. Some results, and rows, need overflow pages.
    pub(crate) fn new(number: u64, effect: Option<i64>) -> Self {
        let size = number * 37 % 300 + number % 11 / 10 * 6000;
        Self { effect, pad: "x".repeat(usize::try_from(size).unwrap()) }
    }
}

/// What a call's number makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Commit,
    Reject,
    /// It fails at first. A retry after the crash goes through.
    Abort,
}

pub(crate) fn fate(number: u64) -> Fate {
    match number % 9 {
        3 => Fate::Reject,
        5 => Fate::Abort,
        _ => Fate::Commit,
    }
}

pub(crate) fn key(number: u64) -> Key {
    Key::parse(&format!("order-{number}")).unwrap()
}

pub(crate) fn scope() -> Scope {
    Scope::new("tenant-1", "charge")
}

pub(crate) fn options() -> Options {
    Options { schema: SCHEMA.into(), secret: Some(Secret::new([7; 32])), ..Options::default() }
}

pub(crate) fn on(disk: Disk) -> Options {
    Options { vfs: Some(disk.name().into()), ..options() }
}

/// The call of this number, as a client makes it; `retry` if an earlier one may have failed.
pub(crate) fn call(ledger: &Ledger, number: u64, retry: bool) -> Result<Executed<Receipt>, LedgerError> {
    call_then(ledger, number, retry, |_| {})
}

/// As [`call`], with something to do in the effect once it has written what it writes.
pub(crate) fn call_then(
    ledger: &Ledger,
    number: u64,
    retry: bool,
    then: impl Fn(&Receipt) + Send + 'static,
) -> Result<Executed<Receipt>, LedgerError> {
    let arguments = format!(r#"{{"order":{number}}}"#);
    ledger.execute(&Request::new(&scope(), &key(number), &arguments), move |tx| {
        let done = charge(tx, number, retry);
        if let Ok(receipt) | Err(EffectError::Reject(receipt)) = &done {
            then(receipt);
        }
        done
    })
}

/// The effect of a call.
fn charge(tx: &mut EffectTx<'_>, number: u64, retry: bool) -> Result<Receipt, EffectError<Receipt>> {
    let mut receipt = Receipt::new(number, None);
    tx.execute("UPDATE account SET balance = balance + 1 WHERE id = 1", [])?;
    tx.execute("INSERT INTO effect(key, pad) VALUES (?1, ?2)", (format!("order-{number}"), &receipt.pad))?;
    match fate(number) {
        Fate::Reject => Err(EffectError::Reject(receipt)),
        Fate::Abort if !retry => Err(EffectError::Abort("no luck at first".into())),
        Fate::Commit | Fate::Abort => {
            receipt.effect = Some(tx.last_insert_rowid());
            Ok(receipt)
        }
    }
}

/// A call without a key.
pub(crate) fn walk_in(ledger: &Ledger) -> Result<(), LedgerError> {
    let done = ledger.execute_keyless(&scope(), |tx| {
        tx.execute("INSERT INTO walk_in DEFAULT VALUES", [])?;
        Ok(())
    });
    done.map(steady_ledger::Unkeyed::into_inner)
}

/// A connection that knows nothing of the ledger.
pub(crate) fn stranger(path: &Path, disk: Option<Disk>) -> rusqlite::Result<rusqlite::Connection> {
    use rusqlite::{Connection, OpenFlags};
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match disk {
        None => Connection::open_with_flags(path, flags),
        Some(disk) => Connection::open_with_flags_and_vfs(path, flags, disk.name()),
    }
}

use steady_ledger::rusqlite;
