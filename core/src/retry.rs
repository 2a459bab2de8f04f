//! Whether a call may be sent again, and whether the client may spend a retry on it.
//!
//! Two pure decisions, composed by the client:
//!
//! 1. **The matrix.** [`Contract::verdict`]: what the caller promised about the operation, crossed with whether the
//!    attempt may have reached the server.
//!
//!    | contract | never sent | maybe sent |
//!    |---|---|---|
//!    | safe | retry | retry |
//!    | conditional (carries a key) | retry with the same key | retry with the same key |
//!    | unsafe, or nothing stated | retry | reconcile first |
//!
//!    The class comes from the **caller's contract** and from nowhere else. Tool annotations (`readOnlyHint`,
//!    `idempotentHint`, `destructiveHint`) are hints from a peer that may be wrong or hostile: there is no way to feed
//!    them in. Nothing stated is [`Contract::Unsafe`].
//!
//! 2. **The budget.** [`RetryBudget`]: retries stay a fraction of a client's traffic.
//!
//! There are no states and no time in the matrix, hence no ties.
//!
//! Invariants:
//! - `RETRY-1` an unsafe call that may have been sent is never retried: it is reconciled (rule L5, S4);
//! - `RETRY-2` a conditional call is repeated only with the same key and the same stored argument bytes;
//! - `RETRY-3` what was never sent may be retried whatever the contract says;
//! - `RETRY-4` the budget's level stays within `0..=capacity`, and a denied retry costs nothing.
//!
//! ```
//! use steady_core::retry::{BudgetConfig, BudgetEffect, BudgetEvent, Contract, RetryBudget, SendPhase, Verdict};
//! use steady_core::time::Instant;
//!
//! let contract = Contract::default();
//! assert_eq!(contract.verdict(SendPhase::NeverSent), Verdict::Retry);
//! assert_eq!(contract.verdict(SendPhase::MaybeSent), Verdict::ReconcileFirst);
//!
//! let now = Instant::ZERO;
//! let mut budget = RetryBudget::new(now, BudgetConfig::default());
//! assert_eq!(budget.handle(now, BudgetEvent::CallStarted), BudgetEffect::Earned);
//! assert_eq!(budget.handle(now, BudgetEvent::RetryWanted), BudgetEffect::Granted);
//! ```

use alloc::string::String;
use core::fmt;

use crate::idempotency::Key;

mod budget;

pub use budget::{BudgetConfig, BudgetEffect, BudgetEvent, RetryBudget};

/// What repeating an operation can do, as the caller states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Safety {
    /// Repeating changes nothing: a pure read.
    Safe,
    /// Repeating under the same key and the same arguments has the effect once.
    Conditional,
    /// Repeating may do it twice. Also the answer to "nobody said".
    Unsafe,
}

/// Whether the bytes of an attempt can have reached the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SendPhase {
    /// Not one byte of the request left: the link proved it (refused, not connected, still queued).
    NeverSent,
    /// Everything else: a byte may have left, so the server may have run it.
    MaybeSent,
}

impl SendPhase {
    /// The phase of two attempts taken together: maybe sent if either was.
    #[must_use]
    pub const fn worst(self, other: Self) -> Self {
        match (self, other) {
            (Self::NeverSent, Self::NeverSent) => Self::NeverSent,
            (Self::NeverSent, Self::MaybeSent) | (Self::MaybeSent, Self::NeverSent | Self::MaybeSent) => {
                Self::MaybeSent
            }
        }
    }
}

/// What may be done about an attempt that failed without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use]
pub enum Verdict {
    /// Send the request again under a new wire id (rule H7).
    Retry,
    /// Send it again under a new wire id with the **same key and the same stored argument bytes**: the bytes are kept
    /// from the first attempt, never rebuilt (`RETRY-2`).
    RetrySameKey,
    /// Do not send it again. Find out what happened first, by a business key or by a read (`RETRY-1`).
    ReconcileFirst,
}

/// What the caller promises about an operation. The only input to the class of a call.
///
/// A conditional contract without a key cannot be written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Contract {
    /// The operation only reads.
    Safe,
    /// The server runs the operation once for each key.
    Conditional(Key),
    /// No promise. The default.
    #[default]
    Unsafe,
}

impl Contract {
    /// The class of the contract.
    #[must_use]
    pub const fn safety(&self) -> Safety {
        match self {
            Self::Safe => Safety::Safe,
            Self::Conditional(_) => Safety::Conditional,
            Self::Unsafe => Safety::Unsafe,
        }
    }

    /// The key, if the contract has one.
    #[must_use]
    pub const fn key(&self) -> Option<&Key> {
        match self {
            Self::Conditional(key) => Some(key),
            Self::Safe | Self::Unsafe => None,
        }
    }

