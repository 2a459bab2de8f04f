//! The client against a server of an older revision that a test plays by hand: the handshake, what is said in a session,
//! and what happens when it is lost.

use std::time::Duration;

use serde_json::{Value, json};
use steady_http::client::{CallError, Client, Config, Filter, ListenEvent};

use super::clock::Manual;
use super::support::{Asked, Raw, run, tool};

/// A client whose retries do not pause, and which asks who is there.
pub(crate) fn eager() -> Config {
    let mut config = Config::default();
    config.calls.calls.backoff.base = Duration::ZERO;
    config.calls.calls.backoff.cap = Duration::ZERO;
    config
}

/// Answers the handshake of a session with this id.
pub(crate) fn shake(raw: &Raw, session: &str) {
    answer_initialize(&mut raw.asked(), session, "2025-11-25");
    let mut initialized = raw.asked();
    assert_eq!(initialized.method(), "notifications/initialized");
    in_session(&initialized, session);
    accept(&mut initialized);
}

pub(crate) fn answer_initialize(asked: &mut Asked, session: &str, revision: &str) {
    assert_eq!(asked.method(), "initialize");
    for absent in ["mcp-session-id", "mcp-protocol-version", "mcp-method"] {
        assert_eq!(asked.header(absent), None, "{absent}");
    }
    assert_eq!(asked.body["params"]["protocolVersion"], "2025-11-25");
    let result = json!({
        "protocolVersion": revision, "serverInfo": {"name": "old", "version": "1"},
        "capabilities": {"tools": {"listChanged": true}},
    });
    let body = json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": result}).to_string();
    let length = body.len();
    asked.send(format!(
        "HTTP/1.1 200 OK\r\nMcp-Session-Id: {session}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    ));
}

pub(crate) fn in_session(asked: &Asked, session: &str) {
    assert_eq!(asked.header("mcp-session-id"), Some(session), "{}", asked.start);
    assert_eq!(asked.header("mcp-protocol-version"), Some("2025-11-25"));
    assert_eq!((asked.header("mcp-method"), asked.header("mcp-name")), (None, None));
}

pub(crate) fn accept(asked: &mut Asked) {
    asked.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
}

pub(crate) fn forgotten(asked: &mut Asked) {
    let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Session not found"}});
    asked.respond("404 Not Found", "application/json", &error.to_string());
}

/// The server is asked whether it knows the session, and does not.
pub(crate) fn unknown(raw: &Raw, session: &str) {
    let mut ping = raw.asked();
    assert_eq!(ping.method(), "ping");
    in_session(&ping, session);
    forgotten(&mut ping);
}

/// The stream of a session that belongs to no request; `false`: there is none.
pub(crate) fn stream(asked: &mut Asked, session: &str, offered: bool) {
    assert_eq!(asked.start, "GET /mcp HTTP/1.1");
    assert_eq!((asked.header("accept"), asked.header("last-event-id")), (Some("text/event-stream"), None));
    in_session(asked, session);
    if offered {
        asked.events();
    } else {
        asked.respond("405 Method Not Allowed", "text/plain", "");
    }
}

/// A client with the session `s-1`, and its stream.
pub(crate) async fn open(raw: &Raw, config: Config, offered: bool) -> (Client, Asked) {
    let url = raw.url();
    let client = tokio::spawn(async move { Client::connect(&url, config).await });
    let mut probe = raw.asked();
    assert_eq!(probe.method(), "server/discover");
    probe.respond("400 Bad Request", "text/plain", "Bad Request: Mcp-Session-Id is missing");
    shake(raw, "s-1");
    let mut get = raw.asked();
    stream(&mut get, "s-1", offered);
    (client.await.expect("no panic").unwrap_or_else(|error| panic!("{error}")), get)
}

pub(crate) fn with_capabilities(capabilities: &str) -> Config {
    let mut config = eager();
    config.calls.capabilities = capabilities.into();
    config
}

fn plain(asked: &mut Asked, text: &str) {
    asked.result(&json!({"content": [{"type": "text", "text": text}]}));
}

pub(crate) fn is_named(asked: &Asked, name: &str) -> bool {
    asked.body["params"]["name"] == name
}

#[test]
fn a_400_without_an_error_of_the_protocol_is_followed_by_a_handshake_and_all_carry_its_session() {
    run(async {
        let raw = Raw::start();
        let (client, _none) = open(&raw, eager(), false).await;
        assert_eq!(client.server().expect("it said who it is").supported_versions, ["2026-07-28"]);
        let mut call = client.call(tool("a", r#"{"x":1}"#));
        let mut asked = raw.asked();
        in_session(&asked, "s-1");
        let id = asked.body["id"].clone();
        let params = json!({"name": "a", "arguments": {"x": 1}, "_meta": {"progressToken": id}});
        assert_eq!(asked.body["params"], params, "no metadata of the modern revision");
        asked.events();
        asked.chunk("id: 1\ndata: \n\n");
        asked.progress(1.0);
        assert_eq!(call.progress().await.expect("it runs").progress, 1.0);
        asked.answer("done");
        assert_eq!(call.tool_result().await.expect("an answer").text(), "done");
        assert_eq!(client.stats().bad_messages, 0);

        let ends = tokio::spawn({
            let client = client.clone();
            async move { client.shutdown().await }
        });
        let mut deleted = raw.asked();
        assert_eq!(deleted.start, "DELETE /mcp HTTP/1.1");
        in_session(&deleted, "s-1");
        deleted.respond("405 Method Not Allowed", "text/plain", "");
        ends.await.expect("no panic");
    });
}

#[test]
fn many_first_calls_wait_for_one_handshake() {
    run(async {
        let raw = Raw::start();
        let url = raw.url();
        let connects = tokio::spawn(async move {
            let client = Client::connect(&url, eager()).await.expect("it is there");
            let calls: Vec<_> = (0..20).map(|_| client.call(tool("a", "{}"))).collect();
            for call in calls {
                assert_eq!(call.tool_result().await.expect("an answer").text(), "done");
            }
        });
        let mut probe = raw.asked();
        probe.error("400 Bad Request", -32000, &Value::Null);
        shake(&raw, "s-1");
        stream(&mut raw.asked(), "s-1", false);
        for _ in 0..20 {
            let mut asked = raw.asked();
            in_session(&asked, "s-1");
            plain(&mut asked, "done");
        }
        connects.await.expect("no panic");
    });
}

#[test]
fn a_call_that_is_given_up_is_cancelled_by_a_post() {
    run(async {
        let raw = Raw::start();
        let clock = Manual::default();
        let (client, _none) = open(&raw, Config { clock: clock.clock(), ..eager() }, false).await;
        for how in ["cancel", "drop", "deadline"] {
            let call = client.call(tool("slow", "{}"));
            let asked = raw.asked();
            assert_eq!(asked.method(), "tools/call");
            match how {
                "cancel" => {
                    call.cancel("enough");
                    assert!(matches!(call.await, Err(CallError::Cancelled { .. })));
                }
                "drop" => drop(call),
                _ => {
                    clock.advance(Duration::from_secs(30));
                    assert!(matches!(call.await, Err(CallError::IdleTimeout { .. })));
                }
            }
            let mut cancelled = raw.asked();
            assert_eq!(cancelled.method(), "notifications/cancelled", "{how}");
            in_session(&cancelled, "s-1");
            assert_eq!(cancelled.body["params"]["requestId"], asked.body["id"]);
            assert_eq!(cancelled.body.get("id"), None);
            accept(&mut cancelled);
            asked.hears_the_end();
        }
    });
}

#[test]
fn a_client_that_ends_cancels_what_runs_and_deletes_its_session_last() {
    run(async {
        let raw = Raw::start();
        let (client, _none) = open(&raw, eager(), false).await;
        let call = client.call(tool("slow", "{}"));
        let asked = raw.asked();
        let ends = tokio::spawn(async move { client.shutdown().await });
        let mut cancelled = raw.asked();
        assert_eq!(cancelled.body["params"]["requestId"], asked.body["id"]);
        assert!(raw.is_quiet(), "the session is there as long as something is said in it");
        accept(&mut cancelled);
        let mut deleted = raw.asked();
        assert!(deleted.start.starts_with("DELETE "));
        deleted.respond("204 No Content", "text/plain", "");
        ends.await.expect("no panic");
        assert!(call.await.is_err());
    });
}

#[test]
fn a_question_on_a_calls_own_stream_is_that_calls_and_its_answer_is_posted() {
    run(async {
        let raw = Raw::start();
        let (client, _none) = open(&raw, with_capabilities(r#"{"elicitation":{}}"#), false).await;
        let ask = |name: &'static str| {
            let client = client.clone();
            tokio::spawn(async move {
                let answer = |asked: steady_http::client::InputAsked| async move {
                    Some(format!(r#"{{"action":"accept","content":{{"{}":"{name}"}}}}"#, asked.kind.method().len()))
                };
                client.call_tool_with_input(tool(name, "{}"), answer).await.expect("an answer").text().to_owned()
            })
        };
        let first = ask("first");
        let mut asked_first = raw.asked();
        let second = ask("second");
        let mut asked_second = raw.asked();
        asked_first.events();
        let params = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
        asked_first.event(&json!({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params}));
        let mut answer = raw.asked();
        in_session(&answer, "s-1");
        assert_eq!((answer.body.get("method"), &answer.body["id"]), (None, &json!(7)));
        assert_eq!(answer.body["result"]["content"], json!({"18": "first"}), "the other call was started later");
        accept(&mut answer);
        asked_first.progress(3.0);
        asked_first.answer("one");
        assert_eq!(first.await.expect("no panic"), "one");
        plain(&mut asked_second, "two");
        assert_eq!(second.await.expect("no panic"), "two");
        assert!(raw.is_quiet(), "no round was a request of its own");
    });
}

#[test]
fn a_question_that_nobody_answers_is_refused_with_the_reason() {
    run(async {
        let raw = Raw::start();
        let (client, mut get) = open(&raw, with_capabilities(r#"{"roots":{}}"#), true).await;
        let refused = |raw: &Raw, id: u32, code: i32| {
            let mut answer = raw.asked();
            assert_eq!((&answer.body["id"], &answer.body["error"]["code"]), (&json!(id), &json!(code)));
            accept(&mut answer);
        };
        get.event(&json!({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}}));
        refused(&raw, 1, -32601);
        get.event(&json!({"jsonrpc": "2.0", "id": 2, "method": "roots/list"}));
        refused(&raw, 2, -32603);
        get.event(&json!({"jsonrpc": "2.0", "id": 3, "method": "ping"}));
        let mut answer = raw.asked();
        assert_eq!(answer.body, json!({"jsonrpc": "2.0", "id": 3, "result": {}}));
        accept(&mut answer);
        // A call whose callback has no answer is over here and there.
        let calls = tokio::spawn(async move { client.call_with_input(tool("t", "{}"), |_| async { None }).await });
        let mut asked = raw.asked();
        asked.events();
        asked.event(&json!({"jsonrpc": "2.0", "id": 4, "method": "roots/list"}));
        assert!(matches!(calls.await.expect("no panic"), Err(CallError::NoInput(_))));
        let (mut one, mut other) = (raw.asked(), raw.asked());
        let (refusal, cancelled) = if one.body["id"] == 4 { (&one, &other) } else { (&other, &one) };
        assert_eq!((&refusal.body["id"], &refusal.body["error"]["code"]), (&json!(4), &json!(-32603)));
        assert_eq!(cancelled.body["params"]["requestId"], asked.body["id"]);
        accept(&mut one);
        accept(&mut other);
        asked.hears_the_end();
    });
}

#[test]
fn progress_and_changes_come_on_the_streams_of_a_session_too() {
    run(async {
        let raw = Raw::start();
        let (client, mut get) = open(&raw, eager(), true).await;
        let mut call = client.call(tool("slow", "{}"));
        let mut asked = raw.asked();
        let params = json!({"progressToken": asked.body["id"], "progress": 5});
        get.event(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
        assert_eq!(call.progress().await.expect("it runs").progress, 5.0);
        plain(&mut asked, "done");
        assert!(call.await.is_ok());

        let filter = r#"{"toolsListChanged":true,"resourceSubscriptions":["x:y"]}"#;
        let mut listener = client.listen(Filter::parse(filter).expect("a filter")).expect("a place");
        let subscribed = |raw: &Raw| {
            let mut asked = raw.asked();
            assert_eq!((asked.method(), &asked.body["params"]), ("resources/subscribe", &json!({"uri": "x:y"})));
            in_session(&asked, "s-1");
            asked.result(&json!({}));
        };
        subscribed(&raw);
        assert!(matches!(listener.next().await, ListenEvent::Gap { .. }), "it begins with a read");
        listener.refetched();
        get.event(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
        assert!(matches!(listener.next().await, ListenEvent::Notice(_)));
        // What was said while the stream was away is unknown.
        get.cut();
        stream(&mut raw.asked(), "s-1", true);
        subscribed(&raw);
        assert!(matches!(listener.next().await, ListenEvent::Gap { .. }));
    });
}

#[test]
fn twenty_calls_that_find_their_session_lost_begin_one_and_none_is_lost_or_doubled() {
    run(async {
        let raw = Raw::start();
        let (client, _none) = open(&raw, eager(), false).await;
        let names: Vec<String> = (0..20).map(|nth| format!("call-{nth}")).collect();
        let calls: Vec<_> = names.iter().map(|name| client.call(tool(name, "{}"))).collect();
        let mut lost: Vec<_> = calls.iter().map(|_| raw.asked()).collect();
        lost.iter_mut().for_each(forgotten);
        shake(&raw, "s-2");
        let mut again = Vec::new();
        let mut streams = 0;
        for _ in 0..21 {
            let mut asked = raw.asked();
            if asked.start.starts_with("GET ") {
                stream(&mut asked, "s-2", false);
                streams += 1;
            } else {
                in_session(&asked, "s-2");
                again.push(asked.body["params"]["name"].as_str().expect("a name").to_owned());
                plain(&mut asked, "done");
            }
        }
        again.sort();
        let mut names = names;
        names.sort();
        assert_eq!((again, streams), (names, 1));
        for call in calls {
            assert_eq!(call.tool_result().await.expect("an answer").text(), "done");
        }
        assert!(raw.is_quiet(), "one handshake, and no call twice");
    });
}

#[test]
fn twenty_calls_whose_streams_break_with_the_session_are_not_sent_again() {
    run(async {
        let raw = Raw::start();
        let (client, get) = open(&raw, eager(), true).await;
        let calls: Vec<_> = (0..20).map(|_| client.call(tool("charge", "{}"))).collect();
        let mut streams: Vec<_> = calls.iter().map(|_| raw.asked()).collect();
        streams.iter_mut().for_each(|asked| asked.events());
        streams.into_iter().for_each(Asked::cut);
        get.cut();
        for call in calls {
            let ended = call.await;
            assert!(matches!(ended, Err(CallError::Unknown { .. })), "{ended:?}");
        }
        // It is the stream of notifications that finds the session lost.
        let mut get = raw.asked();
        assert!(get.start.starts_with("GET "));
        in_session(&get, "s-1");
        forgotten(&mut get);
        unknown(&raw, "s-1");
        shake(&raw, "s-2");
        stream(&mut raw.asked(), "s-2", true);
        assert!(raw.is_quiet());
        let next = client.call(tool("next", "{}"));
        let mut asked = raw.asked();
        assert!(is_named(&asked, "next"), "nothing was replayed");
        in_session(&asked, "s-2");
        plain(&mut asked, "done");
        assert!(next.await.is_ok());
    });
}

#[test]
fn an_answer_for_a_session_that_is_lost_goes_to_no_other() {
    run(async {
        let raw = Raw::start();
        let (client, _none) = open(&raw, with_capabilities(r#"{"roots":{}}"#), false).await;
        let (answer, answered) = tokio::sync::oneshot::channel::<()>();
        let asks = tokio::spawn({
            let client = client.clone();
            let mut answered = Some(answered);
            async move {
                let mut ask = move |_| {
                    let answered = answered.take().expect("asked once");
                    async move {
                        let _sent = answered.await;
                        Some(r#"{"roots":[]}"#.to_owned())
                    }
                };
                client.call_with_input(tool("asks", "{}"), &mut ask).await
            }
        });
        let mut asking = raw.asked();
        asking.events();
        asking.event(&json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}));
        while client.stats().answered < 1 {
            tokio::task::yield_now().await;
        }
        let filter = Filter::parse(r#"{"resourceSubscriptions":["x:y"]}"#).expect("a filter");
        let _listener = client.listen(filter).expect("a place");
        forgotten(&mut raw.asked());
        shake(&raw, "s-2");
        stream(&mut raw.asked(), "s-2", false);
        // It is asked for again once the new session is known.
        let mut asked = raw.asked();
        assert_eq!(asked.method(), "resources/subscribe");
        in_session(&asked, "s-2");
        asked.result(&json!({}));
        answer.send(()).expect("it is asked");
        assert!(matches!(asks.await.expect("no panic"), Err(CallError::Unknown { .. })));
        assert!(raw.is_quiet());
    });
}

#[test]
fn a_call_whose_own_error_names_it_has_run_and_is_not_sent_again() {
    for (status, code, message) in [
        ("404 Not Found", -32002, "order not found"),
        ("404 Not Found", -32000, "no such session of the payment"),
        ("400 Bad Request", -32000, "payment session expired"),
    ] {
        run(async move {
            let raw = Raw::start();
            let (client, _none) = open(&raw, eager(), false).await;
            let (told, hears) = std::sync::mpsc::channel();
            raw.answer_each(move |asked| {
                let method = if asked.body.is_null() { "GET" } else { asked.method() };
                let _the_test_is_over = told.send(method.to_owned());
                match method {
                    "initialize" => answer_initialize(asked, "s-2", "2025-11-25"),
                    "tools/call" => {
                        let error = json!({"code": code, "message": message});
                        let answer = json!({"jsonrpc": "2.0", "id": asked.body["id"], "error": error});
                        asked.respond(status, "application/json", &answer.to_string());
                    }
                    _ => asked.respond("405 Method Not Allowed", "text/plain", ""),
                }
            });
            let ended = client.call(tool("charge", "{}")).await;
            let Err(CallError::Peer(error)) = &ended else { panic!("{status}: {ended:?}") };
            assert_eq!((error.code, &*error.message), (code, message));
            assert_eq!(hears.try_iter().collect::<Vec<_>>(), ["tools/call"], "{status}");
        });
    }
}
