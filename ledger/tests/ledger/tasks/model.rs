//! Any sequence of commands of clients, workers and operators agrees with a model in memory, and would not agree with a
//! model that has one of some bugs.

mod reference;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use steady_ledger::{Durability, Executor, Resolution, Status};

use super::*;
use reference::{Answers, Bug, End, Model, Resolved, Seen};

/// The life of every task, and how many of them a principal may have.
const TTL: Duration = Duration::from_millis(1_000);
const LIVE: u32 = 2;

#[derive(Clone, Copy, Debug)]
enum Command {
    Create { principal: u8, key: u8, units: i64 },
    Cancel { principal: u8, task: usize },
    Update { principal: u8, task: usize, input: u8, answer: u8 },
    Claim { worker: u8 },
    Checkpoint { worker: u8, step: u64 },
    Finish { worker: u8, end: End },
    Ask { worker: u8, input: u8 },
    External { worker: u8, open: bool },
    Release { worker: u8 },
    Resolve { task: usize, resolved: Resolved },
    ExpireLeases,
    Collect,
    Advance(u64),
    Reopen,
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let end = prop_oneof![Just(End::Complete), Just(End::Fail), Just(End::Cancel)];
    let resolved =
        prop_oneof![Just(Resolved::Complete), Just(Resolved::Fail), Just(Resolved::Cancel), Just(Resolved::Requeue)];
    // Mostly the same ones: a deep story of one task finds more than the beginnings of many.
    let principal = prop_oneof![4 => Just(0), 1 => Just(1u8)];
    let task = prop_oneof![3 => Just(0), 2 => Just(1), 1 => 2..6usize];
    let worker = prop_oneof![2 => Just(0), 1 => Just(1u8)];
    let command = prop_oneof![
        6 => (principal.clone(), 0..3u8, prop_oneof![5 => Just(2), 1 => Just(3)])
            .prop_map(|(principal, key, units)| Command::Create { principal, key, units }),
        3 => (principal.clone(), task.clone()).prop_map(|(principal, task)| Command::Cancel { principal, task }),
        7 => (principal, task.clone(), 0..2u8, 0..9u8)
            .prop_map(|(principal, task, input, answer)| Command::Update { principal, task, input, answer }),
        6 => worker.clone().prop_map(|worker| Command::Claim { worker }),
        6 => (worker.clone(), 0..5u64).prop_map(|(worker, step)| Command::Checkpoint { worker, step }),
        2 => (worker.clone(), end).prop_map(|(worker, end)| Command::Finish { worker, end }),
        4 => (worker.clone(), 0..2u8).prop_map(|(worker, input)| Command::Ask { worker, input }),
        3 => (worker.clone(), prop_oneof![4 => Just(true), 1 => Just(false)]).prop_map(|(worker, open)| Command::External { worker, open }),
        1 => worker.prop_map(|worker| Command::Release { worker }),
        2 => (task, resolved).prop_map(|(task, resolved)| Command::Resolve { task, resolved }),
        1 => Just(Command::ExpireLeases),
        1 => Just(Command::Collect),
        2 => (0..120u64).prop_map(Command::Advance),
        1 => Just(Command::Advance(700)),
        1 => Just(Command::Reopen),
    ];
    proptest::collection::vec(command, 20..80)
}

/// Nothing here crashes, so that nothing needs to be synced.
fn fast() -> Options {
    let tasks = TaskLimits { live_per_principal: LIVE, ..TaskLimits::default() };
    Options { tasks, durability: Durability::ProcessCrash, executor: Executor::Inline, ..options() }
}

/// The ledger and its model, side by side.
struct World {
    desk: Desk,
    model: Model,
    ids: Vec<TaskId>,
    leases: BTreeMap<u8, Lease>,
}

fn principal(number: u8) -> String {
    format!("tenant-{number}")
}

fn input(number: u8) -> Box<str> {
    format!("input-{number}").into()
}

fn answers(inputs: &[steady_ledger::Input]) -> Answers {
    let answers = inputs.iter().map(|input| {
        let number = input.key.trim_start_matches("input-").parse().unwrap();
        (number, input.response.as_ref().map(|body| body.decode().unwrap()))
    });
    answers.collect()
}

impl World {
    fn new(bug: Option<Bug>) -> Self {
        let desk = Desk::open_as(fast());
        let lease_ms = i64::try_from(LEASE.as_millis()).unwrap();
        let ttl_ms = i64::try_from(TTL.as_millis()).unwrap();
        let model = Model::new(START, lease_ms, ttl_ms, usize::try_from(LIVE).unwrap(), bug);
        Self { desk, model, ids: vec![], leases: BTreeMap::new() }
    }

    /// The id of a task, or one that does not exist.
    fn id(&self, task: usize) -> TaskId {
        self.ids.get(task).cloned().unwrap_or_else(|| TaskId::parse(&"f".repeat(32)).unwrap())
    }

    fn create(&mut self, number: u8, key_number: u8, units: i64) -> Seen<(bool, usize)> {
        let scope = Scope::new(principal(number), "reserve_inventory");
        let (key, args) = (key(&format!("order-{key_number}")), arguments("a-1", units));
        let spec = TaskSpec { ttl: Some(TTL), ..TaskSpec::default() };
        let created = named(self.desk.tasks().create(&Request::new(&scope, &key, &args), spec))?;
        let (replay, id) = (created.is_replay(), created.into_inner().id);
        let place = self.ids.iter().position(|known| *known == id).unwrap_or_else(|| {
            self.ids.push(id);
            self.ids.len() - 1
        });
        Ok((replay, place))
    }

