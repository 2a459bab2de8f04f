//! What the process prints does not reach the channel (rule S1).
#![cfg(unix)]

mod support;

use std::io::Read;
use std::process::Stdio;

use support::{Peer, call, fixture};

/// What the fixture wrote to each stream after it printed.
fn printed(arguments: &[&str]) -> (Vec<String>, String) {
    let mut child = fixture()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the fixture starts");
    let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    let mut errors = child.stderr.take().expect("piped");
    let mut peer = Peer::over(child, input, output);
    peer.send(&call(1, "print", "{}"));
    let mut lines = peer.until_answer("1");
    lines.extend(peer.ping(2));
    peer.close_input();
    assert!(peer.exit().success());
    lines.extend(peer.rest());
    let mut text = String::new();
    errors.read_to_string(&mut text).expect("UTF-8");
    (lines, text)
}

#[test]
fn row_95_what_a_handler_and_its_children_print_goes_to_standard_error() {
    let (lines, errors) = printed(&[]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.starts_with('{')), "{lines:?}");
    for part in ["printed by the handler\n", "printed by a child\n", "half a line,"] {
        assert!(errors.contains(part), "{part} in {errors}");
    }
}

#[test]
fn without_the_guard_it_would_be_on_the_channel() {
    let (lines, errors) = printed(&["no-guard"]);
    assert!(lines.iter().any(|line| line.contains("printed by a child")), "{lines:?}");
    assert!(!errors.contains("printed"), "{errors}");
}

#[test]
fn a_child_that_reads_takes_no_message_away() {
    let mut peer = Peer::spawn();
    peer.send(&call(1, "cat", "{}"));
    assert!(peer.until_answer("1").concat().contains("0 bytes"));
    peer.ping(2);
}
