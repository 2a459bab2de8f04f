//! Decides how a task lies in the tables. What may become of it is decided by [`steady_core::task::Task`] alone, which
//! is restored from its row for every event: nothing is in flight, as one transaction reads, decides and writes.

use std::cell::Cell;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, named_params};
use steady_core::idempotency::{Key, Scope};
use steady_core::task::{Effect, Event, Record, Revision, Status, Task};
use steady_core::time::WallTime;

use crate::error::LedgerError;
use crate::file::Db;
use crate::task::watch::News;
use crate::task::{Body, Input, Progress, Snapshot, TaskError, TaskId, TaskSpec};
use crate::time::{JUMP, Timekeeper, millis};

/// The current transaction, at one point in time.
pub(crate) struct Tx<'a> {
    pub(crate) db: &'a Db,
    pub(crate) conn: &'a Connection,
    /// What the clock shows, in milliseconds since the Unix epoch.
    pub(crate) now: i64,
    clock: &'a Timekeeper,
    /// Whether something was written that a client can see.
    changed: Cell<bool>,
    /// Whether something was written that a worker may wait for.
    work: Cell<bool>,
}

impl<'a> Tx<'a> {
    pub(crate) fn new(db: &'a Db, clock: &'a Timekeeper) -> Self {
        Self {
            db,
            conn: &db.conn,
            now: clock.shown().unix_millis(),
            clock,
            changed: Cell::new(false),
            work: Cell::new(false),
        }
    }

    /// Whether something may be deleted because of what the clock shows.
    pub(crate) fn is_sure_of_now(&self) -> Result<bool, TaskError> {
        let tick = self.clock.tick(self.conn)?;
        // A clock that was read a moment before is as good.
        Ok(tick.sure && self.now <= tick.shown)
    }

    /// The time from which on a lease that ends is longer than its length.
    pub(crate) const fn unreal(&self) -> i64 {
        self.now.saturating_add(JUMP)
    }

    /// Who is to hear of what was written.
    pub(crate) fn news(&self) -> News {
        News { changed: self.changed.get(), work: self.work.get() }
    }

    /// Notes that a task can be claimed, is to be cancelled, or has an answer.
    pub(crate) fn gives_work(&self) {
        self.work.set(true);
    }

