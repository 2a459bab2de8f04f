//! Drives a server over HTTP that speaks only the revisions before 2026-07-28 through all that a client needs from one:
//! handshake, list, call, progress, cancellation, questions, many calls at once, and the loss of its session.
//!
//! Each check that holds prints `ok NAME`; the first one that does not ends the program with `FAILED NAME: why` and exit
//! code 1. The server is one of those in `tests/interop`.
//!
//! With `cells` or `legacy` in place of the server's name it says what becomes of each cell of the interop table instead, a
//! line each: `list ok`, `call FAILED why`, `connect FAILED why`. The server has the tools of `sim/examples/eras_server.rs`;
//! `legacy` speaks the older revisions only, to servers of both eras.
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::process::ExitCode;
use std::time::Duration;

use steady_http::client::{CallError, Client, Config, Filter, ListenEvent, Refetch, Request};
use steady_http::steady_core::kernel::Eras;

/// Nothing here takes long; a server that hangs must not hang the run.
const GUARD: Duration = Duration::from_secs(120);
/// The same for one cell.
const CELL: Duration = Duration::from_secs(20);

type Checked<T = ()> = Result<T, String>;

/// Prints the check, or ends the run.
fn check(name: &str, holds: bool, why: impl FnOnce() -> String) -> Checked {
    checked(name, self::holds(holds, why))
}

fn holds(holds: bool, why: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(why()) }
}

