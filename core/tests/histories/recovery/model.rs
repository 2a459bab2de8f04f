//! What a client owes the application of a subscription: each notice of an open stream, or a gap that stands for it.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use steady_core::client::{Output, Transport};
use steady_core::id::{SubscriptionId, WireId};
use steady_core::subscription::{End, Filter, RecoveryPlan, Refetch};
use steady_core::time::Instant;

use super::super::history::{Seen, ensure};
use super::Out;

pub(super) const ACK_DEADLINE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: u64 = 80;
/// The filter that comes with a liveness, and that.
pub(super) const LIVELY: usize = 2;
pub(super) const LIVENESS: Duration = Duration::from_millis(120);
pub(super) const FILTERS: [&str; 3] = [
    r#"{"toolsListChanged":true}"#,
    r#"{ "resourceSubscriptions": ["file:///a", "file:///b"], "unknown": 1 }"#,
    r#"{"taskIds":["t"],"promptsListChanged":true,"toolsListChanged":false}"#,
];

/// What must become of a notice.
pub(super) enum Fate {
    Delivered,
    TooEarly(SubscriptionId),
    InTheGap(SubscriptionId),
    Stray,
}

pub(super) struct Sub {
    pub(super) id: SubscriptionId,
    filter: usize,
    again: bool,
    /// The listen request that waits to be taken, or is out; when it was made, and whether it was taken.
    wire: Option<WireId>,
    since: Instant,
    taken: bool,
    open: bool,
    was_open: bool,
    wires: Vec<WireId>,
    arrived: VecDeque<u32>,
    /// Whether the application reads what a gap named; gaps that it saw, that wait to be seen, that it must have seen.
    refetching: bool,
    /// What the gap that waits to be seen must name, and what changed since it was made; `None` stands for all.
    expected: Option<BTreeSet<Refetch>>,
    changed: Option<BTreeSet<Refetch>>,
    /// The last sign of life on its own stream.
    heard: Instant,
    shown: usize,
    queued: usize,
    owed: usize,
    end: Option<End>,
    told: bool,
    signal: Option<WireId>,
}

impl Sub {
    fn lost(&mut self, now: Instant) {
        if self.wire.take().is_some() {
            self.since = now;
        }
        self.open = false;
    }

    /// Something may have been missed: a gap must be shown after all that were made until now.
    fn owe_a_gap(&mut self) {
        self.owed = self.shown + self.queued + 1;
    }

    fn out(&self) -> Option<WireId> {
        self.wire.filter(|_| self.taken)
    }
}

pub(super) struct Model {
    pub(super) subscriptions: Vec<Sub>,
    pub(super) link_up: bool,
    pub(super) seen: Seen,
    last_wire: Option<WireId>,
    late: u64,
    /// The last sign of life of the link.
    pub(super) heard: Instant,
    /// A stream was lost and the server has not answered a listen request since; when the last question failed.
    doubt: Option<Instant>,
    /// What a wrong machine could mix up.
    plans: Vec<RecoveryPlan>,
}

impl Model {
    pub(super) fn new() -> Self {
        let (subscriptions, heard) = (Vec::new(), Instant::ZERO);
        Self {
            subscriptions,
            link_up: true,
            seen: Seen::new(),
            last_wire: None,
            late: 0,
            heard,
            doubt: None,
            plans: Vec::new(),
        }
    }

    /// A link is there again, and its server has answered.
    pub(super) fn link_up(&mut self, now: Instant) {
        (self.link_up, self.heard, self.doubt) = (true, now, None);
    }

    /// Whether a request of another subscription than this one is out and not acknowledged, or waits to be taken.
    fn another_asks(&self, id: SubscriptionId) -> bool {
        let mut others = self.subscriptions.iter().filter(|sub| sub.id != id && sub.end.is_none());
        others.any(|sub| sub.wire.is_some() && !sub.open)
    }

    /// The subscriptions that wait for the answer to this request.
    pub(super) fn waiting_in_doubt(&self, wire: WireId) -> Vec<SubscriptionId> {
        let doubt = self.doubt.is_some() && self.subscriptions.iter().any(|sub| sub.wire == Some(wire));
        let waiting = self.subscriptions.iter().filter(|sub| doubt && sub.end.is_none() && sub.wire.is_none());
        waiting.map(|sub| sub.id).collect()
    }

    /// The plan of another subscription, if there is one with another filter.
    pub(super) fn with_another_filter(&mut self, plan: &RecoveryPlan) -> Option<RecoveryPlan> {
        let stolen = self.plans.iter().find(|other| other.filter() != plan.filter()).cloned();
        self.plans.push(plan.clone());
        stolen
    }

