//! The experiment that is stepped with keys. On a terminal a key acts at once; else each byte of the input is a key.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use steady_core::client::Transport;
use steady_sim::experiment::{Limit, Promise, Stage, Step};

use crate::show;

const HELP: &str = "n new call   p progress   c complete   f fail   x cancel   b break the stream   w wait 10 ms   \
                    W wait 10 s   A-V choose a request   q quit";

/// The letters that name requests, and choose them: W is a key of its own.
const NAMES: &str = "ABCDEFGHIJKLMNOPQRSTUV";

pub(super) fn run(http: bool) -> ExitCode {
    let transport = if http { Transport::Http } else { Transport::Stdio };
    let stage = Stage::new(transport, Duration::from_millis(1));
    let terminal = Raw::enter();
    let done =
        Session { stage, requests: 0, current: None, shown: 0 }.run(io::stdin().lock(), &mut io::stdout().lock());
    drop(terminal);
    show::finished(done)
}

struct Session {
    stage: Stage,
    requests: usize,
    current: Option<char>,
    shown: usize,
}

impl Session {
    fn run(mut self, input: impl BufRead, out: &mut impl Write) -> io::Result<()> {
        write!(out, "{HELP}\r\n")?;
        for byte in input.bytes() {
            let key = char::from(byte?);
            match key {
                // In raw mode the keys of an interrupt and of the end of input are bytes.
                'q' | '\u{3}' | '\u{4}' => break,
                '\r' | '\n' | ' ' => continue,
                _ => {}
            }
            match self.step(key) {
                Ok(Some(step)) => match self.stage.step(&step) {
                    Ok(()) => self.news(out)?,
                    Err(why) => write!(out, "{why}\r\n")?,
                },
                Ok(None) => {}
                Err(why) => write!(out, "{why}\r\n")?,
            }
            out.flush()?;
        }
        for row in self.stage.finish().rows {
            write!(out, "{}\r\n", super::line(&row))?;
        }
        out.flush()
    }

    /// The step that a key stands for; `None` if it only chooses.
    fn step(&mut self, key: char) -> Result<Option<Step>, String> {
        let current =
            || self.current.map(String::from).ok_or_else(|| "there is no request yet: n makes one".to_owned());
        Ok(Some(match key {
            'n' => {
                let name = NAMES.chars().nth(self.requests).ok_or("that is all the letters there are")?;
                self.requests += 1;
                self.current = Some(name);
                Step::Call {
                    name: name.into(),
                    idle: Limit::Usual,
                    max: Limit::Usual,
                    contract: Promise::Unsafe,
                    attempts: None,
                }
            }
            'p' => Step::Progress(current()?),
            'c' => Step::Complete(current()?),
            'f' => Step::Fail(current()?),
            'x' => Step::Cancel(current()?),
            'b' if self.stage.transport() == Transport::Http => Step::Break(current()?),
            'b' => return Err("on stdio no request has a stream; start with --http".into()),
            'w' => Step::Wait(Duration::from_millis(10)),
            'W' => Step::Wait(Duration::from_secs(10)),
            name if NAMES.chars().take(self.requests).any(|known| known == name) => {
                self.current = Some(name);
                return Ok(None);
            }
            _ => return Err(HELP.into()),
        }))
    }

    /// Prints what is new.
    fn news(&mut self, out: &mut impl Write) -> io::Result<()> {
        for event in self.stage.timeline().skip(self.shown) {
            write!(out, "{event}\r\n")?;
        }
        self.shown = self.stage.timeline().count();
        write!(out, "{:>12}\r\n", self.stage.now().to_string())
    }
}

/// A terminal that hands on each key at once; as it was again when this is dropped.
#[cfg(unix)]
struct Raw(Option<rustix::termios::Termios>);

#[cfg(unix)]
impl Raw {
    fn enter() -> Self {
        use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Self(None);
        }
        let Ok(before) = tcgetattr(&stdin) else { return Self(None) };
        let mut raw = before.clone();
        raw.make_raw();
        let entered = tcsetattr(&stdin, OptionalActions::Now, &raw).is_ok();
        Self(entered.then_some(before))
    }
}

#[cfg(unix)]
impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // A terminal that is gone needs no repair.
            let _gone = rustix::termios::tcsetattr(io::stdin(), rustix::termios::OptionalActions::Now, before);
        }
    }
}

/// Elsewhere a key acts with the end of its line.
#[cfg(not(unix))]
struct Raw;

#[cfg(not(unix))]
impl Raw {
    fn enter() -> Self {
        let _lines = io::stdin().is_terminal();
        Self
    }
}
