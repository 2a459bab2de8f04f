//! The example designs, and the reviews that they get. `STEADY_WRITE_GOLDEN=1` writes the reviews anew: read the difference.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn examples() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/review");
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .expect("it works")
        .map(|entry| entry.expect("it works").path())
        .filter(|path| !ends(path, "md"))
        .collect();
    files.sort();
    files
}

fn ends(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

fn steady_sim(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_steady-sim")).args(arguments).output().expect("it works");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it works");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_example_gets_its_review_and_its_exit_code() {
    let examples = examples();
    assert_eq!(examples.len(), 10);
    let mut ready = Vec::new();
    for file in examples {
        let (code, review, err) = steady_sim(&["review", file.to_str().expect("it works")]);
        let golden = file.with_extension("md");
        if std::env::var_os("STEADY_WRITE_GOLDEN").is_some() {
            fs::write(&golden, &review).expect("it works");
        }
        assert_eq!(review, fs::read_to_string(&golden).unwrap_or_default(), "{}{err}", golden.display());
        assert_eq!(code, Some(i32::from(!review.contains("Verdict: **ready**"))), "{}", file.display());
        if code == Some(0) {
            ready.push(file.file_stem().expect("it works").to_str().expect("it works").to_owned());
        }
    }
    assert_eq!(ready, ["01_read_only", "02_keyed_local", "09_external_done_right"]);
}

#[test]
fn each_fixture_ends_in_the_lab_as_it_says_and_its_failure_is_in_the_catalogue() {
    let dir = tempfile::tempdir().expect("it works");
    for file in examples() {
        let into = dir.path().join(file.file_stem().expect("it works"));
        let (_, json, err) = steady_sim(&[
            "review",
            file.to_str().expect("it works"),
            "--json",
            "--fixtures",
            into.to_str().expect("it works"),
        ]);
        let review: serde_json::Value = serde_json::from_str(&json).unwrap_or_else(|_| panic!("{err}"));
        let findings = review["findings"].as_array().expect("it works");
        let fixtures: Vec<_> = findings.iter().map(|finding| &finding["fixture"]).filter(|it| it.is_object()).collect();
        let named = fixtures.len();
        let written: Vec<PathBuf> =
            fs::read_dir(&into).expect("it works").map(|entry| entry.expect("it works").path()).collect();
        assert_eq!(written.is_empty(), named == 0);
        for fixture in fixtures {
            let script = into.join(format!("{}.lab", fixture["name"].as_str().expect("it works")));
            let (code, out, err) = steady_sim(&["lab", "--script", script.to_str().expect("it works")]);
            assert_eq!(code, Some(0), "{err}");
            let row = out.lines().find_map(|line| line.strip_prefix("  A  ")).expect("it works");
            assert_eq!(Some(row), fixture["ends"].as_str(), "{fixture}");
            if let Some(failure) = fixture["failure"].as_str() {
                let (code, out, err) = steady_sim(&["failures", failure]);
                assert_eq!(code, Some(0), "{out}{err}");
            }
        }
    }
}

#[test]
fn a_race_is_what_the_lab_finds_for_its_script() {
    let dir = tempfile::tempdir().expect("it works");
    let file = dir.path().join("race.lab");
    let example = examples().remove(4);
    let (_, json, _) = steady_sim(&["review", example.to_str().expect("it works"), "--json"]);
    let review: serde_json::Value = serde_json::from_str(&json).expect("it works");
    for race in review["races"].as_array().expect("it works") {
        fs::write(&file, race["script"].as_str().expect("it works")).expect("it works");
        let (_, json, _) = steady_sim(&["lab", "--json", "--script", file.to_str().expect("it works")]);
        let lab: serde_json::Value = serde_json::from_str(&json).expect("it works");
        let row = &lab["experiments"][0]["rows"][0];
        for member in ["client", "response", "signal", "ignored", "next"] {
            assert_eq!(row[member], race[member], "{race}");
        }
    }
}

#[test]
fn a_design_that_cannot_be_read_is_explained() {
    let dir = tempfile::tempdir().expect("it works");
    let file = dir.path().join("bad.toml");
    fs::write(&file, "[operation]\nname = \"a\"\neffect = \"read\"\n[queue]\ncapasity = 3\n").expect("it works");
    let (code, out, err) = steady_sim(&["review", file.to_str().expect("it works")]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("bad.toml: line 5: ") && err.contains("did you mean `capacity`?"), "{err}");
    let (code, _, err) = steady_sim(&["review", "/no/such/design.toml"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("/no/such/design.toml: cannot be opened"), "{err}");
}

#[test]
fn progress_reaches_the_maximum_however_much_longer_than_the_idle_limit_it_is() {
    let dir = tempfile::tempdir().expect("it works");
    let file = dir.path().join("long.toml");
    let design = "[operation]\nname = \"a\"\neffect = \"read\"\n[timeouts]\nidle = \"100ms\"\nmax = \"600s\"\n";
    fs::write(&file, design).expect("it works");
    let (_, json, err) = steady_sim(&["review", file.to_str().expect("it works"), "--json"]);
    let review: serde_json::Value = serde_json::from_str(&json).unwrap_or_else(|_| panic!("{err}"));
    let races = review["races"].as_array().expect("it works");
    let race = races.iter().find(|race| race["race"].as_str().is_some_and(|race| race.contains("to the maximum")));
    assert_eq!(race.expect("the race")["client"], "maximum timeout", "{race:?}");
}
