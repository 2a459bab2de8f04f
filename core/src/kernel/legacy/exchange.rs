//! The older revisions over HTTP: a session of many exchanges, whose streams may break without an end to what they carry.
//!
//! A hang-up cancels nothing here: that is what the modern revision changed. The exchange goes on without its client, its
//! answer is dropped, since no stream can be resumed, and only `notifications/cancelled` on the same session stops it.

use alloc::boxed::Box;
use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use serde_json::value::RawValue;

use super::reader::Reader;
use super::requests::{NotBegun, Requests, Seat};
use super::session::{Came, Shared, error_of};
use super::stream::Standing;
use crate::id::RequestId;
use crate::kernel::Ports;
use crate::kernel::engine::ServerConfig;
use crate::kernel::exchange::Exchange;
use crate::kernel::port::Spawn;
use crate::kernel::service::Service;
use crate::kernel::slot::{CancelReason, Slot};
use crate::kernel::sync::Arc;
use crate::legacy::{Effect, Event, Refusal, Revision, method};
use crate::rpc::{self, Body, RpcError, read_cancellation};
use crate::time::Instant;

/// A session of a client of the older revisions, over HTTP. Its id, its owner and its end of life are the transport's.
#[derive(Debug, Default)]
pub struct LegacySession {
    pub(super) shared: StdArc<Shared>,
    running: Requests,
    pub(super) standing: Standing,
}

/// A request of a session, as it came.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a transport fills in what it read")]
pub struct LegacyRequest<'a> {
    /// Its id.
    pub id: RequestId,
    /// Its method.
    pub method: &'a str,
    /// Its parameters.
    pub params: Option<&'a RawValue>,
    /// The `Idempotency-Key` header.
    pub key_header: Option<Box<str>>,
}

impl LegacySession {
    /// A session before its handshake.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the handshake agreed on; `None` before it and after the end.
    #[must_use]
    pub fn revision(&self) -> Option<Revision> {
        self.shared.revision()
    }

    /// A notification of the client; whether it was a cancellation of a request in flight.
    pub fn notified(&self, now: Instant, name: &str, params: Option<&RawValue>) -> bool {
        match name {
            method::INITIALIZED => {
                if self.shared.handle(Event::Initialized) == Effect::Ready {
                    self.standing.wake();
                }
                false
            }
            rpc::method::CANCELLED => params.is_some_and(|params| self.cancel(now, params)),
            _ => false,
        }
    }

    fn cancel(&self, now: Instant, params: &RawValue) -> bool {
        let Some(cancellation) = read_cancellation(params.get()) else { return false };
        self.running.cancel(now, &cancellation.id, CancelReason::Cancelled(cancellation.reason))
    }

    /// The client answered a request of this server; whether anybody waited for it.
    pub fn answered(&self, id: &RequestId, body: Body<'_>) -> bool {
        self.shared.answered(id, body)
    }

    /// Whether several messages in one text are read.
    ///
    /// # Errors
    /// The error to answer.
    pub fn unpacks(&self) -> Result<(), RpcError> {
        match self.shared.handle(Event::Batch) {
            Effect::Unpack => Ok(()),
            Effect::Refuse(refusal) => Err(error_of(refusal, "")),
            Effect::Nothing
            | Effect::Begin(_)
            | Effect::Ready
            | Effect::Serve
            | Effect::Announce
            | Effect::KeepBack => Err(error_of(Refusal::NoBatches, "")),
        }
    }

    /// Ends it: what runs is cancelled, and nothing more is begun.
    pub fn close(&self, now: Instant) {
        self.shared.close();
        self.standing.close();
        self.running.close(now);
    }
}

/// The exchange of one POST of a session: its requests, one unless it was a batch, and their messages.
///
/// Dropping it before its end lets the requests go on; see the module's text.
pub struct LegacyExchange<S: Service> {
    inner: Option<Inner<S>>,
    spawn: StdArc<dyn Spawn>,
}

struct Inner<S: Service> {
    parts: Vec<Part<S>>,
    /// What the transport wants to be dropped when it has ended: its place among the requests.
    _kept: Option<Box<dyn Send>>,
}

struct Part<S: Service> {
    session: StdArc<LegacySession>,
    id: RequestId,
    seat: StdArc<Seat>,
    slot: Option<Arc<Slot>>,
    reader: StdArc<Reader>,
    exchange: Exchange<S>,
    over: bool,
}

impl<S: Service> LegacyExchange<S> {
    /// Starts the requests of one POST. `kept` is dropped when the last has ended.
    ///
    /// # Errors
    /// [`NotBegun`]; then none of them was.
    pub fn start(
        session: &StdArc<LegacySession>,
        service: &StdArc<S>,
        (ports, config): (&Ports, &ServerConfig),
        requests: Vec<LegacyRequest<'_>>,
        kept: impl Send + 'static,
    ) -> Result<Self, NotBegun> {
        let seats = session.running.register(requests.iter().map(|request| &request.id))?;
        let begin = |(request, seat)| {
            let (service, ports, config) = (StdArc::clone(service), ports.clone(), config.clone());
            Part::begin(session, service, (ports, config), request, seat)
        };
        let parts = requests.into_iter().zip(seats).map(begin).collect();
        let inner = Inner { parts, _kept: Some(Box::new(kept)) };
        Ok(Self { inner: Some(inner), spawn: StdArc::clone(&ports.spawn) })
    }

