//! Drives the inventory server with rmcp's client, at revision 2026-07-28.
//!
//! The arguments are the command line of the server over stdio, or where it serves over HTTP. Each check that holds prints
//! `ok NAME`; the first one that does not prints `FAILED NAME: why` and the exit code is 1. Over HTTP, who started this kills
//! the server at the line `kill`, starts it at the line `start`, and answers each with a line.

use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ProgressNotificationParam, ProgressToken,
    ProtocolVersion, ServerResult,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, NotificationContext, PeerRequestOptions, RequestHandle, RunningService,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{RoleClient, ServiceError};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

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

/// Keeps every progress that arrives.
struct Watch(UnboundedSender<(ProgressToken, f64)>);

impl ClientHandler for Watch {
    async fn on_progress(&self, report: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let _nobody_listens = self.0.send((report.progress_token, report.progress));
    }
}

/// A server, if it is a child, and the client that drives it.
struct Session {
    child: Option<Child>,
    client: RunningService<RoleClient, Watch>,
    progress: UnboundedReceiver<(ProgressToken, f64)>,
}

impl Session {
    async fn start(command: &[String]) -> Checked<Self> {
        let mut server = Command::new(&command[0]);
        let server = server.args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = server.spawn().map_err(told)?;
        let pipes = (child.stdout.take().ok_or("no stdout")?, child.stdin.take().ok_or("no stdin")?);
        let (sender, progress) = unbounded_channel();
        let client = Watch(sender).serve_with_lifecycle(pipes, discover()).await.map_err(told)?;
        Ok(Self { child: Some(child), client, progress })
    }

    async fn connect(url: &str) -> Checked<Self> {
        let (sender, progress) = unbounded_channel();
        let transport = StreamableHttpClientTransport::from_uri(url);
        let client = Watch(sender).serve_with_lifecycle(transport, discover()).await.map_err(told)?;
        Ok(Self { child: None, client, progress })
    }

    /// Sends a call of a tool. Its answer is awaited elsewhere.
    async fn send(&self, tool: &'static str, arguments: Value) -> Checked<RequestHandle<RoleClient>> {
        let params =
            CallToolRequestParams::new(tool).with_arguments(arguments.as_object().cloned().unwrap_or_default());
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        self.client.peer().send_cancellable_request(request, PeerRequestOptions::no_options()).await.map_err(told)
    }

    async fn call(&self, tool: &'static str, arguments: Value) -> Checked<CallToolResult> {
        settled(self.send(tool, arguments).await?.await_response().await)
    }

    async fn count(&self, to: u32) -> Checked<RequestHandle<RoleClient>> {
        self.send("slow_count", json!({"to": to, "interval_ms": 20})).await
    }

    /// The next progress of this call.
    async fn progress_of(&mut self, token: &ProgressToken) -> Checked<f64> {
        loop {
            let (of, value) = self.progress.recv().await.ok_or("the client is gone")?;
            if of == *token {
                return Ok(value);
            }
        }
    }

    /// Ends the input of the server; how it exits.
    async fn end(mut self) -> Checked<ExitStatus> {
        self.client.close().await.map_err(told)?;
        self.child.ok_or("no child")?.wait().await.map_err(told)
    }
}

fn discover() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

fn settled(answer: Result<ServerResult, ServiceError>) -> Checked<CallToolResult> {
    match answer.map_err(told)? {
        ServerResult::CallToolResult(result) => Ok(result),
        other => Err(format!("no tool result: {other:?}")),
    }
}

fn text(result: &CallToolResult) -> String {
    result.content.iter().filter_map(|block| block.as_text()).map(|block| block.text.as_str()).collect()
}

async fn reserve(session: &Session, key: &str) -> Checked<String> {
    let arguments = json!({"sku": "widget", "quantity": 1, "tenant": "acme", "idempotencyKey": key});
    let result = session.call("reserve_inventory", arguments).await?;
    let id = result.structured_content.as_ref().and_then(|content| content["reservationId"].as_str().map(String::from));
    id.filter(|_| result.is_error != Some(true)).ok_or_else(|| format!("reserve_inventory: {result:?}"))
}

async fn ask(session: &Session) -> Checked<String> {
    let server = session.client.peer().peer_info().ok_or("discover: nothing is known of the server")?;
    check("discover", server.protocol_version == ProtocolVersion::V_2026_07_28, || format!("{server:?}"))?;
    let tools = session.client.peer().list_all_tools().await.map_err(told)?;
    let listed = ["reserve_inventory", "slow_count"].iter().all(|name| tools.iter().any(|tool| tool.name == *name));
    check("list", listed, || format!("{tools:?}"))?;
    let one = reserve(session, "order-7").await?;
    let two = reserve(session, "order-7").await?;
    check("same_key_same_reservation", one == two, || format!("{one} then {two}"))?;
    let other = reserve(session, "order-8").await?;
    check("other_key_other_reservation", one != other, || format!("both {one}"))?;
    let refused = session.call("no such tool", json!({})).await;
    check("unknown_tool", refused.as_ref().is_err_and(|why| why.contains("-32602")), || format!("{refused:?}"))?;
    Ok(one)
}

