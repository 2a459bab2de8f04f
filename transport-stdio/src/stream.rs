//! Standard input and output by what they are: none of them goes through a pool of blocking threads.
//!
//! | kind | how it is used |
//! |---|---|
//! | pipe | registered with the reactor; on Linux through a description of our own, so that the non-blocking mode is not seen by others who share it |
//! | socket (Node hosts give these) | registered with the reactor as a Unix stream |
//! | terminal, file, null device | a reader or writer thread of its own, blocking |

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

mod thread;

#[cfg(all(unix, feature = "server"))]
mod unix;

use thread::{ThreadReader, ThreadWriter};

/// Standard input.
pub(crate) enum Input {
    #[cfg(unix)]
    Pipe(tokio::net::unix::pipe::Receiver),
    #[cfg(unix)]
    Socket(tokio::net::UnixStream),
    Thread(ThreadReader),
}

/// Standard output.
pub(crate) enum Output {
    #[cfg(unix)]
    Pipe(tokio::net::unix::pipe::Sender),
    #[cfg(unix)]
    Socket(tokio::net::UnixStream),
    Thread(ThreadWriter),
}

#[cfg(all(windows, feature = "client"))]
impl Input {
    /// A stream that blocks, read by a thread of its own.
    pub(crate) fn blocking(stream: impl io::Read + Send + 'static) -> io::Result<Self> {
        ThreadReader::start(stream).map(Self::Thread)
    }
}

#[cfg(all(windows, feature = "client"))]
impl Output {
    /// A stream that blocks, written by a thread of its own.
    pub(crate) fn blocking(stream: impl io::Write + Send + 'static) -> io::Result<Self> {
        ThreadWriter::start(stream).map(Self::Thread)
    }
}

/// Opens standard input, which `guard` keeps if there is one.
#[cfg(all(unix, feature = "server"))]
pub(crate) fn standard_input(guard: Option<&crate::guard::StdinGuard>) -> io::Result<Input> {
    use std::os::fd::AsFd;
    let stdin = io::stdin();
    let stdin = guard.map_or_else(|| stdin.as_fd(), AsFd::as_fd);
    if let Some(input) = unix::input(stdin)? {
        return Ok(input);
    }
    Ok(Input::Thread(ThreadReader::start(std::fs::File::from(stdin.try_clone_to_owned()?))?))
}

/// Opens standard input.
#[cfg(all(not(unix), feature = "server"))]
pub(crate) fn standard_input() -> io::Result<Input> {
    Ok(Input::Thread(ThreadReader::start(io::stdin())?))
}

/// Opens standard output, which `guard` keeps if there is one.
#[cfg(all(unix, feature = "server"))]
pub(crate) fn standard_output(guard: Option<&crate::StdoutGuard>) -> io::Result<Output> {
    use std::os::fd::AsFd;
    let stdout = io::stdout();
    let stdout = guard.map_or_else(|| stdout.as_fd(), AsFd::as_fd);
    if let Some(output) = unix::output(stdout)? {
        return Ok(output);
    }
    Ok(Output::Thread(ThreadWriter::start(std::fs::File::from(stdout.try_clone_to_owned()?))?))
}

/// Opens standard output.
#[cfg(all(not(unix), feature = "server"))]
pub(crate) fn standard_output() -> io::Result<Output> {
    Ok(Output::Thread(ThreadWriter::start(io::stdout())?))
}

impl AsyncRead for Input {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            #[cfg(unix)]
            Self::Pipe(pipe) => Pin::new(pipe).poll_read(cx, out),
            #[cfg(unix)]
            Self::Socket(socket) => Pin::new(socket).poll_read(cx, out),
            Self::Thread(thread) => thread.poll_read(cx, out),
        }
    }
}

impl AsyncWrite for Output {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            #[cfg(unix)]
            Self::Pipe(pipe) => Pin::new(pipe).poll_write(cx, bytes),
            #[cfg(unix)]
            Self::Socket(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Thread(thread) => thread.poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // Pipes and sockets hold nothing back.
            #[cfg(unix)]
            Self::Pipe(_) | Self::Socket(_) => Poll::Ready(Ok(())),
            Self::Thread(thread) => thread.poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
