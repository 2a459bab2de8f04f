//! Decides what a client's requests do to a task. A client names itself with every request; a task of another is as
//! unknown to it as one that never existed.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::named_params;
use steady_core::idempotency::{Scope, State};
use steady_core::task::{Event, Revision};

use crate::effect::decode;
use crate::error::LedgerError;
use crate::record::{self, Call};
use crate::request::{Executed, Request};
use crate::task::operator::housekeep;
use crate::task::store::{self, Decided, Head, Tx, decide};
use crate::task::watch::Interest;
use crate::task::{Body, Changed, Snapshot, TaskError, TaskId, TaskLimits, TaskSpec, Tasks, Work, check_text};
use crate::time::millis;
use crate::transaction::settle;

impl Tasks {
    /// Creates a task for the key of `request`, or finds the one that was created for it: a retry with the same
    /// arguments gets the same id, also of a task that is over. The answer is durable (rule K1).
    ///
    /// # Errors
    ///
    /// [`TaskError::TooMany`], [`TaskError::TooLarge`]; [`LedgerError::Mismatch`] for other arguments,
    /// and for a key of a call that is no task, as for a call with the key of a task; [`LedgerError::ResultExpired`] once the task has expired, and what else [`Ledger::execute`] says of a key.
    ///
    /// [`Ledger::execute`]: crate::Ledger::execute
    pub fn create(&self, request: &Request<'_>, spec: TaskSpec) -> Result<Executed<Snapshot>, TaskError> {
        let creation = self.creation(request, spec)?;
        match self.read(|tx| replay(tx, &creation.call))? {
            Some(found) => Ok(Executed::Replayed(found)),
            None => self.wait(Ok(self.creating(creation))),
        }
    }

    /// As [`Tasks::create`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::create`].
    pub fn create_async(
        &self,
        request: &Request<'_>,
        spec: TaskSpec,
    ) -> impl Future<Output = Result<Executed<Snapshot>, TaskError>> + Send + use<> {
        self.submit(self.creation(request, spec).map(|creation| self.creating(creation)))
    }

    /// Creates a task. **Every call creates one**, also a retry of a call that succeeded.
    ///
    /// # Errors
    ///
    /// As [`Tasks::create`], but those of a key.
    pub fn create_keyless(&self, scope: &Scope, spec: TaskSpec) -> Result<Snapshot, TaskError> {
        self.wait(self.creating_keyless(scope, spec))
    }

    /// As [`Tasks::create_keyless`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::create_keyless`].
    pub fn create_keyless_async(
        &self,
        scope: &Scope,
        spec: TaskSpec,
    ) -> impl Future<Output = Result<Snapshot, TaskError>> + Send + use<> {
        self.submit(self.creating_keyless(scope, spec))
    }

    /// The task as it is stored (rule K4).
    ///
    /// # Errors
    ///
    /// [`TaskError::Unknown`].
    pub fn get(&self, principal: &str, id: &TaskId) -> Result<Snapshot, TaskError> {
        self.read(|tx| store::snapshot(tx, principal, id))
    }

    /// As [`Tasks::get`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::get`].
    pub fn get_async(
        &self,
        principal: &str,
        id: &TaskId,
    ) -> impl Future<Output = Result<Snapshot, TaskError>> + Send + use<> {
        let (principal, id) = (Box::from(principal), id.clone());
        self.submit(Ok(self.unit("tasks/get", move |tx| store::snapshot(tx, &principal, &id))))
    }

    /// Records that the task is to be cancelled. Its worker learns of it at the next checkpoint, and may still finish
    /// (rule K3). A task that is over stays as it is, and the request succeeds.
    ///
    /// # Errors
    ///
    /// [`TaskError::Unknown`].
    pub fn cancel(&self, principal: &str, id: &TaskId) -> Result<(), TaskError> {
        self.wait(Ok(self.cancelling(principal, id)))
    }

