//! Rows of single requests and their answers.

use super::Row;
use super::subject::{Subject, ensure, why};
use crate::http::{Answer, Peer, call, headers, request};
use serde_json::{Value, json};

pub(super) const ROWS: &[Row] = &[
    Row { about: "GET and DELETE: 405 with Allow", level: "SHOULD", check: other_methods },
    Row { about: "GET without a version header: 405, no session", level: "SHOULD", check: bare_get },
    Row { about: "session and resumption headers ignored, none sent", level: "MUST", check: no_session },
    Row { about: "foreign Origin, good Host: 403", level: "MUST", check: origin },
    Row { about: "foreign Host, no Origin: refused", level: "SHOULD", check: host },
    Row { about: "not JSON: 400, -32700", level: "JSON-RPC", check: not_json },
    Row { about: "a batch: 400, -32600", level: "MUST", check: batch },
    Row { about: "an error without a known id leaves id out", level: "schema", check: no_null_id },
    Row { about: "nesting of 50,000: answered, and the server lives", level: "ours", check: deep },
    Row { about: "a length of 1 GiB: 413 before it is sent", level: "ours", check: too_long },
    Row { about: "a POSTed response: 4xx", level: "MUST", check: response },
    Row { about: "a notification: 202 without a body", level: "MUST", check: notification },
    Row { about: "no Mcp-Method: 400, -32020", level: "MUST", check: no_method_header },
    Row { about: "Mcp-Name in Base64 is decoded", level: "MUST", check: base64_name },
    Row { about: "Mcp-Name in Base64 that differs: 400, -32020", level: "MUST", check: base64_other_name },
    Row { about: "unknown version: 400, -32022 with data", level: "MUST", check: unknown_version },
    Row { about: "2025-11-25: served, or 400 and -32022", level: "MUST", check: old_version },
    Row { about: "ids keep value and JSON type", level: "MUST", check: ids },
    Row { about: "one id on two connections: two answers", level: "MUST", check: same_id },
    Row { about: "a text of 1 MiB, there and back", level: "ours", check: large },
];

fn echo() -> Value {
    call(1, "echo", json!({"text": "hi"}))
}

/// Whether the answer has this status, and is this JSON-RPC error.
fn refused(answer: &Answer, status: u16, code: i64) -> Result<(), String> {
    let said = answer.message().unwrap_or_default()["error"]["code"].as_i64();
    ensure(answer.head.status == status && said == Some(code), || seen(answer))
}

fn seen(answer: &Answer) -> String {
    format!("{} {}", answer.head.status, answer.body)
}

fn is_echoed(answer: &Answer) -> Result<(), String> {
    let text = answer.message().unwrap_or_default()["result"]["content"][0]["text"].clone();
    ensure(answer.head.status == 200 && text == "hi", || seen(answer))
}

fn other_methods(subject: &Subject) -> Result<(), String> {
    for verb in ["GET", "DELETE"] {
        let answer = subject.send(verb, "", headers(&json!({})), &[])?;
        let allowed = answer.head.header("allow").is_some_and(|allow| allow.contains("POST"));
        ensure(answer.head.status == 405 && allowed, || format!("{verb}: {}", seen(&answer)))?;
    }
    Ok(())
}

fn bare_get(subject: &Subject) -> Result<(), String> {
    let accept = vec![("Accept".to_string(), "text/event-stream".to_string())];
    let answer = subject.send("GET", "", accept, &[])?;
    let session = answer.head.header("mcp-session-id");
    ensure(answer.head.status == 405 && session.is_none(), || format!("{} session {session:?}", seen(&answer)))
}

fn no_session(subject: &Subject) -> Result<(), String> {
    let answer = subject.post_with(&echo(), &[("Mcp-Session-Id", "abc"), ("Last-Event-ID", "7")])?;
    is_echoed(&answer)?;
    ensure(answer.head.header("mcp-session-id").is_none(), || "a session id is sent".to_string())
}

fn origin(subject: &Subject) -> Result<(), String> {
    let answer = subject.post_with(&echo(), &[("Origin", "http://evil.example.com")])?;
    ensure(answer.head.status == 403, || seen(&answer))
}

fn host(subject: &Subject) -> Result<(), String> {
    let answer = subject.post_with(&echo(), &[("Host", "evil.example.com")])?;
    // 404 would be an answer about the path.
    ensure([400, 403, 421].contains(&answer.head.status), || seen(&answer))
}

fn not_json(subject: &Subject) -> Result<(), String> {
    refused(&subject.post_text("{\"jsonrpc\": nonsense", &echo())?, 400, -32700)
}

