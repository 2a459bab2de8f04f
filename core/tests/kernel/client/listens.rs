//! Subscriptions over links: nothing before the refetch, nothing lost without one, and every end.

use std::time::Duration;

use serde_json::{Value, json};
use steady_core::backoff::Backoff;
use steady_core::kernel::client::{ListenEvent, Listener};
use steady_core::subscription::{self, End, Filter, Refetch};

use steady_core::kernel::BadFrame;

use crate::support::Frame;

use super::{Client, answer, call, config, end, jitter, now};

const FILTER: &str = r#"{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}"#;

pub(super) fn listen(client: &Client) -> Listener {
    let filter = Filter::parse(FILTER).expect("a filter");
    let no_pause = Backoff { base: Duration::ZERO, cap: Duration::ZERO };
    let config = subscription::Config { backoff: no_pause, ..subscription::Config::default() };
    client.caller.listen(filter, config, jitter()).expect("room")
}

pub(super) fn stamped(method: &str, id: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": id}}})
}

fn events(listener: &mut Listener) -> Vec<ListenEvent> {
    let mut all = Vec::new();
    while let Some(event) = now(listener.next()) {
        let ended = matches!(event, ListenEvent::Ended(_));
        all.push(event);
        if ended {
            break;
        }
    }
    all
}

fn name(event: &ListenEvent) -> &str {
    match event {
        ListenEvent::Notice(notice) => &notice.method,
        ListenEvent::Gap { .. } => "refetch",
        ListenEvent::Ended(_) => "ended",
    }
}

fn names(events: &[ListenEvent]) -> Vec<&str> {
    events.iter().map(name).collect()
}

/// The first stream is acknowledged, and what it covers is read.
fn opened(client: &mut Client, listener: &mut Listener) {
    client.say(&stamped(ACK, 1));
    assert_eq!(names(&events(listener)), ["refetch"], "what was read before is older than the stream");
    listener.refetched();
}

const ACK: &str = "notifications/subscriptions/acknowledged";
const TOOLS: &str = "notifications/tools/list_changed";

#[test]
fn a_subscription_is_sent_again_on_the_next_link_and_nothing_comes_before_the_refetch() {
    let mut client = Client::new(config());
    let mut listener = listen(&client);
    client.run();
    let line = client.world.lines().concat();
    assert!(line.contains(&format!("\"notifications\":{FILTER}")) && line.contains("subscriptions/listen"), "{line}");
    client.say(&stamped(TOOLS, 1));
    opened(&mut client, &mut listener);
    client.say(&stamped(TOOLS, 1));
    client.say(&stamped(TOOLS, 9));
    assert_eq!(names(&events(&mut listener)), [TOOLS], "not the one before the acknowledgement, not another's");

    client.lose(true);
    // SUB-5: a pause is at least a nanosecond.
    client.at(1);
    assert_eq!(client.heard(), ["2 subscriptions/listen"]);
    client.say(&stamped(TOOLS, 1));
    client.say(&stamped(ACK, 2));
    client.say(&stamped(TOOLS, 2));
    let seen = events(&mut listener);
    let Some(ListenEvent::Gap { refetch }) = seen.first() else { panic!("{seen:?}") };
    assert_eq!((seen.len(), &refetch[0], refetch.len()), (1, &Refetch::Tools, 2));
    listener.refetched();
    assert_eq!(names(&events(&mut listener)), ["refetch"], "something changed meanwhile");
    listener.refetched();
    client.say(&stamped(TOOLS, 2));
    assert_eq!(names(&events(&mut listener)), [TOOLS]);
    drop(listener);
    assert_eq!(client.heard(), ["cancelled 2"]);
}

#[test]
fn notices_that_nobody_reads_become_one_refetch() {
    let mut client = Client::new(config());
    let mut listener = listen(&client);
    client.run();
    opened(&mut client, &mut listener);
    for _ in 0..256 {
        client.say(&stamped(TOOLS, 1));
    }
    assert_eq!(events(&mut listener).len(), 256);
    for _ in 0..300 {
        client.say(&stamped(TOOLS, 1));
    }
    let seen = events(&mut listener);
    assert_eq!((names(&seen)[0], seen.len()), ("refetch", 1 + 300 - 256));
    let mut big = stamped(TOOLS, 1);
    big["params"]["text"] = "x".repeat(2 << 20).into();
    client.say(&big);
    assert_eq!(names(&events(&mut listener)), ["refetch"]);
}

