//! Durable tasks: work that outlives the call that asked for it, and the worker that does it (rules K1 to K6).
//!
//! ```text
//!  client                        file                           worker, in any process
//!  create ──────────► task and key, one commit
//!                     queue ───────────────────────────► claim: lease, epoch + 1
//!  get     ◄───────── snapshot ◄──────────────────────── checkpoint: step, effect; answers "cancel?" and inputs
//!  cancel ──────────► intent, not a status ────────────► observe_cancel ┐
//!  update ──────────► first answer per input ──────────► (ask)          │ one of them, once
//!                     terminal, for good ◄────────────── complete, fail ┘
//!                        │
//!   lease over ──────────┼─ no external step open ──► queue
//!                        └─ external step open ─────► in doubt: working, until an operator resolves it
//! ```
//!
//! Every change is one transaction of the ledger's writer: it reads the row, asks [`steady_core::task::Task`], and writes
//! what that decided. So a race has one winner, over all handles and processes, and an answer says what is durable.
//!
//! | at once | who wins |
//! |---|---|
//! | two ends, such as `complete` and `observe_cancel` | the first commit; the other is [`TaskError::Over`] |
//! | a cancel request and `complete` | both are accepted; the task is completed |
//! | a worker whose time is over, and nobody else yet | the worker: the lease is lost only once it is taken away |
//! | a checkpoint and the end of the task's life | the end: what nobody can see is no work, but to close a step outside |
//! | two answers to one input | the first commit; the other is ignored |

mod body;
mod client;
mod error;
pub(crate) mod lease;
pub(crate) mod operator;
pub(crate) mod port;
pub(crate) mod store;
#[cfg(test)]
mod tests;
mod types;
pub(crate) mod watch;
mod worker;

pub use body::Body;
pub use error::TaskError;
pub use types::{
    Changed, Checkpoint, Claimed, Input, Lease, LiveTask, Progress, Resolution, Snapshot, TaskId, TaskLimits, TaskSpec,
};
pub(crate) use watch::Watchers;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::transaction::undo_unit;
use crate::writer::unit::{Answering, Unit};
use store::Tx;
use watch::News;

/// The durable tasks of a ledger. Clones share its connections.
///
/// ```
/// use std::time::Duration;
/// use steady_ledger::{Body, Key, Ledger, Options, Progress, Request, Scope, Status, TaskSpec};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let ledger = Ledger::open(dir.path().join("shop.db"), Options::default())?;
/// let (tasks, scope, key) = (ledger.tasks(), Scope::new("tenant-1", "pack_order"), Key::parse("order-7")?);
///
/// // The server, for a call: durable before it is answered, and the same task for a retry.
/// let spec = TaskSpec { payload: Some(Body::new("shelf 12")?), ..TaskSpec::default() };
/// let task = tasks.create(&Request::new(&scope, &key, "{}"), spec)?.into_inner();
///
/// // A worker, in this process or another.
/// let claimed = tasks.claim(&["pack_order"], "worker-1", Duration::from_secs(30))?.expect("a task waits");
/// let known = tasks.checkpoint(&claimed.lease, Progress { step: 1, ..Progress::default() })?;
/// assert!(!known.cancel_requested);
/// tasks.complete(&claimed.lease, Body::new("packed")?)?;
///
/// assert_eq!(tasks.get("tenant-1", &task.id)?.status, Status::Completed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It is the kernel's [`TaskStore`](steady_core::kernel::tasks::TaskStore) and
/// [`TaskQueue`](steady_core::kernel::tasks::TaskQueue): a server serves it, and a worker of the kernel works on it.
///
/// All methods block but those named `_async`, which hand their work over at once, as
/// [`Ledger::execute_async`](crate::Ledger::execute_async) does: it is done even if the future is dropped.
#[derive(Clone)]
pub struct Tasks {
    ledger: Ledger,
}

/// Work for the writer, and where its answer comes out.
type Work<T> = (Unit<Result<T, TaskError>>, Answering<Result<T, TaskError>>);

