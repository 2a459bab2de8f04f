//! A client's subscriptions: which listen request carries which, and nothing after a gap before it is refetched (rule L5).
//!
//! After a stream opens, the first one too, the application is told the gap and what to refetch. Until it says that it has, notices
//! are not delivered. What comes meanwhile makes the gap come again, for what it names only, each thing once; a further
//! loss makes it come again for all. So nothing is lost and nothing waits in a queue, and a server that changes one thing
//! all the time has that one read all the time, not the rest. One gap of a subscription is told at a time.
//!
//! One loss often takes many streams. The client is then in doubt about its server: one listen request goes out at a time,
//! after its own pause, and not before the pause that follows the last one that failed; the first answer, or a new link,
//! ends the doubt, and all others that are due follow at once (`SUB-7`). So a server that is down hears one question a pause
//! from a client, however many subscriptions it has.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::io::Output;
use super::table::Client;
use crate::backoff::Jitter;
use crate::id::{SubscriptionId, WireId};
use crate::subscription::{Config, Effect, Event, Filter, RecoveryPlan, Refetch, State, Subscription};
use crate::time::Instant;

/// Subscriptions a client can have at once.
pub const MAX_SUBSCRIPTIONS: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct Listens {
    entries: BTreeMap<SubscriptionId, Entry>,
    wires: BTreeMap<WireId, SubscriptionId>,
    next: u64,
    /// Since a loss, until the server answered a listen request: no request goes out before this time.
    doubt: Option<Instant>,
    /// The last sign of life of the link.
    heard: Instant,
}

#[derive(Clone, Debug)]
struct Entry {
    machine: Subscription,
    filter: Box<Filter>,
    wire: Option<WireId>,
    /// The last request whose stream was open.
    last_open: Option<WireId>,
    gap: Gap,
}

/// A notification, and what is to be read for it.
pub(super) type Notice<R> = (R, Option<Refetch>);

/// Whether the application is reading what it may have missed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Gap {
    None,
    /// It is; these changed meanwhile, and are to be read once more. Bounded by what the filter covers.
    Refetching(BTreeSet<Refetch>),
    /// It is; it must read all once more.
    RefetchingAgain,
}

/// The client is at its limit of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("there are {MAX_SUBSCRIPTIONS} subscriptions already: end one first, or ask for more in one filter")]
#[non_exhaustive]
pub struct TooManySubscriptions;

impl Entry {
    fn is_waiting(&self) -> bool {
        matches!(self.machine.state(), State::Waiting { .. })
    }

    fn is_opening(&self) -> bool {
        matches!(self.machine.state(), State::Opening { .. })
    }
}

impl Listens {
    pub(super) fn wake_at(&self, link_up: bool) -> Option<Instant> {
        let times = self.entries.values().filter_map(|entry| {
            let at = entry.machine.poll_timeout()?;
            if !entry.is_waiting() {
                return Some(at);
            }
            // Without a link a listen that is due waits for it, not for the clock; in doubt for the request that is out.
            self.may_send(link_up).then(|| self.doubt.map_or(at, |not_before| at.max(not_before)))
        });
        times.min()
    }

    /// Whether a listen request may go out once its time has come (`SUB-7`).
    fn may_send(&self, link_up: bool) -> bool {
        link_up && (self.doubt.is_none() || !self.entries.values().any(Entry::is_opening))
    }

    /// The subscription that this attempt carries.
    pub(super) fn of(&self, wire: WireId) -> Option<SubscriptionId> {
        self.wires.get(&wire).copied()
    }
}

impl<P: Clone, R> Client<P, R> {
    /// Subscribes to what `filter` names. The first listen request is sent at once if the link is there and the server is not in
    /// doubt.
    ///
    /// # Errors
    /// [`TooManySubscriptions`] at [`MAX_SUBSCRIPTIONS`].
    pub fn listen(
        &mut self,
        now: Instant,
        filter: Filter,
        config: Config,
        jitter: Jitter,
    ) -> Result<SubscriptionId, TooManySubscriptions> {
        if self.listens.entries.len() >= MAX_SUBSCRIPTIONS {
            return Err(TooManySubscriptions);
        }
        self.listens.next += 1;
        let id = SubscriptionId::new(self.listens.next);
        let machine = Subscription::open(now, config, jitter);
        let may_send = self.listens.doubt.is_none() && self.link_up;
        let entry = Entry { machine, filter: Box::new(filter), wire: None, last_open: None, gap: Gap::None };
        self.listens.entries.insert(id, entry);
        if may_send {
            self.send_listen(id);
        } else {
            self.feed(now, id, Event::Lost, None);
        }
        Ok(id)
    }

