//! A stream that its connection writes itself.
//!
//! hyper keeps two buffers of 8 KiB for as long as it has a connection, and an open stream has no use for them. So hyper is
//! asked for the request only: when the answer turns into a stream, the connection takes it over together with the socket,
//! and gets itself a new hyper for the request after it.

use std::io::{IoSlice, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::Bytes;
use http::Response;
use http_body::Body as _;
use tokio::io::AsyncWrite;

use super::body::Body;

/// What of a buffer is worth keeping for the next size line, in bytes.
const SMALL: usize = 64;
/// After the data of the last chunk.
const END: &[u8] = b"\r\n0\r\n\r\n";

/// An answer on its way from the service to its connection.
pub(super) struct Handed {
    pub(super) response: Response<Body>,
    /// Whether the connection goes on after it.
    pub(super) reusable: bool,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Whole; the connection can go on.
    Reusable,
    /// Whole, and the last of its connection.
    Close,
    /// The client is gone.
    Gone,
}

/// The stream, in chunks (RFC 9112, section 7.1).
pub(super) struct Stream {
    body: Body,
    reusable: bool,
    /// The head of the response, and the size of the chunk.
    front: Vec<u8>,
    data: Bytes,
    back: &'static [u8],
    /// How much of the three has left.
    written: usize,
    /// Whether they are the last.
    last: bool,
}

impl Stream {
    pub(super) fn new(handed: Handed) -> Self {
        let Handed { response, reusable } = handed;
        let (parts, body) = response.into_parts();
        let mut front = Vec::with_capacity(256);
        front.extend_from_slice(b"HTTP/1.1 ");
        front.extend_from_slice(parts.status.as_str().as_bytes());
        front.extend_from_slice(b" OK\r\n");
        for (name, value) in &parts.headers {
            front.extend_from_slice(name.as_str().as_bytes());
            front.extend_from_slice(b": ");
            front.extend_from_slice(value.as_bytes());
            front.extend_from_slice(b"\r\n");
        }
        let close = if reusable { "" } else { "connection: close\r\n" };
        let date = httpdate::HttpDate::from(SystemTime::now());
        let _grows = write!(front, "transfer-encoding: chunked\r\n{close}date: {date}\r\n\r\n");
        Self { body, reusable, front, data: Bytes::new(), back: b"", written: 0, last: false }
    }

    /// Writes what there is, up to the end of the stream.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, wire: &mut (impl AsyncWrite + Unpin)) -> Poll<End> {
        loop {
            // The head waits for the first chunk, to leave with it.
            if (self.data.is_empty() && !self.last) || self.is_written() {
                if self.last {
                    return Poll::Ready(if self.reusable { End::Reusable } else { End::Close });
                }
                ready!(self.poll_chunk(cx));
            }
            while !self.is_written() {
                let slices = [&*self.front, &*self.data, self.back];
                let mut skip = self.written;
                let slices = slices.map(|slice| {
                    let skipped = skip.min(slice.len());
                    skip -= skipped;
                    IoSlice::new(slice.get(skipped..).unwrap_or_default())
                });
                match ready!(Pin::new(&mut *wire).poll_write_vectored(cx, &slices)) {
                    Ok(count) if count > 0 => self.written += count,
                    Ok(_) | Err(_) => return Poll::Ready(End::Gone),
                }
            }
        }
    }

    fn is_written(&self) -> bool {
        self.written == self.front.len() + self.data.len() + self.back.len()
    }

    /// Takes the next batch, once the one before it has left.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.written > 0 {
            // A quiet stream holds no buffer.
            if self.front.capacity() > SMALL {
                self.front = Vec::new();
            }
            self.front.clear();
            self.data = Bytes::new();
            self.back = b"";
            self.written = 0;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.last = frame.is_none() || self.body.is_end_stream();
        match frame.and_then(Result::ok).and_then(|frame| frame.into_data().ok()).filter(|data| !data.is_empty()) {
            Some(data) => {
                let _grows = write!(self.front, "{:x}\r\n", data.len());
                self.data = data;
                self.back = if self.last { END } else { b"\r\n" };
            }
            None if self.last => self.back = &END[2..],
            None => {}
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;
    use std::task::Waker;

    use super::super::body::Events;
    use super::super::limits::Counted;
    use super::*;

    /// Batches that wait; an empty one is a pause.
    struct Batches(VecDeque<(&'static str, bool)>);

    impl Events for Batches {
        fn poll_batch(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<(Bytes, bool)>> {
            match self.0.pop_front() {
                Some(("", false)) => Poll::Pending,
                next => Poll::Ready(next.map(|(text, last)| (text.into(), last))),
            }
        }

        fn place(&self) -> Option<Counted> {
            None
        }
    }

    /// Takes so many bytes at a time, and keeps each write apart.
    struct Socket {
        takes: usize,
        writes: Vec<String>,
    }

    impl AsyncWrite for Socket {
        fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(self.takes).collect();
            self.writes.push(String::from_utf8_lossy(&bytes).into_owned());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// What a socket was given for these batches, and how often the stream had to wait.
    fn written(batches: &[(&'static str, bool)], takes: usize) -> (Vec<String>, usize) {
        let body = Body::events(Batches(batches.iter().copied().collect()));
        let mut stream = Stream::new(Handed { response: Response::new(body), reusable: true });
        let (mut socket, mut cx) = (Socket { takes, writes: Vec::new() }, Context::from_waker(Waker::noop()));
        for waits in 0.. {
            if let Poll::Ready(end) = stream.poll(&mut cx, &mut socket) {
                assert_eq!(end, End::Reusable);
                return (socket.writes, waits);
            }
        }
        unreachable!("batches end");
    }

    #[test]
    fn what_belongs_together_leaves_in_one_write() {
        let (writes, waits) = written(&[("first", false), ("", false), ("next", false), ("last", true)], usize::MAX);
        assert_eq!((writes.len(), waits), (3, 1), "{writes:#?}");
        assert!(
            writes[0].starts_with("HTTP/1.1 200 OK\r\n") && writes[0].ends_with("\r\n\r\n5\r\nfirst\r\n"),
            "{writes:#?}"
        );
        assert_eq!(&writes[1..], ["4\r\nnext\r\n", "4\r\nlast\r\n0\r\n\r\n"]);
    }

    #[test]
    fn a_socket_that_takes_little_gets_the_same_bytes() {
        let batches = [("first", false), ("a longer one of them", false), ("last", true)];
        let without_date = |writes: Vec<String>| {
            let text = writes.concat();
            text.lines().filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("\r\n")
        };
        let whole = without_date(written(&batches, usize::MAX).0);
        for takes in 1..40 {
            assert_eq!(without_date(written(&batches, takes).0), whole, "{takes} at a time");
        }
    }

    #[test]
    fn a_stream_may_end_without_a_last_batch() {
        let (writes, _) = written(&[("only", false)], usize::MAX);
        assert!(writes.concat().ends_with("4\r\nonly\r\n0\r\n\r\n"), "{writes:#?}");
    }
}
