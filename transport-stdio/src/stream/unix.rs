//! What a descriptor is, and how to register it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;

use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::{Input, Output};

enum Kind {
    Pipe,
    Socket,
    Other,
}

fn kind(descriptor: BorrowedFd<'_>) -> io::Result<(Kind, OwnedFd)> {
    let file = std::fs::File::from(descriptor.try_clone_to_owned()?);
    let kind = file.metadata()?.file_type();
    let kind = match () {
        () if kind.is_fifo() => Kind::Pipe,
        () if kind.is_socket() => Kind::Socket,
        () => Kind::Other,
    };
    Ok((kind, file.into()))
}

/// Standard input, if it can be registered with the reactor.
pub(super) fn input(stdin: BorrowedFd<'_>) -> io::Result<Option<Input>> {
    let (kind, descriptor) = kind(stdin)?;
    Ok(match kind {
        Kind::Pipe => Some(Input::Pipe(
            own_description(stdin, |path| pipe::OpenOptions::new().open_receiver(path))
                .map_or_else(|| pipe::Receiver::from_owned_fd(descriptor), Ok)?,
        )),
        Kind::Socket => Some(Input::Socket(socket(descriptor)?)),
        Kind::Other => None,
    })
}

/// Standard output, if it can be registered with the reactor.
pub(super) fn output(stdout: BorrowedFd<'_>) -> io::Result<Option<Output>> {
    let (kind, descriptor) = kind(stdout)?;
    Ok(match kind {
        Kind::Pipe => Some(Output::Pipe(
            own_description(stdout, |path| pipe::OpenOptions::new().open_sender(path))
                .map_or_else(|| pipe::Sender::from_owned_fd(descriptor), Ok)?,
        )),
        Kind::Socket => Some(Output::Socket(socket(descriptor)?)),
        Kind::Other => None,
    })
}

/// Opens the same pipe again. The mode of a description is shared by all who inherited it, so setting ours non-blocking
/// would break a shell's other commands; a new description is ours alone. Where that is not possible, the shared one has
/// to do.
fn own_description<T>(descriptor: BorrowedFd<'_>, open: impl FnOnce(String) -> io::Result<T>) -> Option<T> {
    let number = descriptor.as_raw_fd();
    if cfg!(target_os = "linux") { open(format!("/proc/self/fd/{number}")).ok() } else { None }
}

fn socket(descriptor: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(descriptor);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
