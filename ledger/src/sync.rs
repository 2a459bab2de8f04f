//! The one place that names the standard library's locks, so that loom can stand in for them (`--cfg steady_loom`).

use crate::mutant;

#[cfg(not(steady_loom))]
use std::sync as imp;

#[cfg(steady_loom)]
use loom::sync as imp;

use std::time::Duration;

pub(crate) use imp::{Arc, Condvar, MutexGuard};

/// A lock without poison: what it holds is consistent at every point at which a panic can leave it.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self.0.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    /// Keeps the lock. Under the mutant of this name it is let go in between, and taken again.
    pub(crate) fn keep<'a>(&'a self, guard: MutexGuard<'a, T>, mutant: &str) -> MutexGuard<'a, T> {
        if !mutant::is(mutant) {
            return guard;
        }
        drop(guard);
        self.lock()
    }
}

/// Waits for `condvar`; may wake without reason.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    match condvar.wait(guard) {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Waits for `condvar`, at most for `patience`; may wake without reason.
pub(crate) fn wait_for<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, patience: Duration) -> MutexGuard<'a, T> {
    match condvar.wait_timeout(guard, patience) {
        Ok((guard, _)) => guard,
        Err(poisoned) => poisoned.into_inner().0,
    }
}
