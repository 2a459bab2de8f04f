//! Decides who in this process hears that tasks changed: whoever asked, once it is durable and before the answer to the
//! one who changed them.

use std::sync::{Arc, Weak};

use crate::guard::quietly;
use crate::sync::Mutex;
use crate::task::TaskError;

/// How many callbacks a ledger keeps.
const MAX_WATCHERS: usize = 64;

type Callback = dyn Fn() + Send + Sync;

/// What a callback is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// All that a client can see.
    Changes,
    /// What a worker waits for.
    Work,
}

/// What there is to hear of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Something that a client can see.
    pub(crate) changed: bool,
    /// Something that a worker may wait for.
    pub(crate) work: bool,
}

impl News {
    /// A change that no worker waits for, such as progress.
    #[cfg(feature = "postgres")]
    pub(crate) const SEEN: Self = Self { changed: true, work: false };
    /// A change that a worker may wait for.
    #[cfg(feature = "postgres")]
    pub(crate) const WORK: Self = Self { changed: true, work: true };
    /// A task is free again, and looks as before.
    #[cfg(feature = "postgres")]
    pub(crate) const RELEASED: Self = Self { changed: false, work: true };

    const fn is_for(self, interest: Interest) -> bool {
        match interest {
            Interest::Changes => self.changed,
            Interest::Work => self.work,
        }
    }
}

#[derive(Default)]
pub(crate) struct Watchers(Mutex<Vec<(Interest, Weak<Callback>)>>);

impl Watchers {
    pub(crate) fn add(&self, callback: &Arc<Callback>, interest: Interest) -> Result<(), TaskError> {
        let mut watchers = self.0.lock();
        watchers.retain(|(_, watcher)| watcher.strong_count() > 0);
        if watchers.len() >= MAX_WATCHERS {
            return Err(TaskError::TooManyWatchers { limit: MAX_WATCHERS });
        }
        watchers.push((interest, Arc::downgrade(callback)));
        Ok(())
    }

    /// Calls all whom it concerns, outside of the lock. A panic of one is its own affair.
    pub(crate) fn notify(&self, news: News) {
        let concerned = |(interest, watcher): &(Interest, Weak<Callback>)| {
            news.is_for(*interest).then(|| watcher.upgrade()).flatten()
        };
        let callbacks: Vec<_> = self.0.lock().iter().filter_map(concerned).collect();
        for callback in callbacks {
            quietly(|| callback());
            // It may be the last owner.
            quietly(|| drop(callback));
        }
    }
}
