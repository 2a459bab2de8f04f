//! Servers that lose their power, connections that are cut, and replicas that are killed, while others go on; and what the
//! callers of all of them were told.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use steady_crash_vfs::Rng;
use steady_ledger::tokio_postgres::types::Type;
use steady_ledger::{EffectError, Executed, LedgerError, PgLedger, PgOptions, PgTx, Request};

use crate::cluster::{Cluster, skip};
use crate::history::{Heard, Row, check};
use crate::peer::Peer;
use crate::shop::{key, number, scope, stranger};
use crate::{amount, runtime};

pub(crate) const CONFIG: &str = "LEDGER_PG_CONFIG";
pub(crate) const LOG: &str = "LEDGER_PG_LOG";
pub(crate) const NAME: &str = "LEDGER_PG_NAME";
pub(crate) const FIRST: &str = "LEDGER_PG_FIRST";
const POINT: &str = "LEDGER_PG_POINT";
const PASSING: &str = "LEDGER_PG_PASSING";
pub(crate) const HASTY: &str = "LEDGER_PG_HASTY";

/// Callers in one process.
const WORKERS: usize = 4;

/// Where a replica is killed. At the last one it ends itself, at a random moment about the commit.
const POINTS: [&str; 5] =
    ["before the claim", "in the effect", "after the effect", "before the answer is told", "about the commit"];

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS account(id bigint PRIMARY KEY, balance bigint NOT NULL);
    INSERT INTO account SELECT id, 0 FROM generate_series(0, 7) AS id ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS effect(id bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL, call text NOT NULL,
                                      paid boolean NOT NULL DEFAULT true);
";

fn options() -> PgOptions {
    PgOptions { schema: SCHEMA.into(), busy_timeout: Duration::from_secs(20), ..PgOptions::default() }
}

/// Stops the process where it is to be killed.
pub(crate) struct Trap {
    point: String,
    left: AtomicUsize,
}

impl Trap {
    /// The one that this process was given.
    pub(crate) fn of_process() -> Self {
        let text = |name: &str| std::env::var(name).unwrap_or_default();
        Self { point: text(POINT), left: AtomicUsize::new(text(PASSING).parse().unwrap()) }
    }

    /// Whether this is the place, and the time.
    fn is_sprung(&self, point: &str) -> bool {
        point == self.point && self.left.fetch_sub(1, Ordering::SeqCst) == 1
    }

    pub(crate) fn pass(&self, point: &str) {
        if self.is_sprung(point) {
            println!("at {point}");
            loop {
                thread::park();
            }
        }
    }

    /// Ends the process in a moment, as `kill -9` does.
    pub(crate) fn pass_soon(&self, point: &str, micros: u64) {
        if self.is_sprung(point) {
            thread::spawn(move || {
                thread::sleep(Duration::from_micros(micros));
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
            });
        }
    }
}

/// Writes a line in one piece.
pub(crate) fn line(mut log: &File, text: &str) {
    log.write_all(format!("{text}\n").as_bytes()).unwrap();
}

async fn charge(
    tx: &mut PgTx<'_>,
    (key, call): (&str, &str),
    trap: &Trap,
    micros: u64,
) -> Result<i64, EffectError<i64>> {
    let account = i64::try_from(micros % 8).unwrap_or(0);
    tx.execute("UPDATE account SET balance = balance + 1 WHERE id = $1", &[(&account, Type::INT8)]).await?;
    trap.pass("in the effect");
    let sql = "INSERT INTO effect(key, call) VALUES ($1, $2) RETURNING id";
    let row = tx.query_opt(sql, &[(&key, Type::TEXT), (&call, Type::TEXT)]).await?;
    trap.pass("after the effect");
    trap.pass_soon(POINTS[4], micros);
    Ok(row.map_or(0, |row| row.get(0)))
}

/// What a caller was told.
fn heard(answer: &Result<Executed<i64>, LedgerError>) -> Heard {
    match answer {
        Ok(Executed::Fresh(row)) => Heard::Fresh(*row),
        Ok(Executed::Replayed(row)) => Heard::Replayed(*row),
        Err(LedgerError::CommitUnknown(_)) => Heard::Unknown,
        Err(_) => Heard::Absent,
    }
}

