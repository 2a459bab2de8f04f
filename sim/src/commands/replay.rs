//! `steady-sim replay`: a list of events, step by step.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use steady_sim::swarm::{self, Script, Violation};

use crate::show;

/// Longest file of events, in bytes.
const LONGEST: u64 = 64 << 20;

/// The alphabet, shortly.
const EVENTS: &str = "\
A file to begin with: steady-sim swarm --seeds 7..8 --print > seven.events

Events, one a line:
  {\"call\":{\"client\":0,\"call\":1,\"tool\":{\"add-once\":{\"key\":3,\"amount\":40}}}}
  {\"cancel\":{\"client\":0,\"call\":1}}         and drop, cancel-task, listen, unlisten, \"change\"
  {\"wait\":{\"ms\":20}}                       and step (polls), clock (a jump), disk (a slow one)
  {\"hold\":{\"client\":0,\"way\":\"down\"}}      and release, delay, cut, stop-reading, read, double
  {\"crash\":{\"replica\":0}}                  and freeze, thaw, drain, restart, collect; child, worker
  {\"die-in-commit\":{\"server\":{\"replica\":0},\"committed\":true}}
  {\"crash-client\":{\"client\":0}}             and restart-client, close
Tools: read, add, add-once, work, flood, job, deaf, stubborn, \"hang\", \"fail\", \"panic\". A wrong name is answered with all
names.";

/// Plays a file of events, and prints all that is seen: what each event does, every message at both ends, every end.
///
/// The file has one JSON value a line: the world, then the events, as `steady-sim swarm` writes them. Lines that start with
/// # are skipped. Change them as you like: an event that names what is not there does nothing. Exit code 1 if a promise is
/// broken, 2 if the file cannot be read, with the line.
#[derive(clap::Args)]
#[command(after_long_help = EVENTS)]
pub(crate) struct Args {
    /// The file; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object for machines.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Json<'a> {
    holds: bool,
    events: usize,
    hash: String,
    calls: u64,
    requests: u64,
    virtual_ns: u64,
    violations: &'a [Violation],
    coverage: &'a swarm::Coverage,
    trace: &'a [String],
}

pub(super) fn run(args: &Args) -> ExitCode {
    let name = args.file.display();
    let text = match show::read_text(&args.file, LONGEST) {
        Ok(text) => text,
        Err(error) => return show::failed(&format!("{name}: {error}")),
    };
    let script = match Script::parse(&text) {
        Ok(script) => script,
        Err(error) => return show::failed(&format!("{name}: {error}")),
    };
    let run = match swarm::play_twice(&script, true) {
        Ok(run) => run,
        Err(error) => return show::failed(&format!("no temporary directory: {error}")),
    };
    let holds = run.violations.is_empty();
    let mut out = io::stdout().lock();
    let printed = if args.json {
        let json = Json {
            holds,
            events: script.events.len(),
            hash: format!("{:016x}", run.hash),
            calls: run.calls,
            requests: run.requests,
            virtual_ns: run.virtual_time,
            violations: &run.violations,
            coverage: &run.coverage,
            trace: &run.trace,
        };
        show::json(&mut out, &json)
    } else {
        people(&mut out, &run)
    };
    show::exit(printed, holds)
}

fn people(out: &mut impl Write, run: &swarm::Run) -> io::Result<()> {
    for line in &run.trace {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    for violation in &run.violations {
        writeln!(out, "{}", show::violation(violation))?;
    }
    let kept = if run.violations.is_empty() { "every promise was kept" } else { "FAILED" };
    writeln!(out, "{kept}; {} calls, {} requests, trace {:016x}", run.calls, run.requests, run.hash)
}
