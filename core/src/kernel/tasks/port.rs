//! What durable tasks need from a store: one half for the server that answers clients, one for the workers that do the work.
//!
//! Every future is that of work handed over when the method was called: it is done even if the future is dropped, and what
//! it resolves to is durable. Bodies are JSON text. No method may block the thread that calls it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::idempotency::Key;
use crate::kernel::BoxFuture;
use crate::task::{Revision, Status};
use crate::time::WallTime;

/// What a store answers.
pub type Stored<T> = BoxFuture<Result<T, TaskStoreError>>;

/// What is called after changes; it is short, blocks on nothing and calls no store.
pub type OnChange = dyn Fn() + Send + Sync;

/// The server's half of a store (rules K1 to K6). A client is its `principal`, and sees its own tasks only (rule K5).
pub trait TaskStore: Send + Sync + 'static {
    /// Creates a task, or finds the one that this key made before: a retry with the same arguments gets the same id, also
    /// of a task that is over. Without a key every call creates one. Ids are unguessable.
    fn create(&self, task: NewTask<'_>) -> Stored<Created>;

    /// The task as it is stored (rule K4).
    fn get(&self, principal: &str, id: &str) -> Stored<TaskState>;

    /// Answers what the task asked, by key. The first answer to a key stays; keys that it did not ask or that have an
    /// answer are ignored. With the last answer the task works again (rule K4).
    fn update(&self, principal: &str, id: &str, answers: Vec<(Box<str>, Box<str>)>) -> Stored<()>;

    /// Records that the task is to be cancelled, and nothing else; a task that is over stays as it is (rule K3).
    fn cancel(&self, principal: &str, id: &str) -> Stored<()>;

    /// The tasks that changed after `since`, oldest change first, at most `limit`; each is named once, with its last
    /// change. Changes become visible in the order of their revisions, those of other processes too.
    fn changed_since(&self, since: Revision, limit: u32) -> Stored<Vec<TaskChange>>;

    /// The last change of any task: where [`changed_since`](Self::changed_since) starts for those who know the present.
    fn last_revision(&self) -> Stored<Revision>;

    /// Calls `callback` after this process changed a task, until its last other owner drops it. A store that has no room
    /// for one more refuses: whoever waits has to ask now and then anyhow, for the changes of other processes.
    ///
    /// # Errors
    /// [`TaskStoreError::Unavailable`].
    fn on_change(&self, callback: &Arc<OnChange>) -> Result<(), TaskStoreError>;
}

/// The workers' half of a store.
pub trait TaskQueue: Send + Sync + 'static {
    /// Takes the task of one of these operations that waits longest, for as long as `lease`. One whose lease is over waits
    /// again, unless an external step is open.
    fn claim(&self, operations: &[&str], owner: &str, lease: Duration) -> Stored<Option<Claim>>;

    /// Stores the progress, if its step is higher than the stored one, extends the lease, and tells what the worker has to
    /// know. Step 0 only extends. A task whose life is over, with no external step open, is no work any more: its lease is
    /// lost, as nobody can answer, cancel or see it.
    fn checkpoint(&self, lease: &Lease, progress: Progress) -> Stored<Known>;

    /// Asks the client for inputs, by key; a key is used once in a task (rule K4). Extends the lease.
    fn ask(&self, lease: &Lease, inputs: Vec<(Box<str>, Box<str>)>) -> Stored<()>;

    /// Notes that a step outside of the store begins or is done. Extends the lease. A worker that is lost while one is
    /// open leaves the task in doubt, and nobody runs it again unasked.
    fn external(&self, lease: &Lease, open: bool) -> Stored<()>;

    /// Ends the task, in one compare-and-set: the first end stays (`TASK-4`).
    fn finish(&self, lease: &Lease, end: TaskEnd) -> Stored<()>;

    /// Gives the task up, so that another worker need not wait for the end of the lease. It does not count as a lease that
    /// was lost.
    fn release(&self, lease: &Lease) -> Stored<()>;

    /// As [`TaskStore::on_change`], but after changes that a worker waits for only: a task was created or released, is to be
    /// cancelled, or has an answer. Not after progress, or every step of one worker would wake all others.
    ///
    /// # Errors
    /// [`TaskStoreError::Unavailable`].
    fn on_change(&self, callback: &Arc<OnChange>) -> Result<(), TaskStoreError>;
}

/// A task that is to be.
#[derive(Clone)]
#[expect(clippy::exhaustive_structs, reason = "what a server fills in")]
pub struct NewTask<'a> {
    /// The authenticated caller, on stdio a configured one; empty if there is none.
    pub principal: &'a str,
    /// The tool's name: it scopes the key, and workers claim by it.
    pub operation: &'a str,
    /// The business key.
    pub key: Option<&'a Key>,
    /// The raw arguments, by which a retry is told from another call of the same key. They are not stored.
    pub arguments: &'a str,
    /// Top-level arguments that do not belong to the meaning of the call, such as the one that carries the key.
    pub exclude: &'a [&'a str],
    /// What a worker gets. It is stored.
    pub payload: Box<str>,
    /// How long the task lives from its creation on, finished or not; `None` has no end, as far as the store allows.
    pub ttl: Option<Duration>,
    /// How long a client is asked to wait between two looks.
    pub poll_interval: Duration,
    /// What it is doing, for people.
    pub message: Option<Box<str>>,
}

/// A creation that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "what a store fills in")]
pub struct Created {
    /// The task.
    pub task: TaskState,
    /// Whether an earlier call of the same key made it.
    pub replayed: bool,
}

