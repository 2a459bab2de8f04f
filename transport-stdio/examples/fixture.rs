//! The server that the tests of this crate talk to: one tool for each way a handler can behave.

use std::process::ExitCode;
use std::time::Duration;

use steady_stdio::{
    Contents, Context, Hub, Reply, Resource, ResourceRead, Resources, RpcError, ServerConfig, Shutdown, Signals,
    StdioConfig, ToolCall, Tools, run_stdio_with,
};

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

/// Blocks the thread that serves the connection.
async fn hog(call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    cx.report(1.0, None, "hogging");
    cx.checkpoint().await?;
    block(call, cx)
}

/// Answers once the server was asked to end, and not before.
async fn finish(shutdown: Shutdown, cx: Context) -> Result<Reply, RpcError> {
    cx.report(1.0, None, "finishing");
    while !shutdown.is_draining() {
        cx.sleep_until(cx.now() + Duration::from_millis(5)).await?;
    }
    cx.sleep_until(cx.now() + Duration::from_millis(100)).await?;
    Ok(Reply::text("finished"))
}

/// A result of so many bytes.
async fn big(call: ToolCall, _cx: Context) -> Result<Reply, RpcError> {
    Ok(Reply::text(&"x".repeat(call.arguments::<Arguments>()?.to as usize)))
}

/// Answers, and goes on reporting from a task of its own that nobody stops.
async fn after(_call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    cx.report(1.0, None, "before");
    let task = cx.clone();
    tokio::spawn(async move {
        for n in 2u32.. {
            task.report(n.into(), None, "after");
            tokio::task::yield_now().await;
        }
    });
    Ok(Reply::text("answered"))
}

/// Goes on reporting after its cancellation, on both ways, until it is dropped.
async fn deaf(_call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    for n in 1u32.. {
        cx.report(n.into(), None, "deaf");
        let _over = cx.report_all((n * 2).into(), None, "deaf").await;
        tokio::task::yield_now().await;
    }
    Ok(Reply::text("never"))
}

/// Reports a million times, 200 bytes each, and says on standard error when it is through.
#[expect(clippy::print_stderr, reason = "the test listens there while it does not read the answers")]
async fn million(_call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    let text = "x".repeat(200);
    for n in 1..=1_000_000u32 {
        cx.report(n.into(), Some(1e6), &text);
        if n % 1000 == 0 {
            cx.checkpoint().await?;
        }
    }
    eprintln!("through");
    Ok(Reply::text("a million"))
}

/// Prints, as a library might, in this process and in a child of it.
#[expect(clippy::print_stdout, reason = "that is what is tested")]
async fn print(_call: ToolCall, _cx: Context) -> Result<Reply, RpcError> {
    println!("printed by the handler");
    print!("half a line,");
    let child = std::process::Command::new("sh").args(["-c", "echo printed by a child"]).status();
    Ok(Reply::text(if child.is_ok() { "printed" } else { "no shell" }))
}

/// Starts a child that reads the standard input that it inherits to its end, and tells how much that was.
async fn cat(_call: ToolCall, _cx: Context) -> Result<Reply, RpcError> {
    let read = std::process::Command::new("cat").stdin(std::process::Stdio::inherit()).output();
    let read = read.map_err(|error| RpcError::internal(error.to_string()))?;
    Ok(Reply::text(&format!("{} bytes", read.stdout.len())))
}

/// Publishes, again and again.
fn publish(call: &ToolCall, hub: &Hub) -> Result<Reply, RpcError> {
    let Arguments { to, text } = call.arguments()?;
    for _ in 0..to {
        hub.tools_changed();
        hub.resource_updated("x:a");
        if text == "x:b" {
            hub.resource_updated(&text);
        }
    }
    Ok(Reply::text(&format!("{:?}", hub.counters())))
}

/// A resource for each letter.
async fn letter(read: ResourceRead, _cx: Context) -> Result<Option<Contents>, RpcError> {
    let name = read.variable("name");
    Ok((name.len() == 1).then(|| Contents::text("text/plain", name)))
}

/// What the tests choose by arguments.
fn config(shutdown: &Shutdown) -> StdioConfig {
    let mut server = ServerConfig { shutdown: shutdown.clone(), ..ServerConfig::default() };
    server.requests.in_flight = 8;
    server.max_result = 1 << 20;
    let mut config = StdioConfig { max_message: 4096, server, ..StdioConfig::default() };
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "patient" => config.server.shutdown_limit = Duration::from_secs(3600),
            "clean-up" => {
                let no_time = Duration::from_millis(1);
                (config.server.shutdown_limit, config.server.drain, config.server.flush) = (no_time, no_time, no_time);
            }
            "two-listens" => config.server.requests.listens = 2,
            "endless" => config.server.drain = Duration::MAX,
            "no-signals" => config.signals = Signals::Ignore,
            "interrupt" => config.signals = Signals::TerminateAndInterrupt,
            "unlimited" => config.server.requests.progress_interval = Duration::ZERO,
            "no-guard" => config.guard_stdout = false,
            other => panic!("no such choice: {other}"),
        }
    }
    config
}

fn main() -> ExitCode {
    let shutdown = Shutdown::new();
    let config = config(&shutdown);
    let hub = Hub::new();
    let publisher = hub.clone();
    let tools = Tools::new("fixture", "0.0.0")
        .tool("echo", "Says it again.", ANY, echo)
        .tool("wait", "Waits for its cancellation.", ANY, wait)
        .tool("ignore", "Ignores its cancellation.", ANY, ignore)
        .tool("count", "Counts.", ANY, count)
        .tool("flood", "Reports without end.", ANY, flood)
        .tool("stutter", "Reports twice, then waits.", ANY, stutter)
        .tool("panics", "Panics.", ANY, panics)
        .tool("big", "Answers much.", ANY, big)
        .tool("after", "Reports after its answer.", ANY, after)
        .tool("deaf", "Reports after its cancellation.", ANY, deaf)
        .tool("million", "Reports a million times.", ANY, million)
        .tool("hog", "Blocks the connection.", ANY, hog)
        .tool("finish", "Waits for the shutdown.", ANY, move |_, cx| finish(shutdown.clone(), cx))
        .tool("cat", "Reads.", ANY, cat)
        .tool("print", "Prints.", ANY, print)
        .tool(
            "publish",
            "Says `to` times that tools and x:a have changed, and x:b if that is the text.",
            ANY,
            move |call, _| {
                let published = publish(&call, &publisher);
                async { published }
            },
        )
        .blocking_tool("block", "Blocks.", ANY, block)
        .resources(Resources::new().resource(Resource::new("x:{name}", "letters"), letter))
        .subscriptions(&hub);
    let code = run_stdio_with(tools, config);
    if std::env::args().any(|argument| argument == "clean-up") {
        std::thread::sleep(Duration::from_secs(1));
    }
    code
}
