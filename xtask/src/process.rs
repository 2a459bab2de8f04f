//! Running programs: standard input is closed, both outputs go to a log, and
//! the line that a person would type is known before the program starts.

use crate::console::Console;
use crate::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

/// A program, its arguments and what it sees of the environment.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    program: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl Command {
    /// A program without arguments.
    pub(crate) fn new(program: impl AsRef<Path>) -> Self {
        let program = program.as_ref().display().to_string();
        Self { program, args: Vec::new(), env: Vec::new() }
    }

    /// A line without quotes, split at its spaces.
    pub(crate) fn line(line: &str) -> Self {
        let mut words = line.split_whitespace();
        Self::new(words.next().unwrap_or_default()).args(words)
    }

    /// Adds one argument.
    pub(crate) fn arg(self, arg: impl AsRef<Path>) -> Self {
        let arg = arg.as_ref().display().to_string();
        self.args([arg])
    }

    /// Adds arguments.
    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_string()));
        self
    }

    /// This command as the last arguments of another one, which starts it.
    pub(crate) fn behind(self, other: Self) -> Self {
        let Self { program, args, env } = self;
        let mut whole = other.args([program]).args(args);
        whole.env.extend(env);
        whole
    }

    /// Sets a variable for the program.
    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_string(), value.into()));
        self
    }

    /// The standard library's builder for this, for other ways to run it.
    pub(crate) fn builder(&self) -> std::process::Command {
        let mut builder = std::process::Command::new(&self.program);
        builder.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        // Logs are read as text.
        builder.env("CARGO_TERM_COLOR", "never").env("NO_COLOR", "1").env("TERM", "dumb");
        builder.stdin(Stdio::null());
        builder
    }

    /// Why this program did not start.
    pub(crate) fn not_started(&self, why: &std::io::Error) -> Error {
        Error::Spawn { program: self.program.clone(), why: why.to_string() }
    }

    /// Runs it and keeps what it says, without a log.
    pub(crate) fn capture(&self) -> Result<Finished, Error> {
        self.run(&Sink::default())
    }

    /// Whether it starts and ends well, whatever it says.
    pub(crate) fn works(&self) -> bool {
        self.capture().is_ok_and(|done| done.success)
    }

    /// Runs it to its end; what it says goes to the sink as it comes.
    pub(crate) fn run(&self, sink: &Sink) -> Result<Finished, Error> {
        let mut builder = self.builder();
        builder.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = builder.spawn().map_err(|why| self.not_started(&why))?;
        let both = Mutex::new(String::new());
        let mut stdout = String::new();
        let (out, err) = (child.stdout.take(), child.stderr.take());
        std::thread::scope(|scope| {
            scope.spawn(|| copy_lines(err, sink, &both, None));
            copy_lines(out, sink, &both, Some(&mut stdout));
        });
        let status = child.wait().map_err(|why| self.not_started(&why))?;
        let all = both.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Finished { success: status.success(), status: status.to_string(), stdout, all })
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&quoted(&self.program))?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

/// As a shell would want it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) success: bool,
    status: String,
    pub(crate) stdout: String,
    /// Both outputs, line by line in the order of their arrival.
    pub(crate) all: String,
}

impl Finished {
    /// Its standard output, or the error that it was.
    pub(crate) fn success_or_exit(self, line: &str) -> Result<String, Error> {
        if self.success {
            return Ok(self.stdout);
        }
        let status = format!("{}\n{}", self.status, self.all.trim_end());
        Err(Error::Exit { line: line.to_string(), status: status.trim_end().to_string() })
    }

    /// The same without the output, for a run whose log is kept.
    pub(crate) fn checked(&self, command: &Command) -> Result<(), Error> {
        if self.success {
            return Ok(());
        }
        Err(Error::Exit { line: command.to_string(), status: self.status.clone() })
    }
}

/// Where the lines of a program go.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    log: Option<Mutex<File>>,
    live: Option<Console>,
}

impl Sink {
    /// A log file, and a console for those who want to watch.
    pub(crate) fn new(log: File, live: Option<Console>) -> Self {
        Self { log: Some(Mutex::new(log)), live }
    }

    /// Writes one line.
    pub(crate) fn line(&self, text: &str) {
        if let Some(log) = &self.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            // A full disk must not hide the result of the step.
            let _ = writeln!(log, "{text}");
        }
        if let Some(console) = self.live {
            console.say(text);
        }
    }
}

fn copy_lines(from: Option<impl Read>, sink: &Sink, both: &Mutex<String>, mut only: Option<&mut String>) {
    let Some(from) = from else { return };
    let mut reader = BufReader::new(from);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        sink.line(text);
        let mut both = both.lock().unwrap_or_else(PoisonError::into_inner);
        both.push_str(text);
        both.push('\n');
        if let Some(only) = only.as_deref_mut() {
            only.push_str(text);
            only.push('\n');
        }
        bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Command;

    #[test]
    fn the_line_can_be_pasted_into_a_shell() {
        let command = Command::line("cargo doc --workspace").env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(command.to_string(), "RUSTDOCFLAGS='-D warnings' cargo doc --workspace");
        let quote = Command::new("echo").args(["it's", "", "bench *"]);
        assert_eq!(quote.to_string(), r"echo 'it'\''s' '' 'bench *'");
    }

    #[test]
    fn one_command_can_start_another() {
        let inner = Command::line("nginx -c file").env("HOME", "h");
        assert_eq!(inner.behind(Command::line("setpriv --x")).to_string(), "HOME=h setpriv --x nginx -c file");
    }

    #[test]
    fn both_outputs_are_kept_and_one_is_told_apart() {
        let done = Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]).capture();
        let done = done.unwrap();
        assert!(!done.success);
        assert_eq!(done.stdout, "out\n");
        assert_eq!(done.all.lines().count(), 2);
        let said = done.success_or_exit("sh").unwrap_err().to_string();
        assert!(said.contains("exit status: 3") && said.contains("err"), "{said}");
    }

    #[test]
    fn standard_input_is_closed() {
        assert_eq!(Command::new("cat").capture().unwrap().stdout, "");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Command::new("no-such-program").capture().unwrap_err().to_string();
        assert!(error.contains("`no-such-program` does not start"), "{error}");
        assert!(!Command::new("no-such-program").works());
    }
}
