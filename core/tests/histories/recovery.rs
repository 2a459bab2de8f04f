//! A client's subscriptions over lost streams: acknowledgements, notices, gaps, graceful ends, refusals.

mod model;

use proptest::prelude::*;

use steady_core::backoff::Jitter;
use steady_core::client::{Client, Config, Input, Output, Transport};
use steady_core::id::{ClientId, SubscriptionId, WireId};
use steady_core::subscription::{Config as Limits, End, Filter, RecoveryPlan};
use steady_core::time::Instant;

use super::attempts::backoff;
use super::history::{self, Machine, Seen, ensure};
use model::Model;

type Subscriber = Client<(), u32>;
pub(crate) type Out = Output<(), u32>;

// Subscriptions are counted back from the newest, which is 0; what comes from the server comes under the newest request of one.
history::ops! { Op {
    "listen" => Listen(filter: usize),
    "listen-again" => ListenAgain(filter: usize),
    "unlisten" => Unlisten(subscription: usize),
    "ack" => Ack(subscription: usize),
    "notice" => Notice(subscription: usize),
    // Something that is no notification, over the link that all share.
    "heard" => Heard,
    "old-ack" => OldAck(subscription: usize),
    "old-notice" => OldNotice(subscription: usize),
    "end" => End(subscription: usize),
    "refuse" => Refuse(subscription: usize),
    "not-sent" => NotSent(subscription: usize),
    "stream-lost" => StreamLost(subscription: usize),
    // The application has read what the gap that it saw named.
    "refetched" => Refetched(subscription: usize),
    "link-lost" => LinkLost,
    "link-up" => LinkUp,
    "wait" => Wait(ms: u8),
    "before" => Before,
    "onto" => Onto,
    "timeout" => Timeout,
    "drain" => Drain,
    // To the next deadline, the timers, and a drain: what a shell does when nothing comes.
    "tick" => Tick,
}}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    DeliversBeforeTheAck,
    DeliversInTheGap,
    SkipsTheGap,
    ReusesAWireId,
    ChangesTheFilter,
    ForgetsTheSignal,
    LosesANotice,
    EndsTwice,
    AsksInAHerd,
    NarrowsTheGap,
}

pub(crate) struct Recovery;

impl Machine for Recovery {
    const NAME: &'static str = "recovery";
    const LENGTH: usize = 60;
    const KINDS: &'static [&'static str] = &[
        "listen",
        "relisten",
        "gap",
        "gap again",
        "notice",
        "signal",
        "graceful",
        "refused",
        "closed",
        "early notice",
        "one waits for another",
        "narrow gap",
        "silent",
    ];
    const MUTANTS: &'static [Mutant] = &[
        Mutant::DeliversBeforeTheAck,
        Mutant::DeliversInTheGap,
        Mutant::SkipsTheGap,
        Mutant::ReusesAWireId,
        Mutant::ChangesTheFilter,
        Mutant::ForgetsTheSignal,
        Mutant::LosesANotice,
        Mutant::EndsTwice,
        Mutant::AsksInAHerd,
        Mutant::NarrowsTheGap,
    ];
    type Op = Op;
    type Mutant = Mutant;

    fn op() -> BoxedStrategy<Op> {
        let sub = prop_oneof![4 => Just(0_usize), 1 => Just(1), 1 => Just(2)];
        let filter = 0..model::FILTERS.len();
        prop_oneof![
            8 => filter.clone().prop_map(Op::Listen),
            4 => filter.prop_map(Op::ListenAgain),
            1 => sub.clone().prop_map(Op::Unlisten),
            16 => sub.clone().prop_map(Op::Ack),
            16 => sub.clone().prop_map(Op::Notice),
            2 => Just(Op::Heard),
            1 => sub.clone().prop_map(Op::OldAck),
            1 => sub.clone().prop_map(Op::OldNotice),
            2 => sub.clone().prop_map(Op::End),
            1 => sub.clone().prop_map(Op::Refuse),
            1 => sub.clone().prop_map(Op::NotSent),
            6 => sub.clone().prop_map(Op::StreamLost),
            10 => sub.prop_map(Op::Refetched),
            2 => Just(Op::LinkLost),
            4 => Just(Op::LinkUp),
            2 => (0..40_u8).prop_map(Op::Wait),
            1 => Just(Op::Before),
            2 => Just(Op::Onto),
            4 => Just(Op::Timeout),
            8 => Just(Op::Drain),
            16 => Just(Op::Tick),
        ]
        .boxed()
    }

    fn phrase() -> BoxedStrategy<Vec<Op>> {
        let sub = prop_oneof![4 => Just(0_usize), 1 => Just(1)];
        prop_oneof![
            6 => Self::op().prop_map(|op| vec![op]),
            // A stream is lost and comes back, its gap seen or not.
            1 => sub.clone().prop_map(|sub| vec![Op::StreamLost(sub), Op::Tick, Op::Ack(sub)]),
            1 => sub.prop_map(|sub| vec![Op::StreamLost(sub), Op::Tick, Op::Ack(sub), Op::Drain]),
        ]
        .boxed()
    }

    fn check(ops: &[Op], mutant: Option<Mutant>) -> Result<Seen, String> {
        let mut world = World::new(mutant);
        for (at, op) in ops.iter().enumerate() {
            world.step(*op).map_err(|why| format!("operation {}, {op}: {why}", at + 1))?;
        }
        world.come_to_rest().map_err(|why| format!("after the last operation: {why}"))?;
        Ok(world.model.seen)
    }
}