/// Prints the check, or names it.
fn checked(name: &str, checked: Checked) -> Checked {
    checked.map_err(|why| format!("{name}: {why}"))?;
    println!("ok {name}");
    Ok(())
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn tool(name: &str, arguments: &str) -> Request {
    Request::raw("tools/call", format!(r#"{{"name":"{name}","arguments":{arguments}}}"#))
}

async fn text(client: &Client, request: Request) -> Checked<String> {
    Ok(client.call(request).tool_result().await.map_err(told)?.text())
}

/// What differs between the servers.
struct Peer {
    echo: (&'static str, &'static str),
    steps: (&'static str, &'static str, f64),
    wait: (&'static str, &'static str),
    ask: &'static str,
    /// Part of the answer to what it asked.
    answered: &'static str,
}

const SDK: Peer = Peer {
    echo: ("echo", "text"),
    steps: ("count", r#"{"n":50}"#, 50.0),
    wait: ("wait", "{}"),
    ask: "ask",
    answered: "Ada",
};

const EVERYTHING: Peer = Peer {
    echo: ("echo", "message"),
    steps: ("trigger-long-running-operation", r#"{"duration":0.2,"steps":4}"#, 4.0),
    wait: ("trigger-long-running-operation", r#"{"duration":3600,"steps":36000}"#),
    ask: "trigger-elicitation-request",
    answered: "Ada",
};

impl Peer {
    fn echo(&self, said: &str) -> Request {
        let (name, argument) = self.echo;
        tool(name, &format!(r#"{{"{argument}":"{said}"}}"#))
    }

    async fn list(&self, client: &Client) -> Checked {
        let tools = client.list_tools().await.map_err(told)?;
        let listed = [self.echo.0, self.steps.0, self.wait.0].iter().all(|name| tools.iter().any(|t| t.name == *name));
        holds(listed, || format!("{tools:?}"))
    }

    async fn call(&self, client: &Client) -> Checked {
        let echoed = text(client, self.echo("hé")).await?;
        holds(echoed.contains("hé"), || echoed.clone())
    }

    async fn progress(&self, client: &Client) -> Checked {
        let mut call = client.call(tool(self.steps.0, self.steps.1).progress_buffer(100));
        let mut seen = Vec::new();
        while let Some(report) = call.progress().await {
            seen.push(report.progress);
        }
        call.tool_result().await.map_err(told)?;
        holds(seen.is_sorted_by(|a, b| a < b) && seen.last() == Some(&self.steps.2), || format!("{seen:?}"))
    }

    async fn cancel(&self, client: &Client) -> Checked {
        let mut call = client.call(tool(self.wait.0, self.wait.1));
        let runs = call.progress().await;
        holds(runs.is_some(), || "it ended before it reported".to_owned())?;
        call.cancel("enough");
        let end = call.await;
        holds(matches!(end, Err(CallError::Cancelled { .. })), || format!("{end:?}"))
    }

    /// What the server says of the cancellations that its handlers heard.
    async fn cancelled(client: &Client) -> Checked<u64> {
        let said = text(client, tool("cancelled", "{}")).await?;
        said.split(' ').next().and_then(|count| count.parse().ok()).ok_or(said)
    }

    /// The cancellation as its handler hears it.
    async fn cancel_is_heard(&self, client: &Client) -> Checked {
        let before = Self::cancelled(client).await?;
        self.cancel(client).await?;
        while Self::cancelled(client).await? <= before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn basics(&self, client: &Client) -> Checked {
        checked("list", self.list(client).await)?;
        checked("call", self.call(client).await)?;
        checked("progress", self.progress(client).await)?;
        checked("cancel", self.cancel(client).await)
    }

    async fn question(&self, client: &Client, name: &str) -> Checked {
        let answer = |_| async { Some(r#"{"action":"accept","content":{"name":"Ada"}}"#.to_owned()) };
        let result = client.call_tool_with_input(tool(name, "{}"), answer).await.map_err(told)?;
        check(&format!("{name}_is_answered"), result.text().contains(self.answered), || result.text())
    }

    async fn many(&self, client: &Client) -> Checked {
        let calls: Vec<_> = (0..50).map(|n| client.call(self.echo(&format!("n{n}.")))).collect();
        for (n, call) in calls.into_iter().enumerate() {
            let echoed = call.tool_result().await.map_err(told)?.text();
            if !echoed.contains(&format!("n{n}.")) {
                return Err(format!("fifty_at_once: {n}: {echoed}"));
            }
        }
        check("fifty_at_once", true, String::new)
    }
}

/// What only the server of this repository can show of the SDK.
async fn sdk(client: &Client) -> Checked {
    SDK.question(client, "ask_aside").await?;
    let (mut dropped, late) =
        (client.call(tool("wait", "{}")), tool("wait", "{}").idle(Some(Duration::from_millis(200))));
    check("dropped_mid_call", dropped.progress().await.is_some(), String::new)?;
    drop(dropped);
    let late = client.call(late).await;
    check("timeout_settles", matches!(late, Err(CallError::IdleTimeout { .. })), || format!("{late:?}"))?;
    // The handlers hear it in their own time; one that does not would keep this from ever ending.
    while text(client, tool("cancelled", "{}")).await? != "3 of 3" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    check("the_server_heard_all_three", true, String::new)?;

    let filter = Filter::parse(r#"{"toolsListChanged":true}"#).map_err(told)?;
    let mut listener = client.listen(filter).map_err(told)?;
    let heard = loop {
        // The listen begins when the client's loop comes to it: it is asked for until it is heard.
        tokio::select! {
            event = listener.next() => match event {
                // Each stream begins with one.
                ListenEvent::Gap { .. } => listener.refetched(),
                event @ (ListenEvent::Notice(_) | ListenEvent::Ended(_)) => break event,
            },
            changed = text(client, tool("change", "{}")) => drop(changed?),
        }
    };
    check("a_change_is_heard", matches!(heard, ListenEvent::Notice(_)), || format!("{heard:?}"))?;

    text(client, tool("forget", "{}")).await?;
    let calls: Vec<_> = (0..20).map(|_| client.call(SDK.echo("again"))).collect();
    for call in calls {
        let echoed = call.tool_result().await.map_err(told)?.text();
        if echoed != "again" {
            return Err(format!("a_lost_session: {echoed}"));
        }
    }
    check("a_lost_session_costs_no_call", true, String::new)?;
    let handshakes = text(client, tool("handshakes", "{}")).await?;
    check("one_handshake_for_all", handshakes == "2 and 0", || handshakes.clone())?;
    let gap = loop {
        match listener.next().await {
            ListenEvent::Notice(_) => {}
            event @ (ListenEvent::Gap { .. } | ListenEvent::Ended(_)) => break event,
        }
    };
    let tools = matches!(&gap, ListenEvent::Gap { refetch } if refetch[..] == [Refetch::Tools]);
    check("the_listen_is_told_what_to_refetch", tools, || format!("{gap:?}"))
}

fn config() -> Config {
    let mut config = Config::default();
    config.calls.capabilities = r#"{"elicitation":{"form":{}}}"#.to_owned();
    config
}

async fn run(url: &str, peer: &str) -> Checked {
    let (peer, is_sdk) = match peer {
        "cells" => return cells(url, Config::default()).await,
        "legacy" => {
            let mut config = Config::default();
            config.calls.eras = Eras::Legacy;
            return cells(url, config).await;
        }
        "sdk" => (&SDK, true),
        "everything" => (&EVERYTHING, false),
        other => return Err(format!("no such server: {other}")),
    };
    let client = Client::connect(url, config()).await.map_err(told)?;
    check("comes_up", client.server().is_some(), String::new)?;
    peer.basics(&client).await?;
    peer.question(&client, peer.ask).await?;
    peer.many(&client).await?;
    if is_sdk {
        sdk(&client).await?;
    }
    let stats = client.stats();
    check("nothing_bad_was_heard", stats.in_flight == 0 && stats.bad_messages == 0, || format!("{stats:?}"))?;
    client.shutdown().await;
    if is_sdk {
        let next = Client::connect(url, config()).await.map_err(told)?;
        let ended = text(&next, tool("handshakes", "{}")).await?;
        check("its_session_was_ended", ended == "3 and 1", || ended.clone())?;
        next.shutdown().await;
    }
    Ok(())
}

async fn cell(name: &str, run: impl Future<Output = Checked>) {
    match tokio::time::timeout(CELL, run).await.unwrap_or_else(|_| Err("it hangs".to_owned())) {
        Ok(()) => println!("{name} ok"),
        Err(why) => println!("{name} FAILED {}", why.replace('\n', " ")),
    }
}

/// One row of the table.
async fn cells(url: &str, config: Config) -> Checked {
    let client = match Client::connect(url, config).await {
        Ok(client) => client,
        Err(error) => {
            println!("connect FAILED {}", error.to_string().replace('\n', " "));
            return Ok(());
        }
    };
    cell("list", SDK.list(&client)).await;
    cell("call", SDK.call(&client)).await;
    cell("progress", SDK.progress(&client)).await;
    cell("cancel", SDK.cancel_is_heard(&client)).await;
    client.shutdown().await;
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(peer)) = (arguments.next(), arguments.next()) else {
        println!("usage: interop_older URL sdk|everything|cells|legacy");
        return ExitCode::from(2);
    };
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let run =
        async { tokio::time::timeout(GUARD, run(&url, &peer)).await.unwrap_or_else(|_| Err("it hangs".to_owned())) };
    match runtime.block_on(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("FAILED {why}");
            ExitCode::FAILURE
        }
    }
}
