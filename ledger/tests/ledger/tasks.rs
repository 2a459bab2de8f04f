//! What the ledger promises of durable tasks, on real files.

mod client;
mod doubt;
mod inputs;
mod kernel;
mod model;
mod port;
mod races;
mod time;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use steady_ledger::{
    Body, Claimed, Clock, Lease, Progress, Snapshot, TaskError, TaskId, TaskLimits, TaskSpec, Tasks, WallTime,
};

use super::*;

/// The time at which every test starts, in milliseconds.
const START: i64 = 1_000;
const LEASE: Duration = Duration::from_millis(100);

/// A shop that takes tasks, and whose clock stands where the test puts it.
struct Desk {
    shop: Shop,
    now: Arc<AtomicI64>,
    clock: Clock,
}

impl Desk {
    fn open() -> Self {
        Self::open_with(TaskLimits::default())
    }

    fn open_with(limits: TaskLimits) -> Self {
        Self::open_as(Options { tasks: limits, ..options() })
    }

    fn open_as(options: Options) -> Self {
        let now = Arc::new(AtomicI64::new(START));
        let read = Arc::clone(&now);
        let clock = Clock::new(move || WallTime::from_unix_millis(read.load(Ordering::Relaxed)));
        let shop = Shop::open_with(Options { clock: clock.clone(), ..options });
        Self { shop, now, clock }
    }

    fn tasks(&self) -> Tasks {
        self.shop.ledger.tasks()
    }

    /// Another handle to the same file, as another process would have it.
    fn other(&self) -> Ledger {
        Ledger::open(self.shop.path(), Options { clock: self.clock.clone(), ..options() }).unwrap()
    }

    fn advance(&self, by: Duration) {
        self.now.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }

    fn create(&self, key_text: &str) -> Result<Executed<Snapshot>, TaskError> {
        create(&self.tasks(), key_text)
    }

    fn fresh(&self, key_text: &str) -> TaskId {
        self.create(key_text).unwrap().into_inner().id
    }

    fn get(&self, id: &TaskId) -> Result<Snapshot, TaskError> {
        self.tasks().get("tenant-1", id)
    }

    fn claim(&self) -> Option<Claimed> {
        claim(&self.tasks(), "worker-1")
    }

    /// Creates a task and claims it.
    fn started(&self, key_text: &str) -> Lease {
        let id = self.fresh(key_text);
        let claimed = self.claim().unwrap();
        assert_eq!(*claimed.lease.task(), id);
        claimed.lease
    }

    /// One number out of the file, by a connection that knows nothing of the ledger.
    fn count(&self, sql: &str) -> i64 {
        self.shop.stranger().query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

fn create(tasks: &Tasks, key_text: &str) -> Result<Executed<Snapshot>, TaskError> {
    create_for(tasks, "tenant-1", key_text, TaskSpec::default())
}

fn create_for(tasks: &Tasks, principal: &str, key_text: &str, spec: TaskSpec) -> Result<Executed<Snapshot>, TaskError> {
    let scope = Scope::new(principal, "reserve_inventory");
    tasks.create(&Request::new(&scope, &key(key_text), &arguments("a-1", 2)), spec)
}

fn claim(tasks: &Tasks, owner: &str) -> Option<Claimed> {
    tasks.claim(&["reserve_inventory"], owner, LEASE).unwrap()
}

fn body(value: &str) -> Body {
    Body::new(value).unwrap()
}

fn step(step: u64) -> Progress {
    Progress { step, ..Progress::default() }
}

/// The answer of an operation, or the name of its error.
fn named<T>(answer: Result<T, TaskError>) -> Result<T, String> {
    answer
        .map_err(|error| if let TaskError::Ledger(error) = error { format!("{error:?}") } else { format!("{error:?}") })
}

/// Whether every right that the lease gave is gone for this reason.
fn assert_all_refused(tasks: &Tasks, lease: &Lease, reason: &str) {
    let effect = |tx: &mut EffectTx<'_>| Ok(reserve(tx).map(drop).map_err(|_| std::io::Error::other("reserve"))?);
    let answers = [
        named(tasks.checkpoint(lease, step(99)).map(drop)),
        named(tasks.checkpoint_with(lease, step(99), effect).map(drop)),
        named(tasks.complete(lease, body("late"))),
        named(tasks.fail(lease, body("late"))),
        named(tasks.observe_cancel(lease)),
        named(tasks.ask(lease, vec![("late".into(), body("late?"))])),
        named(tasks.external_started(lease)),
        named(tasks.external_done(lease)),
        named(tasks.release(lease)),
    ];
    for (number, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, Err(reason.to_owned()), "call {number}");
    }
}
