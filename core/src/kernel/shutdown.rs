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
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
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

    /// Resolves once an end was asked for: whoever accepts connections stops then.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        Raised { registration: Registration::new(self.clone()), stage: DRAINING, told: SERVING }
    }

    /// Resolves once what still runs is ended by [`cut`](Self::cut).
    pub fn cutting(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        Raised { registration: Registration::new(self.clone()), stage: CUT, told: SERVING }
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

/// A waker that hears of each new stage.
#[derive(Debug)]
struct Registration {
    shutdown: Shutdown,
    registered: Option<(u64, Waker)>,
}

impl Registration {
    const fn new(shutdown: Shutdown) -> Self {
        Self { shutdown, registered: None }
    }

    /// Has `waker` woken at the next stage after `told`, and says which stage it is. A stage that is raised takes all wakers,
    /// so whoever was told of one registers again to hear of the next.
    fn register(&mut self, waker: &Waker, told: u8) -> u8 {
        let early = mutant::is("stage-then-register").then(|| self.shutdown.stage());
        let known = self.registered.as_ref().is_some_and(|(_, known)| known.will_wake(waker));
        if !known || self.shutdown.stage() > told {
            let mut watchers = self.shutdown.0.watchers.lock();
            let key = self.registered.as_ref().map_or(watchers.next, |(key, _)| *key);
            watchers.next = watchers.next.max(key + 1);
            let old = watchers.wakers.insert(key, waker.clone());
            drop(watchers);
            // Not under the lock: what ends with a waker may be a task that waits here.
            drop(old);
            self.registered = Some((key, waker.clone()));
        }
        early.unwrap_or_else(|| self.shutdown.stage())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some((key, _)) = self.registered.take() {
            let waker = self.shutdown.0.watchers.lock().wakers.remove(&key);
            drop(waker);
        }
    }
}

/// Waits for a stage.
struct Raised {
    registration: Registration,
    stage: u8,
    told: u8,
}

impl Future for Raised {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let told = self.told;
        self.told = self.registration.register(cx.waker(), told);
        if self.told >= self.stage { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// One connection's or exchange's view of a [`Shutdown`].
#[derive(Debug)]
pub(super) struct Watch {
    registration: Registration,
    /// What this watcher was told.
    told: u8,
    /// When draining turns into the end.
    until: Option<Instant>,
}

impl Watch {
    pub(super) const fn new(shutdown: Shutdown) -> Self {
        Self { registration: Registration::new(shutdown), told: SERVING, until: None }
    }

    /// Has the task of `cx` woken when somebody asks for an end; whether somebody has, and this was not told yet.
    pub(super) fn register(&mut self, cx: &Context<'_>) -> bool {
        self.registration.register(cx.waker(), self.told) > self.told
    }

    /// Whether to admit nothing more from now on; said once.
    pub(super) fn is_drained(&mut self, timer: &StdArc<dyn Timer>, limit: Duration) -> Option<Instant> {
        if self.told != SERVING || self.registration.shutdown.stage() == SERVING {
            return None;
        }
        let now = timer.now();
        self.told = DRAINING;
        self.until = Some(now + limit);
        Some(now)
    }

    /// Whether to end what still runs; said once. It changes with the clock at [`wake_at`](Self::wake_at).
    pub(super) fn is_cut(&mut self, now: Instant) -> bool {
        let stage = self.registration.shutdown.stage();
        let due = self.told == DRAINING && (stage == CUT || self.until.is_some_and(|until| now >= until));
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
}
