//! A server that is looked at from outside, and a stub that must pass nothing.

use crate::error::Error;
use crate::http::{Answer, GUARD, Head, Peer, call, headers, post, text};
use crate::process::Command;
use crate::verify::served::Served;
use serde_json::{Value, json};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Where a server is, and its process if it has one of its own.
pub(super) struct Subject {
    process: Option<u32>,
    pub(super) address: String,
}

pub(super) fn why(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Subject {
    /// Starts it; it is there as long as the first value.
    pub(super) fn start(command: &Command) -> Result<(Served, Self), Error> {
        let served = Served::start(command)?;
        let subject = Self { process: Some(served.process()), address: served.address().to_string() };
        // Some say where they serve a moment before they do.
        let since = Instant::now();
        while subject.say("echo", json!({"text": "hi"})).is_err() && since.elapsed() < GUARD {
            thread::sleep(Duration::from_millis(50));
        }
        Ok((served, subject))
    }

    pub(super) fn stub(stub: &Stub) -> Self {
        Self { process: None, address: stub.address.clone() }
    }

    /// Sends this text and reads the whole answer.
    pub(super) fn exchange(&self, text: &str) -> Result<Answer, String> {
        Peer::exchange(&self.address, text).map_err(why)
    }

    pub(super) fn post(&self, message: &Value) -> Result<Answer, String> {
        self.exchange(&post(&self.address, message))
    }

    /// The same with these headers instead of, or besides, the usual ones; an empty value leaves one out.
    pub(super) fn post_with(&self, message: &Value, other: &[(&str, &str)]) -> Result<Answer, String> {
        self.send("POST", &message.to_string(), headers(message), other)
    }

    /// Any body as a POST with the headers of `like`.
    pub(super) fn post_text(&self, body: &str, like: &Value) -> Result<Answer, String> {
        self.send("POST", body, headers(like), &[])
    }

    pub(super) fn send(
        &self,
        verb: &str,
        body: &str,
        mut headers: Vec<(String, String)>,
        other: &[(&str, &str)],
    ) -> Result<Answer, String> {
        headers.retain(|(name, _)| !other.iter().any(|(replaced, _)| replaced.eq_ignore_ascii_case(name)));
        let host = other.iter().find(|(name, _)| *name == "Host").map_or(self.address.as_str(), |(_, host)| host);
        let more = other.iter().filter(|(name, value)| *name != "Host" && !value.is_empty());
        headers.extend(more.map(|(name, value)| ((*name).to_string(), (*value).to_string())));
        self.exchange(&text(verb, host, &headers, body))
    }

    /// The text that a tool answers with.
    pub(super) fn say(&self, tool: &str, arguments: Value) -> Result<String, String> {
        let answer = self.post(&call("said", tool, arguments))?;
        text_of(&answer.message().unwrap_or_default(), &answer)
    }

    /// Opens a stream with this message: its head has been read, and is that of a stream.
    pub(super) fn stream(&self, message: &Value) -> Result<(Peer, Head), String> {
        let mut peer = Peer::connect(&self.address).map_err(why)?;
        peer.send(&post(&self.address, message)).map_err(why)?;
        let head = peer.head().map_err(why)?;
        if head.status != 200 || !head.is_stream() {
            return Err(format!("{} and no stream", head.status));
        }
        Ok((peer, head))
    }

    /// Asks the server to end.
    pub(super) fn terminate(&self) -> Result<(), String> {
        let process = self.process.ok_or("there is no process to end")?;
        let asked = Command::new("kill").args([process.to_string()]).works();
        if asked { Ok(()) } else { Err("the process cannot be asked to end".to_string()) }
    }
}

fn text_of(message: &Value, answer: &Answer) -> Result<String, String> {
    let text = message["result"]["content"][0]["text"].as_str();
    text.map(String::from).ok_or_else(|| format!("{}: {}", answer.head.status, answer.body))
}

/// The next message of a stream that is not at its end.
pub(super) fn next(peer: &mut Peer) -> Result<Value, String> {
    peer.message().map_err(why)?.ok_or_else(|| "the stream ends".to_string())
}

/// Fails with what was seen.
pub(super) fn ensure(holds: bool, seen: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(seen()) }
}

/// A server that answers 404 to everything.
pub(super) struct Stub {
    address: String,
    over: Arc<AtomicBool>,
}

impl Stub {
    pub(super) fn start() -> Result<Self, Error> {
        let failed = |why: io::Error| Error::check(format!("no stub: {why}"));
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?.to_string();
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                thread::spawn(move || refuse(stream));
            }
        });
        Ok(Self { address, over })
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _woken = TcpStream::connect(&self.address);
    }
}

fn refuse(mut stream: TcpStream) {
    use io::{Read as _, Write as _};
    let _gone = stream.write_all(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let _read = stream.set_read_timeout(Some(Duration::from_secs(1))).and_then(|()| {
        // What is not read would turn the answer into a reset.
        let mut bytes = [0; 4096];
        while stream.read(&mut bytes)? > 0 {}
        Ok(())
    });
}
