//! Every sequence of events of one call with retries, and of two calls, breadth first to the fixed point.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use steady_core::client::{CallOptions, Config, Input, Outcome, Output, Transport};
use steady_core::deadline::Limits;
use steady_core::id::{CallId, WireId};
use steady_core::retry::{BudgetConfig, Contract, SendPhase, Verdict};
use steady_core::time::Instant;

use super::invariants::{
    call_1_one_outcome, call_2_a_fresh_wire_id, call_3_one_deadline_over_all_attempts,
    call_4_unsafe_is_never_sent_again, call_5_one_signal_for_a_running_attempt,
    retry_2_conditional_is_repeated_to_the_byte,
};
use super::key;
use super::searched::Searched;
use super::{Calls, answer, client, config, keyed, progress};

/// How large the world is: short clocks, in nanoseconds, so that every relative time is reached.
#[derive(Clone, Copy)]
struct Size {
    calls: usize,
    attempts: u16,
    idle: u64,
    maximum: u64,
}

/// What the test knows of a call, from outputs alone.
#[derive(Clone, Debug)]
struct Known {
    started: Instant,
    contract: usize,
    wires: Vec<WireId>,
    /// The attempt that is out.
    out: Option<WireId>,
    maybe_sent: bool,
    over: bool,
}

#[derive(Clone)]
struct World {
    now: Instant,
    client: Calls,
    calls: BTreeMap<CallId, Known>,
    /// Values for progress: only whether one is greater than the last counts.
    value: u32,
    transport: Transport,
    size: Size,
    link_up: bool,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Call(usize),
    Cancel(CallId),
    Answer(WireId),
    Progress(WireId),
    NotSent(WireId),
    StreamLost(WireId),
    StrayCancel(WireId),
    LinkLost,
    LinkUp,
    JustBefore,
    Onto,
    Timeout,
}

fn contracts() -> [Contract; 3] {
    [Contract::Safe, keyed(), Contract::Unsafe]
}

impl World {
    fn new(transport: Transport, size: Size) -> Self {
        let budget = BudgetConfig { earn_permille: 0, reserve_per_second: 0, capacity: u32::MAX };
        let client = client(Config { budget, ..config(transport) });
        Self { now: Instant::ZERO, client, calls: BTreeMap::new(), value: 0, transport, size, link_up: true }
    }

    fn apply(&mut self, op: Op) {
        let now = self.now;
        match op {
            Op::Call(contract) => {
                let limits = Limits {
                    idle: Some(Duration::from_nanos(self.size.idle)),
                    maximum: Some(Duration::from_nanos(self.size.maximum)),
                };
                let options = CallOptions {
                    limits,
                    contract: contracts()[contract].clone(),
                    attempts: self.size.attempts,
                    repeats: false,
                };
                let call = self.client.call(now, "payload", options).expect("below the cap");
                let known = Known { started: now, contract, wires: vec![], out: None, maybe_sent: false, over: false };
                assert!(self.calls.insert(call, known).is_none());
            }
            Op::Cancel(call) => self.client.cancel(now, call),
            Op::Answer(wire) => self.client.handle_input(now, answer(wire)),
            Op::Progress(wire) => {
                self.value += 1;
                self.client.handle_input(now, progress(wire, f64::from(self.value)));
            }
            Op::NotSent(wire) => self.fail(wire, SendPhase::NeverSent, Input::NotSent { wire }),
            Op::StreamLost(wire) => self.fail(wire, SendPhase::MaybeSent, Input::StreamLost { wire }),
            Op::StrayCancel(wire) => self.client.handle_input(now, Input::Cancelled { wire }),
            Op::LinkLost => {
                self.link_up = false;
                for known in self.calls.values_mut() {
                    known.maybe_sent |= known.out.take().is_some();
                }
                self.client.handle_input(now, Input::LinkLost);
            }
            Op::LinkUp => {
                self.link_up = true;
                self.client.handle_input(now, Input::LinkUp);
            }
            Op::JustBefore | Op::Onto => {
                let back = u64::from(matches!(op, Op::JustBefore));
                if let Output::Idle { wake_at: Some(at) } = self.client.poll_output() {
                    self.now = now.max(Instant::from_nanos(at.as_nanos().saturating_sub(back)));
                }
            }
            Op::Timeout => self.client.handle_timeout(now),
        }
        self.drain(op);
    }

