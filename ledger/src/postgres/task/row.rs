//! Decides how a task lies in the tables: it is read in whole, with its row locked, and written in whole.

use std::time::Duration;

use steady_core::idempotency::{Key, Scope};
use steady_core::task::{Record, Revision, Status};
use steady_core::time::WallTime;
use tokio_postgres::Row;

use crate::postgres::tx::Tx;
use crate::postgres::wire::{Arg, args};
use crate::task::store::{corrupt, status};
use crate::task::{Body, Input, LiveTask, Progress, Snapshot, TaskError, TaskId, TaskSpec};
use crate::time::millis;

/// A task, as it is stored. Times and lengths are in milliseconds.
pub(super) struct Task {
    pub(super) id: TaskId,
    pub(super) scope: Scope,
    pub(super) key: Option<String>,
    revision: i64,
    pub(super) status: Status,
    pub(super) message: Option<String>,
    cancel_requested: Option<i64>,
    pub(super) payload: Option<String>,
    pub(super) step: i64,
    pub(super) progress: Option<String>,
    pub(super) owner: Option<String>,
    pub(super) epoch: i32,
    /// How many leases ran out.
    pub(super) losses: i32,
    pub(super) claimable: i64,
    pub(super) lease: i64,
    pub(super) external_open: bool,
    pub(super) in_doubt: bool,
    outcome: Option<String>,
    created: i64,
    updated: i64,
    expires: Option<i64>,
    poll: i64,
}

/// The columns of a [`Task`].
macro_rules! task {
    ($rest:literal) => {
        concat!(
            "SELECT id, principal, operation, key, revision, status, status_message, cancel_requested_ms, payload, step,
                    progress, lease_owner, lease_epoch, claimable_ms, lease_ms, external_open, in_doubt, outcome,
                    created_ms, updated_ms, expires_ms, poll_ms, lease_losses
             FROM ledger_task ",
            $rest
        )
    };
}
pub(super) use task;

pub(super) fn revision(number: i64) -> Revision {
    Revision::new(u64::try_from(number).unwrap_or(0))
}

impl Task {
    /// The task of this id, whosoever it is. Nobody else moves it until the end of the transaction.
    pub(super) async fn lock(tx: &Tx, id: &TaskId) -> Result<Option<Self>, TaskError> {
        let row = tx.first(task!("WHERE id = $1 FOR UPDATE"), args![id.as_str() => TEXT]).await?;
        row.as_ref().map(Self::read).transpose()
    }

    /// The task, if it is this principal's and has not expired.
    pub(super) async fn of_client(tx: &Tx, principal: &str, id: &TaskId) -> Result<Self, TaskError> {
        let task = Self::lock(tx, id).await?.filter(|task| *task.scope.principal == *principal);
        task.filter(|task| task.expires.is_none_or(|end| tx.tick.shown < end)).ok_or(TaskError::Unknown)
    }

    /// All that a statement of [`task!`] finds.
    pub(super) async fn all(tx: &Tx, sql: &str, args: &[Arg<'_>]) -> Result<Vec<Self>, TaskError> {
        tx.rows(sql, args).await?.iter().map(Self::read).collect()
    }

    pub(super) fn read(row: &Row) -> Result<Self, TaskError> {
        Ok(Self {
            id: TaskId::parse(row.get(0)).map_err(|_| corrupt("the id of a task is none"))?,
            scope: Scope::new(row.get::<_, String>(1), row.get::<_, String>(2)),
            key: row.get(3),
            revision: row.get(4),
            status: status(row.get(5)).ok_or(corrupt("the status of a task is none that exists"))?,
            message: row.get(6),
            cancel_requested: row.get(7),
            payload: row.get(8),
            step: row.get(9),
            progress: row.get(10),
            owner: row.get(11),
            epoch: row.get(12),
            claimable: row.get(13),
            lease: row.get(14),
            external_open: row.get(15),
            in_doubt: row.get(16),
            outcome: row.get(17),
            created: row.get(18),
            updated: row.get(19),
            expires: row.get(20),
            poll: row.get(21),
            losses: row.get(22),
        })
    }

    /// Whether there is work left in it: nobody can answer, cancel or see a task whose life is over, and only an external
    /// step that is open has to be closed yet.
    pub(super) fn lives(&self, tx: &Tx) -> bool {
        self.external_open || self.expires.is_none_or(|end| tx.tick.shown < end)
    }

    /// What the machine decides by.
    pub(super) fn record(&self) -> Record {
        Record {
            revision: revision(self.revision),
            status: self.status,
            cancel_requested: self.cancel_requested.is_some(),
        }
    }

    /// Becomes what the machine decided. An end takes with it what only the work needed.
    pub(super) fn become_(&mut self, tx: &Tx, record: &Record, outcome: Option<&Body>) {
        self.status = record.status;
        self.cancel_requested =
            if record.cancel_requested { self.cancel_requested.or(Some(tx.tick.shown)) } else { None };
        self.outcome = outcome.map(|body| body.json().to_owned());
        if record.status.is_terminal() {
            self.payload = None;
            self.external_open = false;
        }
    }

    /// Writes what it is. With a change that a client can see it gets the next revision.
    pub(super) async fn save(&self, tx: &Tx, visible: bool) -> Result<(), TaskError> {
        if self.status.is_terminal() {
            let sql = "DELETE FROM ledger_task_input WHERE task_id = $1";
            tx.run(sql, args![self.id.as_str() => TEXT]).await?;
        }
        let sql = "UPDATE ledger_task SET
                       status = $2, status_message = $3, cancel_requested_ms = $4, payload = $5, step = $6, progress = $7,
                       lease_owner = $8, lease_epoch = $9, claimable_ms = $10, lease_ms = $11, external_open = $12,
                       in_doubt = $13, outcome = $14, updated_ms = CASE WHEN $16 THEN greatest(updated_ms, $15)
                                                                        ELSE updated_ms END,
                       revision = CASE WHEN $16 THEN greatest(revision + 1, pg_current_xact_id()::text::bigint)
                                       ELSE revision END,
                       lease_losses = $17
                   WHERE id = $1";
        let values = args![
            self.id.as_str() => TEXT, self.status.as_str() => TEXT, self.message => TEXT,
            self.cancel_requested => INT8, self.payload => TEXT, self.step => INT8, self.progress => TEXT,
            self.owner => TEXT, self.epoch => INT4, self.claimable => INT8, self.lease => INT8,
            self.external_open => BOOL, self.in_doubt => BOOL, self.outcome => TEXT, tx.tick.shown => INT8,
            visible => BOOL, self.losses => INT4,
        ];
        Ok(tx.one("a task changed inside a transaction", sql, values).await?)
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            step: u64::try_from(self.step).unwrap_or(0),
            state: self.progress.clone().map(Body::stored),
            message: self.message.clone().map(Into::into),
        }
    }