    /// Ends a subscription; nothing if it was over.
    pub fn unlisten(&mut self, now: Instant, id: SubscriptionId) {
        self.feed(now, id, Event::Close, None);
    }

    /// The application has refetched what the last [`Output::Gap`] named: notices may go on, or the gap comes again.
    pub fn refetched(&mut self, id: SubscriptionId) {
        let Some(entry) = self.listens.entries.get_mut(&id) else { return };
        match core::mem::replace(&mut entry.gap, Gap::None) {
            Gap::None => {}
            Gap::Refetching(changed) if changed.is_empty() => {}
            Gap::Refetching(changed) => self.open_gap(id, changed.into_iter().collect()),
            Gap::RefetchingAgain => self.open_whole_gap(id),
        }
    }

    /// Something came over the link that could not be read and may have been a notification: each open stream has a gap.
    pub fn missed(&mut self) {
        for id in self.listens_that(|entry| matches!(entry.machine.state(), State::Open { .. })) {
            self.miss(id);
        }
    }

    /// What is read now may be older than what is missed: it does not answer for it.
    fn miss(&mut self, id: SubscriptionId) {
        let Some(entry) = self.listens.entries.get_mut(&id) else { return };
        match entry.gap {
            Gap::None => self.open_whole_gap(id),
            Gap::Refetching(_) | Gap::RefetchingAgain => entry.gap = Gap::RefetchingAgain,
        }
    }

    /// Something came over the link.
    pub(super) fn heard(&mut self, now: Instant) {
        self.listens.heard = self.listens.heard.max(now);
    }

    /// Hands an event of this attempt to its subscription; whether it carries one.
    pub(super) fn listen_event(&mut self, now: Instant, wire: WireId, event: Event, notice: Option<Notice<R>>) -> bool {
        let Some(id) = self.listens.of(wire) else { return false };
        self.feed(now, id, event, notice);
        true
    }

    /// The link went: every stream on it is lost.
    pub(super) fn lose_listens(&mut self, now: Instant) {
        while let Some((_, &id)) = self.listens.wires.first_key_value() {
            self.feed(now, id, Event::Lost, None);
        }
    }

    /// Ends every subscription: there will be no link any more.
    pub(super) fn close_listens(&mut self, now: Instant) {
        while let Some((&id, _)) = self.listens.entries.first_key_value() {
            self.feed(now, id, Event::Close, None);
        }
    }

    /// Gives up what was not acknowledged in time or fell silent, and sends the listen requests that are due.
    pub(super) fn tick_listens(&mut self, now: Instant) {
        let heard = Event::Heard { at: self.listens.heard };
        for id in self.listens_that(|entry| !entry.is_waiting()) {
            self.feed(now, id, heard, None);
            self.feed(now, id, Event::Clock, None);
        }
        self.send_due_listens(now);
    }

    /// The link is there again, and its server has answered: sends what waited for it. No other deadline is looked at, an
    /// acknowledgement may be in hand.
    pub(super) fn relink_listens(&mut self, now: Instant) {
        self.listens.doubt = None;
        self.heard(now);
        self.send_due_listens(now);
    }

    /// Sends the listen requests that are due: all, or in doubt the one that is due the longest.
    fn send_due_listens(&mut self, now: Instant) {
        let mut due = self.listens_that(Entry::is_waiting);
        due.sort_by_key(|id| self.listens.entries.get(id).and_then(|entry| entry.machine.poll_timeout()));
        for id in due {
            if self.listens.may_send(self.link_up) && self.listens.doubt.is_none_or(|not_before| now >= not_before) {
                self.feed(now, id, Event::Clock, None);
            }
        }
    }