    /// The number of a write that a client can see.
    fn next_revision(&self) -> Result<i64, TaskError> {
        self.changed.set(true);
        let sql = "UPDATE ledger_task_revision SET last = last + 1 RETURNING last";
        Ok(self.conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }

    /// Runs one statement.
    pub(crate) fn run(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, TaskError> {
        Ok(self.conn.prepare_cached(sql)?.execute(params)?)
    }
}

/// What the machine makes of an event.
pub(crate) enum Decided {
    /// The task is to become this.
    Write(Record),
    /// It stays as it is.
    Stay,
    /// It stays, and its worker is to learn that a client wants it to end.
    ObserveCancel,
}

/// Asks the machine. What it refuses to a worker is an error.
pub(crate) fn decide(record: Record, event: Event) -> Result<Decided, TaskError> {
    match Task::restore(record).handle(event) {
        Effect::Persist(record) => Ok(Decided::Write(record)),
        Effect::Acknowledged | Effect::Continue | Effect::Ignored => Ok(Decided::Stay),
        Effect::ObserveCancel => Ok(Decided::ObserveCancel),
        Effect::TooLate(status) => Err(TaskError::Over(status)),
        Effect::NotRequested => Err(TaskError::NotRequested),
        Effect::Deferred | Effect::Announce { .. } => Err(corrupt("a task waits for a write that nobody makes")),
    }
}

pub(crate) const fn corrupt(part: &'static str) -> TaskError {
    TaskError::Ledger(LedgerError::Corrupt { part })
}

const ALL: [Status; 5] = [Status::Working, Status::InputRequired, Status::Completed, Status::Failed, Status::Cancelled];

pub(crate) fn status(text: &str) -> Option<Status> {
    ALL.into_iter().find(|status| status.as_str() == text)
}

/// What is decided by, without the contents.
pub(crate) struct Head {
    pub(crate) id: TaskId,
    pub(crate) scope: Scope,
    pub(crate) record: Record,
    pub(crate) step: i64,
    pub(crate) owner: Option<Box<str>>,
    pub(crate) epoch: u32,
    pub(crate) losses: u32,
    external_open: bool,
    pub(crate) claimable_at: WallTime,
    pub(crate) in_doubt: bool,
    pub(crate) created_at: WallTime,
    expires_ms: Option<i64>,
}

/// The columns of a [`Head`].
macro_rules! head {
    ($rest:literal) => {
        concat!(
            "SELECT id, principal, operation, revision, status, cancel_requested_ms, step, lease_owner, lease_epoch,
                    claimable_ms, in_doubt, created_ms, expires_ms, lease_losses, external_open
             FROM ledger_task ",
            $rest
        )
    };
}
pub(crate) use head;

impl Head {
    /// The task of this id, whosoever it is.
    pub(crate) fn find(conn: &Connection, id: &TaskId) -> Result<Option<Self>, TaskError> {
        let mut statement = conn.prepare_cached(head!("WHERE id = ?1"))?;
        statement.query_row([id.as_str()], Self::read).optional()?.transpose()
    }

    /// The task, if it is this principal's and has not expired.
    pub(crate) fn of_client(tx: &Tx<'_>, principal: &str, id: &TaskId) -> Result<Self, TaskError> {
        let head = Self::find(tx.conn, id)?.filter(|head| *head.scope.principal == *principal);
        head.filter(|head| head.expires_ms.is_none_or(|end| tx.now < end)).ok_or(TaskError::Unknown)
    }

    /// Whether there is work left in it: nobody can answer, cancel or see a task whose life is over, and only an external
    /// step that is open has to be closed yet.
    pub(crate) fn lives(&self, now: i64) -> bool {
        self.external_open || self.expires_ms.is_none_or(|end| now < end)
    }

    /// All that a statement of [`head!`] finds.
    pub(crate) fn all(conn: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Vec<Self>, TaskError> {
        let mut statement = conn.prepare_cached(sql)?;
        let rows = statement.query_map(params, Self::read)?;
        rows.map(|row| row?).collect()
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Result<Self, TaskError>> {
        let Some(status) = status(row.get_ref(4)?.as_str()?) else {
            return Ok(Err(corrupt("the status of a task is none that exists")));
        };
        let Ok(id) = TaskId::parse(row.get_ref(0)?.as_str()?) else {
            return Ok(Err(corrupt("the id of a task is none")));
        };
        let time = |column| row.get(column).map(WallTime::from_unix_millis);
        Ok(Ok(Self {
            id,
            scope: Scope::new(row.get::<_, Box<str>>(1)?, row.get::<_, Box<str>>(2)?),
            record: Record {
                revision: revision(row.get(3)?),
                status,
                cancel_requested: row.get::<_, Option<i64>>(5)?.is_some(),
            },
            step: row.get(6)?,
            owner: row.get(7)?,
            epoch: row.get(8)?,
            claimable_at: time(9)?,
            in_doubt: row.get(10)?,
            created_at: time(11)?,
            expires_ms: row.get(12)?,
            losses: row.get(13)?,
            external_open: row.get(14)?,
        }))
    }
}

pub(crate) fn revision(number: i64) -> Revision {
    Revision::new(u64::try_from(number).unwrap_or(0))
}

/// Creates a task.
pub(crate) fn insert(
    tx: &Tx<'_>,
    id: &TaskId,
    scope: &Scope,
    key: Option<&Key>,
    spec: &TaskSpec,
) -> Result<(), TaskError> {
    let (_, first) = Task::create();
    tx.gives_work();
    tx.run(
        "INSERT INTO ledger_task(id, principal, operation, key, revision, status, status_message, payload, claimable_ms,
                                 created_ms, updated_ms, expires_ms, poll_ms)
         VALUES (:id, :principal, :operation, :key, :revision, :status, :message, :payload, :now, :now, :now, :expires,
                 :poll)",
        named_params! {
            ":id": id.as_str(),
            ":principal": &*scope.principal,
            ":operation": &*scope.operation,
            ":key": key.map(Key::as_str),
            ":revision": tx.next_revision()?,
            ":status": first.status.as_str(),
            ":message": spec.message.as_deref(),
            ":payload": spec.payload.as_ref().map(Body::json),
            ":now": tx.now,
            ":expires": spec.ttl.map(|ttl| tx.now.saturating_add(millis(ttl))),
            ":poll": millis(spec.poll_interval),
        },
    )?;
    Ok(())
}

/// Makes a task what the machine decided. An end takes with it what only the work needed.
///
/// The revision is that of the file, which is not the one that the machine counts: it is higher, and so as good.
pub(crate) fn save(tx: &Tx<'_>, id: &TaskId, record: &Record, outcome: Option<&Body>) -> Result<(), TaskError> {
    let terminal = record.status.is_terminal();
    if terminal {
        tx.run("DELETE FROM ledger_task_input WHERE task_id = ?1", [id.as_str()])?;
    }
    tx.run(
        "UPDATE ledger_task SET
            status = :status,
            cancel_requested_ms = CASE WHEN :cancel THEN coalesce(cancel_requested_ms, :now) END,
            outcome = :outcome,
            payload = CASE WHEN :terminal THEN NULL ELSE payload END,
            external_open = external_open AND NOT :terminal,
            updated_ms = max(updated_ms, :now),
            revision = :revision
         WHERE id = :id",
        named_params! {
            ":id": id.as_str(),
            ":status": record.status.as_str(),
            ":cancel": record.cancel_requested,
            ":outcome": outcome.map(Body::json),
            ":terminal": terminal,
            ":now": tx.now,
            ":revision": tx.next_revision()?,
        },
    )?;
    Ok(())
}

/// Notes a change that leaves the status alone.
pub(crate) fn touch(tx: &Tx<'_>, id: &TaskId) -> Result<(), TaskError> {
    tx.run(
        "UPDATE ledger_task SET updated_ms = max(updated_ms, ?2), revision = ?3 WHERE id = ?1",
        (id.as_str(), tx.now, tx.next_revision()?),
    )?;
    Ok(())
}

/// The progress and the message that are stored.
pub(crate) fn progress(conn: &Connection, id: &TaskId) -> Result<Progress, TaskError> {
    let sql = "SELECT step, progress, status_message FROM ledger_task WHERE id = ?1";
    let read = |row: &Row<'_>| {
        Ok(Progress {
            step: u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0),
            state: body(row, 1)?,
            message: row.get(2)?,
        })
    };
    Ok(conn.prepare_cached(sql)?.query_row([id.as_str()], read)?)
}

/// The task, as its client sees it.
pub(crate) fn snapshot(tx: &Tx<'_>, principal: &str, id: &TaskId) -> Result<Snapshot, TaskError> {
    let head = Head::of_client(tx, principal, id)?;
    let sql = "SELECT updated_ms, poll_ms, outcome FROM ledger_task WHERE id = ?1";
    let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, body(row, 2)?));
    let (updated_ms, poll_ms, outcome) = tx.conn.prepare_cached(sql)?.query_row([id.as_str()], read)?;
    let mut input_requests = inputs(tx.conn, id)?;
    input_requests.retain(|input| input.response.is_none());
    let duration = |millis: i64| Duration::from_millis(u64::try_from(millis).unwrap_or(0));
    let created_ms = head.created_at.unix_millis();
    Ok(Snapshot {
        revision: head.record.revision,
        status: head.record.status,
        cancel_requested: head.record.cancel_requested,
        progress: progress(tx.conn, id)?,
        created_at: head.created_at,
        updated_at: WallTime::from_unix_millis(updated_ms),
        ttl: head.expires_ms.map(|end| duration(end.saturating_sub(created_ms))),
        poll_interval: duration(poll_ms),
        outcome,
        input_requests,
        id: head.id,
    })
}

pub(crate) fn body(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Body>> {
    Ok(row.get::<_, Option<String>>(column)?.map(Body::stored))
}

/// All that a task asked, in the order of the keys.
pub(crate) fn inputs(conn: &Connection, id: &TaskId) -> Result<Vec<Input>, TaskError> {
    let sql = "SELECT input_key, request, response FROM ledger_task_input WHERE task_id = ?1 ORDER BY input_key";
    let read =
        |row: &Row<'_>| Ok(Input { key: row.get(0)?, request: Body::stored(row.get(1)?), response: body(row, 2)? });
    let mut statement = conn.prepare_cached(sql)?;
    Ok(statement.query_map([id.as_str()], read)?.collect::<Result<_, _>>()?)
}
