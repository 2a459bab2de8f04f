//! One client for every server: a child process, its lines, and what it cost.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The system's monotonic clock, which two processes share, in nanoseconds.
pub(crate) fn nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)).unwrap_or(0)
}

/// A program that serves.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: std::path::PathBuf,
    pub(crate) mode: &'static str,
}

impl Program {
    /// This program in a mode of its own.
    pub(crate) fn own(mode: &'static str) -> io::Result<Self> {
        Ok(Self { path: std::env::current_exe()?, mode })
    }
}

pub(crate) struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    line: String,
    request: String,
}

impl Server {
    pub(crate) fn start(program: &Program) -> io::Result<Self> {
        let mut child = Command::new(&program.path)
            .arg(program.mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::with_capacity(1 << 20, output.ok_or(io::ErrorKind::BrokenPipe)?);
        let mut server = Self { child, input, output, line: String::new(), request: String::new() };
        server.request(0, "server/discover", "", false)?;
        server.read()?;
        Ok(server)
    }

    fn request(&mut self, id: u64, method: &str, params: &str, token: bool) -> io::Result<()> {
        use std::fmt::Write as _;
        self.request.clear();
        let _written = write!(
            self.request,
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{{params}\
             \"_meta\":{{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
             \"io.modelcontextprotocol/clientInfo\":{{\"name\":\"bench\",\"version\":\"1\"}},\
             \"io.modelcontextprotocol/clientCapabilities\":{{}}"
        );
        if token {
            let _written = write!(self.request, ",\"progressToken\":{id}");
        }
        self.request.push_str("}}}\n");
        self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(self.request.as_bytes())
    }

    /// Sends a call.
    pub(crate) fn call(&mut self, id: u64, tool: &str, arguments: &str, token: bool) -> io::Result<()> {
        self.request(id, "tools/call", &format!("\"name\":\"{tool}\",\"arguments\":{arguments},"), token)
    }

    pub(crate) fn cancel(&mut self, id: u64) -> io::Result<()> {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id}}}}}\n"
        );
        self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(line.as_bytes())
    }

    /// The next line.
    pub(crate) fn read(&mut self) -> io::Result<&str> {
        self.line.clear();
        if self.output.read_line(&mut self.line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(&self.line)
    }

    /// Sends a call and reads one line: its answer, or its first progress.
    pub(crate) fn round_trip(&mut self, id: u64, tool: &str, arguments: &str, token: bool) -> io::Result<&str> {
        self.call(id, tool, arguments, token)?;
        self.read()
    }

    /// What the server has used so far, in nanoseconds, all threads together.
    pub(crate) fn cpu(&self) -> io::Result<f64> {
        let mut total = 0.0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            total += text.split_whitespace().next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0);
        }
        Ok(total)
    }

    /// Closes the input; how long the server lives on.
    pub(crate) fn end(mut self) -> io::Result<Duration> {
        let start = Instant::now();
        drop(self.input.take());
        let status = self.child.wait()?;
        let took = start.elapsed();
        if status.success() { Ok(took) } else { Err(io::Error::other(format!("the server ended with {status}"))) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// The value that this part of them is below or at.
pub(crate) fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index into what is there"
    )]
    let at = ((values.len() - 1) as f64 * part) as usize;
    values[at]
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    quantile(&mut values, 0.5)
}
