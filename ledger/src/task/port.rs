//! Decides how the tasks of a ledger look to the kernel's ports: the server that answers clients and the workers need not
//! know which store they have.

use std::future::{Future, Ready};
use std::sync::Arc;
use std::time::Duration;

use steady_core::idempotency::Scope;
use steady_core::kernel::tasks::{
    Claim, Created, Known, Lease as PortLease, NewTask, OnChange, Progress as PortProgress, Stored, TaskChange,
    TaskEnd, TaskInput, TaskQueue, TaskState, TaskStore, TaskStoreError,
};
use steady_core::task::Revision;

use crate::error::LedgerError;
use crate::request::Request;
use crate::task::lease::End;
use crate::task::{
    Body, Changed, Checkpoint, Claimed, Input, Lease, Progress, Snapshot, TaskError, TaskId, TaskSpec, Tasks,
};

impl TaskStore for Tasks {
    fn create(&self, task: NewTask<'_>) -> Stored<Created> {
        let NewTask { principal, operation, key, arguments, exclude, payload, ttl, poll_interval, message } = task;
        let payload = match Body::from_json(&payload) {
            Ok(payload) => Some(payload),
            Err(error) => return answer(Err::<Ready<Result<Created, _>>, _>(error)),
        };
        let spec = TaskSpec { ttl, poll_interval, message, payload };
        let scope = Scope::new(principal, operation);
        let Some(key) = key else {
            let creating = self.create_keyless_async(&scope, spec);
            return answer(Ok(async move { Ok(Created { task: creating.await?.into(), replayed: false }) }));
        };
        let creating = self.create_async(&Request::new(&scope, key, arguments).exclude(exclude), spec);
        answer(Ok(async move {
            let executed = creating.await?;
            let replayed = executed.is_replay();
            Ok(Created { task: executed.into_inner().into(), replayed })
        }))
    }

    fn get(&self, principal: &str, id: &str) -> Stored<TaskState> {
        let getting = TaskId::parse(id).map(|id| self.get_async(principal, &id));
        answer(getting.map(|getting| async move { Ok(getting.await?.into()) }))
    }

    fn update(&self, principal: &str, id: &str, answers: Vec<(Box<str>, Box<str>)>) -> Stored<()> {
        let read = TaskId::parse(id).and_then(|id| Ok((id, bodies(answers)?.into_iter().collect())));
        answer(read.map(|(id, answers)| self.update_async(principal, &id, answers)))
    }

    fn cancel(&self, principal: &str, id: &str) -> Stored<()> {
        answer(TaskId::parse(id).map(|id| self.cancel_async(principal, &id)))
    }

    fn changed_since(&self, since: Revision, limit: u32) -> Stored<Vec<TaskChange>> {
        let changed = self.changed_since_async(since, limit);
        answer(Ok(async move { Ok(changed.await?.into_iter().map(change).collect()) }))
    }

    fn last_revision(&self) -> Stored<Revision> {
        answer(Ok(self.last_revision_async()))
    }

    fn on_change(&self, callback: &Arc<OnChange>) -> Result<(), TaskStoreError> {
        Self::on_change(self, callback).map_err(|error| port_error(&error))
    }
}

impl TaskQueue for Tasks {
    fn claim(&self, operations: &[&str], owner: &str, lease: Duration) -> Stored<Option<Claim>> {
        let claimed = self.claim_async(operations, owner, lease);
        answer(Ok(async move { Ok(claimed.await?.map(Claim::from)) }))
    }

    fn checkpoint(&self, lease: &PortLease, progress: PortProgress) -> Stored<Known> {
        let read = Lease::try_from(lease).and_then(|lease| Ok((lease, progress_of(progress)?)));
        let checkpoint = read.map(|(lease, progress)| self.checkpoint_async(&lease, progress));
        answer(checkpoint.map(|checkpoint| async move { Ok(known_of(checkpoint.await?)) }))
    }

    fn ask(&self, lease: &PortLease, inputs: Vec<(Box<str>, Box<str>)>) -> Stored<()> {
        let read = Lease::try_from(lease).and_then(|lease| Ok((lease, bodies(inputs)?)));
        answer(read.map(|(lease, inputs)| self.ask_async(&lease, inputs)))
    }

    fn external(&self, lease: &PortLease, open: bool) -> Stored<()> {
        answer(Lease::try_from(lease).map(|lease| self.submit(Ok(self.external(&lease, open)))))
    }

    fn finish(&self, lease: &PortLease, end: TaskEnd) -> Stored<()> {
        let read = Lease::try_from(lease).and_then(|lease| Ok((lease, end_of(end)?)));
        answer(read.map(|(lease, end)| self.submit(self.finishing(&lease, end))))
    }

    fn release(&self, lease: &PortLease) -> Stored<()> {
        answer(Lease::try_from(lease).map(|lease| self.release_async(&lease)))
    }

    fn on_change(&self, callback: &Arc<OnChange>) -> Result<(), TaskStoreError> {
        self.on_work(callback).map_err(|error| port_error(&error))
    }
}

/// The answer to work that was handed over, or why it could not be.
fn answer<T: 'static>(
    work: Result<impl Future<Output = Result<T, TaskError>> + Send + 'static, TaskError>,
) -> Stored<T> {
    let work = work.map_err(|error| port_error(&error));
    Box::pin(async move { work?.await.map_err(|error| port_error(&error)) })
}

pub(crate) fn change(change: Changed) -> TaskChange {
    let Changed { id, principal, revision } = change;
    TaskChange { principal, id: id.as_str().into(), revision }
}