/// Not a test by itself: a replica, until it is killed.
#[test]
fn process_that_is_a_replica() {
    let Ok(config) = std::env::var(CONFIG) else { return };
    let text = |name: &str| std::env::var(name).unwrap_or_default();
    let (name, first): (String, usize) = (text(NAME), text(FIRST).parse().unwrap());
    let trap: &'static Trap = Box::leak(Box::new(Trap::of_process()));
    let hasty = std::env::var_os(HASTY).is_some();
    let log = OpenOptions::new().append(true).create(true).open(text(LOG)).unwrap();
    let log: &'static File = Box::leak(Box::new(log));
    runtime().block_on(async {
        // Some are patient with a commit that nobody answers for, and some say at once that it is unknown.
        let commit_time = if first % 3 == 0 { Duration::ZERO } else { PgOptions::default().commit_time };
        let ledger = loop {
            // The server may be down.
            if let Ok(ledger) = PgLedger::open(&config, PgOptions { commit_time, ..options() }).await {
                break ledger;
            }
            pause().await;
        };
        let mut workers = Vec::new();
        for worker in 0..WORKERS {
            let (ledger, name) = (ledger.clone(), name.clone());
            workers.push(tokio::spawn(async move {
                let seed = name.bytes().fold(worker as u64, |seed, byte| seed.wrapping_mul(31) + u64::from(byte));
                let mut rng = Rng::new(seed);
                for step in 0.. {
                    // All callers move over the same few keys, slowly.
                    let text = format!("order-{}", first + step / 6 + rng.below(4));
                    work(&ledger, (&text, &format!("{name}.{worker}.{step}")), (log, trap, hasty), &mut rng).await;
                }
            }));
        }
        for worker in workers {
            worker.await.unwrap();
        }
    });
}

/// A client's pause before it tries again; nothing waits for it.
pub(crate) async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn work(ledger: &PgLedger, (text, call): (&str, &str), (log, trap, hasty): (&File, &Trap, bool), rng: &mut Rng) {
    let (scope, key) = (scope(), key(text));
    trap.pass("before the claim");
    line(log, &format!("{call} invoke {text}"));
    if rng.below(5) == 0 {
        let found = ledger.reconcile(&scope, &key).await;
        let heard = match found {
            Ok(Some(_)) => Heard::There,
            Ok(None) => Heard::Nothing,
            Err(_) => Heard::Absent,
        };
        return line(log, &format!("{call} heard {heard}"));
    }
    let micros = rng.below(6000) as u64;
    let request = Request::new(&scope, &key, "{}");
    if !hasty && rng.below(3) == 0 {
        // The same key in the form of one statement.
        trap.pass_soon(POINTS[4], micros);
        let sql = "INSERT INTO effect(key, call, paid) VALUES ($1, $2, false) RETURNING id AS result";
        let answer = ledger.execute_sql(&request, sql, &[(&text, Type::TEXT), (&call, Type::TEXT)]).await;
        trap.pass("before the answer is told");
        line(log, &format!("{call} heard {}", heard(&answer)));
        if answer.is_err() {
            pause().await;
        }
        return;
    }
    let answer = ledger.execute(&request, |tx| {
        Box::pin(async move {
            let row = charge(tx, (text, call), trap, micros).await?;
            if hasty {
                line(log, &format!("{call} heard fresh {row}"));
            }
            Ok(row)
        })
    });
    let answer = answer.await;
    trap.pass("before the answer is told");
    if !hasty {
        line(log, &format!("{call} heard {}", heard(&answer)));
    }
    if answer.is_err() {
        pause().await;
    }
}

/// A replica that runs the test of this name, from the last number on that follows this text in the log.
pub(crate) fn spawn(
    (test, text): (&str, &str),
    config: &str,
    log: &Path,
    name: &str,
    (point, passing): (&str, usize),
    hasty: bool,
) -> Peer {
    let last = fs::read_to_string(log).unwrap_or_default();
    let numbers = last.lines().filter_map(|line| line.rsplit_once(text)?.1.parse::<usize>().ok());
    let (first, passing) = (numbers.max().unwrap_or(0).to_string(), passing.to_string());
    let mut variables: Vec<(&str, &OsStr)> = vec![
        (CONFIG, config.as_ref()),
        (LOG, log.as_ref()),
        (NAME, name.as_ref()),
        (FIRST, first.as_ref()),
        (POINT, point.as_ref()),
        (PASSING, passing.as_ref()),
    ];
    if hasty {
        variables.push((HASTY, "yes".as_ref()));
    }
    Peer::spawn(test, variables)
}

const PART: (&str, &str) = ("loss::process_that_is_a_replica", "order-");

