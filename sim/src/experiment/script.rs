//! The text form of an experiment: one step a line.

use std::fmt;
use std::time::Duration;

use steady_core::client::Transport;

/// What happens in an experiment.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_structs, reason = "plain data: what the text says")]
pub struct Script {
    /// The transport between client and server. Default stdio.
    pub transport: Transport,
    /// How long a message takes, one way. Default 1 ms.
    pub latency: Duration,
    /// What happens, in order; a step takes no time, but for [`Step::Wait`].
    pub steps: Vec<Step>,
    /// The line of each step, for errors.
    pub lines: Vec<usize>,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "a stage does each")]
pub enum Step {
    /// The application calls a tool. Its handler waits for the steps below.
    Call {
        /// The name of the request.
        name: String,
        /// The client's idle limit; the usual one is 30 s.
        idle: Limit,
        /// The client's maximum; the usual one is 5 minutes.
        max: Limit,
        /// The caller's contract. Default unsafe.
        contract: Promise,
        /// Attempts at most, the first included; `None` is the client's default of 3.
        attempts: Option<u16>,
    },
    /// The handler reports progress: one more than before.
    Progress(String),
    /// The handler returns a result.
    Complete(String),
    /// The handler returns an error.
    Fail(String),
    /// The application gives the request up; the client tells the server in the transport's way.
    Cancel(String),
    /// The network breaks the response stream of a request (HTTP only).
    Break(String),
    /// Time passes.
    Wait(Duration),
}

/// How long a client waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "what a script can say")]
pub enum Limit {
    /// As long as the client does by itself.
    #[default]
    Usual,
    /// For ever.
    None,
    /// So long.
    After(Duration),
}

impl Limit {
    /// As the client has it, whose default is `usual`.
    #[must_use]
    pub fn or(self, usual: Option<Duration>) -> Option<Duration> {
        match self {
            Self::Usual => usual,
            Self::None => None,
            Self::After(length) => Some(length),
        }
    }

    fn parse(text: &str) -> Result<Self, ScriptError> {
        if text == "none" { Ok(Self::None) } else { parse_duration(text).map(Self::After) }
    }
}

/// What the caller of a request promises about repeating it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the three contracts")]
pub enum Promise {
    /// Nothing.
    #[default]
    Unsafe,
    /// It only reads.
    Safe,
    /// It runs once for this key.
    Key(String),
}

/// Why a text is no experiment, or a step is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    line: Option<usize>,
    what: String,
}

impl ScriptError {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { line: None, what: what.into() }
    }

    /// The same, with the line if it has none.
    pub(super) fn at(mut self, line: Option<usize>) -> Self {
        self.line = self.line.or(line);
        self
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for ScriptError {}

/// Most steps of an experiment.
const STEPS: usize = 10_000;

const WORDS: [&str; 9] = ["transport", "latency", "call", "progress", "complete", "fail", "cancel", "break", "wait"];

impl Script {
    /// Reads an experiment. Empty lines and what follows a `#` are skipped.
    ///
    /// ```text
    /// transport http          # or stdio, the default
    /// latency 5ms             # one way; default 1ms
    /// call A idle 30s max 5m  # or `none`; also `safe` or `key order-7`, the contract, and `attempts 1`
    /// progress A              # the handler reports
    /// wait 20ms
    /// cancel A                # the application gives it up
    /// complete A              # the handler returns its result; `fail A` an error
    /// break A                 # the network breaks its response stream (HTTP)
    /// ```
    ///
    /// # Errors
    /// [`ScriptError`] with the line, the word, and what was expected.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut script =
            Self { transport: Transport::Stdio, latency: Duration::from_millis(1), steps: vec![], lines: vec![] };
        for (line, number) in text.lines().zip(1..) {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            script.line(&words, number).map_err(|error| error.at(Some(number)))?;
        }
        Ok(script)
    }

    fn line(&mut self, words: &[&str], number: usize) -> Result<(), ScriptError> {
        let Some((word, rest)) = words.split_first() else { return Ok(()) };
        let step = match *word {
            "transport" => return self.settle(rest, number),
            "latency" => {
                if !self.steps.is_empty() {
                    return Err(ScriptError::new("`latency` belongs before the first step"));
                }
                self.latency = one(word, rest).and_then(parse_duration)?;
                return Ok(());
            }
            "call" => call(rest)?,
            "progress" => Step::Progress(one(word, rest)?.into()),
            "complete" => Step::Complete(one(word, rest)?.into()),
            "fail" => Step::Fail(one(word, rest)?.into()),
            "cancel" => Step::Cancel(one(word, rest)?.into()),
            "break" if self.transport == Transport::Http => Step::Break(one(word, rest)?.into()),
            "break" => {
                return Err(ScriptError::new("`break` needs `transport http`: on stdio no request has a stream"));
            }
            "wait" => Step::Wait(one(word, rest).and_then(parse_duration)?),
            other => return Err(unknown(other, &WORDS)),
        };
        if self.steps.len() == STEPS {
            return Err(ScriptError::new(format!("an experiment has {STEPS} steps at most")));
        }
        self.steps.push(step);
        self.lines.push(number);
        Ok(())
    }

    fn settle(&mut self, rest: &[&str], _: usize) -> Result<(), ScriptError> {
        if !self.steps.is_empty() {
            return Err(ScriptError::new("`transport` belongs before the first step"));
        }
        self.transport = match one("transport", rest)? {
            "stdio" => Transport::Stdio,
            "http" => Transport::Http,
            other => return Err(unknown(other, &["stdio", "http"])),
        };
        Ok(())
    }
}