    /// As [`Tasks::cancel`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::cancel`].
    pub fn cancel_async(
        &self,
        principal: &str,
        id: &TaskId,
    ) -> impl Future<Output = Result<(), TaskError>> + Send + use<> {
        self.submit(Ok(self.cancelling(principal, id)))
    }

    /// Answers what the task asked. The first answer to a key stays; keys that it did not ask, or that have an answer,
    /// are ignored (rule K4). With the last answer the task works again.
    ///
    /// # Errors
    ///
    /// [`TaskError::Unknown`]; [`TaskError::TooLarge`] of any of the answers, and then none is stored.
    pub fn update(&self, principal: &str, id: &TaskId, answers: BTreeMap<Box<str>, Body>) -> Result<(), TaskError> {
        self.wait(self.updating(principal, id, answers))
    }

    /// As [`Tasks::update`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::update`].
    pub fn update_async(
        &self,
        principal: &str,
        id: &TaskId,
        answers: BTreeMap<Box<str>, Body>,
    ) -> impl Future<Output = Result<(), TaskError>> + Send + use<> {
        self.submit(self.updating(principal, id, answers))
    }

    /// The tasks that changed after this revision, oldest change first, at most `limit` of them. Each is named once, with
    /// its last change: go on after the last one. Tasks that were removed are not named.
    ///
    /// Changes of other processes are here too: whoever waits for those has to ask now and then.
    ///
    /// # Errors
    ///
    /// [`TaskError::Ledger`].
    pub fn changed_since(&self, since: Revision, limit: u32) -> Result<Vec<Changed>, TaskError> {
        self.read(|tx| changed_since(tx, since, limit))
    }

