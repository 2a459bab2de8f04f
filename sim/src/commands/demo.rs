//! `steady-sim demo`: the races, the opening story and a real server.

use std::path::Path;
use std::process::ExitCode;

use steady_sim::demo;

use crate::show;

/// Runs the races, the opening story and a real server, and checks what they show.
///
/// In virtual time: a cancellation and a completion in both orders on both transports; a client that times out one
/// millisecond too early, with and without an idempotency key; an overloaded buffer; a task. Then on real input: it
/// starts itself as a server and cancels a running call over real pipes. Exit code 1 if a claim fails.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object for machines.
    #[arg(long)]
    json: bool,
    /// Print every message that crossed, also in virtual time.
    #[arg(long)]
    verbose: bool,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let dir = match tempfile::tempdir() {
        Ok(dir) => dir,
        Err(error) => return show::failed(&format!("no temporary directory: {error}")),
    };
    let mut report = match demo::run(dir.path()) {
        Ok(report) => report,
        Err(error) => return show::failed(&error.to_string()),
    };
    match real_server(dir.path()) {
        Ok(section) => report.sections.extend(section),
        Err(error) => return show::failed(&format!("the real server: {error}")),
    }
    show::report(&report, args.json, args.verbose)
}

/// The part on real input, where the binary has the transports.
#[cfg(feature = "live")]
fn real_server(dir: &Path) -> std::io::Result<Option<demo::Section>> {
    crate::live::session(dir).map(Some)
}

#[cfg(not(feature = "live"))]
fn real_server(_: &Path) -> std::io::Result<Option<demo::Section>> {
    Ok(None)
}