fn call(rest: &[&str]) -> Result<Step, ScriptError> {
    let Some((name, options)) = rest.split_first() else {
        return Err(ScriptError::new("`call` wants the name of a request, as `call A`"));
    };
    let (mut idle, mut max, mut contract, mut attempts) = (Limit::Usual, Limit::Usual, Promise::Unsafe, None);
    let mut words = options.iter();
    while let Some(option) = words.next() {
        let mut value = || words.next().ok_or_else(|| ScriptError::new(format!("`{option}` wants a value")));
        match *option {
            "idle" => idle = Limit::parse(value()?)?,
            "max" => max = Limit::parse(value()?)?,
            "attempts" => attempts = Some(count(value()?)?),
            "key" => contract = Promise::Key((*value()?).into()),
            "safe" => contract = Promise::Safe,
            other => return Err(unknown(other, &["idle", "max", "key", "safe", "attempts"])),
        }
    }
    Ok(Step::Call { name: (*name).into(), idle, max, contract, attempts })
}

fn count(text: &str) -> Result<u16, ScriptError> {
    let read = text.parse().ok().filter(|count| *count > 0);
    read.ok_or_else(|| ScriptError::new(format!("`{text}` is no number of attempts; write one from 1 to {}", u16::MAX)))
}

fn one<'a>(word: &str, rest: &[&'a str]) -> Result<&'a str, ScriptError> {
    match rest {
        [only] => Ok(only),
        [] => Err(ScriptError::new(format!("`{word}` wants one word after it"))),
        [_, more, ..] => Err(ScriptError::new(format!("`{more}` is too much after `{word}`"))),
    }
}

fn unknown(word: &str, known: &[&str]) -> ScriptError {
    let near = known.iter().find(|known| crate::suggest::is_near(word, known));
    let hint = near.map_or_else(|| format!("known are {}", known.join(", ")), |near| format!("did you mean `{near}`?"));
    ScriptError::new(format!("`{word}` is unknown here; {hint}"))
}

