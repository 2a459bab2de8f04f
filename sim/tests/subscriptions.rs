//! The inventory as resources, over real pipes: read, listed, and heard of when it changes, by whichever process.
#![cfg(feature = "live")]

use std::collections::{BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::{Value, json};

/// A hang guard, not a measure.
const GUARD: Duration = Duration::from_secs(60);

struct Shop {
    child: Child,
    input: ChildStdin,
    lines: Receiver<Value>,
    /// Notifications that came before an answer.
    heard: VecDeque<Value>,
    next: u32,
}

impl Shop {
    fn open(ledger: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_steady-sim"))
            .args(["serve", "--stdio", "--ledger"])
            .arg(ledger)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (to, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if to.send(serde_json::from_str(&line).expect("JSON")).is_err() {
                    return;
                }
            }
        });
        Self { child, input, lines, heard: VecDeque::new(), next: 0 }
    }

    fn send(&mut self, id: &Value, method: &str, mut params: Value) {
        params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
                                 "io.modelcontextprotocol/clientCapabilities": {}});
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.input, "{request}").expect("it reads");
    }

    /// The next notification.
    fn notification(&mut self) -> Value {
        self.heard.pop_front().unwrap_or_else(|| self.lines.recv_timeout(GUARD).expect("a line"))
    }

    /// The answer to a request.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = json!(self.next);
        self.send(&id, method, params);
        loop {
            let line = self.lines.recv_timeout(GUARD).expect("a line");
            if line["id"] == id {
                return line;
            }
            self.heard.push_back(line);
        }
    }

    fn reserve(&mut self, sku: &str, key: &str) -> Value {
        let arguments = json!({"sku": sku, "quantity": 2, "tenant": "acme", "idempotencyKey": key});
        let answer = self.ask("tools/call", json!({"name": "reserve_inventory", "arguments": arguments}));
        answer["result"]["structuredContent"].clone()
    }

    fn read(&mut self, uri: &str) -> Value {
        let answer = self.ask("resources/read", json!({"uri": uri}));
        let text = answer["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("a content: {answer}"));
        serde_json::from_str(text).expect("JSON")
    }

    fn listen(&mut self, notifications: Value) {
        self.send(&json!("listen"), "subscriptions/listen", json!({"notifications": notifications}));
        let acknowledged = self.notification();
        assert_eq!(acknowledged["params"]["notifications"], notifications);
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn uri_of(message: &Value) -> (&str, &str) {
    (message["method"].as_str().unwrap_or_default(), message["params"]["uri"].as_str().unwrap_or_default())
}

#[test]
fn the_stock_is_a_resource() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut shop = Shop::open(&dir.path().join("shop.db"));
    let discovered = shop.ask("server/discover", json!({}));
    let capabilities = &discovered["result"]["capabilities"];
    assert_eq!(capabilities["resources"], json!({"subscribe": true, "listChanged": true}));
    assert_eq!(capabilities["tools"], json!({"listChanged": true}));
    let templates = shop.ask("resources/templates/list", json!({}));
    assert_eq!(templates["result"]["resourceTemplates"][0]["uriTemplate"], "inventory://{tenant}/{sku}");
    assert_eq!(shop.ask("resources/list", json!({}))["result"]["resources"], json!([]));
    shop.reserve("gadget", "a");
    let stock = json!({"tenant": "acme", "sku": "gadget", "available": 8, "reserved": 2});
    assert_eq!(shop.read("inventory://acme/gadget"), stock);
    assert_eq!(shop.read("inventory://other/gadget")["reserved"], 0);
    let listed = shop.ask("resources/list", json!({}));
    assert_eq!(listed["result"]["resources"][0]["uri"], "inventory://acme/gadget");
    assert_eq!((&listed["result"]["cacheScope"], &listed["result"]["ttlMs"]), (&json!("private"), &json!(0)));
    for unknown in ["inventory://acme/nothing", "inventory://acme", "other://acme/gadget"] {
        let refused = shop.ask("resources/read", json!({"uri": unknown}));
        assert_eq!((&refused["error"]["code"], &refused["error"]["data"]["uri"]), (&json!(-32602), &json!(unknown)));
    }
    assert_eq!(shop.ask("resources/list", json!({"cursor": "x"}))["error"]["code"], -32602);
}

#[test]
fn a_reservation_is_heard_of_and_the_record_read_afresh() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut shop = Shop::open(&dir.path().join("shop.db"));
    let uri = "inventory://acme/gadget";
    shop.listen(json!({"resourceSubscriptions": [uri, "inventory://other/gadget"], "resourcesListChanged": true}));
    shop.reserve("widget", "w");
    shop.reserve("gadget", "a");
    let mut heard = BTreeSet::new();
    let updated = |uri: &str| format!("notifications/resources/updated {uri}");
    let all = [updated(uri), updated("inventory://other/gadget"), "notifications/resources/list_changed".to_owned()];
    while !all.iter().all(|all| heard.contains(all)) {
        let line = shop.notification();
        let (method, uri) = uri_of(&line);
        heard.insert(format!("{method} {uri}").trim().to_owned());
    }
    assert_eq!(heard.len(), all.len(), "rule L3: {heard:?}");
    assert_eq!(shop.read(uri)["available"], 8);
}

#[test]
fn what_another_process_takes_from_the_same_ledger_is_heard_of() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = dir.path().join("shop.db");
    let (mut shop, mut other) = (Shop::open(&ledger), Shop::open(&ledger));
    let uri = "inventory://acme/gadget";
    shop.listen(json!({"resourceSubscriptions": [uri]}));
    // The first look of the watch only remembers: until it has looked, what changes is read and not heard of. So the other
    // process goes on until it is.
    for round in 0.. {
        other.reserve("widget", &format!("w{round}"));
        if round < 4 {
            other.reserve("gadget", &format!("g{round}"));
        }
        match shop.lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => {
                assert_eq!(uri_of(&line), ("notifications/resources/updated", uri));
                break;
            }
            Err(_not_yet) => assert!(round < 30, "it is never heard of"),
        }
    }
    assert!(shop.read(uri)["available"].as_i64().is_some_and(|available| available < 10));
}
