//! `steady-sim serve --http`: the handlers of the stdio server, on another transport, over the same ledger.
#![cfg(feature = "live")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

struct Served {
    child: Child,
    address: String,
    /// What it says after its first line.
    log: BufReader<ChildStderr>,
}

impl Served {
    fn start(ledger: &std::path::Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_steady-sim"))
            .args(["serve", "--http", "127.0.0.1:0", "--ledger"])
            .arg(ledger)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let (mut line, mut log) = (String::new(), BufReader::new(child.stderr.take().expect("piped")));
        log.read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("serving http://").and_then(|at| at.strip_suffix("/mcp"));
        let address = address.unwrap_or_else(|| panic!("where it serves: {line:?}")).to_owned();
        Self { child, address, log }
    }

    /// Sends a call whose argument object, header lines and `_meta` members are these.
    fn call(&self, tool: &str, arguments: &serde_json::Value, headers: &str, meta: &str) -> TcpStream {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{{meta}"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}},"progressToken":1}}}}}}"#
        );
        let mut stream = TcpStream::connect(&self.address).expect("it accepts");
        let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
                    Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
                    Mcp-Method: tools/call\r\nMcp-Name: ";
        write!(stream, "{head}{tool}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()).expect("it reads");
        stream
    }

    /// The answer to a reservation.
    fn answer(&self, key: Option<&str>, headers: &str, meta: &str) -> serde_json::Value {
        let mut arguments = serde_json::json!({"sku": "widget", "quantity": 2, "tenant": "t"});
        if let Some(key) = key {
            arguments["idempotencyKey"] = key.into();
        }
        let mut stream = self.call("reserve_inventory", &arguments, headers, meta);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        serde_json::from_str(body).expect("JSON")
    }

    fn reserve(&self, key: Option<&str>, headers: &str, meta: &str) -> serde_json::Value {
        self.answer(key, headers, meta)["result"]["structuredContent"].clone()
    }

    /// A call that counts to `to`, and its answer from the first event on.
    fn count(&self, to: u32, interval_ms: u32) -> BufReader<TcpStream> {
        let arguments = serde_json::json!({"to": to, "interval_ms": interval_ms});
        let mut answer = BufReader::new(self.call("slow_count", &arguments, "", ""));
        let mut line = String::new();
        while !line.contains("notifications/progress") {
            line.clear();
            assert!(answer.read_line(&mut line).expect("an answer") > 0, "an event");
        }
        answer
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a child of ours");
    }

    fn exit(&mut self) -> Option<i32> {
        self.child.wait().expect("a child of ours").code()
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
    let first = Served::start(&ledger).reserve(Some("order-7"), "", "");
    let server = Served::start(&ledger);
    let (again, other) = (server.reserve(Some("order-7"), "", ""), server.reserve(Some("order-8"), "", ""));
    assert_eq!(first["reservationId"], again["reservationId"]);
    assert_eq!((&first["replayed"], &again["replayed"]), (&false.into(), &true.into()));
    assert_ne!(first["reservationId"], other["reservationId"]);
}

#[test]
fn a_key_may_stand_in_the_header_alone_and_must_agree_with_any_other() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Served::start(&dir.path().join("shop.db"));
    let header = "Idempotency-Key: \"order-7\"\r\n";
    let first = server.reserve(None, header, "");
    let again = server.reserve(None, header, "");
    assert_eq!((&first["replayed"], &again["replayed"]), (&false.into(), &true.into()), "{first} {again}");
    assert_eq!(first["reservationId"], again["reservationId"]);
    // The same key, wherever it stands.
    let meta = |key: &str| format!(r#""mcp-steady.dev/idempotencyKey":"{key}","#);
    for same in [
        server.reserve(Some("order-7"), "", ""),
        server.reserve(None, "", &meta("order-7")),
        server.reserve(Some("order-7"), header, &meta("order-7")),
    ] {
        assert_eq!((&same["reservationId"], &same["replayed"]), (&first["reservationId"], &true.into()), "{same}");
    }
    for (refused, why) in [
        (server.answer(None, header, &meta("order-8")), "carry different idempotency keys"),
        (server.answer(Some("order-8"), header, ""), "carry different idempotency keys"),
        (server.answer(None, &format!("{header}{header}"), ""), "not a quoted string"),
        (server.answer(None, "Idempotency-Key: \r\n", ""), "is empty"),
    ] {
        let error = &refused["error"];
        assert_eq!(error["code"], -32602, "{refused}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains(why)), "{refused}");
    }
    assert_ne!(server.reserve(None, "", "")["reservationId"], first["reservationId"], "without a key each call counts");
}

#[test]
fn sigterm_and_sigint_let_a_call_finish_and_end_the_process_in_order() {
    let dir = tempfile::tempdir().expect("a folder");
    for (n, signal) in [Signal::TERM, Signal::INT].into_iter().enumerate() {
        let mut server = Served::start(&dir.path().join(format!("{n}.db")));
        let mut answer = server.count(8, 50);
        server.signal(signal);
        let mut rest = String::new();
        answer.read_to_string(&mut rest).expect("the rest");
        assert!(rest.contains("counted to 8") && rest.ends_with("\r\n0\r\n\r\n"), "{rest}");
        assert_eq!(server.exit(), Some(0));
        assert!(TcpStream::connect(&server.address).is_err(), "nobody listens");
    }
}

#[test]
fn a_second_signal_ends_what_runs_with_one_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut server = Served::start(&dir.path().join("shop.db"));
    let mut answer = server.count(1_000_000, 100);
    server.signal(Signal::TERM);
    // The first one has arrived once nobody is served any more; two at once would be one.
    while TcpStream::connect(&server.address).is_ok() {
        std::thread::yield_now();
    }
    server.signal(Signal::INT);
    let mut rest = String::new();
    answer.read_to_string(&mut rest).expect("the rest");
    assert!(rest.contains(r#""error":{"code":-31001,"#) && rest.ends_with("\r\n0\r\n\r\n"), "{rest}");
    assert_eq!((rest.matches("\"id\":1").count(), server.exit()), (1, Some(0)));
}

#[test]
fn no_secret_reaches_a_log_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut server = Served::start(&dir.path().join("shop.db"));
    let headers = "Authorization: Bearer hidden-token\r\nCookie: a=hidden-cookie\r\nIdempotency-Key: hidden-key\r\n";
    assert_eq!(server.reserve(None, headers, "")["replayed"], false);
    let refused = server.answer(Some("hidden-other-key"), headers, "");
    assert_eq!(refused["error"]["code"], -32602);
    // What is refused before any handler, and what is no request at all.
    for text in [
        format!("POST /mcp HTTP/1.1\r\nHost: hidden.example\r\n{headers}Content-Length: 0\r\n\r\n"),
        format!("POST /mcp?hidden-query HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: 6\r\n\r\nhidden"),
        format!("GET /hidden-path HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"),
        format!("hidden \0\r\n{headers}\r\n"),
    ] {
        let mut stream = TcpStream::connect(&server.address).expect("it accepts");
        stream.write_all(text.replace("Cookie", "Connection: close\r\nCookie").as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    server.signal(Signal::TERM);
    assert_eq!(server.exit(), Some(0));
    let mut log = String::new();
    server.log.read_to_string(&mut log).expect("its standard error");
    assert!(!log.contains("hidden"), "{log}");
}

#[test]
fn ten_thousand_half_open_connections_do_not_keep_others_out() {
    // Child and test hold one end each. As many as the system allows, if that is fewer.
    let limit = getrlimit(Resource::Nofile);
    let _as_it_is = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let most = getrlimit(Resource::Nofile).current.map_or(10_000, |most| most.saturating_sub(200).min(10_000));
    let dir = tempfile::tempdir().expect("a folder");
    let server = Served::start(&dir.path().join("shop.db"));
    let mut held = Vec::new();
    for n in 1..=most {
        let stream = TcpStream::connect(&server.address).expect("it accepts");
        (&stream).write_all(b"POST /mcp HTTP/1.1\r\nHost: loc").expect("it reads");
        held.push(stream);
        if n % 1000 == 0 {
            assert_eq!(server.reserve(Some(&format!("order-{n}")), "", "")["replayed"], false);
        }
    }
    assert!(held.len() >= 800, "{} connections", held.len());
    assert_eq!(server.reserve(Some("order-1000"), "", "")["replayed"], held.len() >= 1000);
}
