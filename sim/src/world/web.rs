//! A client's link over many exchanges: each message that is written is a POST with a response stream of its own, the shape
//! of Streamable HTTP.

use std::collections::BTreeMap;
use std::io;
use std::task::{Context, Poll};

use steady_core::id::RequestId;
use steady_core::kernel::{Link, Received, Unanswered};
use steady_core::rpc::{self, Message};
use steady_core::time::Instant;

use super::executor::Spawner;
use super::line::Lines;
use super::pipe::{Arrived, Pipe};

/// What became of a POST.
#[derive(Clone)]
#[expect(clippy::exhaustive_enums, reason = "a connection is there or refused")]
pub enum Posted {
    /// It is on its way: the connection's two directions.
    Stream {
        /// To the server. Its end is that of the connection.
        up: Pipe,
        /// The response stream.
        down: Pipe,
    },
    /// Nobody listens there, which the client learns at this time.
    Refused(Instant),
}

/// Carries POSTs.
pub trait Web: Send {
    /// Sends one.
    fn post(&mut self, id: &RequestId, message: &str) -> Posted;

    /// A message came to the client; whether the client takes it.
    fn read(&mut self, id: &RequestId, message: &str) -> bool;

    /// The client gives a request up, and closes its connection.
    fn closes(&mut self, id: &RequestId);
}

struct Stream {
    posted: Posted,
    lines: Lines,
}

impl Stream {
    /// Closes the connection. The server learns it from its end of the other direction.
    fn close(&self) {
        if let Posted::Stream { up, down } = &self.posted {
            up.end();
            down.abandon();
        }
    }
}

/// The link. Dropping it closes all streams.
pub struct WebLink<W: Web> {
    spawner: Spawner,
    web: W,
    streams: BTreeMap<RequestId, Stream>,
    /// The stream that was read last.
    last: Option<RequestId>,
    current: Vec<u8>,
}

impl<W: Web> WebLink<W> {
    /// A link without streams.
    pub const fn new(spawner: Spawner, web: W) -> Self {
        Self { spawner, web, streams: BTreeMap::new(), last: None, current: Vec::new() }
    }

    fn poll_stream(&mut self, cx: &Context<'_>, id: &RequestId) -> Poll<Option<Unanswered>> {
        let Some(Stream { posted, lines }) = self.streams.get_mut(id) else { return Poll::Pending };
        let pipe = match posted {
            Posted::Stream { down, .. } => down,
            Posted::Refused(at) if *at <= self.spawner.now() => {
                return Poll::Ready(Some(Unanswered::NotSent("the connection was refused".into())));
            }
            Posted::Refused(at) => {
                self.spawner.ring(*at, cx.waker());
                return Poll::Pending;
            }
        };
        loop {
            if lines.take(&mut self.current) {
                return Poll::Ready(None);
            }
            let Poll::Ready(arrived) = pipe.poll_read(cx, lines.buffer()) else { return Poll::Pending };
            match arrived {
                Arrived::Bytes => {}
                Arrived::End => return Poll::Ready(Some(Unanswered::Lost("the stream ended".into()))),
                Arrived::Cut => return Poll::Ready(Some(Unanswered::Lost("the connection was reset".into()))),
            }
        }
    }

    /// The streams, from the one after that which was read last.
    fn turn(&self) -> Vec<RequestId> {
        let after = self.streams.keys().filter(|id| self.last.as_ref().is_none_or(|last| *id > last));
        let before = self.streams.keys().filter(|id| self.last.as_ref().is_some_and(|last| *id <= last));
        after.chain(before).cloned().collect()
    }
}

fn is_answer(text: &str) -> bool {
    matches!(rpc::parse(text), Ok(Message::Response { .. }))
}

impl<W: Web> Link for WebLink<W> {
    const BEFORE: &'static [u8] = b"";
    const AFTER: &'static [u8] = b"\n";

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Received<'_>> {
        for id in self.turn() {
            while let Poll::Ready(end) = self.poll_stream(cx, &id) {
                self.last = Some(id.clone());
                if let Some(end) = end {
                    self.streams.remove(&id);
                    return Poll::Ready(Received::Unanswered(id, end));
                }
                let text = str::from_utf8(&self.current).unwrap_or_default();
                if is_answer(text)
                    && let Some(stream) = self.streams.remove(&id)
                {
                    stream.close();
                }
                if self.web.read(&id, text) {
                    return Poll::Ready(Received::Message(str::from_utf8(&self.current).unwrap_or_default()));
                }
            }
        }
        Poll::Pending
    }

    fn close_stream(&mut self, request: &RequestId) {
        if let Some(stream) = self.streams.remove(request) {
            stream.close();
            self.web.closes(request);
        }
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        };
        let text = bytes.get(..end).and_then(|line| str::from_utf8(line).ok()).unwrap_or_default();
        let Ok(Message::Request { id, .. }) = rpc::parse(text) else {
            return Poll::Ready(Err(io::Error::other("what is to be sent is no request")));
        };
        let posted = self.web.post(&id, text);
        self.streams.insert(id, Stream { posted, lines: Lines::default() });
        // The turn that wrote it has read already.
        cx.waker().wake_by_ref();
        Poll::Ready(Ok(end + 1))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl<W: Web> Drop for WebLink<W> {
    fn drop(&mut self) {
        self.streams.values().for_each(Stream::close);
    }
}
