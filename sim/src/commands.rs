//! The subcommands: one file each, with its arguments and what it does.
//!
//! A new one is a file here, a line in [`Command`] and a line in [`run`]. Exit codes of all of them: 0 what was asked for
//! holds, 1 it does not, 2 the command could not do its work (a wrong argument, a file that cannot be read).

mod completions;
mod demo;
mod evidence;
mod explore;
mod failures;
mod herd;
mod lab;
#[cfg(feature = "live")]
mod pages;
mod replay;
mod review;
#[cfg(feature = "live")]
mod serve;
mod swarm;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    Herd(herd::Args),
    Failures(failures::Args),
    Explore(explore::Args),
    Swarm(swarm::Args),
    Replay(replay::Args),
    Lab(lab::Args),
    Review(review::Args),
    Evidence(evidence::Args),
    #[cfg(feature = "live")]
    Pages(pages::Args),
    #[cfg(feature = "live")]
    Serve(serve::Args),
    Completions(completions::Args),
}

/// Runs a command to its end.
pub(crate) fn run(command: Command) -> ExitCode {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Herd(args) => herd::run(&args),
        Command::Failures(args) => failures::run(&args),
        Command::Explore(args) => explore::run(&args),
        Command::Swarm(args) => swarm::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Review(args) => review::run(&args),
        Command::Evidence(args) => evidence::run(&args),
        #[cfg(feature = "live")]
        Command::Pages(args) => pages::run(&args),
        #[cfg(feature = "live")]
        Command::Serve(args) => serve::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}