/// The longest text of a message, an owner, an input key, an actor or a note, in bytes.
const MAX_TEXT: usize = 4096;

impl Tasks {
    pub(crate) const fn new(ledger: Ledger) -> Self {
        Self { ledger }
    }

    fn limits(&self) -> TaskLimits {
        self.ledger.inner.task_limits
    }

    /// Work that is kept if it succeeds. It is called again if its transaction was rolled back for a reason of its own.
    fn unit<T: Send + 'static>(
        &self,
        operation: &str,
        mut work: impl FnMut(&Tx<'_>) -> Result<T, TaskError> + Send + 'static,
    ) -> Work<T> {
        let inner = &self.ledger.inner;
        let [changed, gives_work] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (clock, watchers, heard) =
            (inner.clock.clone(), Arc::clone(&inner.task_watchers), [&changed, &gives_work].map(Arc::clone));
        let (unit, answering) = Unit::new(operation, move |db| {
            let tx = Tx::new(db, &clock);
            let answer = match work(&tx) {
                Ok(answer) => Ok(answer),
                Err(TaskError::Ledger(error)) => return Err(error),
                Err(refusal) => {
                    undo_unit(&db.conn)?;
                    Err(refusal)
                }
            };
            let news = if answer.is_ok() { tx.news() } else { News::default() };
            changed.store(news.changed, Ordering::Relaxed);
            gives_work.store(news.work, Ordering::Relaxed);
            Ok(answer)
        });
        let notify = move || {
            let [changed, work] = heard.each_ref().map(|flag| flag.load(Ordering::Relaxed));
            watchers.notify(News { changed, work });
        };
        (unit.after(notify), answering)
    }

    /// The same work, whose outcome can be found in the file if its commit is uncertain.
    fn look_up<T: Send + 'static>(
        &self,
        (unit, answering): Work<T>,
        mut look: impl FnMut(&Tx<'_>) -> Result<Option<T>, TaskError> + Send + 'static,
    ) -> Work<T> {
        let clock = self.ledger.inner.clock.clone();
        let look = move |db: &_| match look(&Tx::new(db, &clock)) {
            Ok(found) => Ok(found.map(Ok)),
            Err(TaskError::Ledger(error)) => Err(LedgerError::CommitUnknown(error.into())),
            Err(refusal) => Ok(Some(Err(refusal))),
        };
        (unit.look_up(look), answering)
    }

    fn wait<T: Send + 'static>(&self, work: Result<Work<T>, TaskError>) -> Result<T, TaskError> {
        self.ledger.inner.writer.wait(work?)?
    }

    fn submit<T: Send + 'static>(
        &self,
        work: Result<Work<T>, TaskError>,
    ) -> impl Future<Output = Result<T, TaskError>> + Send + use<T> {
        let answering = work.and_then(|work| Ok(self.ledger.inner.writer.submit(work)?));
        async move { answering?.await.unwrap_or(Err(LedgerError::Closed))? }
    }

    /// Reads in one snapshot, on a connection of its own.
    fn read<T>(&self, work: impl FnOnce(&Tx<'_>) -> Result<T, TaskError>) -> Result<T, TaskError> {
        let inner = &self.ledger.inner;
        inner.reader.with(|db| {
            let snapshot = db.conn.unchecked_transaction()?;
            let answer = work(&Tx::new(db, &inner.clock));
            snapshot.finish()?;
            Ok(answer)
        })?
    }

    fn check_body(&self, body: Option<&Body>) -> Result<(), TaskError> {
        let limit = self.limits().max_body;
        if body.is_some_and(|body| body.json().len() > limit) { Err(TaskError::TooLarge { limit }) } else { Ok(()) }
    }
}

pub(crate) fn check_text(text: Option<&str>) -> Result<(), TaskError> {
    if text.is_some_and(|text| text.len() > MAX_TEXT) {
        return Err(TaskError::TooLarge { limit: MAX_TEXT });
    }
    Ok(())
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}
