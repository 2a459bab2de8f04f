//! Drives a server over HTTP through all that a client needs from one: discover, list, call, progress, cancellation, a
//! subscription, many calls at once, a kill in the middle, and a restart behind the same address.
//!
//! Each check that holds prints `ok NAME`; the first one that does not ends the program with `FAILED NAME: why` and exit
//! code 1. Who started it kills the server at the line `kill`, starts it at the line `start`, and answers each with a line.
//! The server offers the tools of the servers in `tests/compare`.
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::process::ExitCode;
use std::time::Duration;

use steady_http::client::{CallError, Client, Config, Filter, ListenEvent, Refetch, Request};

/// Nothing here takes long; a server that hangs must not hang the run.
const GUARD: Duration = Duration::from_secs(120);

type Checked<T = ()> = Result<T, String>;

/// Prints the check, or ends the run.
fn check(name: &str, holds: bool, why: impl FnOnce() -> String) -> Checked {
    check_quietly(name, holds, why)?;
    println!("ok {name}");
    Ok(())
}

fn check_quietly(name: &str, holds: bool, why: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(format!("{name}: {}", why())) }
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Has the server killed or started.
async fn demand(what: &'static str) -> Checked {
    let answered = tokio::task::spawn_blocking(move || {
        println!("{what}");
        std::io::stdin().read_line(&mut String::new())
    });
    let read = answered.await.map_err(told)?.map_err(told)?;
    if read > 0 { Ok(()) } else { Err(format!("nobody heard {what:?}")) }
}

fn tool(name: &str, arguments: &str) -> Request {
    Request::raw("tools/call", format!(r#"{{"name":"{name}","arguments":{arguments}}}"#))
}

async fn text(client: &Client, request: Request) -> Checked<String> {
    Ok(client.call(request).tool_result().await.map_err(told)?.text())
}

async fn ask(client: &Client) -> Checked {
    let server = client.discover().await.map_err(told)?;
    check("discover", server.supported_versions.iter().any(|version| version == "2026-07-28"), || {
        format!("{server:?}")
    })?;
    let tools = client.list_tools().await.map_err(told)?;
    let listed = ["echo", "count", "wait", "change"].iter().all(|name| tools.iter().any(|tool| tool.name == *name));
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

/// How many handlers were cancelled, and how many have waited for it.
async fn cancelled(client: &Client) -> Checked<(u32, u32)> {
    let said = text(client, tool("cancelled", "{}")).await?;
    let numbers = said.split_once(" of ").ok_or_else(|| said.clone())?;
    Ok((numbers.0.parse().map_err(told)?, numbers.1.parse().map_err(told)?))
}

async fn cancellation(client: &Client) -> Checked {
    let (before, _) = cancelled(client).await?;
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
    while cancelled(client).await?.0 < before + 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    check("the_server_heard_all_three", true, String::new)?;
    let stats = client.stats();
    check("nothing_late_surfaced", stats.in_flight == 0 && stats.bad_messages == 0, || format!("{stats:?}"))
}

async fn many(client: &Client) -> Checked {
    let calls: Vec<_> = (0..200).map(|n| client.call(tool("echo", &format!(r#"{{"text":"{n}"}}"#)))).collect();
    for (n, call) in calls.into_iter().enumerate() {
        let echoed = call.tool_result().await.map_err(told)?.text();
        check_quietly("many", echoed == n.to_string(), || format!("{n}: {echoed}"))?;
    }
    check("two_hundred_at_once", true, String::new)
}

/// A subscription, calls, the death of the server under both, and its next process.
async fn kill(client: &Client) -> Checked {
    let filter = Filter::parse(r#"{"toolsListChanged":true}"#).map_err(told)?;
    let mut listener = client.listen(filter).map_err(told)?;
    // Not every server holds a change back until it has acknowledged: it is asked for until it is heard.
    let heard = async {
        loop {
            tokio::select! {
                event = listener.next() => match event {
                    // Each stream begins with one.
                    ListenEvent::Gap { .. } => listener.refetched(),
                    event @ (ListenEvent::Notice(_) | ListenEvent::Ended(_)) => return event,
                },
                changed = text(client, tool("change", "{}")) => drop(changed),
            }
        }
    };
    let heard = heard.await;
    let changed =
        matches!(&heard, ListenEvent::Notice(notice) if &*notice.method == "notifications/tools/list_changed");
    check("a_subscription_tells", changed, || format!("{heard:?}"))?;
    let mut waiting: Vec<_> = (0..3).map(|_| client.call(tool("wait", "{}"))).collect();
    for call in &mut waiting {
        check_quietly("kill", call.progress().await.is_some(), || "it does not run".to_owned())?;
    }
    demand("kill").await?;
    for call in waiting {
        let end = call.await;
        check_quietly("kill", matches!(end, Err(CallError::Unknown { .. })), || format!("{end:?}"))?;
    }
    check("kill_9_ends_all_pending_as_unknown", true, String::new)?;
    let posts = client.traffic().posts;
    let lost = client.call(tool("echo", r#"{"text":"to nobody"}"#)).await;
    let unserved = matches!(lost, Err(CallError::Unknown { .. } | CallError::NeverSent { .. }));
    check("without_a_server_a_call_says_so", unserved, || format!("{lost:?}"))?;
    demand("start").await?;
    let echoed = text(client, tool("echo", r#"{"text":"again"}"#)).await?;
    check("the_next_process_serves", echoed == "again", || echoed.clone())?;
    let of_next = cancelled(client).await?;
    check("nothing_was_sent_again", of_next == (0, 0), || format!("{of_next:?} after {posts} requests"))?;
    let refetch = loop {
        match listener.next().await {
            ListenEvent::Notice(_) => {}
            event @ (ListenEvent::Gap { .. } | ListenEvent::Ended(_)) => break event,
        }
    };
    let tools = matches!(&refetch, ListenEvent::Gap { refetch } if refetch[..] == [Refetch::Tools]);
    check("the_subscription_comes_back_and_refetches", tools, || format!("{refetch:?}"))
}

async fn run(url: &str) -> Checked {
    let client = Client::connect(url, Config::default()).await.map_err(told)?;
    check("comes_up", client.server().is_some(), String::new)?;
    ask(&client).await?;
    progress(&client).await?;
    cancellation(&client).await?;
    many(&client).await?;
    kill(&client).await?;
    client.shutdown().await;
    check("shuts_down", client.stats().in_flight == 0, || format!("{:?}", client.stats()))
}

fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        println!("usage: interop URL");
        return ExitCode::from(2);
    };
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let run = async { tokio::time::timeout(GUARD, run(&url)).await.unwrap_or_else(|_| Err("it hangs".to_owned())) };
    let ended = runtime.block_on(run);
    // A thread may still wait for a line.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("FAILED {why}");
            ExitCode::FAILURE
        }
    }
}
