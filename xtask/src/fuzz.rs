//! `cargo xtask fuzz`: libFuzzer on the targets in `core/fuzz`.
//!
//! The body of each target is in `tests/fuzz_corpus/targets.rs` of its crate, and the
//! seeds are replayed by a plain test, so fuzzing finds cases and the test keeps
//! them. What a run learns goes to `target/fuzz`; the committed corpus is read
//! only.

use crate::cargo::Workspace;
use crate::console::Console;
use crate::error::Error;
use crate::process::{Command, Sink};
use std::fs::{self, File};
use std::path::Path;

const FOLDER: &str = "core/fuzz";
/// The crates whose tests replay the seeds.
const CORE: &str = "mcp-steady-core";
const HTTP: &str = "mcp-steady-http";

/// A fuzz target.
struct Target {
    name: &'static str,
    about: &'static str,
    replayed_by: &'static str,
}

const TARGETS: &[Target] = &[
    Target {
        name: "envelope",
        about: "one message: parse, metadata, notices, results; serde_json judges what is JSON",
        replayed_by: CORE,
    },
    Target {
        name: "sealed_state",
        about: "a requestState that was forged, changed, or left as it was",
        replayed_by: CORE,
    },
    Target {
        name: "events",
        about: "a list of events through the coordinator and the outbound buffer",
        replayed_by: CORE,
    },
    Target { name: "outbound", about: "a list of operations on the outbound buffer", replayed_by: CORE },
    Target {
        name: "sse",
        about: "a stream of server-sent events, cut in pieces, against the standard's steps",
        replayed_by: HTTP,
    },
    Target {
        name: "post",
        about: "one request over HTTP, headers and body, through the whole service",
        replayed_by: HTTP,
    },
];

/// Look for inputs that break an invariant, with libFuzzer
#[derive(clap::Args)]
#[command(
    long_about = "Look for inputs that break an invariant, with libFuzzer.\n\n\
        It needs a nightly compiler and cargo-fuzz, and says how to get them if they are missing. Nothing else of this \
        project does: the seeds in core/fuzz/corpus are replayed on stable by\n\
        `cargo test -p CRATE --test fuzz_corpus`, CRATE being mcp-steady-core or mcp-steady-http, which `verify` runs.",
    after_long_help = help()
)]
pub(crate) struct Options {
    /// Which target; all of them, one after the other, if none is named
    #[arg(value_name = "TARGET", value_parser = names())]
    target: Option<String>,
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

fn names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(TARGETS.iter().map(|target| target.name))
}

fn help() -> String {
    let lines: Vec<String> = TARGETS.iter().map(|target| format!("  {:13} {}", target.name, target.about)).collect();
    format!(
        "Targets:\n{}\n\nExamples:\n  \
        cargo xtask fuzz                          a minute of each\n  \
        cargo xtask fuzz --seconds 3600 events    an hour of one, going on where the last run stopped\n\n\
        A run starts from the committed seeds and from what earlier runs left in target/fuzz/TARGET. An input that \
        breaks something is written to core/fuzz/artifacts/TARGET: copy it to core/fuzz/corpus/TARGET, and the plain \
        test fails until the fault is gone, and keeps it away after that.\n\n\
        The exit code is 0 if nothing was found, 1 if something was, 2 if a tool is missing.",
        lines.join("\n")
    )
}

/// Runs the targets; false if one of them found something.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    let console = Console::stdout();
    let workspace = Workspace::enter()?;
    needs_tools()?;
    let folder = workspace.scratch("fuzz")?;
    let chosen = |target: &&Target| options.target.as_ref().is_none_or(|name| name == target.name);
    let mut found = Vec::new();
    for target in TARGETS.iter().filter(chosen) {
        let learned = workspace.scratch(&format!("fuzz/{}", target.name))?;
        let command = target.command(&learned, options.seconds);
        console.say(&format!("$ {command}"));
        let log = folder.join(format!("{}.log", target.name));
        let sink = Sink::new(File::create(&log).map_err(Error::file(&log))?, Some(console));
        let done = command.run(&sink)?;
        let inputs = fs::read_dir(&learned).map_err(Error::file(&learned))?.count();
        console.say(&format!("{}: {inputs} inputs in {}, log in {}", target.name, learned.display(), log.display()));
        if !done.success {
            found.push(target);
        }
    }
    for target in &found {
        let (name, replay) = (target.name, target.replay());
        console.say(&format!(
            "{name}: failed; if it left an input in {FOLDER}/artifacts/{name}, copy that to {FOLDER}/corpus/{name} and run\n  {replay}"
        ));
    }
    Ok(found.is_empty())
}

fn needs_tools() -> Result<(), Error> {
    let nightly = Command::line("cargo +nightly --version").works();
    let fuzz = Command::line("cargo fuzz --version").works();
    let mut lacking = Vec::new();
    if !nightly {
        lacking.push("a nightly compiler:  rustup toolchain install nightly --profile minimal");
    }
    if !fuzz {
        lacking.push("cargo-fuzz:          cargo install cargo-fuzz --locked");
    }
    if lacking.is_empty() {
        return Ok(());
    }
    let lacking = lacking.join("\n  ");
    let replay = "cargo nextest run --workspace -E 'binary(fuzz_corpus)'";
    Err(Error::check(format!("fuzzing needs\n  {lacking}\nWithout them, replay the seeds: {replay}")))
}

impl Target {
    fn replay(&self) -> String {
        format!("cargo test -p {} --test fuzz_corpus {}", self.replayed_by, self.name)
    }

    fn command(&self, learned: &Path, seconds: u32) -> Command {
        Command::line("cargo +nightly fuzz run --fuzz-dir")
            .args([FOLDER, self.name])
            // libFuzzer writes to the first folder and only reads the others.
            .arg(learned)
            .arg(format!("{FOLDER}/corpus/{}", self.name))
            .args(["--".to_string(), format!("-max_total_time={seconds}"), "-print_final_stats=1".to_string()])
    }
}

#[cfg(test)]
mod tests {
    use super::{FOLDER, TARGETS};
    use std::fs;
    use std::path::Path;

    #[test]
    fn every_target_has_a_program_and_seeds() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(FOLDER);
        let programs = fs::read_dir(root.join("fuzz_targets")).unwrap().count();
        assert_eq!(programs, TARGETS.len(), "one of them is missing in the table");
        for target in TARGETS {
            assert!(root.join("fuzz_targets").join(format!("{}.rs", target.name)).is_file(), "{}", target.name);
            assert!(fs::read_dir(root.join("corpus").join(target.name)).unwrap().count() > 0, "{}", target.name);
        }
    }

    #[test]
    fn new_inputs_go_to_the_first_folder() {
        let line = TARGETS[2].command(Path::new("target/fuzz/events"), 5).to_string();
        assert_eq!(
            line,
            "cargo +nightly fuzz run --fuzz-dir core/fuzz events target/fuzz/events core/fuzz/corpus/events -- \
             -max_total_time=5 -print_final_stats=1"
        );
    }
}
