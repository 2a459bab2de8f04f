//! A server in a process of its own, and a client that knows no more than the protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// Longer than any machine takes.
pub(crate) const HANG: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Stdio,
    Http,
}

pub(crate) const BOTH: [Transport; 2] = [Transport::Stdio, Transport::Http];

/// A ledger in a folder of its own.
pub(crate) struct Shop {
    folder: tempfile::TempDir,
}

impl Shop {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder.path().join("tasks.db")
    }

    pub(crate) fn server(&self, transport: Transport, more: &[&str]) -> Server {
        Server::start(transport, &self.ledger(), more)
    }

    /// A server that works on its tasks too.
    pub(crate) fn at_work(&self, transport: Transport) -> Server {
        self.server(transport, &["--work", "in-process"])
    }

    /// A worker in a process of its own.
    pub(crate) fn worker(&self, owner: &str, more: &[&str]) -> Process {
        let process = Process::start(&self.ledger(), &[&["--work", owner], more].concat(), Stdio::null());
        process.hear("working");
        process
    }
}

/// A process of the example. It is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    said: Receiver<String>,
}

impl Process {
    fn start(ledger: &Path, arguments: &[&str], input: Stdio) -> Self {
        let mut command = Command::new(crate::example::example("task_server"));
        command.arg("--ledger").arg(ledger).args(arguments);
        let mut child =
            command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the example starts");
        let (say, said) = channel();
        let errors = BufReader::new(child.stderr.take().expect("piped"));
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, said }
    }

    /// Waits for a line that begins so, and returns the rest of it.
    pub(crate) fn hear(&self, start: &str) -> String {
        loop {
            let line = self.said.recv_timeout(HANG).unwrap_or_else(|error| panic!("{start:?} is said: {error}"));
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim().to_owned();
            }
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it is killed");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

enum Wire {
    Stdio { input: ChildStdin, messages: Receiver<Value> },
    Http { address: String },
}

pub(crate) struct Server {
    pub(crate) process: Process,
    wire: Wire,
    next_id: i64,
}

/// A request that was sent, with the stream of its answer on HTTP.
pub(crate) struct Sent {
    id: i64,
    stream: Option<TcpStream>,
}

/// What a client declares.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Declares {
    Tasks,
    Nothing,
}

fn meta(declares: Declares) -> Value {
    let capabilities = match declares {
        Declares::Tasks => json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}),
        Declares::Nothing => json!({}),
    };
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

impl Server {
    fn start(transport: Transport, ledger: &Path, more: &[&str]) -> Self {
        let how: &[&str] = match transport {
            Transport::Stdio => &["--stdio"],
            Transport::Http => &["--http", "127.0.0.1:0"],
        };
        let mut process = Process::start(ledger, &[how, more].concat(), Stdio::piped());
        let wire = match transport {
            Transport::Stdio => {
                let output = BufReader::new(process.child.stdout.take().expect("piped"));
                let (say, messages) = channel();
                std::thread::spawn(move || {
                    for line in output.lines().map_while(Result::ok) {
                        let message = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line}"));
                        if say.send(message).is_err() {
                            return;
                        }
                    }
                });
                process.hear("serving");
                Wire::Stdio { input: process.child.stdin.take().expect("piped"), messages }
            }
            Transport::Http => {
                let at = process.hear("serving http://");
                Wire::Http { address: at.strip_suffix("/mcp").expect("a path").to_owned() }
            }
        };
        Self { process, wire, next_id: 0 }
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, method: &str, mut params: Value, declares: Declares) -> Sent {
        self.next_id += 1;
        params["_meta"] = meta(declares);
        let name = params.get("taskId").or_else(|| params.get("name")).and_then(Value::as_str).map(str::to_owned);
        let message = json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params});
        let stream = match &mut self.wire {
            Wire::Stdio { input, .. } => {
                writeln!(input, "{message}").expect("it reads");
                None
            }
            Wire::Http { address } => Some(post(address, method, name.as_deref(), &message)),
        };
        Sent { id: self.next_id, stream }
    }

    /// Sends a notification, for which there is no answer; stdio alone has any.
    pub(crate) fn notify(&mut self, method: &str, params: &Value) {
        if let Wire::Stdio { input, .. } = &mut self.wire {
            let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
            writeln!(input, "{message}").expect("it reads");
        }
    }

    /// The response to a request: the whole message.
    pub(crate) fn receive(&self, sent: Sent) -> Value {
        self.receive_with_status(sent).1
    }

    /// The response to a request, and its status on HTTP.
    pub(crate) fn receive_with_status(&self, sent: Sent) -> (Option<u16>, Value) {
        match (&self.wire, sent.stream) {
            (Wire::Stdio { messages, .. }, _) => loop {
                let message = messages.recv_timeout(HANG).expect("an answer");
                if message["id"] == sent.id && message.get("method").is_none() {
                    return (None, message);
                }
            },
            (Wire::Http { .. }, Some(stream)) => {
                let (status, message) = read_response(stream, sent.id);
                (Some(status), message)
            }
            (Wire::Http { .. }, None) => panic!("HTTP answers on a stream"),
        }
    }

    /// The responses to as many requests, in whichever order they come.
    pub(crate) fn receive_all(&self, sent: Vec<Sent>) -> Vec<Value> {
        match &self.wire {
            Wire::Stdio { messages, .. } => {
                let response = |_| loop {
                    let message = messages.recv_timeout(HANG).expect("an answer");
                    if message.get("method").is_none() {
                        break message;
                    }
                };
                sent.into_iter().map(response).collect()
            }
            Wire::Http { .. } => sent.into_iter().map(|sent| self.receive(sent)).collect(),
        }
    }

    fn ask_as(&mut self, method: &str, params: Value, declares: Declares) -> Value {
        let sent = self.send(method, params, declares);
        self.receive(sent)
    }

    /// The result of a request of a client that knows tasks.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let response = self.ask_as(method, params, Declares::Tasks);
        assert!(response.get("error").is_none(), "{method}: {response}");
        response["result"].clone()
    }

    /// The error of such a request.
    pub(crate) fn refusal(&mut self, method: &str, params: Value, declares: Declares) -> Value {
        let response = self.ask_as(method, params, declares);
        assert!(response.get("result").is_none(), "{method}: {response}");
        response["error"].clone()
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// A call of a client that knows no tasks.
    pub(crate) fn call_plainly(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask_as("tools/call", json!({"name": tool, "arguments": arguments}), Declares::Nothing)
    }

    /// Listens for these tasks: what is honoured, and the stream.
    pub(crate) fn listen(&mut self, ids: &[&str]) -> (Value, Listen<'_>) {
        let sent = self.send("subscriptions/listen", json!({"notifications": {"taskIds": ids}}), Declares::Tasks);
        let stream = sent.stream.map(BufReader::new);
        let mut listen = Listen { id: sent.id, stream, wire: &self.wire };
        let acknowledgement = listen.next();
        assert_eq!(acknowledgement["method"], "notifications/subscriptions/acknowledged");
        (acknowledgement["params"]["notifications"].clone(), listen)
    }

    /// Makes a task, and says its id.
    pub(crate) fn task(&mut self, tool: &str, arguments: Value) -> String {
        let created = self.call(tool, arguments);
        assert_eq!(created["resultType"], "task", "{created}");
        created["taskId"].as_str().expect("an id").to_owned()
    }

    pub(crate) fn get(&mut self, id: &str) -> Value {
        self.ask("tasks/get", json!({"taskId": id}))
    }

    pub(crate) fn cancel(&mut self, id: &str) {
        let mut acknowledgement = self.ask("tasks/cancel", json!({"taskId": id}));
        let members = acknowledgement.as_object_mut().expect("an object");
        members.remove("_meta");
        assert_eq!(acknowledgement, json!({"resultType": "complete"}));
    }

    /// Asks for the task in the server's rhythm until it is as `wanted`.
    pub(crate) fn wait(&mut self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let start = std::time::Instant::now();
        loop {
            let task = self.get(id);
            if wanted(&task) {
                return task;
            }
            assert!(start.elapsed() < HANG, "still {task}");
            std::thread::sleep(Duration::from_millis(task["pollIntervalMs"].as_u64().expect("an interval")));
        }
    }

    /// The task at its end.
    pub(crate) fn end(&mut self, id: &str) -> Value {
        self.wait(id, |task| ["completed", "failed", "cancelled"].contains(&task["status"].as_str().expect("a status")))
    }
}

