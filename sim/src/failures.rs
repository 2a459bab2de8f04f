//! The failure catalogue: what goes wrong in production, shown by the code that people write first, and not by ours.
//!
//! Each [`Fixture`] runs a small wrong implementation and the shipped one through the same events, in virtual time, and
//! **one** measure with **one** test for the symptom judges both. Ours is the client machine, the kernel, the outbound
//! buffer, the ledger on a real file; models of other parties (a buffering proxy, a naive host) are written out here.

mod cancel;
mod catalogue;
mod ends;
mod keys;
mod late;
mod lost;
mod naive;
mod pressure;
mod reconnect;
mod rig;

use std::path::Path;

use serde::Serialize;

pub use catalogue::all;

/// Where a fixture comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::exhaustive_enums, reason = "the catalogue has two parts")]
pub enum Source {
    /// A failure mode that any deployment meets.
    Production,
    /// Distilled from public bug reports.
    Report,
}

/// One failure, twice: with the wrong code and with ours.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Fixture {
    /// Its name on the command line.
    pub name: &'static str,
    /// Where it comes from.
    pub source: Source,
    /// What the wrong code does, in a line.
    pub wrong: &'static str,
    /// The rules it breaks, or the invariants that keep it away.
    pub rules: &'static [&'static str],
    show: fn(&Path) -> Result<Shown, FailureError>,
}

/// What the two came to.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    wrong: Seen,
    ours: Seen,
}

/// What was measured of one of them.
#[derive(Clone, Debug)]
struct Seen {
    found: String,
    symptom: bool,
}

/// Judges both by the same measure.
fn judge<T>(wrong: &T, ours: &T, symptom: impl Fn(&T) -> bool, text: impl Fn(&T) -> String) -> Shown {
    let seen = |measured: &T| Seen { found: text(measured), symptom: symptom(measured) };
    Shown { wrong: seen(wrong), ours: seen(ours) }
}

/// A fixture that ran.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// Its name.
    pub name: &'static str,
    /// Where it comes from.
    pub source: Source,
    /// What the wrong code does.
    pub wrong: &'static str,
    /// The rules.
    pub rules: &'static [&'static str],
    /// What was measured of the wrong code.
    pub symptom: String,
    /// Whether that is the symptom. It must be.
    pub wrong_fails: bool,
    /// What was measured of ours.
    pub ours: String,
    /// Whether that is the symptom. It must not be.
    pub ours_fails: bool,
}

impl Outcome {
    /// Whether the wrong code shows the symptom, and ours does not.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.wrong_fails && !self.ours_fails
    }
}

/// Why a fixture could not run: no statement about either implementation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FailureError {
    /// The ledger failed.
    #[error("the fixture's ledger: {0}")]
    Ledger(#[from] steady_ledger::LedgerError),
    /// A key was refused.
    #[error("the fixture's key: {0}")]
    Key(#[from] steady_core::idempotency::KeyError),
    /// Its own script was refused.
    #[error("the fixture's script: {0}")]
    Script(#[from] crate::experiment::ScriptError),
    /// A step did not come to what the rest stands on.
    #[error("the fixture could not be set up: {0}")]
    Setup(&'static str),
}

impl Fixture {
    /// Runs it. Ledger files are made in `dir`, which must be the fixture's alone.
    ///
    /// # Errors
    /// [`FailureError`] if it cannot run; a symptom that is missing or too much is in the outcome.
    pub fn run(&self, dir: &Path) -> Result<Outcome, FailureError> {
        let Shown { wrong, ours } = (self.show)(dir)?;
        let Self { name, source, rules, .. } = *self;
        Ok(Outcome {
            name,
            source,
            wrong: self.wrong,
            rules,
            symptom: wrong.found,
            wrong_fails: wrong.symptom,
            ours: ours.found,
            ours_fails: ours.symptom,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn one_measure_judges_both() {
        let shown = judge(&2, &1, |effects| *effects > 1, |effects| format!("{effects} effects"));
        assert!(shown.wrong.symptom && !shown.ours.symptom);
        assert_eq!((&*shown.wrong.found, &*shown.ours.found), ("2 effects", "1 effects"));
    }
}
