//! Cancellation over real pipes: silence, races, and everything that must be ignored (rules C2 to C10).

mod support;

use steady_core::backoff::Jitter;
use steady_core::client::{CallOptions, CancelSignal, Client, Config, Output, Transport};
use steady_core::id::{ClientId, RequestId};
use steady_core::rpc::encode;
use steady_core::time::Instant;
use support::{Peer, call, call_quietly, cancel, request};

fn mentions(line: &str, id: u32) -> bool {
    line.contains(&format!("\"id\":{id},")) || line.contains(&format!("\"progressToken\":{id},"))
}

#[test]
fn statement_01_stdio_cancellation_sends_notifications_cancelled_and_receives_no_response() {
    let mut client: Client<(), ()> =
        Client::new(Instant::ZERO, Config::new(Transport::Stdio), Jitter::seeded(ClientId::new(1), 0));
    let id = client.call(Instant::ZERO, (), CallOptions::default()).expect("room");
    let Output::Send { wire, .. } = client.poll_output() else { panic!("it is sent") };
    let number = u32::try_from(wire.number()).expect("a small id");

    let mut peer = Peer::spawn();
    peer.send(&call(number, "wait", "{}"));
    assert!(peer.line().contains("waiting"), "the handler runs");

    client.cancel(Instant::ZERO, id);
    let Output::Signal { wire, signal } = client.poll_output() else { panic!("it is signalled") };
    assert_eq!(signal, CancelSignal::Notify);
    let mut line = Vec::new();
    let named = RequestId::from(i64::try_from(wire.number()).expect("a small id"));
    encode::cancelled(&mut line, &named, Some("enough"));
    assert!(line.starts_with(br#"{"jsonrpc":"2.0","method":"notifications/cancelled""#));
    peer.send(std::str::from_utf8(&line).expect("text"));

    let after = peer.ping(100);
    assert_eq!(after.len(), 1, "no response, no error, no progress for it: {after:?}");
}

#[test]
fn nothing_of_a_request_follows_the_answer_to_one_sent_after_its_cancellation() {
    let mut peer = Peer::spawn();
    peer.send(&call(1, "flood", "{}"));
    assert!(peer.line().contains("flood"));
    peer.send(&cancel("1"));
    peer.ping(2);
    // Nothing is under way any more but what follows here.
    for id in 3..6 {
        let lines = peer.ping(id);
        assert!(!lines.iter().any(|line| mentions(line, 1)), "{lines:?}");
    }
    peer.close_input();
    assert!(peer.exit().success());
    assert_eq!(peer.rest(), Vec::<String>::new());
}

#[test]
fn a_cancellation_before_the_first_request_is_ignored() {
    let mut peer = Peer::spawn();
    peer.send(&cancel("1"));
    assert_eq!(peer.ping(1).len(), 1);
}

#[test]
fn a_cancellation_after_discover_is_ignored() {
    let mut peer = Peer::spawn();
    peer.send(&request("1", "server/discover", ""));
    assert!(peer.line().contains("supportedVersions"));
    peer.send(&cancel("1"));
    assert_eq!(peer.ping(2).len(), 1);
}

#[test]
fn cancellations_that_name_nothing_are_ignored() {
    let mut peer = Peer::spawn();
    peer.send(&call(1, "wait", "{}"));
    assert!(peer.line().contains("waiting"));
    for params in [r#""x""#, "[]", "null", "{}", r#"{"requestId":null}"#, r#"{"requestId":1.5}"#, r#"{"requestId":{}}"#]
    {
        peer.send(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#));
    }
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#);
    // An unknown id, and the right one with the other JSON type.
    peer.send(&cancel("99"));
    peer.send(&cancel(r#""1""#));
    assert_eq!(peer.ping(2).len(), 1, "no answer to any of them");
    // The call lived through all of them: its id is still taken.
    peer.send(&call(1, "echo", r#"{"text":"duplicate"}"#));
    assert!(peer.line().contains("already in flight"));
}

#[test]
fn a_thing_like_a_cancellation_with_an_id_is_a_request_for_an_unknown_method() {
    let mut peer = Peer::spawn();
    peer.send(&request("7", "notifications/cancelled", r#""requestId":7,"#));
    let line = peer.line();
    assert!(line.contains("\"id\":7,") && line.contains("-32601"), "{line}");
}

#[test]
fn a_duplicate_id_is_not_executed_and_the_first_call_is_answered() {
    let mut peer = Peer::spawn();
    peer.send(&call(1, "wait", "{}"));
    assert!(peer.line().contains("waiting"));
    peer.send(&call(1, "echo", r#"{"text":"twice"}"#));
    let refusal = peer.line();
    assert!(refusal.contains("-32600") && !refusal.contains("\"id\""), "{refusal}");
    peer.send(&call(2, "count", r#"{"to":3}"#));
    let lines = peer.until_answer("2");
    assert!(lines.iter().all(|line| !line.contains("twice")), "{lines:?}");
    // The first call is the one that the id still names.
    peer.send(&cancel("1"));
    peer.send(&call(1, "echo", r#"{"text":"free again"}"#));
    assert!(peer.until_answer("1").last().is_some_and(|line| line.contains("free again")));
}

#[test]
fn an_id_is_free_after_its_cancellation_and_only_the_new_request_answers_under_it() {
    let mut peer = Peer::spawn();
    for round in 0..50 {
        peer.send(&call(1, "wait", "{}"));
        peer.send(&cancel("1"));
        peer.send(&call(1, "echo", &format!(r#"{{"text":"round {round}"}}"#)));
        let answer = peer.until_answer("1");
        assert!(answer.last().is_some_and(|line| line.contains(&format!("round {round}"))), "{answer:?}");
    }
}

#[test]
fn cancelling_a_full_house_admits_another_full_house() {
    let mut peer = Peer::spawn();
    for round in 0..3 {
        let ids = round * 10 + 1..round * 10 + 9;
        for id in ids.clone() {
            peer.send(&call(id, "wait", "{}"));
            assert!(peer.line().contains("waiting"), "round {round}");
        }
        peer.send(&call(1000, "echo", "{}"));
        assert!(peer.line().contains("limit of 8 requests"));
        for id in ids {
            peer.send(&cancel(&id.to_string()));
        }
    }
    assert_eq!(peer.ping(2000).len(), 1);
}

#[test]
fn cancelling_one_request_leaves_the_others_alone() {
    let mut peer = Peer::spawn();
    peer.send(&call(1, "wait", "{}"));
    peer.send(&call(2, "count", r#"{"to":5000}"#));
    peer.send(&cancel("1"));
    let lines = peer.until_answer("2");
    let counted = lines.iter().filter(|line| line.contains("\"progressToken\":2,")).count();
    assert_eq!(counted, 5000);
}

#[test]
fn a_handler_that_reports_without_end_and_without_a_token_is_cancelled_too() {
    let mut peer = Peer::spawn();
    peer.send(&call_quietly(1, "flood", "{}"));
    assert_eq!(peer.ping(2).len(), 1, "it does not keep others from their answers, and says nothing itself");
    peer.send(&cancel("1"));
    peer.send(&call(1, "echo", r#"{"text":"free again"}"#));
    assert!(peer.until_answer("1").last().is_some_and(|line| line.contains("free again")));
}

#[test]
fn a_request_that_asked_for_no_progress_gets_none() {
    let mut peer = Peer::spawn();
    peer.send(&call_quietly(1, "stutter", "{}"));
    let lines = peer.until_answer("1");
    assert_eq!(lines.len(), 1, "{lines:?}");
}
