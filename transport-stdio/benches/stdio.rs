//! Calls over real pipes, and how long a server outlives its input.
//!
//! The program starts itself as the server (`serve`), and as a raw blocking one that answers every line with the same bytes
//! (`raw`): that is what the pipes and this client allow. Each row is a JSON line in the file that `STEADY_BENCH_ROWS`
//! names, or on standard output. `--test` makes one pass of each.
#![expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use steady_stdio::{Reply, Tools, run_stdio};

const SCHEMA: &str = r#"{"type":"object"}"#;

fn serve() -> ExitCode {
    let tools = Tools::new("bench", "0.0.0")
        .tool("echo", "Answers at once.", SCHEMA, |_call, _cx| async { Ok(Reply::text("hello")) })
        .tool("ignore", "Reports, then ignores its cancellation.", SCHEMA, |_call, cx| async move {
            cx.report(1.0, None, "");
            std::future::pending().await
        });
    run_stdio(tools)
}

fn raw() -> io::Result<()> {
    let (mut input, mut output) = (BufReader::new(io::stdin().lock()), io::stdout().lock());
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        output
            .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"content\":[]}}\n")?;
        output.flush()?;
        line.clear();
    }
    Ok(())
}

struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    line: String,
}

impl Server {
    fn start(mode: &str) -> io::Result<Self> {
        let mut child =
            Command::new(std::env::current_exe()?).arg(mode).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::new(output.ok_or(io::ErrorKind::BrokenPipe)?);
        Ok(Self { child, input, output, line: String::new() })
    }

    /// Sends a call and reads one line: its answer, or its first progress.
    fn round_trip(&mut self, tool: &str) -> io::Result<()> {
        let request = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":{{}},\
             \"_meta\":{{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
             \"io.modelcontextprotocol/clientCapabilities\":{{}},\"progressToken\":1}}}}}}\n"
        );
        self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(request.as_bytes())?;
        self.line.clear();
        if self.output.read_line(&mut self.line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Closes the input; how long the server lives on.
    fn end(mut self) -> io::Result<Duration> {
        let start = Instant::now();
        drop(self.input.take());
        let status = self.child.wait()?;
        let took = start.elapsed();
        if status.success() { Ok(took) } else { Err(io::Error::other(format!("the server ended with {status}"))) }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// From the end of input to the exit, in milliseconds, with a handler that ignores its cancellation.
fn end_of_input(passes: usize) -> io::Result<f64> {
    let mut took = Vec::new();
    for _ in 0..passes {
        let mut server = Server::start("serve")?;
        server.round_trip("ignore")?;
        took.push(server.end()?.as_secs_f64() * 1000.0);
    }
    Ok(median(took))
}

/// Calls a second, one at a time.
fn echo(mode: &str, calls: u32) -> io::Result<f64> {
    let mut server = Server::start(mode)?;
    for _ in 0..calls / 10 + 1 {
        server.round_trip("echo")?;
    }
    let start = Instant::now();
    for _ in 0..calls {
        server.round_trip("echo")?;
    }
    let took = start.elapsed().as_secs_f64();
    server.end()?;
    Ok(f64::from(calls) / took)
}

fn measure(test: bool) -> io::Result<()> {
    let (passes, rounds, calls) = if test { (1, 1, 10) } else { (21, 5, 20_000) };
    let mut rows: Box<dyn Write> = match std::env::var_os("STEADY_BENCH_ROWS") {
        Some(path) => Box::new(File::options().append(true).create(true).open(path)?),
        None => Box::new(io::stdout()),
    };
    let exit = end_of_input(passes)?;
    writeln!(
        rows,
        "{{\"name\":\"end of input to exit, a handler ignores it\",\"ours\":{exit},\"limit\":200,\"aim\":1,\"unit\":\"ms\"}}"
    )?;
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    // Interleaved, so that both see the same machine.
    for _ in 0..rounds {
        ours.push(echo("serve", calls)?);
        raw.push(echo("raw", calls)?);
    }
    let (ours, raw) = (median(ours), median(raw));
    writeln!(
        rows,
        "{{\"name\":\"echo, one at a time\",\"ours\":{ours},\"limit\":{raw},\"aim\":0.8,\"unit\":\"calls/s\",\"more_is_better\":true}}"
    )?;
    rows.flush()
}

fn main() -> ExitCode {
    let mode: Vec<String> = std::env::args().skip(1).collect();
    let done = match mode.first().map(String::as_str) {
        Some("serve") => return serve(),
        Some("raw") => raw(),
        _ => measure(mode.iter().any(|argument| argument == "--test")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
