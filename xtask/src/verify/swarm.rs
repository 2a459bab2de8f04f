//! The swarm judges itself; this runs it twice, in two processes with different numbers of threads, and does not take a
//! run of nothing, or one that came out differently, for a success.

use super::context::Context;
use crate::error::Error;
use crate::process::Command;
use serde_json::Value;

/// Seeds of a run of verify.
const SEEDS: u64 = 200;
/// Seeds of the second process.
const AGAIN: u64 = 40;

/// What a run came to.
struct Found {
    hash: String,
    text: String,
}

/// Runs the swarm.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    let out = cx.workspace.scratch("swarm")?;
    let mut swarm = |seeds: u64, jobs: usize| {
        let line = format!(
            "cargo run -p mcp-steady-sim --bin steady-sim -- swarm --json --seeds 0..{seeds} --jobs {jobs} --out"
        );
        let command = Command::line(&line).arg(&out);
        let done = cx.attempt(&command)?;
        let found = found(&done.stdout, seeds)?;
        done.checked(&command)?;
        Ok::<Found, Error>(found)
    };
    let all = swarm(SEEDS, 2)?;
    let (one, two) = (swarm(AGAIN, 1)?, swarm(AGAIN, 2)?);
    if one.hash != two.hash {
        return Err(Error::check(format!(
            "{AGAIN} seeds have the hash {} in one process, {} in another",
            one.hash, two.hash
        )));
    }
    cx.say(&all.text);
    cx.say(&format!("{AGAIN} seeds are the same in two processes: {}", one.hash));
    Ok(())
}

fn found(text: &str, seeds: u64) -> Result<Found, Error> {
    let answer: Value = serde_json::from_str(text)
        .map_err(|why| Error::check(format!("swarm --json does not print one JSON value: {why}")))?;
    let number = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or(0);
    if answer.get("holds") != Some(&Value::Bool(true)) {
        let file = answer.get("events_file").and_then(Value::as_str).unwrap_or("no file");
        let text = |at: &str| answer.pointer(at).map(Value::to_string).unwrap_or_default();
        if answer.get("kept") == Some(&Value::Bool(true)) {
            let missing = text("/missing");
            return Err(Error::check(format!("no promise was broken, and too little was seen: never {missing}")));
        }
        let first = text("/failure/violations/0");
        return Err(Error::check(format!("a promise was broken: {first}; replay {file}")));
    }
    if number("seeds") != seeds || ["requests", "run_twice", "real_ledger"].iter().any(|name| number(name) == 0) {
        return Err(Error::check("the swarm has not run what it was asked to, so it shows nothing"));
    }
    let hash = answer.get("hash").and_then(Value::as_str).filter(|hash| !hash.is_empty());
    let hash = hash.ok_or_else(|| Error::check("the swarm names no hash"))?.to_string();
    let (requests, pace, twice) = (number("requests"), number("requests_per_minute"), number("run_twice"));
    let text = format!("{seeds} seeds, {requests} requests, {pace} a minute; {twice} of the seeds twice");
    Ok(Found { hash, text })
}

#[cfg(test)]
mod tests {
    use super::found;

    #[test]
    fn a_run_counts_only_if_all_of_it_ran_and_held() {
        let of = |ledger: u64, holds: &str, seeds: u64, requests: u64, hash: &str| {
            format!(
                r#"{{"holds":{holds},"seeds":{seeds},"requests":{requests},"run_twice":1,"real_ledger":{ledger},"hash":"{hash}"}}"#
            )
        };
        let answer = |holds: &str, seeds: u64, requests: u64, hash: &str| of(1, holds, seeds, requests, hash);
        assert_eq!(found(&answer("true", 9, 5, "ab"), 9).map(|found| found.hash).ok().as_deref(), Some("ab"));
        for bad in [
            answer("false", 9, 5, "ab"),
            answer("true", 8, 5, "ab"),
            answer("true", 9, 0, "ab"),
            answer("true", 9, 5, ""),
            of(0, "true", 9, 5, "ab"),
            "{}".to_string(),
            "no JSON".to_string(),
        ] {
            assert!(found(&bad, 9).is_err(), "{bad}");
        }
    }
    #[test]
    fn what_was_not_seen_is_no_broken_promise() {
        let says = |text: &str| found(text, 9).err().map(|error| error.to_string()).unwrap_or_default();
        let unseen = says(r#"{"holds":false,"kept":true,"missing":["listen: gap"]}"#);
        assert!(unseen.contains("too little was seen") && unseen.contains("listen: gap"), "{unseen}");
        let broken = says(r#"{"holds":false,"kept":false,"failure":{"violations":["x"]},"events_file":"f"}"#);
        assert!(broken.contains("a promise was broken") && broken.contains("replay f"), "{broken}");
    }
}
