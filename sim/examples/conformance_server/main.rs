//! The server that the official conformance suite is run against (`cargo xtask conformance`): made-up content, served
//! through the library like any other. `conformance_server ADDRESS`.

mod asks;
mod catalog;
mod input;
mod tasks;
mod tools;

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};
use steady_http::steady_core::rpc::{PROTOCOL_VERSION, method};
use steady_http::steady_core::task::EXTENSION;
use steady_http::{Answer, Call, Context, Hub, HubConfig, Kinds, Outcome, RpcError, Service, run_http};

/// The server's state: nothing about its clients, only what changed and the key of its states.
struct Conformance {
    changes: Hub,
    states: Arc<input::States>,
    tasks: tasks::Tasks,
}

/// A complete result with the server's name (rules M4 and M8).
fn complete(mut members: Value) -> Outcome {
    members["resultType"] = "complete".into();
    members["_meta"]["io.modelcontextprotocol/serverInfo"] =
        json!({"name": "steady-conformance", "version": env!("CARGO_PKG_VERSION")});
    Ok(members.to_string())
}

/// A complete result that may be kept for a while.
fn cacheable(mut members: Value) -> Outcome {
    members["ttlMs"] = 60_000.into();
    members["cacheScope"] = "public".into();
    complete(members)
}

fn discover() -> Outcome {
    cacheable(json!({
        "supportedVersions": [PROTOCOL_VERSION],
        "capabilities": {
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"subscribe": true},
            "completions": {},
            "logging": {},
            "extensions": {EXTENSION: {}},
        },
    }))
}

impl Service for Conformance {
    fn call(&self, call: Call, cx: Context) -> Answer {
        if let Some(answer) = self.tasks.server.answer(&call, &cx) {
            return answer;
        }
        Answer::Ready(match &*call.method {
            method::DISCOVER => discover(),
            method::TOOLS_LIST => cacheable(json!({"tools": tools::listed()})),
            method::TOOLS_CALL => return self.tool(call, cx),
            method::LISTEN => return self.changes.listen(&call, &cx),
            "resources/list" => cacheable(json!({"resources": catalog::resources()})),
            "resources/templates/list" => cacheable(json!({"resourceTemplates": catalog::templates()})),
            "resources/read" => catalog::read(&call),
            "prompts/list" => cacheable(json!({"prompts": catalog::prompts()})),
            "prompts/get" => self.prompt(&call, &cx),
            "completion/complete" => catalog::completions(&call),
            other => Err(RpcError::method_not_found(other)),
        })
    }

    fn input_schema(&self, tool: &str) -> Option<&str> {
        (tool == tools::MIRRORING).then_some(tools::MIRRORED)
    }
}

fn main() -> ExitCode {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8001".to_owned());
    match serve(&address) {
        Ok(code) => code,
        Err(error) => panic!("the server has nothing to work with: {error}"),
    }
}

fn serve(address: &str) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let states = Arc::new(input::States::new()?);
    let tasks = tasks::Tasks::start(&states)?;
    let changes = Hub::with_config(HubConfig { offers: Kinds::TOOLS | Kinds::PROMPTS, ..HubConfig::default() });
    Ok(run_http(Conformance { changes, states, tasks }, address))
}