    /// As [`Tasks::changed_since`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::changed_since`].
    pub fn changed_since_async(
        &self,
        since: Revision,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<Changed>, TaskError>> + Send + use<> {
        self.submit(Ok(self.unit("tasks/changed", move |tx| changed_since(tx, since, limit))))
    }

    /// The last change of any task: where [`Tasks::changed_since`] starts for those who know the present.
    ///
    /// # Errors
    ///
    /// [`TaskError::Ledger`].
    pub fn last_revision(&self) -> Result<Revision, TaskError> {
        self.read(last_revision)
    }

    /// As [`Tasks::last_revision`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::last_revision`].
    pub fn last_revision_async(&self) -> impl Future<Output = Result<Revision, TaskError>> + Send + use<> {
        self.submit(Ok(self.unit("tasks/changed", last_revision)))
    }

    /// Calls `callback` whenever this handle or a clone of it changed a task, once that is durable and before the one who
    /// changed it is answered. Tasks that changed together may share a call. It runs on the ledger's writer, so it must
    /// be short: a flag, a waker. From inside of it, this ledger answers [`LedgerError::Reentrant`]. It ends when the
    /// last other owner drops it.
    ///
    /// # Errors
    ///
    /// [`TaskError::TooManyWatchers`].
    pub fn on_change(&self, callback: &Arc<dyn Fn() + Send + Sync>) -> Result<(), TaskError> {
        self.ledger.inner.task_watchers.add(callback, Interest::Changes)
    }

    /// As [`on_change`](Self::on_change), after what a worker waits for only: a task was created or released, is to be
    /// cancelled, or has an answer.
    ///
    /// # Errors
    ///
    /// [`TaskError::TooManyWatchers`].
    pub fn on_work(&self, callback: &Arc<dyn Fn() + Send + Sync>) -> Result<(), TaskError> {
        self.ledger.inner.task_watchers.add(callback, Interest::Work)
    }

    fn check_spec(&self, spec: &mut TaskSpec) -> Result<(), TaskError> {
        check_text(spec.message.as_deref())?;
        self.check_body(spec.payload.as_ref())?;
        let ttl = spec.ttl.into_iter().chain(self.limits().max_ttl).min();
        // The answer to its creation is one that the task has to live to see.
        spec.ttl = ttl.map(|ttl| ttl.max(Duration::from_millis(1)));
        Ok(())
    }

    pub(super) fn creation(&self, request: &Request<'_>, mut spec: TaskSpec) -> Result<Creation, TaskError> {
        self.check_spec(&mut spec)?;
        let retention_ms = spec.ttl.map_or(i64::MAX, millis);
        let call = self.ledger.call(request)?;
        let fingerprint = self.ledger.secret().creation(&call.fingerprint);
        let call = Call { retention_ms, fingerprint, ..call };
        Ok(Creation { call, id: self.new_id()?, spec })
    }

    fn new_id(&self) -> Result<TaskId, TaskError> {
        Ok(TaskId::of(self.ledger.inner.entropy.bytes()?))
    }

    pub(super) fn creating(&self, creation: Creation) -> Work<Executed<Snapshot>> {
        let limits = self.limits();
        let creation = Arc::new(creation);
        let later = Arc::clone(&creation);
        let operation = Arc::clone(&creation);
        let unit = self.unit(&operation.call.scope.operation, move |tx| creation.run(tx, limits));
        self.look_up(unit, move |tx| {
            let found = replay(tx, &later.call)?;
            Ok(found.map(|task| if task.id == later.id { Executed::Fresh(task) } else { Executed::Replayed(task) }))
        })
    }

    pub(super) fn creating_keyless(&self, scope: &Scope, mut spec: TaskSpec) -> Result<Work<Snapshot>, TaskError> {
        self.check_spec(&mut spec)?;
        let (limits, id, scope) = (self.limits(), self.new_id()?, Arc::new(scope.clone()));
        let (later, same) = (id.clone(), Arc::clone(&scope));
        let operation = Arc::clone(&scope);
        let unit = self.unit(&operation.operation, move |tx| {
            admit(tx, &scope.principal, limits)?;
            store::insert(tx, &id, &scope, None, &spec)?;
            store::snapshot(tx, &scope.principal, &id)
        });
        Ok(self.look_up(unit, move |tx| found(store::snapshot(tx, &same.principal, &later))))
    }

    pub(super) fn cancelling(&self, principal: &str, id: &TaskId) -> Work<()> {
        let (principal, id): (Box<str>, _) = (principal.into(), id.clone());
        let (by, later) = (principal.clone(), id.clone());
        let unit = self.unit("tasks/cancel", move |tx| {
            let head = Head::of_client(tx, &principal, &id)?;
            match decide(head.record, Event::CancelRequested)? {
                Decided::Write(record) => {
                    tx.gives_work();
                    store::save(tx, &id, &record, None)
                }
                Decided::Stay | Decided::ObserveCancel => Ok(()),
            }
        });
        // Also of a call that was refused: another caller's task is as unknown here.
        self.look_up(unit, move |tx| {
            let head = Head::of_client(tx, &by, &later)?;
            let done = head.record.cancel_requested || head.record.status.is_terminal();
            Ok(done.then_some(()))
        })
    }

    fn updating(&self, principal: &str, id: &TaskId, answers: BTreeMap<Box<str>, Body>) -> Result<Work<()>, TaskError> {
        answers.values().try_for_each(|answer| self.check_body(Some(answer)))?;
        let (principal, id): (Box<str>, _) = (principal.into(), id.clone());
        Ok(self.unit("tasks/update", move |tx| answer(tx, &principal, &id, &answers)))
    }
}

/// A task that is to be, with its key.
pub(super) struct Creation {
    pub(super) call: Call,
    pub(super) id: TaskId,
    pub(super) spec: TaskSpec,
}

impl Creation {
    fn run(&self, tx: &Tx<'_>, limits: TaskLimits) -> Result<Executed<Snapshot>, TaskError> {
        let Self { call, id, spec } = self;
        if let Some(found) = replay(tx, call)? {
            return Ok(Executed::Replayed(found));
        }
        call.check_age(tx.conn)?;
        admit(tx, &call.scope.principal, limits)?;
        record::insert(tx.conn, call, State::Committed, format!("\"{id}\"").as_bytes())?;
        store::insert(tx, id, &call.scope, Some(&call.key), spec)?;
        store::snapshot(tx, &call.scope.principal, id).map(Executed::Fresh)
    }
}

/// The task of a key; none if the key is new.
fn replay(tx: &Tx<'_>, call: &Call) -> Result<Option<Snapshot>, TaskError> {
    let Some(answer) = settle(record::find(tx.conn, &call.scope, &call.key)?, call)? else {
        return Ok(None);
    };
    let id = decode::<Box<str>>(&answer.body).and_then(|text| TaskId::parse(&text).ok());
    let id = id.ok_or(LedgerError::ResultType)?;
    // Gone though its key is not: it was removed, and then the clock went back.
    found(store::snapshot(tx, &call.scope.principal, &id))?.map(Some).ok_or(LedgerError::ResultExpired.into())
}

fn found<T>(task: Result<T, TaskError>) -> Result<Option<T>, TaskError> {
    match task {
        Err(TaskError::Unknown) => Ok(None),
        other => other.map(Some),
    }
}

/// Makes room, and refuses a principal that has as many live tasks as it may have.
fn admit(tx: &Tx<'_>, principal: &str, limits: TaskLimits) -> Result<(), TaskError> {
    housekeep(tx)?;
    let sql = "SELECT count(*) FROM (
                  SELECT 1 FROM ledger_task
                  WHERE principal = :principal AND status IN ('working', 'input_required')
                      AND (expires_ms IS NULL OR expires_ms > :now OR external_open = 1 OR claimable_ms > :now)
                  LIMIT :limit)";
    let limit = limits.live_per_principal;
    let params = named_params! { ":principal": principal, ":now": tx.now, ":limit": limit };
    let live: u32 = tx.conn.prepare_cached(sql)?.query_row(params, |row| row.get(0))?;
    if live >= limit { Err(TaskError::TooMany { limit }) } else { Ok(()) }
}