/// Starts a replica and ends it at its point.
fn kill_one(config: &str, log: &Path, name: &str, round: usize, hasty: bool) {
    let mut peer = spawn(PART, config, log, name, (POINTS[round % POINTS.len()], 1 + round * 7 % 23), hasty);
    while let Some(found) = peer.line() {
        if found.starts_with("at ") {
            break;
        }
    }
    peer.kill();
}

/// What the database holds, once nobody is at work on it.
async fn contents(config: &str) -> (Vec<Row>, BTreeSet<String>) {
    let client = stranger(config).await;
    let rows = client.query("SELECT id, key, call FROM effect ORDER BY id", &[]).await.unwrap();
    let rows = rows.iter().map(|row| Row { id: row.get(0), key: row.get(1), call: row.get(2) }).collect();
    let keys = client.query("SELECT key FROM ledger_key WHERE state = 2", &[]).await.unwrap();
    (rows, keys.iter().map(|row| row.get(0)).collect())
}

fn read(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap();
    // A killed process may have written half a line, at the very end of its life.
    text.lines().filter(|line| line.contains(" invoke order-") || line.contains(" heard ")).map(str::to_owned).collect()
}

/// Two cuts of connections for each power cut of the server.
pub(crate) fn disturb(cluster: &Cluster, config: &str, rounds: usize, log: &Path) {
    let runtime = runtime();
    let mut rng = Rng::new(7);
    let mut lines = 0;
    for round in 0..rounds {
        // Somebody has got something done since the last one.
        while fs::read_to_string(log).map_or(0, |text| text.lines().count()) < lines + 5 {
            thread::yield_now();
        }
        if round % 8 == 7 {
            cluster.down();
            cluster.up();
        } else {
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                       WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid % 3 = ";
            let sql = format!("{sql} {}", rng.below(3));
            runtime.block_on(async { stranger(config).await.batch_execute(&sql).await.unwrap() });
        }
        lines = fs::read_to_string(log).map_or(0, |text| text.lines().count());
    }
}

#[test]
fn nothing_is_lost_or_repeated_while_servers_connections_and_replicas_are_killed() {
    let name = "nothing_is_lost_or_repeated_while_servers_connections_and_replicas_are_killed";
    let Some(cluster) = Cluster::start() else { return skip(name, "PostgreSQL with its server programs") };
    let config = cluster.config("postgres");
    let kills = amount("STEADY_PG_KILLS", 120);
    let cuts = amount("STEADY_PG_CUTS", 96);
    assert!(kills + cuts >= 200);
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("history");
    runtime().block_on(PgLedger::open(&config, options())).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|threads| {
        let slots: Vec<_> = (0..3)
            .map(|slot| {
                let (config, log) = (&config, &log);
                threads.spawn(move || {
                    for round in (slot..kills).step_by(3) {
                        kill_one(config, log, &format!("r{round}"), round, false);
                    }
                })
            })
            .collect();
        // One that goes on until the others are done, so that something is always under way.
        let (steady, is_done) = (&log, &done);
        let config = &config;
        let lasting = threads.spawn(move || {
            let mut peer = spawn(PART, config, steady, "steady", ("never", usize::MAX), false);
            while !is_done.load(Ordering::SeqCst) {
                thread::yield_now();
                thread::park_timeout(Duration::from_millis(20));
            }
            peer.kill();
        });
        disturb(&cluster, config, cuts, &log);
        slots.into_iter().for_each(|slot| slot.join().unwrap());
        done.store(true, Ordering::SeqCst);
        lasting.join().unwrap();
    });
    cluster.down();
    cluster.up();
    runtime().block_on(async {
        let (rows, committed) = contents(&config).await;
        let lines = read(&log);
        let counts = check(&lines, &rows, &committed).unwrap_or_else(|violation| panic!("{violation:?}"));
        println!("{kills} replicas killed, {cuts} cuts of connections and power: {counts:?}");
        assert!(counts.fresh > kills && counts.replayed > 0 && counts.silent > 0, "{counts:?}");
        let paid = number(&config, "SELECT count(*) FROM effect WHERE paid").await;
        assert!(paid > 0 && usize::try_from(paid).unwrap() < rows.len(), "both forms ran");
        let sum = number(&config, "SELECT sum(balance)::bigint FROM account").await;
        assert_eq!(sum, paid, "no effect is there in part");
        // Every key is answered now, with the row that it has.
        let ledger = PgLedger::open(&config, options()).await.unwrap();
        for row in &rows {
            let key = key(&row.key);
            let again = ledger.execute(&Request::new(&scope(), &key, "{}"), |_| Box::pin(async { Ok(0) })).await;
            assert!(matches!(again, Ok(Executed::Replayed(id)) if id == row.id), "{row:?}: {again:?}");
        }
        assert!(ledger.check(|_, _| {}).await.unwrap().is_sound());
    });
}

