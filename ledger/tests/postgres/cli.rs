//! The commands of `steady-ledger` on PostgreSQL.

use std::process::{Command, Output};

use serde_json::Value;
use steady_ledger::Secret;

use crate::cluster;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_steady-ledger")).args(arguments).output().unwrap()
}

/// What a command answers for machines.
fn json(code: i32, arguments: &[&str]) -> Value {
    let output = run(&[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    let answer = if code == 2 { &output.stderr } else { &output.stdout };
    serde_json::from_slice(answer).unwrap()
}

/// The URL of what libpq settings name.
fn url(config: &str) -> String {
    let part = |name: &str| {
        let found = config.split(' ').rev().find_map(|setting| setting.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_default().to_owned()
    };
    format!("postgres://{}@/{}?host={}", part("user"), part("dbname"), part("host").replace('/', "%2F"))
}

#[test]
fn a_file_is_migrated_and_every_command_works_on_the_database() {
    let name = "a_file_is_migrated_and_every_command_works_on_the_database";
    let Some(config) = cluster::database(name) else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    drop(crate::import::fill(&path, Some(Secret::new([0x11; 32]))));
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "11".repeat(32)).unwrap();
    let (file, url, secret) = (path.to_str().unwrap(), url(&config), secret.to_str().unwrap());
    let with = |arguments: &[&str]| -> Vec<String> {
        arguments.iter().map(|&text| text.to_owned()).chain(["--secret-file".to_owned(), secret.to_owned()]).collect()
    };
    let ask = |code: i32, arguments: &[&str]| {
        let all = with(arguments);
        json(code, &all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let empty = ask(2, &["inspect", &url]);
    assert!(empty["error"].as_str().unwrap().contains("not a ledger"), "{empty}");
    let moved = ask(0, &["migrate", file, &url]);
    let keys = &moved["tables"][0];
    assert_eq!((&keys["table"], &keys["rows"]), (&"ledger_key".into(), &1206.into()));
    assert_eq!(keys["digest"].as_str().unwrap().len(), 64);
    let again = ask(2, &["migrate", file, &url]);
    assert!(again["error"].as_str().unwrap().contains("not empty"), "{again}");
    assert!(ask(2, &["migrate", &url, file])["error"].as_str().unwrap().contains("first"));

    // The same answers from both.
    let (there, here) = (ask(0, &["inspect", &url]), ask(0, &["inspect", file]));
    for part in ["keys", "outbox", "tasks", "keyless_executions", "stuck_messages", "tasks_in_doubt", "created_ms"] {
        assert_eq!(there[part], here[part], "{part}");
    }
    let key = ["--principal", "tenant-1", "--operation", "charge"];
    let known =
        |place: &str, key_name: &str| ask(0, &[&["reconcile", place], &key[..], &[key_name, "--result"]].concat());
    for name in ["order-7", "refused", "resolved", "doubtful"] {
        assert_eq!(known(&url, name), known(file, name), "{name}");
    }
    let unknown = ask(1, &[&["reconcile", &url], &key[..], &["nobody"]].concat());
    assert_eq!(unknown["known"], false);
    let resolve = [&["resolve", &url], &key[..], &["doubtful", "--committed", "5", "--actor", "me", "--note", "seen"]];
    assert_eq!(ask(0, &resolve.concat())["resolved"], "committed");
    assert_eq!(known(&url, "doubtful")["result"], 5);
    assert_eq!(ask(0, &["verify", &url])["findings"], serde_json::json!([]));
    assert_eq!(ask(0, &["gc", &url])["messages"], 1);
    let copy = dir.path().join("copy");
    let refused = ask(2, &["backup", &url, copy.to_str().unwrap()]);
    assert!(refused["error"].as_str().unwrap().contains("pg_dump"), "{refused}");
    let text = run(&["inspect", &url, "--secret-file", secret]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("keys committed"), "{text:?}");
}
