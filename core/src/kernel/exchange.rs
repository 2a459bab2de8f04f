//! One HTTP exchange: one request in, its messages out, and a disconnect that cancels it.
//!
//! There is no loop: the transport's body polls it. Dropping it before its answer left is the cancellation of rule C1; the
//! handler, which is spawned, survives that by its grace period and learns of it through its context.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::task::{Context, Poll};

use super::Ports;
use super::alarm::Alarm;
use super::engine::{Engine, ServerConfig};
use super::service::Service;
use super::shutdown::Watch;
use super::staging;
use crate::coordinator::Event;
use crate::transport::Transport;

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
        let mut engine = Engine::new(service, ports, config);
        let now = engine.ports.timer.now();
        let watch = Watch::new(engine.config.shutdown.clone());
        if engine.config.shutdown.is_draining() {
            engine.drain(now, Transport::Http);
        }
        engine.receive(now, text);
        Self { engine, alarm: Alarm::default(), watch, over: false }
    }

    /// Appends the next message to `out`; whether it was the last. `None`: there is none, as for a notification.
    pub fn poll_message(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<bool>> {
        loop {
            let now = self.engine.ports.timer.now();
            let Engine { ports, config, .. } = &self.engine;
            if let Some(now) = self.watch.poll_drain(cx, &ports.timer, config.shutdown_limit) {
                self.engine.drain(now, Transport::Http);
            }
            if self.watch.is_cut(now) {
                self.engine.cut(now);
            }
            let wake_at = self.engine.poll_timers(now);
            let before = out.len();
            if let Some((popped, ())) = self.engine.pop(|item| staging::append(out, item)) {
                self.engine.sent(out.len() - before);
                self.over = popped.last || popped.handle.is_none();
                return Poll::Ready(Some(self.over));
            }
            if self.over || self.engine.in_flight() == 0 {
                return Poll::Ready(None);
            }
            let timer = &self.engine.ports.timer;
            let deadlines = [wake_at, self.watch.wake_at()];
            if self.engine.queue.park(cx).is_pending() && self.alarm.poll(cx, timer, deadlines).is_pending() {
                return Poll::Pending;
            }
        }
    }
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
