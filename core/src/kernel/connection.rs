//! The one loop of a multiplexed server: inputs under a budget, then the clock, then one batched write.
//!
//! A turn handles what is in hand before it looks at the clock, so that an answer or a cancellation beats a timer that was
//! not handled yet; the budget bounds how long the timer can wait behind a flood (rule T5). A turn that spent its budget
//! wakes itself.

use alloc::sync::Arc;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::io;

use super::Ports;
use super::alarm::Alarm;
use super::engine::{Engine, ServerConfig};
use super::legacy::Door;
use super::port::{Link, Received};
use super::service::Service;
use super::shutdown::Watch;
use super::staging::Staging;
use super::stats::ServerCounters;
use crate::coordinator::Event;
use crate::time::Instant;
use crate::transport::Transport;

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The link failed.
    #[error("the link to the client failed: {0}")]
    Link(#[from] io::Error),
    /// The client took no byte for the write-stall limit.
    #[error("the client has not read for {0:?}; the connection was given up")]
    Stalled(Duration),
    /// Messages that waited at the end had not left when the flush limit was over.
    #[error("not all that was written had left {0:?} after the end; the rest was given up")]
    Unsent(Duration),
}

/// A served connection: a future that ends when the client closes the link.
///
/// At the end of input every handler is cancelled; then handlers get the drain time to end, answers that wait get the flush
/// limit to leave, and the future resolves, whatever a handler does. [`Shutdown`](super::Shutdown) ends it in order: what
/// runs may finish first.
pub struct Connection<S, L> {
    engine: Engine<S>,
    /// Where the older revisions come in; none if they are not served.
    door: Option<Door>,
    link: L,
    staging: Staging,
    alarm: Alarm,
    /// Since when the link takes no byte, if it does not.
    stalled_since: Option<Instant>,
    /// Since when it is known that the client sends nothing more, as far as was read ahead, or that this end closes.
    over_since: Option<Instant>,
    /// When this end was asked to drain: from then on the client knew, and has had the time of the drain to read.
    drains_since: Option<Instant>,
    watch: Watch,
    closing: Option<Closing>,
}

/// How often a stalled connection, which handlers do not wake, takes a turn to say what was counted.
const STALLED_LOOK: Duration = Duration::from_secs(1);

/// Until when a closing connection waits.
#[derive(Clone, Copy, Debug)]
struct Closing {
    /// For its handlers.
    handlers: Instant,
    /// For its output.
    flush: Instant,
}

/// Why a turn stopped reading.
enum Read {
    /// The link has nothing now, and wakes the loop when it has.
    Waits,
    /// No place for a refusal, or a final that waits for room.
    Blocked,
    /// The budget is spent.
    MoreWaits,
}

