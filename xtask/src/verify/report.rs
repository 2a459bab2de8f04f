//! The result of a run: one table for people, one JSON file for programs.

use super::statements::Statement;
use super::step::{Outcome, Step};
use crate::error::Error;
use crate::table::Table;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// A step as it went.
#[derive(Debug, Serialize)]
pub(crate) struct StepRow {
    pub(crate) name: &'static str,
    pub(crate) proves: &'static str,
    pub(crate) command: String,
    pub(crate) seconds: f64,
    pub(crate) result: String,
}

impl StepRow {
    /// The row of a step that has ended.
    pub(crate) fn new(step: &Step, command: String, took: Duration, outcome: &Outcome) -> Self {
        let seconds = (took.as_secs_f64() * 1000.0).round() / 1000.0;
        Self { name: step.name, proves: step.proves, command, seconds, result: outcome.word() }
    }

    fn failed(&self) -> bool {
        self.result.starts_with("FAILED")
    }

    fn skipped(&self) -> bool {
        self.result.starts_with("skipped")
    }
}

/// The whole run, in the form of `target/verify.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    steps: Vec<StepRow>,
    statements: Vec<Statement>,
    ok: bool,
}

impl Report {
    /// The result is good if no step failed.
    pub(crate) fn new(steps: Vec<StepRow>, statements: Vec<Statement>) -> Self {
        let ok = !steps.iter().any(StepRow::failed);
        Self { steps, statements, ok }
    }

    /// Whether no step failed.
    pub(crate) fn ok(&self) -> bool {
        self.ok
    }

    /// The form for programs.
    pub(crate) fn json(&self) -> String {
        // Strings, numbers and lists: there is nothing in it that can fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Writes the form for programs.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        std::fs::write(path, self.json() + "\n").map_err(Error::file(path))
    }

    /// The form for people.
    pub(crate) fn table(&self) -> String {
        let mut table = Table::new(&["step", "what it proves", "time", "result"]);
        for row in &self.steps {
            let time = format!("{:6.1} s", row.seconds);
            table.row([row.name.to_string(), row.proves.to_string(), time, row.result.clone()]);
        }
        table.render()
    }

    /// The line that ends the run.
    pub(crate) fn last_line(&self) -> String {
        let failed = self.steps.iter().filter(|row| row.failed()).count();
        let skipped = self.steps.iter().filter(|row| row.skipped()).count();
        let passed = self.steps.len() - failed - skipped;
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// All steps with what they prove and need.
pub(crate) fn list(steps: &[Step]) -> String {
    let mut table = Table::new(&["step", "what it proves", "needs"]);
    for step in steps {
        let tools: Vec<&str> = step.tools.iter().map(|tool| tool.name).collect();
        let optional = if step.required { "" } else { " (optional)" };
        let needs = format!("{}{optional}", tools.join(", "));
        table.row([step.name.to_string(), step.proves.to_string(), needs]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::{Report, StepRow};
    use crate::verify::step::{Outcome, Step};
    use std::time::Duration;

    fn report(outcomes: &[Outcome]) -> Report {
        let step = Step { name: "it", proves: "all", required: true, tools: &[], run: |_| Ok(()), next: "wait" };
        let row = |outcome| StepRow::new(&step, "true".to_string(), Duration::from_millis(1234), outcome);
        Report::new(outcomes.iter().map(row).collect(), Vec::new())
    }

    #[test]
    fn a_skip_is_no_failure_and_a_missing_required_tool_is_one() {
        let good = report(&[Outcome::Passed, Outcome::Skipped("deny")]);
        assert!(good.ok());
        assert_eq!(good.last_line(), "1 passed, 0 failed, 1 skipped");
        let bad = report(&[Outcome::Passed, Outcome::Missing("node"), Outcome::Failed]);
        assert!(!bad.ok());
        assert_eq!(bad.last_line(), "1 passed, 2 failed, 0 skipped");
    }

    #[test]
    fn both_forms_tell_the_same() {
        let report = report(&[Outcome::Skipped("deny")]);
        assert!(report.table().ends_with("it    all                1.2 s  skipped: deny"), "{}", report.table());
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["steps"][0]["seconds"], 1.234);
        assert_eq!(json["steps"][0]["command"], "true");
        assert_eq!(json["ok"], true);
    }
}
