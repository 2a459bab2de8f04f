//! Refusals: what they say, and that a client hears it whatever it is still sending.

use super::support::{Lab, call, http, listen, post, post_with};

fn echo() -> String {
    call(1, "echo", r#"{"text":"hello"}"#)
}

/// Head and body of a request.
fn apart(text: &str) -> (&str, &str) {
    text.split_at(text.find("\r\n\r\n").expect("a head") + 4)
}

#[test]
fn a_refusal_waits_for_a_short_body_and_leaves_the_connection_to_the_next_try() {
    let lab = Lab::with(http(|http| http.server.requests.in_flight = 1));
    let mut gate = lab.connect();
    gate.post(&call(1, "gate", "{}"));
    lab.hears(&["started"]);
    let text = post(&echo());
    let chunked = text.replace(&format!("Content-Length: {}", echo().len()), "Transfer-Encoding: chunked");
    let chunked = chunked.replace(&echo(), &format!("{:x}\r\n{}\r\n0\r\n\r\n", echo().len(), echo()));
    let cases = [
        (429, text.clone()),
        (429, chunked),
        (403, text.replace("Host: 127.0.0.1", "Host: evil.example.com")),
        (415, text.replace("application/json\r\nAccept", "text/plain\r\nAccept")),
        (406, text.replace("Accept: application/json, text/event-stream", "Accept: image/png")),
        (405, text.replace("POST /mcp", "PUT /mcp")),
        (404, text.replace("POST /mcp", "POST /other")),
    ];
    let mut peer = lab.connect();
    for (refused, (status, text)) in (1..).zip(&cases) {
        let (head, body) = apart(text);
        peer.send(head.as_bytes());
        // The server has read the head, and not the body.
        lab.until(|counters| counters.refused == refused);
        peer.send(body.as_bytes());
        assert_eq!(peer.answer().status, *status, "{head}");
    }
    lab.open_the_gate();
    assert_eq!(gate.answer().status, 200);
    peer.post(&echo());
    assert_eq!(peer.answer().status, 200, "all of it on one connection");
}

#[test]
fn a_client_that_asks_before_it_sends_is_refused_unsent() {
    let lab = Lab::start();
    let text = post_with(&echo(), "Expect: 100-continue\r\n").replace("Host: 127.0.0.1", "Host: evil.example.com");
    let mut peer = lab.connect();
    peer.send(apart(&text).0.as_bytes());
    assert_eq!(peer.answer().status, 403, "and not 100");
}

#[test]
fn a_client_that_sends_all_before_it_reads_hears_why_it_is_refused() {
    let lab = Lab::with(http(|http| http.max_body = 1000));
    let long = post(&call(1, "echo", &format!(r#"{{"text":"{}"}}"#, "x".repeat(12 << 20))));
    let length = long.len() - apart(&long).0.len();
    let chunked = long.replace(&format!("Content-Length: {length}"), "Transfer-Encoding: chunked");
    let chunked = chunked.replace("\r\n\r\n", &format!("\r\n\r\n{length:x}\r\n"));
    let cases = [
        (413, long.clone()),
        (413, chunked + "\r\n0\r\n\r\n"),
        (403, long.replace("Host: 127.0.0.1", "Host: evil.example.com")),
        (404, long.replace("POST /mcp", "POST /other")),
        (400, long.replace("Content-Length: ", "Content-Length: +")),
        (431, long.replace("Host:", &format!("X-Long: {}\r\nHost:", "x".repeat(100_000)))),
    ];
    for (status, text) in cases {
        let mut peer = lab.connect();
        peer.send(text.as_bytes());
        assert_eq!(peer.head().status, status, "{}", &text[..100]);
    }
    lab.ping();
}

#[test]
fn a_listen_whose_client_takes_no_events_is_refused() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    let text = post(&listen()).replace(", text/event-stream", "");
    peer.send(text.as_bytes());
    let answer = peer.answer();
    assert_eq!((answer.status, answer.code()), (406, -32600), "rules H2 and L1: {}", answer.text());
    assert!(answer.text().contains(r#""id":"s""#), "{}", answer.text());
    assert_eq!(lab.service.counters().listens, 0);
    peer.post(&echo());
    assert_eq!(peer.answer().status, 200);
}

#[test]
fn an_error_of_the_server_itself_is_no_bad_request() {
    let lab = Lab::start();
    let ask = |body: &str, more: &str| {
        let mut peer = lab.connect();
        peer.send(post_with(body, more).as_bytes());
        let answer = peer.answer();
        (answer.status, answer.code())
    };
    // Rule H9: a proxy, or a client, would take 400 for a refusal.
    assert_eq!(ask(&call(1, "broken", "{}"), ""), (200, -32603));
    assert_eq!(ask(&call(1, "mirrored", r#"{"value":"a"}"#), ""), (400, -32020), "this is one");
}
