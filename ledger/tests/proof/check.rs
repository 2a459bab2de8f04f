//! Decides whether a file is what a ledger may leave behind. It looks at the tables with a connection of its own, and at
//! the calls through a ledger that it opens.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use std::time::Duration;
use steady_crash_vfs::Disk;

use steady_ledger::{Begun, Executed, Executor, Ledger, LedgerError, Options, Report, State, Status, rusqlite};

use crate::shop::{
    self, Fate, News, Receipt, begin_wire, call, fate, key, make_task, number_of, post, scope, stranger, wire_scope,
};

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
    /// The letters that were on their way, and those that were reported as delivered.
    pub(crate) posted: BTreeSet<u64>,
    pub(crate) delivered: BTreeSet<u64>,
    /// The money that was on its way, and what was reported as paid.
    pub(crate) wired: BTreeSet<u64>,
    pub(crate) paid: BTreeSet<u64>,
    /// The tasks that were made, of which the step was stored, and that were finished.
    pub(crate) made: BTreeSet<u64>,
    pub(crate) stepped: BTreeSet<u64>,
    pub(crate) finished: BTreeSet<u64>,
}

impl Told {
    /// Takes over what somebody else knows.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        self.begun.append(&mut other.begun);
        self.receipts.append(&mut other.receipts);
        self.absent.append(&mut other.absent);
        self.posted.append(&mut other.posted);
        self.delivered.append(&mut other.delivered);
        self.wired.append(&mut other.wired);
        self.paid.append(&mut other.paid);
        self.made.append(&mut other.made);
        self.stepped.append(&mut other.stepped);
        self.finished.append(&mut other.finished);
        self.walk_ins = (self.walk_ins.0 + other.walk_ins.0, self.walk_ins.1 + other.walk_ins.1);
    }

    pub(crate) fn hear(&mut self, news: News) {
        match news {
            News::Begun(number) => drop(self.begun.insert(number)),
            News::Done(number, effect) => {
                self.absent.remove(&number);
                drop(self.receipts.insert(number, Receipt::new(number, effect)));
            }
            News::Absent(number) => drop(self.absent.insert(number)),
            News::WalkInBegun => self.walk_ins.0 += 1,
            News::WalkInDone => self.walk_ins.1 += 1,
            News::WalkInAbsent => self.walk_ins.0 -= 1,
            News::Posted(number) => drop(self.posted.insert(number)),
            News::Delivered(number) => drop(self.delivered.insert(number)),
            News::Wired(number) => drop(self.wired.insert(number)),
            News::Paid(number) => drop(self.paid.insert(number)),
            News::Made(number) => drop(self.made.insert(number)),
            News::Stepped(number) => drop(self.stepped.insert(number)),
            News::Finished(number) => drop(self.finished.insert(number)),
        }
    }
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
    /// What was sent would be sent again.
    SentAgain(String),
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
    letters(&ledger, &tables, told)?;
    wires(&ledger, told)?;
    tasks(&ledger, told)?;
    whole(&tables, told)?;
    drop(tables);
    ledger.close().map_err(unusable)
}

/// A letter that was on its way is not given out again, and one that was delivered stays so.
fn letters(ledger: &Ledger, tables: &rusqlite::Connection, told: &Told) -> Result<(), Violation> {
    let state = "SELECT state FROM ledger_outbox WHERE principal = 'tenant-1' AND operation = 'charge' AND key = ?1";
    for number in &told.delivered {
        let found = tables.query_row(state, [key(*number).as_str()], |row| row.get::<_, i64>(0));
        if found.ok() != Some(3) {
            return Err(Violation::Lost(format!("letter {number} was delivered")));
        }
    }
    let letters = post(ledger).claim(256, Duration::from_secs(60)).map_err(unusable)?;
    for letter in &letters {
        let number = number_of(letter.payload());
        if told.posted.contains(&number) {
            return Err(Violation::SentAgain(format!("letter {number}")));
        }
        letter.report(Report::NotSent).map_err(unusable)?;
    }
    Ok(())
}

/// A task that was made is there, under its key, and as far as it was said to be.
fn tasks(ledger: &Ledger, told: &Told) -> Result<(), Violation> {
    for number in &told.made {
        let again = make_task(ledger, *number).map_err(|error| Violation::Unusable(format!("{error:?}")))?;
        if !again.is_replay() {
            return Err(Violation::Lost(format!("task {number} was made")));
        }
        let task = again.into_inner();
        if told.stepped.contains(number) && task.progress.step != 1 {
            return Err(Violation::Lost(format!("the step of task {number}")));
        }
        if told.finished.contains(number) && task.status != Status::Completed {
            return Err(Violation::Lost(format!("task {number} was finished")));
        }
    }
    Ok(())
}