async fn progress(session: &mut Session) -> Checked {
    let call = session.count(5).await?;
    let token = call.progress_token.clone();
    let result = settled(call.await_response().await)?;
    check("slow_count_answers", text(&result) == "counted to 5", || format!("{result:?}"))?;
    let mut seen = vec![session.progress_of(&token).await?];
    while let Ok((of, value)) = session.progress.try_recv() {
        seen.extend((of == token).then_some(value));
    }
    check("progress_strictly_increases", seen.is_sorted_by(|a, b| a < b), || format!("{seen:?}"))
}

async fn cancellation(session: &mut Session) -> Checked {
    let call = session.count(1000).await?;
    let token = call.progress_token.clone();
    let mut last = session.progress_of(&token).await?;
    call.cancel(Some("enough".to_owned())).await.map_err(told)?;
    // The server has read the cancellation once it answers what was sent after it.
    session.call("slow_count", json!({"to": 1, "interval_ms": 0})).await?;
    while let Ok((of, value)) = session.progress.try_recv() {
        last = if of == token { value } else { last };
    }
    check("cancelled_mid_call", last < 1000.0, || format!("it ran to {last}"))?;
    let next = session.count(10).await?;
    settled(next.await_response().await)?;
    tokio::task::yield_now().await;
    let mut late = Vec::new();
    while let Ok((of, value)) = session.progress.try_recv() {
        late.extend((of == token).then_some(value));
    }
    check("nothing_follows_the_cancellation", late.is_empty(), || format!("{late:?}"))
}

async fn many(session: &Session) -> Checked {
    let mut calls = Vec::new();
    for n in 1..=200 {
        calls.push(session.send("slow_count", json!({"to": n, "interval_ms": 0})).await?);
    }
    for (call, n) in calls.into_iter().zip(1..) {
        let result = settled(call.await_response().await)?;
        let own = text(&result) == format!("counted to {n}");
        if !own {
            return Err(format!("many: {n} got {result:?}"));
        }
    }
    check("two_hundred_at_once", true, String::new)
}

async fn kill(mut session: Session) -> Checked {
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let call = session.count(1000).await?;
        session.progress_of(&call.progress_token.clone()).await?;
        waiting.push(call);
    }
    let Some(mut child) = session.child.take() else {
        demand("kill").await?;
        for call in waiting {
            let end = call.await_response().await;
            check_quietly("kill", end.is_err(), || format!("{end:?}"))?;
        }
        return check("kill_9_fails_every_pending_call", true, String::new);
    };
    child.start_kill().map_err(told)?;
    for call in waiting {
        let end = call.await_response().await;
        let gone = matches!(end, Err(ServiceError::TransportClosed | ServiceError::TransportSend(_)));
        check_quietly("kill", gone, || format!("{end:?}"))?;
    }
    let status = child.wait().await.map_err(told)?;
    check("kill_9_fails_every_pending_call", !status.success(), || status.to_string())
}

/// Has the server killed or started.
async fn demand(what: &str) -> Checked {
    println!("{what}");
    let mut line = String::new();
    let read = BufReader::new(tokio::io::stdin()).read_line(&mut line).await.map_err(told)?;
    if read > 0 { Ok(()) } else { Err(format!("nobody heard {what:?}")) }
}

async fn checked(mut session: Session) -> Checked<String> {
    let reservation = ask(&session).await?;
    progress(&mut session).await?;
    cancellation(&mut session).await?;
    many(&session).await?;
    kill(session).await?;
    Ok(reservation)
}

async fn run_http(url: &str) -> Checked {
    let reservation = checked(Session::connect(url).await?).await?;
    demand("start").await?;
    let session = Session::connect(url).await?;
    let again = reserve(&session, "order-7").await?;
    check("the_next_process_knows_the_key", again == reservation, || format!("{reservation} then {again}"))?;
    println!("reservation {reservation}");
    Ok(())
}

async fn run(command: &[String]) -> Checked {
    if command[0].starts_with("http://") {
        return run_http(&command[0]).await;
    }
    let reservation = checked(Session::start(command).await?).await?;
    let session = Session::start(command).await?;
    let again = reserve(&session, "order-7").await?;
    check("the_next_process_knows_the_key", again == reservation, || format!("{reservation} then {again}"))?;
    let status = session.end().await?;
    check("leaves_at_the_end_of_its_input", status.code() == Some(0), || status.to_string())?;
    println!("reservation {reservation}");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let command: Vec<String> = std::env::args().skip(1).collect();
    if command.is_empty() {
        println!("usage: rmcp-client SERVER [ARG...] | rmcp-client URL");
        return ExitCode::from(2);
    }
    match tokio::time::timeout(GUARD, run(&command)).await.unwrap_or_else(|_| Err("it hangs".to_owned())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("FAILED {why}");
            ExitCode::FAILURE
        }
    }
}
