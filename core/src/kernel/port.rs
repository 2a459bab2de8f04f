//! What the kernel needs from outside: a link to the peer, a timer, a place to run handlers.

use alloc::boxed::Box;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::io;

use crate::id::RequestId;
use crate::time::Instant;

/// A future that is owned and can move between threads.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a [`Link`] received.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "the connection loop decides each")]
pub enum Received<'a> {
    /// The text of one message, without its framing.
    Message(&'a str),
    /// Something that is no text of a message. It costs itself only; the link goes on (rule S2).
    Bad(BadFrame),
    /// A request that has a stream of its own ends without an answer; the link goes on. Only clients receive it.
    Unanswered(RequestId, Unanswered),
    /// The peer sends nothing more.
    Closed,
    /// The link failed.
    Failed(io::Error),
}

/// Why a frame holds no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BadFrame {
    /// Longer than the limit; it was skipped, whatever its chunks.
    TooLong,
    /// Not UTF-8.
    NotUtf8,
    /// No message, or one of another request, on the stream of a request (Streamable HTTP).
    Foreign,
}

/// How a request ended that has a stream of its own and got no answer on it (Streamable HTTP).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the connection loop decides each")]
pub enum Unanswered {
    /// No byte of it left: why.
    NotSent(Box<str>),
    /// Its stream ended, or was answered by something that is no server of this protocol: what happened. It may have run.
    Lost(Box<str>),
    /// It was refused for good before it ran, by no message of this protocol: why.
    Refused(Box<str>),
    /// The same, in a way that a server has which does not know this revision: 400 without an error of the protocol.
    NotSpoken(Box<str>),
    /// Its answer is longer than is accepted. It ran.
    TooLong,
}

/// What of an older revision's session was lost and is there again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the adapter of the older revisions decides each")]
pub enum Lapse {
    /// The stream of what belongs to no request, or what was subscribed: notifications may be missed.
    Notices,
    /// The session. What it has asked needs no answer any more.
    Session,
}

/// A link that carries many requests: bytes to and from one peer.
pub trait Link: Send {
    /// What stands before each message on the wire.
    const BEFORE: &'static [u8];
    /// What stands after each message on the wire.
    const AFTER: &'static [u8];

    /// The next frame, lent until the next call.
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Received<'_>>;

    /// After [`BadFrame::TooLong`]: the id of the answer that was skipped, if it was one and its id could be found, so that
    /// the length costs its own request only.
    fn oversize_answer(&mut self) -> Option<RequestId> {
        None
    }

    /// Gives up a request that was written, on a link on which each has a stream of its own: closes that stream and
    /// writes nothing (rule C1). The loop asks for it where the transport's cancel signal is no message.
    fn close_stream(&mut self, _request: &RequestId) {}

    /// The application does not go on with a call that was answered by a demand for input. Nothing is left of it on a
    /// server of the modern revision; one of an older revision still waits.
    fn abandon(&mut self, _call: &RequestId) {}

    /// The request on whose own stream the last message came, on a link where requests have such.
    fn stream(&self) -> Option<&RequestId> {
        None
    }

    /// What was lost of a session of an older revision since this was asked last. Asked when there is nothing to receive,
    /// which a link says while something is to be told here: what is received after it belongs to the next session, and what
    /// is sent before the next [`poll_recv`](Self::poll_recv) still to the one that is over.
    fn lapsed(&mut self) -> Option<Lapse> {
        None
    }

    /// Reads ahead while nothing may be handed out, as far as its bounded buffer goes. Ready once the input has ended, so
    /// that a client that is gone is noticed although its last messages cannot be answered. It loses nothing:
    /// [`poll_recv`](Self::poll_recv) still gives what was read.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Writes some of `bytes`; how many, at least one.
    ///
    /// # Errors
    /// The link is broken for writing.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Waits until what was written has left the process.
    ///
    /// # Errors
    /// The link is broken for writing.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// A monotonic clock and its alarms.
pub trait Timer: Send + Sync {
    /// The time since an origin that never changes.
    fn now(&self) -> Instant;

    /// Resolves at `at` or later. Only the clock decides whether a deadline has passed, not the future.
    fn sleep_until(&self, at: Instant) -> BoxFuture<()>;
}

/// Where handlers run that are not done at their first poll.
///
/// Wakers may be called under a lock of the kernel, so an executor must not poll inside of `wake`; none that is in use does.
pub trait Spawn: Send + Sync {
    /// Runs a future to its end, on its own.
    fn spawn(&self, task: BoxFuture<()>);

    /// Runs a job that blocks its thread, away from the threads that run futures. One that cannot be run is dropped, and its
    /// request is answered with an error then.
    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>);
}
