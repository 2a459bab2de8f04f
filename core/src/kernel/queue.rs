//! The outbound buffer behind a lock: producers on any thread, one consumer that never sleeps through a message.
//!
//! The consumer's waker is stored in the same critical section that saw the buffer empty, and taken in the one that fills
//! it, so no wake-up is lost. Wakers run outside the lock.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::task::{Context, Poll, Waker};

use super::mutant;
use super::sync::{Counter, Mutex};
use crate::outbound::{Batch, Config, Handle, Item, Lost, Outbound, Popped, Pushed, Refused, SendPermit};
use crate::time::Instant;

/// The shared outbound buffer of one connection or exchange.
#[derive(Debug)]
pub struct OutboundQueue {
    state: Mutex<State>,
    /// What slots counted before anything came here.
    pub(super) gates: Gates,
}

/// What the gates of all requests did to progress.
#[derive(Debug, Default)]
pub(super) struct Gates {
    /// A value that was held back gave way to a newer one.
    pub(super) superseded: Counter,
    /// A value did not increase, or its request was over.
    pub(super) refused: Counter,
}

#[derive(Debug)]
struct State {
    outbound: Outbound,
    consumer: Option<Waker>,
    /// Producers of lossless progress that wait for room. One entry for each task of a handler.
    producers: Vec<(Handle, Waker)>,
    /// Finals that found no room, oldest first. Each holds the permit of a request in flight, so they are bounded by the
    /// cap; while there is one, the connection reads no further request.
    backlog: VecDeque<Refused>,
    signals: Signals,
}

/// What handlers told the consumer since it last looked.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Requests whose held progress may go at this time.
    pub(super) held: Vec<(Handle, Instant)>,
    /// Requests whose handler has ended.
    pub(super) ended: Vec<Handle>,
    /// What became of progress and notices in the buffer.
    pub(super) coalesced: u64,
    pub(super) dropped: u64,
    /// The most that waited: messages and text bytes.
    pub(super) high: (usize, usize),
}

impl Signals {
    #[inline]
    fn note(&mut self, pushed: Pushed) -> Pushed {
        match pushed {
            Pushed::Queued | Pushed::Closed => {}
            Pushed::Coalesced => self.coalesced += 1,
            Pushed::Evicted(count) => self.dropped += count as u64,
        }
        pushed
    }
}