    fn claim(&mut self, worker: u8) -> Option<(usize, u64, u32, bool, Answers)> {
        let claimed = claim(&self.desk.tasks(), &format!("worker-{worker}"))?;
        let place = self.ids.iter().position(|id| id == claimed.lease.task()).unwrap();
        self.leases.insert(worker, claimed.lease);
        let inputs = answers(&claimed.inputs);
        Some((place, claimed.progress.step, claimed.lost_leases, claimed.cancel_requested, inputs))
    }

    fn checkpoint(&self, lease: &Lease, number: u64) -> Seen<(bool, bool, Answers)> {
        let effect = |tx: &mut EffectTx<'_>| reserve(tx).map(drop).map_err(|_| "reserve".into());
        let known = named(self.desk.tasks().checkpoint_with(lease, step(number), effect))?;
        Ok((known.cancel_requested, known.stored, answers(&known.inputs)))
    }

    /// Does one command on both sides. Both answers as text.
    fn step(&mut self, command: Command) -> (String, String) {
        fn both(seen: impl std::fmt::Debug, expected: impl std::fmt::Debug) -> (String, String) {
            (format!("{seen:?}"), format!("{expected:?}"))
        }
        let tasks = self.desk.tasks();
        let lease = |worker: u8| self.leases.get(&worker);
        match command {
            Command::Create { principal, key, units } => {
                both(self.create(principal, key, units), self.model.create(principal, key, units))
            }
            Command::Cancel { principal: by, task } => {
                both(named(tasks.cancel(&principal(by), &self.id(task))), self.model.cancel(by, task))
            }
            Command::Update { principal: by, task, input: number, answer } => {
                let given = BTreeMap::from([(input(number), Body::new(&answer).unwrap())]);
                let seen = named(tasks.update(&principal(by), &self.id(task), given));
                both(seen, self.model.update(by, task, number, answer))
            }
            Command::Claim { worker } => both(self.claim(worker), self.model.claim(worker)),
            Command::Checkpoint { worker, step } => {
                let seen = lease(worker).map(|lease| self.checkpoint(lease, step));
                both(seen, self.model.checkpoint(worker, step))
            }
            Command::Finish { worker, end } => {
                let seen = lease(worker).map(|lease| match end {
                    End::Complete => named(tasks.complete(lease, body("done"))),
                    End::Fail => named(tasks.fail(lease, body("failed"))),
                    End::Cancel => named(tasks.observe_cancel(lease)),
                });
                both(seen, self.model.end(worker, end))
            }
            Command::Ask { worker, input: number } => {
                let ask = |lease| named(tasks.ask(lease, vec![(input(number), body("which?"))]));
                both(lease(worker).map(ask), self.model.ask(worker, number))
            }
            Command::External { worker, open } => {
                let note = |lease| if open { tasks.external_started(lease) } else { tasks.external_done(lease) };
                both(lease(worker).map(|lease| named(note(lease))), self.model.external(worker, open))
            }
            Command::Release { worker } => {
                both(lease(worker).map(|lease| named(tasks.release(lease))), self.model.release(worker))
            }
            Command::Resolve { task, resolved } => {
                let resolution = match resolved {
                    Resolved::Complete => Resolution::Complete(body("done")),
                    Resolved::Fail => Resolution::Fail(body("failed")),
                    Resolved::Cancel => Resolution::Cancel,
                    Resolved::Requeue => Resolution::Requeue,
                };
                let seen = named(tasks.resolve(&self.id(task), resolution, "ada", ""));
                both(seen, self.model.resolve(task, resolved))
            }
            Command::ExpireLeases => both(named(tasks.expire_leases(100)).unwrap(), self.model.expire_leases()),
            Command::Collect => both(named(tasks.collect_expired(100)).unwrap(), self.model.collect()),
            Command::Advance(millis) => {
                self.desk.advance(Duration::from_millis(millis));
                self.model.now += i64::try_from(millis).unwrap();
                both((), ())
            }
            Command::Reopen => {
                let options = Options { clock: self.desk.clock.clone(), ..fast() };
                self.desk.shop.ledger = Ledger::open(self.desk.shop.path(), options).unwrap();
                both((), ())
            }
        }
    }

    /// What each principal sees of a task.
    fn shown(&self, by: u8, task: usize) -> Seen<(Status, bool, u64, Vec<u8>)> {
        let task = named(self.desk.tasks().get(&principal(by), &self.id(task)))?;
        let open = answers(&task.input_requests).into_keys().collect();
        Ok((task.status, task.cancel_requested, task.progress.step, open))
    }
}

/// Runs the commands on both sides, up to the first difference.
fn differ(commands: &[Command], bug: Option<Bug>) -> Result<(), TestCaseError> {
    let mut world = World::new(bug);
    for (place, command) in commands.iter().enumerate() {
        let (seen, expected) = world.step(*command);
        prop_assert_eq!(seen, expected, "command {}: {:?}", place, command);
        for task in 0..world.ids.len() {
            for by in 0..2 {
                let shown = (world.shown(by, task), world.model.shown(by, task));
                prop_assert_eq!(&shown.0, &shown.1, "task {} after command {}: {:?}", task, place, command);
            }
        }
        prop_assert_eq!(world.desk.shop.reservations(), world.model.effects);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tasks_agree_with_a_model(commands in commands()) {
        differ(&commands, None)?;
    }
}

#[test]
fn a_model_with_a_bug_is_found_out() {
    for bug in Bug::ALL {
        let config = Config { cases: 512, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let found = runner.run(&commands(), |commands| differ(&commands, Some(bug)));
        assert!(matches!(found, Err(TestError::Fail(..))), "{bug:?}: {found:?}");
    }
}
