//! A server that is told to end: connections, listens, what runs, what comes (C8, L4).

use std::time::Duration;

use steady_http::{HttpConfig, ServeConfig};

use super::support::{GUARD, Lab, call, listen, post};

fn limited(limit: Duration) -> ServeConfig {
    let mut config = ServeConfig::default();
    config.http.server.shutdown_limit = limit;
    config
}

#[test]
fn a_graceful_shutdown_lets_answers_leave() {
    let mut lab = Lab::start();
    let mut peer = lab.connect();
    let mut idle = lab.connect();
    peer.post(&call(1, "gate", "{}"));
    lab.hears(&["started"]);
    lab.stop();
    assert_eq!(idle.rest(), b"", "idle connections are closed");
    lab.open_the_gate();
    assert!(peer.answer().text().contains("through the gate"));
    assert_eq!(peer.rest(), b"");
    lab.has_ended();
}

/// The error of a request that was still running when its time was over.
fn is_the_one_error(text: &str) {
    assert!(text.contains(r#""error":{"code":-31001,"#) && text.contains("shutting down"), "{text}");
}

#[test]
fn what_still_runs_after_the_limit_is_answered_with_one_error() {
    let mut lab = Lab::with(limited(Duration::from_millis(50)));
    let (mut plain, mut streamed) = (lab.connect(), lab.connect());
    plain.post(&call(1, "wait", "{}"));
    lab.hears(&["started"]);
    streamed.post(&call(2, "says", "{}"));
    lab.hears(&["started"]);
    assert!(streamed.head().status == 200 && streamed.chunk().expect("an event").contains("said"));
    lab.stop();
    lab.hears(&["Shutdown", "Shutdown"]);
    is_the_one_error(&plain.answer().text());
    let rest = streamed.stream_text();
    is_the_one_error(&rest);
    assert_eq!((rest.matches("data:").count(), plain.rest(), streamed.rest()), (1, Vec::new(), Vec::new()));
    lab.has_ended();
}

#[test]
fn a_request_that_comes_after_the_order_is_503() {
    let config = limited(GUARD);
    let shutdown = config.http.server.shutdown.clone();
    let lab = Lab::with(config);
    let mut peer = lab.connect();
    peer.post(&call(1, "gate", "{}"));
    lab.hears(&["started"]);
    // Its head is there before the order, and its last byte after it.
    let mut late = lab.connect();
    let text = post(&call(2, "echo", "{}"));
    let (most, last) = text.split_at(text.len() - 1);
    late.send(most.as_bytes());
    lab.until(|counters| counters.in_flight == 2);
    shutdown.drain();
    late.send(last.as_bytes());
    let answer = late.answer();
    assert_eq!((answer.status, answer.header("retry-after"), answer.code()), (503, Some("1"), -31001));
    assert_eq!(late.rest(), b"");
    lab.open_the_gate();
    assert!(
        peer.answer().text().contains("through the gate"),
        "the handle of the settings ends the server as stop does"
    );
    lab.has_ended();
}

#[test]
fn a_mounted_service_ends_by_the_handle_of_its_settings() {
    let config = HttpConfig::default();
    let shutdown = config.server.shutdown.clone();
    let lab = Lab::mounted(config);
    let (mut peer, mut waiting) = (lab.connect(), lab.connect());
    peer.post(&listen());
    assert!(peer.head().status == 200 && peer.chunk().is_some());
    waiting.post(&call(1, "wait", "{}"));
    lab.hears(&["started"]);
    shutdown.drain();
    assert!(peer.stream_text().contains(r#""id":"s","result""#), "rule L4");
    let mut late = lab.connect();
    late.post(&call(2, "echo", "{}"));
    assert_eq!(late.answer().status, 503);
    shutdown.cut();
    is_the_one_error(&waiting.answer().text());
}

#[test]
fn a_server_whose_future_is_dropped_ends_requests_that_outlive_their_connections() {
    // A session of an older revision: a hang-up is no cancellation there.
    let lab = Lab::start();
    let plain = |session: &str, body: &str| {
        let length = body.len();
        format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n\
             Content-Type: application/json\r\n{session}Content-Length: {length}\r\n\r\n{body}"
        )
    };
    let mut peer = lab.connect();
    let handshake = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    peer.send(plain("", handshake).as_bytes());
    let session = peer.answer().header("mcp-session-id").map(|id| format!("Mcp-Session-Id: {id}\r\n"));
    let session = session.expect("a session");
    peer.send(plain(&session, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).as_bytes());
    assert_eq!(peer.answer().status, 202);
    let wait = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{}}}"#;
    peer.send(plain(&session, wait).as_bytes());
    lab.hears(&["started"]);
    lab.vanish();
    lab.hears(&["Shutdown"]);
}
