//! A task as its worker's handler sees it, and how a handler ends.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::bell::{Bell, either};
use super::{Claim, Known, Lease, Progress, TaskInput, TaskQueue, TaskStoreError};
use crate::idempotency::Key;
use crate::kernel::port::Timer;
use crate::kernel::service::read_json;
use crate::kernel::sync::Mutex;
use crate::mrtr::Kind;
use crate::rpc::{RpcError, encode, members};

/// Why a handler has no reply. It comes out of the methods of [`Job`], to be returned with `?`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfinished {
    /// The task fails with this error (rule K2).
    #[error(transparent)]
    Failed(#[from] RpcError),
    /// A client asked for the task to end, and the handler stops: the task is cancelled.
    #[error("the task is to be cancelled")]
    Cancelled,
    /// The lease is lost or the store does not answer: what the handler did since its last checkpoint does not count, and
    /// the task goes on elsewhere, or when the store is back.
    #[error(transparent)]
    Interrupted(#[from] TaskStoreError),
}

impl Progress {
    /// The worker's `step`-th step, counted from 1.
    #[must_use]
    pub fn step(step: u64) -> Self {
        Self { step, ..Self::default() }
    }

    /// The same, with what the next worker needs to go on after it.
    ///
    /// # Errors
    /// -32603 if the value cannot be written as JSON.
    pub fn state(self, state: &impl Serialize) -> Result<Self, RpcError> {
        let json = serde_json::to_string(state)
            .map_err(|error| RpcError::internal(format!("the state of a step is no JSON: {error}")))?;
        Ok(Self { state: Some(json.into()), ..self })
    }

    /// The same, with what the task is doing, for people.
    #[must_use]
    pub fn message(self, text: &str) -> Self {
        Self { message: Some(text.into()), ..self }
    }
}

/// A claimed task. Clones share it.
#[derive(Clone)]
pub struct Job(Arc<Shared>);

pub(super) struct Shared {
    pub(super) queue: Arc<dyn TaskQueue>,
    pub(super) timer: Arc<dyn Timer>,
    pub(super) bell: Arc<Bell>,
    /// How long at most a look at the store is put off.
    pub(super) look: Duration,
    claim: Claim,
    arguments: Box<str>,
    capabilities: Box<str>,
    seen: Mutex<Seen>,
}

/// What is known of the task by now.
struct Seen {
    known: Known,
    /// Whether a step outside of the store is open.
    external: bool,
}

impl Job {
    pub(super) fn new(
        queue: Arc<dyn TaskQueue>,
        timer: Arc<dyn Timer>,
        bell: Arc<Bell>,
        look: Duration,
        claim: Claim,
    ) -> Self {
        let payload = claim.payload.as_deref().unwrap_or("{}");
        let [arguments, capabilities] = members(payload, &["arguments", "capabilities"]).unwrap_or_default();
        let [arguments, capabilities] = [arguments, capabilities].map(|json| json.unwrap_or("{}").into());
        let seen = Mutex::new(Seen { known: claim.known.clone(), external: false });
        Self(Arc::new(Shared { queue, timer, bell, look, claim, arguments, capabilities, seen }))
    }

    /// The id of the task.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.claim.lease.task
    }

    /// What it is a task of: the tool's name.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.0.claim.lease.operation
    }

    /// Whose it is; empty if nobody was authenticated.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.0.claim.principal
    }

    /// The business key that it was created under.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.0.claim.key.as_ref()
    }

    /// The right to it. With it an effect can go into the transaction of a checkpoint, where the store has a way for that.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.0.claim.lease
    }

    /// The arguments, a JSON object.
    #[must_use]
    pub fn raw_arguments(&self) -> &str {
        &self.0.arguments
    }

    /// Reads the arguments as a value of the caller's type.
    ///
    /// # Errors
    /// -32602 with the place that does not fit.
    pub fn arguments<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        read_json(&self.0.arguments, "arguments")
    }

    /// The last step that a worker stored before this claim; 0 if there was none. Go on after it.
    #[must_use]
    pub fn resumes_after(&self) -> u64 {
        self.0.claim.progress.step
    }

    /// What was stored with that step.
    ///
    /// # Errors
    /// -32602 with the place that does not fit.
    pub fn resumed_state<T: DeserializeOwned>(&self) -> Result<Option<T>, RpcError> {
        self.0.claim.progress.state.as_deref().map(|json| read_json(json, "the state of a step")).transpose()
    }

    /// Whether a client wants the task to end, as far as is known; at most a look ago.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.seen.lock().known.cancel_requested
    }

    /// Stores progress, extends the lease, and says whether to go on. `Progress::default()` stores nothing.
    ///
    /// # Errors
    /// [`Unfinished::Cancelled`] if a client wants the task to end; the progress is stored. [`Unfinished::Interrupted`] if the
    /// lease is lost or the store does not answer.
    pub async fn checkpoint(&self, progress: Progress) -> Result<(), Unfinished> {
        self.keep(progress).await?;
        if self.is_cancelled() { Err(Unfinished::Cancelled) } else { Ok(()) }
    }

    /// As [`checkpoint`](Self::checkpoint), for work that goes on although a client wants it to end.
    ///
    /// # Errors
    /// [`Unfinished::Interrupted`].
    pub async fn keep(&self, progress: Progress) -> Result<(), Unfinished> {
        let Shared { queue, claim, seen, .. } = &*self.0;
        let known = queue.checkpoint(&claim.lease, progress).await?;
        seen.lock().known = known;
        Ok(())
    }

    /// Waits so long, or until a client wants the task to end. The lease is kept meanwhile.
    ///
    /// # Errors
    /// [`Unfinished::Cancelled`].
    pub async fn sleep(&self, pause: Duration) -> Result<(), Unfinished> {
        let Shared { timer, look, .. } = &*self.0;
        let until = timer.now() + pause;
        while !self.is_cancelled() {
            let now = timer.now();
            if now >= until {
                return Ok(());
            }
            timer.sleep_until(until.min(now + *look)).await;
        }
        Err(Unfinished::Cancelled)
    }

    /// Asks the client for inputs, each under a key that the task uses once, and waits for all answers: results of their
    /// kinds as JSON text, by key, that the handler has to check. A question that an earlier worker asked is not asked again.
    /// The lease is kept while the client thinks, for as long as the task lives.
    ///
    /// # Errors
    /// [`Unfinished::Failed`] with -32021 for a kind that the client did not declare when it made the task (rule I1);
    /// [`Unfinished::Cancelled`], [`Unfinished::Interrupted`].
    pub async fn ask(&self, inputs: &[(&str, Kind, &str)]) -> Result<BTreeMap<Box<str>, Box<str>>, Unfinished> {
        let Shared { queue, claim, capabilities, seen, bell, timer, look, .. } = &*self.0;
        let mut questions: Vec<(Box<str>, Box<str>)> = Vec::new();
        for (key, kind, params) in inputs {
            if !kind.is_declared(capabilities) {
                return Err(RpcError::missing_capability(kind.required()).into());
            }
            let asked = |input: &TaskInput| &*input.key == *key;
            if !seen.lock().known.inputs.iter().any(asked) {
                questions.push(((*key).into(), question(*kind, params).into()));
            }
        }
        let mut heard = bell.count();
        if !questions.is_empty() {
            queue.ask(&claim.lease, questions).await?;
        }
        loop {
            self.checkpoint(Progress::default()).await?;
            if let Some(answers) = self.answers(inputs) {
                return Ok(answers);
            }
            let _woken = either(bell.wait(heard), timer.sleep_until(timer.now() + *look)).await;
            heard = bell.count();
        }
    }

    /// The answers to these, if all are there.
    fn answers(&self, inputs: &[(&str, Kind, &str)]) -> Option<BTreeMap<Box<str>, Box<str>>> {
        let seen = self.0.seen.lock();
        let answer = |key: &str| seen.known.inputs.iter().find(|input| &*input.key == key)?.response.clone();
        inputs.iter().map(|(key, ..)| Some((Box::from(*key), answer(key)?))).collect()
    }

    /// Notes that a step outside of the store begins; once this returns, it may. A worker that is lost before
    /// [`external_done`](Self::external_done) leaves the task in doubt: nobody runs it again unasked.
    ///
    /// # Errors
    /// [`Unfinished::Interrupted`].
    pub async fn external_started(&self) -> Result<(), Unfinished> {
        // Noted here first: a call whose answer is lost may have been stored.
        self.0.seen.lock().external = true;
        Ok(self.0.queue.external(self.lease(), true).await?)
    }

    /// Notes that the outcome of the step is known. What a later worker has to know of it belongs into a checkpoint before
    /// this.
    ///
    /// # Errors
    /// [`Unfinished::Interrupted`].
    pub async fn external_done(&self) -> Result<(), Unfinished> {
        self.0.queue.external(self.lease(), false).await?;
        self.0.seen.lock().external = false;
        Ok(())
    }

    /// Whether a step outside of the store may be open.
    pub(super) fn is_external_open(&self) -> bool {
        self.0.seen.lock().external
    }

    pub(super) fn lost_leases(&self) -> u32 {
        self.0.claim.lost_leases
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.0
    }
}

/// A question as a client reads it: a request without an id.
fn question(kind: Kind, params: &str) -> String {
    let mut out = b"{\"method\":".to_vec();
    encode::string(&mut out, kind.method());
    out.extend_from_slice(b",\"params\":");
    encode::raw(&mut out, params);
    out.push(b'}');
    String::from_utf8(out).unwrap_or_default()
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("lease", self.lease()).finish_non_exhaustive()
    }
}

/// The JSON of an error, as a failed task keeps it.
pub(super) fn error_json(error: &RpcError) -> String {
    let mut out = b"{\"code\":".to_vec();
    out.extend_from_slice(error.code.to_string().as_bytes());
    out.extend_from_slice(b",\"message\":");
    encode::string(&mut out, &error.message);
    if let Some(data) = &error.data {
        out.extend_from_slice(b",\"data\":");
        encode::raw(&mut out, data);
    }
    out.push(b'}');
    String::from_utf8(out).unwrap_or_default()
}
