//! Decides how clients in many replicas share the durable tasks: as those of a file, with each task locked by who moves it.
//!
//! The revision of a change is the number of its transaction, or one more than the revision before it if that is higher.
//! Who follows the changes sees those below the oldest transaction that is still under way: what commits later has a higher
//! number than all that was seen.

mod operator;
mod port;
mod row;
mod worker;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use steady_core::idempotency::{Key, Scope, State};
use steady_core::task::{Event, Revision};

use super::ledger::{Inner, PgLedger};
use super::record::{self, Call};
use super::tx::Tx;
use super::wire::args;
use crate::effect::decode;
use crate::error::LedgerError;
use crate::record::code;
use crate::request::{Executed, Request};
use crate::task::store::{Decided, corrupt, decide};
use crate::task::watch::{Interest, News};
use crate::task::{Body, Changed, Snapshot, TaskError, TaskId, TaskLimits, TaskSpec, check_text};
use crate::time::millis;
use crate::transaction::settle_at;
use row::Task;

/// The durable tasks of a ledger on PostgreSQL: as [`Tasks`](crate::Tasks), over all replicas. Clones share its
/// connections.
///
/// It is the kernel's [`TaskStore`](steady_core::kernel::tasks::TaskStore) and
/// [`TaskQueue`](steady_core::kernel::tasks::TaskQueue).
#[derive(Clone)]
pub struct PgTasks {
    ledger: PgLedger,
}

impl PgLedger {
    /// The durable tasks in the database.
    #[must_use]
    pub fn tasks(&self) -> PgTasks {
        PgTasks { ledger: self.clone() }
    }
}

impl PgTasks {
    fn inner(&self) -> &Inner {
        &self.ledger.inner
    }

    fn limits(&self) -> TaskLimits {
        self.inner().task_limits
    }

    /// As [`Tasks::create`](crate::Tasks::create). Creations that commit at the same moment do not count each other, so the
    /// cap of a principal can be exceeded by as many.
    ///
    /// # Errors
    ///
    /// As [`Tasks::create`](crate::Tasks::create).
    pub async fn create(&self, request: &Request<'_>, spec: TaskSpec) -> Result<Executed<Snapshot>, TaskError> {
        let spec = self.checked(spec)?;
        let inner = self.inner();
        let call = inner.call(request)?;
        let fingerprint = inner.secret.creation(&call.fingerprint);
        let call = Call { retention_ms: spec.ttl.map_or(i64::MAX, millis), fingerprint, ..call };
        let id = self.new_id()?;
        let tx = inner.begin().await?;
        let created = create(&tx, inner, &call, (&id, &spec), self.limits()).await;
        let created = tx.end(inner, created).await?;
        if !created.is_replay() {
            self.changed(News::WORK).await;
        }
        Ok(created)
    }

    /// As [`Tasks::create_keyless`](crate::Tasks::create_keyless).
    ///
    /// # Errors
    ///
    /// As [`Tasks::create`](crate::Tasks::create), but those of a key.
    pub async fn create_keyless(&self, scope: &Scope, spec: TaskSpec) -> Result<Snapshot, TaskError> {
        let spec = self.checked(spec)?;
        let (inner, id) = (self.inner(), self.new_id()?);
        let tx = inner.begin().await?;
        let created = create_keyless(&tx, scope, (&id, &spec), self.limits()).await;
        let created = tx.end(inner, created).await?;
        self.changed(News::WORK).await;
        Ok(created)
    }

    /// As [`Tasks::get`](crate::Tasks::get), from the primary.
    ///
    /// # Errors
    ///
    /// [`TaskError::Unknown`].
    pub async fn get(&self, principal: &str, id: &TaskId) -> Result<Snapshot, TaskError> {
        let inner = self.inner();
        let tx = inner.begin().await?;
        let found = snapshot(&tx, principal, id).await;
        tx.roll_back().await;
        found
    }

    /// As [`Tasks::cancel`](crate::Tasks::cancel).
    ///
    /// # Errors
    ///
    /// [`TaskError::Unknown`].
    pub async fn cancel(&self, principal: &str, id: &TaskId) -> Result<(), TaskError> {
        let inner = self.inner();
        let tx = inner.begin().await?;
        let done = cancel(&tx, principal, id).await;
        tx.end(inner, done).await?;
        self.changed(News::WORK).await;
        Ok(())
    }

    /// As [`Tasks::update`](crate::Tasks::update).
    ///
    /// # Errors
    ///
    /// [`TaskError::Unknown`]; [`TaskError::TooLarge`] of any of the answers, and then none is stored.
    pub async fn update(
        &self,
        principal: &str,
        id: &TaskId,
        answers: BTreeMap<Box<str>, Body>,
    ) -> Result<(), TaskError> {
        answers.values().try_for_each(|answer| self.check_body(Some(answer)))?;
        let inner = self.inner();
        let tx = inner.begin().await?;
        let done = answer(&tx, principal, id, &answers).await;
        tx.end(inner, done).await?;
        self.changed(News::WORK).await;
        Ok(())
    }

