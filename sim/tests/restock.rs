//! The shop's durable task over its real server: killed in the middle, it goes on, and each batch is counted once.
#![cfg(feature = "live")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use steady_sim::lab::Inventory;

struct Shop {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shop {
    fn start(ledger: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_steady-sim"))
            .args(["serve", "--stdio", "--ledger"])
            .arg(ledger)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, input, output }
    }

    fn ask(&mut self, method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
        });
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        writeln!(self.input, "{message}").expect("it reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("an answer");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    fn restock(&mut self) -> Value {
        let arguments = json!({"sku": "gizmo", "batches": 4, "perBatch": 10, "pauseMs": 300, "idempotencyKey": "d-1"});
        self.ask("tools/call", json!({"name": "restock", "arguments": arguments}))
    }

    fn wait(&mut self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let task = self.ask("tasks/get", json!({"taskId": id}));
            if wanted(&task) {
                return task;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "still {task}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

#[test]
fn a_delivery_survives_the_server_and_each_batch_is_counted_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let ledger = dir.path().join("shop.db");
    let mut shop = Shop::start(&ledger);
    let id = shop.restock()["taskId"].as_str().expect("a task").to_owned();
    shop.wait(&id, |task| task["statusMessage"].as_str().is_some_and(|text| text.starts_with("batch ")));
    // Kills the server and its worker.
    drop(shop);
    let mut shop = Shop::start(&ledger);
    assert_eq!(shop.restock()["taskId"], id.as_str(), "the same delivery");
    let done = shop.wait(&id, |task| task["status"] != "working");
    assert_eq!(done["result"]["content"][0]["text"], "4 batches of 10 gizmo are on the shelf", "{done}");
    drop(shop);
    let inventory = Inventory::open(&ledger, "local").expect("a ledger");
    assert_eq!(inventory.count("gizmo").expect("read").0, 1 + 40);
}
