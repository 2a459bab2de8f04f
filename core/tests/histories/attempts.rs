//! A client's calls over lost links and streams, late answers, progress and clocks, drained at any point.

mod model;

use proptest::prelude::*;

use steady_core::backoff::{Backoff, Jitter};
use steady_core::client::{Client, Config, Counters, Input, Outcome, Output, Transport};
use steady_core::id::{ClientId, WireId};
use steady_core::progress::Progress;
use steady_core::retry::BudgetConfig;
use steady_core::time::Instant;

use super::history::{self, Machine, Seen, ensure};
use model::Model;

pub(crate) type Calls = Client<u32, u32>;
pub(crate) type Out = Output<u32, u32>;

history::ops! { Class {
    "safe" => Safe,
    "keyed" => Keyed,
    "unsafe" => Unsafe,
}}

// Calls are counted back from the newest, which is 0; an operation on one that is not there does nothing.
history::ops! { Op {
    "call" => Call(class: Class),
    "cancel" => Cancel(call: usize),
    "answer" => Answer(call: usize),
    "late-answer" => LateAnswer(call: usize),
    "unknown-answer" => UnknownAnswer,
    "progress" => Progress(call: usize, value: u8),
    "late-progress" => LateProgress(call: usize, value: u8),
    "not-sent" => NotSent(call: usize),
    "stream-lost" => StreamLost(call: usize),
    "stray-cancel" => StrayCancel(call: usize),
    "link-lost" => LinkLost,
    "link-up" => LinkUp,
    "wait" => Wait(ms: u8),
    "before" => Before,
    "onto" => Onto,
    "timeout" => Timeout,
    "drain" => Drain,
}}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    FinishesTwice,
    ReusesAWireId,
    DropsAnAnswer,
    SendsWhatWasTakenBack,
    ForgetsTheSignal,
    SignalsAnAnsweredCall,
    SendsAnUnsafeCallAgain,
    ReportsAfterTheEnd,
    KeepsTheLastProgress,
}

/// When outputs are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drains {
    AsWritten,
    /// As written, and as soon as a request waits: whether one is out decides what may be done with its call.
    RequestsAtOnce,
    Always,
}

pub(crate) struct Attempts;

impl Machine for Attempts {
    const NAME: &'static str = "attempts";
    const LENGTH: usize = 60;
    const KINDS: &'static [&'static str] =
        &["send", "resend", "signal", "progress", "answered", "cancelled", "idle", "maximum", "never sent", "unknown"];
    const MUTANTS: &'static [Mutant] = &[
        Mutant::FinishesTwice,
        Mutant::ReusesAWireId,
        Mutant::DropsAnAnswer,
        Mutant::SendsWhatWasTakenBack,
        Mutant::ForgetsTheSignal,
        Mutant::SignalsAnAnsweredCall,
        Mutant::SendsAnUnsafeCallAgain,
        Mutant::ReportsAfterTheEnd,
        Mutant::KeepsTheLastProgress,
    ];
    type Op = Op;
    type Mutant = Mutant;

    fn op() -> BoxedStrategy<Op> {
        let call = 0..4_usize;
        let value = 0..6_u8;
        prop_oneof![
            5 => class().prop_map(Op::Call),
            2 => call.clone().prop_map(Op::Cancel),
            4 => call.clone().prop_map(Op::Answer),
            1 => call.clone().prop_map(Op::LateAnswer),
            1 => Just(Op::UnknownAnswer),
            6 => (call.clone(), value.clone()).prop_map(|(call, value)| Op::Progress(call, value)),
            1 => (call.clone(), value).prop_map(|(call, value)| Op::LateProgress(call, value)),
            3 => call.clone().prop_map(Op::NotSent),
            2 => call.clone().prop_map(Op::StreamLost),
            1 => call.prop_map(Op::StrayCancel),
            1 => Just(Op::LinkLost),
            3 => Just(Op::LinkUp),
            3 => (0..16_u8).prop_map(Op::Wait),
            1 => Just(Op::Before),
            1 => Just(Op::Onto),
            4 => Just(Op::Timeout),
            9 => Just(Op::Drain),
        ]
        .boxed()
    }

    fn phrase() -> BoxedStrategy<Vec<Op>> {
        let resent = |op| vec![op, Op::Wait(16), Op::Timeout, Op::Drain];
        prop_oneof![
            20 => Self::op().prop_map(|op| vec![op]),
            3 => class().prop_map(|class| vec![Op::Call(class), Op::Drain]),
            2 => (0..3_usize).prop_map(move |call| resent(Op::NotSent(call))),
            1 => (0..4_usize).prop_map(move |call| resent(Op::StreamLost(call))),
            // A call that reports lives on to its maximum.
            1 => (0..4_usize, 0..4_u8).prop_map(|(call, value)| {
                vec![Op::Progress(call, value), Op::Wait(45), Op::Progress(call, value + 1), Op::Onto, Op::Timeout]
            }),
        ]
        .boxed()
    }

    fn check(ops: &[Op], mutant: Option<Mutant>) -> Result<Seen, String> {
        let as_written = run(ops, mutant, Drains::AsWritten)?;
        let at_once = run(ops, mutant, Drains::RequestsAtOnce)?;
        let always = run(ops, mutant, Drains::Always)?;
        ensure!(at_once.0 == always.0, "the drain point changed what is delivered: {:?} {:?}", at_once.0, always.0);
        ensure!(at_once.1 == always.1, "the drain point changed what is counted");
        Ok(as_written.2)
    }
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![Just(Class::Safe), Just(Class::Keyed), Just(Class::Unsafe)]
}

