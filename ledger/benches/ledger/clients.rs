//! Clients of a ledger, each with one call under way.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use steady_crash_vfs::Rng;
use steady_ledger::{Durability, EffectError, EffectTx, Executed, Key, Ledger, LedgerError, Options, Request, Scope};

use crate::disk::folder;

/// 200 bytes, as JSON text 202.
const RESULT: usize = 200;
pub(crate) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL) STRICT;
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99) INSERT OR IGNORE INTO account SELECT i, 0 FROM n;
";
pub(crate) const UPDATE: &str = "UPDATE account SET balance = balance + 1 WHERE id = ?1";

/// How one turn of a case went: each second, and each call in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Calls that were refused as busy.
    pub(crate) refused: f64,
}

impl Measured {
    /// The turn of the median rate, but every refusal.
    pub(crate) fn median(turns: &mut [Self]) -> Self {
        turns.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        let p99s = &mut turns.iter().map(|turn| turn.p99).collect::<Vec<_>>();
        p99s.sort_by(f64::total_cmp);
        Self {
            refused: turns.iter().map(|turn| turn.refused).sum(),
            p99: p99s[p99s.len() / 2],
            ..turns[turns.len() / 2]
        }
    }
}

/// Measures a turn.
pub(crate) struct Stopwatch {
    began: Instant,
    laps: Vec<Duration>,
    pub(crate) refused: usize,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), laps: Vec::new(), refused: 0 }
    }

    pub(crate) fn runs(&self, time: Duration) -> bool {
        self.began.elapsed() < time
    }

    pub(crate) fn lap(&mut self, lap: Duration) {
        self.laps.push(lap);
    }

    pub(crate) fn join(&mut self, mut other: Self) {
        self.laps.append(&mut other.laps);
        self.refused += other.refused;
    }

    pub(crate) fn stop(mut self) -> Measured {
        let time = self.began.elapsed().as_secs_f64();
        self.laps.sort();
        let at = |share: usize| self.laps.get(self.laps.len() * share / 100).map_or(f64::NAN, Duration::as_secs_f64);
        Measured { rate: self.laps.len() as f64 / time, p50: at(50), p99: at(99), refused: self.refused as f64 }
    }
}

/// A ledger in a folder of its own.
pub(crate) struct Shop {
    dir: tempfile::TempDir,
    pub(crate) ledger: Ledger,
    next: Cell<u64>,
}

pub(crate) fn scope() -> Scope {
    Scope::new("tenant-1", "charge")
}

/// As scattered as a random UUID, and as long.
pub(crate) fn key(number: u64) -> String {
    let mut rng = Rng::new(number);
    format!("{:016x}{:016x}", rng.next(), rng.next())
}

