//! What to start, and how to end it.

use std::ffi::OsStr;
use std::path::Path;
use std::process;
use std::time::Duration;

use super::{ClientConfig, MAX_ANSWER, Restart, config};

/// A server to start: program, arguments, environment, and how it is looked after.
#[derive(Debug)]
#[must_use]
pub struct Command {
    pub(super) process: process::Command,
    pub(super) config: ClientConfig,
    pub(super) ladder: Ladder,
    pub(super) restart: Option<Restart>,
    pub(super) max_answer: usize,
    pub(super) stderr: Option<usize>,
}

/// How long each step may take before the next one follows. The first step closes standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct Ladder {
    /// From the end of its input to SIGTERM. Default 2 s.
    pub close: Duration,
    /// From SIGTERM to SIGKILL. Default 2 s.
    pub terminate: Duration,
}

impl Default for Ladder {
    fn default() -> Self {
        Self { close: Duration::from_secs(2), terminate: Duration::from_secs(2) }
    }
}

impl Command {
    /// Starts `program`, found in `PATH` if its name has no slash.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            process: process::Command::new(program),
            config: config(),
            ladder: Ladder::default(),
            restart: None,
            max_answer: MAX_ANSWER,
            stderr: Some(8 << 10),
        }
    }

    /// One more argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.process.arg(arg);
        self
    }

    /// More arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.process.args(args);
        self
    }

    /// Sets a variable of its environment, which is otherwise this process's own.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.process.env(name, value);
        self
    }

    /// Removes a variable from its environment.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.process.env_remove(name);
        self
    }

    /// Starts with an empty environment.
    pub fn env_clear(mut self) -> Self {
        self.process.env_clear();
        self
    }

    /// The directory that it runs in.
    pub fn current_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.process.current_dir(folder);
        self
    }

    /// How it is ended.
    pub fn ladder(mut self, ladder: Ladder) -> Self {
        self.ladder = ladder;
        self
    }

    /// Starts it again when it ends unexpectedly. By default it is not.
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = Some(restart);
        self
    }

    /// Longest answer that is read, in bytes; a longer one fails its own call only. Default 16 MiB. The limit for requests
    /// is [`ClientConfig::max_request`].
    pub fn max_answer(mut self, bytes: usize) -> Self {
        self.max_answer = bytes;
        self
    }

    /// How much of the end of its standard error is kept for errors, in bytes. Default 8 KiB.
    pub fn stderr_tail(mut self, bytes: usize) -> Self {
        self.stderr = Some(bytes);
        self
    }

    /// Lets it write to this process's standard error; errors then carry nothing of it.
    pub fn stderr_inherit(mut self) -> Self {
        self.stderr = None;
        self
    }

    /// The settings of the client.
    pub fn config(mut self, config: ClientConfig) -> Self {
        self.config = config;
        self
    }
}
