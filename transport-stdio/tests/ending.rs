//! The end of input ends the server, whatever its handlers do (rule S3).

mod support;

use support::{Peer, call};

/// Starts a call that says it runs, closes the input, and waits for the exit.
fn ends_with(tool: &str) {
    let mut peer = Peer::spawn();
    peer.send(&call(1, tool, "{}"));
    assert!(peer.line().contains("progress"), "the handler runs");
    peer.close_input();
    assert!(peer.exit().success());
    assert!(!peer.rest().iter().any(|line| line.contains("\"id\":1,")), "a cancelled request is not answered");
}

#[test]
fn with_a_handler_that_stops() {
    ends_with("wait");
}

#[test]
fn with_a_handler_that_ignores_it() {
    ends_with("ignore");
}

#[test]
fn with_a_handler_that_blocks_its_thread() {
    ends_with("block");
}

#[test]
fn with_a_handler_that_reports_without_end() {
    ends_with("flood");
}

#[test]
fn without_any_request() {
    let mut peer = Peer::spawn();
    peer.close_input();
    assert!(peer.exit().success());
    assert_eq!(peer.rest(), Vec::<String>::new());
}

#[test]
fn answers_that_are_ready_leave_first_and_a_last_line_needs_no_newline() {
    let mut peer = Peer::spawn();
    peer.send(&call(1, "echo", r#"{"text":"first"}"#));
    peer.send_bytes(call(2, "echo", r#"{"text":"last"}"#).as_bytes());
    peer.close_input();
    assert!(peer.exit().success());
    let rest = peer.rest();
    assert!(rest.len() == 2 && rest[0].contains("first") && rest[1].contains("last"), "{rest:?}");
}
