//! The server of the interop table: tools that show a call, its progress and its cancellation, with our defaults on both
//! transports.
//!
//! `eras_server stdio` or `eras_server http`; a second argument `modern` or `legacy` serves that era only. Over HTTP it says
//! where it serves in a line on standard error.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steady_http::steady_core::kernel::Eras;
use steady_http::{Context, Reply, RpcError, ServeConfig, ToolCall, Tools, run_http_with};
use steady_stdio::{StdioConfig, run_stdio_with};

const PACE: Duration = Duration::from_millis(10);

const TEXT: &str = r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}"#;
const NUMBER: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
const NONE: &str = r#"{"type":"object"}"#;

#[derive(serde::Deserialize)]
struct Arguments {
    #[serde(default)]
    text: String,
    #[serde(default)]
    n: u32,
}

async fn echo(call: ToolCall, _cx: Context) -> Result<Reply, RpcError> {
    Ok(Reply::text(&call.arguments::<Arguments>()?.text))
}

async fn count(call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    let n = call.arguments::<Arguments>()?.n;
    for step in 1..=n {
        cx.report_all(step.into(), Some(n.into()), "").await?;
        // The TypeScript SDK forgets progress that it reads in one piece with the answer.
        cx.sleep_until(cx.now() + PACE).await?;
    }
    Ok(Reply::text("counted"))
}

async fn wait(cx: Context, cancelled: Arc<AtomicU64>) -> Result<Reply, RpcError> {
    cx.report(1.0, None, "");
    let why = cx.cancelled().await;
    cancelled.fetch_add(1, Ordering::SeqCst);
    Err(why.into())
}

fn tools() -> Tools {
    let counts: Arc<AtomicU64> = Arc::default();
    let told = Arc::clone(&counts);
    Tools::new("eras", "0.0.0")
        .tool("echo", "Says it again.", TEXT, echo)
        .tool("count", "Reports each number.", NUMBER, count)
        .tool("wait", "Reports, and waits for its cancellation.", NONE, move |_, cx| wait(cx, Arc::clone(&counts)))
        .tool("cancelled", "Tells how many were cancelled.", NONE, move |_, _| {
            let text = told.load(Ordering::SeqCst).to_string();
            async move { Ok(Reply::text(&text)) }
        })
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let transport = arguments.next().unwrap_or_default();
    let eras = match arguments.next().as_deref() {
        None => None,
        Some("modern") => Some(Eras::Modern),
        Some("legacy") => Some(Eras::Legacy),
        Some(_) => return ExitCode::from(2),
    };
    match transport.as_str() {
        "stdio" => {
            let mut config = StdioConfig::default();
            config.server.eras = eras.unwrap_or(config.server.eras);
            run_stdio_with(tools(), config)
        }
        "http" => {
            let mut config = ServeConfig::default();
            config.http.server.eras = eras.unwrap_or(config.http.server.eras);
            run_http_with(tools(), "127.0.0.1:0", config)
        }
        _ => ExitCode::from(2),
    }
}
