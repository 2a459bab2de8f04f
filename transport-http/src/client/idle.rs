//! Connections that are kept for the next request, for a while.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use steady_core::kernel::Timer;
use steady_core::time::Instant;
use tokio::task::AbortHandle;

use super::config::Config;
use super::pool::Full;
use crate::clock::Clock;

/// The kept connections of one client.
pub(super) struct Idle {
    clock: Clock,
    timeout: Duration,
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The oldest first.
    kept: VecDeque<(Instant, SendRequest<Full>)>,
    /// Closes what was kept for long enough, also when nobody asks for a connection any more.
    watch: Option<AbortHandle>,
}

impl Idle {
    pub(super) fn new(config: &Config) -> Arc<Self> {
        let Config { clock, idle_timeout, idle_connections, .. } = config;
        let clock = clock.clone();
        Arc::new(Self { clock, timeout: *idle_timeout, most: *idle_connections, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a connection has been kept since then for long enough.
    fn is_over(&self, since: Instant) -> bool {
        self.clock.now().saturating_since(since) >= self.timeout
    }

    /// The newest kept connection that is still open.
    pub(super) fn take(&self) -> Option<SendRequest<Full>> {
        let mut state = self.state();
        while let Some((since, sender)) = state.kept.pop_back() {
            if sender.is_ready() && !self.is_over(since) {
                return Some(sender);
            }
        }
        None
    }

    /// Keeps a connection; at the limit the oldest makes room.
    pub(super) fn keep(self: &Arc<Self>, sender: SendRequest<Full>) {
        let mut state = self.state();
        state.kept.retain(|(since, sender)| !sender.is_closed() && !self.is_over(*since));
        if self.most == 0 {
            return;
        }
        if state.kept.len() >= self.most {
            state.kept.pop_front();
        }
        let now = self.clock.now();
        state.kept.push_back((now, sender));
        if state.watch.is_none() {
            let watch = close_in_time(Arc::downgrade(self), self.clock.timer(), now + self.timeout);
            state.watch = Some(tokio::spawn(watch).abort_handle());
        }
    }

    /// Closes what was kept for long enough; when there is more to close.
    fn close_over(&self) -> Option<Instant> {
        let mut state = self.state();
        state.kept.retain(|(since, sender)| !sender.is_closed() && !self.is_over(*since));
        let next = state.kept.front().map(|(since, _)| *since + self.timeout);
        if next.is_none() {
            state.watch = None;
        }
        next
    }
}

async fn close_in_time(idle: Weak<Idle>, timer: Arc<dyn Timer>, mut at: Instant) {
    loop {
        timer.sleep_until(at).await;
        let Some(next) = idle.upgrade().and_then(|idle| idle.close_over()) else { return };
        at = next;
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.state().watch.iter().for_each(AbortHandle::abort);
    }
}
