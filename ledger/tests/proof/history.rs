//! What many callers in two processes saw of the same keys, and whether one ledger can have told them so.
//!
//! The callers append to one file, a line before each call and a line after its answer. An answer whose line stands before
//! the line of another call was there before that call began, whichever processes they are of.

mod checker;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::thread;

use steady_crash_vfs::Rng;
use steady_ledger::{EffectError, Executed, Ledger, LedgerError, Request, rusqlite};

use crate::amount;
use crate::peer::Peer;
use crate::shop::{key, options, scope};

const DATABASE: &str = "LEDGER_HISTORY_DATABASE";
const SEED: &str = "LEDGER_HISTORY_SEED";
const THREADS: u64 = 4;

/// A caller's end of the history.
struct Witness {
    file: File,
    /// Its name, which no other caller has.
    name: u64,
    calls: u64,
}

impl Witness {
    fn line(&mut self, text: &str) {
        // In one piece, at the end of the file.
        self.file.write_all(format!("{}.{} {text}\n", self.name, self.calls).as_bytes()).unwrap();
    }

    /// A call on a key with arguments of a kind; those of the same kind are equal.
    fn charge(&mut self, ledger: &Ledger, number: u64, kind: usize, fails: bool) {
        self.calls += 1;
        self.line(&format!("invoke charge {number} {kind}"));
        let text = format!(r#"{{"kind":{kind}}}"#);
        let answer: Result<Executed<i64>, LedgerError> =
            ledger.execute(&Request::new(&scope(), &key(number), &text), move |tx| {
                tx.execute("INSERT INTO effect(key, pad, message) VALUES (?1, '', 0)", [format!("order-{number}")])?;
                if fails { Err(EffectError::Abort("planned".into())) } else { Ok(tx.last_insert_rowid()) }
            });
        match answer {
            Ok(Executed::Fresh(id)) => self.line(&format!("ok fresh {id}")),
            Ok(Executed::Replayed(id)) => self.line(&format!("ok replayed {id}")),
            Err(LedgerError::Mismatch) => self.line("fail mismatch"),
            Err(LedgerError::CommitUnknown(_)) => self.line("info"),
            Err(LedgerError::Busy { .. }) => self.line("fail busy"),
            Err(_) => self.line("fail absent"),
        }
    }

    fn look(&mut self, ledger: &Ledger, number: u64) {
        self.calls += 1;
        self.line(&format!("invoke look {number}"));
        match ledger.reconcile(&scope(), &key(number)) {
            Ok(Some(_)) => self.line("ok there"),
            Ok(None) => self.line("ok nothing"),
            Err(_) => self.line("info"),
        }
    }
}

/// Not a test by itself: one of the two processes.
#[test]
fn process_with_callers() {
    let Some(path) = std::env::var_os(DATABASE) else { return };
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let calls = amount("STEADY_HISTORY_CALLS", 120);
    let ledger = Ledger::open(Path::new(&path), options()).unwrap();
    std::io::stdin().read_exact(&mut [0]).unwrap();
    thread::scope(|threads| {
        for client in 0..THREADS {
            let (ledger, path) = (&ledger, &path);
            threads.spawn(move || {
                let log = Path::new(path).with_extension("history");
                let file = OpenOptions::new().append(true).create(true).open(log).unwrap();
                let name = seed * THREADS + client;
                let (mut witness, mut rng) = (Witness { file, name, calls: 0 }, Rng::new(name));
                for step in 0..calls {
                    // All callers move over the same few keys, slowly.
                    let number = (step / 8 + rng.below(4)) as u64;
                    match rng.below(10) {
                        0..3 => witness.look(ledger, number),
                        3 => witness.charge(ledger, number, 1, false),
                        4..6 => witness.charge(ledger, number, 0, true),
                        _ => witness.charge(ledger, number, 0, false),
                    }
                }
            });
        }
    });
    std::io::stdout().write_all(b"\nended\n").unwrap();
}

/// How often each key has its effect, once all is over.
fn effects(path: &Path) -> Vec<(u64, u64)> {
    let ledger = Ledger::open(path, options()).unwrap();
    let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
    let rows = ledger.read(|tx| tx.query("SELECT key, count(*) FROM effect GROUP BY key", [], row)).unwrap();
    let number = |key: &str| key.trim_start_matches("order-").parse().unwrap();
    rows.into_iter().map(|(key, count)| (number(&key), count.unsigned_abs())).collect()
}

#[test]
fn what_two_processes_saw_is_what_one_ledger_can_have_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let spawn = |seed: &str| {
        let variables = [(DATABASE, path.as_os_str()), (SEED, OsStr::new(seed))];
        Peer::spawn("history::process_with_callers", variables)
    };
    // The third is killed in the middle, so that some calls have no answer.
    let [mut one, mut two, mut killed] = ["1", "2", "3"].map(spawn);
    [&mut one, &mut two, &mut killed].into_iter().for_each(Peer::go);
    let log = path.with_extension("history");
    let lines =
        || std::fs::read_to_string(&log).map_or(0, |text| text.lines().filter(|line| line.starts_with("12.")).count());
    while lines() < 40 {
        thread::yield_now();
    }
    killed.kill();
    one.expect("ended");
    two.expect("ended");
    one.join();
    two.join();
    let text = std::fs::read_to_string(&log).unwrap();
    let report = checker::check(&text, &effects(&path)).unwrap_or_else(|violation| panic!("{violation}"));
    println!("history: {report:?}");
    assert!(report.fresh > 10 && report.replayed > 100 && report.mismatch > 10 && report.seen > 50, "{report:?}");
}
