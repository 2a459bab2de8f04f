//! A short dialogue with a server over its standard input and output, with a
//! deadline on everything, so that a silent server fails a step and does not
//! hang it.

use crate::error::Error;
use crate::process::Command;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long it may take to leave after its input closed.
const EXIT: Duration = Duration::from_secs(2);

/// A running server.
pub(crate) struct Dialogue {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    next_id: u64,
}

impl Dialogue {
    /// Starts the server.
    pub(crate) fn start(command: &Command) -> Result<Self, Error> {
        let mut builder = command.builder();
        builder.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = builder.spawn().map_err(|why| command.not_started(&why))?;
        let stdin = child.stdin.take();
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                let all = BufReader::new(stdout).lines().map_while(Result::ok);
                // The receiver is gone when the dialogue is over.
                all.map(|line| sender.send(line)).take_while(Result::is_ok).for_each(drop);
            });
        }
        Ok(Self { child, stdin, lines, next_id: 1 })
    }

    /// Sends a request of revision 2026-07-28 and returns its result.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Result<Value, Error> {
        let id = self.next_id;
        self.next_id += 1;
        let request = request(id, method, params);
        let Some(stdin) = &mut self.stdin else { return Err(Error::check("the dialogue is over")) };
        let sent = writeln!(stdin, "{request}").and_then(|()| stdin.flush());
        sent.map_err(|why| Error::check(format!("{method}: the server does not read: {why}")))?;
        let line = self.lines.recv_timeout(ANSWER);
        let line = line.map_err(|why| Error::check(format!("{method}: no answer within {ANSWER:?}: {why}")))?;
        result_of(id, method, &line)
    }

    /// Closes the server's input; it must leave by itself, with exit code 0.
    pub(crate) fn close(mut self) -> Result<Duration, Error> {
        drop(self.stdin.take());
        let closed = Instant::now();
        while closed.elapsed() < EXIT {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(closed.elapsed()),
                Ok(Some(status)) => return Err(Error::check(format!("at end of input the server ends with {status}"))),
                Ok(None) => thread::sleep(Duration::from_millis(1)),
                Err(why) => return Err(Error::check(format!("the server cannot be waited for: {why}"))),
            }
        }
        Err(Error::check(format!("the server is still there {EXIT:?} after the end of its input")))
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        // Both fail when it has left already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn request(id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"] = serde_json::json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "xtask", "version": "0" },
    });
    serde_json::json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(super) fn result_of(id: u64, method: &str, line: &str) -> Result<Value, Error> {
    let said = || Error::check(format!("{method}: expected the result of request {id}, got {line}"));
    let answer: Value = serde_json::from_str(line).map_err(|_| said())?;
    let ours = answer.get("id").and_then(Value::as_u64) == Some(id);
    answer.get("result").filter(|_| ours).cloned().ok_or_else(said)
}

#[cfg(test)]
mod tests {
    use super::{Dialogue, result_of};
    use crate::process::Command;
    use serde_json::json;

    fn shell(script: &str) -> Dialogue {
        Dialogue::start(&Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn an_answer_is_the_result_of_the_request() {
        let mut server = shell(r#"read line; echo '{"id":1,"result":{"a":2}}'; cat >/dev/null"#);
        assert_eq!(server.ask("x", json!({})).unwrap(), json!({"a": 2}));
        server.close().unwrap();
    }

    #[test]
    fn anything_else_is_refused() {
        for line in [r#"{"id":2,"result":{}}"#, r#"{"id":1,"error":{}}"#, "hello", r#"{"result":{}}"#] {
            assert!(result_of(1, "x", line).is_err(), "{line}");
        }
        assert!(result_of(1, "x", r#"{"id":1,"result":{}}"#).is_ok());
    }

    #[test]
    fn a_bad_end_is_told() {
        assert!(shell("cat >/dev/null; exit 3").close().unwrap_err().to_string().contains("exit status: 3"));
        assert!(shell("exit 0").ask("x", json!({})).is_err());
    }
}