struct World {
    now: Instant,
    client: Subscriber,
    model: Model,
    mutant: Option<Mutant>,
    notices: u32,
    /// What the wrong machine delivers although it must not.
    ghosts: Vec<Out>,
    wrong_plan: Option<RecoveryPlan>,
}

impl World {
    fn new(mutant: Option<Mutant>) -> Self {
        let client = Client::new(Instant::ZERO, Config::new(Transport::Http), jitter());
        let (model, ghosts) = (Model::new(), Vec::new());
        Self { now: Instant::ZERO, client, model, mutant, notices: 0, ghosts, wrong_plan: None }
    }

    fn step(&mut self, op: Op) -> Result<(), String> {
        if op == Op::Tick {
            return [Op::Onto, Op::Timeout, Op::Drain].into_iter().try_for_each(|op| self.step(op));
        }
        self.model.queued(self.now, &self.waiting())?;
        self.apply(op);
        self.model.queued(self.now, &self.waiting())?;
        if matches!(op, Op::Timeout | Op::LinkUp) {
            self.model.none_is_overdue(self.now)?;
        }
        if op == Op::Drain { self.drain(false) } else { Ok(()) }
    }

    fn apply(&mut self, op: Op) {
        let now = self.now;
        match op {
            Op::Listen(filter) => self.listen(filter, false),
            Op::ListenAgain(filter) => self.listen(filter, true),
            Op::Unlisten(sub) => {
                if let Some(id) = self.id(sub) {
                    self.client.unlisten(now, id);
                    self.model.end(sub, End::Closed);
                }
            }
            Op::Ack(sub) => self.ack(self.model.newest(sub)),
            Op::OldAck(sub) => self.ack(self.model.oldest(sub)),
            Op::Notice(sub) => self.notice(self.model.newest(sub)),
            Op::OldNotice(sub) => self.notice(self.model.oldest(sub)),
            Op::Heard => {
                self.client.handle_input(now, Input::Heard);
                self.model.heard = now;
            }
            Op::End(sub) | Op::Refuse(sub) => {
                let refused = matches!(op, Op::Refuse(_));
                if let Some(wire) = self.model.newest(sub) {
                    self.client.handle_input(now, Input::ListenEnded { wire, refused });
                    self.model.server_ended(now, wire, refused);
                }
            }
            Op::NotSent(sub) | Op::StreamLost(sub) => {
                if let Some(wire) = self.model.newest(sub) {
                    let not_sent = matches!(op, Op::NotSent(_));
                    let input = if not_sent { Input::NotSent { wire } } else { Input::StreamLost { wire } };
                    self.client.handle_input(now, input);
                    self.model.stream_lost(now, wire);
                }
            }
            Op::Refetched(sub) => {
                if self.model.refetched(sub) {
                    let id = self.id(sub).expect("it has a gap");
                    self.client.refetched(id);
                }
            }
            Op::LinkLost => {
                self.client.handle_input(now, Input::LinkLost);
                self.model.link_lost(now);
            }
            Op::LinkUp => {
                self.client.handle_input(now, Input::LinkUp);
                self.model.link_up(now);
            }
            Op::Wait(ms) => self.now = now + std::time::Duration::from_millis(ms.into()),
            Op::Before | Op::Onto => self.go(u64::from(op == Op::Before)),
            Op::Timeout => {
                self.client.handle_timeout(now);
                self.model.timeout(now);
            }
            Op::Drain | Op::Tick => {}
        }
    }

    fn id(&self, sub: usize) -> Option<SubscriptionId> {
        self.model.back(sub).map(|sub| sub.id)
    }

    fn listen(&mut self, filter: usize, again: bool) {
        if self.model.alive() < 3 {
            let parsed = Filter::parse(model::FILTERS[filter]).expect("a filter");
            let limits = Limits {
                ack_deadline: model::ACK_DEADLINE,
                backoff: backoff(20, model::LONGEST_PAUSE),
                stable_after: std::time::Duration::from_millis(30),
                liveness: (filter == model::LIVELY).then_some(model::LIVENESS),
                reopen_after_end: again,
            };
            let id = self.client.listen(self.now, parsed, limits, jitter()).expect("below the limit");
            self.model.listen(self.now, id, filter, again);
        }
    }

    fn ack(&mut self, wire: Option<WireId>) {
        let Some(wire) = wire else { return };
        self.client.handle_input(self.now, Input::Acknowledged { wire });
        self.model.acknowledged(self.now, wire);
    }

