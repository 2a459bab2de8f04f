//! The loop of a worker: it claims tasks, runs their handlers, keeps the lease and ends the task, whatever the store.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::Poll;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::bell::{Bell, Either, either};
use super::feed::SHORTEST_LOOK;
use super::job::{Job, Unfinished, error_json};
use super::{OnChange, Progress, TaskEnd, TaskQueue, TaskStoreError};
use crate::kernel::handler::panic_text;
use crate::kernel::port::{BoxFuture, Timer};
use crate::kernel::tools::Reply;
use crate::rpc::RpcError;

/// Settings of a [`Worker`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct WorkerConfig {
    /// How long a task waits for this worker once it is lost: every checkpoint starts it anew, and so does the worker by
    /// itself while its handler waits for something. A handler that blocks its thread has to checkpoint within it.
    /// Default 30 s.
    pub lease: Duration,
    /// How long at most the worker puts off a look at the store: for tasks of other processes, and, while a handler waits,
    /// for whether its task is to end. A look at a running task is one small write. 1 ms or more. Default 1 s.
    pub look: Duration,
    /// How many leases of a task may run out. One that loses its workers more often fails with -32603; those that stop and
    /// give it back do not count. Default 16.
    pub leases: u32,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self { lease: Duration::from_secs(30), look: Duration::from_secs(1), leases: 16 }
    }
}

/// The longest pause after the store did not answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often the end of a task is tried to be stored.
const TRIES: u32 = 4;

type Ended = Result<Reply, Unfinished>;
type Handler = Box<dyn Fn(Job) -> BoxFuture<Ended> + Send + Sync>;
type Report = dyn Fn(&TaskStoreError) + Send + Sync;

/// Does the work of tasks, one at a time for each [`run`](Self::run), in this process or in another one than the server's.
///
/// A handler is written like a tool: what it returns is the task's result, also one with `isError`; an error of the protocol
/// makes the task fail (rule K2). A panic does so too, unless a step outside of the store is open: then it is in doubt.
///
/// ```
/// use steady_core::kernel::Reply;
/// use steady_core::kernel::tasks::{Progress, TaskQueue, Worker, WorkerConfig};
///
/// fn packer(store: impl TaskQueue) -> Worker {
///     Worker::new(store, "packer-1", WorkerConfig::default()).on("pack_order", |job| async move {
///         for parcel in job.resumes_after() + 1..=10 {
///             // One more parcel is packed: said, stored, and the moment to hear of a cancellation.
///             job.checkpoint(Progress::step(parcel).message("packing")).await?;
///         }
///         Ok(Reply::text("packed"))
///     })
/// }
/// ```
pub struct Worker {
    queue: Arc<dyn TaskQueue>,
    owner: Box<str>,
    config: WorkerConfig,
    handlers: BTreeMap<Box<str>, Handler>,
    report: Box<Report>,
    bell: Arc<Bell>,
    /// Rings the bell; the store lets go of it with the worker.
    _rings: Arc<OnChange>,
}

/// What a worker did.
enum Turn {
    Worked,
    /// The store refused in passing, and the task waits again.
    Interrupted(TaskStoreError),
    NothingWaits,
    Stopped,
}

impl Worker {
    /// A worker on this store. `owner` names it in the store: it should tell people which process it is.
    pub fn new(queue: impl TaskQueue, owner: &str, config: WorkerConfig) -> Self {
        let (bell, rings) = Bell::new();
        // Without a place for it, looks now and then have to do.
        let _heard = queue.on_change(&rings);
        let (queue, owner) = (Arc::new(queue), owner.into());
        let config = WorkerConfig { look: config.look.max(SHORTEST_LOOK), ..config };
        Self { queue, owner, config, handlers: BTreeMap::new(), report: Box::new(|_| {}), bell, _rings: rings }
    }

    /// Does the tasks of this operation: a tool's name.
    #[must_use]
    pub fn on<F, R>(mut self, operation: &str, handler: F) -> Self
    where
        F: Fn(Job) -> R + Send + Sync + 'static,
        R: Future<Output = Ended> + Send + 'static,
    {
        self.handlers.insert(operation.into(), Box::new(move |job| Box::pin(handler(job))));
        self
    }

