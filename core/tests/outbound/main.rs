//! The bounded outbound buffer: every operation against a naive model, and a script for each answer to "full".

mod full;
#[path = "../support/invariants/mod.rs"]
mod invariants;
mod model;
mod queue;

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use steady_core::coordinator::{Effect, Event, ServedRequest};
use steady_core::deadline::Limits;
use steady_core::outbound::{Batch, Coalesce, Config, Handle, Item, Outbound, Popped, SendPermit};
use steady_core::time::Instant;

use invariants::{
    out_1_within_the_capacity, out_2_a_final_is_popped_once, out_3_nothing_follows_the_end,
    out_4_progress_keeps_its_order, out_5_a_loss_is_reported_once,
};
use model::{Model, text_of};

/// The only way to a permit: a request in flight that completes.
pub(crate) fn permit(handle: Handle) -> SendPermit {
    let mut request = ServedRequest::start(Instant::ZERO, handle, Limits::default(), true, Duration::ZERO);
    let Effect::Respond { permit, .. } = request.handle(Instant::ZERO, Event::Complete) else { panic!("in flight") };
    permit
}

/// A message as one readable text: `=3:abc` is progress, anything else is the text itself.
pub(crate) fn show(item: Item<'_>) -> String {
    match item {
        Item::Progress { progress, message, .. } => format!("={progress}:{message}"),
        Item::Text(text) => String::from_utf8(text.to_vec()).expect("UTF-8"),
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Open(u32),
    Progress(u32, usize),
    Stale(u32),
    Notice(usize),
    Lossless(u32, usize),
    Finish(u32, usize),
    Retry,
    Refuse(usize),
    Purge(u32),
    Pop,
    PopInto(usize, usize),
    TakeLost,
}

const TOPIC: u32 = 2;

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let stream = 0..TOPIC;
    let op = prop_oneof![
        3 => (0..=TOPIC).prop_map(Op::Open),
        8 => (stream.clone(), 0..7_usize).prop_map(|(index, len)| Op::Progress(index, len)),
        1 => stream.clone().prop_map(Op::Stale),
        4 => (0..9_usize).prop_map(Op::Notice),
        3 => (stream.clone(), 1..5_usize).prop_map(|(index, len)| Op::Lossless(index, len)),
        2 => (stream, 1..9_usize).prop_map(|(index, len)| Op::Finish(index, len)),
        2 => Just(Op::Retry),
        1 => (1..4_usize).prop_map(Op::Refuse),
        1 => (0..=TOPIC).prop_map(Op::Purge),
        6 => Just(Op::Pop),
        1 => (0..5_usize, 0..9_usize).prop_map(|(messages, bytes)| Op::PopInto(messages, bytes)),
        1 => Just(Op::TakeLost),
    ];
    prop::collection::vec(op, 1..120)
}

fn configs() -> impl Strategy<Value = Config> {
    let coalesce = prop_oneof![Just(Coalesce::SameToken), Just(Coalesce::Adjacent)];
    let lossless = (1..4_usize, 2..9_usize);
    (1..5_usize, 3..9_usize, 1..3_usize, 4..12_usize, lossless, 1..3_usize, coalesce).prop_map(
        |(capacity, bytes, finals, kept_bytes, (lossless, lossless_bytes), refusals, coalesce)| Config {
            capacity,
            bytes,
            finals,
            kept_bytes,
            lossless,
            lossless_bytes,
            refusals,
            coalesce,
        },
    )
}

/// The machine and the model side by side, with what the peer has seen so far.
struct Pair {
    machine: Outbound,
    batch: Batch,
    model: Model,
    generations: [u32; 3],
    permits: Vec<(SendPermit, Vec<u8>)>,
    serial: u32,
    accepted_finals: BTreeSet<Handle>,
    popped_finals: BTreeSet<Handle>,
    gone: BTreeSet<Handle>,
    newest: [f64; 3],
}

impl Pair {
    fn new(config: Config) -> Self {
        Self {
            machine: Outbound::new(config),
            batch: Batch::default(),
            model: Model::new(config),
            generations: [1; 3],
            permits: Vec::new(),
            serial: 0,
            accepted_finals: BTreeSet::new(),
            popped_finals: BTreeSet::new(),
            gone: BTreeSet::new(),
            newest: [0.0; 3],
        }
    }

    fn handle(&self, index: u32) -> Handle {
        Handle::new(index, self.generations[index as usize])
    }