    /// As [`Tasks::changed_since`](crate::Tasks::changed_since), over all replicas: a change shows once every transaction
    /// that began before it is over. Tasks that changed together are named together, which can be more than `limit`.
    ///
    /// # Errors
    ///
    /// [`TaskError::Ledger`].
    pub async fn changed_since(&self, since: Revision, limit: u32) -> Result<Vec<Changed>, TaskError> {
        let conn = self.inner().pool.get().await?;
        let sql = "SELECT id, principal, revision FROM ledger_task
                   WHERE revision > $1 AND revision < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
                   ORDER BY revision FETCH FIRST $2 ROWS WITH TIES";
        let since = i64::try_from(since.number()).unwrap_or(i64::MAX);
        let rows = conn.rows(sql, args![since => INT8, i64::from(limit) => INT8]).await?;
        conn.put_back();
        let changed = rows.iter().map(|row| {
            let id = TaskId::parse(row.get(0)).map_err(|_| corrupt("the id of a task is none"))?;
            Ok(Changed { id, principal: row.get::<_, String>(1).into(), revision: row::revision(row.get(2)) })
        });
        changed.collect()
    }

    /// As [`Tasks::last_revision`](crate::Tasks::last_revision). Changes that are under way, and some that were just made,
    /// come after it.
    ///
    /// # Errors
    ///
    /// [`TaskError::Ledger`].
    pub async fn last_revision(&self) -> Result<Revision, TaskError> {
        let conn = self.inner().pool.get().await?;
        let sql = "SELECT coalesce(max(revision), 0) FROM ledger_task
                   WHERE revision < pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
        let row = conn.first(sql, args![]).await?;
        conn.put_back();
        Ok(row::revision(row.map_or(0, |row| row.get(0))))
    }

    /// As [`Tasks::on_change`](crate::Tasks::on_change). For changes of other replicas see
    /// [`PgLedger::wakes`](crate::PgLedger::wakes).
    ///
    /// # Errors
    ///
    /// [`TaskError::TooManyWatchers`].
    pub fn on_change(&self, callback: &Arc<dyn Fn() + Send + Sync>) -> Result<(), TaskError> {
        self.inner().watchers.add(callback, Interest::Changes)
    }

    /// As [`Tasks::on_work`](crate::Tasks::on_work).
    ///
    /// # Errors
    ///
    /// [`TaskError::TooManyWatchers`].
    pub fn on_work(&self, callback: &Arc<dyn Fn() + Send + Sync>) -> Result<(), TaskError> {
        self.inner().watchers.add(callback, Interest::Work)
    }

    /// Tells whoever waits, here and in other replicas.
    async fn changed(&self, news: News) {
        let inner = self.inner();
        inner.watchers.notify(news);
        if inner.notify
            && let Ok(conn) = inner.pool.get().await
            && conn.run("SELECT pg_notify('ledger_task', '')", args![]).await.is_ok()
        {
            conn.put_back();
        }
    }

    fn new_id(&self) -> Result<TaskId, TaskError> {
        Ok(TaskId::of(self.inner().entropy.bytes()?))
    }

    fn check_body(&self, body: Option<&Body>) -> Result<(), TaskError> {
        let limit = self.limits().max_body;
        if body.is_some_and(|body| body.json().len() > limit) { Err(TaskError::TooLarge { limit }) } else { Ok(()) }
    }

    fn checked(&self, mut spec: TaskSpec) -> Result<TaskSpec, TaskError> {
        check_text(spec.message.as_deref())?;
        self.check_body(spec.payload.as_ref())?;
        let ttl = spec.ttl.into_iter().chain(self.limits().max_ttl).min();
        // The answer to its creation is one that the task has to live to see.
        spec.ttl = ttl.map(|ttl| ttl.max(Duration::from_millis(1)));
        Ok(spec)
    }
}

impl fmt::Debug for PgTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgTasks").finish_non_exhaustive()
    }
}

async fn snapshot(tx: &Tx, principal: &str, id: &TaskId) -> Result<Snapshot, TaskError> {
    let task = Task::of_client(tx, principal, id).await?;
    let inputs = row::inputs(tx, id).await?;
    Ok(task.snapshot(inputs))
}

async fn create(
    tx: &Tx,
    inner: &Inner,
    call: &Call,
    (id, spec): (&TaskId, &TaskSpec),
    limits: TaskLimits,
) -> Result<Executed<Snapshot>, TaskError> {
    lock_key(tx, call).await?;
    let stored = record::lock(tx.wire(), &call.scope, &call.key).await?;
    if let Some(answer) = settle_at(stored, &call.fingerprint, &inner.secret, (tx.shown(), tx.now()))? {
        let id = decode::<Box<str>>(&answer.body).and_then(|text| TaskId::parse(&text).ok());
        let id = id.ok_or(LedgerError::ResultType)?;
        return match snapshot(tx, &call.scope.principal, &id).await {
            // Gone though its key is not: it was removed, and then the clock went back.
            Err(TaskError::Unknown) => Err(LedgerError::ResultExpired.into()),
            found => found.map(Executed::Replayed),
        };
    }
    tx.check_age(inner, &call.key)?;
    admit(tx, &call.scope.principal, limits).await?;
    insert_key(tx, inner, call, format!("\"{id}\"").as_bytes()).await?;
    row::insert(tx, id, &call.scope, Some(&call.key), spec).await?;
    snapshot(tx, &call.scope.principal, id).await.map(Executed::Fresh)
}

