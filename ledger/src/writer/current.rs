//! Decides what those who wait are told about what they wait for. A closure cannot be stopped from outside; it can be
//! named.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::Mutex;

/// The unit that runs now, and since when.
#[derive(Default)]
pub(super) struct Current(Mutex<Option<(Arc<str>, Instant)>>);

impl Current {
    /// A unit of this operation runs until the value is dropped.
    pub(super) fn enter(&self, operation: &Arc<str>) -> Running<'_> {
        *self.0.lock() = Some((Arc::clone(operation), Instant::now()));
        Running(self)
    }

    pub(super) fn operation(&self) -> Option<Box<str>> {
        self.0.lock().as_ref().map(|(operation, _)| Box::from(&**operation))
    }

    /// The operation, if it has run for longer than this.
    pub(super) fn longer_than(&self, limit: Duration) -> Option<Box<str>> {
        let current = self.0.lock();
        let late = current.as_ref().filter(|(_, since)| since.elapsed() > limit);
        late.map(|(operation, _)| Box::from(&**operation))
    }
}

pub(super) struct Running<'a>(&'a Current);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.0.0.lock() = None;
    }
}
