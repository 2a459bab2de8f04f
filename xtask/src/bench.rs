//! `cargo xtask bench NAME`: one benchmark, set against its peers.
//!
//! A benchmark hands its rows over in one of two ways. A program of its own
//! appends JSON lines to the file that `STEADY_BENCH_ROWS` names. A criterion
//! one is read from its estimates: within a group the id `ours` is ours,
//! `limit` is what the machine allows, every other id is a peer. A criterion
//! program may append lines as well.

mod estimates;
mod rows;

use crate::cargo::Workspace;
use crate::console::Console;
use crate::error::Error;
use crate::process::{Command, Sink};
use clap::builder::PossibleValuesParser;
use rows::Row;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A benchmark of this project.
struct Bench {
    name: &'static str,
    package: &'static str,
    /// The `[[bench]]` target.
    target: &'static str,
    /// The features that it needs.
    features: &'static [&'static str],
    about: &'static str,
    source: Source,
}

/// Where the rows come from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// JSON lines alone.
    Lines,
    /// Criterion's estimates, each group with this aim for its ratio, but those that are named with their own.
    Criterion { aim: f64, aims: &'static [(&'static str, f64)] },
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "buffer",
        package: "mcp-steady-core",
        target: "buffer",
        features: &[],
        about: "the bounded outbound buffer against queues and channels that keep the newest",
        source: Source::Criterion { aim: 2.0, aims: &[("many_tokens", 5.0)] },
    },
    Bench {
        name: "wire",
        package: "mcp-steady-core",
        target: "wire",
        features: &[],
        about: "messages read and written, against serde_json's tree and its writer",
        source: Source::Criterion { aim: 2.0, aims: &[] },
    },
    Bench {
        name: "engine",
        package: "mcp-steady-core",
        target: "engine",
        features: &[],
        about: "a whole request through the coordinator without IO, and many live deadlines",
        source: Source::Criterion { aim: 1.0, aims: &[] },
    },
    Bench {
        name: "ledger",
        package: "mcp-steady-ledger",
        target: "ledger",
        features: &[],
        about: "calls beside the fsyncs of the same disk and beside raw SQL, replays, and the log under a long reader",
        source: Source::Lines,
    },
    Bench {
        name: "postgres",
        package: "mcp-steady-ledger",
        target: "postgres",
        features: &["--features", "postgres"],
        about: "calls on PostgreSQL beside pgbench's single insert on the same server, at 1 to 64 connections, and replays",
        source: Source::Lines,
    },
    Bench {
        name: "stdio",
        package: "mcp-steady-stdio",
        target: "stdio",
        features: &[],
        about: "calls over stdio, cancellation, the end, a clean build; against rmcp if STEADY_RMCP_BENCH names its harness",
        source: Source::Lines,
    },
    Bench {
        name: "http",
        package: "mcp-steady-http",
        target: "http",
        features: &[],
        about: "calls, streams and slow clients over HTTP, against bare hyper, and rmcp with --rmcp",
        source: Source::Lines,
    },
];

/// Run one benchmark and set it against its peers
#[derive(clap::Args)]
#[command(after_long_help = help())]
pub(crate) struct Options {
    /// Which benchmark
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(BENCHES.iter().map(|bench| bench.name)))]
    name: String,
    /// Print the rows as JSON on standard output; the rest goes to standard error
    #[arg(long)]
    json: bool,
    /// Exit with 1 if a row misses its aim
    #[arg(long)]
    gate: bool,
    /// Measure rmcp too: the folder with the built programs of its harness
    #[arg(long, value_name = "FOLDER")]
    rmcp: Option<PathBuf>,
}

fn help() -> String {
    let lines = BENCHES.iter().map(|bench| format!("  {:8} {}", bench.name, bench.about));
    let names: Vec<String> = lines.collect();
    format!(
        "Benchmarks:\n{}\n\nThe rows are kept in target/bench/NAME.json. The ratio is how many times better than the \
        best peer (or, without a peer, than the limit); a row is met when its ratio reaches its aim.",
        names.join("\n")
    )
}

/// Runs it; false if `--gate` was given and a row misses its aim.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    let console = if options.json { Console::stderr() } else { Console::stdout() };
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == options.name) else {
        return Err(Error::check(format!("no benchmark is named {}", options.name)));
    };
    let workspace = Workspace::enter()?;
    let rows = bench.measure(&workspace, console, options.rmcp.as_deref())?;
    let json = rows::to_json(&rows);
    let path = workspace.scratch("bench")?.join(format!("{}.json", bench.name));
    fs::write(&path, format!("{json}\n")).map_err(Error::file(&path))?;
    if options.json {
        Console::stdout().say(&json);
    }
    console.say(&format!("\n{}\n\nrows: {}", rows::table(&rows), path.display()));
    Ok(!options.gate || rows.iter().all(|row| row.met != Some(false)))
}

impl Bench {
    fn measure(&self, workspace: &Workspace, console: Console, rmcp: Option<&Path>) -> Result<Vec<Row>, Error> {
        let folder = workspace.scratch("bench")?;
        let lines = folder.join(format!("{}.rows", self.name));
        let criterion = folder.join(format!("{}.criterion", self.name));
        File::create(&lines).map_err(Error::file(&lines))?;
        if criterion.exists() {
            fs::remove_dir_all(&criterion).map_err(Error::file(&criterion))?;
        }
        // A benchmark runs in the folder of its package.
        let mut command = self.command(&workspace.root.join(&lines), &workspace.root.join(&criterion));
        if let Some(rmcp) = rmcp {
            command = command.env("STEADY_BENCH_RMCP", workspace.root.join(rmcp).display().to_string());
        }
        console.say(&format!("$ {command}"));
        let log = folder.join(format!("{}.log", self.name));
        let sink = Sink::new(File::create(&log).map_err(Error::file(&log))?, Some(console));
        command.run(&sink)?.checked(&command)?;
        let mut rows = match self.source {
            Source::Criterion { aim, aims } => estimates::read(&criterion, aim, aims)?,
            Source::Lines => Vec::new(),
        };
        rows.extend(rows::from_lines(&fs::read_to_string(&lines).map_err(Error::file(&lines))?)?);
        if rows.is_empty() {
            return Err(Error::check(format!(
                "{}: the benchmark gave no row; see the top of xtask/src/bench.rs",
                self.name
            )));
        }
        Ok(rows)
    }

    fn command(&self, lines: &Path, criterion: &Path) -> Command {
        Command::line("cargo bench")
            .args(["-p", self.package, "--bench", self.target])
            .args(self.features)
            .env("STEADY_BENCH_ROWS", lines.display().to_string())
            .env("CRITERION_HOME", criterion.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::BENCHES;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn names_are_unique_and_the_command_is_complete() {
        let names: BTreeSet<&str> = BENCHES.iter().map(|bench| bench.name).collect();
        assert_eq!(names.len(), BENCHES.len());
        let stdio = BENCHES.iter().find(|bench| bench.name == "stdio").unwrap();
        let line = stdio.command(Path::new("r"), Path::new("c")).to_string();
        assert_eq!(line, "STEADY_BENCH_ROWS=r CRITERION_HOME=c cargo bench -p mcp-steady-stdio --bench stdio");
    }
}
