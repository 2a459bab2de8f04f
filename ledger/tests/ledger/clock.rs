//! A clock that stands where the test puts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use steady_ledger::{Clock, WallTime};

#[derive(Clone)]
pub(crate) struct TestClock(Arc<AtomicI64>);

impl TestClock {
    pub(crate) fn at(millis: i64) -> Self {
        Self(Arc::new(AtomicI64::new(millis)))
    }

    pub(crate) fn set(&self, millis: i64) {
        self.0.store(millis, Ordering::Relaxed);
    }

    pub(crate) fn pass(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::Relaxed);
    }

    pub(crate) fn millis(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn clock(&self) -> Clock {
        let now = Arc::clone(&self.0);
        Clock::new(move || WallTime::from_unix_millis(now.load(Ordering::Relaxed)))
    }
}
