//! Another process: this test program again, to run one of its tests, which is a part and not a test by itself.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A running one.
pub(crate) struct Peer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// Starts the test of this name with these variables.
    pub(crate) fn spawn<'a>(test: &str, variables: impl IntoIterator<Item = (&'a str, &'a OsStr)>) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line; none once the process has ended.
    pub(crate) fn line(&mut self) -> Option<String> {
        self.lines.next().map(Result::unwrap)
    }

    /// The next line that starts with this word; the harness writes lines of its own.
    pub(crate) fn expect(&mut self, word: &str) -> String {
        loop {
            let line = self.line().expect("the process ended early");
            if line.starts_with(word) {
                return line;
            }
        }
    }

    /// Lets it go on: it reads one byte.
    pub(crate) fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"g").unwrap();
    }

    /// Ends it with SIGKILL. What it wrote before can still be read.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its good end.
    pub(crate) fn join(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}