    pub(super) fn alive(&self) -> usize {
        self.subscriptions.iter().filter(|sub| sub.end.is_none()).count()
    }

    /// The subscription this far back from the newest.
    pub(super) fn back(&self, back: usize) -> Option<&Sub> {
        self.subscriptions.iter().rev().nth(back)
    }

    pub(super) fn newest(&self, sub: usize) -> Option<WireId> {
        self.back(sub)?.wires.last().copied()
    }

    pub(super) fn oldest(&self, sub: usize) -> Option<WireId> {
        self.back(sub)?.wires.first().copied()
    }

    pub(super) fn listen(&mut self, now: Instant, id: SubscriptionId, filter: usize, again: bool) {
        self.subscriptions.push(Sub {
            id,
            filter,
            again,
            wire: None,
            since: now,
            taken: false,
            open: false,
            was_open: false,
            wires: Vec::new(),
            arrived: VecDeque::new(),
            refetching: false,
            expected: None,
            changed: Some(BTreeSet::new()),
            heard: now,
            shown: 0,
            queued: 0,
            owed: 0,
            end: None,
            told: false,
            signal: None,
        });
    }

    /// The subscription whose request is out under this id; else what came is late.
    fn of(&mut self, wire: WireId) -> Option<&mut Sub> {
        let found = self.subscriptions.iter().position(|sub| sub.out() == Some(wire));
        self.late += u64::from(found.is_none());
        found.map(|index| &mut self.subscriptions[index])
    }

    /// The requests and gaps that wait to be taken.
    pub(super) fn queued(&mut self, now: Instant, waiting: &[Out]) -> Result<(), String> {
        let mut asks = Vec::new();
        for sub in &mut self.subscriptions {
            let gaps =
                waiting.iter().filter(|out| matches!(out, Output::Gap { subscription, .. } if *subscription == sub.id));
            sub.queued = gaps.count();
            for output in waiting {
                let Output::Listen { subscription, plan } = output else { continue };
                let wire = &plan.wire();
                if *subscription == sub.id && sub.wire != Some(*wire) {
                    ensure!(sub.wire.is_none() && sub.end.is_none(), "{} listens twice, or after its end", sub.id);
                    ensure!(self.link_up, "nothing is sent without a link");
                    (sub.wire, sub.since, sub.taken) = (Some(*wire), now, false);
                    asks.push(sub.id);
                }
            }
        }
        for id in asks {
            ensure!(self.doubt.is_none() || !self.another_asks(id), "SUB-7: {id} asks beside another");
        }
        Ok(())
    }

    pub(super) fn acknowledged(&mut self, now: Instant, wire: WireId) {
        let Some(sub) = self.of(wire) else { return };
        let was_open = std::mem::replace(&mut sub.open, true);
        if !was_open {
            sub.heard = now;
        }
        sub.was_open = true;
        if !was_open {
            if sub.refetching || sub.queued > 0 {
                sub.changed = None;
            } else {
                sub.expected = None;
            }
            sub.owe_a_gap();
        }
        self.doubt = None;
    }

    /// What this notice names: something that the filter covers, a part of it, or nothing that can be told.
    pub(super) fn about(&self, wire: WireId, notice: u32) -> Option<Refetch> {
        let sub = self.subscriptions.iter().find(|sub| sub.wires.contains(&wire))?;
        let covered = Filter::parse(FILTERS[sub.filter]).expect("a filter");
        let covered = covered.refetch();
        let nth = notice as usize;
        match nth % 7 {
            5 => None,
            6 => Some(Refetch::Resource { uri: "file:///a/part".into() }),
            _ => Some(covered[nth % covered.len()].clone()),
        }
    }

    pub(super) fn notice(&mut self, now: Instant, wire: WireId, notice: u32, about: Option<Refetch>) -> Fate {
        let Some(sub) = self.of(wire) else { return Fate::Stray };
        let id = sub.id;
        if !sub.open {
            self.seen.insert("early notice");
            return Fate::TooEarly(id);
        }
        sub.heard = now;
        if sub.refetching || sub.queued > 0 {
            let covered = Filter::parse(FILTERS[sub.filter]).expect("a filter");
            let about = about.filter(|about| covered.refetch().contains(about));
            match (about, &mut sub.changed) {
                (Some(about), Some(changed)) => {
                    changed.insert(about);
                }
                (None, changed) => *changed = None,
                (Some(_), None) => {}
            }
            sub.owe_a_gap();
            self.seen.insert("gap again");
            return Fate::InTheGap(id);
        }
        sub.arrived.push_back(notice);
        Fate::Delivered
    }

