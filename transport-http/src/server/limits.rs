//! What is in progress over all connections, and how much of it may be.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::config::HttpConfig;

/// Messages of sessions at once that may end a request, and need no place among the requests for that.
const ASIDES: usize = 64;

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
        self.add(1).then(|| Counted(Arc::clone(self)))
    }

    /// Whether there is room for so many more, which are counted then.
    fn add(&self, more: usize) -> bool {
        let sum = |now: usize| now.checked_add(more).filter(|sum| *sum <= self.most);
        self.now.fetch_update(Ordering::AcqRel, Ordering::Acquire, sum).is_ok()
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

impl Counted {
    /// Whether it is one of these.
    pub(super) fn is_of(&self, gauge: &Arc<Gauge>) -> bool {
        Arc::ptr_eq(&self.0, gauge)
    }
}

/// Some of the things that a [`Gauge`] counts; dropped when they are over.
#[derive(Debug)]
pub(super) struct Share {
    gauge: Arc<Gauge>,
    size: usize,
}

impl Share {
    pub(super) fn none(gauge: &Arc<Gauge>) -> Self {
        Self { gauge: Arc::clone(gauge), size: 0 }
    }

    /// Whether there is room for it to be this large, as it is then.
    pub(super) fn grow_to(&mut self, size: usize) -> bool {
        let more = size.saturating_sub(self.size);
        let has_room = self.gauge.add(more);
        if has_room {
            self.size += more;
        }
        has_room
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.gauge.now.fetch_sub(self.size, Ordering::AcqRel);
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
    /// Requests without their whole answer, and long answers that have not left; listens aside.
    pub(super) requests: Arc<Gauge>,
    /// Messages of sessions that came where there was no place for a request.
    pub(super) asides: Arc<Gauge>,
    /// Open listens.
    pub(super) listens: Arc<Gauge>,
    /// Bytes of bodies that are arriving.
    pub(super) bodies: Arc<Gauge>,
    /// Handlers that run on their own, those whose request is over included.
    pub(super) handlers: Arc<Gauge>,
    /// Told when there is no handler any more.
    no_handler: Notify,
    pub(super) counts: Counts,
}

impl Limits {
    pub(super) fn new(config: &HttpConfig) -> Arc<Self> {
        let (requests, listens) = (config.server.requests, config.max_listens);
        Arc::new(Self {
            requests: Gauge::new(requests.in_flight),
            asides: Gauge::new(ASIDES),
            listens: Gauge::new(listens),
            bodies: Gauge::new(config.max_bodies),
            handlers: Gauge::new(requests.in_flight.saturating_add(listens).saturating_add(requests.stragglers)),
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
    /// Requests in progress now, and answers of more than 32 KiB that their clients have not taken; listens aside.
    pub in_flight: usize,
    /// Bytes of bodies that are arriving now, short ones in one piece aside.
    pub arriving: usize,
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
            arriving: self.bodies.now(),
            listens: self.listens.now(),
            handlers: self.handlers.now(),
            sessions: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Gauge, Share};

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

    #[test]
    fn a_share_grows_as_long_as_there_is_room_and_is_given_back_whole() {
        let gauge = Gauge::new(10);
        let (mut first, mut second) = (Share::none(&gauge), Share::none(&gauge));
        assert!(first.grow_to(4) && first.grow_to(3) && second.grow_to(6) && gauge.is_full());
        assert!(!first.grow_to(5) && !first.grow_to(usize::MAX));
        drop(second);
        assert!(first.grow_to(10) && gauge.now() == 10);
        drop(first);
        assert_eq!(gauge.now(), 0);
    }
}
