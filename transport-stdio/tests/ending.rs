//! The end of input ends the server, whatever its handlers do (rule S3).

mod support;

use support::{Peer, call, call_quietly};

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

#[test]
fn with_a_handler_that_reports_without_end_and_without_a_token() {
    let mut peer = Peer::spawn();
    peer.send(&call_quietly(1, "flood", "{}"));
    peer.ping(2);
    peer.close_input();
    assert!(peer.exit().success());
}

#[test]
fn a_client_that_does_not_read_and_then_leaves() {
    // Nobody reads the server's output, so reading stops for want of room; the end of input must be noticed all the same.
    // Of each as much as fits into what the server reads ahead and the pipe behind it, and more than it can answer.
    let long = call(1, "echo", &format!(r#"{{"text":"{}"}}"#, "x".repeat(3000)));
    for (line, count) in [(r#"{"jsonrpc":"2.0","id":"#.to_owned(), 2500), (long, 60)] {
        let mut child = support::fixture()
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("the fixture starts");
        let mut input = child.stdin.take().expect("piped");
        let writer = std::thread::spawn(move || {
            let lines = format!("{line}\n").repeat(count);
            std::io::Write::write_all(&mut input, lines.as_bytes()).expect("the server reads ahead");
        });
        // The unread end of the pipe stays open until the server is gone.
        let output = child.stdout.take();
        let start = std::time::Instant::now();
        while child.try_wait().expect("a child of ours").is_none() {
            assert!(start.elapsed() < support::GUARD, "the server does not exit");
            std::thread::yield_now();
        }
        drop(output);
        writer.join().expect("the writer ends");
    }
}