    /// Is told whenever the store does not do what it should; the worker goes on by itself.
    #[must_use]
    pub fn report(mut self, report: impl Fn(&TaskStoreError) + Send + Sync + 'static) -> Self {
        self.report = Box::new(report);
        self
    }

    /// Works until `stop` is done. What is under way then is given up at its next `await`, for another worker to go on after
    /// its last checkpoint; with a step outside of the store open it is left to its lease.
    pub async fn run(&self, timer: &Arc<dyn Timer>, stop: impl Future<Output = ()>) {
        let mut stop = core::pin::pin!(stop);
        let mut failures: u32 = 0;
        loop {
            // The handlers of a long queue need not wait for anything: then only this looks at it.
            if let Either::First(()) = either(stop.as_mut(), core::future::ready(())).await {
                return;
            }
            let heard = self.bell.count();
            let pause = match self.turn(timer, stop.as_mut()).await {
                Ok(Turn::Stopped) => return,
                Ok(Turn::Worked) => {
                    failures = 0;
                    continue;
                }
                Ok(Turn::NothingWaits) => {
                    failures = 0;
                    self.config.look
                }
                // Claimed again at once, the task would lose a lease a round.
                Ok(Turn::Interrupted(error)) | Err(error) => {
                    (self.report)(&error);
                    failures = (failures + 1).min(16);
                    self.config.look.saturating_mul(1 << failures).min(LONGEST_PAUSE)
                }
            };
            let sleep = timer.sleep_until(timer.now() + pause);
            // After a failure a change elsewhere is no reason to hurry.
            let woken =
                async { if failures == 0 { self.bell.wait(heard).await } else { core::future::pending().await } };
            if let Either::First(()) = either(stop.as_mut(), either(woken, sleep)).await {
                return;
            }
        }
    }

    /// Does one task, if one waits; whether one did.
    ///
    /// # Errors
    /// [`TaskStoreError`] if the store cannot say whether one waits.
    pub async fn run_one(&self, timer: &Arc<dyn Timer>) -> Result<bool, TaskStoreError> {
        let turn = self.turn(timer, core::pin::pin!(core::future::pending())).await?;
        if let Turn::Interrupted(error) = &turn {
            (self.report)(error);
        }
        Ok(matches!(turn, Turn::Worked | Turn::Interrupted(_)))
    }