    fn fail(&mut self, wire: WireId, phase: SendPhase, input: Input<u32>) {
        for known in self.calls.values_mut().filter(|known| known.out == Some(wire)) {
            known.out = None;
            known.maybe_sent |= phase == SendPhase::MaybeSent;
        }
        self.client.handle_input(self.now, input);
    }

    /// Takes the outputs and holds each against what is known.
    fn drain(&mut self, op: Op) {
        let mut signalled = HashMap::new();
        let expected = self.transport.cancel_signal();
        loop {
            match self.client.poll_output() {
                Output::Idle { wake_at } => {
                    let due = wake_at.is_some_and(|at| at <= self.now);
                    assert!(!due || !matches!(op, Op::Timeout), "no due deadline remains: {op:?}");
                    call_5_one_signal_for_a_running_attempt(false, false, signalled.len(), &op);
                    break;
                }
                Output::Send { call, wire, attempt, payload } => {
                    let used = self.calls.values().flat_map(|known| known.wires.iter().copied());
                    call_2_a_fresh_wire_id(used, wire, &op);
                    let known = self.calls.get_mut(&call).expect("a call of ours");
                    call_1_one_outcome(usize::from(known.over), &op);
                    assert!(known.out.is_none(), "one attempt at a time");
                    let contract = &contracts()[known.contract];
                    call_4_unsafe_is_never_sent_again(contract.safety(), known.maybe_sent, &op);
                    let again = (contract.safety(), contract.verdict(SendPhase::MaybeSent));
                    retry_2_conditional_is_repeated_to_the_byte(again, (&"payload", &payload), &op);
                    assert!(self.link_up, "nothing is sent without a link");
                    known.wires.push(wire);
                    known.out = Some(wire);
                    assert_eq!(usize::from(attempt.number()), known.wires.len());
                    assert_eq!(payload, "payload");
                    assert!(known.wires.len() <= usize::from(self.size.attempts));
                    let maximum = known.started + Duration::from_nanos(self.size.maximum);
                    if matches!(op, Op::Timeout) {
                        call_3_one_deadline_over_all_attempts(maximum, self.now, &op);
                    }
                }
                Output::Signal { wire, signal } => {
                    assert_eq!(signal, expected, "rules C1, C2");
                    let out = self.calls.values().any(|known| known.out == Some(wire));
                    let signals = 1 + usize::from(signalled.insert(wire, signal).is_some());
                    call_5_one_signal_for_a_running_attempt(true, out, signals, &op);
                }
                Output::Progress { call, .. } => assert!(!self.calls[&call].over, "rule P3"),
                Output::Listen { .. } | Output::Gap { .. } | Output::Notice { .. } | Output::Unsubscribed { .. } => {
                    panic!("nobody listens here")
                }
                Output::Finished { call, finished } => {
                    let known = self.calls.get_mut(&call).expect("a call of ours");
                    call_1_one_outcome(usize::from(std::mem::replace(&mut known.over, true)), &op);
                    let out = known.out.take();
                    let signals = usize::from(out.is_some_and(|wire| signalled.remove(&wire).is_some()));
                    let answered = finished.outcome == Outcome::Answered(42);
                    call_5_one_signal_for_a_running_attempt(!answered, out.is_some(), signals, &op);
                    assert_eq!(finished.outcome == Outcome::NeverSent, lost(&finished.outcome) && !known.maybe_sent);
                    let maybe = known.maybe_sent || out.is_some();
                    let phase = if maybe { SendPhase::MaybeSent } else { SendPhase::NeverSent };
                    let verdict: Verdict = contracts()[known.contract].verdict(phase);
                    assert_eq!(finished.verdict, (!answered).then_some(verdict));
                }
            }
        }
        let live = self.calls.values().filter(|known| !known.over).count();
        assert_eq!(self.client.in_flight(), live, "CALL-1");
    }

