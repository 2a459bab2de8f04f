//! What a subscriber sees of a client's calls: the names of OpenTelemetry, and nothing that a caller or a server said.

use std::time::Duration;

use serde_json::json;
use steady_core::kernel::client::{ClientConfig, Pending, Propagator, Request, TraceContext};

use super::super::trace::{Kept, SECRET};
use super::{Client, config, progress, reports};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn tool(name: &str) -> Request {
    let params = json!({"name": name, "arguments": {"password": SECRET}, "_meta": {SECRET: SECRET}});
    Request::new("tools/call", &params)
}

/// A client that was asked for this and has sent it.
fn asked(requests: Vec<Request>) -> (Client, Vec<Pending>) {
    let current = || {
        tracing::info!(target: "steady_core::test", "asked for the context");
        TraceContext::new(PARENT, Some(SECRET))
    };
    let limits = ClientConfig { trace: Some(Propagator::new(current)), ..config() };
    let mut client = Client::new(ClientConfig { max_request: 1000, ..limits });
    let calls = requests.into_iter().map(|request| client.caller.call(request)).collect();
    client.run();
    (client, calls)
}

fn error_of(span: &str) -> Option<&str> {
    span.split(';').find_map(|field| field.strip_prefix("error.type="))
}

#[test]
fn a_clients_spans_have_the_names_of_opentelemetry() {
    let (spans, events) = Kept::watch(|| {
        let (mut client, _calls) =
            asked(vec![tool("echo"), Request::raw("server/discover", "{}"), tool("no"), tool("bad")]);
        client.say(&json!({"jsonrpc": "2.0", "id": 1, "result": {"content": []}}));
        client.say(&json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
        client.say(&json!({"jsonrpc": "2.0", "id": 3, "result": {"isError": true, "content": []}}));
        client.say(&json!({"jsonrpc": "2.0", "id": 4, "error": {"code": -32602, "message": ""}}));
    });
    assert_eq!(spans.len(), 4);
    for part in [
        "mcp.request;",
        "otel.name=tools/call echo;",
        "otel.kind=client;",
        "mcp.method.name=tools/call;",
        "gen_ai.tool.name=echo;",
        "jsonrpc.request.id=1;",
        "network.transport=pipe;",
    ] {
        assert!(spans[0].contains(part), "{part} in {}", spans[0]);
    }
    assert!(spans[1].contains("otel.name=server/discover;") && !spans[1].contains("gen_ai.tool.name"));
    let errors: Vec<_> = spans.iter().map(|span| error_of(span)).collect();
    assert_eq!(errors, [None, None, Some("tool_error"), Some("-32602")]);
    let context = events.iter().position(|event| event.contains("INFO in Some(0)") && event.contains("asked for"));
    assert!(context.is_some(), "asked inside of the call's own span: {events:?}");
    assert_eq!(events.iter().filter(|event| event.contains("request sent")).count(), 4);
}

#[test]
fn each_end_has_its_error_and_a_cancellation_is_none() {
    let (spans, events) = Kept::watch(|| {
        let limited = |name| tool(name).idle(Some(Duration::from_millis(100))).max(Some(Duration::from_secs(1)));
        let (mut client, mut calls) = asked(vec![tool("cancelled"), limited("idle"), limited("max"), tool("lost")]);
        drop(calls.remove(0));
        for at in (50..1000).step_by(50) {
            client.say(&progress(3, f64::from(at), SECRET));
            client.at(u64::try_from(at).expect("positive"));
        }
        client.at(1000);
        client.lose(true);
        client.world.allow(Some(0));
        let _never = client.caller.call(tool("never"));
        client.lose(false);
        let _refused = client.caller.call(tool("refused"));
    });
    let errors: Vec<_> = spans.iter().map(|span| error_of(span)).collect();
    let expected = ["timeout", "timeout", "outcome_unknown", "never_sent", "refused"].map(Some);
    assert_eq!(errors, [&[None][..], &expected].concat(), "{spans:?}");
    for (clock, span) in [("idle", 1), ("maximum", 2)] {
        let told = format!("WARN in Some({span});message=request timed out;clock={clock};");
        assert!(events.iter().any(|event| event.contains(&told)), "{told} in {events:?}");
    }
    assert!(events.iter().any(|event| event.contains("again=true")), "{events:?}");
    assert!(events.iter().any(|event| event.contains("again=false")), "{events:?}");
}

#[test]
fn the_id_is_of_the_attempt_that_was_sent_last() {
    let (spans, _) = Kept::watch(|| {
        let (mut client, _calls) = asked(vec![tool("read").safe()]);
        client.lose(true);
        client.say(&json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
    });
    assert_eq!(spans.len(), 1, "one call");
    assert!(spans[0].ends_with("jsonrpc.request.id=1;jsonrpc.request.id=2;"), "{}", spans[0]);
}

#[test]
fn nothing_that_a_caller_or_a_server_said_is_recorded() {
    let (spans, events) = Kept::watch(|| {
        let names = ["answers", "fails", "cancelled", "reports", "lost"];
        let (mut client, mut calls) = asked(names.map(tool).into());
        client.say(&progress(4, 1.0, SECRET));
        assert_eq!(reports(&mut calls[3]), [(1.0, SECRET.to_owned())]);
        client.say(&json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [SECRET], "isError": true}}));
        client.say(&json!({"jsonrpc": "2.0", "id": 2, "error": {"code": 1, "message": SECRET, "data": SECRET}}));
        calls[2].cancel(SECRET);
        client.world.send(format!("{{\"{SECRET}"));
        client.world.send(SECRET);
        client.say(&json!({"jsonrpc": "2.0", "id": 77, "method": SECRET, "params": {SECRET: SECRET}}));
        let _refused = client.caller.call(Request::raw("m", format!("[\"{SECRET}\"]")));
        let mut driver = client.driver.take().expect("it is there").into_inner().0;
        driver.detach(SECRET.to_owned(), SECRET.to_owned(), false);
    });
    assert_eq!(spans.len(), 6);
    assert!(events.len() > 12, "{events:?}");
    for text in spans.iter().chain(&events) {
        assert!(!text.contains(SECRET), "{text}");
    }
}
