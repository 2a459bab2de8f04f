//! Decides what a caller learns when a task is not as it thought.

use steady_core::task::Status;
use thiserror::Error;

use crate::error::LedgerError;

/// Why a task was not created, shown or changed. No message holds an id, an input or a result.
///
/// Unless a variant says otherwise, nothing was changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TaskError {
    // To a client.
    /// There is no such task for this principal. One error for all causes, so that nobody can probe for ids (rule K5).
    #[error("the task is unknown: it never existed, has expired, or belongs to another caller")]
    Unknown,
    /// The principal has as many live tasks as it may have.
    #[error("the caller has {limit} unfinished tasks, and may not have more: finish or cancel one first")]
    TooMany {
        /// [`TaskLimits::live_per_principal`](crate::TaskLimits::live_per_principal).
        limit: u32,
    },

    // To a worker.
    /// The lease ended and was taken away, perhaps given to another worker, or the task's life is over. Stop: what is not
    /// stored yet is not wanted.
    #[error("the lease of the task is lost: stop the work, the task has expired or another worker may be on it")]
    LeaseLost,
    /// The task already ended, with this status. The first end stays (`TASK-4`).
    #[error("the task is already {0}: nothing was changed")]
    Over(Status),
    /// Nobody asked for the task to be cancelled (`TASK-5`).
    #[error("nobody asked for the task to be cancelled: complete it, or let it fail")]
    NotRequested,
    /// A question without any input.
    #[error("a task that asks for input must name at least one")]
    NoInput,
    /// An input key was used before in this task (rule K4).
    #[error("an input key of the task was used before: choose a new one for each question")]
    InputKeyUsed,
    /// The task asked for as many inputs as it may over its life.
    #[error("a task may ask for {limit} inputs over its life, and not for more: ask for several things in one input")]
    TooManyInputs {
        /// [`TaskLimits::inputs`](crate::TaskLimits::inputs).
        limit: u32,
    },

    // To an operator.
    /// The task is not in doubt, so there is nothing to resolve.
    #[error("the task is not in doubt: leave it to its worker")]
    NotInDoubt,

    // To all.
    /// A content or a text is too large.
    #[error("a part of the task has more than {limit} bytes: store it elsewhere, and put a reference here")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// A value cannot be written as JSON, or stored JSON cannot be read as the type that was asked for.
    #[error("a value of the task has no such JSON: check its type, and its Serialize or Deserialize")]
    Encoding,
    /// As many callbacks wait for changes as may.
    #[error("{limit} callbacks wait for changes of tasks: drop one first")]
    TooManyWatchers {
        /// The limit.
        limit: usize,
    },
    /// The ledger has no answer.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

#[cfg(feature = "postgres")]
impl From<tokio_postgres::Error> for TaskError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Ledger(error.into())
    }
}

impl From<rusqlite::Error> for TaskError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Ledger(error.into())
    }
}
