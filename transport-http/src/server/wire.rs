//! The socket of one connection, shared by hyper, which reads and writes, and by the watch for a hang-up.
//!
//! While a response is pending, hyper does not read: what the client does meanwhile is read ahead here, into a buffer with
//! a bound, so that the end of the input shows. hyper gets what was read ahead once it asks.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::handed::Handed;
use super::limits::Counted;

/// How much is read ahead of hyper, in bytes. A client that has sent more is looked at from time to time instead.
const AHEAD: usize = 16 << 10;

/// The first bytes of a client that speaks HTTP/2.
#[cfg(feature = "http2")]
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// One end of the socket: hyper has one, the watch has another.
#[derive(Clone)]
pub(super) struct Wire(Arc<Mutex<State>>);

struct State {
    stream: TcpStream,
    /// Read, and not yet asked for.
    ahead: Vec<u8>,
    /// The client sends nothing more.
    ended: bool,
    /// hyper waits for bytes.
    wanted: bool,
    /// How far the current request is.
    phase: Phase,
    /// A head has begun and not ended.
    in_head: bool,
    /// The client took no byte when it was last asked to.
    stalled: bool,
    /// What the connection waits for, and since when: stamped once a turn, so that a turn reads the clock once.
    waits: (Wait, Option<Instant>),
    /// A stream that the connection shall write itself.
    handed: Option<Box<Handed>>,
    /// The place of a long answer that may not have left yet.
    unsent: Option<Counted>,
    /// There is a body that nobody read to its end.
    is_unread: bool,
}

/// How far a connection's request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is none, or its head is arriving.
    Between,
    /// Its body is arriving.
    Body,
    /// Its response is pending.
    Busy,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The client must take bytes.
    Stalled,
    /// A head that has begun.
    Head,
    /// The next request.
    Idle,
    /// The body of a request, or the answer to it, which have deadlines of their own.
    Request,
}

