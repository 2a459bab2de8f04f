//! The server that `cargo xtask compare` sets against those of other libraries: the same tools as theirs, with our
//! defaults. It says where it serves in a line on standard error, and shuts down gracefully when it is asked to.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steady_http::steady_core::id::RequestId;
use steady_http::steady_core::rpc::{PROTOCOL_VERSION, method};
use steady_http::{
    Answer, Call, Context, Outcome, Reply, RpcError, ServeConfig, Server, Service, ToolCall, Tools, bind,
};
use tokio::sync::watch;

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

/// The tools, and listens for changes of their list.
struct Compared {
    tools: Tools,
    changes: watch::Sender<u64>,
}

#[derive(serde::Deserialize)]
struct Params {
    notifications: Filter,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Filter {
    #[serde(default)]
    tools_list_changed: bool,
}

impl Service for Compared {
    fn call(&self, call: Call, cx: Context) -> Answer {
        match &*call.method {
            method::DISCOVER => Answer::Ready(Ok(discover())),
            method::LISTEN => match call.parse::<Params>() {
                Ok(params) => Answer::later(listen(params.notifications, self.changes.subscribe(), cx)),
                Err(error) => Answer::Ready(Err(error)),
            },
            _ => self.tools.call(call, cx),
        }
    }
}

fn discover() -> String {
    serde_json::json!({
        "resultType": "complete",
        "supportedVersions": [PROTOCOL_VERSION],
        "capabilities": {"tools": {"listChanged": true}},
        "ttlMs": 60_000,
        "cacheScope": "public",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "compared", "version": "0.0.0"}},
    })
    .to_string()
}

/// Rules L1 to L4.
async fn listen(filter: Filter, mut changes: watch::Receiver<u64>, cx: Context) -> Outcome {
    let id = match cx.request_id() {
        RequestId::Integer(id) => serde_json::Value::from(*id),
        RequestId::String(id) => serde_json::Value::from(&**id),
    };
    let mut params = serde_json::json!({"_meta": {"io.modelcontextprotocol/subscriptionId": id}});
    let changed = params.to_string();
    params["notifications"] = serde_json::json!({});
    if filter.tools_list_changed {
        params["notifications"]["toolsListChanged"] = true.into();
    }
    cx.notify("notifications/subscriptions/acknowledged", &params.to_string()).await?;
    loop {
        tokio::select! {
            cancelled = cx.cancelled() => return Err(cancelled.into()),
            said = changes.changed() => said.map_err(|_| RpcError::internal("the server is gone"))?,
        }
        if filter.tools_list_changed {
            cx.notify("notifications/tools/list_changed", &changed).await?;
        }
    }
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

fn compared() -> Compared {
    let changes = watch::Sender::new(0);
    let counts: Arc<Counts> = Arc::default();
    let (told, silently, aloud) = (Arc::clone(&counts), Arc::clone(&counts), counts);
    let change = changes.clone();
    let tools =
        Tools::new("compared", "0.0.0")
            .tool("echo", "Says it again.", ANY, |call, _| async move {
                Ok(Reply::text(&call.arguments::<Arguments>()?.text))
            })
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
                change.send_modify(|changes| *changes += 1);
                async { Ok(Reply::text("changed")) }
            });
    Compared { tools, changes }
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
