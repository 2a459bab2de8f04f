//! A power cut at every write and sync: what was acknowledged is there, and nothing is there in halves.
//!
//! `STEADY_CRASH_IMAGES`: at least how many images are made and checked.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use steady_crash_vfs::{Answer, Asked, Call, Cut, Disk, Event, Image, Kind, images};
use steady_ledger::rusqlite::ffi;
use steady_ledger::{Durability, Ledger, LedgerError, Options};

use crate::amount;
use crate::check::{Told, Violation, check};
use crate::shop::{Fate, News, Voice, call, carry, fate, on, stranger, toil, walk_in, wire};

/// Clients of a recorded run.
const CLIENTS: u64 = 4;

/// A run of calls: what reached the disk, and as many notes as there are news, each in its place.
struct Run {
    events: Vec<Event>,
    news: Vec<News>,
}

impl Run {
    /// What was told before this many notes.
    fn told(&self, notes: usize) -> Told {
        let mut told = Told::default();
        self.news.iter().take(notes).for_each(|news| told.hear(*news));
        told
    }
}

/// Writes down the news, each at its place among what reaches the disk.
struct Recorder {
    disk: Disk,
    news: Mutex<Vec<News>>,
}

impl Voice for Recorder {
    fn say(&self, news: News) {
        let mut all = self.news.lock().unwrap();
        all.push(news);
        self.disk.note(0);
    }
}

impl Recorder {
    fn start(disk: Disk) -> Self {
        disk.record();
        Self { disk, news: Mutex::default() }
    }

    fn end(self) -> Run {
        Run { events: self.disk.recorded(), news: self.news.into_inner().unwrap() }
    }
}

