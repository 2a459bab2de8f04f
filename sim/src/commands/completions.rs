//! `steady-sim completions`: what a shell needs to complete this command line.

use std::io::{self, Write};
use std::process::ExitCode;

use clap_complete::Shell;

use crate::{cli, show};

/// Prints the completion script of a shell.
///
/// For bash: steady-sim completions bash > ~/.local/share/bash-completion/completions/steady-sim
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli::definition(), "steady-sim", &mut script);
    show::finished(io::stdout().lock().write_all(&script))
}