fn run(ops: &[Op], mutant: Option<Mutant>, drains: Drains) -> Result<(Vec<Out>, Counters, Seen), String> {
    let mut world = World::new(mutant, drains);
    for (at, op) in ops.iter().enumerate() {
        world.step(*op).map_err(|why| format!("operation {}, {op}: {why}", at + 1))?;
    }
    world.come_to_rest().map_err(|why| format!("after the last operation: {why}"))?;
    Ok((world.outputs, world.client.counters(), world.model.seen))
}

struct World {
    now: Instant,
    client: Calls,
    model: Model,
    outputs: Vec<Out>,
    drains: Drains,
    mutant: Option<Mutant>,
    /// Of the wrong machine: what it sends although it was taken back.
    ghosts: Vec<Out>,
    wrong_wire: Option<WireId>,
}

impl World {
    fn new(mutant: Option<Mutant>, drains: Drains) -> Self {
        let config = Config {
            in_flight: 4,
            backoff: model::BACKOFF,
            budget: BudgetConfig { capacity: 10_000, ..BudgetConfig::default() },
            progress_interval: model::INTERVAL,
            ..Config::new(Transport::Stdio)
        };
        let client = Client::new(Instant::ZERO, config, jitter());
        let (outputs, ghosts) = (Vec::new(), Vec::new());
        Self { now: Instant::ZERO, client, model: Model::new(), outputs, drains, mutant, ghosts, wrong_wire: None }
    }

    fn step(&mut self, op: Op) -> Result<(), String> {
        let before = self.waiting();
        self.apply(op)?;
        if self.mutant == Some(Mutant::SendsWhatWasTakenBack) {
            let after = self.waiting();
            let gone = |output: &Out| matches!(output, Output::Send { .. }) && !after.contains(output);
            self.ghosts.extend(before.into_iter().filter(gone));
        }
        let request = self.waiting().iter().any(|output| matches!(output, Output::Send { .. }));
        let drain = match self.drains {
            Drains::AsWritten => false,
            Drains::RequestsAtOnce => request,
            Drains::Always => true,
        };
        if drain || op == Op::Drain { self.drain(op == Op::Timeout) } else { Ok(()) }
    }