/// Money that was on its way is never sent again, and what was paid is known.
fn wires(ledger: &Ledger, told: &Told) -> Result<(), Violation> {
    for number in &told.wired {
        let known = ledger.reconcile(&wire_scope(), &key(*number)).map_err(unusable)?;
        match (begin_wire(ledger, *number), known) {
            (Ok(Begun::Send(_)), _) | (_, None) => {
                return Err(Violation::SentAgain(format!("wire {number}")));
            }
            (Ok(Begun::Replayed(paid)), _) if paid == *number => {}
            (Err(LedgerError::InFlight { .. } | LedgerError::InDoubt), _) if !told.paid.contains(number) => {}
            (Err(LedgerError::InFlight { .. } | LedgerError::InDoubt), _) => {
                return Err(Violation::Lost(format!("wire {number} was paid")));
            }
            (found, _) => return Err(Violation::Wrong(format!("wire {number}: {found:?}"))),
        }
    }
    Ok(())
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
        "SELECT count(*) FROM effect
         WHERE key NOT IN (SELECT key FROM ledger_key WHERE state = 2 AND operation = 'charge')",
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
        "effects whose message is not there once",
        "SELECT count(*) FROM effect AS e WHERE e.message <> (SELECT count(*) FROM ledger_outbox AS o
         WHERE o.principal = 'tenant-1' AND o.operation = 'charge' AND o.key = e.key)",
    ),
    (
        "messages of no effect",
        "SELECT count(*) FROM ledger_outbox WHERE key NOT IN (SELECT key FROM effect WHERE message = 1)",
    ),
    (
        "open messages against their count",
        "SELECT abs((SELECT outbox_open FROM ledger_meta)
                    - (SELECT count(*) FROM ledger_outbox WHERE state NOT IN (3, 6)))",
    ),
    (
        "attempts of no open key, and open keys without one",
        "SELECT abs((SELECT count(*) FROM ledger_key WHERE state IN (1, 4)) - (SELECT count(*) FROM ledger_attempt))",
    ),
    (
        "steps of tasks against their effects",
        "SELECT abs((SELECT count(*) FROM page) - (SELECT coalesce(sum(step), 0) FROM ledger_task))",
    ),
    (
        "keys of tasks against tasks",
        "SELECT abs((SELECT count(*) FROM ledger_key WHERE operation = 'print') - (SELECT count(*) FROM ledger_task))",
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
    use crate::shop::Voice;

    type Expected = fn(&Violation) -> bool;

    /// The change, and what it has to be called.
    const CHANGES: &[(&str, Expected)] = &[
        ("DELETE FROM effect WHERE key = 'order-1'", |found| matches!(found, Violation::Half(_))),
        ("INSERT INTO effect(key, pad, message) VALUES ('order-1', '', 0)", |found| {
            matches!(found, Violation::Half(_))
        }),
        ("INSERT INTO effect(key, pad, message) VALUES ('order-99', '', 0)", |found| {
            matches!(found, Violation::Half(_))
        }),
        ("UPDATE account SET balance = balance + 1", |found| matches!(found, Violation::Half(_))),
        ("INSERT INTO walk_in DEFAULT VALUES", |found| matches!(found, Violation::Half(_))),
        ("DELETE FROM ledger_result WHERE id = 1", |found| matches!(found, Violation::Half(_))),
        ("INSERT INTO ledger_result(body) VALUES (x'31')", |found| matches!(found, Violation::Half(_))),
        (
            "DELETE FROM ledger_outbox WHERE key = 'order-1';
             DELETE FROM ledger_result WHERE id = (SELECT result_id FROM ledger_key WHERE key = 'order-1');
             DELETE FROM ledger_key WHERE key = 'order-1'; DELETE FROM effect WHERE key = 'order-1';
             UPDATE account SET balance = balance - 1",
            |found| matches!(found, Violation::Lost(_)),
        ),
        ("DELETE FROM walk_in; DELETE FROM ledger_unkeyed", |found| matches!(found, Violation::Lost(_))),
        ("UPDATE effect SET message = 0 WHERE key = 'order-2'", |found| matches!(found, Violation::Half(_))),
        ("UPDATE ledger_meta SET outbox_open = outbox_open + 1", |found| matches!(found, Violation::Half(_))),
        ("DELETE FROM ledger_outbox WHERE key = 'order-2'", |found| matches!(found, Violation::Half(_))),
        // The post had it, and the ledger forgets that.
        (
            "UPDATE ledger_outbox SET state = 1, head = 1, payload = x'31', token = NULL WHERE key = 'order-1';
             UPDATE ledger_meta SET outbox_open = outbox_open + 1",
            |found| matches!(found, Violation::Lost(_)),
        ),
        (
            "DELETE FROM ledger_result WHERE id = (SELECT result_id FROM ledger_key WHERE operation = 'wire' AND state = 2);
             DELETE FROM ledger_key WHERE operation = 'wire' AND state = 2",
            |found| matches!(found, Violation::SentAgain(_)),
        ),
        ("DELETE FROM page", |found| matches!(found, Violation::Half(_))),
        ("INSERT INTO page VALUES ('order-9')", |found| matches!(found, Violation::Half(_))),
        ("DELETE FROM ledger_task WHERE key = 'order-10'", |found| matches!(found, Violation::Half(_))),
        (
            "DELETE FROM page; DELETE FROM ledger_task;
             DELETE FROM ledger_result WHERE id IN (SELECT result_id FROM ledger_key WHERE operation = 'print');
             DELETE FROM ledger_key WHERE operation = 'print'",
            |found| matches!(found, Violation::Lost(_)),
        ),
        ("DELETE FROM ledger_attempt", |found| matches!(found, Violation::Half(_))),
        ("UPDATE ledger_result SET body = x'31' WHERE id = 1", |found| matches!(found, Violation::Unusable(_))),
        ("UPDATE ledger_meta SET secret_check = zeroblob(32)", |found| matches!(found, Violation::Unusable(_))),
    ];

    struct Ear(std::sync::Mutex<Told>);

    impl Voice for Ear {
        fn say(&self, news: News) {
            self.0.lock().unwrap().hear(news);
        }
    }

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
            let told = Ear(std::sync::Mutex::new(told));
            assert_eq!(shop::carry(&ledger, &told).unwrap(), 2);
            shop::wire(&ledger, 7, &told).unwrap();
            shop::toil(&ledger, 9, &told).unwrap();
            make_task(&ledger, 10).unwrap().into_inner();
            let Begun::Send(_unreported) = begin_wire(&ledger, 8).unwrap() else { panic!("a new one") };
            told.say(News::Wired(8));
            let told = told.0.into_inner().unwrap();
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
