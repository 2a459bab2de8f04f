//! A server's requests from admission to their last message: coordinator, clocks, progress, outbound buffer.

mod model;
mod world;

use proptest::prelude::*;

use super::history::{self, Machine, Seen};
use world::World;

// Ids are 0 to 5. Two neighbours share a progress token.
history::ops! { Op {
    "start" => Start(id: i64),
    "start-quiet" => StartQuiet(id: i64),
    "start-listen" => StartListen(id: i64),
    "report" => Report(id: i64, value: u8),
    "report-lossless" => ReportLossless(id: i64, value: u8),
    "complete" => Complete(id: i64),
    "end-listen" => EndListen(id: i64),
    "handler-ends" => HandlerEnds(id: i64),
    "cancel" => Cancel(id: i64),
    "cancel-other-type" => CancelOtherType(id: i64),
    "wait" => Wait(ms: u8),
    "before" => Before,
    "onto" => Onto,
    "poll" => Poll,
    "pop" => Pop,
    "close" => Close,
    "admit-no-more" => AdmitNoMore,
}}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    AnswersTwice,
    DropsAFinal,
    LeavesWhatWasCancelled,
    AnswersACancelledRequest,
    ReportsBackwards,
    ReportsToNobody,
    ForgetsAKeptValue,
    FreesTheIdTooEarly,
}

pub(crate) struct Lifecycle;

impl Machine for Lifecycle {
    const NAME: &'static str = "lifecycle";
    const LENGTH: usize = 60;
    const KINDS: &'static [&'static str] = &[
        "result",
        "idle",
        "maximum",
        "silence",
        "progress",
        "lossless",
        "held",
        "quiet",
        "duplicate id",
        "duplicate token",
        "full",
        "closed",
        "listen ended",
        "straggler",
    ];
    const MUTANTS: &'static [Mutant] = &[
        Mutant::AnswersTwice,
        Mutant::DropsAFinal,
        Mutant::LeavesWhatWasCancelled,
        Mutant::AnswersACancelledRequest,
        Mutant::ReportsBackwards,
        Mutant::ReportsToNobody,
        Mutant::ForgetsAKeptValue,
        Mutant::FreesTheIdTooEarly,
    ];
    type Op = Op;
    type Mutant = Mutant;

    fn op() -> BoxedStrategy<Op> {
        let id = 0..6_i64;
        let value = 0..8_u8;
        prop_oneof![
            7 => id.clone().prop_map(Op::Start),
            3 => id.clone().prop_map(Op::StartQuiet),
            2 => id.clone().prop_map(Op::StartListen),
            8 => (id.clone(), value.clone()).prop_map(|(id, value)| Op::Report(id, value)),
            4 => (id.clone(), value).prop_map(|(id, value)| Op::ReportLossless(id, value)),
            4 => id.clone().prop_map(Op::Complete),
            2 => id.clone().prop_map(Op::EndListen),
            2 => id.clone().prop_map(Op::HandlerEnds),
            3 => id.clone().prop_map(Op::Cancel),
            1 => id.prop_map(Op::CancelOtherType),
            3 => (0..16_u8).prop_map(Op::Wait),
            1 => Just(Op::Before),
            2 => Just(Op::Onto),
            6 => Just(Op::Poll),
            9 => Just(Op::Pop),
            // Rare, or every history would be a short one.
            1 => prop_oneof![4 => Just(Op::Pop), 1 => Just(Op::Close), 1 => Just(Op::AdmitNoMore)],
        ]
        .boxed()
    }

    fn phrase() -> BoxedStrategy<Vec<Op>> {
        let (id, value) = (0..6_i64, 0..6_u8);
        prop_oneof![
            20 => Self::op().prop_map(|op| vec![op]),
            1 => (id.clone(), value.clone())
                .prop_map(|(id, value)| vec![Op::Report(id, value), Op::Report(id, value + 1)]),
            1 => (id.clone(), value.clone()).prop_map(|(id, value)| {
                let lossless = Op::ReportLossless(id, value + 1);
                vec![Op::Report(id, value), lossless, Op::Wait(25), Op::Report(id, value + 2)]
            }),
            // A request that reports lives on to its maximum.
            1 => (id, value).prop_map(|(id, value)| {
                let report = |more| Op::Report(id, value + more);
                vec![report(0), Op::Wait(45), report(1), Op::Wait(45), report(2), Op::Onto, Op::Poll]
            }),
        ]
        .boxed()
    }

    fn check(ops: &[Op], mutant: Option<Mutant>) -> Result<Seen, String> {
        let mut world = World::new(mutant);
        for (at, op) in ops.iter().enumerate() {
            world.apply(*op).map_err(|why| format!("operation {}, {op}: {why}", at + 1))?;
        }
        world.come_to_rest().map_err(|why| format!("after the last operation: {why}"))?;
        Ok(world.model.seen)
    }
}

#[test]
fn a_servers_requests_hold_their_model() {
    history::hold::<Lifecycle>(400);
}

#[test]
fn wrong_servers_are_caught() {
    history::catch_mutants::<Lifecycle>();
}
