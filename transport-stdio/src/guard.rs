//! Standard output belongs to the protocol: whatever else the process prints must not get there (rule S1).

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdout, stderr, stdout};

/// Sends what the process, its libraries and its children write to descriptor 1 to standard error, and keeps the real
/// standard output aside. Dropping it puts things back.
///
/// [`run_stdio`](crate::run_stdio) and [`serve_stdio`](crate::serve_stdio) do this by themselves unless
/// [`StdioConfig::guard_stdout`](crate::StdioConfig::guard_stdout) is off. Install it by hand, first of all, if something
/// prints before they run: it keeps that off the channel too.
///
/// Descriptor 0 stays as it is: a child that a handler starts without saying otherwise inherits the channel's input, and
/// what it reads there the server does not see. Give it [`Stdio::null`](std::process::Stdio::null) or a pipe.
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
