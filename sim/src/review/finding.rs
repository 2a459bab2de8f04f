//! What the reviewer found: one statement about a design, and what it rests on.

use serde::Serialize;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::exhaustive_enums, reason = "there are two")]
pub enum Severity {
    /// An outcome is wrong, or not defined.
    Blocks,
    /// It holds, but costs or surprises.
    Warns,
}

/// What it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::exhaustive_enums, reason = "the parts of a review")]
pub enum Area {
    /// Cancellation and clocks.
    Races,
    /// What may be sent again.
    Retry,
    /// Key, effect and result.
    Idempotency,
    /// Slow readers.
    Flow,
    /// Lost subscriptions.
    Recovery,
    /// Durable tasks.
    Tasks,
}

impl Area {
    /// As a heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Races => "Cancellation and clocks",
            Self::Retry => "Retry",
            Self::Idempotency => "Idempotency boundary",
            Self::Flow => "Flow control",
            Self::Recovery => "Recovery",
            Self::Tasks => "Tasks",
        }
    }
}

/// An experiment on the shipped client and server: what the operation should look like where the plan fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fixture {
    /// A name for its file.
    pub name: &'static str,
    /// The entry of the failure catalogue that shows the failure itself, with wrong code: `steady-sim failures NAME`.
    pub failure: Option<&'static str>,
    /// The steps, as `steady-sim lab --script` runs them.
    pub script: &'static str,
    /// How its request ends, as the lab prints it.
    pub ends: &'static str,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What it is about.
    pub area: Area,
    /// The rules it rests on, by the project's ids.
    pub rules: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
    /// What it should look like, and what shows the failure.
    pub fixture: Option<Fixture>,
}

/// Findings as they are collected.
pub(super) struct Notes<'a> {
    area: Area,
    into: &'a mut Vec<Finding>,
}

impl<'a> Notes<'a> {
    pub(super) const fn new(area: Area, into: &'a mut Vec<Finding>) -> Self {
        Self { area, into }
    }

    pub(super) fn blocks(&mut self, when: bool, rules: &'static str, what: &str, remedy: &str) -> &mut Self {
        self.note(when, Severity::Blocks, rules, what, remedy)
    }

    pub(super) fn warns(&mut self, when: bool, rules: &'static str, what: &str, remedy: &str) -> &mut Self {
        self.note(when, Severity::Warns, rules, what, remedy)
    }

    fn note(&mut self, when: bool, severity: Severity, rules: &'static str, what: &str, remedy: &str) -> &mut Self {
        if when {
            let (what, remedy) = (what.into(), remedy.into());
            self.into.push(Finding { severity, area: self.area, rules, what, remedy, fixture: None });
        }
        self
    }

    /// Adds what shows the last finding, if `when` made one.
    pub(super) fn shown_by(&mut self, when: bool, fixture: Fixture) -> &mut Self {
        if when && let Some(last) = self.into.last_mut() {
            last.fixture = Some(fixture);
        }
        self
    }
}
