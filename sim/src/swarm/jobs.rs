//! Durable tasks in a world: the real ledger's, watched; what serves them, does their work, and follows them to their ends.

use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde::Deserialize;
use steady_core::kernel::Reply;
use steady_core::kernel::client::{Caller, TaskError, TaskOptions};
use steady_core::kernel::tasks::{
    Claim, Created, Job, Known, Lease, NewTask, OnChange, Progress, Stored, TaskChange, TaskConfig, TaskEnd, TaskQueue,
    TaskServer, TaskState, TaskStore, TaskStoreError, Unfinished, Worker, WorkerConfig,
};
use steady_core::task::{Revision, Status};
use steady_ledger::Tasks;

use super::journal::{Held, Log, TTL_MS};
use super::mutant::Mutant;
use super::script::World;
use super::server::Host;
use super::store::ORDER;

/// The name of the tool whose calls become tasks.
pub(super) const JOB: &str = "job";
/// How often a worker looks for work, and a client for its task.
const LOOK: Duration = Duration::from_secs(1);

/// The tasks of one process, and what is seen of them. The real ledger runs inside of each call, so what it answers is there
/// at once, and the journal has it in the order in which it happened.
struct Watched {
    tasks: Tasks,
    log: Log,
    mutant: Option<Mutant>,
    /// Of a mutant: the tasks that this process made.
    mine: Mutex<Vec<Box<str>>>,
}

/// What a process answers clients with.
pub(super) fn server(tasks: Tasks, world: &World, log: &Log) -> TaskServer {
    let ttl = Duration::from_millis(TTL_MS.unsigned_abs());
    let config = TaskConfig { ttl: Some(ttl), poll_interval: LOOK, ..TaskConfig::default() };
    TaskServer::new(Watched::new(tasks, world, log), config)
}

/// Does the work of tasks, as long as its process lives.
pub(super) async fn work(host: Arc<Host>, name: String, world: World) {
    let Some(tasks) = host.store.tasks() else { return };
    let lease = if world.mutant == Some(Mutant::LeaseForever) { 20 * 3_600_000 } else { world.lease_ms };
    let config = WorkerConfig { lease: Duration::from_millis(lease), look: LOOK, leases: 1000 };
    let (timer, stop) = (Arc::clone(&host.ports.timer), host.config.shutdown.draining());
    let sleeps = Arc::clone(&timer);
    let worker = Worker::new(Watched::new(tasks, &world, &host.log), &name, config)
        .on(JOB, move |job| steps(job, Arc::clone(&sleeps)));
    worker.run(&timer, stop).await;
    host.exit();
}

#[derive(Deserialize)]
struct Arguments {
    steps: u64,
    ms: u64,
}

/// The work of a task: step after step, from the one after the last that was stored.
async fn steps(job: Job, timer: Arc<dyn steady_core::kernel::Timer>) -> Result<Reply, Unfinished> {
    let Arguments { steps, ms } = job.arguments()?;
    for step in job.resumes_after() + 1..=steps {
        timer.sleep_until(timer.now() + Duration::from_millis(ms)).await;
        job.checkpoint(Progress::step(step)).await?;
    }
    Ok(Reply::text("done"))
}

/// The id of the task that a result tells of, if it does.
pub(super) fn task_id(result: &str) -> Option<Box<str>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Told {
        task_id: Option<Box<str>>,
    }
    serde_json::from_str::<Told>(result).ok()?.task_id
}

/// Says when nobody follows a task any more.
struct Following {
    log: Log,
    order: usize,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.log.lock().task_told(self.order, "told of a task: nothing, it was left", None);
    }
}

/// Follows a task to its end, as the application of the call does that made it.
pub(super) async fn follow(caller: Caller, order: usize, id: Box<str>, log: Log) {
    log.lock().task_of(order, &id);
    let following = Following { log, order };
    let options = TaskOptions { notifications: false, ..TaskOptions::default() };
    let end = caller.task(&id).finish(options).await;
    let (kind, status) = match end {
        Ok(_) => ("told of a task: completed", Some(Status::Completed)),
        Err(TaskError::Failed { .. }) => ("told of a task: failed", Some(Status::Failed)),
        Err(TaskError::Cancelled { .. }) => ("told of a task: cancelled", Some(Status::Cancelled)),
        Err(TaskError::Gone { .. }) => ("told of a task: gone", None),
        Err(_) => ("told of a task: the question failed", None),
    };
    following.log.lock().task_told(order, kind, status);
}

/// Asks for the end of a task. What becomes of the question is nobody's business but the journal's.
pub(super) async fn cancel(caller: Caller, id: Box<str>, log: Log) {
    let kind = match caller.task(&id).cancel().await {
        Ok(()) => "cancellation of a task: acknowledged",
        Err(TaskError::Gone { .. }) => "cancellation of a task: it is gone",
        Err(_) => "cancellation of a task: no answer",
    };
    log.lock().count(kind);
}

impl Watched {
    fn new(tasks: Tasks, world: &World, log: &Log) -> Self {
        Self { tasks, log: log.clone(), mutant: world.mutant, mine: Mutex::default() }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Whether this process forgets what it did not make.
    fn forgets(&self, id: &str) -> bool {
        let mine = self.mine.lock().unwrap_or_else(PoisonError::into_inner);
        self.is(Mutant::TasksOfProcess) && !mine.iter().any(|mine| **mine == *id)
    }

    /// A write under a lease, which a store without a fence would take from anybody.
    fn write<T: Send + 'static>(
        &self,
        lease: &Lease,
        work: impl Fn(&Lease) -> Stored<T>,
        held: impl FnOnce(&T) -> Held,
    ) -> Stored<T> {
        let mut done = now(work(lease));
        if self.is(Mutant::LeaseNotFenced) && matches!(done, Err(TaskStoreError::LeaseLost)) {
            let newest = self.log.lock().newest_lease(&lease.task);
            done = newest.map_or(done, |newest| now(work(&newest)));
        }
        let mut log = self.log.lock();
        match &done {
            Ok(stored) => log.task_held(&lease.task, lease.epoch, held(stored)),
            Err(TaskStoreError::LeaseLost) => log.count("task: lease refused, another has it"),
            Err(_) => log.count("task: write refused otherwise"),
        }
        Box::pin(ready(done))
    }
}

