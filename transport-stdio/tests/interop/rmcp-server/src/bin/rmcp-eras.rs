//! rmcp's client against a server, in one of its lifecycles: what becomes of each cell of the interop table.
//!
//! The arguments are `initialize` (rmcp's default), `discover` or `auto`, and the command line of a server over stdio, or
//! where it serves over HTTP. It has the tools of sim/examples/eras_server.rs. Each line says what became of one cell:
//! `revision NAME`, `list ok`, `call FAILED why`. A client that does not connect says `connect FAILED why`.

use std::process::Stdio;
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
use tokio::process::Command;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// Nothing here takes long; a server that hangs must not hang the run.
const GUARD: Duration = Duration::from_secs(20);

type Checked<T = ()> = Result<T, String>;

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

struct Session {
    client: RunningService<RoleClient, Watch>,
    progress: UnboundedReceiver<(ProgressToken, f64)>,
}

impl Session {
    async fn send(&self, tool: &'static str, arguments: Value) -> Checked<RequestHandle<RoleClient>> {
        let params =
            CallToolRequestParams::new(tool).with_arguments(arguments.as_object().cloned().unwrap_or_default());
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        self.client.peer().send_cancellable_request(request, PeerRequestOptions::no_options()).await.map_err(told)
    }

    async fn call(&self, tool: &'static str, arguments: Value) -> Checked<String> {
        Ok(text(&settled(self.send(tool, arguments).await?.await_response().await)?))
    }

    async fn progress_of(&mut self, token: &ProgressToken) -> Checked<f64> {
        loop {
            let (of, value) = self.progress.recv().await.ok_or("the client is gone")?;
            if of == *token {
                return Ok(value);
            }
        }
    }

    async fn list(&self) -> Checked {
        let tools = self.client.peer().list_all_tools().await.map_err(told)?;
        if tools.iter().any(|tool| tool.name == "echo") { Ok(()) } else { Err(format!("got {tools:?}")) }
    }

    async fn echo(&self) -> Checked {
        let said = self.call("echo", json!({"text": "hé \"quoted\""})).await?;
        if said == "hé \"quoted\"" { Ok(()) } else { Err(said) }
    }

    async fn count(&mut self) -> Checked {
        let call = self.send("count", json!({"n": 5})).await?;
        let token = call.progress_token.clone();
        let said = text(&settled(call.await_response().await)?);
        let mut seen = Vec::new();
        // Handlers of notifications run in any order here, and after the answer too.
        while seen.len() < 5 {
            seen.push(self.progress_of(&token).await?);
        }
        seen.sort_by(f64::total_cmp);
        let all = said == "counted" && seen == [1.0, 2.0, 3.0, 4.0, 5.0];
        if all { Ok(()) } else { Err(format!("{said}, progress {seen:?}")) }
    }

    async fn cancel(&mut self) -> Checked {
        let before = self.cancelled().await?;
        let call = self.send("wait", json!({})).await?;
        self.progress_of(&call.progress_token.clone()).await?;
        call.cancel(Some("enough".to_owned())).await.map_err(told)?;
        while self.cancelled().await? <= before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn cancelled(&self) -> Checked<u64> {
        self.call("cancelled", json!({})).await?.parse().map_err(told)
    }
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

async fn cell(name: &str, run: impl Future<Output = Checked>) {
    match timeout(GUARD, run).await.unwrap_or_else(|_| Err("it hangs".to_owned())) {
        Ok(()) => println!("{name} ok"),
        Err(why) => println!("{name} FAILED {}", why.replace('\n', " ")),
    }
}

async fn connect(lifecycle: &str, target: &[String]) -> Checked<Session> {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = match lifecycle {
        "initialize" => ClientLifecycleMode::Initialize,
        "discover" => ClientLifecycleMode::Discover { preferred_versions },
        "auto" => ClientLifecycleMode::Auto { preferred_versions, legacy_version: None },
        other => return Err(format!("no lifecycle {other}")),
    };
    let (sender, progress) = unbounded_channel();
    let client = if target[0].starts_with("http://") {
        let transport = StreamableHttpClientTransport::from_uri(target[0].as_str());
        Watch(sender).serve_with_lifecycle(transport, lifecycle).await.map_err(told)?
    } else {
        let mut server = Command::new(&target[0]);
        let mut child = server.args(&target[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(told)?;
        let pipes = (child.stdout.take().ok_or("no stdout")?, child.stdin.take().ok_or("no stdin")?);
        Watch(sender).serve_with_lifecycle(pipes, lifecycle).await.map_err(told)?
    };
    Ok(Session { client, progress })
}

async fn run(lifecycle: &str, target: &[String]) {
    let connected = timeout(GUARD, connect(lifecycle, target)).await.unwrap_or_else(|_| Err("it hangs".to_owned()));
    let mut session = match connected {
        Ok(session) => session,
        Err(why) => return println!("connect FAILED {}", why.replace('\n', " ")),
    };
    let revision = session.client.peer().peer_info().map(|info| info.protocol_version.to_string());
    println!("revision {}", revision.as_deref().unwrap_or("unknown"));
    cell("list", session.list()).await;
    cell("call", session.echo()).await;
    cell("progress", session.count()).await;
    cell("cancel", session.cancel()).await;
    let _ended = session.client.close().await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((lifecycle, target)) if !target.is_empty() => run(lifecycle, target).await,
        _ => println!("usage: rmcp-eras LIFECYCLE SERVER [ARG...] | rmcp-eras LIFECYCLE URL"),
    }
}
