//! A server of ours over HTTP: it says where it serves, answers single requests, and is ended with this value.

use super::dialogue::{request, result_of};
use crate::error::Error;
use crate::process::Command;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long the server may take to say where it serves, and for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running server.
pub(crate) struct Served {
    child: Child,
    /// Where to POST.
    pub(crate) url: String,
    next_id: u64,
    lines: mpsc::Receiver<String>,
}

impl Served {
    /// Starts the server and waits until it serves.
    pub(crate) fn start(command: &Command) -> Result<Self, Error> {
        let mut builder = command.builder();
        builder.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = builder.spawn().map_err(|why| command.not_started(&why))?;
        let (sender, lines) = mpsc::channel();
        if let Some(stderr) = child.stderr.take() {
            thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    // Read on without a listener: a full pipe would stop the server.
                    let _nobody_listens = sender.send(line);
                }
            });
        }
        let mut served = Self { child, url: String::new(), next_id: 1, lines };
        let line = served.heard().map_err(|why| Error::check(format!("the server does not start: {why}")))?;
        let url = line.strip_prefix("serving ").ok_or_else(|| Error::check(format!("the server says {line:?}")))?;
        served.url = url.to_string();
        Ok(served)
    }

    /// The next line that it says.
    pub(crate) fn heard(&self) -> Result<String, Error> {
        self.lines.recv_timeout(PATIENCE).map_err(|why| Error::check(format!("the server says nothing: {why}")))
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens: `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://").split('/').next().unwrap_or_default()
    }

    /// POSTs a request of revision 2026-07-28 and returns its result.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Result<Value, Error> {
        let id = self.next_id;
        self.next_id += 1;
        let name = params.get("name").and_then(Value::as_str).map(|name| format!("Mcp-Name: {name}\r\n"));
        let body = request(id, method, params).to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
             Mcp-Method: {method}\r\n{}Content-Length: {}\r\n\r\n",
            name.unwrap_or_default(),
            body.len()
        );
        let answer = self.exchange(&format!("{head}{body}"));
        let answer = answer.map_err(|why| Error::check(format!("{method}: {why}")))?;
        let body = answer.split_once("\r\n\r\n").filter(|_| answer.starts_with("HTTP/1.1 200")).map(|(_, body)| body);
        result_of(id, method, body.unwrap_or(&answer))
    }

    fn exchange(&self, text: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(text.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::Served;
    use crate::process::Command;

    #[test]
    fn a_server_must_say_where_it_serves() {
        let said =
            |script: &str| Served::start(&Command::new("sh").args(["-c", script])).map(|served| served.url.clone());
        assert_eq!(said("echo serving http://127.0.0.1:1/mcp >&2; cat").unwrap(), "http://127.0.0.1:1/mcp");
        assert!(said("echo error: no port >&2").unwrap_err().to_string().contains("no port"));
        assert!(said("exit 0").unwrap_err().to_string().contains("does not start"));
    }
}
