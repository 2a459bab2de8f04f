//! Decides what a worker may do with a task, and when its right to it ends: an owner and an epoch, which every claim
//! raises.

use std::time::Duration;

use steady_core::idempotency::Key;
use steady_core::task::Event;

use super::row::{self, Task, task};
use super::{PgTasks, operator};
use crate::error::LedgerError;
use crate::postgres::effect::{PgEffect, PgTx};
use crate::postgres::run::Runs;
use crate::postgres::tx::Tx;
use crate::postgres::wire::args;
use crate::task::lease::{End, stored_step};
use crate::task::store::{Decided, corrupt, decide};
use crate::task::watch::News;
use crate::task::{Body, Checkpoint, Claimed, Lease, Progress, TaskError, TaskId, check_text};
use crate::time::{JUMP, millis};
use crate::transaction::asks_for_input;

impl PgTasks {
    /// As [`Tasks::claim`](crate::Tasks::claim). Workers that claim at the same time get different tasks, and none waits
    /// for another.
    ///
    /// # Errors
    ///
    /// As [`Tasks::claim`](crate::Tasks::claim).
    pub async fn claim(&self, operations: &[&str], owner: &str, lease: Duration) -> Result<Option<Claimed>, TaskError> {
        check_text(Some(owner))?;
        let inner = self.inner();
        let lease = inner.lease(lease);
        let tx = inner.begin().await?;
        let claimed = claim(&tx, operations, owner, lease).await;
        tx.end(inner, claimed).await
    }

    /// As [`Tasks::checkpoint`](crate::Tasks::checkpoint).
    ///
    /// # Errors
    ///
    /// As [`Tasks::checkpoint`](crate::Tasks::checkpoint).
    pub async fn checkpoint(&self, lease: &Lease, progress: Progress) -> Result<Checkpoint, TaskError> {
        self.check_progress(&progress)?;
        let inner = self.inner();
        let tx = inner.begin().await?;
        let answer = checkpoint(&tx, lease, &progress).await;
        let answer = tx.end(inner, answer).await?;
        if answer.stored {
            self.changed(News::SEEN).await;
        }
        Ok(answer)
    }

    /// As [`Tasks::checkpoint_with`](crate::Tasks::checkpoint_with). The rules for the effect are those of
    /// [`PgLedger::execute`](crate::PgLedger::execute); it runs under
    /// [`Isolation::ReadCommitted`](crate::Isolation::ReadCommitted), and a refusal is a failure here.
    ///
    /// # Errors
    ///
    /// As [`Tasks::checkpoint_with`](crate::Tasks::checkpoint_with); [`LedgerError::Busy`] if the database gave the
    /// transaction up for the sake of another.
    pub async fn checkpoint_with<'e, F>(
        &self,
        lease: &Lease,
        progress: Progress,
        mut effect: F,
    ) -> Result<Checkpoint, TaskError>
    where
        F: for<'a> FnMut(&'a mut PgTx<'e>) -> PgEffect<'a, ()> + Send,
    {
        self.check_progress(&progress)?;
        let inner = self.inner();
        let mut tx = inner.begin().await?;
        let is_new = match alive(&tx, lease).await {
            Ok((task, _)) => stored_step(progress.step) > task.step,
            Err(error) => {
                tx.roll_back().await;
                return Err(error);
            }
        };
        if is_new {
            tx = Runs::new(inner).inside(tx, &mut effect).await?;
        }
        let answer = checkpoint(&tx, lease, &progress).await;
        let answer = tx.end(inner, answer).await?;
        if answer.stored {
            self.changed(News::SEEN).await;
        }
        Ok(answer)
    }

    /// As [`Tasks::complete`](crate::Tasks::complete).
    ///
    /// # Errors
    ///
    /// As [`Tasks::complete`](crate::Tasks::complete).
    pub async fn complete(&self, lease: &Lease, result: Body) -> Result<(), TaskError> {
        self.finish(lease, End::Complete(result)).await
    }

    /// As [`Tasks::fail`](crate::Tasks::fail).
    ///
    /// # Errors
    ///
    /// As [`Tasks::fail`](crate::Tasks::fail).
    pub async fn fail(&self, lease: &Lease, error: Body) -> Result<(), TaskError> {
        self.finish(lease, End::Fail(error)).await
    }

    /// As [`Tasks::observe_cancel`](crate::Tasks::observe_cancel).
    ///
    /// # Errors
    ///
    /// As [`Tasks::observe_cancel`](crate::Tasks::observe_cancel).
    pub async fn observe_cancel(&self, lease: &Lease) -> Result<(), TaskError> {
        self.finish(lease, End::Cancel).await
    }

    /// As [`Tasks::ask`](crate::Tasks::ask).
    ///
    /// # Errors
    ///
    /// As [`Tasks::ask`](crate::Tasks::ask).
    pub async fn ask(&self, lease: &Lease, requests: Vec<(Box<str>, Body)>) -> Result<(), TaskError> {
        for (key, request) in &requests {
            check_text(Some(key))?;
            self.check_body(Some(request))?;
        }
        let inner = self.inner();
        let tx = inner.begin().await?;
        let asked = ask(&tx, lease, &requests, self.limits().inputs).await;
        tx.end(inner, asked).await?;
        self.changed(News::SEEN).await;
        Ok(())
    }

    /// As [`Tasks::external_started`](crate::Tasks::external_started).
    ///
    /// # Errors
    ///
    /// As [`Tasks::external_started`](crate::Tasks::external_started).
    pub async fn external_started(&self, lease: &Lease) -> Result<(), TaskError> {
        self.external(lease, true).await
    }

    /// As [`Tasks::external_done`](crate::Tasks::external_done).
    ///
    /// # Errors
    ///
    /// As [`Tasks::external_done`](crate::Tasks::external_done).
    pub async fn external_done(&self, lease: &Lease) -> Result<(), TaskError> {
        self.external(lease, false).await
    }

    /// As [`Tasks::release`](crate::Tasks::release).
    ///
    /// # Errors
    ///
    /// As [`Tasks::release`](crate::Tasks::release).
    pub async fn release(&self, lease: &Lease) -> Result<(), TaskError> {
        let inner = self.inner();
        let tx = inner.begin().await?;
        let released = release(&tx, lease).await;
        tx.end(inner, released).await?;
        self.changed(News::RELEASED).await;
        Ok(())
    }

    pub(super) async fn external(&self, lease: &Lease, open: bool) -> Result<(), TaskError> {
        let inner = self.inner();
        let tx = inner.begin().await?;
        let noted = external(&tx, lease, open).await;
        tx.end(inner, noted).await
    }

    pub(super) async fn finish(&self, lease: &Lease, end: End) -> Result<(), TaskError> {
        self.check_end(&end)?;
        let inner = self.inner();
        let tx = inner.begin().await?;
        let done = match held(&tx, lease).await {
            Ok(task) => finish(&tx, task, &end).await,
            Err(error) => Err(error),
        };
        tx.end(inner, done).await?;
        self.changed(News::SEEN).await;
        Ok(())
    }

    pub(super) fn check_end(&self, end: &End) -> Result<(), TaskError> {
        self.check_body(end.outcome())?;
        match end {
            End::Complete(result) if asks_for_input(result.json().as_bytes()) => Err(LedgerError::NotFinal.into()),
            End::Complete(_) | End::Fail(_) | End::Cancel => Ok(()),
        }
    }

    fn check_progress(&self, progress: &Progress) -> Result<(), TaskError> {
        check_text(progress.message.as_deref())?;
        self.check_body(progress.state.as_ref())
    }
}

