//! Decides who in this process hears that tasks changed: whoever asked, once it is durable and before the answer to the
//! one who changed them.

use std::sync::{Arc, Weak};

use crate::guard::quietly;
use crate::sync::Mutex;
use crate::task::TaskError;

/// How many callbacks a ledger keeps.
const MAX_WATCHERS: usize = 64;

type Callback = dyn Fn() + Send + Sync;

#[derive(Default)]
pub(crate) struct Watchers(Mutex<Vec<Weak<Callback>>>);

impl Watchers {
    pub(crate) fn add(&self, callback: &Arc<Callback>) -> Result<(), TaskError> {
        let mut watchers = self.0.lock();
        watchers.retain(|watcher| watcher.strong_count() > 0);
        if watchers.len() >= MAX_WATCHERS {
            return Err(TaskError::TooManyWatchers { limit: MAX_WATCHERS });
        }
        watchers.push(Arc::downgrade(callback));
        Ok(())
    }

    /// Calls all, outside of the lock. A panic of one is its own affair.
    pub(crate) fn notify(&self) {
        let callbacks: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        for callback in callbacks {
            quietly(|| callback());
            // It may be the last owner.
            quietly(|| drop(callback));
        }
    }
}
