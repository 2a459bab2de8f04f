//! What one listen stream of a server owes its client (rules L1, L3, L4): the leaf machine under every subscription.
//!
//! A listener *watches* things: a list, a resource, a task. Each has a slot. A publication marks the slot; taking turns the
//! marks, oldest first, into notifications. A slot is marked or not, so changes that a slow client has not heard of become
//! one notification, which says "read it again": the mark needs no place that could run out. Only the state of a task
//! travels with its notification. The newest stays, and their bytes are bounded.
//!
//! ```text
//!             Take: Acknowledge             Take: Notify, oldest mark first
//!   Opening ──────────────────────► Open ──┐
//!      │                             │ ▲───┘
//!      │ too many bytes of states    │ Drain, then Take without a mark: Finish(Drained)
//!      │                             │ too many bytes of states, then Take: Finish(Behind)
//!      ▼ Close                       ▼ Close
//!   Ended ◄───────────────────────────
//! ```
//!
//! | full | answer |
//! |---|---|
//! | a slot that is marked is published to | it coalesces: the mark keeps its place, a newer state replaces the older |
//! | states over [`Config::bytes`] | [`Published::Behind`]: all marks go, and the stream ends so that its client listens and reads anew (rule L5) |
//! | slots over [`Config::slots`] | not watched |
//!
//! Invariants:
//! - `HUB-1` the acknowledgement comes first, and once; nothing is notified before it (rule L1);
//! - `HUB-2` only what is watched is notified (rule L3);
//! - `HUB-3` what was published to a watched slot is notified later, by its newest state, or the stream ends as behind;
//! - `HUB-4` no more marks wait than slots are watched, and no more bytes of states than the configuration allows;
//! - `HUB-5` it finishes once, and nothing comes after that;
//! - `HUB-6` whoever was told that there is nothing to take is woken once by what comes next.
//!
//! ```
//! use steady_core::listener::{Config, Listener, Published, Taken};
//!
//! let mut listener: Listener<&str> = Listener::new(Config::default());
//! let tools = listener.watch().unwrap();
//! assert_eq!(listener.publish(tools, None), Published::Marked { wake: false }, "it has not been asked yet");
//! assert_eq!(listener.publish(tools, None), Published::Coalesced);
//! assert_eq!(listener.take(), Taken::Acknowledge);
//! assert_eq!(listener.take(), Taken::Notify { slot: tools, state: None });
//! assert_eq!(listener.take(), Taken::Nothing);
//! assert_eq!(listener.publish(tools, None), Published::Marked { wake: true });
//! ```

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Capacities of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct Config {
    /// Things that it may watch at once. Default 1027: three lists, and as many names as a filter may hold.
    pub slots: usize,
    /// Bytes of task states that may wait. Default 256 KiB.
    pub bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { slots: crate::subscription::Filter::MAX_NAMED + 3, bytes: 256 << 10 }
    }
}

/// Something with a length in bytes.
pub trait Size {
    /// How many.
    fn size(&self) -> usize;
}

impl Size for &str {
    fn size(&self) -> usize {
        self.len()
    }
}

/// The place of a watched thing in its listener. Places are dense, and used again once they are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

