//! Decides what becomes of tasks that no worker and no client ends: those whose time is over, and those in doubt.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rusqlite::named_params;

use crate::task::lease::{End, finish};
use crate::task::store::{self, Head, Tx, head};
use crate::task::{LiveTask, Resolution, TaskError, TaskId, Tasks, Work, check_text};

/// How many tasks a list shows at most.
pub(crate) const MAX_LIST: u32 = 1000;
/// How many tasks a creation or a claim cleans up on its way. More than one, so that what is over never piles up.
pub(crate) const HOUSEKEEPING: u32 = 16;

impl Tasks {
    /// The unfinished tasks of all principals, in the order of their ids, at most `limit` of them and 1000. Go on after
    /// the last one.
    ///
    /// # Errors
    ///
    /// [`TaskError::Ledger`].
    pub fn live(&self, after: Option<&TaskId>, limit: u32) -> Result<Vec<LiveTask>, TaskError> {
        let sql = head!("WHERE status IN ('working', 'input_required') AND id > ?1 ORDER BY id LIMIT ?2");
        self.list(sql, after, limit)
    }

    /// As [`Tasks::live`], but only those in doubt: their worker was lost with an external step open.
    ///
    /// # Errors
    ///
    /// [`TaskError::Ledger`].
    pub fn in_doubt(&self, after: Option<&TaskId>, limit: u32) -> Result<Vec<LiveTask>, TaskError> {
        self.list(head!("WHERE in_doubt = 1 AND id > ?1 ORDER BY id LIMIT ?2"), after, limit)
    }

    /// Ends the doubt about a task, by what an operator found out. `actor` and `note` go into the audit table.
    ///
    /// # Errors
    ///
    /// [`TaskError::Unknown`], [`TaskError::NotInDoubt`], [`TaskError::TooLarge`]; [`TaskError::NotRequested`] for
    /// [`Resolution::Cancel`]. A result is checked as in [`Tasks::complete`].
    pub fn resolve(&self, id: &TaskId, resolution: Resolution, actor: &str, note: &str) -> Result<(), TaskError> {
        self.wait(self.resolving(id, resolution, actor, note))
    }

    pub(crate) fn resolving(
        &self,
        id: &TaskId,
        resolution: Resolution,
        actor: &str,
        note: &str,
    ) -> Result<Work<()>, TaskError> {
        let (name, end) = match resolution {
            Resolution::Complete(result) => ("complete", Some(End::Complete(result))),
            Resolution::Fail(error) => ("fail", Some(End::Fail(error))),
            Resolution::Cancel => ("cancel", Some(End::Cancel)),
            Resolution::Requeue => ("requeue", None),
        };
        check_text(Some(actor)).and_then(|()| check_text(Some(note)))?;
        end.as_ref().map_or(Ok(()), |end| self.check_end(end))?;
        let resolved = Arc::new(Resolved { id: id.clone(), name, end, actor: actor.into(), note: note.into() });
        let later = Arc::clone(&resolved);
        let row = Arc::new(AtomicI64::new(0));
        let same = Arc::clone(&row);
        let unit = self.unit("tasks: resolve", move |tx| {
            row.store(resolved.run(tx)?, Ordering::Relaxed);
            Ok(())
        });
        Ok(self.look_up(unit, move |tx| later.is_audited(tx, same.load(Ordering::Relaxed)).map(|is| is.then_some(()))))
    }

    /// Marks tasks as in doubt whose worker was lost with an external step open, at most `limit` of them. Returns how
    /// many. Creations and claims do so too: this is for processes in which there are none.
    ///
    /// # Errors
    ///
    /// [`TaskError::Ledger`].
    pub fn expire_leases(&self, limit: u32) -> Result<usize, TaskError> {
        self.wait(Ok(self.unit("tasks: expire leases", move |tx| expire_leases(tx, limit))))
    }

    /// Removes tasks that have expired, at most `limit` of them. Returns how many. Neither a task with a lease nor one in
    /// doubt is removed, and none at all while a clock that jumped ahead by more than an hour is not confirmed by a call
    /// at least a minute later. Creations and claims do so too: this is for processes in which there are none.
    ///
    /// # Errors
    ///
    /// [`TaskError::Ledger`].
    pub fn collect_expired(&self, limit: u32) -> Result<usize, TaskError> {
        self.wait(Ok(self.unit("tasks: collect", move |tx| collect_expired(tx, limit))))
    }

    fn list(&self, sql: &str, after: Option<&TaskId>, limit: u32) -> Result<Vec<LiveTask>, TaskError> {
        let after = after.map_or("", TaskId::as_str);
        let heads = self.read(|tx| Head::all(tx.conn, sql, (after, limit.min(MAX_LIST))))?;
        Ok(heads.into_iter().map(LiveTask::from).collect())
    }
}

