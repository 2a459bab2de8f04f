//! A graceful end that somebody outside asks for: a signal, an embedding program, a test.
//!
//! ```text
//!   Serving ── drain() ──► Draining ── deadline, or cut() ──► Cut
//! ```
//!
//! | stage | requests in flight | new requests |
//! |---|---|---|
//! | draining | go on; open listens get their final result (rule L4) | refused: the server is shutting down |
//! | cut | answered with that error, their handlers told | refused |
//!
//! Cancellation is silence, a server's own end is not: whoever still waits gets one error (rule C8).

use alloc::collections::BTreeMap;
use alloc::sync::Arc as StdArc;
use core::task::{Context, Waker};
use core::time::Duration;

use super::mutant;
use super::port::Timer;
use super::sync::{Arc, AtomicU8, Mutex, Ordering};
use crate::time::Instant;

const SERVING: u8 = 0;
const DRAINING: u8 = 1;
const CUT: u8 = 2;

/// A handle that ends what is served with it: clones share one state, and any number of connections and exchanges may
/// watch it. Put one into [`ServerConfig::shutdown`](super::ServerConfig::shutdown) and keep a clone.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Beside the lock, since every turn looks at it.
    stage: AtomicU8,
    watchers: Mutex<Watchers>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { stage: AtomicU8::new(SERVING), watchers: Mutex::new(Watchers::default()) }
    }
}

/// One waker for each connection or exchange that is alive.
#[derive(Debug, Default)]
struct Watchers {
    wakers: BTreeMap<u64, Waker>,
    next: u64,
}

impl Shutdown {
    /// A handle that nothing has ended yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Admits nothing more and lets what runs finish, up to the limit of each connection's configuration.
    pub fn drain(&self) {
        self.raise(DRAINING);
    }

    /// Ends what still runs now: the limit of [`drain`](Self::drain) is over.
    pub fn cut(&self) {
        self.raise(CUT);
    }

    /// Whether an end was asked for.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.stage() != SERVING
    }

    fn stage(&self) -> u8 {
        self.0.stage.load(Ordering::Acquire)
    }

    fn raise(&self, stage: u8) {
        let mut watchers = self.0.watchers.lock();
        if self.stage() >= stage {
            return;
        }
        self.0.stage.store(stage, Ordering::Release);
        let wakers = core::mem::take(&mut watchers.wakers);
        drop(watchers);
        wakers.into_values().for_each(Waker::wake);
    }
}

/// One connection's or exchange's view of a [`Shutdown`].
#[derive(Debug)]
pub(super) struct Watch {
    shutdown: Shutdown,
    /// What this watcher was told.
    told: u8,
    /// When draining turns into the end.
    until: Option<Instant>,
    registered: Option<(u64, Waker)>,
}

impl Watch {
    pub(super) fn new(shutdown: Shutdown) -> Self {
        Self { shutdown, told: SERVING, until: None, registered: None }
    }

    /// Whether to admit nothing more from now on; said once. The task of `cx` is woken when somebody asks for it.
    pub(super) fn poll_drain(
        &mut self,
        cx: &Context<'_>,
        timer: &StdArc<dyn Timer>,
        limit: Duration,
    ) -> Option<Instant> {
        let early = mutant::is("stage-then-register").then(|| self.shutdown.stage());
        self.register(cx.waker());
        if self.told != SERVING || early.unwrap_or_else(|| self.shutdown.stage()) == SERVING {
            return None;
        }
        let now = timer.now();
        self.told = DRAINING;
        self.until = Some(now + limit);
        Some(now)
    }

    /// Whether to end what still runs; said once. It changes with the clock at [`wake_at`](Self::wake_at).
    pub(super) fn is_cut(&mut self, now: Instant) -> bool {
        let due =
            self.told == DRAINING && (self.shutdown.stage() == CUT || self.until.is_some_and(|until| now >= until));
        if due {
            self.told = CUT;
        }
        due
    }

    /// Whether it was told to end.
    pub(super) const fn is_draining(&self) -> bool {
        self.told != SERVING
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        if self.told == DRAINING { self.until } else { None }
    }

    /// A stage that is raised takes all wakers, so whoever was told to drain registers again to hear of the cut.
    fn register(&mut self, waker: &Waker) {
        let known = self.registered.as_ref().is_some_and(|(_, known)| known.will_wake(waker));
        if known && self.shutdown.stage() <= self.told {
            return;
        }
        let mut watchers = self.shutdown.0.watchers.lock();
        let key = self.registered.take().map_or(watchers.next, |(key, _)| key);
        watchers.next = watchers.next.max(key + 1);
        watchers.wakers.insert(key, waker.clone());
        self.registered = Some((key, waker.clone()));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((key, _)) = self.registered.take() {
            let waker = self.shutdown.0.watchers.lock().wakers.remove(&key);
            drop(waker);
        }
    }
}