/// The test of the test: a replica that tells its answer before the commit.
#[test]
fn a_replica_that_answers_before_its_commit_is_caught() {
    let name = "a_replica_that_answers_before_its_commit_is_caught";
    let Some(cluster) = Cluster::start() else { return skip(name, "PostgreSQL with its server programs") };
    let config = cluster.config("postgres");
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("history");
    runtime().block_on(PgLedger::open(&config, options())).unwrap();
    for round in 0..60 {
        kill_one(&config, &log, &format!("r{round}"), if round % 2 == 0 { 2 } else { 4 }, true);
        let (rows, committed) = runtime().block_on(contents(&config));
        // A server process may still be at the commit of one that is gone: that is no lie yet.
        if check(&read(&log), &rows, &committed).is_err() {
            let again = runtime().block_on(async {
                number(&config, "SELECT count(*) FROM (SELECT pg_advisory_lock(0)) AS x").await;
                contents(&config).await
            });
            if check(&read(&log), &again.0, &again.1).is_err() {
                return;
            }
        }
    }
    panic!("nobody noticed");
}

/// Not a test by itself: some of the sixteen.
#[test]
fn process_with_four_of_sixteen() {
    let Ok(config) = std::env::var("LEDGER_PG_SIXTEEN") else { return };
    runtime().block_on(async {
        let ledger = PgLedger::open(&config, options()).await.unwrap();
        println!("ready");
        let mut go = [0];
        std::io::Read::read_exact(&mut std::io::stdin(), &mut go).unwrap();
        let trap: Arc<Trap> = Arc::new(Trap { point: String::new(), left: AtomicUsize::new(0) });
        for number in 0..25 {
            let mut workers = Vec::new();
            for worker in 0..WORKERS {
                let (ledger, trap) = (ledger.clone(), Arc::clone(&trap));
                workers.push(tokio::spawn(async move {
                    let (text, scope) = (format!("order-{number}"), scope());
                    let (key, call) = (key(&text), format!("{}.{worker}", std::process::id()));
                    let request = Request::new(&scope, &key, "{}");
                    loop {
                        let answer =
                            ledger.execute(&request, |tx| Box::pin(charge(tx, (&text, &call), &trap, 0))).await;
                        match answer {
                            Err(LedgerError::InFlight { .. }) => tokio::task::yield_now().await,
                            answer => break heard(&answer),
                        }
                    }
                }));
            }
            for worker in workers {
                println!("told {number} {}", worker.await.unwrap());
            }
        }
        println!("end");
    });
}

#[test]
fn sixteen_callers_in_four_processes_have_one_effect_for_each_key() {
    let name = "sixteen_callers_in_four_processes_have_one_effect_for_each_key";
    let Some(config) = crate::cluster::database(name) else { return };
    runtime().block_on(PgLedger::open(&config, options())).unwrap();
    let variable = [("LEDGER_PG_SIXTEEN", OsStr::new(&config))];
    let mut peers: Vec<Peer> = (0..4).map(|_| Peer::spawn("loss::process_with_four_of_sixteen", variable)).collect();
    peers.iter_mut().for_each(|peer| drop(peer.expect("ready")));
    peers.iter_mut().for_each(Peer::go);
    let mut told: Vec<(String, String)> = Vec::new();
    for peer in &mut peers {
        while let Some(line) = peer.line()
            && line != "end"
        {
            if let Some((number, heard)) = line.strip_prefix("told ").and_then(|rest| rest.split_once(' ')) {
                told.push((number.to_owned(), heard.to_owned()));
            }
        }
    }
    peers.into_iter().for_each(Peer::join);
    assert_eq!(told.len(), 16 * 25);
    for number in 0..25 {
        let of = |word: &str| {
            let number = number.to_string();
            told.iter().filter(|(key, heard)| *key == number && heard.starts_with(word)).count()
        };
        assert_eq!((of("fresh"), of("replayed")), (1, 15), "order-{number}: {told:?}");
    }
    assert_eq!(runtime().block_on(number(&config, "SELECT count(*) FROM effect")), 25);
}