impl OutboundQueue {
    /// An empty queue with these capacities.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            state: Mutex::new(State {
                outbound: Outbound::new(config),
                consumer: None,
                producers: Vec::new(),
                backlog: VecDeque::new(),
                signals: Signals::default(),
            }),
            gates: Gates::default(),
        }
    }

    /// Opens the stream of a request; see [`Outbound::open`].
    pub fn open(&self, handle: Handle, prefix: &str) {
        self.state.lock().outbound.open(handle, prefix);
    }

    /// Opens the stream of a topic; see [`Outbound::open_topic`].
    pub fn open_topic(&self, handle: Handle) {
        self.state.lock().outbound.open_topic(handle);
    }

    /// Queues progress; see [`Outbound::progress`]. Never waits.
    #[inline]
    pub fn progress(&self, handle: Handle, progress: f64, total: Option<f64>, message: &str) -> Pushed {
        self.push(|state| state.signals.note(state.outbound.progress(handle, progress, total, message)))
    }

    /// Queues a notice; see [`Outbound::notice`]. Never waits.
    pub fn notice(&self, topic: Handle, message: &str) -> Pushed {
        self.push(|state| state.signals.note(state.outbound.notice(topic, message)))
    }

    /// Queues lossless progress, or registers `cx` and waits for room; see [`Outbound::lossless`].
    pub fn poll_lossless(&self, cx: &Context<'_>, handle: Handle, body: &[u8]) -> Poll<()> {
        self.poll_lossless_if(cx, handle, body, || true).map(drop)
    }

    /// Like [`poll_lossless`](Self::poll_lossless), but once there is room `accept` decides whether it is still wanted.
    pub(super) fn poll_lossless_if(
        &self,
        cx: &Context<'_>,
        handle: Handle,
        body: &[u8],
        accept: impl FnOnce() -> bool,
    ) -> Poll<bool> {
        self.push(|state| {
            // Two tasks of one request may wait at once, each with a waker of its own.
            state.producers.retain(|(waiting, waker)| *waiting != handle || !waker.will_wake(cx.waker()));
            // A final that waits for room goes first: lossless progress could keep it out for ever.
            let final_first = !state.backlog.is_empty();
            if !state.outbound.is_open(handle) {
                return Poll::Ready(false);
            }
            if final_first || !state.outbound.lossless_fits(body.len()) {
                state.producers.push((handle, cx.waker().clone()));
                return Poll::Pending;
            }
            Poll::Ready(accept() && state.outbound.lossless(handle, body))
        })
    }

    /// Queues a final response. One that finds no room waits for it with its permit.
    pub fn finish(&self, permit: SendPermit, body: Vec<u8>) {
        let handle = permit.handle();
        let waiting = self.push(|state| {
            if state.backlog.is_empty() {
                if let Err(refused) = state.outbound.finish(permit, body) {
                    state.backlog.push_back(refused);
                }
            } else {
                state.outbound.close(handle);
                state.backlog.push_back(Refused { permit, body });
            }
            if mutant::is("close-after-final") {
                state.outbound.open(handle, "");
            }
            // A task of the handler that still waits for room learns that its stream has closed.
            state.take_producers(|waiting| waiting == handle)
        });
        wake(waiting);
        if mutant::is("close-after-final") {
            self.state.lock().outbound.close(handle);
        }
    }

    /// Queues an error that holds no permit. `false`: no place; see [`Outbound::refuse`].
    #[must_use]
    pub fn refuse(&self, body: Vec<u8>) -> bool {
        self.push(|state| state.outbound.refuse(body))
    }

    /// Forgets what waits for a cancelled request; see [`Outbound::purge`].
    pub fn purge(&self, handle: Handle) {
        let mut state = self.state.lock();
        state.outbound.purge(handle);
        let waiting = state.take_producers(|waiting| waiting == handle);
        drop(state);
        wake(waiting);
    }

    /// Whether input may be read: a refusal has a place and no final waits for room; at the cap of requests in flight,
    /// also only if no final waits to leave and free a place.
    #[must_use]
    pub fn can_read(&self, at_cap: bool) -> bool {
        let state = self.state.lock();
        let finals_wait = at_cap && state.outbound.finals() > 0;
        state.backlog.is_empty() && state.outbound.can_refuse() && !finals_wait
    }

    /// Takes the oldest message; see [`Outbound::pop`].
    #[inline]
    pub fn pop<R>(&self, encode: impl FnOnce(Item<'_>) -> R) -> Option<(Popped, R)> {
        let mut state = self.state.lock();
        state.note_high();
        let popped = state.outbound.pop(encode);
        if state.waits_for_room() {
            let waiting = state.make_use_of_room();
            drop(state);
            wake(waiting);
        }
        popped
    }

    /// Takes the oldest messages under one lock, to be encoded outside of it; see [`Outbound::pop_into`].
    pub fn pop_into(&self, batch: &mut Batch, messages: usize, bytes: usize) {
        let mut state = self.state.lock();
        state.note_high();
        state.outbound.pop_into(batch, messages, bytes);
        if state.waits_for_room() {
            let waiting = state.make_use_of_room();
            drop(state);
            wake(waiting);
        }
    }

    /// Whether nothing waits to leave.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state.lock().outbound.is_empty()
    }

    /// How full it is: evictable messages, kept messages, and the text bytes of each.
    #[must_use]
    pub fn occupancy(&self) -> (usize, usize, (usize, usize)) {
        let state = self.state.lock();
        (state.outbound.evictable(), state.outbound.kept() + state.backlog.len(), state.outbound.bytes())
    }

    /// What was dropped since the last call; see [`Outbound::take_lost`].
    pub fn take_lost(&self) -> Option<Lost> {
        self.state.lock().outbound.take_lost()
    }

    /// Parks the consumer if there is nothing to do for it; otherwise it must go on.
    pub fn park(&self, cx: &Context<'_>) -> Poll<()> {
        let state = self.state.lock();
        if !state.outbound.is_empty() || !state.signals.held.is_empty() || !state.signals.ended.is_empty() {
            return Poll::Ready(());
        }
        let mut state = self.state.keep(state, "park-outside-lock");
        state.consumer = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(super) fn hold(&self, handle: Handle, until: Instant) {
        self.push(|state| state.signals.held.push((handle, until)));
    }

    pub(super) fn handler_ended(&self, handle: Handle) {
        self.push(|state| state.signals.ended.push(handle));
    }

    pub(super) fn take_signals(&self, into: &mut Signals) {
        let mut state = self.state.lock();
        state.note_high();
        core::mem::swap(&mut state.signals, into);
        // Whoever hears is awake: what it pushes itself need not wake it for another turn.
        let consumer = state.consumer.take();
        drop(state);
        drop(consumer);
    }

    #[inline]
    fn push<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        // A busy consumer has no waker here: looking is cheaper than taking.
        let consumer = if state.consumer.is_some() { state.consumer.take() } else { None };
        let mut state = self.state.keep(state, "waker-before-push");
        let changed = change(&mut state);
        drop(state);
        if let Some(consumer) = consumer {
            consumer.wake();
        }
        changed
    }
}

impl State {
    /// The most that waits is seen just before it becomes less.
    #[inline]
    fn note_high(&mut self) {
        let messages = self.outbound.evictable() + self.outbound.kept() + self.backlog.len();
        let (evictable, kept) = self.outbound.bytes();
        let (high, high_bytes) = self.signals.high;
        self.signals.high = (high.max(messages), high_bytes.max(evictable + kept));
    }

    /// Whether a final or a producer waits for room.
    #[inline]
    fn waits_for_room(&self) -> bool {
        !self.producers.is_empty() || !self.backlog.is_empty()
    }

    /// Gives the room that a pop made to finals that wait, then to the producers it answers with.
    #[inline(never)]
    fn make_use_of_room(&mut self) -> Vec<Waker> {
        while let Some(Refused { permit, body }) = self.backlog.pop_front() {
            if let Err(refused) = self.outbound.finish(permit, body) {
                self.backlog.push_front(refused);
                break;
            }
        }
        if !self.backlog.is_empty() || !self.outbound.lossless_fits(1) {
            return Vec::new();
        }
        self.take_producers(|_| true)
    }

    fn take_producers(&mut self, which: impl Fn(Handle) -> bool) -> Vec<Waker> {
        let mut taken = Vec::new();
        self.producers.retain(|(handle, waker)| {
            let take = which(*handle);
            if take {
                taken.push(waker.clone());
            }
            !take
        });
        taken
    }
}

fn wake(wakers: Vec<Waker>) {
    if mutant::is("wake-no-producer") {
        return;
    }
    wakers.into_iter().for_each(Waker::wake);
}
