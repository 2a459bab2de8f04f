//! What broke for people who run MCP servers over HTTP, each as the smallest sequence of events. The rows are those of the
//! project's list of public reports.

use std::time::Duration;

use steady_http::{HttpConfig, ServeConfig};

use super::support::{Lab, Peer, call, http, listen, post, request};

const GONE: &str = "Disconnected";

#[test]
fn row_17_a_dropped_socket_reaches_the_context() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "wait", "{}"));
    lab.hears(&["started"]);
    drop(peer);
    lab.hears(&[GONE]);
}

#[test]
fn row_19_an_aborted_call_leaves_no_handler_behind() {
    let lab = Lab::with(http(|http| http.server.grace = Duration::from_millis(20)));
    let mut peer = lab.connect();
    // It ignores its cancellation: the grace period ends it.
    peer.post(&call(1, "gate", "{}"));
    lab.hears(&["started"]);
    drop(peer);
    lab.hears(&["dropped"]);
    lab.until(|counters| counters.handlers == 0 && counters.in_flight == 0);
}

#[test]
fn row_20_a_client_that_dies_ends_all_of_its_calls() {
    let lab = Lab::start();
    let peers: Vec<Peer> = (1..=8)
        .map(|id| {
            let mut peer = lab.connect();
            peer.post(&call(id, if id % 2 == 0 { "wait" } else { "says" }, "{}"));
            lab.hears(&["started"]);
            peer
        })
        .collect();
    drop(peers);
    lab.hears(&[GONE; 8]);
    lab.until(|counters| counters.handlers == 0 && counters.abandoned == 8);
}

#[test]
fn row_22_closing_the_stream_stops_the_tool() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "says", "{}"));
    peer.head();
    peer.chunk().expect("an event");
    drop(peer);
    lab.hears(&["started", GONE]);
}

#[test]
fn row_34_a_hang_up_and_an_answer_at_once_have_one_winner() {
    let lab = Lab::start();
    let mut answered = 0;
    for id in 0..300 {
        let mut peer = lab.connect();
        let tool = ["echo", "count", "stepwise"][id as usize % 3];
        peer.post(&call(id, tool, r#"{"text":"raced","to":2}"#));
        // Sooner or later than the answer, as it comes: some wait for its first bytes.
        if id % 2 == 0 {
            peer.line();
        }
        peer.half_close();
        let said = String::from_utf8(peer.rest()).expect("UTF-8");
        let answers = said.matches(&format!(r#""id":{id},"#)).count();
        assert!(answers <= 1, "{said}");
        answered += answers as u64;
    }
    lab.until(|counters| counters.in_flight == 0 && counters.handlers == 0);
    let counters = lab.service.counters();
    assert_eq!(counters.requests, counters.abandoned + answered, "each has one end: {counters:?}");
    assert!(answered >= 100 && counters.abandoned > 0, "both were seen: {counters:?}");
    for id in 0..100 {
        let mut peer = lab.connect();
        peer.post(&call(id, "echo", r#"{"text":"raced"}"#));
        drop(peer);
    }
    lab.until(|counters| counters.in_flight == 0 && counters.handlers == 0);
    lab.ping();
}

#[test]
fn row_35_nothing_is_sent_for_a_cancelled_request() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "wait", "{}"));
    lab.hears(&["started"]);
    peer.half_close();
    lab.hears(&[GONE]);
    assert_eq!(peer.rest(), b"", "no error, no code 0, no answer");
}

#[test]
fn row_39_progress_and_its_result_leave_the_connection_usable() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    for id in 1..=3 {
        peer.post(&call(id, "count", r#"{"to":2}"#));
        peer.head();
        let text = peer.stream_text();
        let (progress, result) = (text.rfind("notifications/progress"), text.find("\"result\""));
        assert!(progress < result, "rule P3: {text}");
    }
}

#[test]
fn row_51_a_stream_that_is_cut_has_no_proper_end() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "says", "{}"));
    peer.head();
    peer.chunk().expect("an event");
    lab.vanish();
    // Not the last chunk: a client can tell the loss from an end, at once.
    assert_eq!(peer.rest(), b"");
}

#[test]
fn row_63_proxies_are_told_not_to_hold_events_back() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&listen());
    let head = peer.head();
    assert_eq!((head.header("x-accel-buffering"), head.header("cache-control")), (Some("no"), Some("no-cache")));
}

#[test]
fn row_64_an_event_arrives_while_the_handler_pauses() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "says", "{}"));
    assert_eq!(peer.head().status, 200);
    assert!(peer.chunk().expect("an event, before the answer").contains("said"));
    lab.hears(&["started"]);
}

#[test]
fn row_65_a_stream_has_a_first_byte_before_its_first_event() {
    let lab = Lab::with(http(|http| http.stream_after = Duration::from_millis(20)));
    let mut peer = lab.connect();
    peer.post(&call(1, "wait", "{}"));
    peer.head();
    assert_eq!(peer.chunk().as_deref(), Some(":\n\n"));
    assert!(HttpConfig::default().stream_after <= Duration::from_secs(5), "and by default soon enough for proxies");
}

