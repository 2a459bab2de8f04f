//! The evidence is made anew byte for byte, and one source that cannot make its file fails the run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use steady_sim::demo::Section;
use steady_sim::evidence::{EvidenceError, Failure, Record, SOURCES, Source, command, write};

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry"));
    entries
        .map(|entry| (entry.file_name().into_string().expect("text"), fs::read(entry.path()).expect("a file")))
        .collect()
}

#[test]
fn two_runs_write_the_same_bytes_and_every_claim_holds() {
    let (one, two) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let written = write(&SOURCES, one.path()).expect("all of it");
    assert!(written.iter().all(|written| written.holds), "{written:#?}");
    write(&SOURCES, two.path()).expect("all of it");
    let (one, two) = (files(one.path()), files(two.path()));
    assert_eq!(one.len(), SOURCES.len());
    for (name, bytes) in &one {
        assert!(two.get(name) == Some(bytes), "{name} differs between two runs");
        let sheet: Value = serde_json::from_slice(bytes).expect("JSON");
        let stem = name.trim_end_matches(".json");
        assert_eq!(sheet["regenerate"], command(stem), "{name} names its command");
        assert!(sheet["claims"].as_array().is_some_and(|claims| !claims.is_empty()), "{name}");
        assert!(!String::from_utf8_lossy(bytes).contains(std::env::temp_dir().to_str().expect("text")), "{name}");
    }
}

#[test]
fn every_demand_of_the_readiness_verdict_has_its_file() {
    for demand in ["lost response", "late cancellation", "slow consumer", "reconnect herd"] {
        assert!(SOURCES.iter().any(|source| source.gate == Some(demand)), "{demand}");
    }
}

fn broken(_: &Path) -> Result<Record, Failure> {
    Err("the machine is gone".into())
}

fn empty(dir: &Path) -> Result<Record, Failure> {
    let mut record = (SOURCES[0].make)(dir)?;
    record.section = Section::new("nothing is claimed");
    Ok(record)
}

#[test]
fn a_source_that_makes_nothing_fails_the_run_and_leaves_no_old_file() {
    let dir = tempfile::tempdir().expect("a folder");
    for make in [broken as fn(&Path) -> Result<Record, Failure>, empty] {
        let old = dir.path().join("task-cancel.json");
        fs::write(&old, "of an earlier run").expect("a file");
        let sources = [Source { name: "task-cancel", gate: None, make }, SOURCES[0]];
        let Err(EvidenceError::NotMade(why)) = write(&sources, dir.path()) else { panic!("it must fail") };
        assert!(why.len() == 1 && why[0].starts_with("task-cancel: "), "{why:?}");
        assert!(!old.exists(), "an old file would pass for evidence");
        assert!(dir.path().join("cancel-race-stdio.json").exists(), "the others are made");
    }
}
