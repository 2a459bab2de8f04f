//! A client's subscriptions: which listen request carries which, and nothing after a gap before it is refetched (rule L5).
//!
//! After a recovered stream opens, the application is told the gap and what to refetch. Until it says that it has, notices
//! are not delivered; one that comes meanwhile, or a further loss, makes the gap come again, so nothing is lost and nothing
//! waits in a queue. One gap of a subscription is told at a time.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use super::io::Output;
use super::table::Client;
use crate::backoff::Jitter;
use crate::id::{SubscriptionId, WireId};
use crate::subscription::{Config, Effect, Event, Filter, Subscription};
use crate::time::Instant;

/// Subscriptions a client can have at once.
pub const MAX_SUBSCRIPTIONS: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct Listens {
    entries: BTreeMap<SubscriptionId, Entry>,
    wires: BTreeMap<WireId, SubscriptionId>,
    next: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    machine: Subscription,
    filter: Box<Filter>,
    wire: Option<WireId>,
    gap: Gap,
}

/// Whether the application is reading what it may have missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    None,
    Refetching,
    /// Something changed meanwhile: it must read once more.
    RefetchingAgain,
}

/// The client is at its limit of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("there are {MAX_SUBSCRIPTIONS} subscriptions already: end one first, or ask for more in one filter")]
#[non_exhaustive]
pub struct TooManySubscriptions;

impl Listens {
    pub(super) fn wake_at(&self, link_up: bool) -> Option<Instant> {
        let entries = self.entries.values();
        // Without a link a listen that is due waits for it, not for the clock.
        let timed = entries.filter(|entry| link_up || entry.wire.is_some());
        timed.filter_map(|entry| entry.machine.poll_timeout()).min()
    }

    /// The subscription that this attempt carries.
    pub(super) fn of(&self, wire: WireId) -> Option<SubscriptionId> {
        self.wires.get(&wire).copied()
    }
}

impl<P: Clone, R> Client<P, R> {
    /// Subscribes to what `filter` names. The first listen request is sent at once if the link is there.
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
        let entry = Entry { machine, filter: Box::new(filter), wire: None, gap: Gap::None };
        self.listens.entries.insert(id, entry);
        if self.link_up {
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
        match entry.gap {
            Gap::None => {}
            Gap::Refetching => entry.gap = Gap::None,
            Gap::RefetchingAgain => self.open_gap(id),
        }
    }

    /// Hands an event of this attempt to its subscription; whether it carries one.
    pub(super) fn listen_event(&mut self, now: Instant, wire: WireId, event: Event, notice: Option<R>) -> bool {
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

    /// Sends the listen requests that are due, and gives up those that were not acknowledged in time.
    pub(super) fn tick_listens(&mut self, now: Instant) {
        let link_up = self.link_up;
        self.clock_listens(now, |entry| link_up || entry.wire.is_some());
    }

    /// The link is there again: sends what waited for it. No deadline is looked at, an acknowledgement may be in hand.
    pub(super) fn relink_listens(&mut self, now: Instant) {
        self.clock_listens(now, |entry| entry.wire.is_none());
    }

    fn clock_listens(&mut self, now: Instant, which: impl Fn(&Entry) -> bool) {
        let ids = self.listens.entries.iter().filter(|(_, entry)| which(entry));
        let ids: alloc::vec::Vec<SubscriptionId> = ids.map(|(id, _)| *id).collect();
        for id in ids {
            self.feed(now, id, Event::Clock, None);
        }
    }

    fn feed(&mut self, now: Instant, id: SubscriptionId, event: Event, notice: Option<R>) {
        let Some(entry) = self.listens.entries.get_mut(&id) else { return };
        match entry.machine.handle(now, event) {
            Effect::Nothing | Effect::Violation(_) | Effect::Stale | Effect::TooLate => {}
            Effect::Listen => self.send_listen(id),
            Effect::Opened { refetch: false } => {}
            Effect::Opened { refetch: true } => match entry.gap {
                Gap::None => self.open_gap(id),
                // What is read now may be older than this loss: it does not answer for it.
                Gap::Refetching | Gap::RefetchingAgain => entry.gap = Gap::RefetchingAgain,
            },
            Effect::Deliver => match (entry.gap, notice) {
                (Gap::None, Some(notice)) => self.outputs.push_back(Output::Notice { subscription: id, notice }),
                (Gap::None, None) => {}
                (Gap::Refetching | Gap::RefetchingAgain, _) => entry.gap = Gap::RefetchingAgain,
            },
            Effect::Wait { until: _ } => {
                self.drop_wire(id);
            }
            Effect::AbortAndWait { until: _ } => self.abort(id),
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
    }

    fn send_listen(&mut self, id: SubscriptionId) {
        let wire = self.fresh_wire();
        let Some(entry) = self.listens.entries.get_mut(&id) else { return };
        entry.wire = Some(wire);
        let filter = entry.filter.clone();
        self.listens.wires.insert(wire, id);
        self.outputs.push_back(Output::Listen { subscription: id, wire, filter });
    }

    fn open_gap(&mut self, id: SubscriptionId) {
        let Some(entry) = self.listens.entries.get_mut(&id) else { return };
        entry.gap = Gap::Refetching;
        let refetch = entry.filter.refetch().into();
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