    /// What may be done after an attempt failed in `phase` without an answer.
    pub const fn verdict(&self, phase: SendPhase) -> Verdict {
        verdict(self.safety(), phase)
    }
}

/// The matrix. A conditional call keeps its key even if this attempt was never sent: an earlier one may have been.
pub const fn verdict(safety: Safety, phase: SendPhase) -> Verdict {
    match (safety, phase) {
        (Safety::Safe, SendPhase::NeverSent | SendPhase::MaybeSent) => Verdict::Retry,
        (Safety::Conditional, SendPhase::NeverSent | SendPhase::MaybeSent) => Verdict::RetrySameKey,
        (Safety::Unsafe, SendPhase::NeverSent) => Verdict::Retry,
        (Safety::Unsafe, SendPhase::MaybeSent) => Verdict::ReconcileFirst,
    }
}

/// One cell of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// The class of the caller's contract.
    pub safety: Safety,
    /// How far the attempt got.
    pub phase: SendPhase,
    /// What may be done.
    pub verdict: Verdict,
}

/// Every cell of the matrix, computed by [`verdict`]: documentation is generated from it.
#[must_use]
pub fn matrix() -> [Row; 6] {
    let row = |safety, phase| Row { safety, phase, verdict: verdict(safety, phase) };
    [
        row(Safety::Safe, SendPhase::NeverSent),
        row(Safety::Safe, SendPhase::MaybeSent),
        row(Safety::Conditional, SendPhase::NeverSent),
        row(Safety::Conditional, SendPhase::MaybeSent),
        row(Safety::Unsafe, SendPhase::NeverSent),
        row(Safety::Unsafe, SendPhase::MaybeSent),
    ]
}

/// [`matrix`] as a Markdown table.
#[must_use]
pub fn matrix_markdown() -> String {
    use fmt::Write as _;
    let mut text = String::from("| contract | attempt | verdict |\n|---|---|---|\n");
    for row in matrix() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {} | {} | {} |", row.safety, row.phase, row.verdict);
    }
    text
}

impl fmt::Display for Safety {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Safe => "safe",
            Self::Conditional => "conditional",
            Self::Unsafe => "unsafe",
        })
    }
}

impl fmt::Display for SendPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverSent => "never sent",
            Self::MaybeSent => "maybe sent",
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retry => "retry",
            Self::RetrySameKey => "retry with the same key",
            Self::ReconcileFirst => "reconcile first",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    fn conditional() -> Contract {
        Contract::Conditional(Key::parse("order-7").unwrap())
    }

    #[test]
    fn safe_never_sent_is_retried() {
        assert_eq!(Contract::Safe.verdict(SendPhase::NeverSent), Verdict::Retry);
    }

    #[test]
    fn safe_maybe_sent_is_retried() {
        assert_eq!(Contract::Safe.verdict(SendPhase::MaybeSent), Verdict::Retry);
    }

    #[test]
    fn conditional_never_sent_keeps_its_key() {
        assert_eq!(conditional().verdict(SendPhase::NeverSent), Verdict::RetrySameKey);
    }

    #[test]
    fn conditional_maybe_sent_keeps_its_key() {
        assert_eq!(conditional().verdict(SendPhase::MaybeSent), Verdict::RetrySameKey);
        assert_eq!(conditional().key().map(Key::as_str), Some("order-7"));
    }

    #[test]
    fn unsafe_never_sent_is_retried() {
        assert_eq!(Contract::Unsafe.verdict(SendPhase::NeverSent), Verdict::Retry);
    }

    #[test]
    fn unsafe_maybe_sent_is_reconciled_first() {
        assert_eq!(Contract::Unsafe.verdict(SendPhase::MaybeSent), Verdict::ReconcileFirst);
    }

    #[test]
    fn an_absent_contract_is_unsafe() {
        assert_eq!(Contract::default().safety(), Safety::Unsafe);
    }

    #[test]
    fn the_matrix_reads_as_documented() {
        let golden = "\
| contract | attempt | verdict |
|---|---|---|
| safe | never sent | retry |
| safe | maybe sent | retry |
| conditional | never sent | retry with the same key |
| conditional | maybe sent | retry with the same key |
| unsafe | never sent | retry |
| unsafe | maybe sent | reconcile first |
";
        assert_eq!(matrix_markdown(), golden);
    }

    #[test]
    fn the_worst_phase_of_two_attempts_counts() {
        use SendPhase::{MaybeSent, NeverSent};
        assert_eq!(NeverSent.worst(NeverSent), NeverSent);
        assert_eq!(NeverSent.worst(MaybeSent), MaybeSent);
        assert_eq!(MaybeSent.worst(NeverSent), MaybeSent);
        assert_eq!(MaybeSent.worst(MaybeSent), MaybeSent);
    }
}
