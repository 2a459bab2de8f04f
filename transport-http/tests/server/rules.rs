//! The rules of the transport: what is checked, in which order, and what a refusal looks like (H1 to H9, M3 to M6).

use std::time::Duration;

use steady_http::headers::Access;
use steady_http::steady_core::kernel::Eras;
use steady_http::{HttpConfig, ServeConfig, ServerConfig};

use super::support::{Answer, Lab, call, http, post, post_with, request};

fn ask(lab: &Lab, text: &str) -> Answer {
    let mut peer = lab.connect();
    peer.send(text.as_bytes());
    peer.answer()
}

/// What a raw request is answered with: its status and, where it has one, the code of its error.
fn refusal(lab: &Lab, text: &str) -> (u16, Option<i64>) {
    let answer = ask(lab, text);
    (answer.status, (!answer.body.is_empty()).then(|| answer.code()))
}

fn echo() -> String {
    call(1, "echo", r#"{"text":"hello"}"#)
}

#[test]
fn an_answer_that_comes_first_is_one_json_object() {
    let lab = Lab::start();
    let answer = ask(&lab, &post(&echo()));
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    assert!(answer.text().starts_with(r#"{"jsonrpc":"2.0","id":1,"result":{"#), "{}", answer.text());
    for (name, absent) in [("mcp-session-id", true), ("transfer-encoding", true), ("content-length", false)] {
        assert_eq!(answer.header(name).is_none(), absent, "{name}");
    }
}

#[test]
fn only_post_is_served_and_405_says_so() {
    let lab = Lab::start();
    for method in ["GET", "DELETE", "PUT", "OPTIONS"] {
        let answer = ask(&lab, &format!("{method} /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{method}");
    }
    assert_eq!(
        refusal(&lab, "GET /.well-known/oauth-protected-resource HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (404, None)
    );
}

#[test]
fn host_and_origin_are_checked_first_and_apart() {
    let lab = Lab::start();
    let good = post_with(&echo(), "Origin: http://localhost:3000\r\n");
    assert_eq!(ask(&lab, &good).status, 200);
    let evil_origin = post_with(&echo(), "Origin: http://evil.example.com\r\n");
    assert_eq!(refusal(&lab, &evil_origin), (403, Some(-32600)));
    assert_eq!(refusal(&lab, &post_with(&echo(), "Origin: null\r\n")).0, 403);
    let evil_host = post(&echo()).replace("Host: 127.0.0.1", "Host: evil.example.com");
    assert_eq!(refusal(&lab, &evil_host), (403, Some(-32600)));
    let no_host = post(&echo()).replace("Host: 127.0.0.1\r\n", "");
    assert_eq!(refusal(&lab, &no_host).0, 403);
    let with_get = "GET /mcp HTTP/1.1\r\nHost: evil.example.com\r\n\r\n";
    assert_eq!(refusal(&lab, with_get).0, 403, "before the method");
    assert_eq!(lab.service.counters().requests, 1);
}

#[test]
fn what_is_allowed_explicitly_passes() {
    let access = Access::loopback().allow_host("mcp.example.com").expect("a host");
    let access = access.allow_origin("https://app.example.com").expect("an origin");
    let http = HttpConfig { access, ..HttpConfig::default() };
    let lab = Lab::with(ServeConfig { http, ..ServeConfig::default() });
    let named = |origin: &str| {
        post_with(&echo(), &format!("Origin: {origin}\r\n")).replace("Host: 127.0.0.1", "Host: mcp.example.com:8080")
    };
    assert_eq!(ask(&lab, &named("https://app.example.com")).status, 200);
    assert_eq!(ask(&lab, &named("http://app.example.com")).status, 403);
}

#[test]
fn texts_that_are_no_request() {
    let lab = Lab::start();
    for (body, code) in [
        ("", -32700),
        ("not json", -32700),
        (r#"{"jsonrpc":"2.0","id":1,"method":"#, -32700),
        (r#"{"jsonrpc":"2.0","id":1,"result":"#, -32700),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#, -32600),
        ("42", -32600),
    ] {
        let answer = ask(&lab, &post(body));
        assert_eq!((answer.status, answer.code()), (400, code), "{body}");
        assert!(!answer.text().contains("\"id\""), "rule M6: {}", answer.text());
    }
    let deep = format!(r#"{{"jsonrpc":"2.0","id":9,"method":"m","params":{}}}"#, "[".repeat(100_000));
    let answer = ask(&lab, &post(&deep));
    assert_eq!((answer.status, answer.code()), (400, -32600));
    let mut binary = post("xxxx").into_bytes();
    let end = binary.len();
    binary[end - 4..].copy_from_slice(&[0xff, 0xfe, 0x00, 0x80]);
    let mut peer = lab.connect();
    peer.send(&binary);
    assert_eq!(peer.answer().code(), -32700);
    assert_eq!(lab.service.counters().requests, 0);
}

/// A request with these three: the version of `_meta`, that of the header, the method of the header.
fn with(meta: &str, header: Option<&str>, method: &str) -> String {
    let text = post(&echo().replace("2026-07-28", meta));
    let header = header.map(|header| format!("MCP-Protocol-Version: {header}\r\n")).unwrap_or_default();
    text.replace("MCP-Protocol-Version: 2026-07-28\r\n", &header)
        .replace("Mcp-Method: tools/call", &format!("Mcp-Method: {method}"))
}

#[test]
fn the_first_check_that_fails_decides() {
    let lab = Lab::start();
    let bare = r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{}}"#;
    let cases = [
        // Metadata before its header, the header before the version, the version before the other headers.
        (post(bare).replace("MCP-Protocol-Version: 2026-07-28", "MCP-Protocol-Version: other"), -32602),
        (with("v999.0.0", Some("2026-07-28"), "tools/list"), -32020),
        (with("2026-07-28", Some("v999.0.0"), "tools/call"), -32020),
        (with("2026-07-28", None, "tools/call"), -32020),
        (with("v999.0.0", Some("v999.0.0"), "tools/list"), -32022),
        (with("2026-07-28", Some("2026-07-28"), "tools/list"), -32020),
        (post(&echo()).replace("Mcp-Name: echo\r\n", ""), -32020),
        (post(&echo()).replace("Mcp-Name: echo", "Mcp-Name: echo\r\nMcp-Name: echo"), -32020),
        (post(&echo()).replace("Mcp-Name: echo", "Mcp-Name: =?base64?ZWNobw?="), -32020),
        (post(&echo()).replace("Mcp-Method: tools/call", "Mcp-Method: Tools/Call"), -32020),
    ];
    for (text, code) in cases {
        let answer = ask(&lab, &text);
        assert_eq!((answer.status, answer.code()), (400, code), "{text}");
        let id = if code == -32602 { "\"x\"" } else { "1" };
        assert!(answer.text().contains(&format!("\"id\":{id},")), "{}", answer.text());
    }
    let refused = ask(&lab, &with("v999.0.0", Some("v999.0.0"), "tools/call")).text();
    assert!(refused.contains(r#""data":{"supported":["2026-07-28"],"requested":"v999.0.0"}"#), "{refused}");
    let long = "v".repeat(4000);
    assert_eq!(refusal(&lab, &with(&long, Some(&long), "tools/call")), (400, Some(-32022)));
    assert_eq!(ask(&lab, &post(&echo()).replace("Mcp-Name: echo", "Mcp-Name: =?base64?ZWNobw==?=")).status, 200);
    assert_eq!(lab.service.counters().requests, 1, "the last one");
}

#[test]
fn unknown_methods_are_404_and_the_old_handshake_learns_the_versions() {
    let lab = Lab::start();
    for method in ["initialize", "ping", "tasks/list", "tasks/result", "resources/subscribe", "nonsense"] {
        assert_eq!(refusal(&lab, &post(&request("5", method, ""))), (404, Some(-32601)), "{method}");
    }
    let server = ServerConfig { eras: Eras::Modern, ..ServerConfig::default() };
    let lab = Lab::with(ServeConfig { http: HttpConfig { server, ..HttpConfig::default() }, ..ServeConfig::default() });
    let old =
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
    for text in [post(old), post(old).replace("MCP-Protocol-Version: 2026-07-28\r\n", "")] {
        let answer = ask(&lab, &text);
        assert_eq!((answer.status, answer.code()), (400, -32022));
        assert!(answer.text().contains(r#""supported":["2026-07-28"]"#));
    }
}

#[test]
fn errors_of_a_handler_travel_with_200() {
    // However slow the machine is, it is no stream.
    let lab = Lab::with(http(|http| http.stream_after = Duration::from_secs(3600)));
    assert_eq!(refusal(&lab, &post(&call(1, "no such tool", "{}"))), (200, Some(-32602)), "rule H9");
    assert_eq!(refusal(&lab, &post(&call(1, "panics", "{}"))), (200, Some(-32603)));
    lab.ping();
}

#[test]
fn notifications_get_202_and_cancel_nothing() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "gate", "{}"));
    lab.hears(&["started"]);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    for text in [post(cancel), post(cancel).replace("Mcp-Method: notifications/cancelled\r\n", "")] {
        let answer = ask(&lab, &text);
        assert_eq!((answer.status, answer.body.len()), (202, 0));
    }
    let wrong = post(cancel).replace("Mcp-Method: notifications/cancelled", "Mcp-Method: tools/call");
    assert_eq!(refusal(&lab, &wrong), (400, Some(-32020)));
    lab.open_the_gate();
    lab.hears(&["cancelled: false", "dropped"]);
    assert!(peer.answer().text().contains("through the gate"), "rule H8");
    let counters = lab.service.counters();
    assert_eq!((counters.notifications, counters.cancellations_posted), (2, 2));
}

#[test]
fn old_session_headers_are_ignored() {
    let lab = Lab::start();
    let answer = ask(&lab, &post_with(&echo(), "Mcp-Session-Id: abc\r\nLast-Event-ID: 7\r\n"));
    assert_eq!((answer.status, answer.header("mcp-session-id")), (200, None), "rule H7");
}

#[test]
fn media_types() {
    let lab = Lab::start();
    let kind = |kind: &str| post(&echo()).replace("Content-Type: application/json", &format!("Content-Type: {kind}"));
    assert_eq!(refusal(&lab, &kind("text/plain")), (415, Some(-32600)));
    assert_eq!(ask(&lab, &kind("Application/JSON; charset=utf-8")).status, 200);
    let accept = |accept: &str| {
        post(&echo()).replace("Accept: application/json, text/event-stream", &format!("Accept: {accept}"))
    };
    assert_eq!(refusal(&lab, &accept("text/html")), (406, Some(-32600)));
    assert_eq!(ask(&lab, &accept("*/*")).header("content-type"), Some("application/json"));
    let mut peer = lab.connect();
    peer.send(accept("text/event-stream;q=0.9").as_bytes());
    assert_eq!(peer.head().header("content-type"), Some("text/event-stream"), "asked for");
    assert!(peer.stream_text().contains("hello"));
    let mut peer = lab.connect();
    let counting = post(&call(1, "count", r#"{"to":3}"#));
    peer.send(counting.replace("application/json, text/event-stream", "application/json").as_bytes());
    let answer = peer.answer();
    assert!(answer.text().contains("counted"), "progress is for those who take events");
}

#[test]
fn mirrored_parameters_must_agree() {
    let lab = Lab::start();
    let with = |arguments: &str, headers: &str| post_with(&call(1, "mirrored", arguments), headers);
    for (arguments, headers, status) in [
        ("{}", "", 200),
        (r#"{"value":"a"}"#, "Mcp-Param-Value: a\r\n", 200),
        (r#"{"value":"a"}"#, "Mcp-Param-Value: =?base64?YQ==?=\r\n", 200),
        (r#"{"value":"=?base64?YQ"}"#, "Mcp-Param-Value: =?base64?YQ\r\n", 200),
        (r#"{"value":"a\r\nX-Evil: 1"}"#, "Mcp-Param-Value: =?base64?YQ0KWC1FdmlsOiAx?=\r\n", 200),
        (r#"{"n":42.0}"#, "Mcp-Param-N: 42\r\n", 200),
        (r#"{"value":null}"#, "", 200),
        (r#"{"value":"a"}"#, "", 400),
        (r#"{"value":"a"}"#, "Mcp-Param-Value: b\r\n", 400),
        (r#"{"value":"a"}"#, "Mcp-Param-Value: =?base64?YQ?=\r\n", 400),
        (r#"{"value":"a"}"#, "Mcp-Param-Value: =?base64?Y*==?=\r\n", 400),
        (r#"{"value":null}"#, "Mcp-Param-Value: a\r\n", 400),
        (r#"{"n":42}"#, "Mcp-Param-N: 43\r\n", 400),
    ] {
        let answer = ask(&lab, &with(arguments, headers));
        assert_eq!(answer.status, status, "{arguments} {headers}: {}", answer.text());
        assert!(status == 200 || answer.code() == -32020, "{}", answer.text());
        assert!(!answer.head.iter().any(|line| line.to_ascii_lowercase().starts_with("x-evil")));
    }
}