/// What an operator decided.
struct Resolved {
    id: TaskId,
    name: &'static str,
    /// None if the task is to be run again.
    end: Option<End>,
    actor: Box<str>,
    note: Box<str>,
}

impl Resolved {
    /// Carries it out. Returns the row of the audit that says so.
    fn run(&self, tx: &Tx<'_>) -> Result<i64, TaskError> {
        let Self { id, name, end, actor, note } = self;
        let head = Head::find(tx.conn, id)?.ok_or(TaskError::Unknown)?;
        if !head.in_doubt {
            return Err(TaskError::NotInDoubt);
        }
        tx.run(
            "INSERT INTO ledger_task_audit(at_ms, task_id, principal, operation, resolution, actor, note)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            (tx.now, id.as_str(), &*head.scope.principal, &*head.scope.operation, name, &**actor, &**note),
        )?;
        let row = tx.conn.last_insert_rowid();
        tx.run(
            "UPDATE ledger_task SET in_doubt = 0, external_open = 0, status_message = NULL WHERE id = ?1",
            [id.as_str()],
        )?;
        match end {
            Some(end) => finish(tx, id, end)?,
            None => {
                tx.gives_work();
                store::touch(tx, id)?;
            }
        }
        Ok(row)
    }

    /// Whether this row of the audit says that it was carried out.
    fn is_audited(&self, tx: &Tx<'_>, row: i64) -> Result<bool, TaskError> {
        let sql = "SELECT 1 FROM ledger_task_audit
                   WHERE id = ?1 AND task_id = ?2 AND resolution = ?3 AND actor = ?4 AND note = ?5";
        let params = (row, self.id.as_str(), self.name, &*self.actor, &*self.note);
        Ok(tx.conn.prepare_cached(sql)?.exists(params)?)
    }
}

impl From<Head> for LiveTask {
    fn from(head: Head) -> Self {
        Self {
            id: head.id,
            scope: head.scope,
            status: head.record.status,
            in_doubt: head.in_doubt,
            owner: head.owner,
            epoch: head.epoch,
            claimable_at: head.claimable_at,
            created_at: head.created_at,
        }
    }
}

/// Cleans up a little, so that what is over goes away without anybody asking for it.
pub(crate) fn housekeep(tx: &Tx<'_>) -> Result<(), TaskError> {
    expire_leases(tx, HOUSEKEEPING)?;
    collect_expired(tx, HOUSEKEEPING).map(drop)
}

/// What a client reads of a task in doubt.
pub(crate) const IN_DOUBT: &str =
    "a step outside of this service has an unknown outcome: an operator has to look it up";

fn expire_leases(tx: &Tx<'_>, limit: u32) -> Result<usize, TaskError> {
    let sql = head!("WHERE external_open = 1 AND in_doubt = 0 AND claimable_ms <= ?1 ORDER BY claimable_ms LIMIT ?2");
    let mut lost = Head::all(tx.conn, sql, (tx.now, limit))?;
    let room = limit.saturating_sub(u32::try_from(lost.len()).unwrap_or(u32::MAX));
    // A lease that ends later than it is long was set by a clock that has since gone back.
    let sql = head!(
        "WHERE external_open = 1 AND in_doubt = 0 AND claimable_ms > ?1 AND claimable_ms - ?1 > lease_ms
         ORDER BY claimable_ms LIMIT ?2"
    );
    lost.extend(Head::all(tx.conn, sql, (tx.unreal(), room))?);
    for head in &lost {
        // The epoch goes up without a claim, so that the worker, if it lives, does not write past the operator.
        tx.run(
            "UPDATE ledger_task
             SET in_doubt = 1, lease_owner = NULL, lease_epoch = lease_epoch + 1, lease_losses = lease_losses + 1,
                 status_message = ?2 WHERE id = ?1",
            (head.id.as_str(), IN_DOUBT),
        )?;
        store::touch(tx, &head.id)?;
    }
    Ok(lost.len())
}

/// The clock of the creation set when a task expires, so it is the clock that says whether it has: one that is wrong
/// and far ahead removes nothing until it is confirmed, and after one that was believed, what is new is not removed.
fn collect_expired(tx: &Tx<'_>, limit: u32) -> Result<usize, TaskError> {
    if !tx.is_sure_of_now()? {
        return Ok(0);
    }
    tx.run(
        "DELETE FROM ledger_task WHERE id IN (
             SELECT id FROM ledger_task
             WHERE expires_ms <= :now AND in_doubt = 0
                 AND (status IN ('completed', 'failed', 'cancelled')
                      OR (external_open = 0 AND (claimable_ms <= :now OR claimable_ms - :unreal > lease_ms)))
             ORDER BY expires_ms LIMIT :limit)",
        named_params! { ":now": tx.now, ":unreal": tx.unreal(), ":limit": limit },
    )
}
