//! A clock that only the test moves.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use steady_http::client::Clock;
use steady_http::steady_core::kernel::{BoxFuture, Timer};
use steady_http::steady_core::time::Instant;

/// Clones are the same clock.
#[derive(Clone, Default)]
pub(crate) struct Manual(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    now: Instant,
    next: u64,
    sleepers: BTreeMap<(Instant, u64), Waker>,
}

impl Manual {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic")
    }

    pub(crate) fn clock(&self) -> Clock {
        Clock::of(Arc::new(self.clone()))
    }

    /// Lets so much time pass at once.
    pub(crate) fn advance(&self, by: Duration) {
        let mut state = self.state();
        state.now = state.now + by;
        let later = (Instant::from_nanos(state.now.as_nanos() + 1), 0);
        let later = state.sleepers.split_off(&later);
        let due = std::mem::replace(&mut state.sleepers, later);
        drop(state);
        due.into_values().for_each(Waker::wake);
    }

    /// Whether somebody sleeps who will have woken after so long.
    pub(crate) fn is_armed_within(&self, limit: Duration) -> bool {
        let state = self.state();
        let at = state.now + limit;
        state.sleepers.keys().any(|(until, _)| *until <= at)
    }

    /// Waits until somebody sleeps for exactly so long from now on.
    pub(crate) async fn is_armed_for(&self, limit: Duration) {
        let armed = || {
            let state = self.state();
            let at = state.now + limit;
            state.sleepers.keys().any(|(until, _)| *until == at)
        };
        while !armed() {
            tokio::task::yield_now().await;
        }
    }
}

impl Timer for Manual {
    fn now(&self) -> Instant {
        self.state().now
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
        let mut state = self.state();
        state.next += 1;
        Box::pin(Sleep { clock: self.clone(), key: (at, state.next) })
    }
}

/// One sleeper. Whoever stops waiting is armed no longer.
struct Sleep {
    clock: Manual,
    key: (Instant, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.state();
        if state.now >= self.key.0 {
            return Poll::Ready(());
        }
        state.sleepers.insert(self.key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.clock.state().sleepers.remove(&self.key);
    }
}
