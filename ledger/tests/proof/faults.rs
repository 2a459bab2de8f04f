//! Every call to the file layer fails once, and then every one from there on: each call of the ledger gives an error or a
//! result, never a wrong one.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steady_crash_vfs::{Answer, Asked, Call, Disk};
use steady_ledger::rusqlite::ffi;
use steady_ledger::{Ledger, LedgerError, Options};

use crate::check::{Told, Violation, check};
use crate::shop::{self, News, Voice, call, carry, toil, walk_in, wire};

/// What fails, and how.
const FAULTS: [(Call, i32); 12] = [
    (Call::Open, ffi::SQLITE_CANTOPEN),
    (Call::Read, ffi::SQLITE_IOERR_READ),
    (Call::Write, ffi::SQLITE_IOERR_WRITE),
    (Call::Write, ffi::SQLITE_FULL),
    (Call::Truncate, ffi::SQLITE_IOERR_TRUNCATE),
    (Call::Sync, ffi::SQLITE_IOERR_FSYNC),
    (Call::Lock, ffi::SQLITE_BUSY),
    (Call::Lock, ffi::SQLITE_IOERR_LOCK),
    (Call::ShmLock, ffi::SQLITE_BUSY),
    (Call::ShmLock, ffi::SQLITE_IOERR_SHMLOCK),
    (Call::ShmMap, ffi::SQLITE_IOERR_SHMMAP),
    (Call::Delete, ffi::SQLITE_IOERR_DELETE),
];

/// Which calls fail: from this one, so many.
#[derive(Clone, Copy, Debug)]
struct Fault {
    call: Call,
    answer: Answer,
    from: usize,
    count: usize,
}

impl Fault {
    /// Arms a disk. Returns how many calls of the kind there were so far.
    fn arm(self, disk: Disk) -> Arc<AtomicUsize> {
        let seen = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&seen);
        disk.ask(move |Asked { call, .. }| {
            if call == Call::Sleep {
                return Answer::Pretend;
            }
            let Some(place) = (call == self.call).then(|| counted.fetch_add(1, SeqCst)) else { return Answer::Do };
            let fails = place.checked_sub(self.from).is_some_and(|after| after < self.count);
            if fails { self.answer } else { Answer::Do }
        });
        seen
    }
}

/// Whether an error leaves open what became of the effect.
fn is_uncertain(error: &LedgerError) -> bool {
    matches!(error, LedgerError::CommitUnknown(_) | LedgerError::Corrupt { .. })
}

fn options(disk: Disk) -> Options {
    // A lock that stays busy is not waited for.
    Options { busy_timeout: Duration::ZERO, ..shop::on(disk) }
}

/// Opens a ledger and makes some calls. Notes what each was told.
fn work(path: &Path, disk: Disk, told: &mut Told) -> Option<Ledger> {
    let ledger = Ledger::open(path, options(disk)).ok()?;
    for number in [1, 2, 1, 3, 21, 10, 5] {
        told.hear(News::Begun(number));
        match call(&ledger, number, false) {
            Ok(done) => told.hear(News::Done(number, done.into_inner().effect)),
            Err(error) if is_uncertain(&error) => drop(told.absent.remove(&number)),
            Err(_) => told.hear(News::Absent(number)),
        }
    }
    told.hear(News::WalkInBegun);
    match walk_in(&ledger) {
        Ok(()) => told.hear(News::WalkInDone),
        Err(error) if is_uncertain(&error) => {}
        Err(_) => told.hear(News::WalkInAbsent),
    }
    let ear = Ear(Mutex::new(std::mem::take(told)));
    // Whatever fails here, what was sent was said.
    drop((wire(&ledger, 40, &ear), carry(&ledger, &ear), wire(&ledger, 41, &ear)));
    drop((toil(&ledger, 42, &ear), toil(&ledger, 43, &ear)));
    *told = ear.0.into_inner().unwrap();
    Some(ledger)
}

struct Ear(Mutex<Told>);

impl Voice for Ear {
    fn say(&self, news: News) {
        self.0.lock().unwrap().hear(news);
    }
}

/// What is on the disk if the process dies now.
fn after_a_kill(path: &Path, to: &Path) {
    for entry in fs::read_dir(path.parent().unwrap()).unwrap() {
        let from = entry.unwrap().path();
        if !from.to_string_lossy().ends_with("-shm") {
            fs::copy(&from, to.join(from.file_name().unwrap())).unwrap();
        }
    }
}

/// One run under one fault. False once the fault lies behind the end of the run.
fn run(fault: Fault, disk: Disk, plain: Disk) -> Result<bool, Violation> {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let path = dirs[0].path().join("shop.db");
    let mut told = Told::default();
    let seen = fault.arm(disk);
    let ledger = work(&path, disk, &mut told);
    let was_hit = seen.load(SeqCst) > fault.from;
    disk.ask_nobody();
    after_a_kill(&path, dirs[1].path());
    check(&dirs[1].path().join("shop.db"), Some(plain), &told)?;
    if let Some(ledger) = ledger {
        // The fault is gone, and the same handle works again.
        for number in [1, 30] {
            let done = call(&ledger, number, true).map_err(|error| Violation::Unusable(format!("later: {error:?}")))?;
            told.begun.insert(number);
            let receipt = done.into_inner();
            let first = told.receipts.entry(number).or_insert_with(|| receipt.clone());
            if *first != receipt {
                return Err(Violation::Wrong(format!("order-{number}: {receipt:?}, was {first:?}")));
            }
        }
        drop(ledger);
    }
    check(&path, Some(plain), &told)?;
    Ok(was_hit)
}

/// All places for all faults. Returns how many runs there were, or the first fault that did harm.
fn all(name: &str, count: usize) -> usize {
    let (disk, plain) = (Disk::register(name), Disk::register(&format!("{name}-plain")));
    let mut runs = 0;
    for (call, code) in FAULTS {
        for from in 0.. {
            let fault = Fault { call, answer: Answer::Fail(code), from, count };
            runs += 1;
            match run(fault, disk, plain) {
                Ok(true) => {}
                Ok(false) => break,
                Err(violation) => panic!("{fault:?}: {violation}"),
            }
        }
    }
    runs
}

#[test]
fn a_call_to_the_file_layer_that_fails_once_makes_no_answer_wrong() {
    let runs = all("faults-once", 1);
    println!("faults once: {runs} runs");
    assert!(runs > 200, "{runs}");
}

#[test]
fn calls_to_the_file_layer_that_fail_from_some_point_on_make_no_answer_wrong() {
    let runs = all("faults-on", usize::MAX);
    println!("faults from there on: {runs} runs");
    assert!(runs > 50, "{runs}");
}

/// The check of these runs can fail: a write that is lost without a word does harm, and it sees it.
#[test]
fn a_write_that_is_dropped_and_reported_as_done_is_caught() {
    let (disk, plain) = (Disk::register("faults-drop"), Disk::register("faults-drop-plain"));
    let caught = (20..80).filter(|from| {
        let fault = Fault { call: Call::Write, answer: Answer::Pretend, from: *from, count: 1 };
        run(fault, disk, plain).is_err()
    });
    let caught = caught.count();
    assert!(caught > 10, "{caught} of 60");
}