    fn apply(&mut self, op: Op) -> Result<(), String> {
        let now = self.now;
        match op {
            Op::Call(class) => {
                let payload = u32::try_from(self.model.calls.len()).expect("few");
                let full = self.client.in_flight() >= 4;
                let call = self.client.call(now, payload, class.options());
                ensure!(call.is_err() == full, "the cap is {full}, and the answer {call:?}");
                if let Ok(call) = call {
                    self.model.call(now, call, class);
                }
            }
            Op::Cancel(call) => {
                if let Some((call, id)) = self.model.back(call) {
                    self.client.cancel(now, id);
                    self.model.give_up(call, Outcome::Cancelled);
                }
            }
            Op::Answer(call) => self.answer(self.model.newest(call)),
            Op::LateAnswer(call) => self.answer(self.model.oldest(call)),
            Op::UnknownAnswer => self.answer(Some(WireId::new(u64::MAX))),
            Op::Progress(call, value) => self.progress(self.model.newest(call), value),
            Op::LateProgress(call, value) => self.progress(self.model.oldest(call), value),
            Op::NotSent(call) => self.lose(self.model.newest(call), false),
            Op::StreamLost(call) => self.lose(self.model.newest(call), true),
            Op::StrayCancel(call) => {
                if let Some(wire) = self.model.newest(call) {
                    self.client.handle_input(now, Input::Cancelled { wire });
                    self.model.stray_cancellations += 1;
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
            Op::Drain => {}
        }
        Ok(())
    }

    fn answer(&mut self, wire: Option<WireId>) {
        let Some(wire) = wire else { return };
        let answer = model::answer(wire);
        self.client.handle_input(self.now, Input::Response { wire, answer });
        self.model.answer(wire);
    }

    fn progress(&mut self, wire: Option<WireId>, value: u8) {
        let Some(wire) = wire else { return };
        let progress = Progress::new(f64::from(value)).expect("finite");
        self.client.handle_input(self.now, Input::Progress { wire, value: progress });
        self.model.progress(self.now, wire, progress);
    }

    fn lose(&mut self, wire: Option<WireId>, maybe_sent: bool) {
        let Some(wire) = wire else { return };
        let input = if maybe_sent { Input::StreamLost { wire } } else { Input::NotSent { wire } };
        self.client.handle_input(self.now, input);
        self.model.attempt_lost(self.now, wire, maybe_sent);
    }

    /// Goes to the next deadline, or this much before it.
    fn go(&mut self, before: u64) {
        let mut copy = self.client.clone();
        loop {
            let output = copy.poll_output();
            if let Output::Idle { wake_at } = output {
                let at = wake_at.map(|at| Instant::from_nanos(at.as_nanos().saturating_sub(before)));
                self.now = at.map_or(self.now, |at| at.max(self.now));
                return;
            }
        }
    }

    /// What waits to be drained.
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
                    return self.model.drained(self.now, wake_at, after_timeout, &self.client);
                }
                output => {
                    for output in self.mangle(output) {
                        self.model.output(&output)?;
                        self.outputs.push(output);
                    }
                }
            }
        }
    }

    /// What a wrong machine makes of an output.
    fn mangle(&mut self, output: Out) -> Vec<Out> {
        let Some(mutant) = self.mutant else { return vec![output] };
        let answered =
            matches!(&output, Output::Finished { finished, .. } if matches!(finished.outcome, Outcome::Answered(_)));
        let unknown =
            matches!(&output, Output::Finished { finished, .. } if matches!(finished.outcome, Outcome::Unknown));
        match (mutant, &output) {
            (Mutant::FinishesTwice, Output::Finished { .. }) => vec![output.clone(), output],
            (Mutant::ReusesAWireId, &Output::Send { call, wire, attempt, payload }) => {
                let wire = *self.wrong_wire.get_or_insert(wire);
                vec![Output::Send { call, wire, attempt, payload }]
            }
            (Mutant::DropsAnAnswer, _) if answered => vec![],
            (Mutant::ForgetsTheSignal, Output::Signal { .. }) => vec![],
            (Mutant::SignalsAnAnsweredCall, &Output::Finished { call, .. }) if answered => {
                let wire = self.model.last_wire(call);
                vec![Output::Signal { wire, signal: Transport::Stdio.cancel_signal() }, output]
            }
            (Mutant::SendsAnUnsafeCallAgain, &Output::Finished { call, .. }) if unknown => {
                vec![self.model.send_again(call), output]
            }
            (Mutant::ReportsAfterTheEnd, &Output::Finished { call, .. }) => {
                let value = Progress::new(99.0).expect("finite");
                vec![output, Output::Progress { call, value }]
            }
            (Mutant::KeepsTheLastProgress, Output::Progress { value, .. }) if value.value() > 3.0 => vec![],
            _ => vec![output],
        }
    }

    /// The link stays, nothing more happens but time: every call ends.
    fn come_to_rest(&mut self) -> Result<(), String> {
        self.apply(Op::LinkUp)?;
        self.drain(false)?;
        for _ in 0..300 {
            if self.client.in_flight() == 0 {
                return self.model.all_over();
            }
            for op in [Op::Onto, Op::Timeout] {
                self.apply(op)?;
            }
            self.drain(true)?;
        }
        Err("it does not come to rest".to_owned())
    }
}

pub(crate) fn jitter() -> Jitter {
    Jitter::seeded(ClientId::new(1), 0)
}

pub(crate) const fn backoff(base: u64, cap: u64) -> Backoff {
    Backoff { base: std::time::Duration::from_millis(base), cap: std::time::Duration::from_millis(cap) }
}

#[test]
fn a_clients_calls_hold_their_model() {
    history::hold::<Attempts>(350);
}

#[test]
fn wrong_clients_are_caught() {
    history::catch_mutants::<Attempts>();
}
