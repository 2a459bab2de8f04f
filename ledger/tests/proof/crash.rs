//! A power cut at every write and sync: what was acknowledged is there, and nothing is there in halves.
//!
//! `STEADY_CRASH_IMAGES`: at least how many images are made and checked.

use std::path::Path;
use std::sync::Mutex;
use std::thread;

use steady_crash_vfs::{Answer, Call, Cut, Disk, Event, Image, Rng, images};
use steady_ledger::{Durability, Ledger, LedgerError, Options};

use crate::amount;
use crate::check::{Told, Violation, check};
use crate::shop::{Fate, Receipt, call, fate, on, stranger, walk_in};

/// Clients of a recorded run.
const CLIENTS: u64 = 4;
/// A note that a call without a key began, and that one was acknowledged. Other notes are even for the beginning of the
/// call of half the number, and odd for its end.
const WALK_IN_BEGAN: u64 = u64::MAX - 1;
const WALK_IN_ENDED: u64 = u64::MAX;

/// A run of calls, and what was told to whom, when.
struct Run {
    events: Vec<Event>,
    receipts: Vec<(u64, Receipt)>,
}

impl Run {
    /// What was told before this many notes.
    fn told(&self, notes: usize) -> Told {
        let mut told = Told::default();
        for note in self.events.iter().filter_map(note).take(notes) {
            match note {
                WALK_IN_BEGAN => told.walk_ins.0 += 1,
                WALK_IN_ENDED => told.walk_ins.1 += 1,
                begun if begun % 2 == 0 => drop(told.begun.insert(begun / 2)),
                ended => {
                    let receipt = self.receipts.iter().find(|(number, _)| *number == ended / 2);
                    told.receipts.extend(receipt.cloned());
                }
            }
        }
        told
    }
}

fn note(event: &Event) -> Option<u64> {
    match event {
        Event::Note(note) => Some(*note),
        Event::Write { .. }
        | Event::Truncate { .. }
        | Event::Sync { .. }
        | Event::LostSync { .. }
        | Event::Delete { .. } => None,
    }
}

/// Opens a ledger, makes calls from some threads, closes it, opens it again, and so on; checkpoints come in between.
fn record(disk: Disk, options: &Options, rounds: u64, calls: u64) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let receipts = Mutex::default();
    disk.record();
    for round in 0..rounds {
        let ledger = Ledger::open(&path, options.clone()).unwrap();
        let from = round * calls;
        thread::scope(|threads| {
            for client in 0..CLIENTS {
                let (ledger, receipts) = (&ledger, &receipts);
                threads.spawn(move || {
                    for number in (from..from + calls).filter(|number| number % CLIENTS == client) {
                        client_calls(disk, ledger, number, receipts);
                    }
                });
            }
            // Held open, so that the log is not taken in at the end of each mode.
            let tables = stranger(&path, Some(disk)).unwrap();
            for mode in ["PASSIVE", "RESTART", "TRUNCATE", "PASSIVE"] {
                let sql = format!("PRAGMA wal_checkpoint({mode})");
                tables.query_row(&sql, [], |_| Ok(())).unwrap();
                thread::yield_now();
            }
        });
        ledger.close().unwrap();
    }
    Run { events: disk.recorded(), receipts: receipts.into_inner().unwrap() }
}

fn client_calls(disk: Disk, ledger: &Ledger, number: u64, receipts: &Mutex<Vec<(u64, Receipt)>>) {
    disk.note(number * 2);
    match call(ledger, number, false) {
        Ok(done) => {
            receipts.lock().unwrap().push((number, done.into_inner()));
            disk.note(number * 2 + 1);
        }
        Err(LedgerError::Aborted(_)) => assert_eq!(fate(number), Fate::Abort),
        Err(error) => panic!("{error}"),
    }
    if number.is_multiple_of(5) {
        disk.note(WALK_IN_BEGAN);
        walk_in(ledger).unwrap();
        disk.note(WALK_IN_ENDED);
    }
}

/// How the images of some runs fared.
#[derive(Debug, Default)]
struct Tally {
    images: usize,
    by_cut: [usize; 4],
    violations: Vec<(Cut, Violation)>,
}

impl Tally {
    fn count(&self, of: fn(&Violation) -> bool) -> usize {
        self.violations.iter().filter(|(_, violation)| of(violation)).count()
    }

    fn check(&mut self, run: &Run, image: &Image, folder: &Path, plain: Disk) {
        self.images += 1;
        self.by_cut[image.cut as usize] += 1;
        image.write(folder).unwrap();
        if let Err(violation) = check(&folder.join("shop.db"), Some(plain), &run.told(image.notes)) {
            self.violations.push((image.cut, violation));
        }
    }

    /// Two threads share the images of a run.
    fn check_all(&mut self, run: &Run, plain: Disk, seed: u64, from: usize) {
        let halves: Vec<Self> = thread::scope(|threads| {
            let workers: Vec<_> = (0..2)
                .map(|half| {
                    threads.spawn(move || {
                        let (mut tally, mut place) = (Self::default(), 0);
                        let folder = tempfile::tempdir().unwrap();
                        images(&run.events, seed, |build| {
                            place += 1;
                            if place % 2 == half {
                                let image = build();
                                if image.at >= from {
                                    tally.check(run, &image, folder.path(), plain);
                                }
                            }
                        });
                        tally
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        for half in halves {
            self.images += half.images;
            self.by_cut.iter_mut().zip(half.by_cut).for_each(|(all, more)| *all += more);
            self.violations.extend(half.violations);
        }
    }
}

#[test]
fn a_power_cut_loses_nothing_that_was_acknowledged_and_leaves_no_half() {
    let (disk, plain) = (Disk::register("crash-full"), Disk::register("crash-full-plain"));
    let wanted = amount("STEADY_CRASH_IMAGES", 1000);
    let mut tally = Tally::default();
    for seed in 0.. {
        if tally.images >= wanted {
            break;
        }
        let run = record(disk, &on(disk), 2, 12);
        tally.check_all(&run, plain, seed, 0);
    }
    println!("crash images: {} {:?}", tally.images, tally.by_cut);
    assert!(tally.violations.is_empty(), "{} of {}: {:?}", tally.violations.len(), tally.images, tally.violations[0]);
    assert!(tally.images >= 1000 && tally.by_cut.iter().all(|count| *count > 50), "{:?}", tally.by_cut);
}
