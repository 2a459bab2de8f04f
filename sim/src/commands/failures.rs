//! `steady-sim failures`: what goes wrong in production, with the wrong code and with ours.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;
use steady_sim::failures::{self, Fixture, Outcome, Source};

use crate::show;

/// Shows 29 failures: the code that people write first has the symptom, and ours has not.
///
/// 14 failure modes that any deployment meets, 15 scenarios from public bug reports. Each is run twice, in virtual time:
/// once with a small wrong implementation, once with the shipped machines and, where a key is kept, the shipped ledger on
/// a real file. One measure judges both. Exit code 1 if a wrong one shows no symptom, or ours shows it.
#[derive(clap::Args)]
#[command(after_help = "Without a name all of them run; `steady-sim failures --list` names them.\n\
    The rules (C1, H7, ...) are those of the protocol, named in the documentation of the code that keeps them; the others\n\
    (REQ-2, OUT-1, ...) are invariants of the machines. docs/failures.md has the whole table.")]
pub(crate) struct Args {
    /// Run this one only, and say what is wrong with the wrong one.
    name: Option<String>,
    /// Print the names alone.
    #[arg(long, conflicts_with_all = ["name", "json"])]
    list: bool,
    /// Print one JSON object for machines.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let all = failures::all();
    let mut out = io::stdout().lock();
    if args.list {
        return show::finished(all.iter().try_for_each(|fixture| writeln!(out, "{}", fixture.name)));
    }
    let chosen = match &args.name {
        None => all,
        Some(name) => match one(&all, name) {
            Ok(fixture) => vec![fixture],
            Err(why) => return show::failed(&why),
        },
    };
    let mut outcomes = Vec::new();
    for fixture in chosen {
        match shown(&fixture) {
            Ok(outcome) => outcomes.push(outcome),
            Err(why) => return show::failed(&format!("{}: {why}", fixture.name)),
        }
    }
    let holds = outcomes.iter().all(Outcome::holds);
    let told = Json { holds, failures: &outcomes };
    let printed = if args.json { show::json(&mut out, &told) } else { people(&mut out, &outcomes) };
    show::exit(printed, holds)
}

/// A part of a name is taken for what was meant from so many characters on.
const SHORTEST_PART: usize = 3;
/// Names that are suggested at most.
const SUGGESTIONS: usize = 5;

fn one(all: &[Fixture], name: &str) -> Result<Fixture, String> {
    if let Some(fixture) = all.iter().find(|fixture| fixture.name == name) {
        return Ok(*fixture);
    }
    // A letter or two are in half of the names.
    let is_part = |known: &str| name.chars().count() >= SHORTEST_PART && known.contains(name);
    let likely = |fixture: &&Fixture| is_part(fixture.name) || steady_sim::is_near(name, fixture.name);
    let near: Vec<&str> = all.iter().filter(likely).map(|fixture| fixture.name).take(SUGGESTIONS).collect();
    let hint = if near.is_empty() {
        "`steady-sim failures --list` names them".to_owned()
    } else {
        format!("did you mean {}?", near.join(" or "))
    };
    Err(format!("there is no failure `{name}`; {hint}"))
}

fn shown(fixture: &Fixture) -> Result<Outcome, String> {
    let dir = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
    fixture.run(dir.path()).map_err(|error| error.to_string())
}

#[derive(Serialize)]
struct Json<'a> {
    holds: bool,
    failures: &'a [Outcome],
}

fn people(out: &mut impl Write, outcomes: &[Outcome]) -> io::Result<()> {
    let paint = show::Paint(io::stdout().is_terminal());
    let mut last = None;
    for outcome in outcomes {
        if last.replace(outcome.source) != Some(outcome.source) {
            let title = match outcome.source {
                Source::Production => "Failure modes of production",
                Source::Report => "Scenarios from public bug reports",
            };
            writeln!(out, "{}", paint.with("1", title))?;
        }
        writeln!(out, "{}  ({})", paint.with("1", outcome.name), outcome.rules.join(", "))?;
        writeln!(out, "  {}", paint.with("2", outcome.wrong))?;
        let mark = |good: bool, word: &str| paint.with(if good { "32" } else { "31" }, word);
        let wrong = if outcome.wrong_fails { "symptom   " } else { "NO SYMPTOM" };
        let ours = if outcome.ours_fails { "FAILS" } else { "holds" };
        writeln!(out, "  wrong  {}  {}", mark(outcome.wrong_fails, wrong), outcome.symptom)?;
        writeln!(out, "  ours   {}       {}", mark(!outcome.ours_fails, ours), outcome.ours)?;
    }
    let held = outcomes.iter().filter(|outcome| outcome.holds()).count();
    writeln!(out)?;
    writeln!(out, "{held} of {} failures are shown by the wrong code and not by ours", outcomes.len())
}