impl Slot {
    /// Its index, below the number of things that were watched at once.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a publication did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "an answer of a leaf machine is matched without a rest arm")]
pub enum Published {
    /// The slot is marked.
    Marked {
        /// Whether somebody waits for it (`HUB-6`).
        wake: bool,
    },
    /// It was marked already: one notification will do for both.
    Coalesced,
    /// The states that wait are too many bytes: the marks are dropped, and the stream ends (`HUB-3`).
    Behind {
        /// Whether somebody waits for that.
        wake: bool,
    },
    /// Nobody watches by this slot, or the stream is at its end.
    Ignored,
}

/// What there is to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "an answer of a leaf machine is matched without a rest arm")]
pub enum Taken<S> {
    /// The acknowledgement (rule L1).
    Acknowledge,
    /// What this slot watches has changed.
    Notify {
        /// The slot.
        slot: Slot,
        /// The newest state, of a task.
        state: Option<S>,
    },
    /// Nothing now. The next publication wakes.
    Nothing,
    /// The end of the stream.
    Finish(End),
    /// It had ended.
    Over,
}

/// Why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the ends that a listener knows")]
pub enum End {
    /// The server ends it, and all that was owed has been said: answer with the final result (rule L4).
    Drained,
    /// It would have lost something. A final result would tell the client that nothing is missing: answer with an error, so
    /// that it listens again and reads anew (rule L5).
    Behind,
    /// The client is gone or has cancelled it: say nothing (rule C3).
    Closed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Watched<S> {
    marked: bool,
    state: Option<S>,
}

/// One listen stream. See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listener<S> {
    config: Config,
    /// `None`: a slot that is free.
    slots: Vec<Option<Watched<S>>>,
    free: Vec<u32>,
    /// The marked slots, oldest mark first.
    marks: VecDeque<u32>,
    bytes: usize,
    acknowledged: bool,
    /// Whether the last look found nothing, so that whoever looked waits.
    waits: bool,
    /// How it will end once nothing is owed.
    ending: Option<End>,
    ended: Option<End>,
}

impl<S: Size> Listener<S> {
    /// A stream that is not acknowledged yet and watches nothing.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            slots: Vec::new(),
            free: Vec::new(),
            marks: VecDeque::new(),
            bytes: 0,
            acknowledged: false,
            waits: false,
            ending: None,
            ended: None,
        }
    }

    /// Watches one thing more; `None` at the capacity, and at the end.
    pub fn watch(&mut self) -> Option<Slot> {
        if self.watched() >= self.config.slots || self.ended.is_some() {
            return None;
        }
        let fresh = Some(Watched { marked: false, state: None });
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = fresh;
            return Some(Slot(index));
        }
        let index = u32::try_from(self.slots.len()).ok()?;
        self.slots.push(fresh);
        Some(Slot(index))
    }

    /// Watches this no more, and owes nothing for it.
    pub fn unwatch(&mut self, slot: Slot) {
        let Some(watched) = self.slots.get_mut(slot.index()).and_then(Option::take) else { return };
        self.bytes -= size(watched.state.as_ref());
        if watched.marked {
            self.marks.retain(|marked| *marked != slot.0);
        }
        self.free.push(slot.0);
    }

    /// What this slot watches has changed; `state` is its new state, where that travels along.
    pub fn publish(&mut self, slot: Slot, state: Option<S>) -> Published {
        let over = self.ended.is_some() || self.ending.is_some();
        let Some(watched) = self.slots.get_mut(slot.index()).and_then(Option::as_mut).filter(|_| !over) else {
            return Published::Ignored;
        };
        let bytes = self.bytes - size(watched.state.as_ref()) + size(state.as_ref());
        if bytes > self.config.bytes {
            self.forget();
            self.ending = Some(End::Behind);
            return Published::Behind { wake: core::mem::take(&mut self.waits) };
        }
        self.bytes = bytes;
        watched.state = state;
        if core::mem::replace(&mut watched.marked, true) {
            return Published::Coalesced;
        }
        self.marks.push_back(slot.0);
        Published::Marked { wake: core::mem::take(&mut self.waits) }
    }

    /// What is to be sent next.
    pub fn take(&mut self) -> Taken<S> {
        if self.ended.is_some() {
            return Taken::Over;
        }
        if self.ending == Some(End::Behind) {
            return self.finish(End::Behind);
        }
        if !core::mem::replace(&mut self.acknowledged, true) {
            return Taken::Acknowledge;
        }
        while let Some(index) = self.marks.pop_front() {
            let Some(watched) = self.slots[index as usize].as_mut() else { continue };
            watched.marked = false;
            let state = watched.state.take();
            self.bytes -= size(state.as_ref());
            return Taken::Notify { slot: Slot(index), state };
        }
        if let Some(end) = self.ending {
            return self.finish(end);
        }
        self.waits = true;
        Taken::Nothing
    }

    /// The server ends the stream once it has said what it owes. Whether somebody waits for that.
    pub fn drain(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        self.ending.get_or_insert(End::Drained);
        core::mem::take(&mut self.waits)
    }

    /// The stream is over, and owes nothing more.
    pub fn close(&mut self) {
        if self.ended.is_none() {
            let _silence: Taken<S> = self.finish(End::Closed);
        }
    }

    /// Whether the acknowledgement was taken.
    #[must_use]
    pub const fn is_acknowledged(&self) -> bool {
        self.acknowledged
    }

    /// How it ended, if it has.
    #[must_use]
    pub const fn ended(&self) -> Option<End> {
        self.ended
    }

    /// Things that it may watch at once.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.config.slots
    }

    /// Things that it watches.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Things whose notification waits, and the bytes of their states.
    #[must_use]
    pub fn owed(&self) -> (usize, usize) {
        (self.marks.len(), self.bytes)
    }

    fn finish(&mut self, end: End) -> Taken<S> {
        self.forget();
        self.slots = Vec::new();
        self.free = Vec::new();
        self.waits = false;
        self.ending = None;
        self.ended = Some(end);
        Taken::Finish(end)
    }

    /// Drops every mark.
    fn forget(&mut self) {
        self.marks = VecDeque::new();
        self.bytes = 0;
        for watched in self.slots.iter_mut().flatten() {
            watched.marked = false;
            watched.state = None;
        }
    }
}

fn size<S: Size>(state: Option<&S>) -> usize {
    state.map_or(0, Size::size)
}
