//! `kill -9` at named points of a process with eight threads: what it told its callers is there, and nothing in halves.
//!
//! The points need no hook in the library: the caller and the effect are the test's own, and the file layer stops the
//! writer where it asks for a write, a sync, or what comes after one.
//!
//! `STEADY_KILLS`: how many processes are killed.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use steady_crash_vfs::{Answer, Asked, Call, Disk, Kind};
use steady_ledger::{Ledger, LedgerError};

use crate::amount;
use crate::check::{Told, Violation, check};
use crate::peer::Peer;
use crate::shop::{self, Fate, News, Receipt, Voice, call_then, carry, fate, toil, walk_in, wire};

const THREADS: u64 = 8;

/// Where a process is killed.
const POINTS: [&str; 9] = [
    "before the claim",
    "after the effect",
    // The log is written in the COMMIT.
    "before the commit is written",
    "before the commit is synced",
    "after the commit",
    "before the acknowledgement",
    "after the send",
    "after the message is sent",
    "after a step of a task",
];

const DATABASE: &str = "LEDGER_KILL_DATABASE";
const POINT: &str = "LEDGER_KILL_POINT";
/// At which passing of the point.
const PASSING: &str = "LEDGER_KILL_PASSING";
/// The number of the first call.
const FIRST: &str = "LEDGER_KILL_FIRST";
/// Set for a process that acknowledges before the commit.
const HASTY: &str = "LEDGER_KILL_HASTY";

/// Says something to the parent, in one piece.
fn say(text: &str) {
    std::io::stdout().write_all(format!("\n{text}\n").as_bytes()).unwrap();
}

/// A point at which this process is to be killed.
struct Trap {
    point: String,
    left: AtomicUsize,
}

/// What the parent hears, in the words of [`read`].
impl Voice for Trap {
    fn say(&self, news: News) {
        say(&match news {
            News::Begun(number) => format!("begun {number}"),
            News::Done(number, None) => format!("done {number} refused"),
            News::Done(number, Some(effect)) => format!("done {number} {effect}"),
            News::Absent(number) => format!("absent {number}"),
            News::WalkInBegun => "begun walk-in".to_owned(),
            News::WalkInDone => "done walk-in".to_owned(),
            News::WalkInAbsent => "absent walk-in".to_owned(),
            News::Posted(number) => format!("posted {number}"),
            News::Delivered(number) => format!("delivered {number}"),
            News::Wired(number) => format!("wired {number}"),
            News::Paid(number) => format!("paid {number}"),
            News::Made(number) => format!("made {number}"),
            News::Stepped(number) => format!("stepped {number}"),
            News::Finished(number) => format!("finished {number}"),
        });
    }

    fn pass(&self, point: &'static str) {
        self.pass_by(point);
    }
}

/// The news in a line, if it is one of them.
fn read(line: &str) -> Option<News> {
    let words: Vec<_> = line.split(' ').collect();
    Some(match words[..] {
        ["begun", "walk-in"] => News::WalkInBegun,
        ["done", "walk-in"] => News::WalkInDone,
        ["absent", "walk-in"] => News::WalkInAbsent,
        ["begun", number] => News::Begun(number.parse().ok()?),
        ["done", number, effect] => News::Done(number.parse().ok()?, effect.parse().ok()),
        ["absent", number] => News::Absent(number.parse().ok()?),
        ["posted", number] => News::Posted(number.parse().ok()?),
        ["delivered", number] => News::Delivered(number.parse().ok()?),
        ["wired", number] => News::Wired(number.parse().ok()?),
        ["paid", number] => News::Paid(number.parse().ok()?),
        ["made", number] => News::Made(number.parse().ok()?),
        ["stepped", number] => News::Stepped(number.parse().ok()?),
        ["finished", number] => News::Finished(number.parse().ok()?),
        _ => return None,
    })
}

impl Trap {
    /// Stays for ever, if this is the point and the passing.
    fn pass_by(&self, point: &str) {
        if point == self.point && self.left.fetch_sub(1, SeqCst) == 1 {
            say(&format!("at {point}"));
            loop {
                thread::park();
            }
        }
    }
}