impl<S: Service, L: Link> Connection<S, L> {
    /// Serves `service` over `link`.
    #[must_use]
    pub fn new(service: impl Into<Arc<S>>, link: L, ports: Ports, config: ServerConfig) -> Self {
        Self {
            watch: Watch::new(config.shutdown.clone()),
            door: Door::new(config.eras),
            engine: Engine::new(service.into(), ports, config, Transport::Stdio),
            link,
            staging: Staging::default(),
            alarm: Alarm::default(),
            stalled_since: None,
            over_since: None,
            drains_since: None,
            closing: None,
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> ServerCounters {
        self.engine.counters()
    }

    /// Reads until nothing waits, the budget is spent, or what is read could not be answered.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<Read, io::Error> {
        for _ in 0..self.engine.config.turn_budget.max(1) {
            if self.closing.is_some() {
                return Ok(Read::Waits);
            }
            if !self.engine.can_read() {
                if self.link.poll_ahead(cx).is_ready() {
                    let now = self.engine.ports.timer.now();
                    self.over_since.get_or_insert(now);
                }
                return Ok(Read::Blocked);
            }
            if let Some(text) = self.door.as_mut().and_then(Door::next_of_batch) {
                let now = self.engine.ports.timer.now();
                receive(&mut self.engine, &mut self.door, now, &text, true);
                continue;
            }
            let Poll::Ready(received) = self.link.poll_recv(cx) else { return Ok(Read::Waits) };
            // Read for each message: handlers run in between.
            let now = self.engine.ports.timer.now();
            match received {
                Received::Message(text) => receive(&mut self.engine, &mut self.door, now, text, false),
                Received::Bad(bad) => self.engine.receive_bad(bad),
                // Its requests, of the older revisions only, have no stream of their own.
                Received::Unanswered(..) => {}
                Received::Closed => self.close(now, now),
                Received::Failed(error) => {
                    self.close(now, now);
                    return Err(error);
                }
            }
        }
        Ok(Read::MoreWaits)
    }

    /// `over`: since when the client can have known that it is over.
    fn close(&mut self, now: Instant, over: Instant) {
        self.engine.close(now, Event::Lost);
        if let Some(door) = &mut self.door {
            door.close();
        }
        self.over_since.get_or_insert(over);
        let handlers = now + self.engine.config.drain;
        self.closing = Some(Closing { handlers, flush: handlers + self.engine.config.flush });
    }

    /// Writes until nothing waits, the link takes no more, or the budget is spent; whether it was spent.
    fn write(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, ConnectionError> {
        self.staging.purge(&self.engine.purged);
        self.engine.purged.clear();
        // A handler on another thread can fill as fast as the link takes: reading must get its turn all the same.
        for _ in 0..self.engine.config.turn_budget.max(1) {
            self.staging.fill::<L, _>(&mut self.engine);
            if self.staging.pending().is_empty() {
                self.stalled_since = None;
                return Ok(false);
            }
            match self.link.poll_send(cx, self.staging.pending()) {
                Poll::Ready(Ok(0)) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Poll::Ready(Ok(count)) => {
                    self.staging.sent(count);
                    self.engine.sent(count);
                    self.stalled_since = None;
                }
                Poll::Ready(Err(error)) => return Err(error.into()),
                Poll::Pending => {
                    let since = *self.stalled_since.get_or_insert(now);
                    let (at, limit) = self.stalls(since);
                    return if now >= at { Err(ConnectionError::Stalled(limit)) } else { Ok(false) };
                }
            }
        }
        Ok(true)
    }

    /// Until when a link that takes no byte since then may go on so, and the limit. A client that sends nothing more has
    /// the flush limit from its end on, however long it had paused before; if it still reads nothing, it is gone.
    fn stalls(&self, since: Instant) -> (Instant, Duration) {
        let config = &self.engine.config;
        let (from, limit) = match self.over_since {
            None => (since, config.write_stall),
            Some(over) => (since.max(over), config.flush),
        };
        (from + limit, limit)
    }

    /// Whether a closing connection is done: every handler has ended or had its time, and all is sent.
    fn poll_drained(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<Result<(), ConnectionError>> {
        if self.closing.is_none() && self.watch.is_draining() && self.engine.in_flight() == 0 {
            self.close(now, self.drains_since.unwrap_or(now));
        }
        let Some(Closing { handlers, flush }) = self.closing else { return Poll::Pending };
        let ended = self.engine.running() == 0 || now >= handlers;
        if ended
            && self.engine.queue.is_empty()
            && self.staging.pending().is_empty()
            && let Poll::Ready(flushed) = self.link.poll_flush(cx)
        {
            return Poll::Ready(flushed.map_err(ConnectionError::from));
        }
        if now < flush { Poll::Pending } else { Poll::Ready(Err(ConnectionError::Unsent(self.engine.config.flush))) }
    }

    fn poll_alarm(&mut self, cx: &mut Context<'_>, now: Instant, wake_at: Option<Instant>) -> Poll<()> {
        let stall_at = self.stalled_since.map(|since| self.stalls(since).0.min(now + STALLED_LOOK));
        // Of a closing connection only the time that is still to come: an alarm that is past would ring for ever.
        let ending = match self.closing {
            None => self.watch.wake_at(),
            Some(Closing { handlers, flush }) => Some(if now < handlers { handlers } else { flush }),
        };
        self.alarm.poll(cx, &self.engine.ports.timer, [wake_at, stall_at, ending])
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<ServerCounters, ConnectionError>> {
        loop {
            // Before reading: a handler that has ended must not count against what is read now.
            self.engine.hear();
            // Before reading, too: what comes after the order is refused.
            let Engine { ports, config, .. } = &self.engine;
            if self.watch.register(cx)
                && let Some(now) = self.watch.is_drained(&ports.timer, config.shutdown_limit)
            {
                self.drains_since = Some(now);
                self.engine.drain();
            }
            let read = self.read(cx)?;
            let now = self.engine.ports.timer.now();
            if self.closing.is_none() && self.watch.is_cut(now) {
                self.engine.cut(now);
                self.close(now, self.drains_since.unwrap_or(now));
            }
            let wake_at = self.engine.poll_timers(now);
            let changes_wait = self.door.as_ref().is_some_and(|door| door.announce(&self.engine, cx));
            let unwritten = self.write(cx, now)?;
            if let Poll::Ready(drained) = self.poll_drained(cx, now) {
                return Poll::Ready(drained.map(|()| self.counters()));
            }
            // Nobody wakes a loop that stopped reading for want of room, once the room is there.
            let readable = (changes_wait || matches!(read, Read::Blocked)) && self.engine.can_read();
            if unwritten || readable || matches!(read, Read::MoreWaits) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            // A stalled link is woken by the link, not by the queue that it cannot take.
            let parked = self.stalled_since.is_some() || self.engine.queue.park(cx).is_pending();
            if parked && self.poll_alarm(cx, now, wake_at).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

/// A message of the modern revision is the engine's; what it hands back may be one of the older ones.
#[inline]
fn receive<S: Service>(engine: &mut Engine<S>, door: &mut Option<Door>, now: Instant, text: &str, batched: bool) {
    // The eras do not mix in one batch.
    let only = batched || door.as_ref().is_some_and(Door::is_only);
    let foreign = if only { engine.receive_foreign(now, text) } else { engine.receive(now, text) };
    match (foreign, door) {
        (None, _) => {}
        (Some(foreign), Some(door)) => door.receive(engine, now, foreign, text, batched),
        (Some(foreign), None) => engine.reject(foreign),
    }
}

impl<S: Service, L: Link + Unpin> Future for Connection<S, L> {
    type Output = Result<ServerCounters, ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.turn(cx);
        self.engine.publish();
        polled
    }
}

impl<S, L> core::fmt::Debug for Connection<S, L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Connection").field("closing", &self.closing).finish_non_exhaustive()
    }
}

impl<S, L> Drop for Connection<S, L> {
    fn drop(&mut self) {
        let now = self.engine.ports.timer.now();
        self.engine.close(now, Event::Lost);
        self.engine.publish();
    }
}