pub(crate) struct Listen<'a> {
    id: i64,
    stream: Option<BufReader<TcpStream>>,
    wire: &'a Wire,
}

impl Listen<'_> {
    /// The next message of the stream.
    fn next(&mut self) -> Value {
        let message: Value = match (&mut self.stream, self.wire) {
            (Some(stream), _) => loop {
                let mut line = String::new();
                assert_ne!(stream.read_line(&mut line).expect("a line"), 0, "the stream has ended");
                if let Some(text) = line.strip_prefix("data: ") {
                    break serde_json::from_str(text).expect("a message");
                }
            },
            (None, Wire::Stdio { messages, .. }) => messages.recv_timeout(HANG).expect("a message"),
            (None, Wire::Http { .. }) => panic!("HTTP has a stream for each listen"),
        };
        assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], self.id, "{message}");
        message
    }

    /// The states of tasks that come, up to one that is as `wanted`.
    pub(crate) fn states_until(&mut self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut states = Vec::new();
        loop {
            let message = self.next();
            assert_eq!(message["method"], "notifications/tasks");
            let mut state = message["params"].clone();
            state.as_object_mut().expect("an object").remove("_meta");
            let last = wanted(&state);
            states.push(state);
            if last {
                return states;
            }
        }
    }
}

pub(crate) fn status(task: &Value) -> &str {
    task["status"].as_str().expect("a status")
}

/// Posts a message, as a client that reads the answer to its end.
fn post(address: &str, method: &str, name: Option<&str>, message: &Value) -> TcpStream {
    let body = message.to_string();
    let mut stream = TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(HANG)).expect("a timeout");
    let name = name.map_or_else(String::new, |name| format!("Mcp-Name: {name}\r\n"));
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: {method}\r\n{name}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("it reads");
    stream
}

/// The status and the response, from a JSON body or from the stream that ends with it.
fn read_response(mut stream: TcpStream, id: i64) -> (u16, Value) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let texts = body.lines().filter_map(|line| line.strip_prefix("data: ")).chain([body]);
    let mut messages = texts.filter_map(|text| serde_json::from_str::<Value>(text).ok());
    let response = messages.find(|message| message["id"] == id || message.get("error").is_some());
    (status, response.unwrap_or_else(|| panic!("no response: {answer:?}")))
}

/// The HTTP status and the message that a request gets with these headers instead of its own.
pub(crate) fn post_as(server: &Server, method: &str, name: Option<&str>, params: Value) -> (u16, Value) {
    let Wire::Http { address } = &server.wire else { panic!("HTTP alone has headers") };
    let mut params = params;
    params["_meta"] = meta(Declares::Tasks);
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    read_response(post(address, method, name, &message), 1)
}