/// Not a test by itself: a process that works until it is killed.
#[test]
fn process_to_kill() {
    let Some(path) = std::env::var_os(DATABASE) else { return };
    let text = |name| std::env::var(name).unwrap();
    let (first, hasty) = (text(FIRST).parse::<u64>().unwrap(), std::env::var_os(HASTY).is_some());
    let trap = Trap { point: text(POINT), left: AtomicUsize::new(text(PASSING).parse().unwrap()) };
    let trap: &'static Trap = Box::leak(Box::new(trap));
    // One thread that fails must not leave the others at work for ever.
    std::panic::set_hook(Box::new(|panic| {
        say(&format!("failed {panic}"));
        std::process::exit(1);
    }));
    let disk = Disk::register("killed");
    let ledger = Ledger::open(Path::new(&path), shop::on(disk)).unwrap();
    let committed = AtomicUsize::new(0);
    disk.ask(move |asked| {
        // The first thing that SQLite asks for after the sync of a commit.
        if committed.swap(0, SeqCst) == 1 {
            trap.pass("after the commit");
        }
        match asked {
            Asked { call: Call::Write, file: Kind::Wal } => trap.pass("before the commit is written"),
            Asked { call: Call::Sync, file: Kind::Wal } => {
                trap.pass("before the commit is synced");
                committed.store(1, SeqCst);
            }
            Asked { .. } => {}
        }
        Answer::Do
    });
    thread::scope(|threads| {
        for client in 0..THREADS {
            let ledger = &ledger;
            threads.spawn(move || {
                for number in (first + client..).step_by(usize::try_from(THREADS).unwrap()) {
                    one_call(ledger, number, trap, hasty);
                }
            });
        }
    });
}

fn one_call(ledger: &Ledger, number: u64, trap: &'static Trap, hasty: bool) {
    trap.pass("before the claim");
    trap.say(News::Begun(number));
    let acknowledge = move |receipt: &Receipt| trap.say(News::Done(number, receipt.effect));
    let done = call_then(ledger, number, false, move |receipt| {
        if hasty {
            acknowledge(receipt);
        }
        trap.pass("after the effect");
    });
    match done {
        Ok(done) => {
            trap.pass("before the acknowledgement");
            acknowledge(&done.into_inner());
        }
        Err(LedgerError::Aborted(_)) => assert_eq!(fate(number), Fate::Abort),
        Err(error) => panic!("{error}"),
    }
    if number.is_multiple_of(7) {
        trap.say(News::WalkInBegun);
        walk_in(ledger).unwrap();
        trap.say(News::WalkInDone);
    }
    if number.is_multiple_of(2) {
        wire(ledger, number, trap).unwrap();
        carry(ledger, trap).unwrap();
    } else {
        toil(ledger, number, trap).unwrap();
    }
}

/// Starts a process, kills it at the point, and hears what it said to the end.
fn kill_one(path: &Path, point: &str, passing: usize, first: u64, hasty: bool, told: &mut Told) {
    let (passing, first) = (passing.to_string(), first.to_string());
    let mut variables: BTreeMap<&str, OsString> = BTreeMap::new();
    variables.insert(DATABASE, path.into());
    variables.extend([(POINT, point.into()), (PASSING, passing.into()), (FIRST, first.into())]);
    if hasty {
        variables.insert(HASTY, "yes".into());
    }
    let variables = variables.iter().map(|(name, value)| (*name, OsStr::new(value)));
    let mut peer = Peer::spawn("kill::process_to_kill", variables);
    let mut alive = true;
    while let Some(line) = peer.line() {
        if let Some(found) = line.strip_prefix("at ") {
            assert_eq!(found, point);
            peer.kill();
            alive = false;
        }
        assert!(!line.starts_with("failed "), "{line}");
        read(&line).into_iter().for_each(|news| told.hear(news));
    }
    assert!(!alive, "the process ended before it came to {point:?}");
}

/// Kills processes one after another, all on one file. Checks it after each, and at the end all that was ever told.
fn kill_all(kills: usize, points: &[&str], hasty: bool) -> Result<usize, Violation> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let plain = Disk::register(if hasty { "kill-hasty-plain" } else { "kill-plain" });
    let mut all = Told::default();
    for kill in 0..kills {
        let mut told = Told { walk_ins: all.walk_ins, posted: all.posted.clone(), ..Told::default() };
        let first = all.begun.last().map_or(0, |last| last + 1);
        kill_one(&path, points[kill % points.len()], 1 + kill * 7 % 20, first, hasty, &mut told);
        check(&path, Some(plain), &told)?;
        all.walk_ins = (0, 0);
        all.absorb(told);
    }
    // The checks above have gone on where the processes had failed.
    all.begun.clear();
    check(&path, Some(plain), &all)?;
    Ok(all.receipts.len())
}

#[test]
fn a_killed_process_has_kept_what_it_acknowledged_whatever_it_was_doing() {
    let kills = amount("STEADY_KILLS", 204);
    let acknowledged = kill_all(kills, &POINTS, false).unwrap_or_else(|violation| panic!("{violation}"));
    println!("killed: {kills} processes, {acknowledged} acknowledged calls");
    assert!(kills >= 200 && acknowledged > kills, "{acknowledged} acknowledged calls");
}

#[test]
fn a_process_that_acknowledges_before_its_commit_is_caught() {
    for point in &POINTS[1..3] {
        let found = kill_all(6, &[point], true);
        assert!(matches!(found, Err(Violation::Lost(_) | Violation::Wrong(_))), "{point}: {found:?}");
    }
}
