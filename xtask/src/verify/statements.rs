//! The 12 statements of the project, each bound to the tests that carry its
//! number in their name: `statement_07_…`. A statement holds if at least one
//! such test ran and all of them passed.

use super::context::Context;
use super::steps::{TestRun, run_tests};
use super::test_log::TestResults;
use crate::error::Error;
use serde::Serialize;

/// What the project states, in order; the number is the place in this list.
const STATEMENTS: [&str; 12] = [
    "stdio cancellation sends notifications/cancelled and receives no response",
    "Streamable HTTP cancellation closes the request's stream and sends no cancellation POST",
    "cancel, then complete: the response is suppressed",
    "complete, then cancel: the response is kept and the late cancellation ignored",
    "progress may reset the idle timeout, never the maximum",
    "a new JSON-RPC id alone executes a mutation again",
    "one idempotency key with the same arguments executes once, also when two connections race",
    "committed records survive a reopen, and a replay returns a copy",
    "changing a returned result does not change the stored one",
    "the bounded buffer stays within its capacity and keeps the final response",
    "reconnecting uses a new request, sends no Last-Event-ID and refetches the affected state",
    "a tasks/cancel acknowledgement leaves the task non-terminal until the worker observes it",
];

/// A statement and what its tests said.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(crate) struct Statement {
    number: usize,
    text: &'static str,
    /// The tests behind it, separated by commas.
    test: String,
    result: &'static str,
}

impl Statement {
    /// What it states.
    pub(crate) fn text(&self) -> &'static str {
        self.text
    }

    /// `ok`, or `FAILED`.
    pub(crate) fn result(&self) -> &'static str {
        self.result
    }

    pub(crate) fn holds(&self) -> bool {
        self.result == "ok"
    }

    fn line(&self) -> String {
        format!("{:6}  {:2}  {}", self.result, self.number, self.text)
    }
}

/// Sets the tests against the statements.
pub(crate) fn judge(tests: &TestResults) -> Vec<Statement> {
    let statement = |(index, text): (usize, &&'static str)| {
        let number = index + 1;
        let found = tests.with_prefix(&prefix(number));
        let holds = !found.is_empty() && found.iter().all(|(_, passed)| *passed);
        let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
        Statement { number, text, test: names.join(", "), result: if holds { "ok" } else { "FAILED" } }
    };
    STATEMENTS.iter().enumerate().map(statement).collect()
}

fn prefix(number: usize) -> String {
    format!("statement_{number:02}_")
}

/// The step: uses what the test step saw, or runs these tests alone.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    let mut findings = Vec::new();
    if cx.tests.is_none() {
        let (tests, done) = run_tests(cx, TestRun::Statements)?;
        cx.tests = Some(tests);
        findings.extend(done.err().map(|error| error.to_string()));
    }
    let statements = cx.statements();
    for statement in &statements {
        cx.show(&statement.line());
    }
    findings.extend(statements.iter().filter(|statement| !statement.holds()).map(finding));
    Error::unless_empty(findings)
}

fn finding(statement: &Statement) -> String {
    let number = statement.number;
    if statement.test.is_empty() {
        return format!("statement {number}: no test named {}… ran", prefix(number));
    }
    format!("statement {number}: not all of these passed: {}", statement.test)
}

#[cfg(test)]
mod tests {
    use super::{finding, judge};
    use crate::verify::test_log::TestResults;

    #[test]
    fn a_statement_needs_a_test_and_no_failing_one() {
        let log = "test a::statement_01_x ... ok\ntest a::statement_02_x ... ok\ntest b::statement_02_y ... FAILED\n\
            test statement_12_x ... ok\n";
        let statements = judge(&TestResults::from_cargo_test(log));
        let results: Vec<&str> = statements.iter().map(|s| s.result).collect();
        assert_eq!(statements.len(), 12);
        assert_eq!(results[..3], ["ok", "FAILED", "FAILED"]);
        assert_eq!(results[11], "ok");
        assert_eq!(statements[1].test, "a::statement_02_x, b::statement_02_y");
        assert_eq!(finding(&statements[2]), "statement 3: no test named statement_03_… ran");
        assert!(finding(&statements[1]).contains("b::statement_02_y"));
    }

    #[test]
    fn numbers_have_two_digits() {
        let statements = judge(&TestResults::from_cargo_test("test statement_1_x ... ok\n"));
        assert_eq!(statements[0].result, "FAILED");
    }
}
