//! `steady-sim serve` in a process of its own, and the shipped client of it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use steady_core::backoff::Backoff;
use steady_core::kernel::client::{Called, Caller, Change, Fresh, Notice, Request, TaskHandle, ToolResult};
use steady_core::subscription::Filter;
use steady_http::client as http;
use steady_stdio::client as stdio;

use crate::proxy::{Listen, Proxy};

/// Longer than any machine takes.
const HANG: Duration = Duration::from_secs(120);
const PROGRAM: &str = env!("CARGO_BIN_EXE_steady-sim");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Stdio,
    Http,
}

pub(crate) fn run(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(HANG, story).await.expect("it ends") });
}

/// A server, its client, and the ledger of both.
pub(crate) struct Shop {
    folder: tempfile::TempDir,
    link: Link,
}

enum Link {
    Stdio(stdio::Client),
    Http { client: http::Client, server: Served, proxy: Proxy, listen: Option<Listen> },
}

impl Shop {
    pub(crate) async fn open(transport: Transport) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let ledger = ledger_in(folder.path());
        let link = match transport {
            Transport::Stdio => Link::Stdio(child(&ledger, &gate_in(folder.path())).await),
            Transport::Http => {
                let server = Served::start(&ledger);
                let proxy = Proxy::start(server.address.clone()).await;
                let at = format!("http://{}/mcp", proxy.address);
                let client = http::Client::connect(&at, http::Config::default()).await.expect("it serves");
                Link::Http { client, server, proxy, listen: None }
            }
        };
        Self { folder, link }
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        ledger_in(self.folder.path())
    }

    pub(crate) fn client(&self) -> &Caller {
        match &self.link {
            Link::Stdio(client) => client,
            Link::Http { client, .. } => client,
        }
    }

    /// A server in another process on the same ledger, and its client.
    pub(crate) async fn another(&self) -> stdio::Client {
        child(&self.ledger(), &self.folder.path().join("never")).await
    }

    /// Waits until what the client has begun to listen for would be heard. Over pipes nothing overtakes a listen.
    pub(crate) async fn is_listening(&mut self) {
        if let Link::Http { proxy, listen, .. } = &mut self.link {
            *listen = Some(proxy.listen().await);
        }
    }

    /// Cuts the listen, and lets the client reach the server again once `meanwhile` is over: over HTTP the connection is
    /// closed, over pipes there is no listen without its process, so that is killed.
    pub(crate) async fn cut_while(&mut self, meanwhile: impl Future<Output = ()>) {
        match &mut self.link {
            Link::Stdio(client) => {
                let gate = gate_in(self.folder.path());
                std::fs::write(&gate, "").expect("written");
                kill(client.status().pid.expect("it runs"));
                meanwhile.await;
                std::fs::remove_file(&gate).expect("it is there");
            }
            Link::Http { proxy, listen, .. } => {
                let listen = listen.take().expect("it is listening");
                proxy.cut_while(listen, meanwhile).await;
            }
        }
    }

    /// `kill -9`, and the next process of the server is there.
    pub(crate) async fn kill(&mut self) {
        match &mut self.link {
            Link::Stdio(client) => {
                let restarts = client.status().restarts;
                kill(client.status().pid.expect("it runs"));
                client.watch().wait_for(|status| status.restarts > restarts).await.expect("it is started again");
            }
            Link::Http { server, proxy, .. } => {
                server.kill();
                *server = Served::start(&ledger_in(self.folder.path()));
                proxy.moved(server.address.clone());
            }
        }
    }

    pub(crate) async fn close(self) -> tempfile::TempDir {
        match self.link {
            Link::Stdio(client) => {
                client.shutdown().await;
            }
            Link::Http { client, .. } => client.shutdown().await,
        }
        self.folder
    }
}

pub(crate) fn ledger_in(folder: &Path) -> PathBuf {
    folder.join("shop.db")
}

/// While this file is there no server starts.
fn gate_in(folder: &Path) -> PathBuf {
    folder.join("closed")
}

/// A client of a child, which is started again when it is killed, once there is no file `gate`.
async fn child(ledger: &Path, gate: &Path) -> stdio::Client {
    let backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(1) };
    let restart = stdio::Restart { crashes: 100, within: Duration::from_secs(60), backoff };
    let wait = r#"while [ -e "$GATE" ]; do sleep 0.01; done; exec "$@""#;
    let command = stdio::Command::new("sh").args(["-c", wait, "sh", PROGRAM, "serve", "--stdio", "--ledger"]);
    stdio::Client::spawn(command.arg(ledger).env("GATE", gate).restart(restart)).await.expect("it starts")
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::KILL).expect("a child of ours");
}

/// A server over HTTP.
struct Served {
    child: Child,
    address: String,
    /// Kept open, so that it can go on saying something.
    _log: BufReader<ChildStderr>,
}

impl Served {
    fn start(ledger: &Path) -> Self {
        let mut command = Command::new(PROGRAM);
        let command = command.args(["serve", "--http", "127.0.0.1:0", "--ledger"]).arg(ledger);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the server starts");
        let (mut line, mut log) = (String::new(), BufReader::new(child.stderr.take().expect("piped")));
        log.read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("serving http://").and_then(|at| at.strip_suffix("/mcp"));
        let address = address.unwrap_or_else(|| panic!("where it serves: {line:?}")).to_owned();
        Self { child, address, _log: log }
    }

    fn kill(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn filter(notifications: &Value) -> Filter {
    Filter::parse(&notifications.to_string()).expect("a filter")
}

pub(crate) async fn reserve(client: &Caller, quantity: i64, order: &str) -> ToolResult {
    let arguments = json!({"sku": "gadget", "quantity": quantity, "tenant": "acme", "idempotencyKey": order});
    let result = client.call(Request::tool("reserve_inventory", &arguments)).tool_result().await.expect("an answer");
    assert!(!result.is_error, "{}", result.text());
    result
}

/// A call that becomes a task.
pub(crate) async fn task(client: &Caller, request: Request) -> TaskHandle {
    match client.call_or_task(request).await.expect("an answer") {
        Called::Task(task) => task,
        Called::Done(result) => panic!("no task: {}", result.text()),
    }
}

pub(crate) fn notice(change: Change) -> Notice {
    let Change::Notice(notice) = change else { panic!("no notification: {change:?}") };
    notice
}

/// What is left by this state of the record.
pub(crate) fn available(state: &Fresh) -> i64 {
    let Fresh::One(record) = state else { panic!("one record: {state:?}") };
    let read: Value = record.parse().expect("JSON");
    let text = read["contents"][0]["text"].as_str().expect("a text");
    let stock: Value = serde_json::from_str(text).expect("JSON");
    stock["available"].as_i64().expect("a number")
}
