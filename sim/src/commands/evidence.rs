//! `steady-sim evidence`: writes what the shipped machines do as files for machines.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use steady_sim::evidence::{self, SOURCES, Source, Written};

use crate::show;

/// Writes records of the shipped machines into a folder, one JSON file each.
///
/// Cancel races, a lost response, the retry table of the inventory server's mutations, key records, an overloaded buffer,
/// a reconnect, the cancellation of a durable task: in virtual time, so that each run writes the same bytes. Each file
/// names the command that makes it anew. Exit codes: 0 every claim holds, 1 one does not, 2 a file could not be made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the files go; the folder is made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Make this file only (repeatable).
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(SOURCES.map(|source| source.name)))]
    only: Vec<String>,
    /// Print one JSON object for machines.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let named = |source: &&Source| args.only.is_empty() || args.only.iter().any(|name| name == source.name);
    let sources: Vec<Source> = SOURCES.iter().filter(named).copied().collect();
    let written = match evidence::write(&sources, &args.out) {
        Ok(written) => written,
        Err(why) => return show::failed(&why.to_string()),
    };
    let holds = written.iter().all(|written| written.holds);
    let mut out = io::stdout().lock();
    let printed = if args.json {
        let json = serde_json::json!({"holds": holds, "files": written});
        show::json(&mut out, &json)
    } else {
        written.iter().try_for_each(|written| writeln!(out, "{}", line(written)))
    };
    show::exit(printed, holds)
}

fn line(written: &Written) -> String {
    let verdict = if written.holds { "holds" } else { "FAILS" };
    let gate = written.gate.map(|gate| format!(" [{gate}]")).unwrap_or_default();
    format!("{verdict}  {:24} {:>2} claims  {}{gate}", written.file, written.claims, written.title)
}