/// The task, if the lease is the one that counts.
async fn held(tx: &Tx, lease: &Lease) -> Result<Task, TaskError> {
    let task = Task::lock(tx, &lease.task).await?;
    let is_held = |task: &Task| {
        u32::try_from(task.epoch).is_ok_and(|epoch| epoch == lease.epoch)
            && task.owner.as_deref() == Some(&*lease.owner)
    };
    task.filter(is_held).ok_or(TaskError::LeaseLost)
}

/// The task, if the lease counts and there is work left, and whether a client wants it to end.
async fn alive(tx: &Tx, lease: &Lease) -> Result<(Task, bool), TaskError> {
    let (task, cancel_requested) = unfinished(tx, lease).await?;
    if task.lives(tx) { Ok((task, cancel_requested)) } else { Err(TaskError::LeaseLost) }
}

/// As [`alive`], also if the task's life is over.
async fn unfinished(tx: &Tx, lease: &Lease) -> Result<(Task, bool), TaskError> {
    let task = held(tx, lease).await?;
    match decide(task.record(), Event::Checkpoint)? {
        Decided::ObserveCancel => Ok((task, true)),
        Decided::Stay | Decided::Write(_) => Ok((task, false)),
    }
}

fn extend(tx: &Tx, task: &mut Task, lease: Duration) {
    task.lease = millis(lease);
    task.claimable = tx.tick.shown.saturating_add(task.lease);
}

const NEXT: &str = task!(
    "WHERE operation = $1 AND claimable_ms <= $2 AND NOT external_open
        AND (status = 'working' OR (status = 'input_required' AND cancel_requested_ms IS NOT NULL))
        AND (expires_ms IS NULL OR expires_ms > $2)
     ORDER BY claimable_ms LIMIT 1 FOR UPDATE SKIP LOCKED"
);

/// As [`NEXT`], of what is further off than its lease is long: a clock that has since gone back set it.
const UNREAL: &str = task!(
    "WHERE operation = $1 AND claimable_ms > $3 AND claimable_ms - $3 > lease_ms AND NOT external_open
        AND (status = 'working' OR (status = 'input_required' AND cancel_requested_ms IS NOT NULL))
        AND (expires_ms IS NULL OR expires_ms > $2)
     ORDER BY claimable_ms LIMIT 1 FOR UPDATE SKIP LOCKED"
);

