//! The command line as a person meets it.

use std::process::Command;

fn steady_sim(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_steady-sim")).args(arguments).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn demo_talks_to_a_real_server_and_says_that_all_claims_hold() {
    let (code, out, err) = steady_sim(&["demo"]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("a real server, over real pipes") && !out.contains("FAILS"), "{out}");
    assert!(!out.contains('\x1b'), "no colours where there is no terminal");
}

#[test]
fn demo_speaks_to_machines() {
    let (code, out, _) = steady_sim(&["demo", "--json"]);
    assert_eq!(code, Some(0));
    let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(report["holds"], true);
    assert!(report["sections"].as_array().is_some_and(|sections| sections.len() >= 9));
}

#[test]
fn bad_input_is_explained() {
    let (code, _, err) = steady_sim(&["serve", "--stdio"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("--ledger"), "{err}");
    let (code, _, err) = steady_sim(&["serve", "--stdio", "--ledger", "/proc/no/such/place/shop.db"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("/proc/no/such/place/shop.db"), "{err}");
    let (code, _, err) = steady_sim(&["dmeo"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("demo"), "{err}");
}

#[test]
fn a_shell_is_told_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, out, err) = steady_sim(&["completions", shell]);
        assert_eq!(code, Some(0), "{err}");
        assert!(out.contains("demo") && out.contains("completions"), "{shell}: {out}");
    }
    let (code, _, err) = steady_sim(&["completions", "tcsh"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("bash"), "it names the shells that it knows: {err}");
}
