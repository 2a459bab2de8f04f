//! A whole MCP server over HTTP: one tool that counts, reports progress, and stops when its client hangs up.

use std::process::ExitCode;
use std::time::Duration;

use steady_http::{Context, Reply, RpcError, ToolCall, Tools, run_http};

const SCHEMA: &str = r#"{"type":"object","properties":{"to":{"type":"integer","minimum":1}},"required":["to"]}"#;

#[derive(serde::Deserialize)]
struct Arguments {
    to: u32,
}

async fn count(call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    let Arguments { to } = call.arguments()?;
    for n in 1..=to {
        // Ends here, in silence, when the client hangs up.
        cx.sleep_until(cx.now() + Duration::from_millis(100)).await?;
        cx.report(f64::from(n), Some(f64::from(to)), "counting");
    }
    Ok(Reply::text(&format!("counted to {to}")))
}

fn main() -> ExitCode {
    run_http(Tools::new("counter", "1.0.0").tool("count", "Counts slowly.", SCHEMA, count), "127.0.0.1:8080")
}
