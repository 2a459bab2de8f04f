//! A durable task over a store that keeps, refuses, or does not say; and a process that stops at any point.

use proptest::prelude::*;

use steady_core::task::{Effect, Event, Record, Revision, Status, Task};

use super::history::{self, Machine, Seen, ensure};

history::ops! { Op {
    "cancel" => Cancel,
    "checkpoint" => Checkpoint,
    "complete" => Complete,
    "fail" => Fail,
    "observed-cancel" => ObservedCancel,
    "input-required" => InputRequired,
    "input-provided" => InputProvided,
    // The store has the write in flight, and says so.
    "persist" => Persist,
    "refuse" => Refuse,
    // The store has it and says that it failed.
    "persist-unknown" => PersistUnknown,
    "stale-persist" => StalePersist(revision: u64),
    "stale-refuse" => StaleRefuse(revision: u64),
    // The process stops: the write in flight is in the store, or it is not.
    "crash-written" => CrashWritten,
    "crash-unwritten" => CrashUnwritten,
}}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    AnnouncesTooEarly,
    AcknowledgesTooEarly,
    NeverAcknowledges,
    EndsTwice,
    CancelsByItself,
    ReusesARevision,
    ForgetsTheNextWrite,
}

pub(crate) struct Tasks;

impl Machine for Tasks {
    const NAME: &'static str = "tasks";
    const LENGTH: usize = 60;
    const KINDS: &'static [&'static str] = &[
        "persist",
        "deferred",
        "announce",
        "acknowledged",
        "continue",
        "observe",
        "too late",
        "not requested",
        "ignored",
        "working",
        "input_required",
        "completed",
        "failed",
        "cancelled",
    ];
    const MUTANTS: &'static [Mutant] = &[
        Mutant::AnnouncesTooEarly,
        Mutant::AcknowledgesTooEarly,
        Mutant::NeverAcknowledges,
        Mutant::EndsTwice,
        Mutant::CancelsByItself,
        Mutant::ReusesARevision,
        Mutant::ForgetsTheNextWrite,
    ];
    type Op = Op;
    type Mutant = Mutant;

    fn op() -> BoxedStrategy<Op> {
        let revision = 0..12_u64;
        prop_oneof![
            3 => Just(Op::Cancel),
            2 => Just(Op::Checkpoint),
            1 => Just(Op::Complete),
            1 => Just(Op::Fail),
            2 => Just(Op::ObservedCancel),
            4 => Just(Op::InputRequired),
            4 => Just(Op::InputProvided),
            9 => Just(Op::Persist),
            3 => Just(Op::Refuse),
            2 => Just(Op::PersistUnknown),
            1 => revision.clone().prop_map(Op::StalePersist),
            1 => revision.prop_map(Op::StaleRefuse),
            1 => Just(Op::CrashWritten),
            1 => Just(Op::CrashUnwritten),
        ]
        .boxed()
    }

    fn check(ops: &[Op], mutant: Option<Mutant>) -> Result<Seen, String> {
        let mut world = World::new(mutant);
        for (at, op) in ops.iter().enumerate() {
            world.apply(*op).map_err(|why| format!("operation {}, {op}: {why}", at + 1))?;
        }
        world.come_to_rest().map_err(|why| format!("after the last operation: {why}"))?;
        Ok(world.seen)
    }
}

/// The task, the store, and what the worker and the clients were told.
struct World {
    task: Task,
    mutant: Option<Mutant>,
    seen: Seen,
    /// What the worker and the clients decided.
    status: Status,
    intent: bool,
    /// What the store has.
    stored: Option<Record>,
    /// What the shell was told to write.
    in_flight: Option<Record>,
    last: Revision,
    /// What clients were told.
    announced: Option<Record>,
    /// Cancel requests without their acknowledgement.
    waiting: u32,
}

impl World {
    fn new(mutant: Option<Mutant>) -> Self {
        let (task, record) = Task::create();
        Self {
            task,
            mutant,
            seen: Seen::new(),
            status: Status::Working,
            intent: false,
            stored: None,
            in_flight: Some(record),
            last: record.revision,
            announced: None,
            waiting: 0,
        }
    }