    fn text(&mut self, len: usize) -> String {
        self.serial += 1;
        text_of(self.serial, len)
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Open(index) if !self.model.is_open(index) => {
                self.generations[index as usize] += 1;
                self.newest[index as usize] = 0.0;
                let handle = self.handle(index);
                if index == TOPIC {
                    self.machine.open_topic(handle)
                } else {
                    self.machine.open(handle, "p")
                }
                self.model.open(handle, index == TOPIC);
            }
            Op::Progress(index, len) => {
                let (handle, text) = (self.handle(index), self.text(len));
                let value = f64::from(self.serial);
                let pushed = self.machine.progress(handle, value, None, &text);
                assert_eq!(pushed, self.model.progress(handle, value, &text));
            }
            Op::Stale(index) => {
                let handle = Handle::new(index, self.generations[index as usize] + 7);
                assert_eq!(self.machine.progress(handle, 1.0, None, ""), self.model.progress(handle, 1.0, ""));
            }
            Op::Notice(len) => {
                let (handle, text) = (self.handle(TOPIC), self.text(len));
                assert_eq!(self.machine.notice(handle, &text), self.model.notice(handle, &text));
            }
            Op::Lossless(index, len) => {
                let (handle, text) = (self.handle(index), self.text(len));
                assert_eq!(self.machine.lossless(handle, text.as_bytes()), self.model.lossless(handle, &text));
            }
            // A request completes once: not after its final, not after a cancellation.
            Op::Finish(index, len) if self.model.is_in_flight(index) => {
                let text = self.text(len);
                self.finish(permit(self.handle(index)), text.into_bytes());
            }
            Op::Retry if !self.permits.is_empty() => {
                let (permit, body) = self.permits.remove(0);
                self.finish(permit, body);
            }
            Op::Refuse(len) => {
                let text = self.text(len);
                assert_eq!(self.machine.refuse(text.clone().into_bytes()), self.model.refuse(&text));
            }
            Op::Purge(index) if self.model.is_in_flight(index) || index == TOPIC => {
                self.machine.purge(self.handle(index));
                self.model.purge(self.handle(index));
                self.gone.insert(self.handle(index));
            }
            Op::Pop => {
                let _popped: bool = self.pop();
            }
            Op::PopInto(messages, bytes) => self.pop_into(messages, bytes),
            Op::TakeLost => assert_eq!(self.machine.take_lost(), self.model.take_lost()),
            Op::Open(_) | Op::Finish(..) | Op::Retry | Op::Purge(_) => {}
        }
        self.check();
    }

    fn finish(&mut self, permit: SendPermit, body: Vec<u8>) {
        let handle = permit.handle();
        let text = String::from_utf8(body.clone()).expect("UTF-8");
        let accepted = self.model.finish(handle, &text);
        match self.machine.finish(permit, body.clone()) {
            Ok(()) => {
                assert!(accepted, "refused by the model");
                assert!(self.accepted_finals.insert(handle));
            }
            Err(refused) => {
                assert!(!accepted, "accepted by the model");
                assert_eq!((refused.permit.handle(), &refused.body), (handle, &body), "handed back whole");
                self.permits.push((refused.permit, refused.body));
            }
        }
    }

    /// What the peer sees, checked on its own and not only against the model.
    fn pop(&mut self) -> bool {
        let popped = self.machine.pop(show);
        assert_eq!(popped, self.model.pop());
        let any = popped.is_some();
        popped.into_iter().for_each(|(popped, text)| self.saw(popped, &text));
        any
    }

    /// The same as single pops until the batch is full, in messages or in text bytes.
    fn pop_into(&mut self, messages: usize, bytes: usize) {
        let (mut expected, mut taken) = (Vec::new(), 0);
        while expected.len() < messages && taken < bytes {
            let Some((popped, text)) = self.model.pop() else { break };
            taken +=
                text.strip_prefix('=').and_then(|text| text.split_once(':')).map_or(text.len(), |(_, text)| text.len());
            expected.push((popped, text));
        }
        let mut seen = Vec::new();
        self.machine.pop_into(&mut self.batch, messages, bytes);
        assert_eq!((self.batch.len(), self.batch.bytes()), (expected.len(), taken));
        self.batch.drain(|popped, item| seen.push((popped, show(item))));
        assert!(self.batch.is_empty() && self.batch.bytes() == 0);
        assert_eq!(seen, expected);
        seen.into_iter().for_each(|(popped, text)| self.saw(popped, &text));
    }

    fn saw(&mut self, Popped { handle, last }: Popped, text: &str) {
        let Some(handle) = handle else { return };
        out_3_nothing_follows_the_end(self.gone.contains(&handle), &(handle, &text));
        if last {
            let popped = 1 + usize::from(!self.popped_finals.insert(handle));
            let accepted = usize::from(self.accepted_finals.contains(&handle));
            out_2_a_final_is_popped_once(&accepted, &popped, &handle);
            self.gone.insert(handle);
        }
        if let Some((value, _)) = text.strip_prefix('=').and_then(|text| text.split_once(':')) {
            let value: f64 = value.parse().expect("a number");
            out_4_progress_keeps_its_order(Some(self.newest[handle.index() as usize]), value, &handle);
            self.newest[handle.index() as usize] = value;
        }
    }

    fn check(&self) {
        let config = self.model.config;
        let (text, kept) = self.machine.bytes();
        out_1_within_the_capacity(self.machine.evictable(), config.capacity, &"evictable messages");
        out_1_within_the_capacity(text, config.bytes, &"bytes of text");
        let kept_places = config.finals + config.lossless + config.refusals;
        out_1_within_the_capacity(self.machine.kept(), kept_places, &"kept messages");
        let (refusals, refusal_bytes) = self.model.refusals();
        let alone = self.machine.kept() - refusals <= 1;
        if !alone {
            out_1_within_the_capacity(kept, config.kept_bytes + refusal_bytes, &"kept bytes");
        }
        assert_eq!((self.machine.evictable(), self.machine.kept()), self.model.counts());
        assert_eq!((text, kept), self.model.bytes());
        assert_eq!(self.machine.is_empty(), self.model.is_empty());
        for index in 0..=TOPIC {
            let now = self.generations[index as usize];
            for handle in [0, now - 1, now, now + 7].map(|generation| Handle::new(index, generation)) {
                assert_eq!(self.machine.is_open(handle), self.model.takes(handle), "{handle:?}");
            }
        }
    }

    fn drain(&mut self) {
        while self.pop() || !self.permits.is_empty() {
            self.apply(Op::Retry);
        }
        assert!(self.machine.is_empty());
        out_2_a_final_is_popped_once(&self.accepted_finals, &self.popped_finals, &"drained");
        let taken = (self.machine.take_lost(), self.machine.take_lost());
        out_5_a_loss_is_reported_once(self.model.take_lost(), taken, &"drained");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_buffer_is_the_naive_model(config in configs(), ops in ops()) {
        let mut pair = Pair::new(config);
        for op in ops {
            pair.apply(op);
        }
        pair.drain();
    }
}
