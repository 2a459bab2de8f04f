//! The command line.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use steady_sim::demo;

use crate::show;

/// Shows what mcp-steady guarantees, on the machines that ship.
#[derive(Parser)]
#[command(name = "steady-sim", version, about, after_help = "Start with: steady-sim demo")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the races, the opening story and a real server, and checks what they show.
    ///
    /// In virtual time: a cancellation and a completion in both orders on both transports; a client that times out one
    /// millisecond too early, with and without an idempotency key; an overloaded buffer; a task. Then on real input: it
    /// starts itself as a server and cancels a running call over real pipes. Exit code 1 if a claim fails.
    Demo {
        /// Print one JSON object for machines.
        #[arg(long)]
        json: bool,
        /// Print every message that crossed, also in virtual time.
        #[arg(long)]
        verbose: bool,
    },
    /// Serves the inventory server: reserve_inventory, get_reservation, slow_count.
    #[cfg(feature = "live")]
    Serve {
        /// Over standard input and output.
        #[arg(long, required_unless_present = "http", conflicts_with = "http")]
        stdio: bool,
        /// Over HTTP at this address: POST http://ADDR/mcp.
        #[arg(long, value_name = "ADDR")]
        http: Option<String>,
        /// The ledger file; it is created if it does not exist.
        #[arg(long, value_name = "FILE")]
        ledger: std::path::PathBuf,
        /// Who calls, as far as idempotency keys are concerned: nobody is authenticated.
        #[arg(long, default_value = "local", value_name = "NAME")]
        principal: String,
    },
}

pub(crate) fn run() -> ExitCode {
    match Cli::parse().command {
        Command::Demo { json, verbose } => run_demo(json, verbose),
        #[cfg(feature = "live")]
        Command::Serve { stdio: _, http, ledger, principal } => {
            crate::live::serve(http.as_deref(), &ledger, &principal)
        }
    }
}

fn run_demo(json: bool, verbose: bool) -> ExitCode {
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
    show::report(&report, json, verbose)
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
