//! What one client may hold of what all share: places, memory; and what it cannot take from others.

use std::time::Duration;

use serde_json::{Value, json};

use super::legacy::{Client, cancel, head, lab_with, plain, tool};
use super::support::{Lab, Peer, call, http, listen, post};

fn echo() -> String {
    call(1, "echo", r#"{"text":"hello"}"#)
}

/// The head of a GET for the stream of a session, with these further lines.
fn get(client: &Client<'_>, more: &str) -> String {
    format!("{}{}{more}\r\n", head("GET", ""), client.session)
}

#[test]
fn the_body_of_a_get_is_no_request() {
    let lab = Lab::start();
    let client = Client::open(&lab, "2025-11-25");
    let smuggled = post(&call(9, "echo", r#"{"text":"smuggled"}"#));
    let chunk = format!("{:x}\r\n", smuggled.len());
    for (length, before) in [
        (format!("Content-Length: {}\r\n", smuggled.len()), ""),
        (format!("Content-Length: {}\r\n", smuggled.len() + 8), "\r\n\r\n\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n".into(), &*chunk),
    ] {
        let (head, body) = (get(&client, &length), format!("{before}{smuggled}"));
        for apart in [true, false] {
            let mut peer = lab.connect();
            let first = if apart { head.clone() } else { format!("{head}{body}") };
            peer.send(first.as_bytes());
            let answer = peer.answer();
            if apart {
                peer.try_send(body.as_bytes());
            }
            // It takes the place of the stream before, which ends.
            let mut second = client.bare("GET");
            assert_eq!(second.head().status, 200);
            let rest = String::from_utf8_lossy(&peer.rest()).into_owned();
            assert!(!rest.contains("smuggled"), "{head}{rest}");
            assert_eq!((answer.status, answer.header("connection")), (400, Some("close")), "{head}");
        }
    }
    // No body, in words.
    let mut peer = lab.connect();
    peer.send(get(&client, "Content-Length: 0\r\n").as_bytes());
    assert_eq!(peer.head().status, 200);
}

#[test]
fn what_ends_a_request_of_a_session_needs_no_place_among_the_requests() {
    let lab = lab_with(|http| {
        http.server.requests.in_flight = 1;
        http.server.requests.stragglers = 0;
        http.max_listens = 0;
    });
    let client = Client::open(&lab, "2025-11-25");
    let mut asks = client.send(&tool(1, "asks", &json!({})));
    assert_eq!(asks.head().status, 200);
    let asked = asks.chunk().expect("a question");
    let asked: Value = serde_json::from_str(asked.trim().strip_prefix("data: ").expect("an event")).expect("JSON");
    let answer = json!({"jsonrpc":"2.0","id":asked["id"],"result":{"roots":[]}}).to_string();
    assert_eq!(client.answer(&answer).status, 202);
    assert!(asks.stream_text().contains(r#""given":{"where":{"roots":[]}}"#));
    lab.until(|counters| counters.in_flight == 0 && counters.handlers == 0);

    let _waits = client.send(&tool(2, "wait", &json!({})));
    lab.hears(&["started"]);
    let refused = client.answer(&plain(3, "ping", &json!({})));
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "a request does");
    let unknown = Client { lab: &lab, session: format!("Mcp-Session-Id: {}\r\n", "0".repeat(32)) };
    assert_eq!(unknown.answer(&cancel(2)).status, 429, "whoever has no session ends nothing");
    assert_eq!(client.answer(&cancel(2)).status, 202);
    lab.hears(&["Cancelled(Some(\"enough\"))"]);
}

/// Has an answer of 20 MB begun and not read.
fn unread(lab: &Lab, text: &str, streamed: bool) -> (Peer, usize) {
    let mut peer = lab.connect();
    peer.send(text.as_bytes());
    let head = peer.head();
    assert_eq!(head.status, 200);
    let mut left = head.header("content-length").map(|length| length.parse().expect("a length"));
    if streamed {
        peer.chunk().expect("a report");
    }
    let left = left.get_or_insert_with(|| {
        let size = peer.line();
        usize::from_str_radix(size.trim(), 16).expect("a chunk size") + b"\r\n0\r\n\r\n".len()
    });
    (peer, *left)
}

#[test]
fn an_answer_has_its_place_until_its_client_has_taken_it() {
    let one = |always_stream| {
        Lab::with(http(|http| {
            http.always_stream = always_stream;
            http.server.requests.in_flight = 1;
        }))
    };
    let lab = one(false);
    let client = Client::open(&lab, "2025-11-25");
    let (whole, streamed) = (r#"{"bytes":20000000}"#, r#"{"bytes":20000000,"to":1}"#);
    let of_session = client.post(&tool(1, "big", &json!({"bytes": 20_000_000})));
    let as_event = one(true);
    for (lab, text, is_streamed) in [
        (&lab, post(&call(1, "big", whole)), false),
        (&lab, post(&call(1, "big", streamed)), true),
        (&lab, of_session, false),
        (&as_event, post(&call(1, "big", whole)), false),
    ] {
        let (mut peer, left) = unread(lab, &text, is_streamed);
        let mut other = lab.connect();
        other.post(&echo());
        let refused = other.answer();
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{text}");
        peer.bytes(left);
        lab.until(|counters| counters.in_flight == 0);
        other.post(&echo());
        assert_eq!(other.answer().status, 200);
        // The connection goes on, and so does whoever leaves in the middle.
        peer.post(&echo());
        assert_eq!(peer.head().status, 200);
        let (gone, _) = unread(lab, &text, is_streamed);
        drop(gone);
        lab.until(|counters| counters.in_flight == 0);
    }
}

#[test]
fn a_short_answer_that_is_not_read_has_no_place() {
    let lab = Lab::with(http(|http| http.server.requests.in_flight = 1));
    let mut peers: Vec<Peer> = (0..20).map(|_| lab.connect()).collect();
    for peer in &mut peers {
        // Each follows the answer before it as closely as a client can.
        peer.post(&echo());
        assert_eq!(peer.head().status, 200);
    }
}

#[test]
fn no_duration_is_too_long() {
    let never = Duration::MAX;
    let mut config = http(|http| {
        http.body_timeout = never;
        http.stream_after = never;
        http.keep_alive = never;
        http.retry_after = never;
        http.session_idle = never;
        http.server.grace = never;
        http.server.drain = never;
        http.server.write_stall = never;
        http.server.requests.limits.idle = Some(never);
        http.server.requests.limits.maximum = Some(never);
    });
    config.head_timeout = never;
    config.idle_timeout = never;
    config.write_stall = never;
    config.unreachable_after = never;
    let lab = Lab::with(config);
    lab.ping();
    let mut peer = lab.connect();
    peer.post(&call(1, "stepwise", "{}"));
    assert_eq!(peer.head().status, 200);
    assert!(peer.stream_text().contains("then"));
    peer.post(&listen());
    assert_eq!(peer.head().status, 200);
    assert!(peer.chunk().expect("an event").contains("acknowledged"));
    let client = Client::open(&lab, "2025-11-25");
    assert_eq!(client.bare("GET").head().status, 200);
    let mut peer = lab.connect();
    peer.post(&call(1, "big", r#"{"bytes":20000000}"#));
    assert!(peer.answer().body.len() > 20_000_000, "stalls included");
}

#[test]
fn bodies_that_arrive_have_a_sum() {
    let most = 100 << 10;
    let lab = Lab::with(http(|http| http.max_bodies = most));
    let long = post(&call(1, "echo", &format!(r#"{{"text":"{}"}}"#, "x".repeat(90 << 10))));
    let (first, rest) = long.split_at(60 << 10);
    // One withholds its end.
    let mut slow = lab.connect();
    slow.send(first.as_bytes());
    lab.until(|counters| counters.arriving >= first.len() / 2);
    let mut other = lab.connect();
    other.send(long.as_bytes());
    let refused = other.head();
    let said = (refused.status, refused.header("retry-after"), refused.header("connection"));
    assert_eq!(said, (429, Some("1"), Some("close")));
    lab.ping();
    slow.send(rest.as_bytes());
    assert_eq!(slow.answer().status, 200);
    lab.until(|counters| counters.arriving == 0);
    // Whoever leaves in the middle of a body gives back what it had.
    let mut gone = lab.connect();
    gone.send(first.as_bytes());
    lab.until(|counters| counters.arriving >= first.len() / 2);
    drop(gone);
    lab.until(|counters| counters.arriving == 0);
    let mut again = lab.connect();
    again.send(long.as_bytes());
    assert_eq!(again.answer().status, 200);
    let counters = lab.service.counters();
    assert!(counters.arriving == 0 && counters.in_flight == 0, "{counters:?}");
}