/// What a look at the socket showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The client is there, and its end of the input will wake the watch.
    There,
    /// The client has sent more than is read ahead; look again later.
    Full,
    /// Something was read that hyper waits for.
    Wanted,
    /// The client has ended its input, or the connection is broken.
    Gone,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(Mutex::new(State {
            stream,
            ahead: Vec::new(),
            ended: false,
            wanted: false,
            phase: Phase::Between,
            in_head: false,
            stalled: false,
            waits: (Wait::Idle, None),
            handed: None,
            unsent: None,
            is_unread: false,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the connection waits for, and since when.
    pub(super) fn waits(&self, now: Instant) -> (Wait, Instant) {
        let mut state = self.state();
        if state.phase == Phase::Between && !state.stalled {
            state.unsent = None;
        }
        let wait = match (state.stalled, state.phase, state.in_head) {
            (true, _, _) => Wait::Stalled,
            (false, Phase::Body | Phase::Busy, _) => Wait::Request,
            (false, Phase::Between, true) => Wait::Head,
            (false, Phase::Between, false) => Wait::Idle,
        };
        if wait != state.waits.0 {
            state.waits = (wait, None);
        }
        (wait, *state.waits.1.get_or_insert(now))
    }

    /// Looks whether the client of a pending response is still there.
    pub(super) fn look(&self, cx: &mut Context<'_>) -> Look {
        let mut state = self.state();
        if state.phase != Phase::Busy {
            return Look::There;
        }
        loop {
            if state.ended {
                return Look::Gone;
            }
            if state.ahead.len() >= AHEAD {
                return state.look_past(cx);
            }
            match state.read_ahead(cx) {
                Poll::Pending if state.wanted && !state.ahead.is_empty() => {
                    // Told once: it may have ended its reading, and would be told so for ever.
                    state.wanted = false;
                    return Look::Wanted;
                }
                Poll::Pending => return Look::There,
                Poll::Ready(()) => {}
            }
        }
    }
}

impl State {
    fn read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Asked first: mostly there is nothing, and no buffer is needed.
        let readable = ready!(self.stream.poll_read_ready(cx));
        let mut chunk = [0; 4096];
        let mut buffer = ReadBuf::new(&mut chunk);
        let read = readable.and_then(|()| match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
            Poll::Pending => Ok(false),
            Poll::Ready(read) => read.map(|()| true),
        });
        match read {
            Ok(false) => return Poll::Pending,
            Ok(true) if !buffer.filled().is_empty() => self.ahead.extend_from_slice(buffer.filled()),
            Ok(true) | Err(_) => self.ended = true,
        }
        Poll::Ready(())
    }

    /// Looks for the end of the input behind bytes that are not read.
    fn look_past(&mut self, cx: &mut Context<'_>) -> Look {
        match pin!(self.stream.ready(Interest::READABLE)).poll(cx) {
            Poll::Ready(Ok(ready)) if ready.is_read_closed() => Look::Gone,
            Poll::Ready(Err(_)) => Look::Gone,
            Poll::Ready(Ok(_)) | Poll::Pending => Look::Full,
        }
    }

    fn wrote<T>(&mut self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.stalled = written.is_pending();
        if written.is_ready() && self.waits.0 == Wait::Stalled {
            // It took some: the next stall is another one.
            self.waits.1 = None;
        }
        written
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state();
        let state = &mut *state;
        let before = buffer.filled().len();
        if state.ahead.is_empty() {
            if state.ended {
                return Poll::Ready(Ok(()));
            }
            let read = Pin::new(&mut state.stream).poll_read(cx, buffer);
            state.wanted = read.is_pending();
            ready!(read)?;
            state.ended = buffer.filled().len() == before;
        } else {
            let count = state.ahead.len().min(buffer.remaining());
            buffer.put_slice(&state.ahead[..count]);
            state.ahead.drain(..count);
            if state.ahead.is_empty() {
                state.ahead = Vec::new();
            }
            state.wanted = false;
        }
        if state.phase == Phase::Between && buffer.filled().len() > before {
            state.in_head = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        let written = Pin::new(&mut state.stream).poll_write(cx, bytes);
        state.wrote(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        let written = Pin::new(&mut state.stream).poll_write_vectored(cx, slices);
        state.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.state().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.state().stream).poll_shutdown(cx)
    }
}

impl Wire {
    /// Leaves a stream for the connection to write. What is not taken must be dropped with [`clear`](Self::clear): it holds
    /// this wire.
    pub(super) fn hand(&self, handed: Handed) {
        self.state().handed = Some(Box::new(handed));
    }

    /// The stream that was left, once everything before it has been written.
    pub(super) fn take_handed(&self) -> Option<Handed> {
        let mut state = self.state();
        if state.stalled { None } else { state.handed.take().map(|handed| *handed) }
    }

    /// Drops a stream that was left.
    pub(super) fn clear(&self) {
        let handed = self.state().handed.take();
        drop(handed);
    }

    /// Goes on without hyper, which had read this and not used it.
    pub(super) fn unread(&self, bytes: &[u8]) {
        let mut state = self.state();
        state.wanted = false;
        state.ahead.splice(..0, bytes.iter().copied()).for_each(drop);
    }

    /// A long answer is with the connection: it has its place until it has left.
    pub(super) fn hold(&self, place: Counted) {
        self.state().unsent = Some(place);
    }

    /// A body is not read to its end, so the connection must end with the response.
    pub(super) fn leave_unread(&self) {
        self.state().is_unread = true;
    }

    pub(super) fn is_unread(&self) -> bool {
        self.state().is_unread
    }

    /// Ends the output, and reads the input to its end and to nobody.
    pub(super) fn poll_discard(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let _ended_already = Pin::new(&mut state.stream).poll_shutdown(cx);
        loop {
            state.ahead.clear();
            if state.ended {
                return Poll::Ready(());
            }
            ready!(state.read_ahead(cx));
        }
    }

    pub(super) fn enter(&self, phase: Phase) {
        let mut state = self.state();
        state.phase = phase;
        if phase == Phase::Body {
            // hyper reads a head once the answer before it has left.
            state.unsent = None;
        }
        state.in_head = false;
        state.waits.1 = None;
    }

    /// Reads ahead until it is clear whether the client speaks HTTP/2, as it may without asking (RFC 9113, section 3.3).
    #[cfg(feature = "http2")]
    pub(super) fn poll_is_http2(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.state();
        loop {
            let known = state.ahead.len().min(PREFACE.len());
            if state.ahead[..known] != PREFACE[..known] || state.ended {
                return Poll::Ready(false);
            }
            if known == PREFACE.len() {
                state.in_head = false;
                return Poll::Ready(true);
            }
            ready!(state.read_ahead(cx));
            state.in_head = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, Wire) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("it accepts");
        (client, Wire::new(listener.accept().await.expect("a client").0))
    }

    #[tokio::test]
    async fn who_waits_for_bytes_is_told_once_and_may_not_want_them_any_more() {
        let (mut client, wire) = pair().await;
        let mut cx = Context::from_waker(Waker::noop());
        let mut chunk = [0; 16];
        assert!(Pin::new(&mut wire.clone()).poll_read(&mut cx, &mut ReadBuf::new(&mut chunk)).is_pending());
        wire.enter(Phase::Busy);
        client.write_all(b"x").await.expect("sent");
        let told = poll_fn(|cx| match wire.look(cx) {
            Look::There => Poll::Pending,
            look @ (Look::Full | Look::Wanted | Look::Gone) => Poll::Ready(look),
        });
        assert_eq!(told.await, Look::Wanted);
        assert_eq!(wire.look(&mut cx), Look::There, "the connection would never wait again");
        let mut buffer = ReadBuf::new(&mut chunk);
        assert!(Pin::new(&mut wire.clone()).poll_read(&mut cx, &mut buffer).is_ready());
        assert_eq!(buffer.filled(), b"x", "it is there for who wants it later");
    }
}
