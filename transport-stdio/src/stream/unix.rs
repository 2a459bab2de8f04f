//! What a descriptor is, and how to register it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;

use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::{Input, Output};

enum Kind {
    Pipe,
    Socket,
    Other,
}

fn kind(descriptor: &impl AsFd) -> io::Result<(Kind, OwnedFd)> {
    let file = std::fs::File::from(descriptor.as_fd().try_clone_to_owned()?);
    let kind = file.metadata()?.file_type();
    let kind = match () {
        () if kind.is_fifo() => Kind::Pipe,
        () if kind.is_socket() => Kind::Socket,
        () => Kind::Other,
    };
    Ok((kind, file.into()))
}

/// Standard input, if it can be registered with the reactor.
pub(super) fn input(stdin: &impl AsFd) -> io::Result<Option<Input>> {
    let (kind, descriptor) = kind(stdin)?;
    Ok(match kind {
        Kind::Pipe => Some(Input::Pipe(
            own_description(0, |path| pipe::OpenOptions::new().open_receiver(path))
                .map_or_else(|| pipe::Receiver::from_owned_fd(descriptor), Ok)?,
        )),
        Kind::Socket => Some(Input::Socket(socket(descriptor)?)),
        Kind::Other => None,
    })
}

/// Standard output, if it can be registered with the reactor.
pub(super) fn output(stdout: &impl AsFd) -> io::Result<Option<Output>> {
    let (kind, descriptor) = kind(stdout)?;
    Ok(match kind {
        Kind::Pipe => Some(Output::Pipe(
            own_description(1, |path| pipe::OpenOptions::new().open_sender(path))
                .map_or_else(|| pipe::Sender::from_owned_fd(descriptor), Ok)?,
        )),
        Kind::Socket => Some(Output::Socket(socket(descriptor)?)),
        Kind::Other => None,
    })
}

/// Opens the same pipe again. The mode of a description is shared by all who inherited it, so setting ours non-blocking
/// would break a shell's other commands; a new description is ours alone. Where that is not possible, the shared one has
/// to do.
fn own_description<T>(descriptor: u8, open: impl FnOnce(String) -> io::Result<T>) -> Option<T> {
    if cfg!(target_os = "linux") { open(format!("/proc/self/fd/{descriptor}")).ok() } else { None }
}

fn socket(descriptor: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(descriptor);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
