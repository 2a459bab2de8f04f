//! Calls on PostgreSQL beside what pgbench gets through with a single insert, on one throw-away server, by turns. Beside
//! them the [floor]: the same statements in the same client without a ledger. What each takes of the processors is printed
//! too, as it is what counts where client and server share them.
//!
//! **What limits it** on two processors that client and server share, and nothing else, at 16 connections:
//!
//! | | calls a second | of pgbench's rate | CPU of a call in us: server, client |
//! |---|---|---|---|
//! | pgbench, one insert | 30,359 | 1 | 43, 9 |
//! | closure | 10,991 | 0.36 | 124, 39 |
//! | its floor | 14,404 | 0.47 | 92, 27 |
//! | one statement | 17,205 | 0.57 | 80, 15 |
//! | its floor | 25,023 | 0.82 | 52, 11 |
//!
//! So the processors limit the rate, and the aims, 0.45 and 0.8, are what the same statements come to without any ledger: effect
//! and key are two rows where pgbench writes one. Where the disk limits, all come near to 1. Of what a ledger adds to one
//! statement, the JSON of the result, its digest, the lock, the clock and the checks are a half; the rule of the table, its two
//! partial indexes and the wider key the rest. Generic plans are used already. The closure's floor, run by pgbench itself, comes to
//! 0.66 if its first two and its last two statements share one `Sync` each, and to 0.45 if all five have their own: this client
//! library cannot share one.
//!
//! Each row is a JSON line in the file that `STEADY_BENCH_ROWS` names, or on standard output. `--test` makes one short pass.
//! Without PostgreSQL and pgbench it says so and measures nothing.
#![expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]
#![expect(clippy::unwrap_used, reason = "a benchmark that fails has no numbers")]

#[path = "../../tests/support/cluster.rs"]
#[expect(dead_code, reason = "tests use more of it")]
mod cluster;
mod cpu;
mod floor;

use std::num::NonZeroU32;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use steady_ledger::tokio_postgres::types::Type;
use steady_ledger::{EffectError, Key, PgLedger, PgOptions, PgTx, Request, Scope};
use tokio::runtime::{Builder, Runtime};

use cluster::Cluster;
use cpu::Cpu;
use floor::Floor;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS account(id bigint PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50);
    INSERT INTO account SELECT id, 0 FROM generate_series(0, 99999) AS id ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS plain(id text PRIMARY KEY, pad text NOT NULL);
";
const ACCOUNTS: u64 = 100_000;

/// A result of 200 bytes.
fn receipt() -> String {
    "x".repeat(198)
}

/// What pgbench does: one row with a random key and 200 bytes, in a transaction of its own.
const SCRIPT: &str = "INSERT INTO plain VALUES (gen_random_uuid()::text, repeat('x', 198));";

struct Bench {
    cluster: Cluster,
    runtime: Runtime,
    turn: Duration,
    turns: usize,
}

/// One kind of call.
#[derive(Clone, Copy)]
enum Form {
    /// Claim, effect, result: a closure.
    Closure,
    /// All of it in one statement.
    Statement,
    /// A call that ran before.
    Replay,
}

/// What a turn came to.
#[derive(Clone, Copy)]
struct Turn {
    /// Calls per second.
    rate: f64,
    cpu: Cpu,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Spreads numbers over a range.
fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17
}

fn key(number: u64) -> Key {
    // As random as the keys that clients choose.
    Key::parse(&format!("{:016x}-{number:016x}", spread(number))).unwrap()
}

async fn pay(tx: &mut PgTx<'_>, account: i64) -> Result<String, EffectError<String>> {
    let sql = "UPDATE account SET balance = balance + 1 WHERE id = $1";
    tx.execute(sql, &[(&account, Type::INT8)]).await?;
    Ok(receipt())
}

