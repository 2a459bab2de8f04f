//! The reviewer: is an operation safe to retry, with this transport, these limits and these policies?
//!
//! [`Design::parse`] reads what somebody plans, [`review`] holds it against the rules. What can be computed is computed by
//! the machines that ship: the race table by the client and the kernel in virtual time, the retry classification by the
//! matrix of [`steady_core::retry`], the overload by the outbound buffer, the refetches by the recovery plan. The rest are
//! findings, each with the rule that it rests on, what to do, and where there is one, an experiment of what it should look
//! like and the name of the failure in the catalogue.

pub mod design;
mod finding;
mod flow;
mod key;
mod limits;
mod parse;
mod race;
mod recovery;
mod render;

use serde::Serialize;
use steady_core::retry::{Row, Safety, matrix};

pub use design::Design;
pub use finding::{Area, Finding, Fixture, Severity};
pub use flow::Overload;
pub(crate) use flow::overload_buffer;
pub use parse::DesignError;
pub use race::Race;

/// What the reviewer found.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Review {
    /// The operation.
    pub operation: String,
    /// Whether it may be used as it is planned: no finding blocks it.
    pub ready: bool,
    /// Each race of the operation's request, as the shipped machines decide it.
    pub races: Vec<Race>,
    /// What to say about the limits that were played, if they are not the planned ones.
    pub played: Option<String>,
    /// What repeating the operation can do, and what follows.
    pub retry: Retry,
    /// The planned places for progress; 0 is no bound.
    pub capacity: usize,
    /// The outbound buffer, overloaded.
    pub overload: Overload,
    /// The methods to read afresh after a lost subscription, from the recovery plan.
    pub refetch: Vec<&'static str>,
    /// What was found, by area, what blocks first.
    pub findings: Vec<Finding>,
}

/// The retry classification.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Retry {
    /// The class: safe, conditional, unsafe.
    pub class: String,
    /// Why it is no better.
    pub because: String,
    /// The verdict after an attempt that never left, and after one that may have.
    pub never_sent: String,
    /// See [`never_sent`](Self::never_sent).
    pub maybe_sent: String,
}

/// Reviews a design.
#[must_use]
pub fn review(design: &Design) -> Review {
    let (class, because) = key::class(design);
    let mut findings = Vec::new();
    limits::check(design, &mut findings);
    key::check(design, class, &mut findings);
    flow::check(design, &mut findings);
    let refetch = recovery::check(design, &mut findings);
    findings.sort_by_key(|finding| (finding.severity, finding.area));
    Review {
        operation: design.operation.name.clone(),
        ready: findings.iter().all(|finding| finding.severity != Severity::Blocks),
        races: race::table(design, class),
        played: race::note(design),
        retry: classified(class, because),
        capacity: design.queue.capacity,
        overload: flow::overload(design),
        refetch,
        findings,
    }
}

fn classified(class: Safety, because: String) -> Retry {
    let cells: Vec<Row> = matrix().into_iter().filter(|row| row.safety == class).collect();
    let verdict = |index: usize| cells.get(index).map(|row| row.verdict.to_string()).unwrap_or_default();
    Retry { class: class.to_string(), because, never_sent: verdict(0), maybe_sent: verdict(1) }
}
