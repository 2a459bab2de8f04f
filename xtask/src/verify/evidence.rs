//! `target/evidence`: what a reader who trusts nobody would ask for, each file with the command that makes it anew.
//!
//! The records come from `steady-sim evidence`, in virtual time; they are made twice, by two processes, and must be the
//! same bytes. The readiness verdict rests on them and on the 12 statements. What was measured at real proxies is another
//! time each time, so it stands apart from the verdict.

mod page;

use super::context::Context;
use super::proxies::{self, Measured};
use super::statements::{self, Statement};
use crate::error::Error;
use crate::process::Command;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The records that there must be.
const RECORDS: [&str; 9] = [
    "cancel-race-stdio",
    "cancel-race-http",
    "lost-response",
    "retry-table",
    "key-record",
    "same-key",
    "buffer-overload",
    "reconnect",
    "task-cancel",
];
/// What the verdict demands: a result of each that is deterministic.
const DEMANDS: [&str; 4] = ["lost response", "late cancellation", "slow consumer", "reconnect herd"];
/// The command that makes all of it.
const COMMAND: &str = "cargo xtask evidence";

/// The bytes of a folder's files, by their names.
type Files = BTreeMap<String, Vec<u8>>;

/// A record, as two runs made it.
#[derive(Debug, Serialize, PartialEq)]
struct Record {
    file: String,
    title: String,
    gate: Option<String>,
    holds: bool,
    identical: bool,
    regenerate: String,
    claims: Vec<Value>,
}

/// One demand of the verdict.
#[derive(Debug, Serialize, PartialEq, Eq)]
struct Demand {
    demand: &'static str,
    files: Vec<String>,
    holds: bool,
    identical: bool,
}

impl Demand {
    fn is_met(&self) -> bool {
        !self.files.is_empty() && self.holds && self.identical
    }
}

/// The step.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    let (out, again) = (fresh(cx, "evidence")?, fresh(cx, "evidence-again")?);
    let first = made(cx, &out)?;
    let second = made(cx, &again)?;
    let (records, mut findings) = records(&first, &second);
    let demands = demands(&records);
    findings.extend(demands.iter().filter(|demand| !demand.is_met()).map(|demand| {
        let Demand { demand, files, holds, identical } = demand;
        format!("{demand}: not shown by {files:?} (holds: {holds}, the same in two runs: {identical})")
    }));
    // What they say goes into the folder before a failure ends the step.
    let (measured, apart) = measured(cx)?;
    findings.extend(apart);
    let stated = if cx.tests.is_some() { Ok(()) } else { statements::run(cx) };
    findings.extend(stated.err().map(|error| error.to_string()));
    let statements = cx.statements();
    let ready = findings.is_empty() && statements.iter().all(Statement::holds);
    write(&out, "proxy-sse.json", &measured)?;
    let all = json!({"regenerate": COMMAND, "statements": statements});
    write(&out, "statements.json", &all)?;
    let verdict = json!({
        "ready": ready, "regenerate": COMMAND, "demands": demands, "records": records,
        "statements_hold": statements.iter().all(Statement::holds), "measured_apart": ["proxy-sse.json"],
        "findings": findings,
    });
    write(&out, "readiness.json", &verdict)?;
    let index = out.join("index.html");
    let text = page::render(ready, &records, &demands, &statements, &measured);
    fs::write(&index, text).map_err(Error::file(&index))?;
    fs::remove_dir_all(&again).map_err(Error::file(&again))?;
    cx.say(&format!("{} records, each the same in two runs; {}", records.len(), index.display()));
    Error::unless_empty(findings)
}

/// An empty folder: nothing in it can be of an earlier run.
fn fresh(cx: &Context, name: &str) -> Result<PathBuf, Error> {
    let path = cx.workspace.scratch(name)?;
    fs::remove_dir_all(&path).and_then(|()| fs::create_dir_all(&path)).map_err(Error::file(&path))?;
    Ok(path)
}

/// Lets the simulator make the records; a claim that does not hold is judged later, from the file.
fn made(cx: &mut Context, out: &Path) -> Result<Files, Error> {
    let command = Command::line("cargo run -p mcp-steady-sim --bin steady-sim -- evidence --json --out").arg(out);
    let done = cx.attempt(&command)?;
    if serde_json::from_str::<Value>(&done.stdout).is_err() {
        done.checked(&command)?;
        return Err(Error::check("steady-sim evidence --json does not print one JSON value"));
    }
    let entries = fs::read_dir(out).map_err(Error::file(out))?;
    let mut files = Files::new();
    for entry in entries {
        let path = entry.map_err(Error::file(out))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.insert(name, fs::read(&path).map_err(Error::file(&path))?);
    }
    Ok(files)
}

/// The records of the first run, and what is wrong with them.
fn records(first: &Files, second: &Files) -> (Vec<Record>, Vec<String>) {
    let (mut records, mut findings) = (Vec::new(), Vec::new());
    for name in RECORDS {
        match record(name, first, second) {
            Ok(record) => {
                if !record.holds {
                    let failed = record.claims.iter().filter(|claim| claim.get("holds") != Some(&Value::Bool(true)));
                    findings.extend(failed.map(|claim| format!("{}: {claim}", record.file)));
                }
                if !record.identical {
                    findings.push(format!("{}: two runs wrote different bytes", record.file));
                }
                records.push(record);
            }
            Err(why) => findings.push(format!("{name}.json: {why}; make it with `{}`", regenerate(name))),
        }
    }
    let strange = first.keys().filter(|file| !RECORDS.iter().any(|name| **file == format!("{name}.json")));
    findings.extend(strange.map(|file| format!("{file}: nothing asks for it; add it to RECORDS")));
    (records, findings)
}