async fn call(ledger: &PgLedger, scope: &Scope, form: Form, number: u64, known: u64) {
    let account = i64::try_from(spread(number) % ACCOUNTS).unwrap();
    match form {
        Form::Closure => {
            let key = key(number);
            let request = Request::new(scope, &key, r#"{"amount":"12.00"}"#);
            let done = ledger.execute(&request, |tx| Box::pin(pay(tx, account))).await.unwrap();
            assert!(!done.is_replay());
        }
        Form::Statement => {
            let key = key(number);
            let request = Request::new(scope, &key, r#"{"amount":"12.00"}"#);
            let sql = "UPDATE account SET balance = balance + 1 WHERE id = $1 RETURNING repeat('x', 198) AS result";
            let done = ledger.execute_sql::<String>(&request, sql, &[(&account, Type::INT8)]).await.unwrap();
            assert!(!done.is_replay());
        }
        Form::Replay => {
            let key = key(spread(number) % known);
            let request = Request::new(scope, &key, r#"{"amount":"12.00"}"#);
            let done = ledger.execute(&request, |tx| Box::pin(pay(tx, account))).await.unwrap();
            assert!(done.is_replay());
        }
    }
}

impl Bench {
    fn open(&self, connections: u32) -> PgLedger {
        let connections = NonZeroU32::new(connections).unwrap();
        let options = PgOptions {
            schema: format!("{SCHEMA}{}", floor::SCHEMA).into(),
            connections,
            prepared: true,
            busy_timeout: Duration::from_secs(60),
            effect_time: Duration::from_secs(60),
            ..PgOptions::default()
        };
        self.runtime.block_on(PgLedger::open(&self.cluster.config("postgres"), options)).unwrap()
    }

    /// One turn, by as many callers as connections.
    fn calls(&self, ledger: &PgLedger, callers: u32, form: Form, known: u64) -> Turn {
        let ledger = ledger.clone();
        self.turn(callers, move || {
            let (ledger, number) = (ledger.clone(), NEXT.fetch_add(1, Ordering::Relaxed));
            async move { call(&ledger, &Scope::new("tenant-1", "pay"), form, number, known).await }
        })
    }

    /// The same without a ledger.
    fn floor(&self, floor: &Arc<Floor>, callers: u32, form: Form) -> Turn {
        let floor = Arc::clone(floor);
        self.turn(callers, move || {
            // The keys of calls are those of the ledger.
            static NEXT: AtomicU64 = AtomicU64::new(0);
            let (floor, number) = (Arc::clone(&floor), NEXT.fetch_add(1, Ordering::Relaxed));
            async move {
                let (key, account) = (key(number), i64::try_from(spread(number) % ACCOUNTS).unwrap());
                let line = floor.take();
                match form {
                    Form::Closure => line.closure(key.as_str(), account, &receipt()).await,
                    Form::Statement | Form::Replay => line.statement(key.as_str(), account).await,
                }
                floor.put_back(line);
            }
        })
    }

    fn turn<W: Future<Output = ()> + Send>(
        &self,
        callers: u32,
        work: impl Fn() -> W + Clone + Send + Sync + 'static,
    ) -> Turn {
        let before = Cpu::now(self.cluster.folder());
        let start = Instant::now();
        let until = start + self.turn;
        let done = Arc::new(AtomicU64::new(0));
        self.runtime.block_on(async {
            let callers: Vec<_> = (0..callers)
                .map(|_| {
                    let (work, done) = (work.clone(), Arc::clone(&done));
                    tokio::spawn(async move {
                        while Instant::now() < until {
                            work().await;
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for caller in callers {
                caller.await.unwrap();
            }
        });
        let calls = done.load(Ordering::Relaxed) as f64;
        let rate = calls / start.elapsed().as_secs_f64();
        Turn { rate, cpu: Cpu::now(self.cluster.folder()).per_call(before, calls) }
    }

    /// The same by pgbench; none if it is not here.
    fn pgbench(&self, clients: u32) -> Option<Turn> {
        let before = Cpu::now(self.cluster.folder());
        let folder = self.cluster.folder();
        std::fs::write(folder.join("insert.sql"), SCRIPT).unwrap();
        let seconds = self.turn.as_secs().max(1).to_string();
        let host = folder.display().to_string();
        let arguments = ["-h", &host, "-U", "postgres", "-n", "-M", "prepared", "-j", "2", "-T", &seconds];
        let done = Command::new("pgbench")
            .args(arguments)
            .args(["-c", &clients.to_string(), "-f"])
            .arg(folder.join("insert.sql"))
            .arg("postgres")
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let number = |name: &str| -> Option<f64> {
            text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().split([' ', '/']).next()?.parse().ok())
        };
        let calls = number("number of transactions actually processed:")?;
        let cpu = Cpu::now(self.cluster.folder()).per_call(before, calls);
        Some(Turn { rate: number("tps =")?, cpu })
    }
}

/// The turn with the median rate.
fn median(turns: &mut [Turn]) -> Turn {
    turns.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    turns[turns.len() / 2]
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    let Some(cluster) = Cluster::start() else {
        return println!("PostgreSQL is not installed: nothing to measure");
    };
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (turn, turns) = if test { (Duration::from_millis(50), 1) } else { (Duration::from_secs(2), 5) };
    let bench = Bench { cluster, runtime, turn, turns };
    for connections in [16, 1, 4, 64] {
        if compare(&bench, connections).is_none() {
            return println!("pgbench is not installed: nothing to measure against");
        }
    }
}

/// The two forms, beside pgbench and the floor, by turns; none if pgbench is not here.
fn compare(bench: &Bench, connections: u32) -> Option<()> {
    let ledger = bench.open(connections);
    let floor = bench.runtime.block_on(Floor::open(&bench.cluster.config("postgres"), connections));
    let floor = Arc::new(floor);
    let mut turns: [Vec<Turn>; 5] = Default::default();
    for _ in 0..bench.turns {
        turns[0].push(bench.pgbench(connections)?);
        for (at, form) in [(1, Form::Closure), (2, Form::Statement)] {
            turns[at].push(bench.calls(&ledger, connections, form, 0));
            turns[at + 2].push(bench.floor(&floor, connections, form));
        }
    }
    let [insert, closure, statement, least, one] = turns.each_mut().map(|turns| median(turns));
    for (name, turn) in [
        ("pgbench insert", insert),
        ("closure", closure),
        ("its floor", least),
        ("statement", statement),
        ("its floor", one),
    ] {
        say(connections, name, turn);
    }
    let aim = |aim| (connections == 16).then_some(aim);
    let limit = Some(insert.rate);
    row(&format!("closure, {connections} connections / pgbench insert"), closure.rate, limit, aim(0.45));
    row(&format!("one statement, {connections} connections / pgbench insert"), statement.rate, limit, aim(0.8));
    row(
        &format!("closure, {connections} connections / the same without a ledger"),
        closure.rate,
        Some(least.rate),
        None,
    );
    row(
        &format!("one statement, {connections} connections / the same without a ledger"),
        statement.rate,
        Some(one.rate),
        None,
    );
    row(&format!("floor of the closure, {connections} connections / pgbench insert"), least.rate, limit, None);
    row(&format!("floor of one statement, {connections} connections / pgbench insert"), one.rate, limit, None);
    if connections == 16 {
        replays(bench, &ledger);
    }
    Some(())
}

fn say(connections: u32, name: &str, Turn { rate, cpu: Cpu { server, client } }: Turn) {
    println!(
        "{connections} connections, {name}: {rate:.0}/s; CPU of a call: server {server:.0} us, client {client:.0} us"
    );
}

/// Of the calls that were just made.
fn replays(bench: &Bench, ledger: &PgLedger) {
    let scope = Scope::new("tenant-1", "pay");
    let known = if bench.turns == 1 { 200 } else { 20_000 };
    bench.runtime.block_on(async {
        let first = NEXT.fetch_max(known, Ordering::Relaxed);
        for number in first..known {
            call(ledger, &scope, Form::Closure, number, 0).await;
        }
    });
    let mut turns: Vec<Turn> = (0..bench.turns).map(|_| bench.calls(ledger, 16, Form::Replay, known)).collect();
    let replay = median(&mut turns);
    say(16, "replay", replay);
    row("replay, 16 connections", replay.rate, Some(20_000.0), Some(1.0));
}

/// Prints a row, or hands it to the task that asked for it.
fn row(name: &str, ours: f64, limit: Option<f64>, aim: Option<f64>) {
    use std::io::Write;
    let number = |value: Option<f64>| value.map_or_else(|| "null".to_owned(), |value| format!("{value:.6}"));
    let (limit, aim) = (number(limit), number(aim));
    let line = format!(
        r#"{{"name":"{name}","ours":{ours:.6},"peer":null,"limit":{limit},"aim":{aim},"unit":"1/s","more_is_better":true}}"#
    );
    match std::env::var_os("STEADY_BENCH_ROWS") {
        Some(path) => {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
            writeln!(file, "{line}").unwrap();
        }
        None => println!("{line}"),
    }
}
