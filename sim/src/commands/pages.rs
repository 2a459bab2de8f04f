//! `steady-sim pages`: the pages of documentation that are made from the code.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use steady_sim::pages::{self, Drift};

use crate::show;

/// Holds the generated pages in a folder against the code: the retry matrix, the limits, the failures, and
/// what a fleet does to its server.
///
/// Exit codes: 0 they say what the code says, 1 one does not, 2 a file cannot be read or written.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder of the pages.
    #[arg(long, value_name = "DIR", default_value = "docs")]
    dir: PathBuf,
    /// Write them anew instead.
    #[arg(long)]
    write: bool,
    /// Print one JSON object for machines.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> ExitCode {
    if !args.write && !args.dir.is_dir() {
        return show::failed(&format!("--dir {}: there is no such folder", args.dir.display()));
    }
    let all = match pages::all() {
        Ok(all) => all,
        Err(why) => return show::failed(&why),
    };
    let drifts =
        if args.write { pages::write(&args.dir, &all).map(|()| Vec::new()) } else { pages::check(&args.dir, &all) };
    let drifts = match drifts {
        Ok(drifts) => drifts,
        Err((path, why)) => return show::failed(&format!("{}: {why}", path.display())),
    };
    let mut out = io::stdout().lock();
    let files: Vec<&str> = all.iter().map(|page| page.file).collect();
    let printed = if args.json {
        let json = serde_json::json!({"holds": drifts.is_empty(), "pages": files, "drifts": drifts});
        show::json(&mut out, &json)
    } else {
        people(&mut out, &files, &drifts)
    };
    show::exit(printed, drifts.is_empty())
}

fn people(out: &mut impl Write, files: &[&str], drifts: &[Drift]) -> io::Result<()> {
    for Drift { file, line, found, expected, .. } in drifts {
        writeln!(out, "{}:{line}: the code says otherwise", file.display())?;
        writeln!(out, "  found:    {}", found.as_deref().unwrap_or("(nothing)"))?;
        writeln!(out, "  expected: {}", expected.as_deref().unwrap_or("(nothing)"))?;
    }
    if !drifts.is_empty() {
        return writeln!(out, "write them anew with --write");
    }
    writeln!(out, "{} say what the code says", files.join(", "))
}
