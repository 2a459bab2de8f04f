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
    let claims = answer.get("claims").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if claims.is_empty() {
        return Err(Error::check("demo --json has no `claims`, so it shows nothing"));
    }
    let failed: Vec<String> =
        claims.iter().filter(|claim| !holds(claim)).map(|claim| format!("claim: {claim}")).collect();
    Error::unless_empty(failed)?;
    Ok(claims.len())
}

/// A claim carries its verdict as `passed: true`, as `ok: true` or as
/// `result: "ok"`.
fn holds(claim: &Value) -> bool {
    let yes = |name| claim.get(name).and_then(Value::as_bool).unwrap_or(false);
    yes("passed") || yes("ok") || claim.get("result").and_then(Value::as_str) == Some("ok")
}

#[cfg(test)]
mod tests {
    use super::passed_claims;

    #[test]
    fn every_claim_needs_a_good_verdict() {
        assert_eq!(passed_claims(r#"{"claims":[{"passed":true},{"ok":true},{"result":"ok"}]}"#).unwrap(), 3);
        for bad in [
            r#"{"claims":[{"passed":true},{"passed":false}]}"#,
            r#"{"claims":[{"name":"no verdict"}]}"#,
            r#"{"claims":[{"result":"FAILED"}]}"#,
            r#"{"claims":[]}"#,
            "{}",
            "not JSON",
            "",
        ] {
            assert!(passed_claims(bad).is_err(), "{bad}");
        }
    }
}
