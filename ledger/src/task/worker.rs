//! Decides what a worker may do with a task.

use std::future::Future;
use std::time::Duration;

use crate::effect::EffectTx;
use crate::error::BoxError;
#[cfg(doc)]
use crate::error::LedgerError;
use crate::task::lease::{End, plain};
use crate::task::{Body, Checkpoint, Claimed, Lease, Progress, TaskError, Tasks};

impl Tasks {
    /// Takes the task of one of these operations that waits longest, for as long as `lease`, which is cut to
    /// [`Options::max_lease`](crate::Options::max_lease). None if none waits.
    ///
    /// A task waits from its creation on, and again when its lease is over or released, unless an external step is open.
    /// One that waits for input waits for its client, unless it is to be cancelled. Each lease has a higher
    /// [`Lease::epoch`].
    ///
    /// # Errors
    ///
    /// [`TaskError::Ledger`]. After [`LedgerError::CommitUnknown`] a task may be claimed by nobody: its lease ends by
    /// itself.
    pub fn claim(&self, operations: &[&str], owner: &str, lease: Duration) -> Result<Option<Claimed>, TaskError> {
        self.wait(self.claiming(operations, owner, lease))
    }

    /// As [`Tasks::claim`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::claim`].
    pub fn claim_async(
        &self,
        operations: &[&str],
        owner: &str,
        lease: Duration,
    ) -> impl Future<Output = Result<Option<Claimed>, TaskError>> + Send + use<> {
        self.submit(self.claiming(operations, owner, lease))
    }

    /// Stores progress, extends the lease, and tells the worker what it has to know.
    ///
    /// # Errors
    ///
    /// [`TaskError::LeaseLost`], also once the task's life is over, unless an external step is open: nobody can answer,
    /// cancel or see it any more; [`TaskError::Over`], [`TaskError::TooLarge`].
    pub fn checkpoint(&self, lease: &Lease, progress: Progress) -> Result<Checkpoint, TaskError> {
        self.wait(self.checkpointing(lease, progress, None))
    }

    /// As [`Tasks::checkpoint`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::checkpoint`].
    pub fn checkpoint_async(
        &self,
        lease: &Lease,
        progress: Progress,
    ) -> impl Future<Output = Result<Checkpoint, TaskError>> + Send + use<> {
        self.submit(self.checkpointing(lease, progress, None))
    }

