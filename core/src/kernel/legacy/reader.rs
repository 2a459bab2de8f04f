//! Whether anybody reads what a request of a session says: over HTTP, its stream can break while the request goes on.

use core::task::{Context, Poll, Waker};

use crate::kernel::sync::Mutex;

/// The reader of one request's stream.
#[derive(Debug, Default)]
pub(super) struct Reader(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    gone: bool,
    /// Who waits for it to go: the request's handler alone.
    waker: Option<Waker>,
}

impl Reader {
    /// It has hung up. No other will come: a stream cannot be resumed.
    pub(super) fn leave(&self) {
        let mut state = self.0.lock();
        state.gone = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.0.lock().gone
    }

    /// Ready once it is gone.
    pub(super) fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.gone {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
