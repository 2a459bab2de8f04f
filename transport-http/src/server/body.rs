//! The body of a response: nothing, one JSON object, or the events of an exchange.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::limits::Counted;
use super::watch::Busy;

/// A longer answer, or last batch of one, has a place among the requests until it has left. In bytes: what a connection may
/// hold beside its place.
pub(super) const LONG: usize = 32 << 10;

/// The body of a response. Dropping it before its end is the client's disconnect (rule C1).
pub struct Body {
    content: Content,
    /// Held while the connection must watch for a hang-up.
    busy: Option<Busy>,
    /// What of the last batch is for later pieces.
    left: Bytes,
    /// Of a long answer.
    place: Option<Counted>,
}

enum Content {
    Ended,
    Full(Bytes),
    /// The one event of a stream.
    Event(Bytes),
    Events(Pin<Box<dyn Events>>),
}

/// The events of one exchange, encoded and in batches.
pub(super) trait Events: Send {
    /// The next batch, and whether it was the last.
    fn poll_batch(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<(Bytes, bool)>>;

    /// A place for a last batch that is long.
    fn place(&self) -> Option<Counted>;
}

impl Body {
    pub(super) fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let content = if bytes.is_empty() { Content::Ended } else { Content::Full(bytes) };
        Self::of(content)
    }

    /// A stream that is known as a whole.
    pub(super) fn event(bytes: Vec<u8>) -> Self {
        Self::of(Content::Event(bytes.into()))
    }

    pub(super) fn events(events: impl Events + 'static) -> Self {
        Self::of(Content::Events(Box::pin(events)))
    }

    const fn of(content: Content) -> Self {
        Self { content, busy: None, left: Bytes::new(), place: None }
    }

    /// It has this place until it has left.
    pub(super) fn placed(self, place: Option<Counted>) -> Self {
        Self { place, ..self }
    }

    pub(super) fn watched(self, busy: Option<Busy>) -> Self {
        Self { busy, ..self }
    }
}

impl Body {
    /// What of a batch is given at once; the rest is left.
    fn piece(&mut self, mut bytes: Bytes) -> Bytes {
        if let Some(most) = self.busy.as_ref().and_then(Busy::longest_piece)
            && bytes.len() > most
        {
            self.left = bytes.split_off(most);
        }
        bytes
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Some(busy) = &this.busy {
            busy.waits_for_client(false);
        }
        let next = match &mut this.content {
            _ if !this.left.is_empty() => Some((mem::take(&mut this.left), false)),
            Content::Ended => None,
            Content::Full(bytes) | Content::Event(bytes) => Some((mem::take(bytes), true)),
            Content::Events(events) => match events.as_mut().poll_batch(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(next) => next,
            },
        };
        // The end is known with the last batch, so that it can leave in the same write.
        if next.as_ref().is_none_or(|(_, last)| *last) {
            let is_long = next.as_ref().is_some_and(|(bytes, _)| bytes.len() > LONG);
            if let Content::Events(events) = &this.content
                && is_long
            {
                this.place = events.place();
            }
            this.content = Content::Ended;
        }
        let next = next.map(|(bytes, _)| this.piece(bytes));
        if this.is_end_stream()
            && let Some(busy) = this.busy.take_if(|busy| !busy.outlasts_the_last_byte())
        {
            busy.end(this.place.take());
        }
        if let Some(busy) = &this.busy {
            busy.waits_for_client(true);
        }
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Ended) && self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Ended => SizeHint::with_exact(self.left.len() as u64),
            Content::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Event(_) | Content::Events(_) => SizeHint::new(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("ended", &matches!(self.content, Content::Ended)).finish_non_exhaustive()
    }
}