    /// As [`Tasks::checkpoint`], with an effect in the same transaction. It runs once for each step, over all workers of
    /// the task: if a step of this number or a higher one is stored already, it does not run. The rules for it are those
    /// of [`Ledger::execute`](crate::Ledger::execute).
    ///
    /// # Errors
    ///
    /// As [`Tasks::checkpoint`], and [`LedgerError::Aborted`] or another fault of the effect: then nothing is stored, and
    /// the lease is as it was.
    pub fn checkpoint_with<F>(&self, lease: &Lease, progress: Progress, effect: F) -> Result<Checkpoint, TaskError>
    where
        F: FnMut(&mut EffectTx<'_>) -> Result<(), BoxError> + Send + 'static,
    {
        self.wait(self.checkpointing(lease, progress, Some(plain(effect))))
    }

    /// As [`Tasks::checkpoint_with`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::checkpoint_with`].
    pub fn checkpoint_with_async<F>(
        &self,
        lease: &Lease,
        progress: Progress,
        effect: F,
    ) -> impl Future<Output = Result<Checkpoint, TaskError>> + Send + use<F>
    where
        F: FnMut(&mut EffectTx<'_>) -> Result<(), BoxError> + Send + 'static,
    {
        self.submit(self.checkpointing(lease, progress, Some(plain(effect))))
    }

    /// Ends the task with the tool's result, also one with `isError` (rule K2). Repeated after an answer that was lost, it
    /// is [`TaskError::Over`] with the status that it gave the task: then it was done.
    ///
    /// # Errors
    ///
    /// [`TaskError::LeaseLost`], [`TaskError::Over`], [`TaskError::TooLarge`]; [`LedgerError::NotFinal`] for a result
    /// that asks for input, which is never an outcome (rule I5).
    pub fn complete(&self, lease: &Lease, result: Body) -> Result<(), TaskError> {
        self.wait(self.finishing(lease, End::Complete(result)))
    }

    /// As [`Tasks::complete`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::complete`].
    pub fn complete_async(
        &self,
        lease: &Lease,
        result: Body,
    ) -> impl Future<Output = Result<(), TaskError>> + Send + use<> {
        self.submit(self.finishing(lease, End::Complete(result)))
    }

    /// Ends the task with a JSON-RPC error.
    ///
    /// # Errors
    ///
    /// [`TaskError::LeaseLost`], [`TaskError::Over`], [`TaskError::TooLarge`].
    pub fn fail(&self, lease: &Lease, error: Body) -> Result<(), TaskError> {
        self.wait(self.finishing(lease, End::Fail(error)))
    }

    /// As [`Tasks::fail`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::fail`].
    pub fn fail_async(&self, lease: &Lease, error: Body) -> impl Future<Output = Result<(), TaskError>> + Send + use<> {
        self.submit(self.finishing(lease, End::Fail(error)))
    }

    /// Ends the task as cancelled: the worker stopped because it was told to.
    ///
    /// # Errors
    ///
    /// [`TaskError::LeaseLost`], [`TaskError::Over`]; [`TaskError::NotRequested`] if nobody asked for it.
    pub fn observe_cancel(&self, lease: &Lease) -> Result<(), TaskError> {
        self.wait(self.finishing(lease, End::Cancel))
    }

    /// As [`Tasks::observe_cancel`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::observe_cancel`].
    pub fn observe_cancel_async(&self, lease: &Lease) -> impl Future<Output = Result<(), TaskError>> + Send + use<> {
        self.submit(self.finishing(lease, End::Cancel))
    }

    /// Asks the client for inputs, each a key and a question. The task waits until all are answered, and then works
    /// again. Extends the lease, which the worker may keep with checkpoints, or [release](Tasks::release): the answers are
    /// stored.
    ///
    /// # Errors
    ///
    /// [`TaskError::LeaseLost`], [`TaskError::Over`], [`TaskError::TooLarge`], [`TaskError::NoInput`],
    /// [`TaskError::InputKeyUsed`], [`TaskError::TooManyInputs`].
    pub fn ask(&self, lease: &Lease, requests: Vec<(Box<str>, Body)>) -> Result<(), TaskError> {
        self.wait(self.asking(lease, requests))
    }

    /// As [`Tasks::ask`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::ask`].
    pub fn ask_async(
        &self,
        lease: &Lease,
        requests: Vec<(Box<str>, Body)>,
    ) -> impl Future<Output = Result<(), TaskError>> + Send + use<> {
        self.submit(self.asking(lease, requests))
    }

    /// Notes that a step outside of the ledger begins; once this returns, it may. Extends the lease. If the worker is
    /// lost before [`Tasks::external_done`], the task is in doubt, and nobody runs it again unasked.
    ///
    /// # Errors
    ///
    /// [`TaskError::LeaseLost`], [`TaskError::Over`].
    pub fn external_started(&self, lease: &Lease) -> Result<(), TaskError> {
        self.wait(Ok(self.external(lease, true)))
    }

    /// As [`Tasks::external_started`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::external_started`].
    pub fn external_started_async(&self, lease: &Lease) -> impl Future<Output = Result<(), TaskError>> + Send + use<> {
        self.submit(Ok(self.external(lease, true)))
    }

    /// Notes that the outcome of the external step is known. What a later worker has to know of it belongs into a
    /// checkpoint before this. Extends the lease.
    ///
    /// # Errors
    ///
    /// [`TaskError::LeaseLost`], [`TaskError::Over`].
    pub fn external_done(&self, lease: &Lease) -> Result<(), TaskError> {
        self.wait(Ok(self.external(lease, false)))
    }

    /// As [`Tasks::external_done`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::external_done`].
    pub fn external_done_async(&self, lease: &Lease) -> impl Future<Output = Result<(), TaskError>> + Send + use<> {
        self.submit(Ok(self.external(lease, false)))
    }

    /// Gives the task up, so that another worker need not wait for the end of the lease. It does not count as one that was
    /// lost.
    ///
    /// # Errors
    ///
    /// [`TaskError::LeaseLost`], [`TaskError::Over`].
    pub fn release(&self, lease: &Lease) -> Result<(), TaskError> {
        self.wait(Ok(self.releasing(lease)))
    }

    /// As [`Tasks::release`], without blocking.
    ///
    /// # Errors
    ///
    /// As [`Tasks::release`].
    pub fn release_async(&self, lease: &Lease) -> impl Future<Output = Result<(), TaskError>> + Send + use<> {
        self.submit(Ok(self.releasing(lease)))
    }
}
