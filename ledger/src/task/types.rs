//! Decides what clients and workers say and learn about a task.

use std::fmt;
use std::time::Duration;

use steady_core::idempotency::{Key, Scope};
use steady_core::task::{Revision, Status};
use steady_core::time::WallTime;

use crate::task::{Body, TaskError};

/// The id of a task: 128 random bits, as 32 hexadecimal digits. Who is not its principal has no use for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(Box<str>);

impl TaskId {
    /// The id with this text, as a client sent it.
    ///
    /// # Errors
    ///
    /// [`TaskError::Unknown`], as for every id that no task has.
    pub fn parse(text: &str) -> Result<Self, TaskError> {
        let is_id = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_id { Ok(Self(text.into())) } else { Err(TaskError::Unknown) }
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn of(bits: [u8; 16]) -> Self {
        Self(format!("{:032x}", u128::from_be_bytes(bits)).into())
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How many tasks there may be, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct TaskLimits {
    /// Unfinished tasks of one principal; one more is [`TaskError::TooMany`]. Default: 256.
    pub live_per_principal: u32,
    /// The longest life of a task; a longer one, or one without an end, is cut to it. `None` lets tasks live for ever,
    /// **and the file grow with them**. Default: 30 days.
    pub max_ttl: Option<Duration>,
    /// Bytes of one payload, progress, question, answer or outcome. Default: 1 MiB.
    pub max_body: usize,
    /// Inputs that one task may ask for over its life. Default: 64.
    pub inputs: u32,
}

impl Default for TaskLimits {
    fn default() -> Self {
        Self {
            live_per_principal: 256,
            max_ttl: Some(Duration::from_secs(30 * 24 * 60 * 60)),
            max_body: 1 << 20,
            inputs: 64,
        }
    }
}

/// What a task is created with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct TaskSpec {
    /// How long the task lives, finished or not, from its creation on. `None` has no end, as far as
    /// [`TaskLimits::max_ttl`] allows. Default: 24 h.
    pub ttl: Option<Duration>,
    /// How long a client is asked to wait between two looks. Default: 1 s.
    pub poll_interval: Duration,
    /// What it is doing, for people. Default: nothing.
    pub message: Option<Box<str>>,
    /// What a worker needs to start. Arguments are not stored otherwise, so a worker in another process knows nothing
    /// but this. It is removed with the end of the task, but its bytes stay in the write-ahead log until that begins anew,
    /// so it is no place for a secret. Default: nothing.
    pub payload: Option<Body>,
}

impl Default for TaskSpec {
    fn default() -> Self {
        Self {
            ttl: Some(Duration::from_secs(24 * 60 * 60)),
            poll_interval: Duration::from_secs(1),
            message: None,
            payload: None,
        }
    }
}

/// How far a task is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "what a worker fills in, meant to be written out with ..Default::default()"
)]
pub struct Progress {
    /// Counts the worker's steps, from 1. Progress of a step that is not higher than the stored one is dropped: a
    /// repeated checkpoint stores nothing, and step 0 only extends the lease.
    pub step: u64,
    /// Where the next worker has to go on, should this one be lost.
    pub state: Option<Body>,
    /// What it is doing, for people; `None` keeps what was said before.
    pub message: Option<Box<str>>,
}

/// A task, as its client sees it. All of it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Its id.
    pub id: TaskId,
    /// The number of the write that made it so; a later state has a higher one.
    pub revision: Revision,
    /// Its status.
    pub status: Status,
    /// Whether its cancellation was asked for.
    pub cancel_requested: bool,
    /// The last step that its worker stored, and what it is doing, for people.
    pub progress: Progress,
    /// When it was created.
    pub created_at: WallTime,
    /// When it last changed.
    pub updated_at: WallTime,
    /// How long it lives from its creation on; without end if there is none.
    pub ttl: Option<Duration>,
    /// How long a client is asked to wait between two looks.
    pub poll_interval: Duration,
    /// The tool's result if it is completed, the JSON-RPC error if it failed, else nothing.
    pub outcome: Option<Body>,
    /// What it waits for: the inputs without an answer.
    pub input_requests: Vec<Input>,
}

/// Something that a task asks its client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Input {
    /// Its key, unique within the task.
    pub key: Box<str>,
    /// The question.
    pub request: Body,
    /// The first answer, if there is one.
    pub response: Option<Body>,
}

/// A worker's right to a task. It ends with its time or with the task; a lease that follows it has a higher epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub(crate) task: TaskId,
    pub(crate) operation: Box<str>,
    pub(crate) owner: Box<str>,
    pub(crate) epoch: u32,
    pub(crate) duration: Duration,
}

impl Lease {
    /// The task.
    #[must_use]
    pub const fn task(&self) -> &TaskId {
        &self.task
    }

    /// How many leases the task had, with this one.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// How long it lasts, from the claim or the last checkpoint on.
    #[must_use]
    pub const fn duration(&self) -> Duration {
        self.duration
    }
}

/// A task, as the worker gets it that claimed it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claimed {
    /// The right to it.
    pub lease: Lease,
    /// How many leases of it ran out before this one; not those that their workers gave back. A task that keeps losing its
    /// workers shows it here, and should be let fail.
    pub lost_leases: u32,
    /// Whose task of what.
    pub scope: Scope,
    /// The business key that it was created under.
    pub key: Option<Key>,
    /// What it was created with.
    pub payload: Option<Body>,
    /// The last step that a worker stored: go on after it.
    pub progress: Progress,
    /// Whether its cancellation was asked for.
    pub cancel_requested: bool,
    /// All that it asked so far.
    pub inputs: Vec<Input>,
}

/// What a worker learns at a checkpoint.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Whether a client wants the task to end. Stop when you can and say so, or finish.
    pub cancel_requested: bool,
    /// Whether this call stored the progress, and ran the effect; not if the step was stored before.
    pub stored: bool,
    /// All that the task asked so far.
    pub inputs: Vec<Input>,
}

/// An unfinished task, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveTask {
    /// Its id.
    pub id: TaskId,
    /// Whose task of what.
    pub scope: Scope,
    /// Its status.
    pub status: Status,
    /// Whether a worker was lost in an external step: it waits for [`Tasks::resolve`](crate::Tasks::resolve).
    pub in_doubt: bool,
    /// The worker that has the lease.
    pub owner: Option<Box<str>>,
    /// How many leases there were.
    pub epoch: u32,
    /// From when on a worker may claim it.
    pub claimable_at: WallTime,
    /// When it was created.
    pub created_at: WallTime,
}

/// What became of the external step of a task that was in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolution {
    /// The work was done: the task is completed with this result.
    Complete(Body),
    /// The task fails with this JSON-RPC error.
    Fail(Body),
    /// It is cancelled. Only if a client asked for that (`TASK-5`).
    Cancel,
    /// The step has had no effect, or may be repeated: a worker takes the task up after its last checkpoint.
    Requeue,
}

/// A task that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// Its id.
    pub id: TaskId,
    /// Its principal.
    pub principal: Box<str>,
    /// The number of its last change.
    pub revision: Revision,
}
