//! `steady-sim lab`: the races of a request, one after the other, or as the reader writes them.

mod keys;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use steady_sim::experiment::{self, Found, Row, Script};

use crate::show;

/// Runs experiments on the shipped client and server, in virtual time.
///
/// Without an option: five requests. A is cancelled and then completes, B completes and is then cancelled, C reports
/// progress before each idle deadline and crosses the maximum, D loses its response stream over HTTP, and D again over
/// stdio, where the signal alone differs. For each request a row says how it ended at the client, whether a final response
/// exists, which signal crossed the wire, and what was ignored, by whom.
#[derive(clap::Args)]
#[command(after_help = "A script has one step a line:\n\
    \x20 transport http          # or stdio, the default\n\
    \x20 latency 5ms             # one way; default 1ms\n\
    \x20 call A idle 30s max 5m  # both limits are optional; `safe` or `key order-7` state the contract\n\
    \x20 progress A              # its handler reports\n\
    \x20 wait 20ms\n\
    \x20 cancel A                # the application gives it up\n\
    \x20 complete A              # its handler returns a result; `fail A` an error\n\
    \x20 break A                 # the network breaks its response stream (HTTP)")]
pub(crate) struct Args {
    /// Run the steps in FILE; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "interactive")]
    script: Option<PathBuf>,
    /// Step with keys: n new call, p progress, c complete, f fail, x cancel, b break, w wait 10 ms, W wait 10 s, q quit.
    #[arg(long, conflicts_with = "json")]
    interactive: bool,
    /// With --interactive: over HTTP instead of stdio.
    #[arg(long, requires = "interactive")]
    http: bool,
    /// Print one JSON object for machines.
    #[arg(long)]
    json: bool,
    /// Print what happened step by step, too.
    #[arg(long)]
    verbose: bool,
}

/// One experiment and what it found.
#[derive(Serialize)]
struct Told {
    title: String,
    script: String,
    #[serde(flatten)]
    found: Found,
}

/// A script longer than this is no experiment.
const LONGEST: u64 = 1 << 20;

pub(super) fn run(args: &Args) -> ExitCode {
    if args.interactive {
        return keys::run(args.http);
    }
    let told = match &args.script {
        None => match experiment::standard() {
            Ok(trials) => trials.into_iter().map(Told::standard).collect(),
            Err(why) => return show::failed(&format!("a standard experiment: {why}")),
        },
        Some(file) => match Told::of_file(file) {
            Ok(told) => vec![told],
            Err(why) => return show::failed(&why),
        },
    };
    let printed = if args.json { json(&told) } else { people(&told, args.verbose || args.script.is_some()) };
    show::finished(printed)
}

impl Told {
    fn standard(trial: experiment::Trial) -> Self {
        Self { title: trial.title.into(), script: trial.script.to_string(), found: trial.found }
    }

    fn of_file(file: &Path) -> Result<Self, String> {
        let name = file.display();
        let text = show::read_text(file, LONGEST).map_err(|why| format!("{name}: {why}"))?;
        let script = Script::parse(&text).map_err(|why| format!("{name}: {why}"))?;
        let found = experiment::run(&script).map_err(|why| format!("{name}: {why}"))?;
        Ok(Self { title: name.to_string(), script: script.to_string(), found })
    }
}

/// It claims nothing that could fail to hold; the member is there because every command has it.
fn json(told: &[Told]) -> io::Result<()> {
    show::json(&mut io::stdout().lock(), &serde_json::json!({ "holds": true, "experiments": told }))
}

fn people(told: &[Told], steps: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let paint = show::Paint(out.is_terminal());
    for Told { title, found, .. } in told {
        writeln!(out, "{}", paint.with("1", title))?;
        for event in found.timeline.iter().filter(|_| steps) {
            writeln!(out, "  {}", paint.with("2", event))?;
        }
        found.rows.iter().try_for_each(|row| writeln!(out, "{}", line(row)))?;
        writeln!(out)?;
    }
    Ok(())
}

/// A row as people read it.
fn line(row: &Row) -> String {
    format!(
        "  {}  client: {}; final response: {}; signal: {}; ignored: {}",
        row.request,
        row.client,
        row.response_text(),
        row.signal.text(),
        row.ignored_text(),
    )
}
