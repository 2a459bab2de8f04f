//! What is in progress over all connections, and how much of it may be.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// A number of things that exist now, and how many may.
#[derive(Debug)]
pub(super) struct Gauge {
    now: AtomicUsize,
    most: usize,
}

/// One of the things that a [`Gauge`] counts; dropped when it is over.
#[derive(Debug)]
pub(super) struct Counted(Arc<Gauge>);

impl Gauge {
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { now: AtomicUsize::new(0), most })
    }

    /// One more, unless there are as many as may be.
    pub(super) fn take(self: &Arc<Self>) -> Option<Counted> {
        let taken =
            self.now.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| (now < self.most).then(|| now + 1));
        taken.is_ok().then(|| Counted(Arc::clone(self)))
    }

    /// One more, whether it may be or not: it was admitted in another way.
    pub(super) fn count(self: &Arc<Self>) -> Counted {
        self.now.fetch_add(1, Ordering::AcqRel);
        Counted(Arc::clone(self))
    }

    pub(super) fn is_full(&self) -> bool {
        self.now() >= self.most
    }

    pub(super) fn now(&self) -> usize {
        self.now.load(Ordering::Acquire)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The limits of one service, shared by its clones.
#[derive(Debug)]
pub(super) struct Limits {
    /// Requests without their whole answer, listens aside.
    pub(super) requests: Arc<Gauge>,
    /// Open listens.
    pub(super) listens: Arc<Gauge>,
    /// Handlers that run on their own, those whose request is over included.
    pub(super) handlers: Arc<Gauge>,
    /// Told when there is no handler any more.
    no_handler: Notify,
    pub(super) counts: Counts,
}

impl Limits {
    pub(super) fn new(requests: usize, stragglers: usize, listens: usize) -> Arc<Self> {
        Arc::new(Self {
            requests: Gauge::new(requests),
            listens: Gauge::new(listens),
            handlers: Gauge::new(requests.saturating_add(listens).saturating_add(stragglers)),
            no_handler: Notify::new(),
            counts: Counts::default(),
        })
    }
}

/// A handler that runs on its own; dropped when it has ended.
#[derive(Debug)]
pub(super) struct Running {
    limits: Arc<Limits>,
    counted: Option<Counted>,
}

impl Running {
    pub(super) fn new(limits: &Arc<Limits>) -> Self {
        Self { limits: Arc::clone(limits), counted: Some(limits.handlers.count()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.counted = None;
        if self.limits.handlers.now() == 0 {
            self.limits.no_handler.notify_waiters();
        }
    }
}

/// Numbers that only grow.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: AtomicU64,
    pub(super) notifications: AtomicU64,
    pub(super) cancellations_posted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) streams: AtomicU64,
    pub(super) abandoned: AtomicU64,
}

/// Adds one.
pub(super) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What a service has counted, and what is in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpCounters {
    /// Requests that reached their handler.
    pub requests: u64,
    /// Notifications that were accepted (202).
    pub notifications: u64,
    /// Those of them that were cancellations outside of a session of an older revision, where they cancel nothing (rule H8).
    pub cancellations_posted: u64,
    /// HTTP requests that were refused before any handler saw them.
    pub refused: u64,
    /// Answers that were SSE streams.
    pub streams: u64,
    /// Requests whose client was gone before the answer was ready (rule C1). A hang-up in a session of an older revision is no
    /// cancellation, and not counted.
    pub abandoned: u64,
    /// Requests in progress now, listens aside.
    pub in_flight: usize,
    /// Open listens now.
    pub listens: usize,
    /// Handlers that run on their own now; some may have outlived their request.
    pub handlers: usize,
    /// Sessions of the older revisions now.
    pub sessions: usize,
}

impl Limits {
    /// Waits until no handler runs on its own.
    pub(super) async fn no_handler(&self) {
        loop {
            let mut told = pin!(self.no_handler.notified());
            let _not_yet = told.as_mut().enable();
            if self.handlers.now() == 0 {
                return;
            }
            told.await;
        }
    }

    pub(super) fn counters(&self) -> HttpCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HttpCounters {
            requests: read(&self.counts.requests),
            notifications: read(&self.counts.notifications),
            cancellations_posted: read(&self.counts.cancellations_posted),
            refused: read(&self.counts.refused),
            streams: read(&self.counts.streams),
            abandoned: read(&self.counts.abandoned),
            in_flight: self.requests.now(),
            listens: self.listens.now(),
            handlers: self.handlers.now(),
            sessions: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Gauge;

    #[test]
    fn a_gauge_is_full_at_its_limit_and_frees_what_is_dropped() {
        let gauge = Gauge::new(2);
        let first = gauge.take().expect("room");
        let beyond = gauge.count();
        assert!(gauge.take().is_none() && gauge.is_full());
        drop(first);
        assert!(gauge.take().is_some());
        drop(beyond);
        assert_eq!(gauge.now(), 0);
    }
}