fn batch(subject: &Subject) -> Result<(), String> {
    refused(&subject.post_text(&json!([echo(), echo()]).to_string(), &echo())?, 400, -32600)
}

fn no_null_id(subject: &Subject) -> Result<(), String> {
    let answer = subject.post_text("{\"jsonrpc\": nonsense", &echo())?;
    let message = answer.message().ok_or_else(|| seen(&answer))?;
    ensure(message["error"].is_object() && message.get("id").is_none(), || seen(&answer))
}

fn deep(subject: &Subject) -> Result<(), String> {
    const DEPTH: usize = 50_000;
    let text = echo().to_string().replace("\"hi\"", &format!("{}{}", "[".repeat(DEPTH), "]".repeat(DEPTH)));
    let answer = subject.post_text(&text, &echo())?;
    ensure(answer.head.status < 500, || format!("{} {}", answer.head.status, answer.body.len()))?;
    is_echoed(&subject.post(&echo())?)
}

fn too_long(subject: &Subject) -> Result<(), String> {
    let mut peer = Peer::connect(&subject.address).map_err(why)?;
    let lines: String = headers(&echo()).iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let address = &subject.address;
    peer.send(&format!("POST /mcp HTTP/1.1\r\nHost: {address}\r\n{lines}Content-Length: 1073741824\r\n\r\n{{"))
        .map_err(why)?;
    let head = peer.head().map_err(why)?;
    ensure(head.status == 413, || head.status.to_string())
}

fn response(subject: &Subject) -> Result<(), String> {
    // A server that knows no POST at all must not pass by that.
    is_echoed(&subject.post(&echo())?)?;
    let answer = subject.post_text(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, &json!({}))?;
    ensure((400..500).contains(&answer.head.status), || seen(&answer))
}

fn notification(subject: &Subject) -> Result<(), String> {
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}});
    let answer = subject.post(&cancelled)?;
    ensure(answer.head.status == 202 && answer.body.is_empty(), || seen(&answer))
}

fn no_method_header(subject: &Subject) -> Result<(), String> {
    refused(&subject.post_with(&echo(), &[("Mcp-Method", "")])?, 400, -32020)
}

fn base64_name(subject: &Subject) -> Result<(), String> {
    is_echoed(&subject.post_with(&echo(), &[("Mcp-Name", "=?base64?ZWNobw==?=")])?)
}

fn base64_other_name(subject: &Subject) -> Result<(), String> {
    refused(&subject.post_with(&echo(), &[("Mcp-Name", "=?base64?b3RoZXI=?=")])?, 400, -32020)
}

fn versioned(version: &str) -> Value {
    let mut message = echo();
    message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = version.into();
    message
}

fn unknown_version(subject: &Subject) -> Result<(), String> {
    let answer = subject.post_with(&versioned("v999.0.0"), &[("MCP-Protocol-Version", "v999.0.0")])?;
    refused(&answer, 400, -32022)?;
    let data = answer.message().unwrap_or_default()["error"]["data"].clone();
    let supported = data["supported"].as_array().is_some_and(|all| all.iter().any(|version| version == "2026-07-28"));
    ensure(supported && data["requested"] == "v999.0.0", || seen(&answer))
}

fn old_version(subject: &Subject) -> Result<(), String> {
    let answer = subject.post_with(&versioned("2025-11-25"), &[("MCP-Protocol-Version", "2025-11-25")])?;
    ensure(answer.head.header("mcp-session-id").is_none(), || format!("mints a session: {}", seen(&answer)))?;
    is_echoed(&answer).or_else(|_| refused(&answer, 400, -32022))
}

fn ids(subject: &Subject) -> Result<(), String> {
    for id in [json!(7), json!("7"), json!(9_007_199_254_740_991_i64), json!("with \"quotes\" and ü")] {
        let answer = subject.post(&request(id.clone(), "tools/list", json!({})))?;
        let message = answer.message().unwrap_or_default();
        ensure(message["id"] == id && message["result"].is_object(), || format!("{id} is {}", message["id"]))?;
    }
    Ok(())
}

/// Both are in progress at once: the first one's stream is open while the second is answered.
fn same_id(subject: &Subject) -> Result<(), String> {
    let (mut first, _) = subject.stream(&call(5, "wait", json!({})))?;
    first.message().map_err(why)?;
    let answer = subject.post(&call(5, "echo", json!({"text": "hi"})))?;
    is_echoed(&answer)
}

fn large(subject: &Subject) -> Result<(), String> {
    let text = "x".repeat(1 << 20);
    let said = subject.say("echo", json!({"text": text}))?;
    ensure(said == text, || format!("{} bytes come back", said.len()))
}