/// How long a creation waits for another one with its key. In milliseconds.
const KEY_WAIT: &str = "2000";

/// Waits until nobody else works on the key: the retry of a creation that is committing gets its task.
async fn lock_key(tx: &Tx, call: &Call) -> Result<(), LedgerError> {
    let free = tx.first("SELECT pg_try_advisory_xact_lock($1)", args![call.lock => INT8]).await?;
    if free.is_some_and(|row| row.get(0)) {
        return Ok(());
    }
    tx.first("SELECT set_config('lock_timeout', $1, true)", args![KEY_WAIT => TEXT]).await?;
    let locked = tx.first("SELECT pg_advisory_xact_lock($1)", args![call.lock => INT8]).await;
    match locked {
        Ok(_) => Ok(()),
        Err(LedgerError::Busy { .. }) => Err(LedgerError::InFlight { retry_after: super::run::SOON }),
        Err(error) => Err(error),
    }
}

async fn insert_key(tx: &Tx, inner: &Inner, call: &Call, body: &[u8]) -> Result<(), TaskError> {
    let Call { scope, key, fingerprint, retention_ms, .. } = call;
    let seal = record::seal(&inner.secret, fingerprint, code(State::Committed), body);
    let sql =
        "INSERT INTO ledger_key(principal, operation, key, fingerprint, state, executions, recorded_ms, expires_ms,
                                      result, result_digest)
               VALUES ($1, $2, $3, $4, 2, 1, $5, $6, $7, $8)";
    let values = args![
        &*scope.principal => TEXT, &*scope.operation => TEXT, key.as_str() => TEXT, &fingerprint[..] => BYTEA,
        tx.tick.now => INT8, tx.tick.now.saturating_add(*retention_ms) => INT8, body => BYTEA, &seal[..] => BYTEA,
    ];
    tx.run(sql, values).await?;
    Ok(())
}

async fn create_keyless(
    tx: &Tx,
    scope: &Scope,
    (id, spec): (&TaskId, &TaskSpec),
    limits: TaskLimits,
) -> Result<Snapshot, TaskError> {
    admit(tx, &scope.principal, limits).await?;
    row::insert(tx, id, scope, None::<&Key>, spec).await?;
    snapshot(tx, &scope.principal, id).await
}

/// Makes room, and refuses a principal that has as many live tasks as it may have.
async fn admit(tx: &Tx, principal: &str, limits: TaskLimits) -> Result<(), TaskError> {
    operator::housekeep(tx).await?;
    let limit = limits.live_per_principal;
    let sql = "SELECT count(*) FROM (
                   SELECT 1 FROM ledger_task
                   WHERE principal = $1 AND status IN ('working', 'input_required')
                       AND (expires_ms IS NULL OR expires_ms > $2 OR external_open OR claimable_ms > $2)
                   LIMIT $3) AS live";
    let values = args![principal => TEXT, tx.tick.shown => INT8, i64::from(limit) => INT8];
    let live = tx.first(sql, values).await?.map_or(0, |row| row.get::<_, i64>(0));
    if live >= i64::from(limit) { Err(TaskError::TooMany { limit }) } else { Ok(()) }
}

async fn cancel(tx: &Tx, principal: &str, id: &TaskId) -> Result<(), TaskError> {
    let mut task = Task::of_client(tx, principal, id).await?;
    match decide(task.record(), Event::CancelRequested)? {
        Decided::Write(record) => {
            task.become_(tx, &record, None);
            task.save(tx, true).await
        }
        Decided::Stay | Decided::ObserveCancel => Ok(()),
    }
}

/// Stores the first answers to open inputs. Costs what the task asked, not what the client sent.
async fn answer(tx: &Tx, principal: &str, id: &TaskId, answers: &BTreeMap<Box<str>, Body>) -> Result<(), TaskError> {
    let mut task = Task::of_client(tx, principal, id).await?;
    let open: Vec<_> = row::inputs(tx, id).await?.into_iter().filter(|input| input.response.is_none()).collect();
    let mut count = 0;
    for input in &open {
        let Some(answer) = answers.get(&input.key) else { continue };
        let sql = "UPDATE ledger_task_input SET response = $3
                   WHERE task_id = $1 AND input_key = $2 AND response IS NULL";
        let values = args![id.as_str() => TEXT, &*input.key => TEXT, answer.json() => TEXT];
        count += tx.run(sql, values).await?;
    }
    if count == 0 {
        return Ok(());
    }
    if usize::try_from(count).is_ok_and(|count| count < open.len()) {
        return task.save(tx, true).await;
    }
    match decide(task.record(), Event::InputProvided)? {
        Decided::Write(record) => {
            task.become_(tx, &record, None);
            task.save(tx, true).await
        }
        Decided::Stay | Decided::ObserveCancel => Err(corrupt("a task has open inputs and does not wait")),
    }
}
