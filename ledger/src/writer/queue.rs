//! Decides what waits for the writer: a bounded line, taken in batches. While one batch is being synced the next one
//! fills, so that a lone caller never waits for company and many callers share one sync.

use std::collections::VecDeque;

use crate::mutant;
use crate::sync::{Condvar, Mutex, wait};

/// A bounded queue of many producers and one consumer.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    capacity: usize,
}

struct State<T> {
    waiting: VecDeque<T>,
    closed: bool,
}

/// Why an item was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    Closed,
}

impl<T> Queue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State { waiting: VecDeque::new(), closed: false };
        Self { state: Mutex::new(state), filled: Condvar::new(), capacity }
    }

    /// Takes in an item, or drops it and says why.
    pub(crate) fn push(&self, item: T) -> Result<(), Refused> {
        {
            let mut state = self.state.lock();
            if state.closed {
                return Err(Refused::Closed);
            }
            if state.waiting.len() >= self.capacity {
                return Err(Refused::Full);
            }
            state = self.state.keep(state, "queue-look-then-push");
            state.waiting.push_back(item);
        }
        self.filled.notify_one();
        Ok(())
    }

    /// The oldest items, at most `max` of them, once there is one. None once the queue is closed and empty: what was
    /// taken in before the close still comes out.
    pub(crate) fn take(&self, max: usize) -> Option<Vec<T>> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() || mutant::is("queue-end-at-close") && state.closed {
            if state.closed {
                return None;
            }
            state = self.state.keep(state, "queue-park-outside-lock");
            state = wait(&self.filled, state);
        }
        let count = state.waiting.len().min(max);
        Some(state.waiting.drain(..count).collect())
    }

    /// Refuses every further item.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        if !mutant::is("queue-close-wakes-nobody") {
            self.filled.notify_all();
        }
    }
}