    fn apply(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Cancel => self.cancel(),
            Op::Checkpoint => {
                let expected = match (self.status.is_terminal(), self.intent) {
                    (true, _) => Effect::TooLate(self.status),
                    (false, true) => Effect::ObserveCancel,
                    (false, false) => Effect::Continue,
                };
                self.told(Event::Checkpoint, expected)
            }
            Op::Complete => self.decide(Event::Complete, Status::Completed),
            Op::Fail => self.decide(Event::Fail, Status::Failed),
            Op::ObservedCancel if self.intent || self.status.is_terminal() => {
                self.decide(Event::ObservedCancel, Status::Cancelled)
            }
            Op::ObservedCancel => self.told(Event::ObservedCancel, Effect::NotRequested),
            Op::InputRequired => self.decide(Event::InputRequired, Status::InputRequired),
            Op::InputProvided => {
                let asked = self.announced.is_some_and(|record| record.status == Status::InputRequired);
                if asked && self.status == Status::InputRequired {
                    self.decide(Event::InputProvided, Status::Working)
                } else {
                    self.told(Event::InputProvided, Effect::Ignored)
                }
            }
            Op::Persist => self.in_flight.map_or(Ok(()), |record| self.persist(record)),
            Op::Refuse => self.in_flight.map_or(Ok(()), |record| self.refuse(record)),
            Op::PersistUnknown => self.in_flight.map_or(Ok(()), |record| {
                self.stored = Some(record);
                self.refuse(record)
            }),
            Op::StalePersist(number) => self.stale(Event::Persisted(Revision::new(number)), number),
            Op::StaleRefuse(number) => self.stale(Event::PersistFailed(Revision::new(number)), number),
            Op::CrashWritten | Op::CrashUnwritten => {
                self.crash(op == Op::CrashWritten);
                Ok(())
            }
        }
    }

    fn handle(&mut self, event: Event) -> Effect {
        let effect = self.task.handle(event);
        let effect = self.mangle(effect, event);
        self.seen.insert(name(effect));
        self.seen.insert(self.status.as_str());
        effect
    }

    /// An event that must be answered like this, and change nothing.
    fn told(&mut self, event: Event, expected: Effect) -> Result<(), String> {
        let effect = self.handle(event);
        ensure!(effect == expected, "{expected:?} is due, it answered {effect:?}");
        Ok(())
    }

    fn cancel(&mut self) -> Result<(), String> {
        let news = !self.intent && !self.status.is_terminal();
        let durable = self.announced.is_some_and(settles);
        self.waiting += 1;
        self.intent |= news;
        match self.handle(Event::CancelRequested) {
            Effect::Acknowledged => {
                ensure!(durable, "TASK-3: acknowledged before the store has it");
                self.waiting -= 1;
                Ok(())
            }
            Effect::Persist(record) if news => self.write(record),
            Effect::Deferred => {
                ensure!(self.in_flight.is_some(), "TASK-7: deferred to no write");
                Ok(())
            }
            other => Err(format!("a cancel request is answered {other:?}")),
        }
    }

    /// The worker, or the client's input, changes the status, unless it is over.
    fn decide(&mut self, event: Event, status: Status) -> Result<(), String> {
        let before = self.status;
        if !before.is_terminal() {
            self.status = status;
        }
        match self.handle(event) {
            Effect::TooLate(end) => {
                ensure!(before.is_terminal() && end == before, "too late for {end}, and it was {before}");
                Ok(())
            }
            other if before.is_terminal() => Err(format!("TASK-4: {before} already, and it answered {other:?}")),
            Effect::Persist(record) => self.write(record),
            Effect::Deferred if self.in_flight.is_some() => Ok(()),
            other => Err(format!("a change is answered {other:?}")),
        }
    }

    /// The shell is told to write what was decided so far.
    fn write(&mut self, record: Record) -> Result<(), String> {
        ensure!(self.in_flight.is_none(), "TASK-6: two writes at a time");
        ensure!(record.revision > self.last, "TASK-6: {:?} was used", record.revision);
        ensure!(record.status == self.status, "TASK-6: writes {}, decided is {}", record.status, self.status);
        ensure!(record.cancel_requested == self.intent, "TASK-6: writes another intent");
        self.last = record.revision;
        self.in_flight = Some(record);
        Ok(())
    }

    fn persist(&mut self, record: Record) -> Result<(), String> {
        self.stored = Some(record);
        let effect = self.handle(Event::Persisted(record.revision));
        let Effect::Announce { record: announced, acknowledge_cancel, next } = effect else {
            return Err(format!("a confirmed write is answered {effect:?}"));
        };
        ensure!(self.stored == Some(announced), "TASK-3: announces {announced:?}, which the store does not have");
        let before = self.announced.map(|record| record.status).filter(|status| status.is_terminal());
        ensure!(before.is_none_or(|end| end == announced.status), "TASK-1: {before:?} became {}", announced.status);
        ensure!(announced.status != Status::Cancelled || announced.cancel_requested, "TASK-5: nobody asked for it");
        (self.announced, self.in_flight) = (Some(announced), None);
        if acknowledge_cancel {
            ensure!(settles(announced) && self.waiting > 0, "TASK-3: acknowledges nothing, or too early");
            self.waiting = 0;
        }
        ensure!(self.waiting == 0 || !settles(announced), "TASK-7: {} cancel requests still wait", self.waiting);
        if let Some(next) = next {
            return self.write(next);
        }
        let all = announced.status == self.status && announced.cancel_requested == self.intent;
        ensure!(all, "TASK-7: a change is not written");
        Ok(())
    }

    fn refuse(&mut self, record: Record) -> Result<(), String> {
        self.in_flight = None;
        match self.handle(Event::PersistFailed(record.revision)) {
            Effect::Persist(again) => self.write(again),
            other => Err(format!("a refused write is answered {other:?}")),
        }
    }

    fn stale(&mut self, event: Event, number: u64) -> Result<(), String> {
        if self.in_flight.is_some_and(|record| record.revision.number() == number) {
            return Ok(());
        }
        self.told(event, Effect::Ignored)
    }

    /// A process that starts again knows what the store has, and nothing else. A task that was never stored is another.
    fn crash(&mut self, written: bool) {
        if written {
            self.stored = self.in_flight.or(self.stored);
        }
        let (announced, seen) = (self.announced, std::mem::take(&mut self.seen));
        let Some(record) = self.stored else {
            *self = Self { seen, ..Self::new(self.mutant) };
            return;
        };
        self.seen = seen;
        self.task = Task::restore(record);
        (self.status, self.intent, self.last) = (record.status, record.cancel_requested, record.revision);
        // What it tells from now on is what it found; that must not take back what was told before.
        let kept = announced.filter(|told| told.status.is_terminal());
        assert!(kept.is_none_or(|told| told.status == record.status), "TASK-1 over a restart");
        self.announced = Some(record);
        (self.in_flight, self.waiting) = (None, 0);
    }

    /// The store confirms everything: it then has what was decided, and every cancel request is acknowledged.
    fn come_to_rest(&mut self) -> Result<(), String> {
        for _ in 0..3 {
            self.apply(Op::Persist)?;
        }
        ensure!(self.in_flight.is_none(), "TASK-7: it writes for ever");
        ensure!(self.waiting == 0, "{} cancel requests were never acknowledged", self.waiting);
        let durable = self.task.durable().map(|record| (record.status, record.cancel_requested));
        ensure!(durable == Some((self.status, self.intent)), "TASK-7: {durable:?} is durable");
        Ok(())
    }

    /// What a wrong machine makes of an effect.
    fn mangle(&self, effect: Effect, event: Event) -> Effect {
        match (self.mutant, effect) {
            (Some(Mutant::AnnouncesTooEarly), Effect::Persist(record)) => {
                Effect::Announce { record, acknowledge_cancel: false, next: None }
            }
            (Some(Mutant::AcknowledgesTooEarly), Effect::Persist(_) | Effect::Deferred)
                if event == Event::CancelRequested =>
            {
                Effect::Acknowledged
            }
            (Some(Mutant::NeverAcknowledges), Effect::Announce { record, next, .. }) => {
                Effect::Announce { record, acknowledge_cancel: false, next }
            }
            (Some(Mutant::EndsTwice), Effect::TooLate(_)) if event == Event::Fail => {
                let status = Status::Failed;
                Effect::Persist(Record { revision: Revision::new(1000), status, cancel_requested: self.intent })
            }
            (Some(Mutant::CancelsByItself), Effect::Persist(record)) if event == Event::CancelRequested => {
                Effect::Persist(Record { status: Status::Cancelled, ..record })
            }
            (Some(Mutant::ReusesARevision), Effect::Persist(record)) => {
                Effect::Persist(Record { revision: self.last, ..record })
            }
            (Some(Mutant::ForgetsTheNextWrite), Effect::Announce { record, acknowledge_cancel, .. }) => {
                Effect::Announce { record, acknowledge_cancel, next: None }
            }
            _ => effect,
        }
    }
}

const fn settles(record: Record) -> bool {
    record.cancel_requested || record.status.is_terminal()
}

const fn name(effect: Effect) -> &'static str {
    match effect {
        Effect::Persist(_) => "persist",
        Effect::Deferred => "deferred",
        Effect::Announce { .. } => "announce",
        Effect::Acknowledged => "acknowledged",
        Effect::Continue => "continue",
        Effect::ObserveCancel => "observe",
        Effect::TooLate(_) => "too late",
        Effect::NotRequested => "not requested",
        Effect::Ignored => "ignored",
    }
}

#[test]
fn a_durable_task_holds_its_model() {
    history::hold::<Tasks>(500);
}

#[test]
fn wrong_tasks_are_caught() {
    history::catch_mutants::<Tasks>();
}