#[test]
fn row_67_68_70_an_idle_listen_is_kept_alive() {
    let lab = Lab::with(http(|http| http.keep_alive = Duration::from_millis(20)));
    let mut peer = lab.connect();
    peer.post(&listen());
    peer.head();
    assert!(peer.chunk().expect("an event").contains("acknowledged"));
    for _ in 0..5 {
        assert_eq!(peer.chunk().as_deref(), Some(":\n\n"));
    }
    assert!(HttpConfig::default().keep_alive <= Duration::from_secs(25), "by default");
}

#[test]
fn row_69_no_deadline_of_the_connection_cuts_a_long_call() {
    let short = Duration::from_millis(20);
    let config = ServeConfig { idle_timeout: short, head_timeout: short, ..http(|http| http.body_timeout = short) };
    let lab = Lab::with(config);
    let mut peer = lab.connect();
    peer.post(&call(1, "gate", "{}"));
    lab.hears(&["started"]);
    // Others are closed by each of these deadlines meanwhile.
    assert_eq!(lab.connect().rest(), b"");
    lab.open_the_gate();
    assert!(peer.answer().text().contains("through the gate"));
}

#[test]
fn row_71_a_get_is_refused_for_good() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    for _ in 0..2 {
        peer.send(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
        let answer = peer.answer();
        assert_eq!((answer.status, answer.header("allow"), answer.header("retry-after")), (405, Some("POST"), None));
    }
}

#[test]
fn row_73_a_stream_that_stays_open_does_not_keep_its_call_for_ever() {
    let lab = Lab::with(http(|http| {
        http.keep_alive = Duration::from_millis(5);
        http.server.requests.limits.maximum = Some(Duration::from_millis(100));
        http.server.requests.in_flight = 1;
    }));
    // It has the stream, and sleeps: comments go out all the time.
    let mut peer = lab.connect();
    peer.post(&call(1, "says", "{}"));
    lab.hears(&["started", "Deadline(Maximum)"]);
    assert_eq!(peer.head().status, 200);
    let text = peer.stream_text();
    assert!(text.contains(":\n\n") && text.matches(r#""error":{"code":-31002"#).count() == 1, "{text}");
    lab.until(|counters| counters.in_flight == 0 && counters.handlers == 0);
    lab.ping();
}

#[test]
fn row_74_a_result_of_50_megabytes_arrives_whole() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "big", r#"{"bytes":50000000}"#));
    let answer = peer.answer();
    assert_eq!(answer.status, 200);
    assert!(answer.body.len() > 50_000_000 && answer.body.ends_with(b"}}"));
}

#[test]
fn row_75_76_78_clients_that_connect_and_vanish_leave_nothing() {
    let lab = Lab::start();
    for round in 0..50 {
        let mut peers: Vec<Peer> = (0..4).map(|_| lab.connect()).collect();
        peers[0].post(&listen());
        peers[1].post(&call(round, "wait", "{}"));
        peers[2].post(&request("1", "tools/list", ""));
        lab.hears(&["started"]);
        drop(peers);
        lab.hears(&[GONE]);
    }
    lab.until(|counters| (counters.in_flight, counters.listens, counters.handlers) == (0, 0, 0));
}

#[test]
fn row_79_clients_that_come_back_all_at_once_are_told_when_to_try_again() {
    let lab = Lab::with(http(|http| http.server.requests.in_flight = 1));
    let mut first = lab.connect();
    first.post(&call(1, "gate", "{}"));
    lab.hears(&["started"]);
    let mut storm: Vec<Peer> = (0..200).map(|_| lab.connect()).collect();
    for peer in &mut storm {
        peer.post(&call(2, "echo", "{}"));
    }
    for peer in &mut storm {
        let answer = peer.answer();
        assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")));
    }
    assert_eq!(lab.service.counters().requests, 1, "none of them cost a handler");
    lab.open_the_gate();
    assert!(first.answer().text().contains("through the gate"));
    let again = &mut storm[0];
    again.post(&call(3, "echo", "{}"));
    assert_eq!(again.answer().status, 200, "the connection was kept for the next try");
}

#[test]
fn row_82_a_broken_stream_loses_its_request_and_a_new_one_is_new() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "says", "{}"));
    peer.head();
    peer.chunk().expect("an event");
    drop(peer);
    lab.hears(&["started", GONE]);
    let mut again = lab.connect();
    // What old clients send: it resumes nothing.
    again.send(
        post(&call(2, "echo", r#"{"text":"new"}"#)).replace("\r\n\r\n", "\r\nLast-Event-ID: 1\r\n\r\n").as_bytes(),
    );
    let answer = again.answer();
    assert!(answer.text().contains(r#""id":2"#) && answer.text().contains("new"), "{}", answer.text());
}
