//! The command line.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::commands::{self, Command};

/// Shows what mcp-steady guarantees, on the machines that ship.
#[derive(Parser)]
#[command(
    name = "steady-sim",
    version,
    about,
    after_help = "Start with: steady-sim demo\n\
                  Exit codes: 0 it holds, 1 it does not, 2 the command could not do its work."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

pub(crate) fn run() -> ExitCode {
    commands::run(Cli::parse().command)
}

/// The whole command line, to describe it to a shell.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
}
