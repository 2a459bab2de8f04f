//! A client of one child process: the shipped client machine over blocking pipes.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant as Clock};

use steady_core::backoff::Jitter;
use steady_core::client::{CallOptions, Client, Config, Finished, Input, Outcome, Output, Transport};
use steady_core::id::{CallId, ClientId, WireId};
use steady_core::time::Instant;
use steady_sim::demo::Section;
use steady_sim::wire::{self, Answer, ToolRequest};

/// How long the demonstration waits for anything before it gives up.
const PATIENCE: Duration = Duration::from_secs(20);

struct Session {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    client: Client<ToolRequest, Answer>,
    origin: Clock,
    section: Section,
    /// The id of each call's latest attempt.
    wires: Vec<(CallId, WireId)>,
    finished: Vec<(CallId, Finished<Answer>)>,
    progress: usize,
    /// Lines of the server that were read, in order.
    read: Vec<String>,
}

impl Session {
    fn start(ledger: &Path) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "--stdio", "--ledger"])
            .arg(ledger)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| io::Error::other("the child has no output"))?;
        let (sender, lines) = mpsc::sync_channel(1024);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let client = Client::new(Instant::ZERO, Config::new(Transport::Stdio), Jitter::seeded(ClientId::new(1), 0));
        let section = Section::new("a real server, over real pipes");
        Ok(Self {
            child,
            input,
            lines,
            client,
            origin: Clock::now(),
            section,
            wires: Vec::new(),
            finished: Vec::new(),
            progress: 0,
            read: Vec::new(),
        })
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed()
    }

    fn call(&mut self, tool: &str, arguments: &str) -> io::Result<CallId> {
        let call = self.client.call(self.now(), ToolRequest::new(tool, arguments), CallOptions::default());
        let call = call.map_err(io::Error::other)?;
        self.drain()?;
        Ok(call)
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        self.section.event(format!("client -> {line}"));
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        input.write_all(format!("{line}\n").as_bytes())
    }

    /// Does what the client machine wants; when it wants to be woken.
    fn drain(&mut self) -> io::Result<Option<Instant>> {
        loop {
            match self.client.poll_output() {
                Output::Idle { wake_at } => return Ok(wake_at),
                Output::Send { call, wire, payload, .. } => {
                    self.wires.push((call, wire));
                    self.write(&payload.line(wire))?;
                }
                Output::Signal { wire, signal: _ } => self.write(&wire::cancellation(wire))?,
                Output::Progress { .. } => self.progress += 1,
                Output::Finished { call, finished } => self.finished.push((call, finished)),
                // This client neither subscribes nor follows tasks.
                Output::Listen { .. } | Output::Gap { .. } | Output::Notice { .. } | Output::Unsubscribed { .. } => {}
            }
        }
    }

    /// Runs until `done`.
    fn run_until(&mut self, done: impl Fn(&Self) -> bool) -> io::Result<()> {
        let started = Clock::now();
        loop {
            let wake_at = self.drain()?;
            if done(self) {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not answer"));
            }
            let wait = wake_at.map_or(PATIENCE, |at| at.saturating_since(self.now())).min(PATIENCE);
            match self.lines.recv_timeout(wait) {
                Ok(line) => {
                    self.section.event(format!("       <- {line}"));
                    if let Some(input) = wire::read(&line) {
                        self.client.handle_input(self.now(), input);
                    }
                    self.read.push(line);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.client.handle_input(self.now(), Input::LinkLost);
                    self.drain()?;
                    return if done(self) { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
                }
            }
            self.client.handle_timeout(self.now());
        }
    }

    fn answer(&mut self, tool: &str, arguments: &str) -> io::Result<String> {
        let call = self.call(tool, arguments)?;
        self.run_until(|session| session.outcome(call).is_some())?;
        match self.outcome(call) {
            Some(Outcome::Answered(answer)) => Ok(answer.text().to_owned()),
            other => Err(io::Error::other(format!("{tool} was not answered: {other:?}"))),
        }
    }

    fn exit(&mut self) -> io::Result<ExitStatus> {
        let started = Clock::now();
        while started.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not exit at the end of its input"))
    }

    fn outcome(&self, call: CallId) -> Option<&Outcome<Answer>> {
        self.finished.iter().find(|(finished, _)| *finished == call).map(|(_, finished)| &finished.outcome)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Reached with a child that still runs only when something failed before.
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Reserves with a key, retries under a new id, cancels a running count, and ends the server by closing its input.
pub(crate) fn session(dir: &Path) -> io::Result<Section> {
    let mut session = Session::start(&dir.join("live.db"))?;
    let order = r#"{"sku":"gadget","quantity":2,"tenant":"acme","idempotencyKey":"order-7"}"#;
    let first = session.answer("reserve_inventory", order)?;
    let second = session.answer("reserve_inventory", order)?;
    let reservation = |text: &str| field(text, "reservationId");
    session.section.claim(
        "the retry under a new id got the first reservation back",
        (reservation(&second), field(&second, "replayed")),
        (reservation(&first), Some("true".to_owned())),
    );

    let count = session.call("slow_count", r#"{"to":1000,"interval_ms":20}"#)?;
    session.run_until(|session| session.progress >= 3)?;
    session.client.cancel(session.now(), count);
    session.drain()?;
    let cancelled = session.outcome(count) == Some(&Outcome::Cancelled);
    session.section.claim("the cancelled call is settled at once", cancelled, true);
    let before = session.read.len();
    let found = session.answer("get_reservation", r#"{"idempotencyKey":"order-7"}"#)?;
    session.section.claim("the server lives: the next call is answered", field(&found, "executions"), Some("1".into()));
    // Once the answer to a later request is here, nothing more may come for the cancelled one.
    let answered = session.read.len();
    session.answer("slow_count", r#"{"to":10,"interval_ms":20}"#)?;
    let wire = session.wires.iter().find(|(call, _)| *call == count).map_or(0, |(_, wire)| wire.number());
    let of_count = |line: &&String| {
        line.contains(&format!("\"id\":{wire},")) || line.contains(&format!("\"progressToken\":{wire},"))
    };
    let late = session.read[answered..].iter().filter(of_count).count();
    session.section.claim("nothing came for the cancelled call after that", late, 0);
    let responses = session.read[before..].iter().filter(|line| line.contains(&format!("\"id\":{wire},"))).count();
    session.section.claim("no response exists for it", responses, 0);

    session.input = None;
    let status = session.exit()?;
    session.section.event(format!("client closes its end; the server exits: {status}"));
    session.section.claim("at the end of input the server exits by itself", status.code(), Some(0));
    Ok(std::mem::replace(&mut session.section, Section::new("")))
}

/// A member of `structuredContent`, as text.
fn field(result: &str, name: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(result).ok()?;
    let member = value.get("structuredContent")?.get(name)?;
    Some(member.as_str().map_or_else(|| member.to_string(), str::to_owned))
}
