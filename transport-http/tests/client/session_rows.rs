//! Field reports of sessions that were lost: the number is the row's in the collection that the project keeps.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use steady_http::client::{CallError, Client, Config, Filter, ListenEvent};
use steady_http::steady_core::kernel::Eras;
use steady_http::{Reply, ServeConfig, Tools};

use super::clock::Manual;
use super::process::{Process, is_server};
use super::sessions::{eager, forgotten, in_session, open, shake, stream};
use super::support::{Raw, run, serve, tool};

/// A client that speaks the older revisions only.
fn older() -> Config {
    let mut config = eager();
    config.calls.eras = Eras::Legacy;
    config
}

#[test]
fn row_81_a_stream_that_comes_back_to_a_new_server_is_followed_by_a_handshake() {
    if is_server() {
        return;
    }
    run(async {
        let test = "session_rows::row_81_a_stream_that_comes_back_to_a_new_server_is_followed_by_a_handshake";
        let mut server = Process::start(test, "127.0.0.1:0");
        let client = Client::connect(&server.url, older()).await.expect("it is there");
        let filter = Filter::parse(r#"{"toolsListChanged":true}"#).expect("a filter");
        let mut listener = client.listen(filter).expect("a place");
        assert!(matches!(listener.next().await, ListenEvent::Gap { .. }), "it begins with a read");
        listener.refetched();
        let mut call = client.call(tool("wait", "{}").idle(None).max(None));
        assert!(call.progress().await.is_some());
        server.kill();
        assert!(matches!(call.await, Err(CallError::Unknown { .. })));
        let at = server.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        let _next = Process::start(test, &at);
        // Nobody called: it is the stream that found out.
        assert!(matches!(listener.next().await, ListenEvent::Gap { .. }));
        assert_eq!(client.call(tool("echo", "{}").safe()).tool_result().await.expect("an answer").text(), "here");
    });
}

#[test]
fn row_83_a_session_that_has_expired_costs_no_call_and_is_not_shown_as_cancelled() {
    run(async {
        let raw = Raw::start();
        let (client, _none) = open(&raw, eager(), false).await;
        let call = client.call(tool("create", "{}"));
        forgotten(&mut raw.asked());
        shake(&raw, "s-2");
        for _ in 0..2 {
            let mut asked = raw.asked();
            if asked.start.starts_with("GET ") {
                stream(&mut asked, "s-2", false);
            } else {
                in_session(&asked, "s-2");
                asked.text("created");
            }
        }
        assert_eq!(call.tool_result().await.expect("an answer").text(), "created");
        assert_eq!(client.stats().cancelled, 0);
    });
}

#[test]
fn row_84_a_client_does_not_keep_a_dead_session_for_ever() {
    run(async {
        let raw = Raw::start();
        let (client, _none) = open(&raw, eager(), false).await;
        // The backend is not there yet, and says so in its own way.
        let call = client.call(tool("create", "{}"));
        forgotten(&mut raw.asked());
        let mut refused = raw.asked();
        assert_eq!(refused.method(), "initialize");
        refused.respond("403 Forbidden", "text/plain", "starting");
        let ended = call.await;
        let Err(CallError::Refused(why)) = &ended else { panic!("{ended:?}") };
        assert!(why.contains("forgotten the session") && why.contains("starting"), "{why}");
        // The next call finds the new one.
        let call = client.call(tool("create", "{}"));
        forgotten(&mut raw.asked());
        shake(&raw, "s-2");
        for _ in 0..2 {
            let mut asked = raw.asked();
            if asked.start.starts_with("GET ") { stream(&mut asked, "s-2", false) } else { asked.text("created") }
        }
        assert!(call.await.is_ok());
    });
}

#[test]
fn row_84_a_backend_that_was_restarted_is_used_again() {
    if is_server() {
        return;
    }
    run(async {
        let test = "session_rows::row_84_a_backend_that_was_restarted_is_used_again";
        let mut server = Process::start(test, "127.0.0.1:0");
        let client = Client::connect(&server.url, older()).await.expect("it is there");
        let at = server.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        // A kept connection may turn out to be closed by a call that is on it, which then may have run.
        let echo = || client.call(tool("echo", "{}").safe());
        for _ in 0..2 {
            assert_eq!(echo().tool_result().await.expect("an answer").text(), "here");
            server.kill();
            server = Process::start(test, &at);
        }
        assert_eq!(echo().tool_result().await.expect("an answer").text(), "here");
    });
}

#[test]
fn row_87_a_transport_that_was_closed_while_idle_is_opened_again_by_the_next_call() {
    run(async {
        let raw = Raw::start();
        let (client, _none) = open(&raw, eager(), false).await;
        let call = client.call(tool("a", "{}"));
        let mut asked = raw.asked();
        asked.text("done");
        assert!(call.await.is_ok());
        // Half an hour later the server has closed all connections and forgotten the session.
        asked.cut();
        // It may still go out on the old one, which is no answer.
        let call = client.call(tool("b", "{}").safe());
        let mut asked = raw.asked();
        in_session(&asked, "s-1");
        forgotten(&mut asked);
        shake(&raw, "s-2");
        for _ in 0..2 {
            let mut asked = raw.asked();
            if asked.start.starts_with("GET ") { stream(&mut asked, "s-2", false) } else { asked.text("again") }
        }
        assert_eq!(call.tool_result().await.expect("an answer").text(), "again");
    });
}

#[test]
fn our_own_server_hears_the_cancellation_of_an_older_client() {
    run(async {
        let (told, hears) = tokio::sync::mpsc::unbounded_channel();
        let hears = Arc::new(Mutex::new(hears));
        let any = r#"{"type":"object"}"#;
        let tools = Tools::new("fixture", "0.0.0")
            .tool("wait", "Waits.", any, move |_, cx| {
                let told = told.clone();
                async move {
                    cx.report(1.0, None, "it runs");
                    let cancelled = cx.cancelled().await;
                    told.send(()).expect("the test lives");
                    Err(cancelled.into())
                }
            })
            .tool("echo", "Answers.", any, |_, _| async { Ok(Reply::text("here")) });
        let url = serve(tools, ServeConfig::default()).await;
        let client = Client::connect(&url, older()).await.expect("it is there");
        for drops in [false, true] {
            let mut call = client.call(tool("wait", "{}"));
            assert!(call.progress().await.is_some());
            if drops {
                drop(call);
            } else {
                call.cancel("enough");
                assert!(matches!(call.await, Err(CallError::Cancelled { .. })));
            }
            let hears = Arc::clone(&hears);
            let heard = tokio::task::spawn_blocking(move || hears.lock().expect("no panic").blocking_recv());
            assert_eq!(heard.await.expect("no panic"), Some(()));
        }
        assert_eq!(client.call(tool("echo", "{}")).tool_result().await.expect("an answer").text(), "here");
        client.shutdown().await;
    });
}

#[test]
fn a_listen_whose_subscription_is_lost_on_the_way_is_asked_for_again() {
    run(async {
        let raw = Raw::start();
        let (client, _get) = open(&raw, eager(), true).await;
        let filter = Filter::parse(r#"{"resourceSubscriptions":["x:y"]}"#).expect("a filter");
        let mut listener = client.listen(filter).expect("a place");
        let mut asked = raw.asked();
        assert_eq!(asked.method(), "resources/subscribe");
        asked.respond("503 Service Unavailable", "text/plain", "later");
        let mut asked = raw.asked();
        assert_eq!(asked.method(), "resources/subscribe");
        asked.result(&serde_json::json!({}));
        assert!(matches!(listener.next().await, ListenEvent::Gap { .. }));
        assert!(raw.is_quiet());
    });
}

#[test]
fn a_subscription_that_is_never_answered_takes_no_place_of_a_call_and_ends() {
    run(async {
        let raw = Raw::start();
        let clock = Manual::default();
        let config = Config { clock: clock.clock(), max_connections: 1, ..eager() };
        let (client, _get) = open(&raw, config, true).await;
        let filter = Filter::parse(r#"{"resourceSubscriptions":["x:y"]}"#).expect("a filter");
        let _listener = client.listen(filter).expect("a place");
        let limit = Duration::from_secs(10);
        let mut silent = raw.asked();
        assert_eq!(silent.method(), "resources/subscribe");
        silent.events();
        silent.chunk(": still there\n\n");
        clock.is_armed_for(limit).await;
        let call = client.call(tool("create", "{}"));
        let mut asked = raw.asked();
        assert_eq!(asked.method(), "tools/call");
        asked.text("created");
        assert_eq!(call.tool_result().await.expect("an answer").text(), "created");
        clock.advance(limit);
        silent.hears_the_end();
    });
}
