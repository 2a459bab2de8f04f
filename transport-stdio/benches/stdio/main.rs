//! Calls over real pipes: throughput, server CPU for one operation, cancellation, the end, and what a server costs to build.
//!
//! The program starts itself as the server (`serve`), and as a raw blocking one that answers every line with the same bytes
//! (`raw`): that is what the pipes and this client allow. `STEADY_RMCP_BENCH` names the folder of an rmcp harness with a
//! server `bserver` that offers the same tools; it is built and measured in turn with ours, by the same client. Without it
//! these rows are skipped by name. Each row is a JSON line in the file that `STEADY_BENCH_ROWS` names, or on standard
//! output. `--test` makes one pass of each.
#![expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]

mod build;
mod measure;
mod rows;
mod server;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;

use measure::{Program, median};
use rows::Run;

/// Where rows go.
struct Rows(Box<dyn Write>);

impl Rows {
    fn open() -> io::Result<Self> {
        Ok(Self(match std::env::var_os("STEADY_BENCH_ROWS") {
            Some(path) => Box::new(File::options().append(true).create(true).open(path)?),
            None => Box::new(io::stdout()),
        }))
    }

    /// Ours against what the machine or the aim allows.
    fn limit(&mut self, name: &str, ours: f64, limit: f64, aim: f64, unit: &str, more: bool) -> io::Result<()> {
        self.row(name, ours, &format!("\"limit\":{limit},\"aim\":{aim}"), unit, more)
    }

    /// Ours against the peer.
    fn peer(&mut self, name: &str, ours: f64, peer: f64, aim: Option<f64>, unit: &str) -> io::Result<()> {
        let mut against = format!("\"peer\":{peer}");
        if let Some(aim) = aim {
            let _written = write!(against, ",\"aim\":{aim}");
        }
        self.row(&format!("{name}, rmcp"), ours, &against, unit, false)
    }

    fn row(&mut self, name: &str, ours: f64, against: &str, unit: &str, more: bool) -> io::Result<()> {
        writeln!(
            self.0,
            "{{\"name\":\"{name}\",\"ours\":{ours},{against},\"unit\":\"{unit}\",\"more_is_better\":{more}}}"
        )?;
        self.0.flush()
    }
}

/// How much of each.
struct Amount {
    rounds: usize,
    calls: u32,
    many: u32,
    reports: u32,
    cancels: u64,
    exits: usize,
}

const FULL: Amount = Amount { rounds: 5, calls: 10_000, many: 30_000, reports: 100_000, cancels: 200, exits: 21 };
const TEST: Amount = Amount { rounds: 1, calls: 10, many: 100, reports: 100, cancels: 3, exits: 1 };

/// The medians of ours, of a second server in turn with it, and of the peer.
struct Measured {
    ours: Run,
    raw: Option<Run>,
    peer: Option<Run>,
}

fn in_turn(
    rounds: usize,
    raw: bool,
    peer: Option<&Program>,
    case: impl Fn(&Program) -> io::Result<Run>,
) -> io::Result<Measured> {
    let (mut ours, mut raws, mut peers) = (Vec::new(), Vec::new(), Vec::new());
    // Interleaved, so that all see the same machine.
    for _ in 0..rounds {
        ours.push(case(&Program::own("serve")?)?);
        if raw {
            raws.push(case(&Program::own("raw")?)?);
        }
        if let Some(peer) = peer {
            peers.push(case(peer)?);
        }
    }
    let middle = |runs: Vec<Run>| {
        let (rates, cpus) = runs.into_iter().map(|run| (run.rate, run.cpu)).unzip();
        Run { rate: median(rates), cpu: median(cpus) }
    };
    let some = |runs: Vec<Run>| if runs.is_empty() { None } else { Some(middle(runs)) };
    Ok(Measured { raw: some(raws), peer: some(peers), ours: middle(ours) })
}

fn echoes(rows: &mut Rows, amount: &Amount, peer: Option<&Program>) -> io::Result<()> {
    let one = in_turn(amount.rounds, true, peer, |program| rows::echo(program, amount.calls, 1))?;
    if let Some(raw) = one.raw {
        rows.limit("echo, one at a time", one.ours.rate, raw.rate, 0.8, "calls/s", true)?;
    }
    rows.limit("echo, one at a time, server CPU", one.ours.cpu, 15.0, 1.0, "us", false)?;
    if let Some(peer) = one.peer {
        rows.peer("echo, one at a time, server CPU", one.ours.cpu, peer.cpu, None, "us")?;
    }
    let many = in_turn(amount.rounds, true, peer, |program| rows::echo(program, amount.many, 64))?;
    if let Some(raw) = many.raw {
        rows.limit("echo, 64 in flight", many.ours.rate, raw.rate, 0.5, "calls/s", true)?;
    }
    rows.limit("echo, 64 in flight, server CPU", many.ours.cpu, 4.5, 1.0, "us", false)?;
    if let Some(peer) = many.peer {
        rows.peer("echo, 64 in flight, server CPU", many.ours.cpu, peer.cpu, Some(10.0), "us")?;
    }
    Ok(())
}

fn measure(test: bool) -> io::Result<()> {
    let amount = if test { TEST } else { FULL };
    let mut rows = Rows::open()?;
    let rmcp = if test { None } else { build::rmcp()? };
    let peer = rmcp.as_ref();
    let own = Program::own("serve")?;
    rows.limit(
        "end of input to exit, a handler ignores it",
        rows::end_of_input(&own, amount.exits)?,
        200.0,
        1.0,
        "ms",
        false,
    )?;
    echoes(&mut rows, &amount, peer)?;
    let progress = in_turn(amount.rounds, false, peer, |program| rows::progress(program, amount.reports))?;
    rows.limit("100 000 progress, server CPU a line", progress.ours.cpu, 0.6, 1.0, "us", false)?;
    if let Some(peer) = progress.peer {
        rows.peer("100 000 progress, server CPU a line", progress.ours.cpu, peer.cpu, Some(10.0), "us")?;
    }
    let (p50, p99) = rows::cancel(&own, amount.cancels)?;
    rows.limit("cancel to token, median", p50, 25.0, 1.0, "us", false)?;
    rows.limit("cancel to token, 99 %", p99, 80.0, 1.0, "us", false)?;
    if let Some(peer) = peer {
        let (peer_50, peer_99) = rows::cancel(peer, amount.cancels)?;
        rows.peer("cancel to token, median", p50, peer_50, None, "us")?;
        rows.peer("cancel to token, 99 %", p99, peer_99, None, "us")?;
    }
    if !test {
        let build::Cost { crates, cpu, size } = build::minimal()?;
        rows.limit("minimal server, crates", crates, 40.0, 1.0, "crates", false)?;
        rows.limit("minimal server, clean build", cpu, 40.0, 1.0, "CPU s", false)?;
        rows.limit("minimal server, stripped", size, 2.0, 1.0, "MB", false)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let mode: Vec<String> = std::env::args().skip(1).collect();
    let done = match mode.first().map(String::as_str) {
        Some("serve") => return server::serve(),
        Some("raw") => server::raw(),
        _ => measure(mode.iter().any(|argument| argument == "--test")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
