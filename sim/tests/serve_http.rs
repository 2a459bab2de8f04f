//! `steady-sim serve --http`: the handlers of the stdio server, on another transport, over the same ledger.
#![cfg(feature = "live")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(ledger: &std::path::Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_steady-sim"))
            .args(["serve", "--http", "127.0.0.1:0", "--ledger"])
            .arg(ledger)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("serving http://").and_then(|at| at.strip_suffix("/mcp"));
        let address = address.unwrap_or_else(|| panic!("where it serves: {line:?}")).to_owned();
        Self { child, address }
    }

    fn reserve(&self, key: &str) -> serde_json::Value {
        let body = serde_json::json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {
                "name": "reserve_inventory",
                "arguments": {"sku": "widget", "quantity": 2, "tenant": "t", "idempotencyKey": key},
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        })
        .to_string();
        let mut stream = TcpStream::connect(&self.address).expect("it accepts");
        let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
                    Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
                    Mcp-Method: tools/call\r\nMcp-Name: reserve_inventory\r\n";
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        body["result"]["structuredContent"].clone()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

#[test]
fn a_retry_after_a_restart_reserves_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let ledger = dir.path().join("shop.db");
    let first = Served::start(&ledger).reserve("order-7");
    let server = Served::start(&ledger);
    let (again, other) = (server.reserve("order-7"), server.reserve("order-8"));
    assert_eq!(first["reservationId"], again["reservationId"]);
    assert_eq!((&first["replayed"], &again["replayed"]), (&false.into(), &true.into()));
    assert_ne!(first["reservationId"], other["reservationId"]);
}