    /// Appends the next message to `out`; whether it was the last. `None`: there is none.
    pub fn poll_message(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<bool>> {
        self.poll(|inner| inner.poll(out, |exchange, out| exchange.poll_message(cx, out), true))
    }

    /// Appends the messages that wait, each between `before` and `after`, until `out` has grown by about `bytes`; whether
    /// the last one was among them. `None`: there is no other message.
    pub fn poll_batch(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        bytes: usize,
        frame: (&[u8], &[u8]),
    ) -> Poll<Option<bool>> {
        self.poll(|inner| inner.poll(out, |exchange, out| exchange.poll_batch(cx, out, bytes, frame), false))
    }

    fn poll(&mut self, poll: impl FnOnce(&mut Inner<S>) -> Poll<Option<bool>>) -> Poll<Option<bool>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let polled = poll(inner);
        if matches!(polled, Poll::Ready(None | Some(true))) {
            self.inner = None;
        }
        polled
    }
}

impl<S: Service> Inner<S> {
    /// Polls the parts that go on; after the first message only, or all.
    fn poll(
        &mut self,
        out: &mut Vec<u8>,
        mut poll: impl FnMut(&mut Exchange<S>, &mut Vec<u8>) -> Poll<Option<bool>>,
        one: bool,
    ) -> Poll<Option<bool>> {
        let before = out.len();
        for part in self.parts.iter_mut().filter(|part| !part.over) {
            match poll(&mut part.exchange, out) {
                Poll::Pending => part.over = part.is_cancelled(),
                Poll::Ready(last) => part.over = last.is_none_or(|last| last),
            }
            if one && out.len() > before {
                break;
            }
        }
        let over = self.parts.iter().all(|part| part.over);
        match (out.len() > before, over) {
            (true, over) => Poll::Ready(Some(over)),
            (false, true) => Poll::Ready(None),
            (false, false) => Poll::Pending,
        }
    }
}

impl<S: Service> Part<S> {
    fn begin(
        session: &StdArc<LegacySession>,
        service: StdArc<S>,
        (ports, config): (Ports, ServerConfig),
        request: LegacyRequest<'_>,
        seat: StdArc<Seat>,
    ) -> Self {
        let LegacyRequest { id, method, params, key_header } = request;
        let (timer, reader) = (StdArc::clone(&ports.timer), StdArc::<Reader>::default());
        let mut slot = None;
        let exchange = Exchange::begin(service, ports, config, |engine, now| {
            let came = Came { id: id.clone(), method, params, key_header, reader: Some(StdArc::clone(&reader)) };
            if let Err(refusal) = session.shared.request(engine, now, came) {
                engine.refuse_request(&id, &error_of(refusal, method));
            }
            slot = engine.first_slot();
        });
        // One that was refused has none: there is nothing to cancel.
        if let Some(slot) = &slot {
            seat.run(timer.now(), slot);
        }
        Self { session: StdArc::clone(session), id, seat, slot, reader, exchange, over: false }
    }

    /// A cancelled request is not answered: nothing wakes for its end but the cancellation itself.
    fn is_cancelled(&self) -> bool {
        let reason = self.slot.as_ref().and_then(|slot| slot.reason());
        matches!(reason, Some(CancelReason::Cancelled(_) | CancelReason::Disconnected))
    }
}

impl<S: Service> Drop for Part<S> {
    fn drop(&mut self) {
        self.session.running.release(&self.id, &self.seat);
    }
}

impl<S: Service> Drop for LegacyExchange<S> {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            inner.parts.iter().for_each(|part| part.reader.leave());
            self.spawn.spawn(Box::pin(Unread { inner, text: Vec::new() }));
        }
    }
}

/// An exchange whose client hung up: it runs to its end, and nobody reads it.
struct Unread<S: Service> {
    inner: Inner<S>,
    text: Vec<u8>,
}

// Nothing in it is pinned.
impl<S: Service> Unpin for Unread<S> {}

impl<S: Service> Future for Unread<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        const BATCH: usize = 4 << 10;
        let Self { inner, text } = &mut *self;
        loop {
            text.clear();
            let mut batch =
                |exchange: &mut Exchange<S>, out: &mut Vec<u8>| exchange.poll_batch(cx, out, BATCH, (&[], &[]));
            match inner.poll(text, &mut batch, false) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(false)) => {}
                Poll::Ready(Some(true) | None) => return Poll::Ready(()),
            }
        }
    }
}

impl<S: Service> core::fmt::Debug for LegacyExchange<S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LegacyExchange").field("over", &self.inner.is_none()).finish_non_exhaustive()
    }
}