/// What a call has come to that ran when it was made.
fn now<T>(mut stored: Stored<T>) -> Result<T, TaskStoreError> {
    match stored.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => Err(TaskStoreError::Unavailable("the ledger of a world runs inside of the call".into())),
    }
}

impl TaskStore for Watched {
    fn create(&self, task: NewTask<'_>) -> Stored<Created> {
        let key = if self.is(Mutant::TaskPerCall) { None } else { task.key };
        let text = task.key.map(ToString::to_string);
        // The number of a call is no part of what it means.
        let created = now(TaskStore::create(&self.tasks, NewTask { key, exclude: &[ORDER], ..task }));
        match &created {
            Ok(Created { task, replayed }) => {
                self.mine.lock().unwrap_or_else(PoisonError::into_inner).push(task.id.clone());
                self.log.lock().task_created(text.as_deref(), &task.id, *replayed);
            }
            Err(_) => self.log.lock().count("task: creation refused"),
        }
        Box::pin(ready(created))
    }

    fn get(&self, principal: &str, id: &str) -> Stored<TaskState> {
        let mut found = now(TaskStore::get(&self.tasks, principal, id));
        if self.forgets(id) {
            found = Err(TaskStoreError::Unknown);
        }
        if let Ok(task) = &mut found
            && self.is(Mutant::CancelIsEnd)
            && task.cancel_requested
        {
            (task.status, task.outcome) = (Status::Cancelled, None);
        }
        match &found {
            Ok(task) => self.log.lock().task_read(id, Some(task.status)),
            Err(TaskStoreError::Unknown) => self.log.lock().task_read(id, None),
            Err(_) => self.log.lock().count("task: read refused"),
        }
        Box::pin(ready(found))
    }

    fn update(&self, principal: &str, id: &str, answers: Vec<(Box<str>, Box<str>)>) -> Stored<()> {
        TaskStore::update(&self.tasks, principal, id, answers)
    }

    fn cancel(&self, principal: &str, id: &str) -> Stored<()> {
        let done = if self.forgets(id) {
            Err(TaskStoreError::Unknown)
        } else {
            now(TaskStore::cancel(&self.tasks, principal, id))
        };
        match &done {
            Ok(()) => self.log.lock().task_cancel_stored(id),
            Err(TaskStoreError::Unknown) => self.log.lock().task_read(id, None),
            Err(_) => self.log.lock().count("task: cancellation refused"),
        }
        Box::pin(ready(done))
    }

    fn changed_since(&self, since: Revision, limit: u32) -> Stored<Vec<TaskChange>> {
        TaskStore::changed_since(&self.tasks, since, limit)
    }

    fn last_revision(&self) -> Stored<Revision> {
        TaskStore::last_revision(&self.tasks)
    }

    fn on_change(&self, callback: &Arc<OnChange>) -> Result<(), TaskStoreError> {
        TaskStore::on_change(&self.tasks, callback)
    }
}

impl TaskQueue for Watched {
    fn claim(&self, operations: &[&str], owner: &str, lease: Duration) -> Stored<Option<Claim>> {
        let mut claimed = now(TaskQueue::claim(&self.tasks, operations, owner, lease));
        if let Ok(Some(claim)) = &mut claimed {
            if self.is(Mutant::StartsOver) {
                claim.progress = Progress::default();
            }
            self.log.lock().task_claimed(&claim.lease, claim.progress.step);
        }
        Box::pin(ready(claimed))
    }

    fn checkpoint(&self, lease: &Lease, progress: Progress) -> Stored<Known> {
        let step = progress.step;
        let work = |lease: &Lease| TaskQueue::checkpoint(&self.tasks, lease, progress.clone());
        self.write(lease, work, |known| Held::Kept((known.stored && step > 0).then_some(step)))
    }

    fn ask(&self, lease: &Lease, inputs: Vec<(Box<str>, Box<str>)>) -> Stored<()> {
        self.write(lease, |lease| TaskQueue::ask(&self.tasks, lease, inputs.clone()), |()| Held::Kept(None))
    }

    fn external(&self, lease: &Lease, open: bool) -> Stored<()> {
        self.write(lease, |lease| TaskQueue::external(&self.tasks, lease, open), |()| Held::Kept(None))
    }

    fn finish(&self, lease: &Lease, end: TaskEnd) -> Stored<()> {
        let status = match &end {
            TaskEnd::Complete(_) => Status::Completed,
            TaskEnd::Fail(_) => Status::Failed,
            TaskEnd::Cancel => Status::Cancelled,
        };
        self.write(lease, |lease| TaskQueue::finish(&self.tasks, lease, end.clone()), |()| Held::Ended(status))
    }

    fn release(&self, lease: &Lease) -> Stored<()> {
        self.write(lease, |lease| TaskQueue::release(&self.tasks, lease), |()| Held::Released)
    }

    fn on_change(&self, callback: &Arc<OnChange>) -> Result<(), TaskStoreError> {
        TaskStore::on_change(&self.tasks, callback)
    }
}
