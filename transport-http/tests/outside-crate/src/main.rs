//! A server with one tool, in a crate that knows mcp-steady-http alone.

use std::collections::BTreeMap;
use std::process::ExitCode;
use steady_http::{Reply, Tools, run_http};

const SCHEMA: &str = r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}"#;

fn main() -> ExitCode {
    let tools = Tools::new("outside", "1.0.0").tool("echo", "Echoes its text.", SCHEMA, |call, _cx| async move {
        let arguments: BTreeMap<String, String> = call.arguments()?;
        Ok(match arguments.get("text") {
            Some(text) => Reply::text(text),
            None => Reply::error("give me a text"),
        })
    });
    run_http(tools, "127.0.0.1:0")
}