    async fn turn(
        &self,
        timer: &Arc<dyn Timer>,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Turn, TaskStoreError> {
        let operations: Vec<&str> = self.handlers.keys().map(|name| &**name).collect();
        // Not dropped when it is to stop: a claim that nobody holds would wait for the end of its lease.
        let claim = self.queue.claim(&operations, &self.owner, self.config.lease).await?;
        let Some(claim) = claim else { return Ok(Turn::NothingWaits) };
        let (queue, bell) = (Arc::clone(&self.queue), Arc::clone(&self.bell));
        let job = Job::new(queue, Arc::clone(timer), bell, self.config.look, claim);
        if job.lost_leases() >= self.config.leases {
            let what = format!("the task lost {} workers and is given up", job.lost_leases());
            return Ok(self.finish(&job, Err(RpcError::internal(what).into())).await);
        }
        match either(self.attempt(&job), stop).await {
            Either::First(Some(ended)) => return Ok(self.finish(&job, ended).await),
            Either::First(None) => {}
            Either::Second(()) => {
                self.release(&job).await;
                return Ok(Turn::Stopped);
            }
        }
        Ok(Turn::Worked)
    }

    /// Runs the handler under its lease; none if the task is not this worker's any more.
    async fn attempt(&self, job: &Job) -> Option<Ended> {
        let handler = self.handlers.get(job.operation())?;
        let running = guarded(|| handler(job.clone()));
        match either(running, self.keep_lease(job)).await {
            Either::First(Ok(ended)) => Some(ended),
            // What became of the step is not known: nothing may end the task but a look at it.
            Either::First(Err(_)) if job.is_external_open() => None,
            Either::First(Err(panic)) => Some(Err(panic.into())),
            Either::Second(error) => {
                (self.report)(&error);
                None
            }
        }
    }

    /// Extends the lease now and then, and learns whether the task is to end. Done when the lease is lost.
    async fn keep_lease(&self, job: &Job) -> TaskStoreError {
        let timer = &job.shared().timer;
        loop {
            timer.sleep_until(timer.now() + self.config.look.min(self.config.lease / 3).max(SHORTEST_LOOK)).await;
            match job.keep(Progress::default()).await {
                Err(Unfinished::Interrupted(error @ (TaskStoreError::LeaseLost | TaskStoreError::Over(_)))) => {
                    return error;
                }
                // The lease lasts for a while yet, and the store may be back by then.
                Err(Unfinished::Interrupted(error)) => (self.report)(&error),
                Ok(()) | Err(Unfinished::Failed(_) | Unfinished::Cancelled) => {}
            }
        }
    }

    async fn finish(&self, job: &Job, ended: Ended) -> Turn {
        let end = match ended {
            Ok(reply) => TaskEnd::Complete(reply.result().into()),
            Err(Unfinished::Failed(error)) => TaskEnd::Fail(error_json(&error).into()),
            // What became of the step is not known: nothing may end the task but a look at it.
            Err(Unfinished::Cancelled | Unfinished::Interrupted(_)) if job.is_external_open() => return Turn::Worked,
            Err(Unfinished::Cancelled) => TaskEnd::Cancel,
            Err(Unfinished::Interrupted(error @ (TaskStoreError::LeaseLost | TaskStoreError::Over(_)))) => {
                (self.report)(&error);
                return Turn::Worked;
            }
            Err(Unfinished::Interrupted(error)) => {
                self.release(job).await;
                return Turn::Interrupted(error);
            }
        };
        for attempt in 0..TRIES {
            match job.shared().queue.finish(job.lease(), end.clone()).await {
                // After an answer that was lost, it is over because this did it.
                Ok(()) | Err(TaskStoreError::LeaseLost | TaskStoreError::Over(_)) => return Turn::Worked,
                Err(error @ (TaskStoreError::Unavailable(_) | TaskStoreError::Busy { .. })) => {
                    (self.report)(&error);
                    let timer = &job.shared().timer;
                    timer.sleep_until(timer.now() + self.config.look.saturating_mul(1 << attempt)).await;
                }
                Err(error) => {
                    self.refuse(job, error).await;
                    return Turn::Worked;
                }
            }
        }
        Turn::Worked
    }

    /// The store does not take the end as it is, and never will: the task fails, and says why.
    async fn refuse(&self, job: &Job, error: TaskStoreError) {
        (self.report)(&error);
        let why = RpcError::internal(format!("the task's worker could not store its end: {error}"));
        let end = TaskEnd::Fail(error_json(&why).into());
        if let Err(error) = job.shared().queue.finish(job.lease(), end).await {
            (self.report)(&error);
        }
    }

    async fn release(&self, job: &Job) {
        if job.is_external_open() {
            return;
        }
        match job.shared().queue.release(job.lease()).await {
            Ok(()) | Err(TaskStoreError::LeaseLost | TaskStoreError::Over(_)) => {}
            Err(error) => (self.report)(&error),
        }
    }
}

/// Runs a handler; a panic in it becomes an error.
async fn guarded(start: impl FnOnce() -> BoxFuture<Ended>) -> Result<Ended, RpcError> {
    let mut handler = Guarded(Some(guard(start)?));
    core::future::poll_fn(|cx| {
        let Some(future) = &mut handler.0 else { return Poll::Pending };
        match guard(|| future.as_mut().poll(cx)) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

fn guard<T>(step: impl FnOnce() -> T) -> Result<T, RpcError> {
    catch_unwind(AssertUnwindSafe(step)).map_err(|panic| RpcError::internal(panic_text(panic.as_ref())))
}

/// A handler whose destructor, if it panics, must not take the worker with it.
struct Guarded(Option<BoxFuture<Ended>>);

impl Drop for Guarded {
    fn drop(&mut self) {
        let future = self.0.take();
        let _panic = guard(|| drop(future));
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("owner", &self.owner).field("config", &self.config).finish_non_exhaustive()
    }
}
