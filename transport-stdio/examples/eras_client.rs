//! Our client against a server of any revision: what becomes of each cell of the interop table.
//!
//! usage: `eras_client KIND SERVER [ARG...]`. KIND is `tools` for a server with the tools of `sim/examples/eras_server.rs`,
//! `everything` for the reference server of the older revisions. Each line says what became of one cell: `list ok`,
//! `call FAILED why`. A client that does not come up says `connect FAILED why`.
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::process::ExitCode;
use std::time::Duration;

use steady_stdio::client::{CallError, Client, Command, Request};

/// Nothing here takes long; a server that hangs must not hang the run.
const GUARD: Duration = Duration::from_secs(20);

type Checked = Result<(), String>;

/// What the server's tools are called, with arguments, and what they answer.
struct Kind {
    echo: (&'static str, &'static str, &'static str),
    /// Reports up to 5, and answers with this in its text.
    count: (&'static str, &'static str, &'static str),
    /// Reports, and does not end soon.
    wait: (&'static str, &'static str),
    /// Tells how many were cancelled, if the server knows.
    cancelled: Option<&'static str>,
}

const TOOLS: Kind = Kind {
    echo: ("echo", r#"{"text":"h\u00e9 \"quoted\""}"#, "hé \"quoted\""),
    count: ("count", r#"{"n":5}"#, "counted"),
    wait: ("wait", "{}"),
    cancelled: Some("cancelled"),
};
const EVERYTHING: Kind = Kind {
    echo: ("echo", r#"{"message":"h\u00e9 \"quoted\""}"#, "hé \"quoted\""),
    count: ("trigger-long-running-operation", r#"{"duration":0.1,"steps":5}"#, "completed"),
    wait: ("trigger-long-running-operation", r#"{"duration":1000,"steps":20000}"#),
    cancelled: None,
};

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn tool(name: &str, arguments: &str) -> Request {
    Request::raw("tools/call", format!(r#"{{"name":"{name}","arguments":{arguments}}}"#))
}

fn holds(holds: bool, why: String) -> Checked {
    if holds { Ok(()) } else { Err(why) }
}

async fn list(client: &Client, kind: &Kind) -> Checked {
    let tools = client.list_tools().await.map_err(told)?;
    holds(tools.iter().any(|tool| tool.name == kind.echo.0), format!("got {tools:?}"))
}

async fn call(client: &Client, kind: &Kind) -> Checked {
    let (name, arguments, expected) = kind.echo;
    let said = client.call(tool(name, arguments)).tool_result().await.map_err(told)?.text();
    holds(said.ends_with(expected), said)
}

async fn progress(client: &Client, kind: &Kind) -> Checked {
    let (name, arguments, expected) = kind.count;
    let mut call = client.call(tool(name, arguments).progress_buffer(5));
    let mut seen = Vec::new();
    while let Some(report) = call.progress().await {
        seen.push(report.progress);
    }
    let said = call.tool_result().await.map_err(told)?.text();
    // Of reports that come at once the newest is shown.
    let rises = seen.is_sorted_by(|a, b| a < b) && seen.last() == Some(&5.0);
    holds(said.contains(expected) && rises, format!("{said}, progress {seen:?}"))
}

async fn cancel(client: &Client, kind: &Kind) -> Checked {
    let count = async |name: &str| {
        let text = client.call(tool(name, "{}")).tool_result().await.map_err(told)?.text();
        text.parse::<u64>().map_err(told)
    };
    let before = if let Some(name) = kind.cancelled { count(name).await? } else { 0 };
    let mut waits = client.call(tool(kind.wait.0, kind.wait.1));
    if waits.progress().await.is_none() {
        return Err(format!("it ended before it was cancelled: {:?}", waits.await));
    }
    waits.cancel("enough");
    let end = waits.await;
    holds(matches!(end, Err(CallError::Cancelled { .. })), format!("{end:?}"))?;
    if let Some(name) = kind.cancelled {
        while count(name).await? <= before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    // One that cannot tell is served all the same.
    call(client, kind).await
}

async fn cell(name: &str, run: impl Future<Output = Checked>) {
    match tokio::time::timeout(GUARD, run).await.unwrap_or_else(|_| Err("it hangs".to_owned())) {
        Ok(()) => println!("{name} ok"),
        Err(why) => println!("{name} FAILED {}", why.replace('\n', " ")),
    }
}

async fn run(kind: &Kind, command: Command) {
    let client = match Client::spawn(command).await {
        Ok(client) => client,
        Err(error) => return println!("connect FAILED {}", error.to_string().replace('\n', " ")),
    };
    cell("list", list(&client, kind)).await;
    cell("call", call(&client, kind)).await;
    cell("progress", progress(&client, kind)).await;
    cell("cancel", cancel(&client, kind)).await;
    client.shutdown().await;
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let kind = match arguments.next().as_deref() {
        Some("tools") => TOOLS,
        Some("everything") => EVERYTHING,
        Some(_) | None => return ExitCode::from(2),
    };
    let Some(program) = arguments.next() else { return ExitCode::from(2) };
    let command = Command::new(program).args(arguments);
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    runtime.block_on(run(&kind, command));
    ExitCode::SUCCESS
}
