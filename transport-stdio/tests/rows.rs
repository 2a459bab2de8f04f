//! What broke for others, each under the number of its row in the collection of public reports.

mod support;

use support::{Peer, call, cancel, request};

/// Whether a line belongs to this request.
fn of(line: &str, id: u32) -> bool {
    line.contains(&format!("\"id\":{id},")) || line.contains(&format!("\"progressToken\":{id},"))
}

#[test]
fn progress_after_cancellation_never_leaves_the_process() {
    for arguments in [&[][..], &["unlimited"][..]] {
        let mut peer = Peer::spawn_with(arguments);
        peer.send(&call(1, "deaf", "{}"));
        assert!(peer.line().contains("deaf"));
        peer.send(&cancel("1"));
        peer.ping(2);
        for id in 3..20 {
            let lines = peer.ping(id);
            assert!(!lines.iter().any(|line| of(line, 1)), "{lines:?}");
        }
    }
}

#[test]
fn progress_after_completion_never_leaves_the_process() {
    for arguments in [&[][..], &["unlimited"][..]] {
        let mut peer = Peer::spawn_with(arguments);
        peer.send(&call(1, "after", "{}"));
        let mut lines = peer.until_answer("1");
        assert!(lines.last().is_some_and(|line| line.contains("answered")));
        for id in 3..20 {
            lines = peer.ping(id);
            assert!(!lines.iter().any(|line| of(line, 1)), "{lines:?}");
        }
    }
}

#[test]
fn row_28_and_32_a_cancellation_stops_its_handler_and_keeps_the_process() {
    let mut peer = Peer::spawn();
    peer.send(&call(1, "wait", "{}"));
    peer.send(&call(2, "wait", "{}"));
    assert!(peer.line().contains("waiting") && peer.line().contains("waiting"));
    peer.send(&cancel("1"));
    assert_eq!(peer.ping(3).len(), 1);
    // The other call lives: its id is taken. That of the first is free.
    peer.send(&call(2, "echo", "{}"));
    assert!(peer.line().contains("already in flight"));
    peer.send(&call(1, "echo", r#"{"text":"free"}"#));
    assert!(peer.line().contains("free"));
}

#[test]
fn row_33_after_a_cancellation_the_next_calls_are_served() {
    let mut peer = Peer::spawn();
    for round in 0..100 {
        peer.send(&call(round * 2 + 1, "wait", "{}"));
        peer.send(&cancel(&(round * 2 + 1).to_string()));
        peer.ping(round * 2 + 2);
    }
}

#[test]
fn row_62_calls_are_answered_during_slow_ones() {
    let mut peer = Peer::spawn();
    for (id, tool) in [(1, "ignore"), (2, "block"), (3, "wait")] {
        peer.send(&call(id, tool, "{}"));
        assert!(peer.line().contains("progress"));
        assert_eq!(peer.ping(10 + id).len(), 1, "during {tool}");
    }
}

#[test]
fn row_89_and_93_the_end_of_input_ends_the_server_whatever_its_handlers_do() {
    for tool in ["wait", "ignore", "block", "deaf", "flood"] {
        let mut peer = Peer::spawn();
        peer.send(&call(1, tool, "{}"));
        assert!(peer.line().contains("progress"), "{tool}");
        peer.close_input();
        assert!(peer.exit().success(), "{tool}");
    }
}

#[test]
fn row_96_unreadable_input_is_not_answered() {
    let mut peer = Peer::spawn();
    for line in [
        "not json",
        "INFO starting up",
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32700,"message":"Parse error"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
    ] {
        peer.send(line);
        assert_eq!(peer.ping(1).len(), 1, "{line}");
    }
}

#[test]
fn row_97_a_bad_line_or_a_byte_order_mark_costs_itself_only() {
    let mut peer = Peer::spawn();
    peer.send_bytes(b"\xef\xbb\xbf");
    peer.send(&call(1, "echo", "{}"));
    peer.send("not json");
    peer.send(&request("2", "server/discover", ""));
    let lines = peer.until_answer("2");
    assert!(lines.last().is_some_and(|line| line.contains("supportedVersions")), "{lines:?}");
}

#[test]
fn row_98_truncated_json_costs_itself_only() {
    let mut peer = Peer::spawn();
    peer.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params": "#);
    let lines = peer.ping(2);
    assert!(lines.len() == 2 && lines[0].contains("-32700") && !lines[0].contains("\"id\""), "{lines:?}");
}

#[test]
fn row_100_and_102_a_result_over_the_limit_is_an_error_and_the_session_lives() {
    let mut peer = Peer::spawn();
    peer.send(&call(1, "big", r#"{"to":1000000}"#));
    assert!(peer.until_answer("1").last().is_some_and(|line| line.len() > 1_000_000), "below it comes whole");
    for id in 2..5 {
        peer.send(&call(id, "big", r#"{"to":62000000}"#));
        let answer = peer.until_answer(&id.to_string()).pop().expect("an answer");
        assert!(answer.contains("-32603") && answer.contains("1048576 at most"), "{answer}");
        peer.ping(id + 10);
    }
}

/// Kilobytes of this process in memory: now, or the most so far.
#[cfg(target_os = "linux")]
fn memory(pid: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a child of ours");
    let line = status.lines().find(|line| line.starts_with(what)).expect("a line of it");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
#[cfg(target_os = "linux")]
fn a_million_reports_to_a_client_that_does_not_read_cost_no_memory_and_block_nobody() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    for arguments in [&[][..], &["unlimited"][..]] {
        let mut child = support::fixture()
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the fixture starts");
        let (mut input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let mut output = BufReader::new(output);
        let mut line = String::new();
        let mut send = |text: String| std::io::Write::write_all(&mut input, (text + "\n").as_bytes()).expect("read");
        send(call(1, "echo", "{}"));
        output.read_line(&mut line).expect("an answer");
        let idle = memory(child.id(), "VmRSS:");
        send(call(2, "million", "{}"));
        line.clear();
        // Nobody reads the output, and the handler comes to its end all the same.
        errors.read_line(&mut line).expect("a word of the handler");
        assert_eq!(line, "through\n");
        let most = memory(child.id(), "VmHWM:");
        assert!(most <= idle + 8 * 1024, "{most} KiB, idle {idle} KiB");
        let mut peer = Peer::over(child, input, output);
        let lines = peer.until_answer("2");
        assert!(lines.last().is_some_and(|line| line.contains("a million")));
        assert!(lines[lines.len() - 2].contains("\"progress\":1000000,"), "the newest value is kept (PROG-2)");
        peer.ping(3);
    }
}
