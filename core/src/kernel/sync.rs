//! The one place that names the standard library's locks, so that loom can stand in for them (`--cfg steady_loom`).

#[cfg(not(steady_loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU64, Ordering},
};

#[cfg(steady_loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU64, Ordering},
};

/// Holds what is made once; no model looks into it.
pub(super) use std::sync::OnceLock;

use core::task::{Context, Waker};
use std::sync::atomic::AtomicU64 as Untracked;

/// A number that threads add to and no model looks into.
#[derive(Debug, Default)]
pub(super) struct Counter(Untracked);

impl Counter {
    #[inline]
    pub(super) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

use super::mutant;

/// A lock without poison: a handler that panics elsewhere must not take the connection with it.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(imp::Mutex<T>);

pub(crate) type MutexGuard<'a, T> = imp::MutexGuard<'a, T>;

#[cfg(not(steady_loom))]
use std::sync as imp;

#[cfg(steady_loom)]
use loom::sync as imp;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self.0.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    /// The same, and whether another thread had it. In a model it always had: a thread that holds a lock there does so in
    /// one step, and no other would ever meet it.
    #[inline]
    pub(crate) fn lock_or_meet(&self) -> (MutexGuard<'_, T>, bool) {
        #[cfg(not(steady_loom))]
        if let Ok(guard) = self.0.try_lock() {
            return (guard, false);
        }
        (self.lock(), true)
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

/// Registers the task of `cx` as the one that waits. The waker before is dropped without the lock: a task that ends with it
/// may hold what is locked.
pub(super) fn wait<S>(
    mut state: MutexGuard<'_, S>,
    cx: &Context<'_>,
    waker: impl FnOnce(&mut S) -> &mut Option<Waker>,
) {
    let old = waker(&mut state).replace(cx.waker().clone());
    drop(state);
    drop(old);
}