    fn notice(&mut self, wire: Option<WireId>) {
        let Some(wire) = wire else { return };
        self.notices += 1;
        let notice = self.notices;
        let about = self.model.about(wire, notice);
        self.client.handle_input(self.now, Input::Notice { wire, notice, about: about.clone() });
        let delivered = self.model.notice(self.now, wire, notice, about);
        let wrong = match delivered {
            model::Fate::Delivered | model::Fate::Stray => None,
            model::Fate::TooEarly(id) => (self.mutant == Some(Mutant::DeliversBeforeTheAck)).then_some(id),
            model::Fate::InTheGap(id) => (self.mutant == Some(Mutant::DeliversInTheGap)).then_some(id),
        };
        self.ghosts.extend(wrong.map(|subscription| Output::Notice { subscription, notice }));
    }

    fn go(&mut self, before: u64) {
        let mut copy = self.client.clone();
        loop {
            if let Output::Idle { wake_at } = copy.poll_output() {
                let at = wake_at.map(|at| Instant::from_nanos(at.as_nanos().saturating_sub(before)));
                self.now = at.map_or(self.now, |at| at.max(self.now));
                return;
            }
        }
    }

    fn waiting(&self) -> Vec<Out> {
        let mut copy = self.client.clone();
        let outputs = std::iter::from_fn(|| Some(copy.poll_output()));
        outputs.take_while(|output| !matches!(output, Output::Idle { .. })).collect()
    }

    fn drain(&mut self, after_timeout: bool) -> Result<(), String> {
        loop {
            match self.client.poll_output() {
                Output::Idle { wake_at } => {
                    let due = wake_at.is_some_and(|at| at <= self.now);
                    ensure!(!after_timeout || !due, "a deadline at or before now remains");
                    for ghost in std::mem::take(&mut self.ghosts) {
                        self.model.output(&ghost)?;
                    }
                    return self.model.drained(wake_at, self.client.counters().late_answers);
                }
                output => {
                    for output in self.mangle(output) {
                        self.model.output(&output)?;
                    }
                }
            }
        }
    }

    /// What a wrong machine makes of an output.
    fn mangle(&mut self, output: Out) -> Vec<Out> {
        match (self.mutant, &output) {
            (Some(Mutant::SkipsTheGap), Output::Gap { subscription, .. }) => {
                self.client.refetched(*subscription);
                vec![]
            }
            // Its second request is the first one once more: with its id, or with the filter of another subscription.
            (Some(Mutant::ReusesAWireId), Output::Listen { subscription, plan }) => {
                let plan = self.wrong_plan.get_or_insert_with(|| plan.clone()).clone();
                vec![Output::Listen { subscription: *subscription, plan }]
            }
            (Some(Mutant::ChangesTheFilter), Output::Listen { subscription, plan }) => {
                let plan = self.model.with_another_filter(plan).unwrap_or_else(|| plan.clone());
                vec![Output::Listen { subscription: *subscription, plan }]
            }
            (Some(Mutant::AsksInAHerd), Output::Listen { plan, .. }) => {
                let others = self.model.waiting_in_doubt(plan.wire());
                let herd = others.into_iter().map(|id| Output::Listen { subscription: id, plan: plan.clone() });
                herd.chain([output.clone()]).collect()
            }
            (Some(Mutant::NarrowsTheGap), Output::Gap { subscription, refetch }) => {
                let refetch = refetch.iter().skip(1).cloned().collect();
                vec![Output::Gap { subscription: *subscription, refetch }]
            }
            (Some(Mutant::ForgetsTheSignal), Output::Signal { .. })
            | (Some(Mutant::LosesANotice), Output::Notice { .. }) => vec![],
            (Some(Mutant::EndsTwice), Output::Unsubscribed { .. }) => vec![output.clone(), output],
            _ => vec![output],
        }
    }

    /// The link stays and is not silent, the server acknowledges, the application refetches: every subscription is open without a gap.
    fn come_to_rest(&mut self) -> Result<(), String> {
        self.step(Op::LinkUp)?;
        for _ in 0..50 {
            self.step(Op::Drain)?;
            if self.model.is_at_rest() {
                return self.model.all_told();
            }
            for sub in 0..self.model.subscriptions.len() {
                self.step(Op::Refetched(sub))?;
                if self.model.is_opening(sub) {
                    self.step(Op::Ack(sub))?;
                }
            }
            self.step(Op::Drain)?;
            self.step(Op::Onto)?;
            self.step(Op::Heard)?;
            self.step(Op::Timeout)?;
            self.drain(true)?;
        }
        Err("it does not come to rest".to_owned())
    }
}

const fn jitter() -> Jitter {
    Jitter::seeded(ClientId::new(1), 0)
}

#[test]
fn a_clients_subscriptions_hold_their_model() {
    history::hold::<Recovery>(400);
}

#[test]
fn wrong_subscribers_are_caught() {
    history::catch_mutants::<Recovery>();
}