/// The task of this operation that waits longest and that nobody else is at.
async fn next(tx: &Tx, operation: &str) -> Result<Option<Task>, TaskError> {
    let now = tx.tick.shown;
    if let Some(task) = Task::all(tx, NEXT, args![operation => TEXT, now => INT8]).await?.pop() {
        return Ok(Some(task));
    }
    let unreal = now.saturating_add(JUMP);
    Ok(Task::all(tx, UNREAL, args![operation => TEXT, now => INT8, unreal => INT8]).await?.pop())
}

async fn claim(tx: &Tx, operations: &[&str], owner: &str, lease: Duration) -> Result<Option<Claimed>, TaskError> {
    operator::housekeep(tx).await?;
    let mut longest: Option<Task> = None;
    // Those that are not taken are free again with the commit, which is near.
    for operation in operations {
        let first = next(tx, operation).await?;
        longest = [longest, first].into_iter().flatten().min_by_key(|task| task.claimable);
    }
    let Some(mut task) = longest else { return Ok(None) };
    task.epoch = task.epoch.saturating_add(1);
    // Who gives a lease back takes the owner with it.
    task.losses = task.losses.saturating_add(task.owner.is_some().into());
    task.owner = Some(owner.to_owned());
    extend(tx, &mut task, lease);
    task.save(tx, false).await?;
    let key = task.key.as_deref().map(Key::parse).transpose().map_err(|_| corrupt("the key of a task is none"))?;
    let epoch = u32::try_from(task.epoch).unwrap_or(u32::MAX);
    Ok(Some(Claimed {
        lease: Lease {
            task: task.id.clone(),
            operation: task.scope.operation.clone(),
            owner: owner.into(),
            epoch,
            duration: lease,
        },
        lost_leases: u32::try_from(task.losses).unwrap_or(u32::MAX),
        key,
        progress: task.progress(),
        cancel_requested: task.record().cancel_requested,
        inputs: row::inputs(tx, &task.id).await?,
        payload: task.payload.map(Body::stored),
        scope: task.scope,
    }))
}

async fn checkpoint(tx: &Tx, lease: &Lease, progress: &Progress) -> Result<Checkpoint, TaskError> {
    let (mut task, cancel_requested) = alive(tx, lease).await?;
    let step = stored_step(progress.step);
    let stored = step > task.step;
    if stored {
        task.step = step;
        task.progress = progress.state.as_ref().map(|body| body.json().to_owned());
        task.message = progress.message.as_deref().map(str::to_owned).or(task.message);
    }
    extend(tx, &mut task, lease.duration);
    task.save(tx, stored).await?;
    Ok(Checkpoint { cancel_requested, stored, inputs: row::inputs(tx, &lease.task).await? })
}

/// Ends a task, in whoever's name.
pub(super) async fn finish(tx: &Tx, mut task: Task, end: &End) -> Result<(), TaskError> {
    match decide(task.record(), end.event())? {
        Decided::Write(record) => {
            task.become_(tx, &record, end.outcome());
            task.save(tx, true).await
        }
        Decided::Stay | Decided::ObserveCancel => Err(corrupt("a task neither ends nor has ended")),
    }
}

async fn ask(tx: &Tx, lease: &Lease, requests: &[(Box<str>, Body)], limit: u32) -> Result<(), TaskError> {
    let mut task = held(tx, lease).await?;
    let Decided::Write(record) = decide(task.record(), Event::InputRequired)? else {
        return Err(corrupt("a task cannot ask and has not ended"));
    };
    if !task.lives(tx) {
        return Err(TaskError::LeaseLost);
    }
    if requests.is_empty() {
        return Err(TaskError::NoInput);
    }
    for (key, request) in requests {
        let sql = "INSERT INTO ledger_task_input(task_id, input_key, request) VALUES ($1, $2, $3)
                   ON CONFLICT(task_id, input_key) DO NOTHING";
        let values = args![lease.task.as_str() => TEXT, &**key => TEXT, request.json() => TEXT];
        if tx.run(sql, values).await? == 0 {
            return Err(TaskError::InputKeyUsed);
        }
    }
    if row::inputs(tx, &lease.task).await?.len() > limit as usize {
        return Err(TaskError::TooManyInputs { limit });
    }
    task.become_(tx, &record, None);
    extend(tx, &mut task, lease.duration);
    task.save(tx, true).await
}

async fn external(tx: &Tx, lease: &Lease, open: bool) -> Result<(), TaskError> {
    let (mut task, _) = alive(tx, lease).await?;
    task.external_open = open;
    extend(tx, &mut task, lease.duration);
    task.save(tx, false).await
}

async fn release(tx: &Tx, lease: &Lease) -> Result<(), TaskError> {
    let (mut task, _) = unfinished(tx, lease).await?;
    task.owner = None;
    task.claimable = tx.tick.shown;
    task.lease = 0;
    task.save(tx, false).await
}

/// The task of this id, or that there is none.
pub(super) async fn known(tx: &Tx, id: &TaskId) -> Result<Task, TaskError> {
    Task::lock(tx, id).await?.ok_or(TaskError::Unknown)
}
