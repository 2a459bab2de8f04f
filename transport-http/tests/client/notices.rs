//! The stream of a session that belongs to no request: when it comes late, goes away, or is silent, listeners read again.

use std::time::Duration;

use serde_json::json;
use steady_http::client::{Client, Config, Filter, ListenEvent, Listener};

use super::clock::Manual;
use super::sessions::{accept, answer_initialize, eager, forgotten, in_session, open, shake, stream, unknown};
use super::support::{Asked, Raw, run};

/// A listener that has read what it watches.
pub(crate) async fn listen(client: &Client) -> Listener {
    let filter = Filter::parse(r#"{"toolsListChanged":true}"#).expect("a filter");
    let mut listener = client.listen(filter).expect("a place");
    assert!(matches!(listener.next().await, ListenEvent::Gap { .. }), "it begins with a read");
    listener.refetched();
    listener
}

/// Lets the pause pass before what was lost is asked for again.
async fn pause(clock: &Manual) {
    let limit = Duration::from_secs(2);
    while !clock.is_armed_within(limit) {
        tokio::task::yield_now().await;
    }
    clock.advance(limit);
}

/// It is told to read again, and hears what is said on the stream from then on.
pub(crate) async fn reads_again(listener: &mut Listener, get: &mut Asked) {
    assert!(matches!(listener.next().await, ListenEvent::Gap { .. }));
    listener.refetched();
    get.event(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    assert!(matches!(listener.next().await, ListenEvent::Notice(_)));
}

/// The next request is one for the stream of this session, and is refused.
pub(crate) fn refused(raw: &Raw, session: &str, status: &str) {
    let mut get = raw.asked();
    assert!(get.start.starts_with("GET "), "{}", get.start);
    in_session(&get, session);
    get.respond(status, "text/plain", "");
}

pub(crate) fn opened(raw: &Raw, session: &str) -> Asked {
    let mut get = raw.asked();
    stream(&mut get, session, true);
    get
}

/// A client whose first stream is not there yet.
async fn without_stream(raw: &Raw, config: Config, late: impl AsyncFnOnce(&Raw)) -> Client {
    let url = raw.url();
    let client = tokio::spawn(async move { Client::connect(&url, config).await });
    let mut probe = raw.asked();
    assert_eq!(probe.method(), "server/discover");
    probe.respond("400 Bad Request", "text/plain", "");
    shake(raw, "s-1");
    late(raw).await;
    client.await.expect("no panic").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn what_was_said_before_the_first_stream_could_be_opened_is_read() {
    run(async {
        for status in ["503 Service Unavailable", "409 Conflict", "401 Unauthorized"] {
            let raw = Raw::start();
            let client = without_stream(&raw, eager(), async |raw| refused(raw, "s-1", status)).await;
            let mut listener = listen(&client).await;
            reads_again(&mut listener, &mut opened(&raw, "s-1")).await;
        }
    });
}

#[test]
fn what_was_said_before_a_late_answer_to_the_first_stream_is_read() {
    run(async {
        let (raw, clock) = (Raw::start(), Manual::default());
        let mut late = None;
        let config = Config { clock: clock.clock(), ..eager() };
        let client = without_stream(&raw, config, async |raw| {
            late = Some(raw.asked());
            clock.is_armed_for(Duration::from_secs(1)).await;
            clock.advance(Duration::from_secs(1));
        });
        let client = client.await;
        let mut listener = listen(&client).await;
        let mut get = late.expect("it was asked for");
        stream(&mut get, "s-1", true);
        pause(&clock).await;
        reads_again(&mut listener, &mut get).await;
    });
}

#[test]
fn a_stream_that_is_refused_for_a_while_is_asked_for_again() {
    run(async {
        for status in ["401 Unauthorized", "403 Forbidden", "405 Method Not Allowed"] {
            let raw = Raw::start();
            let (client, get) = open(&raw, eager(), true).await;
            let mut listener = listen(&client).await;
            get.cut();
            refused(&raw, "s-1", status);
            if status.starts_with("405") {
                assert!(matches!(listener.next().await, ListenEvent::Gap { .. }), "nothing is heard any more");
                listener.refetched();
            }
            reads_again(&mut listener, &mut opened(&raw, "s-1")).await;
        }
    });
}

#[test]
fn a_session_that_is_forgotten_before_it_had_a_stream_is_begun_anew() {
    run(async {
        let raw = Raw::start();
        let client = without_stream(&raw, eager(), async |raw| refused(raw, "s-1", "503 Service Unavailable")).await;
        let mut listener = listen(&client).await;
        forgotten(&mut raw.asked());
        unknown(&raw, "s-1");
        shake(&raw, "s-2");
        reads_again(&mut listener, &mut opened(&raw, "s-2")).await;
    });
}

#[test]
fn a_handshake_that_was_refused_once_is_tried_again_though_nobody_calls() {
    run(async {
        let raw = Raw::start();
        let (client, get) = open(&raw, eager(), true).await;
        let mut listener = listen(&client).await;
        get.cut();
        forgotten(&mut raw.asked());
        unknown(&raw, "s-1");
        let mut handshake = raw.asked();
        assert_eq!(handshake.method(), "initialize");
        handshake.respond("403 Forbidden", "text/plain", "starting");
        forgotten(&mut raw.asked());
        unknown(&raw, "s-1");
        shake(&raw, "s-2");
        reads_again(&mut listener, &mut opened(&raw, "s-2")).await;
    });
}

#[test]
fn a_stream_that_is_silent_for_too_long_is_opened_anew() {
    run(async {
        let (raw, clock) = (Raw::start(), Manual::default());
        let silence = Duration::from_secs(90);
        let (client, mut get) = open(&raw, Config { clock: clock.clock(), ..eager() }, true).await;
        let mut listener = listen(&client).await;
        // A comment is a sign of life.
        clock.is_armed_for(silence).await;
        clock.advance(Duration::from_secs(60));
        get.chunk(": alive\n\n");
        clock.is_armed_for(silence).await;
        clock.advance(Duration::from_secs(60));
        assert!(raw.is_quiet());
        clock.advance(Duration::from_secs(30));
        let mut again = opened(&raw, "s-1");
        get.hears_the_end();
        pause(&clock).await;
        reads_again(&mut listener, &mut again).await;
    });
}

/// Nobody needs the client any more; told once it waits for what is to be said last.
async fn ends(client: Client, clock: &Manual) -> tokio::task::JoinHandle<()> {
    let ends = tokio::spawn(async move { client.shutdown().await });
    clock.is_armed_for(Duration::from_secs(2)).await;
    ends
}

pub(crate) fn deleted(raw: &Raw, session: &str) {
    let mut deleted = raw.asked();
    assert_eq!((&*deleted.start, deleted.header("mcp-session-id")), ("DELETE /mcp HTTP/1.1", Some(session)));
    deleted.respond("204 No Content", "text/plain", "");
}

#[test]
fn a_session_that_is_begun_while_the_client_ends_is_deleted() {
    run(async {
        for waits in [true, false] {
            let (raw, clock) = (Raw::start(), Manual::default());
            let (client, get) = open(&raw, Config { clock: clock.clock(), ..eager() }, true).await;
            get.cut();
            forgotten(&mut raw.asked());
            unknown(&raw, "s-1");
            let mut handshake = raw.asked();
            let ends = ends(client, &clock).await;
            if !waits {
                // The end does not wait for so long.
                clock.advance(Duration::from_secs(2));
                ends.await.expect("no panic");
                answer_initialize(&mut handshake, "s-2", "2025-11-25");
                accept(&mut raw.asked());
                deleted(&raw, "s-2");
                continue;
            }
            answer_initialize(&mut handshake, "s-2", "2025-11-25");
            accept(&mut raw.asked());
            deleted(&raw, "s-2");
            ends.await.expect("no panic");
            assert!(raw.is_quiet(), "once");
        }
    });
}

#[test]
fn a_first_handshake_that_is_given_up_leaves_no_session_behind() {
    run(async {
        let (raw, clock) = (Raw::start(), Manual::default());
        let (url, config) = (raw.url(), Config { clock: clock.clock(), ..eager() });
        let client = tokio::spawn(async move { Client::connect(&url, config).await });
        raw.asked().respond("400 Bad Request", "text/plain", "");
        answer_initialize(&mut raw.asked(), "s-1", "2025-11-25");
        let initialized = raw.asked();
        assert_eq!(initialized.method(), "notifications/initialized");
        clock.advance(Duration::from_secs(600));
        assert!(client.await.expect("no panic").is_err());
        deleted(&raw, "s-1");
    });
}