/// Stores the first answers to open inputs. Costs what the task asked, not what the client sent.
fn answer(tx: &Tx<'_>, principal: &str, id: &TaskId, answers: &BTreeMap<Box<str>, Body>) -> Result<(), TaskError> {
    let head = Head::of_client(tx, principal, id)?;
    let sql = "SELECT input_key FROM ledger_task_input WHERE task_id = ?1 AND response IS NULL";
    let open: Vec<Box<str>> =
        tx.conn.prepare_cached(sql)?.query_map([id.as_str()], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let answered = open.iter().filter_map(|key| Some((key, answers.get(key)?)));
    let mut count = 0;
    for (key, answer) in answered {
        let sql = "UPDATE ledger_task_input SET response = ?3 WHERE task_id = ?1 AND input_key = ?2";
        count += tx.run(sql, (id.as_str(), &**key, answer.json()))?;
    }
    if count == 0 {
        return Ok(());
    }
    tx.gives_work();
    if count < open.len() {
        return store::touch(tx, id);
    }
    match decide(head.record, Event::InputProvided)? {
        Decided::Write(record) => store::save(tx, id, &record, None),
        Decided::Stay | Decided::ObserveCancel => Err(store::corrupt("a task has open inputs and does not wait")),
    }
}

fn last_revision(tx: &Tx<'_>) -> Result<Revision, TaskError> {
    let sql = "SELECT last FROM ledger_task_revision";
    Ok(store::revision(tx.conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?))
}

fn changed_since(tx: &Tx<'_>, since: Revision, limit: u32) -> Result<Vec<Changed>, TaskError> {
    let sql = "SELECT id, principal, revision FROM ledger_task WHERE revision > ?1 ORDER BY revision LIMIT ?2";
    let mut statement = tx.conn.prepare_cached(sql)?;
    let since = i64::try_from(since.number()).unwrap_or(i64::MAX);
    let rows = statement.query_map((since, limit), |row| {
        let id = TaskId::parse(row.get_ref(0)?.as_str()?);
        Ok((id, row.get(1)?, store::revision(row.get(2)?)))
    })?;
    rows.map(|row| {
        let (id, principal, revision) = row?;
        Ok(Changed { id: id.map_err(|_| store::corrupt("the id of a task is none"))?, principal, revision })
    })
    .collect()
}