    pub(super) fn snapshot(self, mut inputs: Vec<Input>) -> Snapshot {
        inputs.retain(|input| input.response.is_none());
        let duration = |millis: i64| Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        Snapshot {
            revision: revision(self.revision),
            status: self.status,
            cancel_requested: self.cancel_requested.is_some(),
            progress: self.progress(),
            created_at: WallTime::from_unix_millis(self.created),
            updated_at: WallTime::from_unix_millis(self.updated),
            ttl: self.expires.map(|end| duration(end.saturating_sub(self.created))),
            poll_interval: duration(self.poll),
            outcome: self.outcome.map(Body::stored),
            input_requests: inputs,
            id: self.id,
        }
    }

    pub(super) fn live(self) -> LiveTask {
        LiveTask {
            id: self.id,
            scope: self.scope,
            status: self.status,
            in_doubt: self.in_doubt,
            owner: self.owner.map(Into::into),
            epoch: u32::try_from(self.epoch).unwrap_or(0),
            claimable_at: WallTime::from_unix_millis(self.claimable),
            created_at: WallTime::from_unix_millis(self.created),
        }
    }
}

/// Creates a task.
pub(super) async fn insert(
    tx: &Tx,
    id: &TaskId,
    scope: &Scope,
    key: Option<&Key>,
    spec: &TaskSpec,
) -> Result<(), TaskError> {
    let (_, first) = steady_core::task::Task::create();
    let sql = "INSERT INTO ledger_task(id, principal, operation, key, revision, status, status_message, payload,
                                       claimable_ms, created_ms, updated_ms, expires_ms, poll_ms)
               VALUES ($1, $2, $3, $4, pg_current_xact_id()::text::bigint, $5, $6, $7, $8, $8, $8, $9, $10)";
    let now = tx.tick.shown;
    let expires = spec.ttl.map(|ttl| now.saturating_add(millis(ttl)));
    let values = args![
        id.as_str() => TEXT, &*scope.principal => TEXT, &*scope.operation => TEXT, key.map(Key::as_str) => TEXT,
        first.status.as_str() => TEXT, spec.message.as_deref() => TEXT, spec.payload.as_ref().map(Body::json) => TEXT,
        now => INT8, expires => INT8, millis(spec.poll_interval) => INT8,
    ];
    tx.run(sql, values).await?;
    Ok(())
}

/// All that a task asked, in the order of the keys.
pub(super) async fn inputs(tx: &Tx, id: &TaskId) -> Result<Vec<Input>, TaskError> {
    let sql = "SELECT input_key, request, response FROM ledger_task_input WHERE task_id = $1 ORDER BY input_key";
    let rows = tx.rows(sql, args![id.as_str() => TEXT]).await?;
    let read = |row: &Row| Input {
        key: row.get::<_, String>(0).into(),
        request: Body::stored(row.get(1)),
        response: row.get::<_, Option<String>>(2).map(Body::stored),
    };
    Ok(rows.iter().map(read).collect())
}
