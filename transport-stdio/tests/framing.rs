//! Bad lines cost themselves only (rule S2), and progress is complete, ordered and over before the answer.

mod support;

use support::{Peer, call, request};

#[test]
fn a_bad_line_costs_that_line_only() {
    let mut peer = Peer::spawn();
    let long = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "x".repeat(5000));
    let bad: [(&[u8], Option<&str>); 9] = [
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":", Some("-32700")),
        (long.as_bytes(), Some("longer than")),
        (b"\xff\xfe\x00", None),
        (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}]", Some("-32600")),
        (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"m\"}", Some("-32600")),
        (b"starting up, listening on port 80", None),
        (b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}", None),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{", None),
        (b"", None),
    ];
    for (id, (line, answer)) in (1..).zip(bad) {
        peer.send_bytes(line);
        peer.send_bytes(b"\n");
        let lines = peer.ping(id);
        assert_eq!(lines.len(), 1 + usize::from(answer.is_some()), "{lines:?}");
        if let Some(answer) = answer {
            assert!(lines[0].contains(answer) && !lines[0].contains("\"id\""), "{}", lines[0]);
        }
    }
}

#[test]
fn a_line_may_come_byte_by_byte_and_many_at_once() {
    let mut peer = Peer::spawn();
    for byte in call(1, "echo", r#"{"text":"slowly"}"#).bytes().chain(*b"\r\n") {
        peer.send_bytes(&[byte]);
    }
    assert!(peer.line().contains("slowly"));
    let many: String = (2..6).map(|id| call(id, "echo", r#"{"text":"many"}"#) + "\n").collect();
    peer.send_bytes(many.as_bytes());
    for id in 2..6 {
        assert!(peer.line().contains(&format!("\"id\":{id},")));
    }
}

#[test]
fn the_methods_of_the_table_and_the_errors_around_it() {
    let mut peer = Peer::spawn();
    peer.send(&request("1", "tools/list", ""));
    let list = peer.line();
    assert!(list.contains("\"ttlMs\"") && list.contains("\"inputSchema\":{\"type\":\"object\"}"), "{list}");
    let cases = [
        (request("2", "prompts/list", ""), "-32601"),
        (call(2, "nothing", "{}"), "there is no tool"),
        (call(2, "echo", "[]"), "arguments must be an object"),
        (request("2", "tools/call", r#""name":"echo","name":"count","#), "must not name a member twice"),
        (request("2", "tools/call", r#""name":7,"#), "params.name must be a string"),
        (request("2", "tools/call", r#""na\u006de":"echo","arguments":null,"#), "\"result\""),
        (call(2, "echo", r#"{"text":7}"#), "expected a string"),
        (r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#.to_owned(), "-32602"),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#.to_owned(),
            "params.capabilities must be an object",
        ),
        (call(2, "panics", "{}"), "-32603"),
    ];
    for (line, answer) in cases {
        peer.send(&line);
        let answered = peer.until_answer("2");
        assert!(answered.last().is_some_and(|line| line.contains(answer)), "{answered:?}");
    }
    assert_eq!(peer.ping(3).len(), 1);
}

#[test]
fn lossless_progress_arrives_whole_in_order_and_before_the_answer() {
    let mut peer = Peer::spawn();
    peer.send(&call(1, "count", r#"{"to":100000}"#));
    let lines = peer.until_answer("1");
    assert_eq!(lines.len(), 100_001);
    for (line, n) in lines.iter().zip(1..=100_000) {
        assert!(line.contains(&format!("\"progress\":{n},")), "{line}");
    }
    assert_eq!(peer.ping(2).len(), 1, "none after the answer");
}
