//! `steady-sim swarm`: worlds from seeds, until one breaks a promise.

use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use steady_sim::swarm::{self, FROM, Failure, Mutant, Options, Report};

use crate::show;

/// Plays worlds of clients and servers under faults, one for each seed, and checks what they promise.
///
/// Each seed draws a world (one to four clients on both transports, replicas, a shared ledger), the calls of its
/// applications, and which classes of faults there are: cancellations, delays, proxies that hold back, connections that
/// break, slow readers, stopped processes, crashes of both ends and inside of transactions, shutdowns, clocks that jump,
/// POSTs that a proxy repeats, slow disks. One seed of sixteen has the real ledger, and workers that do durable tasks. The
/// shipped client, server and worker run over virtual time. Then all is healed, and the world must come to rest.
///
/// The first seed that breaks a promise is shrunk, and written as a list of events for `steady-sim replay`. From 200 seeds
/// on, every way in which things can end must have been seen. A night's run: --seeds 0..10000. Exit codes: 0 every promise
/// was kept, 1 one was broken or something was never seen, 2 the run could not be made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The seeds: from A up to B, without B.
    #[arg(long, value_name = "A..B", default_value = "0..200", value_parser = seeds)]
    seeds: Range<u64>,
    /// Threads; each plays a world of its own. Default: as many as there are processors.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Print one JSON object for machines.
    #[arg(long)]
    json: bool,
    /// The folder for the events of a failure.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Print the world and the events of the first seed instead, for `steady-sim replay`.
    #[arg(long, conflicts_with = "json")]
    print: bool,
    /// Break something on purpose, to see it found.
    #[arg(long, value_name = "NAME", hide = true, value_parser = mutant)]
    mutant: Option<Mutant>,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let read = || {
        let (first, end) = text.split_once("..")?;
        Some(first.parse::<u64>().ok()?..end.parse::<u64>().ok()?)
    };
    match read() {
        Some(seeds) if seeds.start < seeds.end => Ok(seeds),
        Some(_) => Err("there is no seed in it: A must be below B".to_owned()),
        None => Err("write two numbers with .. in between, as in 0..200".to_owned()),
    }
}

pub(super) fn mutant(text: &str) -> Result<Mutant, String> {
    serde_json::from_value(serde_json::Value::from(text)).map_err(|error| error.to_string())
}

#[derive(Serialize)]
struct Json<'a> {
    holds: bool,
    /// No promise was broken; whether enough was seen is in `missing`.
    kept: bool,
    wall_ms: u128,
    jobs: usize,
    requests_per_minute: u64,
    seeds_per_minute: u64,
    events_file: Option<&'a std::path::Path>,
    /// In the place of the file, if it could not be written.
    unwritten: Option<&'a Unwritten>,
    #[serde(flatten)]
    report: &'a Report,
}

/// The small script of a failure that has no file.
#[derive(Serialize)]
struct Unwritten {
    why: String,
    events: String,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(processors, usize::from);
    let Range { start: first, end } = args.seeds.clone();
    if args.print {
        return show::finished(write!(io::stdout().lock(), "{}", swarm::draw(first, args.mutant).text()));
    }
    // Found now, not at the end of a night.
    if !args.out.is_dir() {
        return show::failed(&format!("--out {}: there is no such folder", args.out.display()));
    }
    if let Err(error) = tempfile::tempfile_in(&args.out) {
        return show::failed(&format!("--out {}: no file can be made there: {error}", args.out.display()));
    }
    let bar = bar(end - first);
    let begun = Instant::now();
    let ran = swarm::batch(&Options { first, end, jobs, mutant: args.mutant }, &|done| bar.set_position(done));
    let wall = begun.elapsed();
    bar.finish_and_clear();
    let report = match ran {
        Ok(report) => report,
        Err(error) => return show::failed(&format!("no temporary directory: {error}")),
    };
    let (mut file, mut unwritten) = (None, None);
    if let Some(failure) = &report.failure {
        let (path, text) = (args.out.join(format!("swarm-{}.events", failure.seed)), events(failure));
        match std::fs::write(&path, &text) {
            Ok(()) => file = Some(path),
            // What a night has found is told all the same.
            Err(error) => {
                let why = format!("the events cannot be written to {}: {error}", path.display());
                unwritten = Some(Unwritten { why, events: text });
            }
        }
    }
    let per_minute = |count: u64| (u128::from(count) * 60_000 / wall.as_millis().max(1)).try_into().unwrap_or(u64::MAX);
    let json = Json {
        holds: report.holds(),
        kept: report.failure.is_none(),
        wall_ms: wall.as_millis(),
        jobs,
        requests_per_minute: per_minute(report.requests),
        seeds_per_minute: per_minute(report.seeds),
        events_file: file.as_deref(),
        unwritten: unwritten.as_ref(),
        report: &report,
    };
    let mut out = io::stdout().lock();
    let printed = if args.json { show::json(&mut out, &json) } else { people(&mut out, &json, wall) };
    show::exit(printed, report.holds())
}

/// A bar on standard error, if that is a terminal.
fn bar(seeds: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(seeds), ProgressDrawTarget::stderr());
    match ProgressStyle::with_template("{wide_bar} {pos}/{len} seeds, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// The small script of a failure, with what it breaks in front.
fn events(failure: &Failure) -> String {
    let mut text = format!("# Shrunk from the {} events of seed {}. It breaks:\n", failure.drawn, failure.seed);
    for violation in &failure.small {
        text.push_str(&format!("#   {}\n", show::violation(violation)));
    }
    text.push_str(&failure.script.text());
    text
}

fn people(out: &mut impl Write, json: &Json<'_>, wall: Duration) -> io::Result<()> {
    let Json { report, .. } = json;
    let Report { seeds, requests, calls, virtual_seconds, run_twice, real_ledger, .. } = report;
    writeln!(
        out,
        "{seeds} seeds in {:.1} s on {} threads, {} a minute",
        wall.as_secs_f64(),
        json.jobs,
        json.seeds_per_minute
    )?;
    writeln!(out, "{calls} calls, {requests} requests at servers, {} a minute", json.requests_per_minute)?;
    writeln!(out, "{virtual_seconds} s of virtual time, {real_ledger} seeds with a real ledger file")?;
    writeln!(out, "{run_twice} seeds were run twice and came out the same; hash of all traces {}", report.hash)?;
    writeln!(out)?;
    for (name, count) in &report.coverage {
        writeln!(out, "{count:>10}  {name}")?;
    }
    writeln!(out)?;
    for name in &report.missing {
        writeln!(out, "never seen in {FROM} seeds and more: {name}")?;
    }
    if let Some(failure) = &report.failure {
        writeln!(out, "seed {} breaks a promise, with {} events:", failure.seed, failure.drawn)?;
        for violation in &failure.violations {
            writeln!(out, "  {}", show::violation(violation))?;
        }
        let events = failure.script.events.len();
        let file = json.events_file.unwrap_or_else(|| std::path::Path::new("-")).display();
        writeln!(out, "shrunk to {events} events: steady-sim replay {file}")?;
        if let Some(Unwritten { why, events }) = json.unwritten {
            writeln!(out, "{why}; they are:\n{events}")?;
        }
    }
    let verdict = match (&report.failure, report.missing.is_empty()) {
        (Some(_), _) => "FAILED: a promise was broken",
        (None, true) => "every promise was kept",
        (None, false) => {
            "every promise was kept, and TOO LITTLE WAS SEEN: take more seeds, or see why it does not happen"
        }
    };
    writeln!(out, "{verdict}")
}
