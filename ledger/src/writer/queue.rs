//! Decides what waits for the writer: a bounded line, taken in batches. While one batch is being synced the next one
//! fills, so that a lone caller never waits for company and many callers share one sync.

use std::collections::VecDeque;
use std::time::Duration;

use crate::mutant;
use crate::sync::{Condvar, Mutex, wait, wait_for};

/// A bounded queue of many producers and one consumer.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    capacity: usize,
}

struct State<T> {
    waiting: VecDeque<T>,
    /// The most that have waited at once.
    most: usize,
    closed: bool,
}

impl<T> State<T> {
    fn next(&mut self, max: usize) -> Vec<T> {
        let count = self.waiting.len().min(max);
        self.waiting.drain(..count).collect()
    }
}

/// Why an item was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    Closed,
}

impl<T> Queue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State { waiting: VecDeque::new(), most: 0, closed: false };
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
            state.most = state.most.max(state.waiting.len());
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
        Some(state.next(max))
    }

    /// As [`Queue::take`], but it waits for no longer than `patience`, or a little less: then what it takes is empty.
    pub(crate) fn take_within(&self, max: usize, patience: Duration) -> Option<Vec<T>> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && !state.closed {
            state = self.state.keep(state, "queue-park-outside-lock");
            state = wait_for(&self.filled, state, patience);
        }
        if state.waiting.is_empty() && state.closed { None } else { Some(state.next(max)) }
    }

    /// How many wait, and the most that have waited at once.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.waiting.len(), state.most)
    }

    /// Refuses every further item.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        if !mutant::is("queue-close-wakes-nobody") {
            self.filled.notify_all();
        }
    }
}