    fn listens_that(&self, which: impl Fn(&Entry) -> bool) -> Vec<SubscriptionId> {
        self.listens.entries.iter().filter(|(_, entry)| which(entry)).map(|(id, _)| *id).collect()
    }

    fn feed(&mut self, now: Instant, id: SubscriptionId, event: Event, notice: Option<Notice<R>>) {
        let Some(entry) = self.listens.entries.get_mut(&id) else { return };
        let asked = entry.is_opening() && entry.wire.is_some();
        let effect = entry.machine.handle(now, event);
        match effect {
            Effect::Nothing | Effect::Violation(_) | Effect::Stale | Effect::TooLate => {}
            Effect::Listen => self.send_listen(id),
            Effect::Opened => {
                entry.last_open = entry.wire;
                self.miss(id);
            }
            Effect::Deliver => self.deliver(id, notice),
            Effect::Wait { until } | Effect::AbortAndWait { until } => {
                if matches!(effect, Effect::AbortAndWait { .. }) {
                    self.abort(id);
                } else {
                    self.drop_wire(id);
                }
                if event != Event::FinalResult {
                    // An open stream that goes is no failed question: it says nothing of when to ask.
                    let not_before = if asked { until } else { now };
                    self.listens.doubt = Some(self.listens.doubt.map_or(not_before, |at| at.max(not_before)));
                }
            }
            Effect::Finish { end, abort } => {
                if abort {
                    self.abort(id);
                } else {
                    self.drop_wire(id);
                }
                self.listens.entries.remove(&id);
                self.outputs.push_back(Output::Unsubscribed { subscription: id, end });
            }
        }
        if matches!(event, Event::Acknowledged | Event::FinalResult | Event::Refused)
            && self.listens.doubt.take().is_some()
        {
            self.send_due_listens(now);
        }
    }

    fn deliver(&mut self, id: SubscriptionId, notice: Option<Notice<R>>) {
        let (Some(entry), Some((notice, about))) = (self.listens.entries.get_mut(&id), notice) else { return };
        match (&mut entry.gap, about) {
            (Gap::None, _) => self.outputs.push_back(Output::Notice { subscription: id, notice }),
            (Gap::Refetching(changed), Some(about)) if entry.filter.refetch().contains(&about) => {
                changed.insert(about);
            }
            // Of a part of what was asked for, or of something that only the caller can place.
            (Gap::Refetching(_), _) => entry.gap = Gap::RefetchingAgain,
            (Gap::RefetchingAgain, _) => {}
        }
    }

    fn send_listen(&mut self, id: SubscriptionId) {
        let wire = self.fresh_wire();
        let Some(entry) = self.listens.entries.get_mut(&id) else { return };
        entry.wire = Some(wire);
        let plan = RecoveryPlan::new(entry.last_open, wire, entry.filter.clone());
        self.listens.wires.insert(wire, id);
        self.outputs.push_back(Output::Listen { subscription: id, plan });
    }

    fn open_whole_gap(&mut self, id: SubscriptionId) {
        let refetch = self.listens.entries.get(&id).map(|entry| entry.filter.refetch().into());
        self.open_gap(id, refetch.unwrap_or_default());
    }

    fn open_gap(&mut self, id: SubscriptionId, refetch: Box<[Refetch]>) {
        let Some(entry) = self.listens.entries.get_mut(&id) else { return };
        entry.gap = Gap::Refetching(BTreeSet::new());
        self.outputs.push_back(Output::Gap { subscription: id, refetch });
    }

    /// Takes the attempt of a subscription away; which one, if its request is out.
    fn drop_wire(&mut self, id: SubscriptionId) -> Option<WireId> {
        let wire = self.listens.entries.get_mut(&id).and_then(|entry| entry.wire.take())?;
        self.listens.wires.remove(&wire);
        if self.retract(wire) { None } else { Some(wire) }
    }

    fn abort(&mut self, id: SubscriptionId) {
        if let Some(wire) = self.drop_wire(id) {
            self.outputs.push_back(Output::Signal { wire, signal: self.config.transport.cancel_signal() });
        }
    }
}
