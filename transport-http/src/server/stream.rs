//! An exchange as server-sent events: batches of messages, comments while it is quiet, an end with the answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use steady_core::kernel::{Exchange, LegacyExchange, Service};
use tokio::time::{Instant, Sleep};

use super::body::Events;
use super::limits::{Counted, Limits, bump};
use crate::clock::later;
use crate::sse;

/// Where a batch stops growing, in bytes. What the client's socket does not take stays in the exchange's own buffer, where
/// it can still coalesce.
const BATCH: usize = 16 << 10;

/// The messages of one response, of either era.
pub(super) trait Messages: Send + Unpin {
    /// Whether a hang-up leaves what is served without its client, as a cancellation does.
    const CANCELS: bool;

    /// The next message, appended to `out`, and whether it was the last. `None`: there is none.
    fn poll_message(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<bool>>;

    /// The events that wait, up to about this many bytes, and whether the last was among them. A message of the kernel is
    /// one line.
    fn poll_events(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>, bytes: usize) -> Poll<Option<bool>>;
}

/// What each event stands between.
pub(super) const FRAME: (&[u8], &[u8]) = (sse::EVENT_START, sse::EVENT_END);

impl<S: Service> Messages for Exchange<S> {
    const CANCELS: bool = true;

    fn poll_message(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<bool>> {
        Self::poll_message(self, cx, out)
    }

    fn poll_events(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>, bytes: usize) -> Poll<Option<bool>> {
        self.poll_batch(cx, out, bytes, FRAME)
    }
}

impl<S: Service> Messages for LegacyExchange<S> {
    const CANCELS: bool = false;

    fn poll_message(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<bool>> {
        Self::poll_message(self, cx, out)
    }

    fn poll_events(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>, bytes: usize) -> Poll<Option<bool>> {
        self.poll_batch(cx, out, bytes, FRAME)
    }
}

/// The stream of one exchange.
pub(super) struct EventStream<M: Messages> {
    exchange: Watched<M>,
    /// What leaves first.
    ready: Vec<u8>,
    keep_alive: KeepAlive,
}

/// An exchange whose client is counted as gone if it is dropped before its answer.
pub(super) struct Watched<M: Messages> {
    pub(super) messages: M,
    pub(super) limits: Arc<Limits>,
    pub(super) over: bool,
    /// Its place among the requests, or the listens, of the service, unless it keeps that itself.
    pub(super) _place: Option<Counted>,
}

impl<M: Messages> Watched<M> {
    /// The next message, appended to `out`, and whether it was the last.
    pub(super) fn poll_message(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<bool>> {
        let message = ready!(self.messages.poll_message(cx, out));
        self.over |= message.is_none_or(|last| last);
        Poll::Ready(message)
    }

    fn poll_events(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>, bytes: usize) -> Poll<()> {
        let last = ready!(self.messages.poll_events(cx, out, bytes));
        self.over |= last.is_none_or(|last| last);
        Poll::Ready(())
    }
}

impl<M: Messages> Drop for Watched<M> {
    fn drop(&mut self) {
        if M::CANCELS && !self.over {
            bump(&self.limits.counts.abandoned);
        }
    }
}

struct KeepAlive {
    interval: std::time::Duration,
    quiet_since: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl KeepAlive {
    fn new(interval: std::time::Duration) -> Self {
        Self { interval, quiet_since: Instant::now(), sleep: Box::pin(tokio::time::sleep(interval)) }
    }

    fn said_something(&mut self) {
        self.quiet_since = Instant::now();
    }

    /// Ready once the stream has been quiet for the interval. The alarm is moved only when it rings.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            let at = later(self.quiet_since, self.interval);
            if Instant::now() >= at {
                self.quiet_since = Instant::now();
                self.sleep.as_mut().reset(later(self.quiet_since, self.interval));
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(at);
        }
    }
}

impl<M: Messages> EventStream<M> {
    /// The stream of what is left of this exchange. `first` is its first message, if it said something already; if not, a
    /// comment goes out at once, for those who wait for a first byte.
    pub(super) fn new(exchange: Watched<M>, first: Option<&str>, keep_alive: std::time::Duration) -> Self {
        let mut ready = Vec::new();
        match first {
            Some(message) => sse::write_event(&mut ready, message),
            None => sse::write_keep_alive(&mut ready),
        }
        Self { exchange, ready, keep_alive: KeepAlive::new(keep_alive) }
    }
}

impl<M: Messages> Events for EventStream<M> {
    fn poll_batch(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<(Bytes, bool)>> {
        let this = &mut *self;
        let mut out = std::mem::take(&mut this.ready);
        while out.len() < BATCH && !this.exchange.over {
            if this.exchange.poll_events(cx, &mut out, BATCH).is_pending() {
                break;
            }
        }
        if !out.is_empty() {
            this.keep_alive.said_something();
            return Poll::Ready(Some((out.into(), this.exchange.over)));
        }
        if this.exchange.over {
            return Poll::Ready(None);
        }
        ready!(this.keep_alive.poll(cx));
        sse::write_keep_alive(&mut out);
        Poll::Ready(Some((out.into(), false)))
    }

    fn place(&self) -> Option<Counted> {
        Some(self.exchange.limits.requests.count())
    }
}
