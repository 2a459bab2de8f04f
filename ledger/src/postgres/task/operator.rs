//! Decides what becomes of tasks that no worker and no client ends: those whose time is over, and those in doubt.

use super::PgTasks;
use super::row::{Task, task};
use super::worker::{finish, known};
use crate::postgres::tx::Tx;
use crate::postgres::wire::args;
use crate::task::lease::End;
use crate::task::operator::{HOUSEKEEPING, IN_DOUBT, MAX_LIST};
use crate::task::watch::News;
use crate::task::{LiveTask, Resolution, TaskError, TaskId, check_text};
use crate::time::JUMP;

impl PgTasks {
    /// As [`Tasks::live`](crate::Tasks::live).
    ///
    /// # Errors
    ///
    /// [`TaskError::Ledger`].
    pub async fn live(&self, after: Option<&TaskId>, limit: u32) -> Result<Vec<LiveTask>, TaskError> {
        let sql = task!("WHERE status IN ('working', 'input_required') AND id > $1 ORDER BY id LIMIT $2");
        self.list(sql, after, limit).await
    }

    /// As [`Tasks::in_doubt`](crate::Tasks::in_doubt).
    ///
    /// # Errors
    ///
    /// [`TaskError::Ledger`].
    pub async fn in_doubt(&self, after: Option<&TaskId>, limit: u32) -> Result<Vec<LiveTask>, TaskError> {
        self.list(task!("WHERE in_doubt AND id > $1 ORDER BY id LIMIT $2"), after, limit).await
    }

    /// As [`Tasks::resolve`](crate::Tasks::resolve).
    ///
    /// # Errors
    ///
    /// As [`Tasks::resolve`](crate::Tasks::resolve).
    pub async fn resolve(&self, id: &TaskId, resolution: Resolution, actor: &str, note: &str) -> Result<(), TaskError> {
        let (name, end) = match resolution {
            Resolution::Complete(result) => ("complete", Some(End::Complete(result))),
            Resolution::Fail(error) => ("fail", Some(End::Fail(error))),
            Resolution::Cancel => ("cancel", Some(End::Cancel)),
            Resolution::Requeue => ("requeue", None),
        };
        check_text(Some(actor)).and_then(|()| check_text(Some(note)))?;
        end.as_ref().map_or(Ok(()), |end| self.check_end(end))?;
        let inner = self.inner();
        let tx = inner.begin().await?;
        let done = resolve(&tx, id, (name, end.as_ref()), actor, note).await;
        tx.end(inner, done).await?;
        self.changed(News::WORK).await;
        Ok(())
    }

    /// As [`Tasks::expire_leases`](crate::Tasks::expire_leases).
    ///
    /// # Errors
    ///
    /// [`TaskError::Ledger`].
    pub async fn expire_leases(&self, limit: u32) -> Result<usize, TaskError> {
        let inner = self.inner();
        let tx = inner.begin().await?;
        let expired = expire_leases(&tx, limit).await;
        let expired = tx.end(inner, expired).await?;
        if expired > 0 {
            self.changed(News::SEEN).await;
        }
        Ok(expired)
    }

    /// As [`Tasks::collect_expired`](crate::Tasks::collect_expired).
    ///
    /// # Errors
    ///
    /// [`TaskError::Ledger`].
    pub async fn collect_expired(&self, limit: u32) -> Result<usize, TaskError> {
        let inner = self.inner();
        let tx = inner.begin().await?;
        let collected = collect_expired(&tx, limit).await;
        tx.end(inner, collected).await
    }

    async fn list(&self, sql: &str, after: Option<&TaskId>, limit: u32) -> Result<Vec<LiveTask>, TaskError> {
        let after = after.map_or("", TaskId::as_str);
        let conn = self.inner().pool.get().await?;
        let rows = conn.rows(sql, args![after => TEXT, i64::from(limit.min(MAX_LIST)) => INT8]).await?;
        conn.put_back();
        rows.iter().map(|row| Ok(Task::read(row)?.live())).collect()
    }
}

async fn resolve(
    tx: &Tx,
    id: &TaskId,
    (name, end): (&str, Option<&End>),
    actor: &str,
    note: &str,
) -> Result<(), TaskError> {
    let mut task = known(tx, id).await?;
    if !task.in_doubt {
        return Err(TaskError::NotInDoubt);
    }
    let sql = "INSERT INTO ledger_task_audit(at_ms, task_id, principal, operation, resolution, actor, note)
               VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let values = args![
        tx.tick.shown => INT8, id.as_str() => TEXT, &*task.scope.principal => TEXT, &*task.scope.operation => TEXT,
        name => TEXT, actor => TEXT, note => TEXT,
    ];
    tx.run(sql, values).await?;
    task.in_doubt = false;
    task.external_open = false;
    task.message = None;
    match end {
        Some(end) => finish(tx, task, end).await,
        None => task.save(tx, true).await,
    }
}

/// Cleans up a little, so that what is over goes away without anybody asking for it.
pub(super) async fn housekeep(tx: &Tx) -> Result<(), TaskError> {
    expire_leases(tx, HOUSEKEEPING).await?;
    collect_expired(tx, HOUSEKEEPING).await.map(drop)
}

async fn expire_leases(tx: &Tx, limit: u32) -> Result<usize, TaskError> {
    let now = tx.tick.shown;
    let sql = task!(
        "WHERE external_open AND NOT in_doubt AND claimable_ms <= $1 ORDER BY claimable_ms LIMIT $2
         FOR UPDATE SKIP LOCKED"
    );
    let mut lost = Task::all(tx, sql, args![now => INT8, i64::from(limit) => INT8]).await?;
    let room = i64::from(limit).saturating_sub(i64::try_from(lost.len()).unwrap_or(i64::MAX));
    // A lease that ends later than it is long was set by a clock that has since gone back.
    let sql = task!(
        "WHERE external_open AND NOT in_doubt AND claimable_ms > $1 AND claimable_ms - $1 > lease_ms
         ORDER BY claimable_ms LIMIT $2 FOR UPDATE SKIP LOCKED"
    );
    lost.extend(Task::all(tx, sql, args![now.saturating_add(JUMP) => INT8, room => INT8]).await?);
    for task in &mut lost {
        // The epoch goes up without a claim, so that the worker, if it lives, does not write past the operator.
        task.in_doubt = true;
        task.owner = None;
        task.epoch = task.epoch.saturating_add(1);
        task.losses = task.losses.saturating_add(1);
        task.message = Some(IN_DOUBT.to_owned());
        task.save(tx, true).await?;
    }
    Ok(lost.len())
}

async fn collect_expired(tx: &Tx, limit: u32) -> Result<usize, TaskError> {
    if !tx.tick.sure {
        return Ok(0);
    }
    let now = tx.tick.shown;
    let sql = "DELETE FROM ledger_task WHERE id IN (
                   SELECT id FROM ledger_task
                   WHERE expires_ms <= $1 AND NOT in_doubt
                       AND (status IN ('completed', 'failed', 'cancelled')
                            OR (NOT external_open AND (claimable_ms <= $1 OR claimable_ms - $2 > lease_ms)))
                   ORDER BY expires_ms LIMIT $3 FOR UPDATE SKIP LOCKED)";
    let values = args![now => INT8, now.saturating_add(JUMP) => INT8, i64::from(limit) => INT8];
    Ok(usize::try_from(tx.run(sql, values).await?).unwrap_or(usize::MAX))
}
