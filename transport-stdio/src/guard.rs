//! Standard output belongs to the protocol: whatever else the process prints must not get there (rule S1).

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdin, dup2_stdout, stderr, stdin, stdout};

/// Sends what the process, its libraries and its children write to descriptor 1 to standard error, and keeps the real
/// standard output aside. Dropping it puts things back.
///
/// [`run_stdio`](crate::run_stdio) and [`serve_stdio`](crate::serve_stdio) do this by themselves unless
/// [`StdioConfig::guard_stdout`](crate::StdioConfig::guard_stdout) is off. Install it by hand, first of all, if something
/// prints before they run: it keeps that off the channel too.
#[derive(Debug)]
pub struct StdoutGuard {
    real: OwnedFd,
}

impl StdoutGuard {
    /// Moves descriptor 1. What was printed before leaves first.
    ///
    /// # Errors
    /// A standard stream is closed, or the process is out of descriptors.
    pub fn install() -> io::Result<Self> {
        io::stdout().flush()?;
        // Children must not inherit the channel: one that outlives the server would keep it open.
        let real = fcntl_dupfd_cloexec(stdout(), FIRST_FREE)?;
        dup2_stdout(stderr())?;
        Ok(Self { real })
    }
}

/// Above the standard streams, so that none of them is taken if it happens to be closed.
const FIRST_FREE: i32 = 3;

impl AsFd for StdoutGuard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.real.as_fd()
    }
}

impl Drop for StdoutGuard {
    fn drop(&mut self) {
        // Half a printed line would otherwise wait in the buffer and leave on the real one.
        let _flushed = io::stdout().flush();
        let _restored = dup2_stdout(&self.real);
    }
}

/// Keeps the channel's input from whatever else reads descriptor 0, children of handlers above all, which would take
/// messages away: it is the null device until this is dropped.
#[derive(Debug)]
pub(crate) struct StdinGuard {
    real: OwnedFd,
}

impl StdinGuard {
    pub(crate) fn install() -> io::Result<Self> {
        let real = fcntl_dupfd_cloexec(stdin(), FIRST_FREE)?;
        dup2_stdin(File::open("/dev/null")?)?;
        Ok(Self { real })
    }
}

impl AsFd for StdinGuard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.real.as_fd()
    }
}

impl Drop for StdinGuard {
    fn drop(&mut self) {
        let _restored = dup2_stdin(&self.real);
    }
}
