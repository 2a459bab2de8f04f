//! A server whose every byte is the test's, and ours in this process.

use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::clock::Manual;
use serde_json::{Value, json};
use steady_http::client::{Client, Config, Request};
use steady_http::{ServeConfig, Server, Tools};

/// A hang guard, not a measure: nothing here is expected to take long.
pub(crate) const GUARD: Duration = Duration::from_secs(60);

/// Runs a test under the hang guard.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(GUARD, test).await.expect("it hangs") })
}

/// A client that does not ask for `server/discover`.
pub(crate) fn unasked() -> Config {
    let mut config = Config::default();
    config.calls.probe = None;
    config
}

/// The same, with a clock that the test moves.
pub(crate) fn by_hand() -> (Config, Manual) {
    let clock = Manual::default();
    (Config { clock: clock.clock(), ..unasked() }, clock)
}

pub(crate) fn tool(name: &str, arguments: &str) -> Request {
    Request::raw("tools/call", format!(r#"{{"name":"{name}","arguments":{arguments}}}"#))
}

/// A server that the test plays. Each connection has a thread that reads it.
pub(crate) struct Raw {
    address: SocketAddr,
    asked: Receiver<Asked>,
}

impl Raw {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let (sender, asked) = mpsc::channel();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let sender = sender.clone();
                std::thread::spawn(move || read(&stream, &sender));
            }
        });
        Self { address, asked }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(crate) async fn client(&self, config: Config) -> Client {
        Client::connect(&self.url(), config).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The next request, on whatever connection.
    pub(crate) fn asked(&self) -> Asked {
        self.asked.recv_timeout(GUARD).expect("a request")
    }

    /// Answers all requests from now on, until the test is over.
    pub(crate) fn answer_each(self, mut answer: impl FnMut(&mut Asked) + Send + 'static) {
        std::thread::spawn(move || self.asked.into_iter().for_each(|mut asked| answer(&mut asked)));
    }

    /// Whether no request waits that nobody looked at.
    pub(crate) fn is_quiet(&self) -> bool {
        self.asked.try_recv().is_err()
    }
}

type HeaderLines = Vec<(String, String)>;

/// Reads requests until the client closes the connection.
fn read(stream: &TcpStream, sender: &Sender<Asked>) {
    let mut reader = BufReader::new(stream);
    let (closed_to, closed) = mpsc::channel();
    let closed = Arc::new(Mutex::new(closed));
    let mut requests = 0_usize;
    while let Some((start, headers, body)) = read_request(&mut reader) {
        requests += 1;
        let stream = stream.try_clone().expect("a second handle");
        let asked = Asked { stream, start, headers, body, nth: requests, closed: Arc::clone(&closed) };
        if sender.send(asked).is_err() {
            return;
        }
    }
    let _nobody_waits = closed_to.send(requests);
}

fn read_request(stream: &mut impl BufRead) -> Option<(String, HeaderLines, Value)> {
    let mut line = || {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|size| *size > 0)?;
        Some(line.trim_end().to_owned())
    };
    let start = line()?;
    let mut headers = Vec::new();
    while let Some((name, value)) = line()?.split_once(':') {
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, size)| size.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).ok()? };
    Some((start, headers, body))
}

/// A request, and the connection to answer on.
pub(crate) struct Asked {
    stream: TcpStream,
    pub(crate) start: String,
    pub(crate) headers: HeaderLines,
    pub(crate) body: Value,
    /// Which it is on its connection, and how many there were when that was closed.
    nth: usize,
    closed: Arc<Mutex<Receiver<usize>>>,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(key, _)| key == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} stands twice");
        value
    }

    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().expect("a method")
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("it takes bytes");
    }

    /// Sends to a client that may have closed the connection; whether it took it.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Answers with this status and body.
    pub(crate) fn respond(&mut self, status: &str, kind: &str, body: &str) {
        let length = body.len();
        self.send(format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"));
    }

    /// Answers with a result, as one JSON object.
    pub(crate) fn result(&mut self, result: &Value) {
        let message = json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result}).to_string();
        self.respond("200 OK", "application/json", &message);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.result(&json!({"resultType": "complete", "content": [{"type": "text", "text": text}]}));
    }

    /// Answers with an error.
    pub(crate) fn error(&mut self, status: &str, code: i32, data: &Value) {
        let error = json!({"code": code, "message": "no", "data": data});
        let message = json!({"jsonrpc": "2.0", "id": self.body["id"], "error": error}).to_string();
        self.respond(status, "application/json", &message);
    }

    /// Begins a stream of events.
    pub(crate) fn events(&mut self) {
        self.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    }

    /// Sends a part of the stream's body.
    pub(crate) fn chunk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.send(chunk);
    }

    pub(crate) fn event(&mut self, message: &Value) {
        self.chunk(format!("data: {message}\n\n"));
    }

    pub(crate) fn progress(&mut self, progress: f64) {
        let params = json!({"progressToken": self.body["id"], "progress": progress});
        self.event(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
    }

    /// The final event, and the end of the stream.
    pub(crate) fn answer(&mut self, text: &str) {
        let result = json!({"resultType": "complete", "content": [{"type": "text", "text": text}]});
        self.event(&json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result}));
        self.end();
    }

    pub(crate) fn end(&mut self) {
        self.send("0\r\n\r\n");
    }

    /// Waits until the client has closed the connection; nothing may have come before.
    pub(crate) fn hears_the_end(self) {
        let requests = self.closed.lock().expect("no panic").recv_timeout(GUARD).expect("it is closed");
        assert_eq!(requests, self.nth, "the client sent more");
    }

    /// Waits until the client has closed the connection, whatever came before on it.
    pub(crate) fn closed_at_last(self) {
        let mut closed = [0];
        let _hung_up = self.stream.set_read_timeout(Some(GUARD));
        // Its thread reads it; at its end both do.
        assert_eq!(self.stream.peek(&mut closed).expect("it is closed"), 0);
    }

    /// Cuts the connection.
    pub(crate) fn cut(self) {
        let _gone_already = self.stream.shutdown(Shutdown::Both);
    }
}

/// Our server in this process, until its runtime ends.
pub(crate) async fn serve(tools: Tools, config: ServeConfig) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(Server::new(tools, config).serve(listener));
    format!("http://{address}/mcp")
}
