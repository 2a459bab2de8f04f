//! One HTTP exchange: one request in, its messages out, and a disconnect that cancels it.
//!
//! There is no loop: the transport's body polls it. Dropping it before its answer left is the cancellation of rule C1; the
//! handler, which is spawned, survives that by its grace period and learns of it through its context.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::task::{Context, Poll};

use serde_json::value::RawValue;

use super::Ports;
use super::alarm::Alarm;
use super::engine::{Engine, ServerConfig};
use super::service::Service;
use super::shutdown::Watch;
use super::staging;
use crate::coordinator::Event;
use crate::id::RequestId;
use crate::outbound::{Batch, Popped};
use crate::rpc::{Params, RequestMeta};
use crate::time::Instant;
use crate::transport::Transport;

/// A request that a transport has read already, to check what it must before the request is served.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a transport fills in what it read")]
pub struct Request<'a> {
    /// Its id.
    pub id: RequestId,
    /// Its method.
    pub method: Cow<'a, str>,
    /// Its parameters, as they came.
    pub params: Option<&'a RawValue>,
    /// Its metadata, read by [`checked_meta`](crate::rpc::checked_meta).
    pub meta: RequestMeta<'a>,
    /// What the pass of [`parse_with_params`](crate::rpc::parse_with_params) found in its parameters.
    pub read: Params<'a>,
    /// The `Idempotency-Key` header, as it came.
    pub key_header: Option<Box<str>>,
}

/// A served exchange.
pub struct Exchange<S: Service> {
    engine: Engine<S>,
    alarm: Alarm,
    watch: Watch,
    over: bool,
}

impl<S: Service> Exchange<S> {
    /// Starts serving the one message of a POST. A cancellation that comes this way cancels nothing: it is a message of
    /// its own, and the exchange has no other request (rule H8).
    #[must_use]
    pub fn start(service: Arc<S>, ports: Ports, config: ServerConfig, text: &str) -> Self {
        Self::begin(service, ports, config, |engine, now| {
            if let Some(foreign) = engine.receive(now, text) {
                engine.reject(foreign);
            }
        })
    }

    /// Starts serving a request that was read and checked: it is not read again.
    #[must_use]
    pub fn serve(service: Arc<S>, ports: Ports, config: ServerConfig, request: Request<'_>) -> Self {
        Self::begin(service, ports, config, |engine, now| engine.admit(now, request))
    }

    pub(super) fn begin(
        service: Arc<S>,
        ports: Ports,
        config: ServerConfig,
        receive: impl FnOnce(&mut Engine<S>, Instant),
    ) -> Self {
        let mut engine = Engine::new(service, ports, config, Transport::Http);
        let now = engine.ports.timer.now();
        let watch = Watch::new(engine.config.shutdown.clone());
        if engine.config.shutdown.is_draining() {
            engine.drain();
        }
        receive(&mut engine, now);
        Self { engine, alarm: Alarm::default(), watch, over: false }
    }

    /// Appends the next message to `out`; whether it was the last. `None`: there is none, as for a notification.
    pub fn poll_message(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<bool>> {
        self.poll(cx, out, |engine, out| {
            let (popped, ()) = engine.pop(|item| staging::append(out, item))?;
            Some(is_last(popped))
        })
    }

    /// Appends the messages that wait, each between `before` and `after`, until `out` has grown by about `bytes`; whether
    /// the last one was among them. A batch costs one lock. `None`: there is no other message.
    pub fn poll_batch(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        bytes: usize,
        (before, after): (&[u8], &[u8]),
    ) -> Poll<Option<bool>> {
        self.poll(cx, out, |engine, out| {
            let mut last = false;
            let any = engine.pop_into(&mut Batch::default(), bytes, |popped, item| {
                out.extend_from_slice(before);
                staging::append(out, item);
                out.extend_from_slice(after);
                last |= is_last(popped);
            });
            any.then_some(last)
        })
    }

    /// Waits until `take` finds something, which says whether it was the last.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        mut take: impl FnMut(&mut Engine<S>, &mut Vec<u8>) -> Option<bool>,
    ) -> Poll<Option<bool>> {
        loop {
            let now = self.engine.ports.timer.now();
            let Engine { ports, config, .. } = &self.engine;
            if self.watch.is_drained(&ports.timer, config.shutdown_limit).is_some() {
                self.engine.drain();
            }
            if self.watch.is_cut(now) {
                self.engine.cut(now);
            }
            let wake_at = self.engine.poll_timers(now);
            let before = out.len();
            let taken = take(&mut self.engine, out);
            self.engine.sent(out.len() - before);
            if let Some(last) = taken {
                self.over = last;
                return Poll::Ready(Some(last));
            }
            if self.over || self.engine.in_flight() == 0 {
                return Poll::Ready(None);
            }
            // Only now, since most answer at once: the list of those who wait is one for all.
            if self.watch.register(cx) {
                continue;
            }
            let timer = &self.engine.ports.timer;
            let deadlines = [wake_at, self.watch.wake_at()];
            if self.engine.queue.park(cx).is_pending() && self.alarm.poll(cx, timer, deadlines).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

/// An answer ends its exchange, and so does a refusal, which belongs to no request.
const fn is_last(popped: Popped) -> bool {
    popped.last || popped.handle.is_none()
}

impl<S: Service> Drop for Exchange<S> {
    fn drop(&mut self) {
        let now = self.engine.ports.timer.now();
        self.engine.close(now, Event::Cancel);
        self.engine.hear();
        self.engine.publish();
    }
}

impl<S: Service> core::fmt::Debug for Exchange<S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Exchange").field("over", &self.over).finish_non_exhaustive()
    }
}
