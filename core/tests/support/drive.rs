//! What a test holds in its hands: a future that it polls itself, and a count of drops.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use super::Flag;

/// A future that is polled by hand, when it was woken.
pub(crate) struct Driven<F> {
    future: Pin<Box<F>>,
    bell: Arc<Flag>,
}

impl<F: Future> Driven<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future: Box::pin(future), bell: Flag::rung() }
    }

    /// Polls it if it was woken.
    pub(crate) fn turn(&mut self) -> Option<Poll<F::Output>> {
        if !self.bell.take() {
            return None;
        }
        let waker = Waker::from(Arc::clone(&self.bell));
        Some(self.future.as_mut().poll(&mut Context::from_waker(&waker)))
    }

    /// The future, to go on with.
    pub(crate) fn into_inner(self) -> F
    where
        F: Unpin,
    {
        *Pin::into_inner(self.future)
    }

    pub(crate) fn get(&self) -> &F {
        &self.future
    }
}

/// Counts the drops of what holds it.
#[derive(Clone, Default)]
pub(crate) struct Drops(Arc<AtomicUsize>);

impl Drops {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn guard(&self) -> DropGuard {
        DropGuard(self.clone())
    }
}

pub(crate) struct DropGuard(Drops);

impl Drop for DropGuard {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::SeqCst);
    }
}
