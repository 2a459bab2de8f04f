//! Decides how an answer gets from the writer to its caller, who may block, await, or be gone.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::mutant;
use crate::sync::{Arc, Condvar, Mutex, wait};

/// A place for one answer.
pub(crate) fn reply<R>() -> (Sender<R>, Receiver<R>) {
    let shared = Arc::new(Shared { state: Mutex::new(State::Waiting(None)), ready: Condvar::new() });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared })
}

struct Shared<R> {
    state: Mutex<State<R>>,
    ready: Condvar,
}

enum State<R> {
    Waiting(Option<Waker>),
    Answered(R),
    /// The sender is gone without an answer, or the answer was taken.
    Over,
}

/// Gives the answer. Dropped without one, it tells the receiver that there will be none.
pub(crate) struct Sender<R> {
    shared: Arc<Shared<R>>,
}

impl<R> Sender<R> {
    pub(crate) fn send(self, answer: R) {
        self.end(State::Answered(answer));
    }

    fn end(&self, end: State<R>) {
        let waker = {
            let mut state = self.shared.state.lock();
            match &mut *state {
                State::Waiting(waker) => {
                    let waker = waker.take();
                    *state = end;
                    waker
                }
                State::Answered(_) | State::Over => return,
            }
        };
        self.shared.ready.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<R> Drop for Sender<R> {
    fn drop(&mut self) {
        if !mutant::is("reply-ends-in-silence") {
            self.end(State::Over);
        }
    }
}

/// Waits for the answer, as a thread or as a future. None if there will be none.
pub(crate) struct Receiver<R> {
    shared: Arc<Shared<R>>,
}

impl<R> Receiver<R> {
    pub(crate) fn wait(self) -> Option<R> {
        let mut state = self.shared.state.lock();
        while let State::Waiting(_) = &*state {
            state = self.shared.state.keep(state, "reply-park-outside-lock");
            state = wait(&self.shared.ready, state);
        }
        state.take()
    }
}

impl<R> State<R> {
    fn take(&mut self) -> Option<R> {
        match std::mem::replace(self, Self::Over) {
            Self::Answered(answer) => Some(answer),
            Self::Waiting(_) | Self::Over => None,
        }
    }
}

impl<R> Future for Receiver<R> {
    type Output = Option<R>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.shared.state.lock();
        let State::Waiting(known) = &mut *state else { return Poll::Ready(state.take()) };
        let waker = match known.take() {
            Some(mut waker) => {
                waker.clone_from(context.waker());
                waker
            }
            None => context.waker().clone(),
        };
        state = self.shared.state.keep(state, "reply-look-then-register");
        *state = State::Waiting(Some(waker));
        Poll::Pending
    }
}