    pub(super) fn server_ended(&mut self, now: Instant, wire: WireId, refused: bool) {
        if self.subscriptions.iter().any(|sub| sub.out() == Some(wire)) {
            self.doubt = None;
        }
        let Some(sub) = self.of(wire) else { return };
        sub.lost(now);
        if refused {
            sub.end = Some(End::Refused);
        } else if !sub.again {
            sub.end = Some(End::Graceful);
        }
    }

    pub(super) fn stream_lost(&mut self, now: Instant, wire: WireId) {
        if let Some(sub) = self.subscriptions.iter_mut().find(|sub| sub.out() == Some(wire)) {
            self.doubt = Some(if sub.open { self.doubt.unwrap_or(Instant::ZERO) } else { now });
            sub.lost(now);
        }
    }

    /// There is no link to ask over; the next one ends any doubt.
    pub(super) fn link_lost(&mut self, now: Instant) {
        self.link_up = false;
        self.subscriptions.iter_mut().for_each(|sub| sub.lost(now));
    }

    pub(super) fn end(&mut self, sub: usize, end: End) {
        if let Some(sub) = self.subscriptions.iter_mut().rev().nth(sub).filter(|sub| sub.end.is_none()) {
            sub.end = Some(end);
            sub.signal = sub.out().or(sub.signal);
            (sub.wire, sub.open) = (None, false);
        }
    }

    pub(super) fn timeout(&mut self, now: Instant) {
        for sub in self.subscriptions.iter_mut().filter(|sub| sub.end.is_none()) {
            let late = sub.wire.is_some() && !sub.open && now >= sub.since + ACK_DEADLINE;
            let silent = sub.open && sub.filter == LIVELY && now >= sub.heard.max(self.heard) + LIVENESS;
            if late || silent {
                sub.signal = sub.out().or(sub.signal);
                self.doubt = Some(if late { now } else { self.doubt.unwrap_or(Instant::ZERO) });
                sub.lost(now);
            }
            if silent {
                self.seen.insert("silent");
            }
        }
    }

    /// Whether the application has a gap to answer for; it answers.
    pub(super) fn refetched(&mut self, sub: usize) -> bool {
        let sub = self.subscriptions.iter_mut().rev().nth(sub).filter(|sub| sub.refetching);
        let Some(sub) = sub else { return false };
        sub.refetching = false;
        sub.expected = sub.changed.replace(BTreeSet::new());
        true
    }

    /// Until when a subscription without a request may wait: for its own pause, and for that of the last question that failed;
    /// none while it waits for a link, or for the answer to another.
    fn longest_wait(&self, sub: &Sub) -> Option<Instant> {
        let waits_for_another = self.doubt.is_some() && self.another_asks(sub.id);
        let since = self.doubt.map_or(sub.since, |failed| sub.since.max(failed));
        (self.link_up && !waits_for_another).then(|| since + Duration::from_millis(LONGEST_PAUSE))
    }

    /// After the clock or the link was looked at: no subscription waits longer than the longest pause.
    pub(super) fn none_is_overdue(&self, now: Instant) -> Result<(), String> {
        let overdue = |sub: &&Sub| {
            let waits = sub.end.is_none() && sub.wire.is_none();
            waits && self.longest_wait(sub).is_some_and(|until| now >= until)
        };
        let overdue = self.subscriptions.iter().find(overdue);
        overdue.map_or(Ok(()), |sub| Err(format!("SUB-6: {} does not listen again", sub.id)))
    }

