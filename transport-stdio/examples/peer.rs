//! The server that the client's tests talk to: tools that misbehave, and one that tells what the others saw.

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use steady_stdio::{Context, Reply, RpcError, ServerConfig, StdioConfig, ToolCall, Tools, run_stdio_with};

const ANY: &str = r#"{"type":"object"}"#;

/// How many handlers started, and how many were cancelled.
static STARTED: AtomicU32 = AtomicU32::new(0);
static CANCELLED: AtomicU32 = AtomicU32::new(0);

#[derive(serde::Deserialize)]
struct Arguments {
    #[serde(default)]
    text: String,
    #[serde(default)]
    n: u32,
}

/// Answers at once.
async fn echo(call: ToolCall, _cx: Context) -> Result<Reply, RpcError> {
    Ok(Reply::text(&call.arguments::<Arguments>()?.text))
}

/// Reports once, then waits until it is told to stop.
async fn wait(_call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    STARTED.fetch_add(1, Ordering::SeqCst);
    cx.report(1.0, None, "waiting");
    let cancelled = cx.cancelled().await;
    CANCELLED.fetch_add(1, Ordering::SeqCst);
    Err(cancelled.into())
}

/// Tells how many waited, how many of them were cancelled, and who it is.
async fn seen(_call: ToolCall, _cx: Context) -> Result<Reply, RpcError> {
    let (started, cancelled) = (STARTED.load(Ordering::SeqCst), CANCELLED.load(Ordering::SeqCst));
    Ok(Reply::text(&format!("{started} started, {cancelled} cancelled, pid {}", std::process::id())))
}

/// Reports each number, without loss.
async fn count(call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    let Arguments { n, .. } = call.arguments()?;
    for step in 1..=n {
        cx.report_all(step.into(), Some(n.into()), "").await?;
    }
    Ok(Reply::text("counted"))
}

/// Answers with so many bytes.
async fn big(call: ToolCall, _cx: Context) -> Result<Reply, RpcError> {
    Ok(Reply::text(&"x".repeat(call.arguments::<Arguments>()?.n as usize)))
}

/// Says something and ends the process with this code.
async fn exit(call: ToolCall, _cx: Context) -> Result<Reply, RpcError> {
    let Arguments { n, text } = call.arguments()?;
    let _nobody_reads = writeln!(std::io::stderr(), "{text}");
    std::process::exit(i32::try_from(n).unwrap_or(1));
}

/// Says something and is killed.
async fn die(call: ToolCall, _cx: Context) -> Result<Reply, RpcError> {
    let _nobody_reads = writeln!(std::io::stderr(), "{}", call.arguments::<Arguments>()?.text);
    let _dead = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::future::pending().await
}

/// Starts a process that outlives it, without any of its pipes, and tells its pid.
async fn grandchild(_call: ToolCall, _cx: Context) -> Result<Reply, RpcError> {
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(|error| RpcError::internal(error.to_string()))?;
    Ok(Reply::text(&child.id().to_string()))
}

/// Starts a process with a group of its own, moves into that group, and tells the pid of the process.
#[cfg(unix)]
async fn leave_group(_call: ToolCall, _cx: Context) -> Result<Reply, RpcError> {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let child = command.spawn().map_err(|error| RpcError::internal(error.to_string()))?;
    let group = rustix::process::Pid::from_child(&child);
    rustix::process::setpgid(None, Some(group)).map_err(|error| RpcError::internal(error.to_string()))?;
    Ok(Reply::text(&child.id().to_string()))
}

fn main() -> ExitCode {
    let tools = Tools::new("peer", "0.0.0")
        .tool("echo", "Says it again.", ANY, echo)
        .tool("wait", "Waits for its cancellation.", ANY, wait)
        .tool("seen", "Tells what happened to those who wait.", ANY, seen)
        .tool("count", "Counts.", ANY, count)
        .tool("big", "Answers with much.", ANY, big)
        .tool("exit", "Ends the process.", ANY, exit)
        .tool("die", "Is killed.", ANY, die)
        .tool("grandchild", "Leaves a process behind.", ANY, grandchild);
    #[cfg(unix)]
    let tools = tools.tool("leave_group", "Moves to another process group.", ANY, leave_group);
    let mut server = ServerConfig::default();
    server.requests.in_flight = 1024;
    server.outbound.kept_bytes = 256 << 20;
    // More than a client reads by default, whose limit is what is tested.
    server.max_result = 128 << 20;
    run_stdio_with(tools, StdioConfig { max_message: 32 << 20, server, ..StdioConfig::default() })
}
