//! What stops a task, told with the thing to do next.

use std::fmt;
use std::path::PathBuf;

/// Why a task or a step did not succeed.
#[derive(Debug)]
pub(crate) enum Error {
    /// A program could not be started.
    Spawn { program: String, why: String },
    /// A program ran and said no.
    Exit { line: String, status: String },
    /// A file could not be read or written.
    File { path: PathBuf, why: String },
    /// What came back is not what it should be.
    Check(String),
    /// Several findings of the same step.
    Findings(Vec<String>),
}

impl Error {
    /// A check that does not hold.
    pub(crate) fn check(what: impl Into<String>) -> Self {
        Self::Check(what.into())
    }

    /// For `map_err` on a file operation.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |why| Self::File { path, why: why.to_string() }
    }

    /// Success if nothing was found.
    pub(crate) fn unless_empty(findings: Vec<String>) -> Result<(), Self> {
        if findings.is_empty() { Ok(()) } else { Err(Self::Findings(findings)) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawn { program, why } => {
                write!(f, "`{program}` does not start ({why}); install it or put it on PATH")
            }
            Self::Exit { line, status } => write!(f, "`{line}` ended with {status}"),
            Self::File { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Check(what) => f.write_str(what),
            Self::Findings(all) => f.write_str(&all.join("\n")),
        }
    }
}

impl std::error::Error for Error {}