    /// The ids that can still mean something, and one that is late for each kind of end.
    fn wires(&self) -> Vec<WireId> {
        let out: Vec<WireId> = self.calls.values().filter_map(|known| known.out).collect();
        let late = self.calls.values().flat_map(|known| &known.wires).find(|wire| !out.contains(wire)).copied();
        out.iter().copied().chain(late).chain([WireId::new(u64::MAX)]).collect()
    }

    /// The client with times relative to now and identifiers by their rank, and what the test knows beside it.
    fn key(&self) -> String {
        let calls: Vec<String> = self
            .calls
            .values()
            .filter(|known| !known.over)
            .map(|known| format!("{} {} {:?}", known.contract, known.maybe_sent, known.out.is_some()))
            .collect();
        // Late ids all mean the same; whether there is one is told by the list of operations.
        let late = self.wires().len() - self.calls.values().filter(|known| known.out.is_some()).count();
        format!(
            "{calls:?} {late} {} {}",
            self.link_up,
            key::key(&self.client, ("calls", "next_call"), self.now.as_nanos())
        )
    }
}

const fn lost(outcome: &Outcome<u32>) -> bool {
    match outcome {
        Outcome::NeverSent | Outcome::Unknown => true,
        Outcome::Answered(_) | Outcome::Cancelled | Outcome::IdleTimeout | Outcome::MaxTimeout => false,
    }
}

fn search(transport: Transport, size: Size, contracts: &[usize]) -> Searched {
    let start = World::new(transport, size);
    let mut searched = Searched::begin();
    let mut seen = HashSet::new();
    searched.state(seen.insert(start.key()));
    let mut queue = VecDeque::from([start]);
    while let Some(world) = queue.pop_front() {
        let mut ops = vec![Op::LinkLost, Op::LinkUp, Op::JustBefore, Op::Onto, Op::Timeout];
        if world.client.in_flight() < size.calls {
            ops.extend(contracts.iter().map(|contract| Op::Call(*contract)));
        }
        ops.extend(world.calls.keys().next_back().map(|call| Op::Cancel(*call)));
        ops.extend(world.calls.keys().next().map(|call| Op::Cancel(*call)));
        for wire in world.wires() {
            ops.extend([Op::Answer(wire), Op::Progress(wire), Op::NotSent(wire)]);
            ops.extend([Op::StreamLost(wire), Op::StrayCancel(wire)]);
        }
        for op in ops {
            let mut after = world.clone();
            after.apply(op);
            // What is over is forgotten but for one late id.
            while after.calls.len() > size.calls + 1 {
                let over = after.calls.iter().find(|(_, known)| known.over).map(|(call, _)| *call);
                after.calls.remove(&over.expect("no more in flight than that"));
            }
            searched.transitions += 1;
            if searched.state(seen.insert(after.key())) {
                queue.push_back(after);
            }
        }
    }
    searched
}

#[test]
fn every_sequence_of_one_call_of_each_class() {
    for transport in [Transport::Stdio, Transport::Http] {
        let searched = search(transport, Size { calls: 1, attempts: 3, idle: 2, maximum: 3 }, &[0, 1, 2]);
        searched.report(&format!("client, one call, {transport:?}"));
        assert!(searched.states > 50);
    }
}

#[test]
fn every_sequence_of_two_calls() {
    let searched = search(Transport::Stdio, Size { calls: 2, attempts: 2, idle: 1, maximum: 2 }, &[0, 2]);
    searched.report("client, two calls");
    assert!(searched.states > 1000);
}
