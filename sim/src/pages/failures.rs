//! The failure table: each row is a fixture that was run, with the wrong code and with ours.

use std::fmt::Write as _;

use crate::failures::{self, Outcome, Source};

/// Runs every fixture.
pub(super) fn table() -> Result<String, String> {
    let mut text = String::new();
    for (title, source) in [("Any deployment", Source::Production), ("From public bug reports", Source::Report)] {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "## {title}\n\n| failure | what the wrong code does | its symptom | ours | rules |");
        let _ = writeln!(text, "|---|---|---|---|---|");
        for fixture in failures::all().iter().filter(|fixture| fixture.source == source) {
            let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", fixture.name);
            let scratch = tempfile::tempdir().map_err(|why| failed(&why))?;
            let outcome = fixture.run(scratch.path()).map_err(|why| failed(&why))?;
            if !outcome.holds() {
                return Err(failed(&"the wrong code must show the symptom, and ours must not"));
            }
            let Outcome { name, wrong, symptom, ours, rules, .. } = outcome;
            let [wrong, symptom, ours] = [wrong, &symptom, &ours].map(|cell| cell.replace('|', "\\|"));
            let _ = writeln!(text, "| `{name}` | {wrong} | {symptom} | {ours} | {} |", rules.join(", "));
        }
        text.push('\n');
    }
    Ok(text)
}