pub(crate) fn arguments(number: u64) -> String {
    format!(r#"{{"account":{},"amount":"12.00","currency":"EUR","order":{number}}}"#, account(number))
}

/// The account that a call charges.
pub(crate) fn account(number: u64) -> i64 {
    i64::try_from(number % 100).unwrap()
}

fn charge(tx: &mut EffectTx<'_>, number: u64) -> Result<String, EffectError<String>> {
    tx.execute(UPDATE, [account(number)])?;
    Ok("r".repeat(RESULT))
}

type Call = Pin<Box<dyn Future<Output = Result<Executed<String>, LedgerError>> + Send>>;

impl Shop {
    pub(crate) fn new() -> Self {
        Self::with(Durability::Full)
    }

    pub(crate) fn with(durability: Durability) -> Self {
        let dir = tempfile::tempdir_in(folder()).unwrap();
        let options = Options { schema: SCHEMA.into(), durability, ..Options::default() };
        let ledger = Ledger::open(dir.path().join("shop.db"), options).unwrap();
        Self { dir, ledger, next: Cell::new(0) }
    }

    /// A ledger in which this many calls were made.
    pub(crate) fn filled(rows: u64) -> Self {
        let shop = Self::with(Durability::ProcessCrash);
        shop.fill(rows);
        shop
    }

    pub(crate) fn fill(&self, rows: u64) {
        let until = self.next.get() + rows;
        self.keep_busy(256, |_| self.next.get() < until);
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("shop.db")
    }

    fn take_number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    fn call(ledger: &Ledger, number: u64) -> Result<Executed<String>, LedgerError> {
        let (key, text) = (Key::parse(&key(number)).unwrap(), arguments(number));
        ledger.execute(&Request::new(&scope(), &key, &text), move |tx| charge(tx, number))
    }

    fn call_async(&self) -> Call {
        let number = self.take_number();
        let (key, text) = (Key::parse(&key(number)).unwrap(), arguments(number));
        Box::pin(self.ledger.execute_async(&Request::new(&scope(), &key, &text), move |tx| charge(tx, number)))
    }

    /// Threads that call and wait, each again and again.
    pub(crate) fn threads(&self, clients: u64, time: Duration) -> Measured {
        let from = self.next.get();
        let mut all = Stopwatch::start();
        let watches: Vec<_> = thread::scope(|threads| {
            let workers: Vec<_> = (0..clients)
                .map(|client| {
                    let ledger = &self.ledger;
                    threads.spawn(move || {
                        let mut watch = Stopwatch::start();
                        let mut number = from + client;
                        while watch.runs(time) {
                            let began = Instant::now();
                            match Self::call(ledger, number) {
                                Ok(done) => assert!(!done.is_replay()),
                                Err(LedgerError::Busy { .. }) => watch.refused += 1,
                                Err(error) => panic!("{error}"),
                            }
                            watch.lap(began.elapsed());
                            number += clients;
                        }
                        (watch, number)
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        for (watch, number) in watches {
            self.next.set(self.next.get().max(number));
            all.join(watch);
        }
        all.stop()
    }

    /// Clients that wait without a thread of their own.
    pub(crate) fn futures(&self, clients: usize, time: Duration) -> Measured {
        self.keep_busy(clients, |watch| watch.runs(time))
    }

    /// Keeps this many calls under way for as long as `goes_on` says, then waits for them.
    fn keep_busy(&self, clients: usize, goes_on: impl Fn(&Stopwatch) -> bool) -> Measured {
        let (ready, woken) = mpsc::channel();
        let wakers: Vec<Waker> =
            (0..clients).map(|slot| Waker::from(Arc::new(Slot { slot, ready: Mutex::new(ready.clone()) }))).collect();
        let mut watch = Stopwatch::start();
        let mut calls: Vec<_> = (0..clients).map(|_| Some((self.call_async(), Instant::now()))).collect();
        let mut live = clients;
        (0..clients).for_each(|slot| ready.send(slot).unwrap());
        while live > 0 {
            let slot = woken.recv().unwrap();
            let Some((call, began)) = &mut calls[slot] else { continue };
            let Poll::Ready(done) = call.as_mut().poll(&mut Context::from_waker(&wakers[slot])) else { continue };
            assert!(!done.unwrap().is_replay());
            watch.lap(began.elapsed());
            live -= 1;
            calls[slot] = None;
            if goes_on(&watch) {
                calls[slot] = Some((self.call_async(), Instant::now()));
                live += 1;
                ready.send(slot).unwrap();
            }
        }
        watch.stop()
    }

    /// One thread that makes calls that were made before.
    pub(crate) fn replays(&self, time: Duration, seed: u64) -> Measured {
        let (scope, mut rng) = (scope(), Rng::new(seed));
        // What a client has at hand anyway.
        let calls: Vec<_> = (0..10_000)
            .map(|_| {
                let number = rng.next() % self.next.get();
                (number, Key::parse(&key(number)).unwrap(), arguments(number))
            })
            .collect();
        let mut watch = Stopwatch::start();
        'turn: loop {
            for (number, key, text) in &calls {
                if !watch.runs(time) {
                    break 'turn;
                }
                let (began, number) = (Instant::now(), *number);
                let done = self.ledger.execute(&Request::new(&scope, key, text), move |tx| charge(tx, number));
                assert!(done.unwrap().is_replay());
                watch.lap(began.elapsed());
            }
        }
        watch.stop()
    }
}

struct Slot {
    slot: usize,
    ready: Mutex<mpsc::Sender<usize>>,
}

impl Wake for Slot {
    fn wake(self: Arc<Self>) {
        // Nobody listens after the end of a turn.
        let _ended = self.ready.lock().unwrap().send(self.slot);
    }
}
