//! A listener as one would write it who need not bound it: a log of publications.

use steady_core::listener::{Config, End, Listener, Published, Slot, Taken};

use super::invariants::{
    hub_1_the_acknowledgement_comes_first, hub_2_only_what_is_watched, hub_3_nothing_is_lost,
    hub_4_what_waits_is_bounded, hub_5_an_end_is_an_end, hub_6_a_waiter_is_woken_once,
};

pub(crate) type States = &'static str;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Watch,
    Unwatch(usize),
    Publish(usize, Option<States>),
    Take,
    Drain,
    Close,
}

/// Every operation on this many slots.
pub(crate) fn ops(slots: usize) -> Vec<Op> {
    let mut ops = vec![Op::Watch, Op::Take, Op::Take, Op::Drain, Op::Close];
    for slot in 0..slots {
        ops.push(Op::Unwatch(slot));
        ops.extend([None, Some("a"), Some("bb")].map(|state| Op::Publish(slot, state)));
    }
    ops
}

/// A listener and what it should be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pair {
    config: Config,
    pub(crate) listener: Listener<States>,
    /// Slots as they were given out, by their index.
    slots: Vec<Option<Slot>>,
    /// Publications that were not told yet, oldest first.
    log: Vec<(usize, Option<States>)>,
    acknowledged: bool,
    /// The last look found nothing.
    waits: bool,
    ending: Option<End>,
    ended: bool,
}

impl Pair {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            listener: Listener::new(config),
            slots: Vec::new(),
            log: Vec::new(),
            acknowledged: false,
            waits: false,
            ending: None,
            ended: false,
        }
    }

    pub(crate) fn apply(&mut self, op: Op) {
        let before = self.listener.clone();
        match op {
            Op::Watch => self.watch(),
            Op::Unwatch(index) => {
                if let Some(slot) = self.slot(index) {
                    self.listener.unwatch(slot);
                    self.slots[index] = None;
                    self.log.retain(|(published, _)| *published != index);
                }
            }
            Op::Publish(index, state) => self.publish(index, state),
            Op::Take => self.take(),
            Op::Drain => {
                let wake = self.listener.drain();
                hub_6_a_waiter_is_woken_once(self.waits, !self.ended, wake, &(op, &before));
                if !self.ended {
                    self.ending.get_or_insert(End::Drained);
                    self.waits = false;
                }
            }
            Op::Close => {
                self.listener.close();
                self.end();
            }
        }
        let at = (op, &before, &self.listener);
        let (marks, bytes) = self.listener.owed();
        hub_4_what_waits_is_bounded((marks, self.listener.watched()), (bytes, self.config.bytes), &at);
        assert_eq!(bytes, self.bytes(), "{at:?}");
        assert_eq!(self.listener.ended().is_some(), self.ended, "HUB-5: {at:?}");
    }

    /// The log with one entry for each slot, which says the same: so that a search comes to an end.
    pub(crate) fn normalise(&mut self) {
        let mut short: Vec<(usize, Option<States>)> = Vec::new();
        for (index, state) in std::mem::take(&mut self.log) {
            match short.iter_mut().find(|(known, _)| *known == index) {
                Some((_, newest)) => *newest = state,
                None => short.push((index, state)),
            }
        }
        self.log = short;
    }

    fn slot(&self, index: usize) -> Option<Slot> {
        self.slots.get(index).copied().flatten()
    }

    fn watch(&mut self) {
        let watched = self.slots.iter().flatten().count();
        let slot = self.listener.watch();
        assert_eq!(slot.is_some(), watched < self.config.slots && !self.ended);
        if let Some(slot) = slot {
            if self.slots.len() <= slot.index() {
                self.slots.resize(slot.index() + 1, None);
            }
            assert_eq!(self.slots[slot.index()].replace(slot), None, "it was free");
        }
    }

    /// The newest state of a slot in the log.
    fn newest(&self, index: usize) -> Option<States> {
        self.log.iter().rev().find(|(published, _)| *published == index).and_then(|(_, state)| *state)
    }

    fn bytes(&self) -> usize {
        (0..self.slots.len()).filter_map(|index| self.newest(index)).map(str::len).sum()
    }

    fn publish(&mut self, index: usize, state: Option<States>) {
        // A slot that was never given out has no value here: the first that was stands in for a stale one.
        let Some(slot) = self.slot(index) else { return };
        let published = self.listener.publish(slot, state);
        if self.ended || self.ending.is_some() {
            return assert_eq!(published, Published::Ignored);
        }
        let marked = self.log.iter().any(|(known, _)| *known == index);
        self.log.push((index, state));
        let waits = std::mem::take(&mut self.waits);
        match published {
            Published::Marked { wake } => {
                assert!(!marked);
                hub_6_a_waiter_is_woken_once(waits, true, wake, &slot);
            }
            Published::Coalesced => {
                assert!(marked);
                assert!(!waits, "HUB-6: whoever waits has been told of all");
            }
            Published::Behind { wake } => {
                assert!(self.bytes() > self.config.bytes, "HUB-3: there was room");
                hub_6_a_waiter_is_woken_once(waits, true, wake, &slot);
                self.log.clear();
                self.ending = Some(End::Behind);
            }
            Published::Ignored => panic!("HUB-3: a publication to a watched slot was ignored"),
        }
    }

    fn take(&mut self) {
        let taken = self.listener.take();
        hub_5_an_end_is_an_end(self.ended, taken != Taken::Over, &taken);
        let (acknowledges, notifies) = (taken == Taken::Acknowledge, matches!(taken, Taken::Notify { .. }));
        hub_1_the_acknowledgement_comes_first(self.acknowledged, acknowledges, notifies, &taken);
        if self.ended {
            return;
        }
        if self.ending == Some(End::Behind) {
            assert_eq!(taken, Taken::Finish(End::Behind));
            return self.end();
        }
        if !std::mem::replace(&mut self.acknowledged, true) {
            return assert_eq!(taken, Taken::Acknowledge);
        }
        let owed = self.log.first().map(|&(index, _)| (index, self.newest(index)));
        let told = match taken {
            Taken::Notify { slot, state } => {
                hub_2_only_what_is_watched(self.slot(slot.index()) == Some(slot), true, &taken);
                Some((slot.index(), state))
            }
            Taken::Acknowledge | Taken::Nothing | Taken::Finish(_) | Taken::Over => None,
        };
        hub_3_nothing_is_lost(owed, told, &taken);
        if let Some((index, _)) = owed {
            return self.log.retain(|(published, _)| *published != index);
        }
        match self.ending {
            Some(end) => {
                assert_eq!(taken, Taken::Finish(end));
                self.end();
            }
            None => {
                assert_eq!(taken, Taken::Nothing);
                self.waits = true;
            }
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.ending = None;
        self.waits = false;
        self.slots.clear();
        self.log.clear();
    }
}
