//! Subscriptions: each is a stream of its own, and comes back after a loss.

use std::time::Duration;

use serde_json::{Value, json};
use steady_http::client::{Caller, Config, End, Filter, ListenEvent, Listener};
use steady_http::steady_core::backoff::Jitter;
use steady_http::steady_core::subscription;

use super::support::{Asked, Raw, by_hand, run, tool, unasked};

pub(super) fn filter() -> Filter {
    Filter::parse(r#"{"toolsListChanged":true}"#).expect("a filter")
}

pub(super) fn stamped(asked: &Asked, method: &str) -> Value {
    let mut params = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": asked.body["id"]}});
    if method.ends_with("acknowledged") {
        params["notifications"] = json!({"toolsListChanged": true});
    }
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// Begins the stream and acknowledges it.
pub(super) fn acknowledge(asked: &mut Asked) {
    assert_eq!(asked.method(), "subscriptions/listen");
    asked.events();
    let acknowledged = stamped(asked, "notifications/subscriptions/acknowledged");
    asked.event(&acknowledged);
}

/// Begins the stream, whose covered state is read first.
async fn open(asked: &mut Asked, listener: &mut Listener) {
    acknowledge(asked);
    let ListenEvent::Gap { refetch: what } = listener.next().await else { panic!("a gap") };
    assert_eq!(what.iter().map(|refetch| refetch.method()).collect::<Vec<_>>(), ["tools/list"]);
    listener.refetched();
}

fn change(asked: &mut Asked) {
    let changed = stamped(asked, "notifications/tools/list_changed");
    asked.event(&changed);
}

fn is_change(event: &ListenEvent) -> bool {
    matches!(event, ListenEvent::Notice(notice) if &*notice.method == "notifications/tools/list_changed")
}

#[test]
fn statement_11_a_lost_listen_comes_back_as_a_new_request_without_last_event_id_and_refetches() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let mut listener = client.listen(filter()).expect("a place");
        let mut asked = raw.asked();
        open(&mut asked, &mut listener).await;
        change(&mut asked);
        assert!(is_change(&listener.next().await));
        let mut ids = vec![asked.body["id"].clone()];
        // Bait: ids of events, and a pause for a client that resumes.
        asked.chunk("id: 41\nretry: 0\ndata: {}\n\nid: 42\n\n");
        // The stream is cut, then ends in good order without a result, then its server is too busy.
        for nth in 0..3 {
            match nth {
                0 => asked.cut(),
                1 => asked.end(),
                _ => {
                    asked.cut();
                    let mut busy = raw.asked();
                    ids.push(busy.body["id"].clone());
                    busy.respond("503 Busy", "text/plain", "later");
                }
            }
            asked = raw.asked();
            assert_eq!(asked.header("last-event-id"), None);
            assert!(asked.body["params"].get("lastEventId").is_none());
            assert_eq!(asked.body["params"]["notifications"], json!({"toolsListChanged": true}));
            assert!(!ids.contains(&asked.body["id"]), "a new id");
            ids.push(asked.body["id"].clone());
            open(&mut asked, &mut listener).await;
            change(&mut asked);
            let event = listener.next().await;
            assert!(is_change(&event), "{event:?}");
        }
    });
}

#[test]
fn statement_02_dropping_a_listener_closes_its_stream_and_posts_nothing() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let mut listener = client.listen(filter()).expect("a place");
        let mut asked = raw.asked();
        open(&mut asked, &mut listener).await;
        change(&mut asked);
        assert!(is_change(&listener.next().await));
        drop(listener);
        asked.hears_the_end();
        // Before its acknowledgement too.
        let listener = client.listen(filter()).expect("a place");
        let asked = raw.asked();
        drop(listener);
        asked.hears_the_end();
        assert!(raw.is_quiet());
        assert_eq!(client.traffic().posts, 2);
    });
}

