//! The servers that are measured: ours, and a raw blocking one that answers every line with the same bytes.

use std::io::{self, BufRead, BufReader, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use steady_stdio::{Context, Reply, RpcError, ToolCall, Tools, run_stdio};

use crate::measure::nanos;

const SCHEMA: &str = r#"{"type":"object"}"#;

#[derive(Deserialize)]
struct Arguments {
    #[serde(default)]
    text: String,
    #[serde(default)]
    n: u32,
    #[serde(default)]
    key: u64,
}

/// What `stats` answers, in the form of the other harness: calls that wait, and when each was told to stop.
#[derive(Default, Serialize)]
struct Stats {
    started: u64,
    fired: Vec<(u64, u64)>,
}

async fn echo(call: ToolCall, _cx: Context) -> Result<Reply, RpcError> {
    Ok(Reply::text(&call.arguments::<Arguments>()?.text))
}

async fn progress(call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    let Arguments { n, .. } = call.arguments()?;
    for value in 1..=n {
        cx.report_all(value.into(), Some(n.into()), "").await?;
    }
    Ok(Reply::text("sent"))
}

async fn ignore(_call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    cx.report(1.0, None, "");
    std::future::pending().await
}

async fn wait(stats: Arc<Mutex<Stats>>, call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    let Arguments { key, .. } = call.arguments()?;
    stats.lock().map_err(|_| RpcError::internal("poisoned"))?.started += 1;
    let cancelled = cx.cancelled().await;
    let now = nanos();
    stats.lock().map_err(|_| RpcError::internal("poisoned"))?.fired.push((key, now));
    Err(cancelled.into())
}

/// The tools under the names that the other harness gives them.
pub(crate) fn serve() -> ExitCode {
    let stats = Arc::new(Mutex::new(Stats::default()));
    let waits = Arc::clone(&stats);
    run_stdio(
        Tools::new("bench", "0.0.0")
            .tool("echo", "Answers at once.", SCHEMA, echo)
            .tool("progress", "Reports without loss.", SCHEMA, progress)
            .tool("ignore", "Reports, then ignores its cancellation.", SCHEMA, ignore)
            .tool("wait", "Waits for its cancellation.", SCHEMA, move |call, cx| wait(Arc::clone(&waits), call, cx))
            .tool("stats", "Says what was cancelled when.", SCHEMA, move |_, _| {
                let taken = stats.lock().map(|mut seen| {
                    let fired = std::mem::take(&mut seen.fired);
                    Stats { started: seen.started, fired }
                });
                let taken = taken.map_err(|_| RpcError::internal("poisoned"));
                async move {
                    let json = serde_json::to_string(&taken?);
                    Ok(Reply::text(&json.map_err(|error| RpcError::internal(error.to_string()))?))
                }
            }),
    )
}

pub(crate) fn raw() -> io::Result<()> {
    let (mut input, mut output) = (BufReader::new(io::stdin().lock()), io::stdout().lock());
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        output
            .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"content\":[]}}\n")?;
        output.flush()?;
        line.clear();
    }
    Ok(())
}
