//! `steady-sim review`: whether a planned operation is safe to retry.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use steady_sim::review::{Design, Review, review};

use crate::show;

/// Reviews a planned operation: its transport, limits, retries, key, queue and recovery.
///
/// FILE is TOML or JSON; sim/skill-mcp-reliability-reviewer.md describes every member. The review has a race table, the
/// retry classification, the overloaded buffer, the recovery plan, findings with what to do, and for some of them an
/// experiment: what it should look like, and the failure of the catalogue that shows what goes wrong. Exit codes: 0 ready, 1 not ready, 2 the file cannot be read as a design.
#[derive(clap::Args)]
#[command(after_help = "The smallest design:\n\
    \x20 [operation]\n\
    \x20 name = \"reserve_inventory\"\n\
    \x20 effect = \"mutation\"       # or read\n\n\
    With a key that runs once:\n\
    \x20 [idempotency]\n\
    \x20 key = \"business\"          # or request_id, attempt\n\
    \x20 store = \"sqlite\"          # or memory, postgres\n\
    \x20 boundary = \"one_transaction\"\n\n\
    Other tables: transport, timeouts, retry, queue, recovery, task.")]
pub(crate) struct Args {
    /// The design; `-` is standard input.
    file: PathBuf,
    /// Print one JSON object for machines.
    #[arg(long)]
    json: bool,
    /// Also write the experiments into DIR, for `steady-sim lab --script`.
    #[arg(long, value_name = "DIR")]
    fixtures: Option<PathBuf>,
}

/// A design longer than this is none.
const LONGEST: u64 = 1 << 20;

pub(super) fn run(args: &Args) -> ExitCode {
    let name = args.file.display();
    let design =
        show::read_text(&args.file, LONGEST).and_then(|text| Design::parse(&text).map_err(|why| why.to_string()));
    let design = match design {
        Ok(design) => design,
        Err(why) => return show::failed(&format!("{name}: {why}")),
    };
    let review = review(&design);
    if let Some(dir) = &args.fixtures
        && let Err(error) = write_fixtures(dir, &review)
    {
        return show::failed(&format!("{}: {error}", dir.display()));
    }
    let mut out = io::stdout().lock();
    let told = Json { holds: review.ready, review: &review };
    let printed = if args.json { show::json(&mut out, &told) } else { write!(out, "{review}") };
    show::exit(printed, review.ready)
}

/// `holds` is what every command says; here it is `ready`.
#[derive(serde::Serialize)]
struct Json<'a> {
    holds: bool,
    #[serde(flatten)]
    review: &'a Review,
}

fn write_fixtures(dir: &Path, review: &Review) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let fixtures = review.findings.iter().filter_map(|finding| finding.fixture.as_ref());
    fixtures.into_iter().try_for_each(|fixture| fs::write(dir.join(format!("{}.lab", fixture.name)), fixture.script))
}
