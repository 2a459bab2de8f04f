//! Drives the server that its arguments name through all that a client needs from one: discover, list, call, progress,
//! cancellation, many calls at once, a kill in the middle, a restart, the end of input.
//!
//! Each check that holds prints `ok NAME`; the first one that does not ends the program with `FAILED NAME: why` and exit
//! code 1. The server offers the tools `echo`, `count`, `wait` and `cancelled` of the servers in `tests/interop`.
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::process::ExitCode;
use std::time::Duration;

use steady_stdio::client::{CallError, Client, Command, Request, Restart};

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
    let server = client.discover().await.map_err(told)?;
    check("discover", server.supported_versions.iter().any(|version| version == "2026-07-28"), || {
        format!("{server:?}")
    })?;
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
    let mut call = client.call(tool("count", r#"{"n":1000}"#).progress_buffer(1000));
    let mut seen = Vec::new();
    while let Some(report) = call.progress().await {
        seen.push(report.progress);
    }
    let counted = call.tool_result().await.map_err(told)?.text();
    check("count_answers", counted == "counted", || counted.clone())?;
    check("progress_arrives", !seen.is_empty(), String::new)?;
    check("progress_strictly_increases", seen.is_sorted_by(|a, b| a < b), || format!("{seen:?}"))?;
    check("the_last_progress_arrives", seen.last() == Some(&1000.0), || format!("{:?}", seen.last()))
}

async fn cancellation(client: &Client) -> Checked {
    let before: u32 = text(client, tool("cancelled", "{}")).await?.parse().map_err(told)?;
    for how in ["cancelled", "dropped", "timed_out"] {
        let request = tool("wait", "{}");
        let request = if how == "timed_out" { request.idle(Some(Duration::from_millis(300))) } else { request };
        let mut call = client.call(request);
        let runs = call.progress().await;
        check(&format!("{how}_mid_call"), runs.is_some(), || "it ended before it reported".to_owned())?;
        match how {
            "dropped" => drop(call),
            "cancelled" => {
                call.cancel("enough");
                let end = call.await;
                check("cancel_settles", matches!(end, Err(CallError::Cancelled { .. })), || format!("{end:?}"))?;
            }
            _ => {
                let end = call.await;
                check("timeout_settles", matches!(end, Err(CallError::IdleTimeout { .. })), || format!("{end:?}"))?;
            }
        }
    }
    // The handlers hear it in their own time; one that does not would keep this from ever ending.
    while text(client, tool("cancelled", "{}")).await?.parse::<u32>().map_err(told)? < before + 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    check("the_server_heard_all_three", true, String::new)?;
    let stats = client.stats();
    check("nothing_late_surfaced", stats.in_flight == 0, || format!("{stats:?}"))
}

async fn many(client: &Client) -> Checked {
    let calls: Vec<_> = (0..200).map(|n| client.call(tool("echo", &format!(r#"{{"text":"{n}"}}"#)))).collect();
    for (n, call) in calls.into_iter().enumerate() {
        let echoed = call.tool_result().await.map_err(told)?.text();
        check_quietly("many", echoed == n.to_string(), || format!("{n}: {echoed}"))?;
    }
    check("two_hundred_at_once", true, String::new)
}

fn check_quietly(name: &str, holds: bool, why: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(format!("{name}: {}", why())) }
}

async fn kill(client: &Client) -> Checked {
    let mut waiting: Vec<_> = (0..3).map(|_| client.call(tool("wait", "{}"))).collect();
    for call in &mut waiting {
        check_quietly("kill", call.progress().await.is_some(), || "it does not run".to_owned())?;
    }
    let pid = client.status().pid.ok_or("no process")?;
    let raw = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).ok_or("no pid")?;
    rustix::process::kill_process(raw, rustix::process::Signal::KILL).map_err(told)?;
    for call in waiting {
        let end = call.await;
        check_quietly("kill", matches!(end, Err(CallError::Unknown { .. })), || format!("{end:?}"))?;
    }
    check("kill_9_ends_all_pending_as_unknown", true, String::new)?;
    let echoed = text(client, tool("echo", r#"{"text":"again"}"#)).await?;
    check("the_next_process_serves", echoed == "again", || echoed.clone())?;
    let cancelled = text(client, tool("cancelled", "{}")).await?;
    check("nothing_was_sent_again", cancelled == "0" && client.status().restarts == 1, || cancelled.clone())
}

async fn leave(client: &Client) -> Checked {
    let status = client.shutdown().await;
    let exit = status.last_exit.as_deref().unwrap_or("nothing");
    check("leaves_at_the_end_of_its_input", exit == "ended with exit status: 0", || exit.to_owned())
}

async fn run(command: Command) -> Checked {
    let client = Client::spawn(command.restart(Restart::default())).await.map_err(told)?;
    check("comes_up", client.server().is_some(), String::new)?;
    ask(&client).await?;
    progress(&client).await?;
    cancellation(&client).await?;
    many(&client).await?;
    kill(&client).await?;
    leave(&client).await
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        println!("usage: interop SERVER [ARG...]");
        return ExitCode::from(2);
    };
    let command = Command::new(program).args(arguments);
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let run = async { tokio::time::timeout(GUARD, run(command)).await.unwrap_or_else(|_| Err("it hangs".to_owned())) };
    match runtime.block_on(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("FAILED {why}");
            ExitCode::FAILURE
        }
    }
}
