//! `cargo xtask`: the tasks of this repository.
//!
//! `verify` regenerates the evidence for every claim of the project, `bench`
//! runs one benchmark and sets it against its peers, `loom` searches the
//! interleavings of the threads, `crash` cuts the ledger's power, `fuzz` and
//! `mutants` look for what the tests do not see. No member of the workspace is used as a library here: they
//! are built and run as commands, so a broken member is a failed step and not a
//! tool that does not compile.

mod bench;
mod cargo;
mod console;
mod crash;
mod error;
mod fuzz;
mod http;
mod loom;
mod mutants;
mod process;
mod record;
mod table;
mod verify;
mod webdriver;

use clap::{Parser, Subcommand};
use error::Error;
use std::process::ExitCode;

/// The tasks of mcp-steady.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Verify(verify::Options),
    Bench(bench::Options),
    Loom(loom::Options),
    Crash(crash::Options),
    Fuzz(fuzz::Options),
    Mutants(mutants::Options),
    /// Run the official conformance suite against our server and our client: the step of verify, alone
    Conformance,
    /// Check our HTTP server and those of other libraries for what the official suite leaves out: the step of verify, alone
    Compare,
    /// Write target/evidence, with an index.html: records of the machines, statements, a readiness verdict
    Evidence,
    #[command(hide = true)]
    Record(record::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Record(options) => return record::run(&options).unwrap_or_else(|error| report(&error)),
        Task::Verify(options) => verify::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Loom(options) => loom::run(&options),
        Task::Crash(options) => crash::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Mutants(options) => mutants::run(&options),
        Task::Conformance => verify::run(&verify::Options::only("conformance")),
        Task::Evidence => verify::run(&verify::Options::only("evidence")),
        Task::Compare => verify::run(&verify::Options::only("compare")),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => report(&error),
    }
}

/// Says what went wrong on standard error.
fn report(error: &Error) -> ExitCode {
    console::Console::stderr().say(&format!("error: {error}"));
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
