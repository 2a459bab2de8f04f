//! The server that `cargo xtask verify --only proxies` puts behind proxies: `proxied ADDRESS KEEP_ALIVE_MS`.
//!
//! What happens to its handlers is said in lines on standard error, with the time in microseconds since 1970 where it
//! is measured.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use steady_http::{Context, HttpConfig, Reply, RpcError, ServeConfig, ToolCall, Tools, run_http_with};
use tokio::sync::Semaphore;

const ANY: &str = r#"{"type":"object"}"#;

#[derive(serde::Deserialize)]
struct Arguments {
    #[serde(default)]
    n: u32,
    #[serde(default)]
    ms: u64,
    #[serde(default)]
    text: String,
}

fn say(what: &str) {
    let _nobody_listens = writeln!(std::io::stderr(), "{what}");
}

fn now() -> String {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros().to_string()
}

/// Waits for its cancellation, which it says.
async fn wait(cx: Context) -> Result<Reply, RpcError> {
    say("started");
    let cancelled = cx.cancelled().await;
    say(&format!("cancelled {}", now()));
    Err(cancelled.into())
}

/// Reports `n` times, each time that it is let go on; the report is the time.
async fn gated(call: ToolCall, cx: Context, gate: Arc<Semaphore>) -> Result<Reply, RpcError> {
    for n in 1..=call.arguments::<Arguments>()?.n {
        let opened = gate.acquire().await.map_err(|_| RpcError::internal("the gate is gone"))?;
        opened.forget();
        cx.report_all(n.into(), None, &now()).await?;
        say("reported");
    }
    Ok(Reply::text("through the gate"))
}

/// Reports once, is silent for `ms`, then answers.
async fn quiet(call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    cx.report(1.0, None, "first");
    cx.sleep_until(cx.now() + Duration::from_millis(call.arguments::<Arguments>()?.ms)).await?;
    Ok(Reply::text("after the silence"))
}

fn tools() -> Tools {
    let gate = Arc::new(Semaphore::new(0));
    let opened = Arc::clone(&gate);
    Tools::new("proxied", "0.0.0")
        .tool(
            "echo",
            "Says it again.",
            ANY,
            |call, _| async move { Ok(Reply::text(&call.arguments::<Arguments>()?.text)) },
        )
        .tool("wait", "Waits in silence.", ANY, |_, cx| wait(cx))
        .tool("says", "Reports, then waits.", ANY, |_, cx| async move {
            cx.report(1.0, None, "said");
            wait(cx).await
        })
        .tool("gated", "Reports when it is let go on.", ANY, move |call, cx| gated(call, cx, Arc::clone(&gate)))
        .tool("open", "Lets `gated` go on.", ANY, move |_, _| {
            opened.add_permits(1);
            async { Ok(Reply::text("opened")) }
        })
        .tool("quiet", "Is silent for a while.", ANY, quiet)
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let keep_alive = arguments.next().and_then(|ms| ms.parse().ok()).unwrap_or(15_000);
    let http = HttpConfig { keep_alive: Duration::from_millis(keep_alive), ..HttpConfig::default() };
    run_http_with(tools(), address.as_str(), ServeConfig { http, ..ServeConfig::default() })
}
