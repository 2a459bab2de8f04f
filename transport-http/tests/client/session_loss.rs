//! Whether a session is lost: what shows it, what does not, and what belongs to none but its own.

use std::sync::{Arc, Mutex};

use http::{HeaderName, HeaderValue};
use serde_json::json;
use steady_http::client::{CallError, Config, HeaderLines, ListenEvent, Rejected};
use steady_http::steady_core::kernel::BoxFuture;

use super::clock::Manual;
use super::notices::{deleted, listen, opened, reads_again, refused};
use super::sessions::{
    accept, answer_initialize, eager, forgotten, in_session, is_named, open, shake, stream, with_capabilities,
};
use super::support::{Asked, Raw, run, tool};

/// A 404 of whatever stands before the server, or of a server that says no more.
fn bare(asked: &mut Asked) {
    asked.respond("404 Not Found", "text/plain", "no such page");
}

fn ping(raw: &Raw) -> Asked {
    let ping = raw.asked();
    assert_eq!(ping.method(), "ping");
    in_session(&ping, "s-1");
    ping
}

#[test]
fn a_bare_404_of_one_method_costs_that_call_and_not_the_session() {
    run(async {
        let raw = Raw::start();
        let (client, mut get) = open(&raw, eager(), true).await;
        let mut listener = listen(&client).await;
        let other = client.call(tool("other", "{}"));
        let mut waits = raw.asked();
        assert!(is_named(&waits, "other"));
        for _ in 0..5 {
            let call = client.call(tool("polled", "{}").safe());
            bare(&mut raw.asked());
            ping(&raw).result(&json!({}));
            let ended = call.await;
            let Err(CallError::Refused(why)) = &ended else { panic!("{ended:?}") };
            assert!(why.contains("no such page"), "{why}");
        }
        waits.text("done");
        assert_eq!(other.tool_result().await.expect("an answer").text(), "done");
        get.event(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
        assert!(matches!(listener.next().await, ListenEvent::Notice(_)), "nothing was missed");
        assert!(raw.is_quiet());
    });
}

#[test]
fn a_server_that_says_404_to_everything_has_forgotten_the_session_which_is_deleted_in_case() {
    run(async {
        let raw = Raw::start();
        let (client, _none) = open(&raw, eager(), false).await;
        let calls = [client.call(tool("a", "{}")), client.call(tool("b", "{}"))];
        let mut asked = [raw.asked(), raw.asked()];
        asked.iter_mut().for_each(bare);
        bare(&mut ping(&raw));
        shake(&raw, "s-2");
        let mut answered = Vec::new();
        for _ in 0..4 {
            let mut asked = raw.asked();
            if asked.start.starts_with("GET ") {
                stream(&mut asked, "s-2", false);
            } else if asked.start.starts_with("DELETE ") {
                assert_eq!(asked.header("mcp-session-id"), Some("s-1"));
                accept(&mut asked);
                answered.push("deleted".to_owned());
            } else {
                in_session(&asked, "s-2");
                answered.push(asked.body["params"]["name"].to_string());
                asked.text("done");
            }
        }
        answered.sort();
        assert_eq!(answered, ["\"a\"", "\"b\"", "deleted"]);
        for call in calls {
            assert_eq!(call.tool_result().await.expect("an answer").text(), "done");
        }
        assert!(raw.is_quiet(), "one ping, one handshake");
    });
}

#[test]
fn a_ping_without_an_answer_shows_nothing() {
    run(async {
        let raw = Raw::start();
        let (client, _none) = open(&raw, eager(), false).await;
        let call = client.call(tool("a", "{}"));
        bare(&mut raw.asked());
        ping(&raw).respond("503 Service Unavailable", "text/plain", "starting");
        let mut again = raw.asked();
        in_session(&again, "s-1");
        again.text("done");
        assert_eq!(call.tool_result().await.expect("an answer").text(), "done");
        assert!(raw.is_quiet());
    });
}

#[test]
fn a_stream_that_is_not_there_any_more_is_no_lost_session() {
    run(async {
        let raw = Raw::start();
        let (client, get) = open(&raw, eager(), true).await;
        let mut listener = listen(&client).await;
        get.cut();
        let mut again = raw.asked();
        assert!(again.start.starts_with("GET "));
        bare(&mut again);
        ping(&raw).result(&json!({}));
        assert!(matches!(listener.next().await, ListenEvent::Gap { .. }), "nothing is heard any more");
        listener.refetched();
        reads_again(&mut listener, &mut opened(&raw, "s-1")).await;
    });
}

#[test]
fn a_question_of_a_session_that_is_over_is_not_asked() {
    run(async {
        let raw = Raw::start();
        let (client, _none) = open(&raw, with_capabilities(r#"{"roots":{}}"#), false).await;
        // One of several servers behind one address still knows the session, and this call.
        let asks = tokio::spawn({
            let client = client.clone();
            async move { client.call_tool_with_input(tool("asks", "{}"), |_| async { panic!("it is asked") }).await }
        });
        let mut asking = raw.asked();
        asking.events();
        let other = client.call(tool("other", "{}"));
        forgotten(&mut raw.asked());
        shake(&raw, "s-2");
        for _ in 0..2 {
            let mut asked = raw.asked();
            if asked.start.starts_with("GET ") { stream(&mut asked, "s-2", false) } else { asked.text("done") }
        }
        assert!(other.await.is_ok());
        asking.event(&json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}));
        asking.answer("all the same");
        assert_eq!(asks.await.expect("no panic").expect("an answer").text(), "all the same");
        assert_eq!(client.stats().bad_messages, 1);
        assert!(raw.is_quiet(), "nothing was said in the other session");
    });
}

#[test]
fn a_handshake_that_stops_half_way_leaves_no_session_behind() {
    run(async {
        let (raw, clock) = (Raw::start(), Manual::default());
        let config = Config { clock: clock.clock(), ..eager() };
        let limit = config.calls.probe.expect("it has one");
        let (client, _none) = open(&raw, config, false).await;
        let call = client.call(tool("a", "{}").attempts(1));
        forgotten(&mut raw.asked());
        answer_initialize(&mut raw.asked(), "s-2", "2025-11-25");
        let initialized = raw.asked();
        assert_eq!(initialized.method(), "notifications/initialized");
        clock.is_armed_for(limit).await;
        clock.advance(limit);
        deleted(&raw, "s-2");
        assert!(matches!(call.await, Err(CallError::NeverSent { .. })));
        assert!(raw.is_quiet(), "the first is forgotten, and the second deleted once");
    });
}

/// The headers of a token that a test changes.
fn token(token: &Arc<Mutex<&'static str>>) -> Arc<dyn steady_http::client::Authorize> {
    let token = Arc::clone(token);
    Arc::new(move |_: Option<Rejected>| -> BoxFuture<Result<HeaderLines, Box<str>>> {
        let value = HeaderValue::from_static(*token.lock().expect("no panic"));
        Box::pin(async move { Ok(vec![(HeaderName::from_static("authorization"), value)]) })
    })
}

#[test]
fn a_stream_that_is_refused_again_and_again_waits_for_another_credential_or_session() {
    for by_session in [false, true] {
        run(async {
            let raw = Raw::start();
            let authorization = Arc::new(Mutex::new("Bearer one"));
            let config = Config { authorize: Some(token(&authorization)), ..eager() };
            let (client, get) = open(&raw, config, true).await;
            let mut listener = listen(&client).await;
            get.cut();
            for _ in 0..5 {
                refused(&raw, "s-1", "403 Forbidden");
            }
            assert!(matches!(listener.next().await, ListenEvent::Gap { .. }), "nothing is heard any more");
            listener.refetched();
            for _ in 0..20 {
                let call = client.call(tool("a", "{}"));
                let mut asked = raw.asked();
                assert_eq!(asked.method(), "tools/call", "the stream is left alone");
                asked.text("done");
                assert!(call.await.is_ok());
            }
            let session = if by_session { "s-2" } else { "s-1" };
            if !by_session {
                *authorization.lock().expect("no panic") = "Bearer two";
            }
            let call = client.call(tool("b", "{}"));
            if by_session {
                forgotten(&mut raw.asked());
                shake(&raw, "s-2");
            }
            let mut get = None;
            for _ in 0..2 {
                let mut asked = raw.asked();
                if asked.start.starts_with("GET ") {
                    stream(&mut asked, session, true);
                    get = Some(asked);
                } else {
                    asked.text("done");
                }
            }
            assert!(call.await.is_ok());
            let mut get = get.expect("it is asked for");
            let sent = if by_session { "Bearer one" } else { "Bearer two" };
            assert_eq!(get.header("authorization"), Some(sent));
            reads_again(&mut listener, &mut get).await;
        });
    }
}
