//! A raw peer of the fixture server: a real child process, lines in and lines out, every wait under a hang guard.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// A hang guard, not a measure: nothing here is expected to take long.
pub(crate) const GUARD: Duration = Duration::from_secs(30);

pub(crate) fn fixture() -> Command {
    // The test runs from target/PROFILE/deps; examples are built next to it.
    let mut path: PathBuf = std::env::current_exe().expect("the path of the test");
    path.pop();
    path.pop();
    path.push("examples/fixture");
    Command::new(path)
}

pub(crate) struct Peer {
    child: Child,
    input: Option<Box<dyn Write + Send>>,
    lines: Receiver<String>,
}

impl Peer {
    pub(crate) fn spawn() -> Self {
        Self::spawn_with(&[])
    }

    /// A fixture with these arguments.
    pub(crate) fn spawn_with(arguments: &[&str]) -> Self {
        let mut child =
            fixture().args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the fixture starts");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self::over(child, input, output)
    }

    pub(crate) fn over(child: Child, input: impl Write + Send + 'static, output: impl Read + Send + 'static) -> Self {
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, input: Some(Box::new(input)), lines }
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("open");
        input.write_all(bytes).and_then(|()| input.flush()).expect("the server reads");
    }

    pub(crate) fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes());
    }

    pub(crate) fn line(&mut self) -> String {
        self.lines.recv_timeout(GUARD).expect("a line of the server")
    }

    /// All lines up to the answer with this id (JSON text), which is the last of them.
    pub(crate) fn until_answer(&mut self, id: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let line = self.line();
            let answered = line.contains(&format!("\"id\":{id},"));
            seen.push(line);
            if answered {
                return seen;
            }
        }
    }

    /// An answered call: what a client does to see that the server lives and that nothing else is to come.
    pub(crate) fn ping(&mut self, id: u32) -> Vec<String> {
        self.send(&call(id, "echo", r#"{"text":"pong"}"#));
        let lines = self.until_answer(&id.to_string());
        assert!(lines.last().is_some_and(|line| line.contains("pong")), "{lines:?}");
        lines
    }

    #[cfg(unix)]
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("a child of ours");
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_none()
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Waits for the exit, under the hang guard.
    pub(crate) fn exit(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                return status;
            }
            assert!(start.elapsed() < GUARD, "the server does not exit");
            std::thread::yield_now();
        }
    }

    /// What is left to read once the server is gone.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        self.lines.iter().collect()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

pub(crate) fn request(id: &str, method: &str, params: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}},"progressToken":{id}}}}}}}"#
    )
}

pub(crate) fn call(id: u32, tool: &str, arguments: &str) -> String {
    request(&id.to_string(), "tools/call", &format!(r#""name":"{tool}","arguments":{arguments},"#))
}

/// A call that asks for no progress.
pub(crate) fn call_quietly(id: u32, tool: &str, arguments: &str) -> String {
    call(id, tool, arguments).replace(&format!(",\"progressToken\":{id}"), "")
}

pub(crate) fn cancel(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}
