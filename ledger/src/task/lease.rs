//! Decides when a worker's right to a task ends.
//!
//! A lease is an owner and an epoch. Every claim raises the epoch, so whoever held the task before is shut out by the
//! row itself, whatever its clock says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::named_params;
use steady_core::idempotency::Key;
use steady_core::task::{Event, Status};

use crate::effect::{EffectTx, Job, Outcome};
use crate::error::{BoxError, LedgerError};
use crate::task::operator::housekeep;
use crate::task::store::{self, Decided, Head, Tx, decide, head};
use crate::task::{Body, Checkpoint, Claimed, Lease, Progress, TaskError, Tasks, Work, check_text};
use crate::time::millis;
use crate::transaction::{asks_for_input, run_effect};

/// How a worker ends a task.
pub(crate) enum End {
    Complete(Body),
    Fail(Body),
    Cancel,
}

impl End {
    pub(crate) const fn event(&self) -> Event {
        match self {
            Self::Complete(_) => Event::Complete,
            Self::Fail(_) => Event::Fail,
            Self::Cancel => Event::ObservedCancel,
        }
    }

    const fn status(&self) -> Status {
        match self {
            Self::Complete(_) => Status::Completed,
            Self::Fail(_) => Status::Failed,
            Self::Cancel => Status::Cancelled,
        }
    }

    pub(crate) const fn outcome(&self) -> Option<&Body> {
        match self {
            Self::Complete(body) | Self::Fail(body) => Some(body),
            Self::Cancel => None,
        }
    }
}

