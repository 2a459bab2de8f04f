//! `cargo xtask verify`: every claim of the project, proved again.
//!
//! Steps run from cheap to dear and each prints its own command. What a step
//! says goes to `target/verify/STEP.log`; the end of it is shown when the step
//! fails. A failure does not stop the run, so one run shows all of them. A tool
//! that is missing skips its step by name; under `--ci` that fails the run
//! unless the step is optional.

mod compare;
mod conformance;
mod context;
mod demo;
mod dialogue;
mod docs_drift;
mod evidence;
mod explore;
mod interop;
mod invariants;
mod outside;
mod proxies;
mod report;
mod schema;
mod served;
mod source;
mod statements;
mod step;
mod steps;
mod swarm;
mod test_log;
mod tidy;

use crate::cargo::Workspace;
use crate::console::Console;
use crate::error::Error;
use clap::builder::PossibleValuesParser;
use context::Context;
use report::{Report, StepRow};
use std::time::Instant;
use step::{Outcome, Step};
use steps::STEPS;
pub(crate) use tidy::files_that_end;

/// Regenerate the evidence: build, lint, test, prove, drive from outside
#[derive(clap::Args)]
#[command(
    long_about = "Regenerate the evidence for every claim of the project.\n\n\
        Steps run from cheap to dear, and a failing step does not stop the run. The output of each step is kept in \
        target/verify/STEP.log and its end is shown on failure; target/verify.json holds the whole result.",
    after_long_help = "Examples:\n  \
        cargo xtask verify                       everything this machine has the tools for\n  \
        cargo xtask verify --ci                  the same, and a missing tool fails the run\n  \
        cargo xtask verify --only statements     the 12 statements and the tests behind them\n  \
        cargo xtask verify --skip interop -v     watch the output, leave the SDK clients out\n\n\
        The exit code is 0 if nothing failed, 1 if a step failed, 2 if the run could not start."
)]
pub(crate) struct Options {
    /// Fail when a required step is skipped, and show more of a failing log
    #[arg(long)]
    ci: bool,
    /// Run this step only (repeatable)
    #[arg(long, value_name = "STEP", value_parser = step_names())]
    only: Vec<String>,
    /// Leave this step out (repeatable)
    #[arg(long, value_name = "STEP", value_parser = step_names())]
    skip: Vec<String>,
    /// Say what each step proves and needs, and run nothing
    #[arg(long)]
    list: bool,
    /// Print the result as JSON on standard output; the rest goes to standard error
    #[arg(long)]
    json: bool,
    /// Show the output of the steps while they run
    #[arg(short, long)]
    verbose: bool,
}

fn step_names() -> PossibleValuesParser {
    PossibleValuesParser::new(STEPS.iter().map(|step| step.name))
}

impl Options {
    /// One step and nothing else.
    pub(crate) fn only(step: &str) -> Self {
        let (ci, skip, list, json, verbose) = (false, Vec::new(), false, false, false);
        Self { ci, only: vec![step.to_string()], skip, list, json, verbose }
    }

    fn selects(&self, step: &Step) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == step.name);
        (self.only.is_empty() || named(&self.only)) && !named(&self.skip)
    }
}

/// Runs the selected steps; true if none of them failed.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    let console = if options.json { Console::stderr() } else { Console::stdout() };
    if options.list {
        console.say(&report::list(STEPS));
        return Ok(true);
    }
    let selected: Vec<&Step> = STEPS.iter().filter(|step| options.selects(step)).collect();
    if selected.is_empty() {
        return Err(Error::check("--only and --skip leave no step; `--list` shows their names"));
    }
    let live = options.verbose.then_some(console);
    let workspace = Workspace::enter()?;
    let result = workspace.target.join("verify.json");
    let mut cx = Context::new(workspace, console, live)?;
    let rows: Vec<StepRow> = selected.into_iter().map(|step| run_step(step, options.ci, &mut cx)).collect();
    let report = Report::new(rows, cx.statements());
    report.write(&result)?;
    if options.json {
        Console::stdout().say(&report.json());
    }
    console.say(&format!("\n{}\n\nresult: {}\n{}", report.table(), result.display(), report.last_line()));
    Ok(report.ok())
}

/// Runs one step and says how it went.
fn run_step(step: &Step, ci: bool, cx: &mut Context) -> StepRow {
    let console = cx.console();
    console.say(&format!("\n== {}: {}", step.name, step.proves));
    let started = Instant::now();
    let outcome = match step.missing_tool() {
        Some(tool) => Outcome::for_missing(tool, step.required && ci),
        None => match cx.open_log(step.name).and_then(|()| (step.run)(cx)) {
            Ok(()) => Outcome::Passed,
            Err(error) => {
                console.say(&cx.failure(&error, if ci { 200 } else { 40 }));
                console.say(&format!("   next: {}", step.next));
                Outcome::Failed
            }
        },
    };
    let row = StepRow::new(step, cx.take_commands(), started.elapsed(), &outcome);
    console.say(&format!("   {}: {} ({:.1} s)", step.name, row.result, row.seconds));
    row
}

#[cfg(test)]
mod tests {
    use super::{Options, STEPS};
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn selected(args: &[&str]) -> Vec<&'static str> {
        let line = Line::parse_from([&["verify"], args].concat());
        STEPS.iter().filter(|step| line.options.selects(step)).map(|step| step.name).collect()
    }

    #[test]
    fn only_and_skip_choose_steps_in_the_order_of_the_table() {
        assert_eq!(selected(&[]).len(), STEPS.len());
        assert_eq!(selected(&["--only", "clippy", "--only", "fmt"]), ["fmt", "clippy"]);
        assert!(!selected(&["--skip", "fmt"]).contains(&"fmt"));
        assert!(selected(&["--only", "fmt", "--skip", "fmt"]).is_empty());
    }

    #[test]
    fn an_unknown_step_is_refused() {
        assert!(Line::try_parse_from(["verify", "--only", "fmtt"]).is_err());
    }
}
