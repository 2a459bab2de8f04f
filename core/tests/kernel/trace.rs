//! What a subscriber sees of a request: the names of OpenTelemetry, and nothing that a client or a handler said.

use std::fmt::{Debug, Write};
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steady_core::coordinator;
use steady_core::deadline::Limits;
use steady_core::kernel::{Answer, Call, Context, ServerConfig};
use steady_core::rpc::{RpcError, method};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::{Server, cancel, ms, ok};

/// Everything that was recorded: spans by number, and events with the span that they came in.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    spans: Vec<String>,
    events: Vec<String>,
    inside: Vec<usize>,
}

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let _written = write!(self.0, "{}={value};", field.name());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _written = write!(self.0, "{}={value:?};", field.name());
    }
}

fn index(id: &Id) -> usize {
    usize::try_from(id.into_u64()).expect("small") - 1
}

impl Subscriber for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("steady_core")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut seen = self.0.lock().expect("no panic");
        let mut text = format!("{};", attributes.metadata().name());
        attributes.record(&mut Text(&mut text));
        seen.spans.push(text);
        Id::from_u64(seen.spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut Text(&mut self.0.lock().expect("no panic").spans[index(span)]));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut seen = self.0.lock().expect("no panic");
        let mut text = format!("{} in {:?};", event.metadata().level(), seen.inside.last());
        event.record(&mut Text(&mut text));
        seen.events.push(text);
    }

    fn enter(&self, span: &Id) {
        self.0.lock().expect("no panic").inside.push(index(span));
    }

    fn exit(&self, _: &Id) {
        self.0.lock().expect("no panic").inside.pop();
    }
}

impl Kept {
    /// Spans and events of what runs in there.
    pub(crate) fn watch(run: impl FnOnce()) -> (Vec<String>, Vec<String>) {
        let kept = Self::default();
        tracing::subscriber::with_default(kept.clone(), run);
        let seen = std::mem::take(&mut *kept.0.lock().expect("no panic"));
        assert!(seen.inside.is_empty(), "each span that was entered was left");
        (seen.spans, seen.events)
    }
}

/// Planted wherever a client or a handler can say something.
pub(crate) const SECRET: &str = "hunter2";

fn call(id: u32, tool: &str, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"password":"{SECRET}"}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{"{SECRET}":{{}}}},"progressToken":"{SECRET}-{id}","{SECRET}":"{SECRET}"{meta}}}}}}}"#
    )
}

fn handler(call: &Call, cx: Context) -> Answer {
    let params = call.params.clone();
    let tool = move |name: &str| params.contains(&format!("\"name\":\"{name}\""));
    if tool("fails") {
        let mut error = RpcError::invalid_params(SECRET);
        error.data = Some(SECRET.into());
        return Answer::Ready(Err(error));
    }
    if tool("panics") {
        return Answer::later(async { panic!("{SECRET}") });
    }
    if tool("says no") {
        return Answer::Ready(Ok(format!(r#"{{"content":["{SECRET}"],"isError":true}}"#)));
    }
    if tool("waits") {
        return Answer::later(async move {
            cx.report(1.0, None, SECRET);
            cx.cancelled().await;
            tracing::info!(target: "steady_core::test", "the handler's own");
            Err(RpcError::internal(SECRET))
        });
    }
    if tool("never") {
        return Answer::later(pending());
    }
    if tool("blocks") {
        return Answer::blocking(ok);
    }
    Answer::Ready(Ok(format!(r#"{{"content":"{SECRET}"}}"#)))
}

fn server() -> Server {
    let limits = Limits { idle: None, maximum: Some(Duration::from_millis(100)) };
    let requests = coordinator::Config { limits, ..coordinator::Config::default() };
    Server::new(ServerConfig { requests, ..ServerConfig::default() }, |call, cx| handler(&call, cx))
}

#[test]
fn spans_have_the_names_of_opentelemetry() {
    let parent = r#","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"a=1,b=2""#;
    let (spans, events) = Kept::watch(|| {
        let mut server = server();
        server.send(call(7, "echo", parent));
        server.send(super::request("text", method::DISCOVER));
        server.send(call(8, "fails", r#","traceparent":"no such thing","tracestate":"a=1""#));
        server.send(call(9, "says no", ""));
    });
    assert_eq!(spans.len(), 4);
    for part in [
        "mcp.request;",
        "otel.name=tools/call echo;",
        "otel.kind=server;",
        "mcp.method.name=tools/call;",
        "gen_ai.tool.name=echo;",
        "jsonrpc.request.id=7;",
        "network.transport=pipe;",
        "traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01;",
        "tracestate=a=1,b=2;",
    ] {
        assert!(spans[0].contains(part), "{part} in {}", spans[0]);
    }
    assert!(!spans[0].contains("error.type"));
    assert!(spans[1].contains("mcp.method.name=server/discover;") && spans[1].contains("jsonrpc.request.id=text;"));
    assert!(!spans[1].contains("gen_ai.tool.name"));
    assert!(spans[2].contains("error.type=-32602;"));
    assert!(!spans[2].contains("trace"), "a context that is none is not passed on: {}", spans[2]);
    assert!(spans[3].contains("error.type=tool_error;"));
    assert_eq!(events.len(), 4, "{events:?}");
}

#[test]
fn a_cancellation_is_no_failure_and_the_handler_runs_in_its_span() {
    let (spans, events) = Kept::watch(|| {
        let mut server = server();
        server.send(call(1, "echo", ""));
        server.send(call(2, "waits", ""));
        server.send(cancel(2));
        server.send(call(3, "never", ""));
        server.at(ms(100));
    });
    assert!(!spans[1].contains("error.type"), "{}", spans[1]);
    assert!(events.iter().any(|event| event.contains("DEBUG in Some(1)") && event.contains("request cancelled")));
    assert!(events.iter().any(|event| event.contains("INFO in Some(1)") && event.contains("the handler's own")));
    assert!(spans[2].contains("error.type=-31002;"));
    assert!(events.iter().any(|event| event.contains("WARN in Some(2)")), "{events:?}");
}

#[test]
fn nothing_that_was_said_is_recorded() {
    let (spans, events) = Kept::watch(|| {
        let mut server = server();
        for (id, tool) in (1..).zip(["echo", "fails", "panics", "says no", "waits", "never", "blocks"]) {
            server.send(call(id, tool, ""));
        }
        server.world.run_jobs();
        let reason = format!(r#"{{"requestId":5,"reason":"{SECRET}"}}"#);
        server.send(format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{reason}}}"#));
        server.send(format!(r#"{{"{SECRET}"#));
        server.send(format!(r#"{{"jsonrpc":"2.0","id":9,"method":"m","params":{{"{SECRET}":1}}}}"#));
        server.send(format!(r#"{{"jsonrpc":"2.0","method":"{SECRET}","params":{{"{SECRET}":1}}}}"#));
        server.at(ms(100));
    });
    assert_eq!(spans.len(), 7);
    assert!(events.len() > 7, "{events:?}");
    for text in spans.iter().chain(&events) {
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[test]
fn what_a_client_chooses_is_cut() {
    let (spans, _) = Kept::watch(|| {
        let mut server = server();
        server.send(call(1, &"é".repeat(10_000), ""));
        server.send(super::request("x".repeat(10_000), &"m".repeat(10_000)));
    });
    assert!(spans.iter().all(|span| span.len() < 1000), "{spans:?}");
}
