//! The demonstration: the races and the opening story in virtual time, on the shipped machines and a real ledger file.

mod pressure;
mod race;
mod story;

use std::path::Path;

use serde::Serialize;
use steady_core::client::{Outcome, Transport};

use crate::wire::Answer;

/// What was shown, and whether it holds.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The parts, in order.
    pub sections: Vec<Section>,
}

impl Report {
    /// Whether every claim holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.sections.iter().flat_map(|section| &section.claims).all(|claim| claim.holds)
    }
}

/// One part: what happened, then what it shows.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Section {
    /// What it is about.
    pub title: String,
    /// What happened.
    pub events: Vec<String>,
    /// What it shows.
    pub claims: Vec<Claim>,
}

/// One statement that was checked.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Claim {
    /// The statement.
    pub text: String,
    /// What was found.
    pub found: String,
    /// Whether the statement holds.
    pub holds: bool,
}

impl Section {
    /// An empty part.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), events: Vec::new(), claims: Vec::new() }
    }

    /// Adds something that happened.
    pub fn event(&mut self, text: impl Into<String>) {
        self.events.push(text.into());
    }

    /// Adds a statement, which holds if `found` is what was `expected`.
    pub fn claim<T: PartialEq + std::fmt::Debug>(&mut self, text: impl Into<String>, found: T, expected: T) {
        let holds = found == expected;
        let found = if holds { format!("{found:?}") } else { format!("{found:?}, not {expected:?}") };
        self.claims.push(Claim { text: text.into(), found, holds });
    }
}

/// Why the demonstration could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// The ledger.
    #[error("the demonstration's ledger: {0}")]
    Ledger(#[from] steady_ledger::LedgerError),
    /// A call was not taken: a fault of the demonstration.
    #[error("the client took no call")]
    NotTaken,
}

/// Runs the part in virtual time. Ledger files are made in `dir`.
///
/// # Errors
/// [`DemoError`] if it cannot run; a statement that does not hold is in the report.
pub fn run(dir: &Path) -> Result<Report, DemoError> {
    let mut report = Report::default();
    for transport in [Transport::Stdio, Transport::Http] {
        for order in [race::Order::CancelFirst, race::Order::CompleteFirst] {
            report.sections.push(race::run(dir, transport, order)?);
        }
    }
    for key in [None, Some("order-7")] {
        report.sections.push(story::run(dir, key)?);
    }
    report.sections.push(pressure::buffer());
    report.sections.push(pressure::task());
    Ok(report)
}

const fn name(transport: Transport) -> &'static str {
    match transport {
        Transport::Stdio => "stdio",
        Transport::Http => "HTTP",
    }
}

pub(crate) const fn outcome(outcome: &Outcome<Answer>) -> &'static str {
    match outcome {
        Outcome::Answered(Answer::Result(_)) => "answered",
        Outcome::Answered(Answer::Error(_)) => "refused",
        Outcome::Cancelled => "cancelled",
        Outcome::IdleTimeout => "idle timeout",
        Outcome::MaxTimeout => "maximum timeout",
        Outcome::NeverSent => "never sent",
        Outcome::Unknown => "unknown",
    }
}