/// An effect without an answer of its own.
pub(crate) fn plain(mut effect: impl FnMut(&mut EffectTx<'_>) -> Result<(), BoxError> + Send + 'static) -> Job {
    Box::new(move |tx| match effect(tx) {
        Ok(()) => Outcome::Commit(b"null".to_vec()),
        Err(cause) => Outcome::Abort(cause),
    })
}

impl Tasks {
    pub(crate) fn claiming(
        &self,
        operations: &[&str],
        owner: &str,
        lease: Duration,
    ) -> Result<Work<Option<Claimed>>, TaskError> {
        check_text(Some(owner))?;
        let lease = self.ledger.lease(lease);
        let operations: Vec<Box<str>> = operations.iter().copied().map(Box::from).collect();
        let owner: Box<str> = owner.into();
        Ok(self.unit("tasks: claim", move |tx| claim(tx, &operations, &owner, lease)))
    }

    pub(crate) fn checkpointing(
        &self,
        lease: &Lease,
        progress: Progress,
        mut effect: Option<Job>,
    ) -> Result<Work<Checkpoint>, TaskError> {
        check_text(progress.message.as_deref())?;
        self.check_body(progress.state.as_ref())?;
        let (lease, step) = (lease.clone(), stored_step(progress.step));
        let (later, operation) = (lease.clone(), lease.operation.clone());
        let stored = Arc::new(AtomicBool::new(false));
        let was_stored = Arc::clone(&stored);
        let unit = self.unit(&operation, move |tx| {
            let answer = checkpoint(tx, &lease, &progress, effect.as_mut())?;
            stored.store(answer.stored, Ordering::Relaxed);
            Ok(answer)
        });
        // Only this lease can have stored this step. A call that stores nothing is as good as one that failed.
        Ok(self.look_up(unit, move |tx| {
            let (head, cancel_requested) = alive(tx, &later)?;
            if !was_stored.load(Ordering::Relaxed) || head.step < step {
                return Ok(None);
            }
            let inputs = store::inputs(tx.conn, &later.task)?;
            Ok(Some(Checkpoint { cancel_requested, stored: true, inputs }))
        }))
    }

    pub(crate) fn finishing(&self, lease: &Lease, end: End) -> Result<Work<()>, TaskError> {
        self.check_end(&end)?;
        let (later, status) = (lease.clone(), end.status());
        let lease = lease.clone();
        let operation = lease.operation.clone();
        let unit = self.unit(&operation, move |tx| {
            held(tx, &lease)?;
            finish(tx, &lease.task, &end)
        });
        Ok(self.look_up(unit, move |tx| Ok((held(tx, &later)?.record.status == status).then_some(()))))
    }

    pub(crate) fn check_end(&self, end: &End) -> Result<(), TaskError> {
        self.check_body(end.outcome())?;
        match end {
            End::Complete(result) if asks_for_input(result.json().as_bytes()) => Err(LedgerError::NotFinal.into()),
            End::Complete(_) | End::Fail(_) | End::Cancel => Ok(()),
        }
    }

    pub(crate) fn asking(&self, lease: &Lease, requests: Vec<(Box<str>, Body)>) -> Result<Work<()>, TaskError> {
        for (key, request) in &requests {
            check_text(Some(key))?;
            self.check_body(Some(request))?;
        }
        let (lease, limit) = (lease.clone(), self.limits().inputs);
        let operation = lease.operation.clone();
        let (later, requests) = (lease.clone(), Arc::new(requests));
        let (same, stored) = (Arc::clone(&requests), Arc::new(AtomicBool::new(false)));
        let was_stored = Arc::clone(&stored);
        let unit = self.unit(&operation, move |tx| {
            stored.store(false, Ordering::Relaxed);
            ask(tx, &lease, &requests, limit)?;
            stored.store(true, Ordering::Relaxed);
            Ok(())
        });
        // A question is only ever asked once, so one that is there is that of the call that stored it.
        Ok(self.look_up(unit, move |tx| {
            held(tx, &later)?;
            if !was_stored.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let stored = store::inputs(tx.conn, &later.task)?;
            let is_there = |(key, request): &(Box<str>, Body)| {
                stored.iter().any(|input| input.key == *key && input.request == *request)
            };
            Ok(same.iter().all(is_there).then_some(()))
        }))
    }

    pub(crate) fn external(&self, lease: &Lease, open: bool) -> Work<()> {
        let lease = lease.clone();
        let operation = lease.operation.clone();
        self.unit(&operation, move |tx| {
            alive(tx, &lease)?;
            tx.run("UPDATE ledger_task SET external_open = ?2 WHERE id = ?1", (lease.task.as_str(), open))?;
            extend(tx, &lease)
        })
    }

    pub(crate) fn releasing(&self, lease: &Lease) -> Work<()> {
        let lease = lease.clone();
        let operation = lease.operation.clone();
        self.unit(&operation, move |tx| {
            unfinished(tx, &lease)?;
            tx.gives_work();
            let sql = "UPDATE ledger_task SET lease_owner = NULL, claimable_ms = ?2, lease_ms = 0 WHERE id = ?1";
            tx.run(sql, (lease.task.as_str(), tx.now)).map(drop)
        })
    }
}

/// The task, if the lease is the one that counts.
fn held(tx: &Tx<'_>, lease: &Lease) -> Result<Head, TaskError> {
    let head = Head::find(tx.conn, &lease.task)?;
    let is_held = |head: &Head| head.epoch == lease.epoch && head.owner.as_deref() == Some(&*lease.owner);
    head.filter(is_held).ok_or(TaskError::LeaseLost)
}

/// The task, if the lease counts and there is work left, and whether a client wants it to end.
fn alive(tx: &Tx<'_>, lease: &Lease) -> Result<(Head, bool), TaskError> {
    let (head, cancel_requested) = unfinished(tx, lease)?;
    if head.lives(tx.now) { Ok((head, cancel_requested)) } else { Err(TaskError::LeaseLost) }
}

/// As [`alive`], also if the task's life is over.
fn unfinished(tx: &Tx<'_>, lease: &Lease) -> Result<(Head, bool), TaskError> {
    let head = held(tx, lease)?;
    match decide(head.record, Event::Checkpoint)? {
        Decided::ObserveCancel => Ok((head, true)),
        Decided::Stay | Decided::Write(_) => Ok((head, false)),
    }
}

fn extend(tx: &Tx<'_>, lease: &Lease) -> Result<(), TaskError> {
    let length = millis(lease.duration);
    let sql = "UPDATE ledger_task SET claimable_ms = ?2, lease_ms = ?3 WHERE id = ?1";
    tx.run(sql, (lease.task.as_str(), tx.now.saturating_add(length), length)).map(drop)
}

pub(crate) const NEXT: &str = head!(
    "WHERE operation = ?1 AND claimable_ms <= ?2 AND external_open = 0
        AND (status = 'working' OR (status = 'input_required' AND cancel_requested_ms IS NOT NULL))
        AND (expires_ms IS NULL OR expires_ms > ?2)
     ORDER BY claimable_ms LIMIT 1"
);

/// As [`NEXT`], of what is further off than its lease is long: a clock that has since gone back set it.
pub(crate) const UNREAL: &str = head!(
    "WHERE operation = ?1 AND claimable_ms > ?3 AND claimable_ms - ?3 > lease_ms AND external_open = 0
        AND (status = 'working' OR (status = 'input_required' AND cancel_requested_ms IS NOT NULL))
        AND (expires_ms IS NULL OR expires_ms > ?2)
     ORDER BY claimable_ms LIMIT 1"
);

/// The task of this operation that waits longest.
fn next(tx: &Tx<'_>, operation: &str) -> Result<Option<Head>, TaskError> {
    if let Some(head) = Head::all(tx.conn, NEXT, (operation, tx.now))?.pop() {
        return Ok(Some(head));
    }
    Ok(Head::all(tx.conn, UNREAL, (operation, tx.now, tx.unreal()))?.pop())
}

fn claim(tx: &Tx<'_>, operations: &[Box<str>], owner: &str, lease: Duration) -> Result<Option<Claimed>, TaskError> {
    housekeep(tx)?;
    let mut longest: Option<Head> = None;
    for operation in operations {
        let first = next(tx, operation)?;
        longest = [longest, first].into_iter().flatten().min_by_key(|head| head.claimable_at);
    }
    let Some(Head { id, scope, record, epoch, losses, owner: before, .. }) = longest else {
        return Ok(None);
    };
    let epoch = epoch.saturating_add(1);
    // Who gives a lease back takes the owner with it.
    let losses = losses.saturating_add(before.is_some().into());
    let sql = "UPDATE ledger_task SET lease_owner = ?2, lease_epoch = ?3, lease_losses = ?4 WHERE id = ?1";
    tx.run(sql, (id.as_str(), owner, epoch, losses))?;
    let lease = Lease { task: id, operation: scope.operation.clone(), owner: owner.into(), epoch, duration: lease };
    extend(tx, &lease)?;
    let id = &lease.task;
    let sql = "SELECT key, payload FROM ledger_task WHERE id = ?1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Option<String>>(0)?, store::body(row, 1)?));
    let (key, payload) = tx.conn.prepare_cached(sql)?.query_row([id.as_str()], read)?;
    let key = key.map(|text| Key::parse(&text)).transpose();
    Ok(Some(Claimed {
        scope,
        lost_leases: losses,
        key: key.map_err(|_| store::corrupt("the key of a task is none"))?,
        payload,
        progress: store::progress(tx.conn, id)?,
        cancel_requested: record.cancel_requested,
        inputs: store::inputs(tx.conn, id)?,
        lease,
    }))
}

/// A step as it is stored. No task has as many.
pub(crate) fn stored_step(step: u64) -> i64 {
    i64::try_from(step).unwrap_or(i64::MAX)
}

fn checkpoint(
    tx: &Tx<'_>,
    lease: &Lease,
    progress: &Progress,
    effect: Option<&mut Job>,
) -> Result<Checkpoint, TaskError> {
    let (head, cancel_requested) = alive(tx, lease)?;
    let step = stored_step(progress.step);
    let stored = step > head.step;
    if stored {
        if let Some(effect) = effect {
            run_effect(tx.db, effect, None)?;
        }
        tx.run(
            "UPDATE ledger_task
             SET step = :step, progress = :state, status_message = coalesce(:message, status_message) WHERE id = :id",
            named_params! {
                ":id": lease.task.as_str(),
                ":step": step,
                ":state": progress.state.as_ref().map(Body::json),
                ":message": progress.message.as_deref(),
            },
        )?;
        store::touch(tx, &lease.task)?;
    }
    extend(tx, lease)?;
    Ok(Checkpoint { cancel_requested, stored, inputs: store::inputs(tx.conn, &lease.task)? })
}

/// Ends a task, in whoever's name.
pub(crate) fn finish(tx: &Tx<'_>, id: &super::TaskId, end: &End) -> Result<(), TaskError> {
    let head = Head::find(tx.conn, id)?.ok_or(TaskError::Unknown)?;
    match decide(head.record, end.event())? {
        Decided::Write(record) => store::save(tx, id, &record, end.outcome()),
        Decided::Stay | Decided::ObserveCancel => Err(store::corrupt("a task neither ends nor has ended")),
    }
}

fn ask(tx: &Tx<'_>, lease: &Lease, requests: &[(Box<str>, Body)], limit: u32) -> Result<(), TaskError> {
    let head = held(tx, lease)?;
    let Decided::Write(record) = decide(head.record, Event::InputRequired)? else {
        return Err(store::corrupt("a task cannot ask and has not ended"));
    };
    if !head.lives(tx.now) {
        return Err(TaskError::LeaseLost);
    }
    if requests.is_empty() {
        return Err(TaskError::NoInput);
    }
    for (key, request) in requests {
        let sql = "INSERT INTO ledger_task_input(task_id, input_key, request) VALUES (?1, ?2, ?3)
                   ON CONFLICT(task_id, input_key) DO NOTHING";
        if tx.run(sql, (lease.task.as_str(), &**key, request.json()))? == 0 {
            return Err(TaskError::InputKeyUsed);
        }
    }
    let sql = "SELECT count(*) FROM ledger_task_input WHERE task_id = ?1";
    let count: u32 = tx.conn.prepare_cached(sql)?.query_row([lease.task.as_str()], |row| row.get(0))?;
    if count > limit {
        return Err(TaskError::TooManyInputs { limit });
    }
    store::save(tx, &lease.task, &record, None)?;
    extend(tx, lease)
}
