//! Drives the server at a URL through all that a client needs from one: discover, list, call, progress, cancellation, many
//! calls at once. `interop URL`.
//!
//! Each check that holds prints `ok NAME`; the first one that does not ends the program with `FAILED NAME: why` and exit
//! code 1. The server offers the tools `echo`, `count`, `wait` and `cancelled`.
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::process::ExitCode;
use std::time::Duration;

use steady_http::client::{CallError, Client, Config, Request};

/// Nothing here takes long; a server that hangs must not hang the run.
const GUARD: Duration = Duration::from_secs(120);

type Checked = Result<(), String>;

/// Prints the check, or ends the run.
fn check(name: &str, holds: bool, why: impl FnOnce() -> String) -> Checked {
    if !holds {
        return Err(format!("{name}: {}", why()));
    }
    println!("ok {name}");
    Ok(())
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn tool(name: &str, arguments: &str) -> Request {
    Request::raw("tools/call", format!(r#"{{"name":"{name}","arguments":{arguments}}}"#))
}

async fn text(client: &Client, request: Request) -> Result<String, String> {
    Ok(client.call(request).tool_result().await.map_err(told)?.text())
}

async fn ask(client: &Client) -> Checked {
    let tools = client.list_tools().await.map_err(told)?;
    let listed = ["echo", "count", "wait", "cancelled"].iter().all(|name| tools.iter().any(|tool| tool.name == *name));
    check("list", listed, || format!("{tools:?}"))?;
    let echoed = text(client, tool("echo", r#"{"text":"h\u00e9 \"quoted\"\nline"}"#)).await?;
    check("call", echoed == "hé \"quoted\"\nline", || echoed.clone())?;
    let unknown = client.call(tool("no such tool", "{}")).tool_result().await;
    // Some servers answer an unknown tool with an error, some with a result that is one.
    let refused = matches!(&unknown, Err(CallError::Peer(_))) || matches!(&unknown, Ok(result) if result.is_error);
    check("unknown_tool", refused, || format!("{unknown:?}"))
}

async fn progress(client: &Client) -> Checked {
    let mut call = client.call(tool("count", r#"{"n":100}"#).progress_buffer(1000));
    let mut seen = Vec::new();
    while let Some(report) = call.progress().await {
        seen.push(report.progress);
    }
    let increasing = seen.windows(2).all(|pair| pair[0] < pair[1]);
    check("progress", increasing && seen.last() == Some(&100.0), || format!("{seen:?}"))?;
    let counted = call.tool_result().await.map_err(told)?.text();
    check("progress_then_answer", counted == "counted", || counted.clone())
}

async fn cancellation(client: &Client) -> Checked {
    let before = client.traffic().posts;
    let mut call = client.call(tool("wait", "{}"));
    call.progress().await.ok_or("cancellation: it does not run")?;
    call.cancel("enough");
    let ended = call.await;
    check("cancelled_here", matches!(ended, Err(CallError::Cancelled { .. })), || format!("{ended:?}"))?;
    check("no_post", client.traffic().posts == before + 1, || "the cancellation was a POST".to_owned())?;
    loop {
        // Its handler learns it in its own time.
        if text(client, tool("cancelled", "{}")).await? == "1" {
            return check("cancelled_there", true, String::new);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn many(client: &Client) -> Checked {
    let calls: Vec<_> = (0..100).map(|n| client.call(tool("echo", &format!(r#"{{"text":"{n}"}}"#)))).collect();
    for (n, call) in calls.into_iter().enumerate() {
        let echoed = call.tool_result().await.map_err(told)?.text();
        if echoed != n.to_string() {
            return Err(format!("many: {n} became {echoed}"));
        }
    }
    let stats = client.stats();
    check("many", stats.in_flight == 0 && stats.bad_messages == 0, || format!("{stats:?}"))
}

async fn drive(url: &str) -> Checked {
    let client = Client::connect(url, Config::default()).await.map_err(told)?;
    let server = client.server().ok_or("discover: it was not asked")?;
    check("discover", server.supported_versions.iter().any(|version| version == "2026-07-28"), || {
        format!("{server:?}")
    })?;
    ask(&client).await?;
    progress(&client).await?;
    cancellation(&client).await?;
    many(&client).await?;
    client.shutdown().await;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else { panic!("interop URL") };
    let driven = tokio::time::timeout(GUARD, drive(&url)).await;
    match driven.unwrap_or_else(|_| Err("the server hangs".to_owned())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("FAILED {why}");
            ExitCode::FAILURE
        }
    }
}
