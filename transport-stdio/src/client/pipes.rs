//! The parent's ends of a child's streams.

use std::io;

use super::child::Streams;

#[cfg(unix)]
mod imp {
    use std::io;
    use std::os::fd::OwnedFd;

    use tokio::net::unix::pipe;

    /// Registered with the reactor: the description of our end is ours alone, so its mode concerns nobody else.
    pub(in super::super) type Writer = pipe::Sender;
    /// See [`Writer`].
    pub(in super::super) type Reader = pipe::Receiver;

    pub(super) fn writer(stream: impl Into<OwnedFd>) -> io::Result<Writer> {
        Writer::from_owned_fd(stream.into())
    }

    pub(super) fn reader(stream: impl Into<OwnedFd>) -> io::Result<Reader> {
        Reader::from_owned_fd(stream.into())
    }
}

#[cfg(windows)]
mod imp {
    use std::io::{self, Read, Write};

    use crate::stream::{Input, Output};

    /// With a thread of its own: anonymous pipes cannot be waited for here.
    pub(in super::super) type Writer = Output;
    /// See [`Writer`].
    pub(in super::super) type Reader = Input;

    pub(super) fn writer(stream: impl Write + Send + 'static) -> io::Result<Writer> {
        Output::blocking(stream)
    }

    pub(super) fn reader(stream: impl Read + Send + 'static) -> io::Result<Reader> {
        Input::blocking(stream)
    }
}

pub(super) use imp::{Reader, Writer};

/// Makes the streams asynchronous: input, output, standard error.
pub(super) fn open(streams: Streams) -> io::Result<(Writer, Reader, Option<Reader>)> {
    let errors = streams.errors.map(imp::reader).transpose()?;
    Ok((imp::writer(streams.input)?, imp::reader(streams.output)?, errors))
}
