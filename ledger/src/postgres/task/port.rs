//! Decides how these tasks look to the kernel's ports. Work is handed to the runtime that the ledger was opened on, so it
//! is done even if nobody waits for it, and from whichever thread it comes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use steady_core::idempotency::Scope;
use steady_core::kernel::tasks::{
    Claim, Created, Known, Lease as PortLease, NewTask, OnChange, Progress as PortProgress, Stored, TaskChange,
    TaskEnd, TaskQueue, TaskState, TaskStore, TaskStoreError,
};
use steady_core::task::Revision;

use super::PgTasks;
use crate::request::Request;
use crate::task::port::{bodies, change, end_of, known_of, port_error, progress_of};
use crate::task::{Body, Lease, TaskError, TaskId, TaskSpec};

impl PgTasks {
    /// Does the work, whoever waits for it.
    fn hand_over<T, W>(&self, work: impl FnOnce(Self) -> W) -> Stored<T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, TaskError>> + Send + 'static,
    {
        let working = self.inner().runtime.spawn(work(self.clone()));
        Box::pin(async move {
            match working.await {
                Ok(done) => done.map_err(|error| port_error(&error)),
                Err(_) => Err(TaskStoreError::Unavailable("its runtime has ended".into())),
            }
        })
    }
}

impl TaskStore for PgTasks {
    fn create(&self, task: NewTask<'_>) -> Stored<Created> {
        let NewTask { principal, operation, key, arguments, exclude, payload, ttl, poll_interval, message } = task;
        let (scope, key, arguments) = (Scope::new(principal, operation), key.cloned(), arguments.to_owned());
        let exclude: Vec<String> = exclude.iter().map(|&name| name.to_owned()).collect();
        self.hand_over(|tasks| async move {
            let spec = TaskSpec { ttl, poll_interval, message, payload: Some(Body::from_json(&payload)?) };
            let Some(key) = key else {
                let task = tasks.create_keyless(&scope, spec).await?;
                return Ok(Created { task: task.into(), replayed: false });
            };
            let exclude: Vec<&str> = exclude.iter().map(String::as_str).collect();
            let executed = tasks.create(&Request::new(&scope, &key, &arguments).exclude(&exclude), spec).await?;
            let replayed = executed.is_replay();
            Ok(Created { task: executed.into_inner().into(), replayed })
        })
    }

    fn get(&self, principal: &str, id: &str) -> Stored<TaskState> {
        let (principal, id) = (principal.to_owned(), TaskId::parse(id));
        self.hand_over(|tasks| async move { Ok(tasks.get(&principal, &id?).await?.into()) })
    }

    fn update(&self, principal: &str, id: &str, answers: Vec<(Box<str>, Box<str>)>) -> Stored<()> {
        let (principal, id) = (principal.to_owned(), TaskId::parse(id));
        self.hand_over(
            |tasks| async move { tasks.update(&principal, &id?, bodies(answers)?.into_iter().collect()).await },
        )
    }

    fn cancel(&self, principal: &str, id: &str) -> Stored<()> {
        let (principal, id) = (principal.to_owned(), TaskId::parse(id));
        self.hand_over(|tasks| async move { tasks.cancel(&principal, &id?).await })
    }

    fn changed_since(&self, since: Revision, limit: u32) -> Stored<Vec<TaskChange>> {
        self.hand_over(move |tasks| async move {
            Ok(tasks.changed_since(since, limit).await?.into_iter().map(change).collect())
        })
    }

    fn last_revision(&self) -> Stored<Revision> {
        self.hand_over(|tasks| async move { tasks.last_revision().await })
    }

    fn on_change(&self, callback: &Arc<OnChange>) -> Result<(), TaskStoreError> {
        Self::on_change(self, callback).map_err(|error| port_error(&error))
    }
}

impl TaskQueue for PgTasks {
    fn claim(&self, operations: &[&str], owner: &str, lease: Duration) -> Stored<Option<Claim>> {
        let operations: Vec<String> = operations.iter().map(|&operation| operation.to_owned()).collect();
        let owner = owner.to_owned();
        self.hand_over(move |tasks| async move {
            let operations: Vec<&str> = operations.iter().map(String::as_str).collect();
            Ok(tasks.claim(&operations, &owner, lease).await?.map(Claim::from))
        })
    }

    fn checkpoint(&self, lease: &PortLease, progress: PortProgress) -> Stored<Known> {
        let lease = Lease::try_from(lease);
        self.hand_over(|tasks| async move { Ok(known_of(tasks.checkpoint(&lease?, progress_of(progress)?).await?)) })
    }

    fn ask(&self, lease: &PortLease, inputs: Vec<(Box<str>, Box<str>)>) -> Stored<()> {
        let lease = Lease::try_from(lease);
        self.hand_over(|tasks| async move { tasks.ask(&lease?, bodies(inputs)?).await })
    }

    fn external(&self, lease: &PortLease, open: bool) -> Stored<()> {
        let lease = Lease::try_from(lease);
        self.hand_over(move |tasks| async move { tasks.external(&lease?, open).await })
    }

    fn finish(&self, lease: &PortLease, end: TaskEnd) -> Stored<()> {
        let lease = Lease::try_from(lease);
        self.hand_over(|tasks| async move { tasks.finish(&lease?, end_of(end)?).await })
    }

    fn release(&self, lease: &PortLease) -> Stored<()> {
        let lease = Lease::try_from(lease);
        self.hand_over(|tasks| async move { tasks.release(&lease?).await })
    }

    fn on_change(&self, callback: &Arc<OnChange>) -> Result<(), TaskStoreError> {
        self.on_work(callback).map_err(|error| port_error(&error))
    }
}
