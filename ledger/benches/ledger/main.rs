//! Calls on a ledger beside what the disk and raw SQL allow, in the same run and by turns.
//!
//! Each row is a JSON line in the file that `STEADY_BENCH_ROWS` names, or on standard output. `--test` makes one short
//! pass of each; `writes`, `replay` and `reader` choose some. `memory` fills a ledger with a million keys instead and prints how large the process is on the way.
#![expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]
#![expect(clippy::unwrap_used, reason = "a benchmark that fails has no numbers")]

mod clients;
mod disk;
mod memory;
mod raw;
mod reader;

use std::time::Duration;

use clients::{Measured, Shop};

/// How long one turn of a case takes, and how many turns there are.
#[derive(Clone, Copy)]
struct Scale {
    turn: Duration,
    turns: usize,
    /// Rows of the file that is replayed from.
    rows: u64,
}

type Case = fn(Scale);

fn main() {
    let has = |word: &str| std::env::args().any(|argument| argument == word);
    let scale = if has("--test") {
        Scale { turn: Duration::from_millis(50), turns: 1, rows: 2_000 }
    } else {
        Scale { turn: Duration::from_secs(1), turns: 5, rows: 200_000 }
    };
    if has("memory") {
        return memory::run();
    }
    // A case by its name, or all.
    let cases: [(&str, Case); 3] = [("writes", writes), ("replay", replay), ("reader", reader::run)];
    let named = cases.iter().any(|(name, _)| has(name));
    cases.iter().filter(|(name, _)| !named || has(name)).for_each(|(_, case)| case(scale));
}

/// The writing cases, by turns, so that all of them see the same disk.
fn writes(scale: Scale) {
    let mut probe = disk::Probe::new();
    let mut raw = [raw::Batches::new(64), raw::Batches::new(256)];
    let shops = [(); 4].map(|()| Shop::new());
    let (mut syncs, mut alone, mut eight) = (Vec::new(), Vec::new(), Vec::new());
    let (mut grouped, mut plain) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..scale.turns {
        // The probe again between the cases: the disk of a shared machine changes within a second.
        syncs.push(probe.turn(scale.turn / 4));
        alone.push(shops[0].threads(1, scale.turn));
        syncs.push(probe.turn(scale.turn / 4));
        eight.push(shops[1].threads(8, scale.turn));
        syncs.push(probe.turn(scale.turn / 4));
        for (at, clients) in [64, 256].into_iter().enumerate() {
            grouped[at].push(shops[2 + at].futures(clients, scale.turn));
            plain[at].push(raw[at].turn(scale.turn));
            syncs.push(probe.turn(scale.turn / 4));
        }
    }
    let sync = Measured::median(&mut syncs);
    let slow = sync.p50 > 0.002;
    println!("fsync: {:.0}/s, p50 {:.2} ms, p99 {:.2} ms", sync.rate, sync.p50 * 1e3, sync.p99 * 1e3);
    // Against one fsync after another.
    let beside_disk = |name: &str, rate: f64, aim: f64| row(name, rate, None, Some(sync.rate), Some(aim), "1/s", true);
    beside_disk("1 client", Measured::median(&mut alone).rate, if slow { 0.9 } else { 0.6 });
    for (at, (clients, aim)) in [(64, 25.0), (256, 45.0)].into_iter().enumerate() {
        let (ours, raw) = (Measured::median(&mut grouped[at]).rate, Measured::median(&mut plain[at]).rate);
        if slow {
            beside_disk(&format!("{clients} clients / fsync"), ours, aim);
        }
        let aim = (!slow).then_some(0.7);
        row(&format!("{clients} clients / raw batches of {clients}"), ours, Some(raw), None, aim, "1/s", true);
    }
    let eight = Measured::median(&mut eight);
    row("8 clients", eight.rate, None, Some(sync.rate), None, "1/s", true);
    // At most three times the fsync's own: the ratio says how many times better.
    row("8 clients, p99", eight.p99 * 1e3, None, Some(sync.p99 * 1e3), Some(1.0 / 3.0), "ms", false);
    row("8 clients, busy errors", eight.refused, None, None, None, "", false);
}

fn replay(scale: Scale) {
    let shop = Shop::filled(scale.rows);
    let mut all: Vec<_> = (0..scale.turns).map(|turn| shop.replays(scale.turn, turn as u64)).collect();
    let Measured { rate, p50, .. } = Measured::median(&mut all);
    println!("replay: p50 {:.1} us", p50 * 1e6);
    let name = format!("replay of {} rows, 1 thread", scale.rows);
    row(&name, rate, None, Some(100_000.0), Some(1.0), "1/s", true);
}

/// Prints a row, or hands it to the task that asked for it.
fn row(
    name: &str,
    ours: f64,
    peer: Option<f64>,
    limit: Option<f64>,
    aim: Option<f64>,
    unit: &str,
    more_is_better: bool,
) {
    use std::io::Write;
    let number = |value: Option<f64>| value.map_or_else(|| "null".to_owned(), |value| format!("{value:.6}"));
    let line = format!(
        r#"{{"name":"{name}","ours":{ours:.6},"peer":{},"limit":{},"aim":{},"unit":"{unit}","more_is_better":{more_is_better}}}"#,
        number(peer),
        number(limit),
        number(aim),
    );
    match std::env::var_os("STEADY_BENCH_ROWS") {
        Some(path) => {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
            writeln!(file, "{line}").unwrap();
        }
        None => println!("{line}"),
    }
}
