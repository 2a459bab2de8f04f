//! `cargo xtask mutants`: are the tests able to fail? Each mutant is a small
//! change of the code; one that no test notices shows what is not tested.

use crate::cargo::Workspace;
use crate::console::Console;
use crate::error::Error;
use crate::process::{Command, Sink};
use serde::Deserialize;
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;

/// Change the code in small ways and see which changes no test notices
#[derive(clap::Args)]
#[command(
    long_about = "Change the code in small ways and see which changes no test notices.\n\n\
        It runs cargo-mutants on a copy of the checkout, with nextest where that is installed, and prints the score and \
        the mutants that survived. All of a package takes hours: name files, or a change.",
    after_long_help = "Examples:\n  \
        cargo xtask mutants -- -f core/src/request.rs       the mutants of one file\n  \
        cargo xtask mutants -- --in-diff my.diff            those in the lines that a diff touches\n  \
        cargo xtask mutants -- -f core/src/rpc/scan.rs --list    show them, and run nothing\n\n\
        A survivor is answered by a test that fails under it, or by code that has no such place. The score counts a \
        mutant that runs into its time limit as noticed, and leaves out those that do not compile.\n\n\
        The exit code is 0 if every mutant was noticed, 1 if one survived, 2 if the run could not be made."
)]
pub(crate) struct Options {
    /// The package whose code is changed and whose tests run
    #[arg(long, value_name = "NAME", default_value = "mcp-steady-core")]
    package: String,
    /// Options of cargo-mutants, after `--`
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

/// Runs cargo-mutants; false if a mutant survived.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    let console = Console::stdout();
    let workspace = Workspace::enter()?;
    if !Command::line("cargo mutants --version").works() {
        return Err(Error::check("mutants need cargo-mutants: cargo install cargo-mutants --locked"));
    }
    let folder = workspace.scratch("mutants")?;
    let nextest = Command::line("cargo nextest --version").works();
    let command = options.command(&folder, nextest);
    console.say(&format!("$ {command}"));
    let log = folder.join("run.log");
    let sink = Sink::new(File::create(&log).map_err(Error::file(&log))?, Some(console));
    let outcomes = folder.join("mutants.out/outcomes.json");
    // What an earlier run left must not pass for this one's.
    if outcomes.exists() {
        fs::remove_file(&outcomes).map_err(Error::file(&outcomes))?;
    }
    let done = command.run(&sink)?;
    if !outcomes.exists() {
        // Nothing was run: a list, or options that cargo-mutants explains itself.
        return done.checked(&command).map(|()| true);
    }
    let score = Score::read(&fs::read_to_string(&outcomes).map_err(Error::file(&outcomes))?)?;
    console.say(&format!("\n{}\nlog: {}", score.report(), log.display()));
    Ok(score.survivors.is_empty())
}

impl Options {
    fn command(&self, folder: &Path, nextest: bool) -> Command {
        Command::line("cargo mutants --no-shuffle --minimum-test-timeout 60 --timeout-multiplier 3")
            .args(["--package", &self.package, "--output"])
            .arg(folder)
            .args(["--exclude", "**/benches/**", "--exclude", "**/fuzz/**"])
            .args(["--test-tool", if nextest { "nextest" } else { "cargo" }])
            .args(&self.args)
    }
}

/// What cargo-mutants writes down.
#[derive(Deserialize)]
struct Outcomes {
    outcomes: Vec<Outcome>,
}

#[derive(Deserialize)]
struct Outcome {
    /// `"Baseline"`, or an object with the mutant.
    scenario: Value,
    summary: String,
}

/// How many mutants the tests noticed.
#[derive(Debug, Default, PartialEq)]
struct Score {
    noticed: usize,
    unviable: usize,
    survivors: Vec<String>,
}

impl Score {
    fn read(json: &str) -> Result<Self, Error> {
        let new_form = |why: String| Error::check(format!("cargo-mutants writes its outcomes in a new form: {why}"));
        let all: Outcomes = serde_json::from_str(json).map_err(|why| new_form(why.to_string()))?;
        let mut score = Self::default();
        for outcome in all.outcomes {
            let mutant = outcome.scenario.pointer("/Mutant/name").and_then(Value::as_str);
            match (mutant, outcome.summary.as_str()) {
                (_, "CaughtMutant" | "Timeout") => score.noticed += 1,
                (_, "Unviable") => score.unviable += 1,
                (Some(name), "MissedMutant") => score.survivors.push(name.to_string()),
                (None, "Success") => {}
                (None, _) => return Err(Error::check("the tests fail without any mutant; see the log")),
                (Some(name), other) => return Err(new_form(format!("{name} is {other:?}"))),
            }
        }
        Ok(score)
    }

    fn report(&self) -> String {
        let viable = self.noticed + self.survivors.len();
        let percent = (self.noticed * 100).checked_div(viable).unwrap_or(100);
        let mut lines = vec![format!(
            "{} of {viable} mutants noticed ({percent} %), {} did not compile",
            self.noticed, self.unviable
        )];
        lines.extend(self.survivors.iter().map(|name| format!("survived: {name}")));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::{Options, Score};
    use std::path::Path;

    #[test]
    fn own_options_come_last() {
        let options = Options { package: "p".into(), args: vec!["-f".into(), "a.rs".into()] };
        let line = options.command(Path::new("target/mutants"), true).to_string();
        assert!(line.contains("--package p --output target/mutants"), "{line}");
        assert!(line.ends_with("--test-tool nextest -f a.rs"), "{line}");
    }

    #[test]
    fn the_score_counts_what_compiles() {
        let outcome = |mutant: &str, summary: &str| {
            format!(r#"{{"scenario":{{"Mutant":{{"name":"{mutant}"}}}},"summary":"{summary}","phase_results":[]}}"#)
        };
        let read = |outcomes: &[String]| Score::read(&format!(r#"{{"outcomes":[{}],"total":0}}"#, outcomes.join(",")));
        let good = r#"{"scenario":"Baseline","summary":"Success"}"#.to_string();
        let mutants = [
            good.clone(),
            outcome("a", "CaughtMutant"),
            outcome("b", "Timeout"),
            outcome("c", "Unviable"),
            outcome("d", "MissedMutant"),
        ];
        let report = read(&mutants).unwrap().report();
        assert_eq!(report, "2 of 3 mutants noticed (66 %), 1 did not compile\nsurvived: d");
        assert_eq!(read(&[good]).unwrap().report(), "0 of 0 mutants noticed (100 %), 0 did not compile");
        assert!(read(&[outcome("a", "Later")]).unwrap_err().to_string().contains("a is \"Later\""));
        let bad = r#"{"scenario":"Baseline","summary":"Failure"}"#.to_string();
        assert!(read(&[bad]).unwrap_err().to_string().contains("without any mutant"));
    }
}