/// A task, as its client sees it. All of it is durable.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "what a store fills in")]
pub struct TaskState {
    /// Its id.
    pub id: Box<str>,
    /// The number of the write that made it so.
    pub revision: Revision,
    /// Its status.
    pub status: Status,
    /// Whether its cancellation was asked for.
    pub cancel_requested: bool,
    /// What it is doing, for people.
    pub message: Option<Box<str>>,
    /// When it was created.
    pub created_at: WallTime,
    /// When it last changed.
    pub updated_at: WallTime,
    /// How long it lives from its creation on.
    pub ttl: Option<Duration>,
    /// How long a client is asked to wait between two looks.
    pub poll_interval: Duration,
    /// The tool's result if it is completed, the JSON-RPC error if it failed, else nothing.
    pub outcome: Option<Box<str>>,
    /// What it asked and got no answer to, by key.
    pub input_requests: Vec<(Box<str>, Box<str>)>,
}

/// A task that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "what a store fills in")]
pub struct TaskChange {
    /// Whose it is.
    pub principal: Box<str>,
    /// Its id.
    pub id: Box<str>,
    /// The number of its last change.
    pub revision: Revision,
}

/// A worker's right to a task: an owner and an epoch, which every claim raises.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "what a store fills in")]
pub struct Lease {
    /// The task.
    pub task: Box<str>,
    /// What it is a task of.
    pub operation: Box<str>,
    /// The worker.
    pub owner: Box<str>,
    /// How many leases the task had, with this one.
    pub epoch: u32,
    /// How long it lasts, from the claim or the last checkpoint on.
    pub duration: Duration,
}

/// A task, as the worker gets it that claimed it.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "what a store fills in")]
pub struct Claim {
    /// The right to it.
    pub lease: Lease,
    /// How many leases of it ran out before this one; not those that their workers gave back.
    pub lost_leases: u32,
    /// Whose it is.
    pub principal: Box<str>,
    /// The business key that it was created under.
    pub key: Option<Key>,
    /// What it was created with.
    pub payload: Option<Box<str>>,
    /// The last step that a worker stored: go on after it.
    pub progress: Progress,
    /// What a checkpoint would tell.
    pub known: Known,
}

/// How far a task is.
#[derive(Clone, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "what a worker fills in")]
pub struct Progress {
    /// Counts the worker's steps, from 1.
    pub step: u64,
    /// Where the next worker has to go on, should this one be lost.
    pub state: Option<Box<str>>,
    /// What it is doing, for people; `None` keeps what was said before.
    pub message: Option<Box<str>>,
}

/// What a worker learns at a checkpoint.
#[derive(Clone, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "what a store fills in")]
pub struct Known {
    /// Whether a client wants the task to end.
    pub cancel_requested: bool,
    /// Whether this call stored its progress; not if the step was stored before.
    pub stored: bool,
    /// All that the task asked so far.
    pub inputs: Vec<TaskInput>,
}

/// Something that a task asked.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "what a store fills in")]
pub struct TaskInput {
    /// Its key.
    pub key: Box<str>,
    /// The question, an MCP request without an id.
    pub request: Box<str>,
    /// The first answer, if there is one.
    pub response: Option<Box<str>>,
}

/// How a worker ends a task.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the three ends of rule K2")]
pub enum TaskEnd {
    /// With the tool's result, also one with `isError` (rule K2).
    Complete(Box<str>),
    /// With a JSON-RPC error.
    Fail(Box<str>),
    /// It stopped because it was told to (`TASK-5`).
    Cancel,
}

/// Why a store did not do what it was asked to. Nothing was changed, unless a variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskStoreError {
    /// There is no such task for this principal: one error for all causes, so that nobody can probe for ids (rule K5).
    #[error("the task is unknown: it never existed, has expired, or belongs to another caller")]
    Unknown,
    /// The principal has as many unfinished tasks as it may have.
    #[error("the caller has {limit} unfinished tasks, and may not have more: finish or cancel one first")]
    TooMany {
        /// The cap.
        limit: u32,
    },
    /// A part is too large.
    #[error("a part of the task has more than {limit} bytes: store it elsewhere, and send a reference")]
    TooLarge {
        /// In bytes.
        limit: usize,
    },
    /// The key cannot be used for this call: a type for machines, such as `idempotency_key_conflict`, and a text.
    #[error("{message}")]
    Key {
        /// For machines.
        kind: &'static str,
        /// For people.
        message: Box<str>,
    },
    /// The lease was taken away: what is not stored yet is not wanted.
    #[error("the lease of the task is lost: stop the work, another worker may be on it")]
    LeaseLost,
    /// The task already ended, with this status (`TASK-4`).
    #[error("the task is already {0}: nothing was changed")]
    Over(Status),
    /// The worker asked for something that this task does not allow, such as a used input key: what, and what to do.
    #[error("{0}")]
    Refused(Box<str>),
    /// It has too much to do, or another call with the key is under way: the same again, after a pause, can succeed.
    #[error("{message}")]
    Busy {
        /// How long to wait.
        retry_after: Duration,
        /// For people.
        message: Box<str>,
    },
    /// The store does not answer. Unless it says otherwise, whether something was changed is unknown.
    #[error("the store of tasks: {0}")]
    Unavailable(Box<str>),
}

/// Show no content of a task: only what identifies it.
macro_rules! opaque {
    ($($type:ident: $($field:ident),*;)*) => {$(
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($type))$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }
    )*};
}
opaque! {
    TaskState: id, revision, status, cancel_requested;
    Claim: lease, principal;
    Progress: step;
    Known: cancel_requested, stored;
    TaskInput: key;
}

impl fmt::Debug for NewTask<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTask").field("operation", &self.operation).field("key", &self.key).finish_non_exhaustive()
    }
}

impl fmt::Debug for TaskEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Complete(_) => "Complete(..)",
            Self::Fail(_) => "Fail(..)",
            Self::Cancel => "Cancel",
        })
    }
}
