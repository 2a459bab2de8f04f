//! The client over real pipes and real children: servers of ours, and shell scripts that misbehave.
#![cfg(unix)]

mod calls;
mod eras;
mod ladder;
mod processes;
mod raw;
mod recovery;
mod rows;
#[path = "../support/mod.rs"]
mod support;

use std::future::Future;
use std::time::Duration;

use steady_stdio::client::{Client, ClientConfig, Command, Request, config};

/// A hang guard, not a measure.
const GUARD: Duration = Duration::from_secs(60);

/// Runs a test under the hang guard.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(GUARD, test).await.expect("it hangs") })
}

/// The fixture server.
pub(crate) fn fixture() -> Command {
    Command::new(support::fixture().get_program())
}

/// The server with tools that misbehave.
pub(crate) fn peer() -> Command {
    Command::new(example("peer"))
}

/// A program of this package's examples.
pub(crate) fn example(name: &str) -> std::path::PathBuf {
    std::path::Path::new(support::fixture().get_program()).with_file_name(name)
}

/// What the peer tells of those who wait.
pub(crate) async fn seen(client: &Client) -> String {
    client.call(tool("seen", "{}")).tool_result().await.expect("an answer").text()
}

/// A server that is a shell script. It is not asked for `server/discover`.
pub(crate) fn script(text: &str) -> Command {
    Command::new("/bin/sh").args(["-c", text]).config(unasked())
}

/// A client that does not ask for `server/discover`.
pub(crate) fn unasked() -> ClientConfig {
    ClientConfig { probe: None, ..config() }
}

pub(crate) async fn spawn(command: Command) -> Client {
    Client::spawn(command).await.unwrap_or_else(|error| panic!("{error}"))
}

/// A call of a tool with arguments as JSON text.
pub(crate) fn tool(name: &str, arguments: &str) -> Request {
    Request::raw("tools/call", format!(r#"{{"name":"{name}","arguments":{arguments}}}"#))
}

/// A call that is answered: the server lives, and heard what was sent before.
pub(crate) async fn ping(client: &Client) {
    let answer = client.call_tool("echo", &std::collections::BTreeMap::from([("text", "pong")])).await;
    assert_eq!(answer.expect("an answer").text(), "pong");
}