fn regenerate(name: &str) -> String {
    format!("cargo run -p mcp-steady-sim --bin steady-sim -- evidence --out target/evidence --only {name}")
}

fn record(name: &str, first: &Files, second: &Files) -> Result<Record, String> {
    let file = format!("{name}.json");
    let bytes = first.get(&file).ok_or("it was not made")?;
    let sheet: Value = serde_json::from_slice(bytes).map_err(|why| format!("it is no JSON: {why}"))?;
    let text = |member: &str| sheet.get(member).and_then(Value::as_str).map(str::to_string);
    let command = text("regenerate").unwrap_or_default();
    if command != regenerate(name) {
        return Err(format!("it names {command:?} as the command that makes it"));
    }
    let claims = sheet.get("claims").and_then(Value::as_array).cloned().unwrap_or_default();
    if claims.is_empty() {
        return Err("it claims nothing".to_string());
    }
    Ok(Record {
        title: text("title").unwrap_or_default(),
        gate: text("gate"),
        holds: claims.iter().all(|claim| claim.get("holds") == Some(&Value::Bool(true))),
        identical: second.get(&file) == Some(bytes),
        regenerate: command,
        claims,
        file,
    })
}

fn demands(records: &[Record]) -> Vec<Demand> {
    let demand = |demand: &'static str| {
        let mine = || records.iter().filter(move |record| record.gate.as_deref() == Some(demand));
        Demand {
            demand,
            files: mine().map(|record| record.file.clone()).collect(),
            holds: mine().all(|record| record.holds),
            identical: mine().all(|record| record.identical),
        }
    };
    DEMANDS.map(demand).into_iter().collect()
}

/// What the step `proxies` of this run has measured, or is measured now if a proxy is there; and what went wrong.
fn measured(cx: &mut Context) -> Result<(Value, Vec<String>), Error> {
    let mut findings = Vec::new();
    if cx.proxies.is_none() && proxies::one_is_there() {
        findings = proxies::measure(cx)?;
    }
    let rows: &[Measured] = cx.proxies.as_deref().unwrap_or_default();
    let value = json!({
        "regenerate": COMMAND,
        "measured": !rows.is_empty(),
        "why_not": rows.is_empty().then_some("no proxy is on this machine"),
        "proxies": rows,
    });
    Ok((value, findings))
}

fn write(out: &Path, name: &str, value: &Value) -> Result<(), Error> {
    let path = out.join(name);
    let text = serde_json::to_string_pretty(value).map_err(|why| Error::check(format!("{name}: {why}")))?;
    fs::write(&path, text + "\n").map_err(Error::file(&path))
}

#[cfg(test)]
mod tests {
    use super::{DEMANDS, Files, RECORDS, demands, records, regenerate};
    use serde_json::json;

    fn sheet(name: &str, gate: Option<&str>, holds: bool) -> Vec<u8> {
        let claims = json!([{"text": "it is so", "found": "yes", "holds": holds}]);
        let sheet = json!({"title": name, "gate": gate, "regenerate": regenerate(name), "claims": claims});
        sheet.to_string().into_bytes()
    }

    fn files() -> Files {
        let gates = DEMANDS.iter().map(|demand| Some(*demand)).chain(std::iter::repeat(None));
        RECORDS.into_iter().zip(gates).map(|(name, gate)| (format!("{name}.json"), sheet(name, gate, true))).collect()
    }

    #[test]
    fn all_records_that_hold_and_are_the_same_twice_are_ready() {
        let (found, findings) = records(&files(), &files());
        assert_eq!((found.len(), findings), (RECORDS.len(), vec![]));
        assert!(demands(&found).iter().all(super::Demand::is_met));
    }

    #[test]
    fn a_record_that_was_not_made_fails_with_the_command_that_makes_it() {
        let mut first = files();
        first.remove("key-record.json");
        let (_, findings) = records(&first, &files());
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("not made") && findings[0].contains("--only key-record"), "{findings:?}");
    }

    #[test]
    fn other_bytes_in_the_second_run_fail_the_record_and_its_demand() {
        let mut second = files();
        second.insert(format!("{}.json", RECORDS[0]), sheet(RECORDS[0], Some(DEMANDS[0]), false));
        let (found, findings) = records(&files(), &second);
        assert!(findings[0].contains("different bytes"), "{findings:?}");
        let met: Vec<bool> = demands(&found).iter().map(super::Demand::is_met).collect();
        assert_eq!(met, [false, true, true, true]);
    }

    #[test]
    fn a_claim_that_fails_a_wrong_command_and_a_demand_without_a_file_are_found() {
        let mut first = files();
        first.insert("key-record.json".into(), sheet("key-record", None, false));
        first.insert("same-key.json".into(), sheet("key-record", None, true));
        first.insert("task-cancel.json".into(), br#"{"claims":[]}"#.to_vec());
        first.insert("extra.json".into(), b"{}".to_vec());
        let (found, findings) = records(&first, &first);
        assert_eq!(findings.len(), 4, "{findings:?}");
        let none: Vec<super::Record> = found.into_iter().filter(|record| record.gate.is_none()).collect();
        assert!(demands(&none).iter().all(|demand| !demand.is_met()), "no file is no evidence");
    }
}