pub(crate) fn progress_of(progress: PortProgress) -> Result<Progress, TaskError> {
    let PortProgress { step, state, message } = progress;
    Ok(Progress { step, state: state.map(|json| Body::from_json(&json)).transpose()?, message })
}

pub(crate) fn known_of(checkpoint: Checkpoint) -> Known {
    let Checkpoint { cancel_requested, stored, inputs } = checkpoint;
    Known { cancel_requested, stored, inputs: ported(inputs) }
}

pub(crate) fn end_of(end: TaskEnd) -> Result<End, TaskError> {
    Ok(match end {
        TaskEnd::Complete(result) => End::Complete(Body::from_json(&result)?),
        TaskEnd::Fail(error) => End::Fail(Body::from_json(&error)?),
        TaskEnd::Cancel => End::Cancel,
    })
}

pub(crate) fn bodies(texts: Vec<(Box<str>, Box<str>)>) -> Result<Vec<(Box<str>, Body)>, TaskError> {
    texts.into_iter().map(|(key, json)| Ok((key, Body::from_json(&json)?))).collect()
}

fn ported(inputs: Vec<Input>) -> Vec<TaskInput> {
    let input = |input: Input| TaskInput {
        key: input.key,
        request: input.request.into_json(),
        response: input.response.map(Body::into_json),
    };
    inputs.into_iter().map(input).collect()
}

impl From<Snapshot> for TaskState {
    fn from(task: Snapshot) -> Self {
        let open = task.input_requests.into_iter().map(|input| (input.key, input.request.into_json()));
        Self {
            id: task.id.as_str().into(),
            revision: task.revision,
            status: task.status,
            cancel_requested: task.cancel_requested,
            message: task.progress.message,
            created_at: task.created_at,
            updated_at: task.updated_at,
            ttl: task.ttl,
            poll_interval: task.poll_interval,
            outcome: task.outcome.map(Body::into_json),
            input_requests: open.collect(),
        }
    }
}

impl From<Claimed> for Claim {
    fn from(task: Claimed) -> Self {
        let Claimed { lease, lost_leases, scope, key, payload, progress, cancel_requested, inputs } = task;
        let Progress { step, state, message } = progress;
        Self {
            lease: lease.into(),
            lost_leases,
            principal: scope.principal,
            key,
            payload: payload.map(Body::into_json),
            progress: PortProgress { step, state: state.map(Body::into_json), message },
            known: Known { cancel_requested, stored: false, inputs: ported(inputs) },
        }
    }
}

impl From<Lease> for PortLease {
    fn from(lease: Lease) -> Self {
        let Lease { task, operation, owner, epoch, duration } = lease;
        Self { task: task.as_str().into(), operation, owner, epoch, duration }
    }
}

/// For a worker of the kernel that wants an effect in the transaction of its checkpoint:
/// [`Tasks::checkpoint_with`](crate::Tasks::checkpoint_with).
impl TryFrom<&PortLease> for Lease {
    type Error = TaskError;

    fn try_from(lease: &PortLease) -> Result<Self, TaskError> {
        let PortLease { task, operation, owner, epoch, duration } = lease.clone();
        Ok(Self { task: TaskId::parse(&task)?, operation, owner, epoch, duration })
    }
}

/// How long a caller is asked to wait for a store that is busy.
const SOON: Duration = Duration::from_millis(100);

/// What a client or worker of the port has to know. No message holds a key, an argument or a result.
pub(crate) fn port_error(error: &TaskError) -> TaskStoreError {
    match error {
        TaskError::Unknown => TaskStoreError::Unknown,
        TaskError::TooMany { limit } => TaskStoreError::TooMany { limit: *limit },
        TaskError::TooLarge { limit } => TaskStoreError::TooLarge { limit: *limit },
        TaskError::LeaseLost => TaskStoreError::LeaseLost,
        TaskError::Over(status) => TaskStoreError::Over(*status),
        TaskError::NotRequested
        | TaskError::NoInput
        | TaskError::InputKeyUsed
        | TaskError::TooManyInputs { .. }
        | TaskError::NotInDoubt
        | TaskError::Encoding => TaskStoreError::Refused(error.to_string().into()),
        TaskError::TooManyWatchers { .. } => TaskStoreError::Unavailable(error.to_string().into()),
        TaskError::Ledger(error) => ledger_error(error),
    }
}

impl From<&TaskError> for TaskStoreError {
    fn from(error: &TaskError) -> Self {
        port_error(error)
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what is not the caller's fault is the store's, new kinds too")]
fn ledger_error(error: &LedgerError) -> TaskStoreError {
    let kind = match error {
        LedgerError::Mismatch => "idempotency_key_conflict",
        LedgerError::InFlight { retry_after } => {
            return TaskStoreError::Busy { retry_after: *retry_after, message: error.to_string().into() };
        }
        // Nothing was done.
        LedgerError::Busy { .. } => {
            return TaskStoreError::Busy { retry_after: SOON, message: error.to_string().into() };
        }
        LedgerError::InDoubt => "idempotency_key_in_doubt",
        LedgerError::ResultExpired => "idempotency_result_expired",
        LedgerError::InvalidKey { .. } | LedgerError::KeyTooOld => "idempotency_key_invalid",
        LedgerError::InvalidArguments(_) => "invalid_arguments",
        LedgerError::NotFinal => return TaskStoreError::Refused(error.to_string().into()),
        _ => return TaskStoreError::Unavailable(error.to_string().into()),
    };
    TaskStoreError::Key { kind, message: error.to_string().into() }
}
