//! `cargo xtask crash`: the ledger's proofs for longer than a test may take.

use crate::cargo::Workspace;
use crate::console::Console;
use crate::error::Error;
use crate::process::{Command, Sink};
use std::fs::File;

/// Cut the power, kill processes and let callers race under a ledger, for longer than the tests do
#[derive(clap::Args)]
#[command(after_long_help = "Examples:\n  \
        cargo xtask crash                                 some minutes\n  \
        cargo xtask crash --images 100000 --kills 5000    a night\n  \
        cargo xtask crash --postgres --kills 2000         an hour on PostgreSQL\n\n\
        The tests are those of ledger/tests/proof and ledger/tests/postgres, with larger numbers; they print what they did.\n\n\
        The exit code is 0 if nothing was lost, repeated or left in halves, 1 if something was, 2 if the run could not \
        start.")]
pub(crate) struct Options {
    /// At least how many images of a cut power are made and checked
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    images: u32,
    /// How many processes are killed
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(200..))]
    kills: u32,
    /// How many calls each of the racing callers makes
    #[arg(long, value_name = "NUMBER", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(120..))]
    calls: u32,
    /// Kill replicas, connections and the server of a ledger on PostgreSQL instead: `kills` of replicas, and as many others
    #[arg(long)]
    postgres: bool,
}

/// Runs them; false if a proof fails.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    let console = Console::stdout();
    let workspace = Workspace::enter()?;
    let log = workspace.scratch("crash")?.join("run.log");
    let sink = Sink::new(File::create(&log).map_err(Error::file(&log))?, Some(console));
    let command = options.command();
    console.say(&format!("$ {command}"));
    let done = command.run(&sink)?;
    console.say(&format!("\nlog: {}", log.display()));
    Ok(done.success)
}

impl Options {
    fn command(&self) -> Command {
        if self.postgres {
            let tests = "cargo test -p mcp-steady-ledger --all-features --test postgres";
            return Command::line(&format!(
                "{tests} -- --nocapture --test-threads 1 loss:: chaos:: conformance::random"
            ))
            .env("STEADY_PG_REQUIRED", "1")
            .env("STEADY_PG_KILLS", self.kills.to_string())
            .env("STEADY_PG_CUTS", self.kills.to_string())
            .env("STEADY_PG_RANDOM", self.kills.to_string());
        }
        Command::line("cargo test -p mcp-steady-ledger --test proof -- --nocapture --test-threads 1")
            .env("STEADY_CRASH_IMAGES", self.images.to_string())
            .env("STEADY_KILLS", self.kills.to_string())
            .env("STEADY_HISTORY_CALLS", self.calls.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn the_numbers_reach_the_tests() {
        let line = Options { images: 7, kills: 8, calls: 9, postgres: false }.command().to_string();
        let expected = "STEADY_CRASH_IMAGES=7 STEADY_KILLS=8 STEADY_HISTORY_CALLS=9 cargo test -p mcp-steady-ledger";
        assert!(line.starts_with(expected), "{line}");
        let line = Options { images: 7, kills: 8, calls: 9, postgres: true }.command().to_string();
        assert!(line.contains("STEADY_PG_KILLS=8") && line.contains("--test postgres"), "{line}");
    }
}
