//! Decides whether a file is what a ledger may leave behind. It looks at the tables with a connection of its own, and at
//! the calls through a ledger that it opens.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use steady_crash_vfs::Disk;
use steady_ledger::{Executed, Executor, Ledger, LedgerError, Options, State, rusqlite};

use crate::shop::{self, Fate, Receipt, call, fate, key, scope, stranger};

/// What a run of calls told its callers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// The calls that began, by number.
    pub(crate) begun: BTreeSet<u64>,
    /// What was acknowledged.
    pub(crate) receipts: BTreeMap<u64, Receipt>,
    /// The calls that failed for certain, and were not made again.
    pub(crate) absent: BTreeSet<u64>,
    /// How many calls without a key began, and how many were acknowledged.
    pub(crate) walk_ins: (u64, u64),
}

/// What must never be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// It cannot be opened or read.
    Unusable(String),
    /// What was acknowledged is not there.
    Lost(String),
    /// Something is there of a transaction, and something not.
    Half(String),
    /// An effect is there more than once.
    Twice(String),
    /// An answer is not the one that must be given.
    Wrong(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Checks a file, and then does what its clients would do: every call again.
pub(crate) fn check(path: &Path, disk: Option<Disk>, told: &Told) -> Result<(), Violation> {
    let vfs = disk.map(|disk| disk.name().into());
    // Without the fsyncs of a real one, as the shim leaves them out.
    let options = Options { vfs, executor: Executor::Inline, ..shop::options() };
    let ledger = Ledger::open(path, options).map_err(unusable)?;
    let tables = stranger(path, disk).map_err(|error| Violation::Unusable(error.to_string()))?;
    whole(&tables, told)?;
    for (&number, receipt) in &told.receipts {
        acknowledged(&ledger, number, receipt)?;
    }
    for &number in &told.begun {
        retried(&ledger, &tables, number, told)?;
    }
    whole(&tables, told)?;
    drop(tables);
    ledger.close().map_err(unusable)
}

fn unusable(error: LedgerError) -> Violation {
    let source = std::error::Error::source(&error).map(ToString::to_string);
    Violation::Unusable(format!("{error} ({})", source.unwrap_or_default()))
}

/// What holds at every moment, whatever was told to whom: each is a count that has to be 0.
const WHOLE: &[(&str, &str)] = &[
    (
        "keys that are committed without exactly one effect",
        "SELECT count(*) FROM ledger_key AS k WHERE k.state = 2 AND k.operation = 'charge'
         AND (k.executions <> 1 OR (SELECT count(*) FROM effect AS e WHERE e.key = k.key) <> 1)",
    ),
    (
        "effects of no committed key",
        "SELECT count(*) FROM effect WHERE key NOT IN (SELECT key FROM ledger_key WHERE state = 2)",
    ),
    ("balance against effects", "SELECT abs((SELECT balance FROM account) - (SELECT count(*) FROM effect))"),
    (
        "results of no key",
        "SELECT count(*) FROM ledger_result
         WHERE id NOT IN (SELECT result_id FROM ledger_key WHERE result_id IS NOT NULL)",
    ),
    (
        "keys whose result is missing",
        "SELECT count(*) FROM ledger_key AS k WHERE k.state IN (2, 3)
         AND NOT EXISTS (SELECT 1 FROM ledger_result AS r WHERE r.id = k.result_id)",
    ),
    (
        "walk-ins against their count",
        "SELECT abs((SELECT count(*) FROM walk_in) - coalesce((SELECT sum(executions) FROM ledger_unkeyed), 0))",
    ),
];

fn whole(tables: &rusqlite::Connection, told: &Told) -> Result<(), Violation> {
    let unusable = |error: rusqlite::Error| Violation::Unusable(error.to_string());
    let number = |sql: &str| tables.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(unusable);
    let sound: String = tables.query_row("PRAGMA integrity_check", [], |row| row.get(0)).map_err(unusable)?;
    if sound != "ok" {
        return Err(Violation::Unusable(sound));
    }
    for (what, sql) in WHOLE {
        let count = number(sql)?;
        if count != 0 {
            return Err(Violation::Half(format!("{count} {what}")));
        }
    }
    let walk_ins = number("SELECT count(*) FROM walk_in")?.unsigned_abs();
    let (begun, acknowledged) = told.walk_ins;
    match walk_ins {
        _ if walk_ins < acknowledged => Err(Violation::Lost(format!("{walk_ins} of {acknowledged} walk-ins"))),
        _ if walk_ins > begun => Err(Violation::Twice(format!("{walk_ins} walk-ins of {begun}"))),
        _ => Ok(()),
    }
}

fn acknowledged(ledger: &Ledger, number: u64, receipt: &Receipt) -> Result<(), Violation> {
    let known = ledger.reconcile(&scope(), &key(number)).map_err(unusable)?;
    let Some(known) = known else { return Err(Violation::Lost(format!("order-{number}"))) };
    let expected = if receipt.effect.is_some() { (State::Committed, 1) } else { (State::Rejected, 0) };
    if (known.state, known.executions) != expected {
        return Err(Violation::Wrong(format!("order-{number} is {known:?}")));
    }
    match call(ledger, number, true).map_err(unusable)? {
        Executed::Replayed(again) if again == *receipt => Ok(()),
        Executed::Replayed(again) => Err(Violation::Wrong(format!("order-{number}: {again:?}, was {receipt:?}"))),
        Executed::Fresh(_) => Err(Violation::Lost(format!("order-{number}"))),
    }
}

/// A retry has the effect now, if it did not have it; a retry of that one has it no more.
fn retried(ledger: &Ledger, tables: &rusqlite::Connection, number: u64, told: &Told) -> Result<(), Violation> {
    let first = call(ledger, number, true).map_err(unusable)?;
    let failed = told.absent.contains(&number) || fate(number) == Fate::Abort;
    if failed && first.is_replay() && !told.receipts.contains_key(&number) {
        return Err(Violation::Wrong(format!("order-{number} failed for certain and is replayed")));
    }
    let first = first.into_inner();
    if call(ledger, number, true).map_err(unusable)? != Executed::Replayed(first.clone()) {
        return Err(Violation::Wrong(format!("order-{number} is not replayed as it was")));
    }
    let count: i64 = tables
        .query_row("SELECT count(*) FROM effect WHERE key = ?1", [key(number).as_str()], |row| row.get(0))
        .map_err(|error| Violation::Unusable(error.to_string()))?;
    match (first.effect.is_some(), count) {
        (true, 1) | (false, 0) => Ok(()),
        (true, 0) => Err(Violation::Half(format!("order-{number} has no effect"))),
        (..) => Err(Violation::Twice(format!("order-{number}: {count} effects"))),
    }
}

/// What the checker must refuse: each a change that no crash may make.
#[cfg(test)]
mod broken {
    use super::*;

    /// The change, and what it has to be called.
    const CHANGES: &[(&str, fn(&Violation) -> bool)] = &[
        ("DELETE FROM effect WHERE key = 'order-1'", |found| matches!(found, Violation::Half(_))),
        ("INSERT INTO effect(key, pad) VALUES ('order-1', '')", |found| matches!(found, Violation::Half(_))),
        ("INSERT INTO effect(key, pad) VALUES ('order-99', '')", |found| matches!(found, Violation::Half(_))),
        ("UPDATE account SET balance = balance + 1", |found| matches!(found, Violation::Half(_))),
        ("INSERT INTO walk_in DEFAULT VALUES", |found| matches!(found, Violation::Half(_))),
        ("DELETE FROM ledger_result WHERE id = 1", |found| matches!(found, Violation::Half(_))),
        ("INSERT INTO ledger_result(body) VALUES (x'31')", |found| matches!(found, Violation::Half(_))),
        (
            "DELETE FROM ledger_result WHERE id = (SELECT result_id FROM ledger_key WHERE key = 'order-1');
             DELETE FROM ledger_key WHERE key = 'order-1'; DELETE FROM effect WHERE key = 'order-1';
             UPDATE account SET balance = balance - 1",
            |found| matches!(found, Violation::Lost(_)),
        ),
        ("DELETE FROM walk_in; DELETE FROM ledger_unkeyed", |found| matches!(found, Violation::Lost(_))),
        ("UPDATE ledger_result SET body = x'31' WHERE id = 1", |found| matches!(found, Violation::Unusable(_))),
        ("UPDATE ledger_meta SET secret_check = zeroblob(32)", |found| matches!(found, Violation::Unusable(_))),
    ];

    #[test]
    fn a_file_that_no_crash_may_leave_is_refused() {
        let run = |change: &str| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("shop.db");
            let ledger = Ledger::open(&path, shop::options()).unwrap();
            let mut told = Told { begun: [1, 2, 3, 4].into(), walk_ins: (2, 1), ..Told::default() };
            for number in 1..4 {
                told.receipts.insert(number, call(&ledger, number, false).unwrap().into_inner());
            }
            shop::walk_in(&ledger).unwrap();
            ledger.close().unwrap();
            stranger(&path, None).unwrap().execute_batch(change).unwrap();
            check(&path, None, &told)
        };
        assert_eq!(run(""), Ok(()));
        for (change, expected) in CHANGES {
            let found = run(change).expect_err(change);
            assert!(expected(&found), "{change}: {found}");
        }
    }

    #[test]
    fn a_receipt_that_is_not_the_stored_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shop.db");
        let ledger = Ledger::open(&path, shop::options()).unwrap();
        let mut receipt = call(&ledger, 1, false).unwrap().into_inner();
        ledger.close().unwrap();
        receipt.effect = Some(99);
        let told = Told { begun: [1].into(), receipts: [(1, receipt)].into(), ..Told::default() };
        assert!(matches!(check(&path, None, &told), Err(Violation::Wrong(_))));
    }
}
