//! The server that `cargo xtask compare` sets against those of other libraries: the same tools as theirs, with our
//! defaults. It says where it serves in a line on standard error, and shuts down gracefully when it is asked to.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steady_http::{Context, Hub, Reply, RpcError, ServeConfig, Server, ToolCall, Tools, bind};

const ANY: &str = r#"{"type":"object"}"#;

#[derive(serde::Deserialize)]
struct Arguments {
    #[serde(default)]
    text: String,
    #[serde(default)]
    n: u32,
    #[serde(default)]
    ms: u64,
}

/// How many wait for their cancellation, or did, and how many were told.
#[derive(Default)]
struct Counts {
    started: AtomicU64,
    cancelled: AtomicU64,
}

async fn cancellation(cx: Context, counts: Arc<Counts>) -> Result<Reply, RpcError> {
    counts.started.fetch_add(1, Ordering::SeqCst);
    let why = cx.cancelled().await;
    counts.cancelled.fetch_add(1, Ordering::SeqCst);
    Err(why.into())
}

async fn count(call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    for step in 1..=call.arguments::<Arguments>()?.n {
        cx.report_all(step.into(), None, "").await?;
    }
    Ok(Reply::text("counted"))
}

async fn stutter(cx: Context) -> Result<Reply, RpcError> {
    for step in [1.0, 1.0, 0.5, 2.0] {
        cx.report_all(step, None, "").await?;
    }
    Ok(Reply::text("stuttered"))
}

async fn quiet(call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    cx.report(1.0, None, "");
    cx.sleep_until(cx.now() + Duration::from_millis(call.arguments::<Arguments>()?.ms)).await?;
    Ok(Reply::text("after the silence"))
}

fn compared() -> Tools {
    let hub = Hub::new();
    let counts: Arc<Counts> = Arc::default();
    let (told, silently, aloud) = (Arc::clone(&counts), Arc::clone(&counts), counts);
    let change = hub.clone();
    Tools::new("compared", "0.0.0")
        .tool(
            "echo",
            "Says it again.",
            ANY,
            |call, _| async move { Ok(Reply::text(&call.arguments::<Arguments>()?.text)) },
        )
        .tool("count", "Reports each number.", ANY, count)
        .tool("stutter", "Reports what does not increase.", ANY, |_, cx| stutter(cx))
        .tool("quiet", "Reports once, and is silent.", ANY, quiet)
        .tool("wait", "Reports, and waits for its cancellation.", ANY, move |_, cx| {
            cx.report(1.0, None, "");
            cancellation(cx, Arc::clone(&aloud))
        })
        .tool("silent", "Waits for its cancellation.", ANY, move |_, cx| cancellation(cx, Arc::clone(&silently)))
        .tool("cancelled", "Tells how many were cancelled, of how many that wait for it.", ANY, move |_, _| {
            let count = |count: &AtomicU64| count.load(Ordering::SeqCst);
            let text = format!("{} of {}", count(&told.cancelled), count(&told.started));
            async move { Ok(Reply::text(&text)) }
        })
        .tool("change", "Says that the list of tools has changed.", ANY, move |_, _| {
            change.tools_changed();
            async { Ok(Reply::text("changed")) }
        })
        .subscriptions(&hub)
}

/// Resolves when the process is asked to end.
async fn asked_to_end() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminated) = signal(SignalKind::terminate()) {
            terminated.recv().await;
            return;
        }
    }
    let _no_signals = tokio::signal::ctrl_c().await;
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listener = bind("127.0.0.1:0")?;
    let _nobody_listens = writeln!(std::io::stderr(), "serving http://{}/mcp", listener.local_addr()?);
    Server::new(compared(), ServeConfig::default()).serve_until(listener, asked_to_end()).await
}
