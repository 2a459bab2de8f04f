//! Requests as text.

/// The text of a POST with the headers that its body needs.
pub(crate) fn post(body: &str) -> String {
    post_with(body, "")
}

/// The same with further header lines, each ended by CRLF.
pub(crate) fn post_with(body: &str, more: &str) -> String {
    let parsed: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let mut head = String::from("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n");
    head.push_str("Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n");
    if let Some(method) = parsed["method"].as_str() {
        head.push_str(&format!("Mcp-Method: {method}\r\n"));
    }
    for member in ["name", "uri", "taskId"] {
        if let Some(name) = parsed["params"][member].as_str() {
            head.push_str(&format!("Mcp-Name: {name}\r\n"));
        }
    }
    format!("{head}{more}Content-Length: {}\r\n\r\n{body}", body.len())
}

pub(crate) fn request(id: &str, method: &str, params: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}},"progressToken":{id}}}}}}}"#
    )
}

pub(crate) fn listen() -> String {
    request(r#""s""#, "subscriptions/listen", r#""notifications":{},"#)
}

pub(crate) fn call(id: u32, tool: &str, arguments: &str) -> String {
    request(&id.to_string(), "tools/call", &format!(r#""name":"{tool}","arguments":{arguments},"#))
}