/// Reads a length of time: a whole number and its unit, `us`, `ms`, `s`, `m`, `h` or `d`.
///
/// # Errors
/// [`ScriptError`] with the text; also for more than ten thousand days.
pub fn parse_duration(text: &str) -> Result<Duration, ScriptError> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let micros: u64 = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(ScriptError::new(format!("`{text}` is no length of time; write it as 250ms, 30s, 5m, 1h"))),
    };
    let most = 10_000 * 86_400_000_000;
    let length =
        number.parse::<u64>().ok().and_then(|number| number.checked_mul(micros)).filter(|micros| *micros <= most);
    length
        .map(Duration::from_micros)
        .ok_or_else(|| ScriptError::new(format!("`{text}` is no length of time that fits here")))
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { name, idle, max, contract, attempts } => {
                write!(f, "call {name}")?;
                for (word, limit) in [("idle", idle), ("max", max)] {
                    match limit {
                        Limit::Usual => {}
                        Limit::None => write!(f, " {word} none")?,
                        Limit::After(limit) => write!(f, " {word} {}", Length(*limit))?,
                    }
                }
                match contract {
                    Promise::Unsafe => {}
                    Promise::Safe => f.write_str(" safe")?,
                    Promise::Key(key) => write!(f, " key {key}")?,
                }
                attempts.map_or(Ok(()), |attempts| write!(f, " attempts {attempts}"))
            }
            Self::Progress(name) => write!(f, "progress {name}"),
            Self::Complete(name) => write!(f, "complete {name}"),
            Self::Fail(name) => write!(f, "fail {name}"),
            Self::Cancel(name) => write!(f, "cancel {name}"),
            Self::Break(name) => write!(f, "break {name}"),
            Self::Wait(length) => write!(f, "wait {}", Length(*length)),
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Stdio => "stdio",
            Transport::Http => "http",
        };
        writeln!(f, "transport {transport}\nlatency {}", Length(self.latency))?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

/// A length of time as [`parse_duration`] reads it.
#[must_use]
pub fn duration_text(length: Duration) -> String {
    Length(length).to_string()
}

/// See [`duration_text`].
struct Length(Duration);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        let units = [(60_000_000, "m"), (1_000_000, "s"), (1_000, "ms"), (1, "us")];
        let fits = units.iter().find(|(unit, _)| micros.is_multiple_of(*unit) && micros >= *unit);
        let (unit, name) = fits.unwrap_or(&(1, "us"));
        write!(f, "{}{name}", micros / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "transport http\nlatency 5ms\ncall A idle 30s max 5m key order-7\nprogress A\ncomplete A\n\
                       call B idle none safe attempts 1\nfail A\ncancel A\nbreak A\nwait 250us\n";

    #[test]
    fn what_is_written_is_read_again() {
        let script = Script::parse(ALL).unwrap();
        assert_eq!(script.to_string(), ALL);
        assert_eq!(Script::parse(&script.to_string()).unwrap().steps, script.steps);
    }

    #[test]
    fn comments_and_empty_lines_are_skipped_and_lines_counted() {
        let script = Script::parse("# a race\n\ncall A # the first\n  wait 1s\n").unwrap();
        assert_eq!(script.lines, [3, 4]);
    }

    #[test]
    fn errors_name_the_line_the_word_and_the_way_out() {
        let cases = [
            ("call A\ncancle A\n", "line 2: `cancle` is unknown here; did you mean `cancel`?"),
            ("call A idel 3s", "line 1: `idel` is unknown here; did you mean `idle`?"),
            ("call A idle", "line 1: `idle` wants a value"),
            ("call A attempts 0", "line 1: `0` is no number of attempts; write one from 1 to 65535"),
            ("call", "line 1: `call` wants the name of a request, as `call A`"),
            ("wait 3", "line 1: `3` is no length of time; write it as 250ms, 30s, 5m, 1h"),
            ("wait 99999999999999999999s", "line 1: `99999999999999999999s` is no length of time that fits here"),
            ("wait 20000d", "line 1: `20000d` is no length of time that fits here"),
            ("cancel A B", "line 1: `B` is too much after `cancel`"),
            ("cancel", "line 1: `cancel` wants one word after it"),
            ("call A\nbreak A", "line 2: `break` needs `transport http`: on stdio no request has a stream"),
            ("call A\ntransport http", "line 2: `transport` belongs before the first step"),
            ("call A\nlatency 1s", "line 2: `latency` belongs before the first step"),
            ("transport tcp", "line 1: `tcp` is unknown here; known are stdio, http"),
        ];
        for (text, error) in cases {
            assert_eq!(Script::parse(text).unwrap_err().to_string(), error, "{text}");
        }
    }

    #[test]
    fn an_experiment_is_bounded() {
        let text = "wait 1s\n".repeat(STEPS + 1);
        assert!(Script::parse(&text).unwrap_err().to_string().starts_with("line 10001: "));
    }
}
