//! What the steps of one run share: the workspace, the log of the current
//! step, the commands it has printed, and the test results for the statements.

use super::proxies::Measured;
use super::statements::{Statement, judge};
use super::test_log::TestResults;
use crate::cargo::Workspace;
use crate::console::Console;
use crate::error::Error;
use crate::process::{Command, Finished, Sink};
use std::fs::File;
use std::path::PathBuf;

/// One run of `verify`.
pub(crate) struct Context {
    pub(crate) workspace: Workspace,
    /// What the test step saw, if it ran.
    pub(crate) tests: Option<TestResults>,
    /// What the step `proxies` has measured, if it ran.
    pub(crate) proxies: Option<Vec<Measured>>,
    console: Console,
    live: Option<Console>,
    logs: PathBuf,
    log: PathBuf,
    sink: Sink,
    commands: Vec<String>,
}

impl Context {
    /// A run that talks to `console` and, if asked, shows all output live.
    pub(crate) fn new(workspace: Workspace, console: Console, live: Option<Console>) -> Result<Self, Error> {
        let logs = workspace.scratch("verify")?;
        let log = logs.join("start.log");
        let (tests, proxies, sink, commands) = (None, None, Sink::default(), Vec::new());
        Ok(Self { workspace, tests, proxies, console, live, logs, log, sink, commands })
    }

    /// Where to talk to the reader.
    pub(crate) fn console(&self) -> Console {
        self.console
    }

    /// Starts the log of a step.
    pub(crate) fn open_log(&mut self, step: &str) -> Result<(), Error> {
        self.log = self.logs.join(format!("{step}.log"));
        let file = File::create(&self.log).map_err(Error::file(&self.log))?;
        self.sink = Sink::new(file, self.live);
        Ok(())
    }

    /// Prints what is about to run.
    pub(crate) fn announce(&mut self, line: &str) {
        self.console.say(&format!("   $ {line}"));
        self.sink.line(&format!("$ {line}"));
        self.commands.push(line.to_string());
    }

    /// Prints and logs a line that belongs to the result of the step.
    pub(crate) fn say(&mut self, text: &str) {
        self.show(text);
        self.sink.line(text);
    }

    /// Prints a line that the log has already.
    pub(crate) fn show(&mut self, text: &str) {
        self.console.say(&format!("   {text}"));
    }

    /// Prints and runs a command; how it ends is for the caller.
    pub(crate) fn attempt(&mut self, command: &Command) -> Result<Finished, Error> {
        self.announce(&command.to_string());
        command.clone().run(&self.sink)
    }

    /// Prints and runs a command that must succeed.
    pub(crate) fn run(&mut self, command: &Command) -> Result<Finished, Error> {
        let done = self.attempt(command)?;
        done.checked(command)?;
        Ok(done)
    }

    /// Prints and runs a line without quotes that must succeed.
    pub(crate) fn line(&mut self, line: &str) -> Result<Finished, Error> {
        self.run(&Command::line(line))
    }

    /// The commands of the step that has just ended.
    pub(crate) fn take_commands(&mut self) -> String {
        std::mem::take(&mut self.commands).join(" && ")
    }

    /// The error, what the log says of errors, and its last lines.
    pub(crate) fn failure(&self, error: &Error, lines: usize) -> String {
        self.sink.line(&format!("error: {error}"));
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        format!("{}{}\n   log: {}", errors(&log), tail(&log, lines), self.log.display())
    }

    /// The 12 statements against what the tests said.
    pub(crate) fn statements(&self) -> Vec<Statement> {
        self.tests.as_ref().map(judge).unwrap_or_default()
    }
}

/// The lines that name an error or a failed test, first: a reader who is shown only the beginning has them.
fn errors(text: &str) -> String {
    const SHOWN: usize = 20;
    let names_one = |line: &&str| {
        line.starts_with("error") || line.trim_start().starts_with("FAIL [") || line.ends_with(" ... FAILED")
    };
    text.lines().filter(names_one).take(SHOWN).map(|line| format!("   ! {line}\n")).collect()
}

/// The last `lines` lines, set off from the rest, without the good news: what
/// is compiled and which test passes.
fn tail(text: &str, lines: usize) -> String {
    let news = ["   Compiling ", "    Checking ", " Documenting ", "        PASS ["];
    let is_news = |line: &str| news.iter().any(|word| line.starts_with(word)) || line.ends_with(" ... ok");
    let all: Vec<&str> = text.lines().filter(|line| !is_news(line)).collect();
    let from = all.len().saturating_sub(lines);
    let shown: Vec<String> = all[from..].iter().map(|line| format!("   | {line}")).collect();
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::{errors, tail};

    #[test]
    fn errors_are_told_first() {
        let log = "   Compiling x v1\nwarning: w\nerror: no space\n        FAIL [ 1.0s] a b\ntest x ... FAILED\ntest y ... ok\n";
        assert_eq!(errors(log), "   ! error: no space\n   !         FAIL [ 1.0s] a b\n   ! test x ... FAILED\n");
    }

    #[test]
    fn the_tail_is_the_end_of_the_log() {
        assert_eq!(tail("a\nb\nc\n", 2), "   | b\n   | c");
        assert_eq!(tail("a\n", 9), "   | a");
        assert_eq!(tail("a\n   Compiling x v1\ntest x ... ok\nb\n", 2), "   | a\n   | b");
        assert_eq!(tail("", 9), "");
    }
}
