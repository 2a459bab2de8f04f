//! The suite's servers against our client: all scenarios that are not about
//! OAuth. Those 25 are out of scope: how a token is obtained is an OAuth
//! library's affair, and the client takes it through its hook for headers.

use super::{Check, REVISION, SUITE, Scenarios, emptied, node, read};
use crate::error::Error;
use crate::process::Command;
use crate::verify::context::Context;
use crate::verify::schema::recorder;
use std::path::Path;

/// The required scenarios without OAuth, then the one that was added later; with the checks that each must pass.
const SCENARIOS: [(&str, usize); 8] = [
    ("tools_call", 2),
    ("request-metadata", 6),
    ("sep-2322-client-request-state", 5),
    ("http-standard-headers", 9),
    ("http-custom-headers", 18),
    ("http-invalid-tool-headers", 12),
    ("json-schema-ref-no-deref", 1),
    ("json-schema-2020-12-preservation", 9),
];
/// What the suite leaves out for a client that declares neither roots nor sampling, and has no handshake.
const SKIPPED: [(&str, usize); 2] = [("request-metadata", 2), ("http-standard-headers", 2)];

/// Runs each scenario with a client of its own, in front of a recorder if there is a prefix for it.
pub(super) fn run(cx: &mut Context, home: &Path, record: Option<&Path>) -> Result<(), Error> {
    let results = home.join("results-client");
    emptied(&results)?;
    let client = cx.workspace.target.join("debug/examples/conformance_client").display().to_string();
    // The suite splits this at its spaces, and adds the address.
    let client = match record {
        None => client,
        Some(prefix) => [recorder(prefix, &["--http"])?, vec![client]].concat().join(" "),
    };
    let mut failed = Vec::new();
    for (name, _) in SCENARIOS {
        let suite = Command::new(node(home)).arg(home.join(SUITE)).args(["client", "--command"]).arg(&client);
        let suite = suite.args(["--scenario", name, "--spec-version", REVISION, "--timeout", "60000", "-o"]);
        let suite = suite.arg(&results);
        if let Err(error) = cx.run(&suite) {
            failed.push(format!("{name}: {error}"));
        }
    }
    let scenarios = read(&results, "")?;
    failed.extend(judge(&scenarios));
    let checks = scenarios.values().flatten().filter(|check| check.passed()).count();
    cx.say(&format!("client: {} scenarios, {checks} checks; 25 OAuth scenarios are out of scope", scenarios.len()));
    Error::unless_empty(failed)
}

/// What does not hold.
fn judge(scenarios: &Scenarios) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, expected) in SCENARIOS {
        let checks = scenarios.get(name).map_or(&[][..], Vec::as_slice);
        let (passed, rest): (Vec<&Check>, Vec<&Check>) = checks.iter().partition(|check| check.passed());
        let (skipped, bad): (Vec<&Check>, Vec<&Check>) = rest.iter().partition(|check| check.status == "SKIPPED");
        for check in bad {
            let why = check.why.as_deref().unwrap_or("no reason given");
            findings.push(format!("{name}: {} is a {}: {why}", check.id, check.status));
        }
        let may_skip = SKIPPED.iter().find(|(skips, _)| *skips == name).map_or(0, |(_, count)| *count);
        let counted = (passed.len(), skipped.len());
        if counted != (expected, may_skip) {
            findings
                .push(format!("{name}: {counted:?} checks passed and skipped, {:?} expected", (expected, may_skip)));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{Check, SCENARIOS, SKIPPED, Scenarios, judge};

    fn whole() -> Scenarios {
        let check = |status: &str| Check { id: "c".into(), status: status.into(), why: None };
        let mut all: Scenarios =
            SCENARIOS.iter().map(|(name, count)| ((*name).to_string(), vec![check("SUCCESS"); *count])).collect();
        for (name, count) in SKIPPED {
            all.entry(name.to_string()).or_default().extend(vec![check("SKIPPED"); count]);
        }
        all
    }

    #[test]
    fn a_whole_run_passes() {
        assert_eq!(judge(&whole()), Vec::<String>::new());
    }

    #[test]
    fn whatever_is_less_is_found() {
        for status in ["FAILURE", "WARNING", "SKIPPED"] {
            let mut run = whole();
            if let Some(check) = run.get_mut("http-custom-headers").and_then(|checks| checks.last_mut()) {
                check.status = status.to_string();
            }
            assert!(!judge(&run).is_empty(), "{status}");
        }
        let mut run = whole();
        run.remove("tools_call");
        assert_eq!(judge(&run), ["tools_call: (0, 0) checks passed and skipped, (2, 0) expected"]);
    }
}
