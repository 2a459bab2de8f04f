//! Wakes what waits for changes of a store, and what waits for the first of two things.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use super::OnChange;
use crate::kernel::sync::Mutex;

/// Counts changes. A ring that comes between a count and its wait is not lost.
#[derive(Default)]
pub(super) struct Bell(Mutex<State>);

#[derive(Default)]
struct State {
    rung: u64,
    next: u64,
    /// Whoever waits now: one for each future.
    waiting: BTreeMap<u64, Waker>,
}

impl Bell {
    /// A bell, and what rings it: the store keeps no other owner of that.
    pub(super) fn new() -> (Arc<Self>, Arc<OnChange>) {
        let bell = Arc::new(Self::default());
        let rings = Arc::clone(&bell);
        (bell, Arc::new(move || rings.ring()))
    }

    fn ring(&self) {
        let waiting = {
            let mut state = self.0.lock();
            state.rung = state.rung.wrapping_add(1);
            core::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// How often it has rung.
    pub(super) fn count(&self) -> u64 {
        self.0.lock().rung
    }

    /// Waits until it has rung more often than `heard`.
    pub(super) const fn wait(&self, heard: u64) -> Waiting<'_> {
        Waiting { bell: self, heard, key: None }
    }
}

pub(super) struct Waiting<'a> {
    bell: &'a Bell,
    heard: u64,
    key: Option<u64>,
}

impl Future for Waiting<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.bell.0.lock();
        if state.rung != self.heard {
            return Poll::Ready(());
        }
        let key = self.key.unwrap_or_else(|| {
            state.next += 1;
            state.next
        });
        let old = state.waiting.insert(key, cx.waker().clone());
        drop(state);
        // Not under the lock: what ends with a waker may be a task that waits here.
        drop(old);
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let gone = self.bell.0.lock().waiting.remove(&key);
            drop(gone);
        }
    }
}

/// What came first.
pub(super) enum Either<A, B> {
    First(A),
    Second(B),
}

/// The first of two; the first one's turn comes first.
pub(super) async fn either<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> Either<A, B> {
    let (mut first, mut second) = (core::pin::pin!(first), core::pin::pin!(second));
    core::future::poll_fn(|cx| {
        if let Poll::Ready(done) = first.as_mut().poll(cx) {
            return Poll::Ready(Either::First(done));
        }
        second.as_mut().poll(cx).map(Either::Second)
    })
    .await
}