#[test]
fn a_subscription_ends_by_its_result_by_a_refusal_and_with_the_client() {
    for (last, expected) in [
        (answer(1), End::Graceful),
        (json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no"}}), End::Refused),
    ] {
        let mut client = Client::new(config());
        let mut listener = listen(&client);
        client.run();
        client.say(&last);
        assert_eq!(events(&mut listener), [ListenEvent::Ended(expected)]);
        assert_eq!(events(&mut listener), [ListenEvent::Ended(expected)], "for good");
    }
    let mut client = Client::new(config());
    let mut listener = listen(&client);
    client.run();
    client.lose(false);
    assert_eq!(events(&mut listener), [ListenEvent::Ended(End::Closed)]);
}

#[test]
fn a_cancelled_listen_is_a_lost_stream_and_a_cancelled_call_lives() {
    let mut client = Client::new(config());
    let mut listener = listen(&client);
    let mut pending = client.caller.call(call());
    assert_eq!(client.heard(), ["1 subscriptions/listen", "2 tools/call"]);
    opened(&mut client, &mut listener);
    let cancel = |id: u64| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    client.say(&cancel(2));
    client.say(&cancel(1));
    client.at(1);
    assert_eq!(client.heard(), ["3 subscriptions/listen"]);
    client.say(&stamped(ACK, 3));
    assert_eq!(names(&events(&mut listener)), ["refetch"]);
    client.say(&answer(2));
    assert!(matches!(end(&mut pending), Some(Ok(_))), "C9");
    assert_eq!(client.caller.stats().calls.stray_cancellations, 1);
}

#[test]
fn an_error_that_can_pass_is_a_loss_of_the_listen_and_not_its_end() {
    for code in [-31001, -31002, -32603] {
        let mut client = Client::new(config());
        let mut listener = listen(&client);
        client.run();
        client.say(&json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "ill"}}));
        client.at(1);
        assert_eq!(client.heard(), ["1 subscriptions/listen", "2 subscriptions/listen"], "{code}");
        assert_eq!(names(&events(&mut listener)), [""; 0], "{code}");
    }
}

#[test]
fn a_message_that_was_too_long_to_read_may_have_been_a_notice() {
    let mut client = Client::new(config());
    let mut listener = listen(&client);
    client.run();
    opened(&mut client, &mut listener);
    client.world.feed(Frame::Bad(BadFrame::TooLong));
    client.run();
    assert_eq!(names(&events(&mut listener)), ["refetch"]);
    client.world.feed(Frame::Bad(BadFrame::TooLong));
    client.run();
    assert_eq!(names(&events(&mut listener)), [""; 0], "one gap is told at a time");
    listener.refetched();
    assert_eq!(names(&events(&mut listener)), ["refetch"], "it came while that was read");
}

#[test]
fn a_first_acknowledgement_begins_with_a_read_late_or_not() {
    let mut client = Client::new(config());
    let mut listener = listen(&client);
    // What changed between a read of the reader's own, which the server may answer before the listen, and this is told by
    // nobody else.
    let mut list = client.caller.call(call());
    client.run();
    client.say(&answer(2));
    assert!(matches!(end(&mut list), Some(Ok(_))));
    client.say(&stamped(ACK, 1));
    client.say(&stamped(TOOLS, 1));
    let seen = events(&mut listener);
    let [ListenEvent::Gap { refetch }] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(refetch.len(), 2, "all that it covers");
    listener.refetched();
    assert_eq!(names(&events(&mut listener)), ["refetch"]);

    let mut client = Client::new(config());
    let mut listener = listen(&client);
    client.run();
    client.say(&json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -31001, "message": "busy"}}));
    client.at(1);
    client.say(&stamped(ACK, 2));
    assert_eq!(names(&events(&mut listener)), ["refetch"]);
}