#[test]
fn a_listen_ends_with_its_result_or_a_refusal_and_is_not_asked_again() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let mut listener = client.listen(filter()).expect("a place");
        let mut asked = raw.asked();
        open(&mut asked, &mut listener).await;
        asked.answer("");
        assert_eq!(listener.next().await, ListenEvent::Ended(End::Graceful));
        for status in ["404 Not Found", "405 Method Not Allowed"] {
            let mut listener = client.listen(filter()).expect("a place");
            raw.asked().respond(status, "text/plain", "no such stream");
            assert_eq!(listener.next().await, ListenEvent::Ended(End::Refused));
        }
        let call = client.call(tool("a", "{}"));
        let mut next = raw.asked();
        assert_eq!(next.method(), "tools/call", "nothing was asked again meanwhile");
        next.text("served");
        assert_eq!(call.tool_result().await.expect("an answer").text(), "served");
    });
}

#[test]
fn calls_go_on_beside_open_listens_and_listens_do_not_mix() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let (mut one, mut two) = (client.listen(filter()).expect("a place"), client.listen(filter()).expect("a place"));
        let (mut first, mut second) = (raw.asked(), raw.asked());
        // Which of them is whose, nobody here knows.
        acknowledge(&mut first);
        acknowledge(&mut second);
        for listener in [&mut one, &mut two] {
            assert!(matches!(listener.next().await, ListenEvent::Gap { .. }));
            listener.refetched();
        }
        let call = client.call(tool("a", "{}"));
        raw.asked().text("served");
        assert_eq!(call.tool_result().await.expect("an answer").text(), "served");
        change(&mut first);
        change(&mut second);
        assert!(is_change(&one.next().await) && is_change(&two.next().await));
        assert_eq!(client.stats().bad_messages, 0);
    });
}

#[test]
fn a_notification_that_is_too_long_loses_its_listen_which_comes_back_with_a_read() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(Config { max_answer: 64 << 10, ..unasked() }).await;
        let mut listener = client.listen(filter()).expect("a place");
        let mut asked = raw.asked();
        open(&mut asked, &mut listener).await;
        let mut long = stamped(&asked, "notifications/tasks");
        long["params"]["result"] = "x".repeat(128 << 10).into();
        asked.event(&long);
        let first = asked.body["id"].clone();
        asked.hears_the_end();
        let mut asked = raw.asked();
        assert_ne!(asked.body["id"], first);
        open(&mut asked, &mut listener).await;
        // It is no end, however the next stream goes.
        asked.cut();
        open(&mut raw.asked(), &mut listener).await;
    });
}

#[test]
fn row_67_70_a_listen_that_is_silent_is_lost_and_comments_keep_it() {
    run(async {
        let raw = Raw::start();
        let (config, clock) = by_hand();
        let limit = config.listen_silence.expect("it is on by default");
        let client = raw.client(config).await;
        let mut at_once = subscription::Config::default();
        (at_once.backoff.base, at_once.backoff.cap) = (Duration::ZERO, Duration::ZERO);
        let mut listener = Caller::listen(&client, filter(), at_once, Jitter::random([7; 16])).expect("a place");
        let mut asked = raw.asked();
        open(&mut asked, &mut listener).await;
        // Longer than the limit in all, and never silent for that long.
        for _ in 0..3 {
            clock.is_armed_for(limit).await;
            clock.advance(limit - Duration::from_nanos(1));
            asked.chunk(":\n\n");
        }
        change(&mut asked);
        assert!(is_change(&listener.next().await), "it is the first stream still");
        assert!(raw.is_quiet());
        // Half open: nothing comes any more, and nothing says so.
        clock.is_armed_for(limit).await;
        clock.advance(limit);
        let first = asked.body["id"].clone();
        asked.hears_the_end();
        // The shortest pause that there is.
        clock.is_armed_for(Duration::from_nanos(1)).await;
        clock.advance(Duration::from_nanos(1));
        let mut next = raw.asked();
        assert_ne!(next.body["id"], first);
        acknowledge(&mut next);
        assert!(matches!(listener.next().await, ListenEvent::Gap { .. }));
    });
}
