//! The demo proves its claims itself; this reads its verdicts and does not
//! take an empty list, or a claim without a verdict, for a success.

use super::context::Context;
use crate::error::Error;
use crate::process::Command;
use serde_json::Value;

/// Runs the demo and checks each claim of its answer.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    let command = Command::line("cargo run -p mcp-steady-sim --bin steady-sim -- demo --json");
    let done = cx.run(&command)?;
    let claims = passed_claims(&done.stdout)?;
    cx.say(&format!("{claims} claims, all of them hold"));
    Ok(())
}

/// How many claims there are, if all of them hold.
fn passed_claims(text: &str) -> Result<usize, Error> {
    let answer: Value = serde_json::from_str(text)
        .map_err(|why| Error::check(format!("demo --json does not print one JSON value: {why}")))?;
    let sections = answer.get("sections").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let claims: Vec<&Value> =
        sections.iter().filter_map(|section| section.get("claims")?.as_array()).flatten().collect();
    if claims.is_empty() {
        return Err(Error::check("demo --json has no claims in its sections, so it shows nothing"));
    }
    let holds = |claim: &Value| claim.get("holds") == Some(&Value::Bool(true));
    let failed: Vec<String> =
        claims.iter().filter(|claim| !holds(claim)).map(|claim| format!("claim: {claim}")).collect();
    Error::unless_empty(failed)?;
    Ok(claims.len())
}

#[cfg(test)]
mod tests {
    use super::passed_claims;

    #[test]
    fn every_claim_needs_a_good_verdict() {
        let demo = |claims: &str| format!(r#"{{"sections":[{{"claims":[]}},{{"claims":[{claims}]}}]}}"#);
        assert_eq!(passed_claims(&demo(r#"{"holds":true},{"holds":true}"#)).unwrap(), 2);
        for bad in [
            demo(r#"{"holds":true},{"holds":false}"#).as_str(),
            demo(r#"{"name":"no verdict"}"#).as_str(),
            demo("").as_str(),
            r#"{"sections":[]}"#,
            "{}",
            "not JSON",
            "",
        ] {
            assert!(passed_claims(bad).is_err(), "{bad}");
        }
    }
}