/// Opens a ledger, makes calls from some threads, closes it, opens it again, and so on; checkpoints come in between.
fn record(disk: Disk, options: &Options, rounds: u64, calls: u64) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let recorder = Recorder::start(disk);
    for round in 0..rounds {
        let ledger = Ledger::open(&path, options.clone()).unwrap();
        let from = round * calls;
        thread::scope(|threads| {
            for client in 0..CLIENTS {
                let (ledger, recorder) = (&ledger, &recorder);
                threads.spawn(move || {
                    for number in (from..from + calls).filter(|number| number % CLIENTS == client) {
                        client_calls(ledger, number, recorder);
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
    recorder.end()
}

fn client_calls(ledger: &Ledger, number: u64, recorder: &Recorder) {
    recorder.say(News::Begun(number));
    match call(ledger, number, false) {
        Ok(done) => recorder.say(News::Done(number, done.into_inner().effect)),
        Err(LedgerError::Aborted(_)) => assert_eq!(fate(number), Fate::Abort),
        Err(error) => panic!("{error}"),
    }
    if number.is_multiple_of(5) {
        recorder.say(News::WalkInBegun);
        walk_in(ledger).unwrap();
        recorder.say(News::WalkInDone);
    }
    if number.is_multiple_of(3) {
        wire(ledger, number, recorder).unwrap();
        carry(ledger, recorder).unwrap();
    }
    if number % 3 == 1 {
        toil(ledger, number, recorder).unwrap();
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

    /// Checks every so many images of those that were cut at this event or later. Two threads share them. Each cut has four
    /// images: an odd number takes its turn through all kinds.
    fn check_some(&mut self, run: &Run, plain: Disk, seed: u64, from: usize, every: usize) {
        let halves: Vec<Self> = thread::scope(|threads| {
            let workers: Vec<_> = (0..2)
                .map(|half| {
                    threads.spawn(move || {
                        let (mut tally, mut place) = (Self::default(), 0);
                        let folder = tempfile::tempdir().unwrap();
                        images(&run.events, seed, |at, build| {
                            if at < from {
                                return;
                            }
                            place += 1;
                            if place % (2 * every) == half * every {
                                tally.check(run, &build(), folder.path(), plain);
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
        let run = record(disk, &on(disk), 2, 8);
        tally.check_some(&run, plain, seed, 0, 3);
    }
    println!("crash images: {} {:?}", tally.images, tally.by_cut);
    assert!(tally.violations.is_empty(), "{} of {}: {:?}", tally.violations.len(), tally.images, tally.violations[0]);
    assert!(tally.images >= 1000 && tally.by_cut.iter().all(|count| *count > 50), "{:?}", tally.by_cut);
}

#[test]
fn the_same_search_finds_what_a_disk_loses_that_lies_about_syncs() {
    let (disk, plain) = (Disk::register("crash-lies"), Disk::register("crash-lies-plain"));
    disk.ask(|asked| if asked.call == Call::Sync { Answer::Pretend } else { Answer::Do });
    let run = record(disk, &on(disk), 2, 8);
    let mut tally = Tally::default();
    tally.check_some(&run, plain, 1, 0, 5);
    let lost = tally.count(|violation| matches!(violation, Violation::Lost(_)));
    let broken = tally.count(|violation| matches!(violation, Violation::Half(_) | Violation::Unusable(_)));
    println!("lying syncs: {} images, {lost} lost, {broken} broken", tally.images);
    assert!(lost > 20 && broken > 0, "{lost} lost, {broken} broken of {}", tally.images);
}

#[test]
fn the_same_search_finds_what_the_weaker_durability_loses() {
    let (disk, plain) = (Disk::register("crash-normal"), Disk::register("crash-normal-plain"));
    let options = Options { durability: Durability::ProcessCrash, ..on(disk) };
    let run = record(disk, &options, 2, 8);
    let mut tally = Tally::default();
    tally.check_some(&run, plain, 1, 0, 5);
    let lost = tally.count(|violation| matches!(violation, Violation::Lost(_)));
    println!("ProcessCrash: {} images, {lost} lost", tally.images);
    assert!(lost > 10, "{lost} of {}", tally.images);
    // It is documented to lose, and then to run again, not to break.
    let is_loss =
        |found: &Violation| matches!(found, Violation::Lost(_) | Violation::Twice(_) | Violation::SentAgain(_));
    let others: Vec<_> = tally.violations.iter().filter(|(_, found)| !is_loss(found)).collect();
    assert!(others.is_empty(), "{:?}", others[0]);
}

/// A process dies between writing to the log and syncing it. The next one finds the commit in the log, and answers from
/// it; then the power is cut.
#[test]
fn what_a_killed_process_left_unsynced_is_synced_before_it_is_answered() {
    let (disk, plain) = (Disk::register("crash-killed"), Disk::register("crash-killed-plain"));
    let first = record(disk, &on(disk), 1, 6);
    let mut killed = Vec::new();
    images(&first.events, 1, |at, build| {
        // What is in the log whole, and not synced yet.
        let syncs_next = matches!(first.events.get(at + 1), Some(Event::Sync { file }) if file.ends_with("-wal"));
        if syncs_next {
            killed.extend(Some(build()).filter(|image| image.cut == Cut::Kept));
        }
    });
    let mut tally = Tally::default();
    for (seed, image) in (0..).zip(killed) {
        let folder = tempfile::tempdir().unwrap();
        image.write(folder.path()).unwrap();
        let told = first.told(image.notes);
        let recorder = Recorder::start(disk);
        {
            let ledger = Ledger::open(folder.path().join("shop.db"), on(disk)).unwrap();
            for &number in told.begun.difference(&told.receipts.keys().copied().collect()) {
                match call(&ledger, number, false) {
                    Ok(done) => recorder.say(News::Done(number, done.into_inner().effect)),
                    Err(LedgerError::Aborted(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            ledger.close().unwrap();
        }
        // The events after the kill are those of another process; what was pending on the disk still is.
        let second = recorder.end();
        let events = [&first.events[..=image.at], &second.events].concat();
        let news = [&first.news[..image.notes], &second.news].concat();
        tally.check_some(&Run { events, news }, plain, seed, image.at + 1, 3);
    }
    println!("killed, then cut: {} images", tally.images);
    assert!(tally.violations.is_empty(), "{} of {}: {:?}", tally.violations.len(), tally.images, tally.violations[0]);
}

/// A sync that fails can lose what it should have kept, and the next one says nothing of it.
#[test]
fn a_failed_sync_loses_nothing_that_was_acknowledged() {
    let (disk, plain) = (Disk::register("crash-fsync"), Disk::register("crash-fsync-plain"));
    let mut tally = Tally::default();
    for failing in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::start(disk);
        let ledger = Ledger::open(dir.path().join("shop.db"), on(disk)).unwrap();
        let left = std::sync::atomic::AtomicUsize::new(failing);
        disk.ask(move |Asked { call, file }| {
            let counts = call == Call::Sync && file == Kind::Wal;
            let fails = counts && left.fetch_update(SeqCst, SeqCst, |left| Some(left.wrapping_sub(1))) == Ok(0);
            if fails { Answer::Fail(ffi::SQLITE_IOERR_FSYNC) } else { Answer::Do }
        });
        for number in (0..10).filter(|number| fate(*number) != Fate::Abort) {
            recorder.say(News::Begun(number));
            // A client tries again until it has an answer.
            let answers = std::iter::repeat_with(|| call(&ledger, number, true)).take(5);
            let answer = answers.filter_map(Result::ok).next().expect("one sync fails only");
            recorder.say(News::Done(number, answer.into_inner().effect));
        }
        disk.ask_nobody();
        drop(ledger);
        tally.check_some(&recorder.end(), plain, failing as u64, 0, 11);
    }
    println!("failed syncs: {} images", tally.images);
    assert!(tally.violations.is_empty(), "{} of {}: {:?}", tally.violations.len(), tally.images, tally.violations[0]);
}
