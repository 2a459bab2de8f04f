//! The server that the tests of this crate talk to: one tool for each way a handler can behave.

use std::process::ExitCode;
use std::time::Duration;

use steady_stdio::{Context, Reply, RpcError, ServerConfig, StdioConfig, ToolCall, Tools, run_stdio_with};

const ANY: &str = r#"{"type":"object"}"#;

#[derive(serde::Deserialize)]
struct Arguments {
    #[serde(default)]
    text: String,
    #[serde(default)]
    to: u32,
}

/// Answers at once.
async fn echo(call: ToolCall, _cx: Context) -> Result<Reply, RpcError> {
    Ok(Reply::text(&call.arguments::<Arguments>()?.text))
}

/// Reports once, then waits until it is told to stop.
async fn wait(_call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    cx.report(1.0, None, "waiting");
    let cancelled = cx.cancelled().await;
    Err(cancelled.into())
}

/// Reports once, then waits for ever, whatever it is told.
async fn ignore(_call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    cx.report(1.0, None, "ignoring");
    std::future::pending().await
}

/// Reports each number, without loss.
async fn count(call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    let Arguments { to, .. } = call.arguments()?;
    for n in 1..=to {
        cx.report_all(n.into(), Some(to.into()), "").await?;
    }
    Ok(Reply::text("counted"))
}

/// Reports without end, and looks at its cancellation now and then.
async fn flood(_call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    for n in 0u64.. {
        #[expect(clippy::cast_precision_loss, reason = "no test runs this long")]
        cx.report_all(n as f64, None, "flood").await?;
    }
    Ok(Reply::text("never"))
}

/// Reports twice within the rate limit, then waits longer than it.
async fn stutter(_call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    cx.report(1.0, None, "one");
    cx.report(2.0, None, "two");
    cx.sleep_until(cx.now() + Duration::from_millis(200)).await?;
    Ok(Reply::text("said nothing"))
}

async fn panics(_call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    cx.checkpoint().await?;
    panic!("on purpose");
}

/// Blocks its thread for ever.
#[expect(clippy::needless_pass_by_value, reason = "the shape of a handler")]
fn block(_call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    cx.report(1.0, None, "blocking");
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn main() -> ExitCode {
    let tools = Tools::new("fixture", "0.0.0")
        .tool("echo", "Says it again.", ANY, echo)
        .tool("wait", "Waits for its cancellation.", ANY, wait)
        .tool("ignore", "Ignores its cancellation.", ANY, ignore)
        .tool("count", "Counts.", ANY, count)
        .tool("flood", "Reports without end.", ANY, flood)
        .tool("stutter", "Reports twice, then waits.", ANY, stutter)
        .tool("panics", "Panics.", ANY, panics)
        .blocking_tool("block", "Blocks.", ANY, block);
    let mut server = ServerConfig::default();
    server.requests.in_flight = 8;
    run_stdio_with(tools, StdioConfig { max_message: 4096, server })
}