    pub(super) fn output(&mut self, output: &Out) -> Result<(), String> {
        match output {
            Output::Listen { subscription, plan } => {
                let (wire, filter) = (&plan.wire(), plan.filter());
                ensure!(self.last_wire < Some(*wire), "SUB-2: {wire} was used before");
                self.last_wire = Some(*wire);
                let sub = self.known(*subscription)?;
                ensure!(sub.wire == Some(*wire) && !sub.taken, "SUB-7: {wire} of {subscription} is not due");
                ensure!(filter.as_str() == FILTERS[sub.filter], "SUB-2: another filter: {}", filter.as_str());
                sub.taken = true;
                sub.wires.push(*wire);
                let kind = if sub.wires.len() == 1 { "listen" } else { "relisten" };
                ensure!(plan.replaces().is_some() == sub.was_open, "SUB-2: it replaces {:?}", plan.replaces());
                ensure!(!plan.send_last_event_id(), "SUB-2: Last-Event-ID");
                self.seen.insert(kind);
                if !self.waiting_in_doubt(*wire).is_empty() {
                    self.seen.insert("one waits for another");
                }
            }
            Output::Signal { wire, signal } => {
                ensure!(*signal == Transport::Http.cancel_signal(), "rule C1: {signal:?}");
                let owed = self.subscriptions.iter_mut().find(|sub| sub.signal == Some(*wire));
                let Some(owed) = owed else { return Err(format!("a signal for {wire} is not owed")) };
                owed.signal = None;
                self.seen.insert("signal");
            }
            Output::Gap { subscription, refetch } => {
                let sub = self.known(*subscription)?;
                ensure!(!sub.told && sub.shown < sub.owed, "a gap for nothing");
                ensure!(!std::mem::replace(&mut sub.refetching, true), "a gap while another is read");
                let covered = Filter::parse(FILTERS[sub.filter]).expect("a filter");
                let narrow = sub.expected.is_some();
                let expected = sub.expected.take().map(|changed| changed.into_iter().collect::<Box<[Refetch]>>());
                let expected = expected.unwrap_or_else(|| covered.refetch().into());
                ensure!(**refetch == *expected, "SUB-3: {refetch:?} is not {expected:?}");
                sub.shown += 1;
                self.seen.insert(if narrow { "narrow gap" } else { "gap" });
            }
            Output::Notice { subscription, notice } => {
                let sub = self.known(*subscription)?;
                ensure!(!sub.told, "a notice after the end");
                ensure!(!sub.refetching, "L5: notice {notice} in a gap that is not refetched");
                let expected = sub.arrived.pop_front();
                ensure!(expected == Some(*notice), "SUB-1: notice {notice}, and {expected:?} is due");
                self.seen.insert("notice");
            }
            Output::Unsubscribed { subscription, end } => {
                let sub = self.known(*subscription)?;
                ensure!(!std::mem::replace(&mut sub.told, true), "SUB-4: it ended twice");
                ensure!(sub.end == Some(*end), "{:?} is due, it ended as {end:?}", sub.end);
                let kind = match end {
                    End::Graceful => "graceful",
                    End::Refused => "refused",
                    End::Closed => "closed",
                };
                self.seen.insert(kind);
            }
            Output::Send { .. } | Output::Progress { .. } | Output::Finished { .. } | Output::Idle { .. } => {
                return Err(format!("nobody asked for {output:?}"));
            }
        }
        Ok(())
    }

    fn known(&mut self, id: SubscriptionId) -> Result<&mut Sub, String> {
        self.subscriptions.iter_mut().find(|sub| sub.id == id).ok_or_else(|| format!("{id} was never started"))
    }

    pub(super) fn drained(&self, wake_at: Option<Instant>, late: u64) -> Result<(), String> {
        for sub in &self.subscriptions {
            let id = sub.id;
            ensure!(sub.arrived.is_empty(), "{id}: {:?} were not delivered", sub.arrived);
            ensure!(sub.told == sub.end.is_some(), "{id} did not end: {:?}", sub.end);
            ensure!(sub.signal.is_none(), "no signal for {id}");
            ensure!(sub.wire.is_none() || sub.taken, "{id}: its request is kept back");
            let due = match sub.wire {
                _ if sub.end.is_some() => continue,
                Some(_) if sub.open && sub.filter == LIVELY => sub.heard.max(self.heard) + LIVENESS,
                Some(_) if sub.open => continue,
                Some(_) => sub.since + ACK_DEADLINE,
                None => match self.longest_wait(sub) {
                    Some(until) => until,
                    None => continue,
                },
            };
            ensure!(wake_at.is_some_and(|at| at <= due), "{id} is due at {due}, woken at {wake_at:?}");
        }
        ensure!(late == self.late, "{} came too late, {late} were counted", self.late);
        Ok(())
    }

    pub(super) fn is_opening(&self, sub: usize) -> bool {
        self.back(sub).is_some_and(|sub| sub.taken && sub.wire.is_some() && !sub.open)
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.subscriptions.iter().all(|sub| sub.end.is_some() || sub.open && !sub.refetching)
    }

    /// Each notice was delivered, or a gap came for it.
    pub(super) fn all_told(&self) -> Result<(), String> {
        let untold = self.subscriptions.iter().find(|sub| sub.end.is_none() && sub.shown != sub.owed);
        untold.map_or(Ok(()), |sub| Err(format!("{} saw {} gaps of {}", sub.id, sub.shown, sub.owed)))
    }
}
