//! Where the words of a task go: standard output, or standard error when
//! standard output is reserved for JSON. A closed reader is not an error.

/// One of the two standard streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Console {
    Stdout,
    Stderr,
}

impl Console {
    /// For people and logs.
    pub(crate) fn stdout() -> Self {
        Self::Stdout
    }

    /// For people, when a program reads the other stream.
    pub(crate) fn stderr() -> Self {
        Self::Stderr
    }

    /// Writes one line (or several) and flushes, so that a log is never behind.
    pub(crate) fn say(self, text: &str) {
        // Nobody may be listening: a task goes on to its end all the same.
        let _ = match self {
            Self::Stdout => line(std::io::stdout().lock(), text),
            Self::Stderr => line(std::io::stderr().lock(), text),
        };
    }
}

fn line(mut stream: impl std::io::Write, text: &str) -> std::io::Result<()> {
    writeln!(stream, "{text}")?;
    stream.flush()
}
