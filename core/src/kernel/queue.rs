//! The outbound buffer behind a lock: producers on any thread, one consumer that never sleeps through a message.
//!
//! The consumer's waker is stored in the same critical section that saw the buffer empty, and taken in the one that fills
//! it, so no wake-up is lost. Wakers run outside the lock.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::task::{Context, Poll, Waker};

use super::cells::Cells;
use super::mutant;
use super::signals::{Gates, Signals};
use super::sync::{Mutex, MutexGuard, wait};
use crate::outbound::{Batch, Config, Handle, Item, Lost, Outbound, Popped, Pushed, Refused, SendPermit};

/// The shared outbound buffer of one connection or exchange.
#[derive(Debug)]
pub struct OutboundQueue {
    state: Mutex<State>,
    cells: Cells,
    /// What slots counted before anything came here.
    pub(super) gates: Box<Gates>,
}

/// Apart from what is read without the lock: every holder writes here.
#[derive(Debug)]
#[repr(align(128))]
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

impl OutboundQueue {
    /// An empty queue with these capacities.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            cells: Cells::new(config.capacity),
            state: Mutex::new(State {
                outbound: Outbound::new(config),
                consumer: None,
                producers: Vec::new(),
                backlog: VecDeque::new(),
                signals: Signals::default(),
            }),
            gates: Box::default(),
        }
    }

    /// Opens the stream of a request; see [`Outbound::open`].
    pub fn open(&self, handle: Handle, prefix: &str) {
        self.settled(handle).outbound.open(handle, prefix);
    }

    /// Opens the stream of a topic; see [`Outbound::open_topic`].
    pub fn open_topic(&self, handle: Handle) {
        self.settled(handle).outbound.open_topic(handle);
    }

    /// Queues progress; see [`Outbound::progress`]. Never waits.
    #[inline]
    pub fn progress(&self, handle: Handle, progress: f64, total: Option<f64>, message: &str) -> Pushed {
        if self.cells.overwrite(handle, progress, total, message) {
            // In the place of a message that waits: whoever sleeps was woken for that one.
            return Pushed::Coalesced;
        }
        let (state, met) = self.state.lock_or_meet();
        self.push_under(state, |state| {
            let settle = |slot: &mut _| self.cells.settle(slot);
            let pushed = state.outbound.progress_settling(handle, progress, total, message, settle);
            if met {
                state.outbound.arm(handle, |slot| self.cells.arm(slot));
            }
            state.signals.note(pushed)
        })
    }

    /// Queues a notice; see [`Outbound::notice`]. Never waits.
    pub fn notice(&self, topic: Handle, message: &str) -> Pushed {
        self.push(|state| {
            let pushed = state.outbound.notice_settling(topic, message, |slot| self.cells.settle(slot));
            state.signals.note(pushed)
        })
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
            state.outbound.settle(handle.index(), |slot| self.cells.settle(slot));
            Poll::Ready(accept() && state.outbound.lossless(handle, body))
        })
    }

    /// Queues a final response. One that finds no room waits for it with its permit.
    pub fn finish(&self, permit: SendPermit, body: Vec<u8>) {
        let handle = permit.handle();
        let waiting = self.push(|state| {
            // From now on progress is refused, in the cell too.
            if !mutant::is("final-leaves-the-cell") {
                state.outbound.settle(handle.index(), |slot| self.cells.settle(slot));
            }
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

    /// Queues what may not come before the finals that are there: not while one waits for room. `false`: no place.
    pub(super) fn refuse_behind_finals(&self, body: Vec<u8>) -> bool {
        self.push(|state| state.backlog.is_empty() && state.outbound.refuse(body))
    }

    /// Forgets what waits for a cancelled request; see [`Outbound::purge`].
    pub fn purge(&self, handle: Handle) {
        let mut state = self.settled(handle);
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
        let popped = state.outbound.pop_settling(encode, |slot| self.cells.settle(slot));
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
        state.outbound.pop_into_settling(batch, messages, bytes, |slot| self.cells.settle(slot));
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
        if !state.outbound.is_empty() || state.signals.are_urgent() {
            return Poll::Ready(());
        }
        let state = self.state.keep(state, "park-outside-lock");
        wait(state, cx, |state| &mut state.consumer);
        Poll::Pending
    }

    /// Tells the consumer something beside the messages.
    pub(super) fn tell(&self, what: impl FnOnce(&mut Signals)) {
        self.push(|state| what(&mut state.signals));
    }

    /// Progress that a newer value replaced without a look at the queue: before the rate limit, or in a cell.
    pub(super) fn superseded(&self) -> u64 {
        self.gates.superseded.get() + self.cells.overwritten()
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

    /// The lock, with nothing of this request in a cell.
    fn settled(&self, handle: Handle) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.outbound.settle(handle.index(), |slot| self.cells.settle(slot));
        state
    }

    #[inline]
    fn push<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        self.push_under(self.state.lock(), change)
    }

    #[inline]
    fn push_under<R>(&self, mut state: MutexGuard<'_, State>, change: impl FnOnce(&mut State) -> R) -> R {
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
        self.signals.note_high(messages, self.outbound.bytes());
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

#[cfg(all(test, not(steady_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use crate::outbound::{Coalesce, RETAINED};
    use alloc::format;
    use alloc::string::String;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Open(u32),
        Progress(u32, usize),
        Stale(u32),
        Notice(usize),
        Lossless(u32),
        Finish(u32),
        Purge(u32),
        Pop,
        PopInto(usize),
        TakeLost,
    }

    const TOPIC: u32 = 4;

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let call = 0..TOPIC;
        let op = prop_oneof![
            2 => (0..=TOPIC).prop_map(Op::Open),
            12 => (call.clone(), 0..5_usize).prop_map(|(index, len)| Op::Progress(index, len)),
            1 => call.clone().prop_map(Op::Stale),
            1 => (0..5_usize).prop_map(Op::Notice),
            1 => call.clone().prop_map(Op::Lossless),
            1 => call.prop_map(Op::Finish),
            1 => (0..=TOPIC).prop_map(Op::Purge),
            4 => Just(Op::Pop),
            1 => (1..5_usize).prop_map(Op::PopInto),
            1 => Just(Op::TakeLost),
        ];
        prop::collection::vec(op, 1..150)
    }

    /// A queue, the handles that are open in it, and the number of its next message.
    struct Driven {
        queue: OutboundQueue,
        handles: [Handle; TOPIC as usize + 1],
        serial: u32,
    }

    impl Driven {
        fn new(config: Config) -> Self {
            let handles = core::array::from_fn(|index| Handle::new(u32::try_from(index).expect("a few"), 1));
            let driven = Self { queue: OutboundQueue::new(config), handles, serial: 0 };
            driven.handles.iter().for_each(|handle| driven.open(*handle));
            driven
        }

        fn open(&self, handle: Handle) {
            if handle.index() == TOPIC { self.queue.open_topic(handle) } else { self.queue.open(handle, "p") }
        }

        /// What the operation answered.
        fn apply(&mut self, op: Op) -> String {
            let handle = |index: u32| self.handles[index as usize];
            self.serial += 1;
            let text = |len: usize| format!("{:05}", self.serial).split_off(5 - len);
            match op {
                Op::Open(index) => {
                    let next = Handle::new(index, handle(index).generation + 1);
                    self.handles[index as usize] = next;
                    self.open(next);
                    String::new()
                }
                Op::Progress(index, len) => {
                    let total = Some(f64::from(self.serial + 1));
                    let pushed = self.queue.progress(handle(index), f64::from(self.serial), total, &text(len));
                    format!("{pushed:?}")
                }
                Op::Stale(index) => {
                    let Handle { generation, .. } = handle(index);
                    format!("{:?}", self.queue.progress(Handle::new(index, generation - 1), 0.0, None, ""))
                }
                Op::Notice(len) => format!("{:?}", self.queue.notice(handle(TOPIC), &text(len))),
                Op::Lossless(index) => {
                    let cx = Context::from_waker(Waker::noop());
                    format!("{:?}", self.queue.poll_lossless(&cx, handle(index), text(3).as_bytes()))
                }
                Op::Finish(index) if self.queue.state.lock().outbound.is_open(handle(index)) => {
                    self.queue.finish(SendPermit::new(handle(index)), text(5).into_bytes());
                    String::new()
                }
                Op::Finish(_) => String::new(),
                Op::Purge(index) => {
                    self.queue.purge(handle(index));
                    String::new()
                }
                Op::Pop => format!("{:?}", self.queue.pop(|item| format!("{item:?}"))),
                Op::PopInto(messages) => {
                    let (mut batch, mut seen) = (Batch::default(), Vec::new());
                    self.queue.pop_into(&mut batch, messages, usize::MAX);
                    batch.drain(|popped, item| seen.push(format!("{popped:?} {item:?}")));
                    format!("{seen:?}")
                }
                Op::TakeLost => format!("{:?}", self.queue.take_lost()),
            }
        }

        fn arm_all(&self) {
            let mut state = self.queue.state.lock();
            for handle in self.handles {
                state.outbound.arm(handle, |slot| self.queue.cells.arm(slot));
            }
        }

        fn counts(&self) -> (usize, usize) {
            let (evictable, kept, _) = self.queue.occupancy();
            (evictable, kept)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_queue_that_arms_whatever_waits_answers_as_one_that_never_does(
            capacity in 1..6_usize,
            same_token in prop::bool::weighted(0.9),
            ops in ops(),
        ) {
            let coalesce = if same_token { Coalesce::SameToken } else { Coalesce::Adjacent };
            let config = Config { capacity, coalesce, finals: 2, lossless: 2, ..Config::default() };
            let (mut armed, mut plain) = (Driven::new(config), Driven::new(config));
            for op in ops.into_iter().chain(core::iter::repeat_n(Op::Pop, 20)) {
                assert_eq!(armed.apply(op), plain.apply(op), "{op:?}");
                assert_eq!(armed.counts(), plain.counts(), "after {op:?}");
                armed.arm_all();
            }
        }
    }

    #[test]
    fn an_armed_request_reports_by_its_cell_what_is_no_longer_than_what_waits() {
        let mut driven = Driven::new(Config::default());
        let call = driven.handles[0];
        assert_eq!(driven.apply(Op::Progress(0, 3)), "Queued");
        assert!(!driven.queue.cells.overwrite(call, 2.0, None, ""), "nobody met anybody");
        driven.arm_all();
        assert!(driven.queue.cells.overwrite(call, 2.0, None, "two"));
        assert!(!driven.queue.cells.overwrite(call, 3.0, None, "three"), "the account is of three bytes");
        assert!(!driven.queue.cells.overwrite(driven.handles[1], 3.0, None, ""), "another request");
        assert_eq!(
            driven.queue.pop(|item| matches!(item, Item::Progress { message: "two", .. })).map(|(_, two)| two),
            Some(true)
        );
        assert!(!driven.queue.cells.overwrite(call, 4.0, None, ""), "it was settled");
        assert_eq!((driven.queue.occupancy(), driven.queue.superseded()), ((0, 0, (0, 0)), 1));
    }

    #[test]
    fn a_long_text_is_not_exchanged_with_a_cell_that_would_keep_its_memory() {
        let driven = Driven::new(Config::default());
        let call = driven.handles[0];
        for (len, by_cell) in [(RETAINED, true), (RETAINED + 1, false)] {
            assert_eq!(driven.queue.progress(call, 1.0, None, &"x".repeat(len)), Pushed::Queued);
            driven.arm_all();
            assert_eq!(driven.queue.cells.overwrite(call, 2.0, None, ""), by_cell, "{len} bytes");
            assert!(driven.queue.pop(|_| ()).is_some());
        }
    }
}
