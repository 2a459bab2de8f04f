//! What a server answers to requests about tasks, and how a call of a tool becomes a task.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use super::rate::{Limiter, Rate};
use super::wire::{self, Repeat, declares_tasks};
use super::{NewTask, Stored, TaskStore};
use crate::kernel::context::Context;
use crate::kernel::service::{Answer, Call};
use crate::kernel::tools::{ToolCall, server_meta};
use crate::rpc::{RpcError, method};

/// Settings of a [`TaskServer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct TaskConfig {
    /// How long a task lives from its creation on, finished or not; `None` has no end, as far as the store allows.
    /// Default 24 h.
    pub ttl: Option<Duration>,
    /// How long a client is asked to wait between two looks. Default 1 s.
    pub poll_interval: Duration,
    /// How often one task may be asked for; what is over is refused with -31001 and `data.retryAfterMs`. Default 20 a
    /// second, 40 at once: clients that ask every 200 ms, whatever they were told, as the official suite does, are far
    /// below.
    pub gets_per_task: Rate,
    /// How many requests about tasks one caller may make, creations included; callers that nobody authenticated are one.
    /// Default 500 a second, 1000 at once.
    pub requests_per_caller: Rate,
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self {
            ttl: Some(Duration::from_secs(24 * 60 * 60)),
            poll_interval: Duration::from_secs(1),
            gets_per_task: Rate { per_second: 20, burst: 40 },
            requests_per_caller: Rate { per_second: 500, burst: 1000 },
        }
    }
}

/// Cells of the two limits: 64 KiB and 8 KiB.
const TASK_CELLS: usize = 8192;
const CALLER_CELLS: usize = 1024;

/// Serves tasks from a store: `tasks/get`, `tasks/update`, `tasks/cancel`, and creations. Clones share it.
///
/// [`Tools::tasks`](crate::kernel::Tools::tasks) takes it; a service of one's own hands its calls to
/// [`answer`](Self::answer) and [`create`](Self::create).
#[derive(Clone)]
pub struct TaskServer(Arc<Inner>);

struct Inner {
    store: Arc<dyn TaskStore>,
    config: TaskConfig,
    meta: Arc<str>,
    gets: Limiter,
    callers: Limiter,
}

/// How the calls of a tool become tasks.
#[derive(Clone, Default)]
pub struct TaskTool {
    key_argument: Option<&'static str>,
    ttl: Option<Option<Duration>>,
    poll_interval: Option<Duration>,
    message: Option<Box<str>>,
    prepare: Option<Arc<Prepare>>,
}

type Prepare = dyn Fn(&ToolCall, &Context) -> Result<Start, RpcError> + Send + Sync;

/// What is to become of a call, before a task exists.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a call becomes a task or is answered")]
pub enum Start {
    /// A task, whose worker gets these arguments: a JSON object.
    Task(Box<str>),
    /// An answer: a result as JSON text, such as one that asks for input first (rule I1).
    Answer(String),
}

impl TaskTool {
    /// Calls become tasks as the [`TaskConfig`] says; keys are found as [`ToolCall::idempotency_key`] says.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The argument that may carry the idempotency key. It does not belong to the meaning of a call.
    #[must_use]
    pub const fn key_argument(mut self, name: &'static str) -> Self {
        self.key_argument = Some(name);
        self
    }

    /// As [`TaskConfig::ttl`], for this tool.
    #[must_use]
    pub const fn ttl(mut self, ttl: Option<Duration>) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// As [`TaskConfig::poll_interval`], for this tool.
    #[must_use]
    pub const fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = Some(interval);
        self
    }

    /// What a task says before its worker says something else.
    #[must_use]
    pub fn message(mut self, text: &str) -> Self {
        self.message = Some(text.into());
        self
    }

    /// Looks at each call before it becomes a task: refuses it, answers it, or says what the worker gets. Without it every
    /// call becomes a task with its arguments.
    #[must_use]
    pub fn prepare(
        mut self,
        prepare: impl Fn(&ToolCall, &Context) -> Result<Start, RpcError> + Send + Sync + 'static,
    ) -> Self {
        self.prepare = Some(Arc::new(prepare));
        self
    }
}

impl fmt::Debug for TaskTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskTool").field("key_argument", &self.key_argument).finish_non_exhaustive()
    }
}

impl TaskServer {
    /// Serves the tasks of this store.
    pub fn new(store: impl TaskStore, config: TaskConfig) -> Self {
        Self(Arc::new(Inner {
            store: Arc::new(store),
            config,
            meta: "{}".into(),
            gets: Limiter::new(config.gets_per_task, TASK_CELLS),
            callers: Limiter::new(config.requests_per_caller, CALLER_CELLS),
        }))
    }

    /// The same store and settings for a server with this name and version, which stand in every result (rule M8). For
    /// services of one's own: [`Tools`](crate::kernel::Tools) does it by itself.
    #[must_use]
    pub fn named(&self, name: &str, version: &str) -> Self {
        self.with_meta(server_meta(name, version))
    }

    pub(in crate::kernel) fn with_meta(&self, meta: Arc<str>) -> Self {
        let Inner { store, config, .. } = &*self.0;
        let gets = Limiter::new(config.gets_per_task, TASK_CELLS);
        let callers = Limiter::new(config.requests_per_caller, CALLER_CELLS);
        Self(Arc::new(Inner { store: Arc::clone(store), config: *config, meta, gets, callers }))
    }

    pub(super) fn store(&self) -> &Arc<dyn TaskStore> {
        &self.0.store
    }

    /// Answers `tasks/get`, `tasks/update` and `tasks/cancel`; none if the call is of another method.
    ///
    /// Methods of earlier designs, `tasks/result` and `tasks/list`, are no methods (-32601).
    #[must_use]
    pub fn answer(&self, call: &Call, cx: &Context) -> Option<Answer> {
        let answer = match &*call.method {
            method::TASKS_GET => self.get(&call.params, cx),
            method::TASKS_UPDATE => self.update(&call.params, cx),
            method::TASKS_CANCEL => self.cancel(&call.params, cx),
            _ => return None,
        };
        Some(answer.unwrap_or_else(|error| Answer::Ready(Err(error))))
    }

    /// Makes a task of a call of the tool `name`. The answer is durable before it is given, and a retry with the same key
    /// gets the same task (rule K1). A client that did not declare the extension is refused (rule K5).
    pub fn create(&self, name: &str, tool: &TaskTool, call: &ToolCall, cx: &Context) -> Answer {
        self.creation(name, tool, call, cx).unwrap_or_else(|error| Answer::Ready(Err(error)))
    }

    fn creation(&self, name: &str, tool: &TaskTool, call: &ToolCall, cx: &Context) -> Result<Answer, RpcError> {
        let principal = self.admit(&call.call.params, cx)?;
        let start = match &tool.prepare {
            Some(prepare) => prepare(call, cx)?,
            None => Start::Task(call.raw_arguments().into()),
        };
        let arguments = match start {
            Start::Task(arguments) => arguments,
            Start::Answer(result) => return Ok(Answer::Ready(Ok(result))),
        };
        let key = call.idempotency_key(tool.key_argument)?;
        let capabilities = wire::capabilities(&call.call.params);
        let Inner { store, config, .. } = &*self.0;
        let creating = store.create(NewTask {
            principal,
            operation: name,
            key: key.as_ref(),
            arguments: call.raw_arguments(),
            exclude: tool.key_argument.as_slice(),
            payload: format!(r#"{{"arguments":{arguments},"capabilities":{capabilities}}}"#).into(),
            ttl: tool.ttl.unwrap_or(config.ttl),
            poll_interval: tool.poll_interval.unwrap_or(config.poll_interval),
            message: tool.message.clone(),
        });
        Ok(self.later(creating, Repeat::Unknown, |created, meta| wire::created(&created.task, meta)))
    }

    fn get(&self, params: &str, cx: &Context) -> Result<Answer, RpcError> {
        let principal = self.admit(params, cx)?;
        let id = wire::task_id(params)?;
        self.0.gets.admit(cx.now(), &[principal, &id]).map_err(wire::too_soon)?;
        let getting = self.0.store.get(principal, &id);
        Ok(self.later(getting, Repeat::Safe, |task, meta| wire::detailed(&task, meta)))
    }

    fn update(&self, params: &str, cx: &Context) -> Result<Answer, RpcError> {
        let principal = self.admit(params, cx)?;
        let (id, responses) = (wire::task_id(params)?, wire::input_responses(params)?);
        let updating = self.0.store.update(principal, &id, responses);
        Ok(self.later(updating, Repeat::Safe, |(), meta| wire::acknowledged(meta)))
    }

    fn cancel(&self, params: &str, cx: &Context) -> Result<Answer, RpcError> {
        let principal = self.admit(params, cx)?;
        let id = wire::task_id(params)?;
        let cancelling = self.0.store.cancel(principal, &id);
        Ok(self.later(cancelling, Repeat::Safe, |(), meta| wire::acknowledged(meta)))
    }

    /// Whether this request may be about tasks; who calls, if so.
    fn admit<'a>(&self, params: &str, cx: &'a Context) -> Result<&'a str, RpcError> {
        if !declares_tasks(params) {
            return Err(wire::undeclared());
        }
        let principal = cx.principal().unwrap_or_default();
        self.0.callers.admit(cx.now(), &[principal]).map_err(wire::too_soon)?;
        Ok(principal)
    }

    /// The answer, once the store has given its own: what it says is durable then.
    fn later<T: 'static>(
        &self,
        stored: Stored<T>,
        repeat: Repeat,
        write: impl FnOnce(T, &str) -> String + Send + 'static,
    ) -> Answer {
        let meta = Arc::clone(&self.0.meta);
        Answer::later(async move {
            let stored = stored.await.map(|answer| write(answer, &meta));
            stored.map_err(|error| wire::rpc_error(&error, repeat))
        })
    }
}

impl fmt::Debug for TaskServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskServer").field("config", &self.0.config).finish_non_exhaustive()
    }
}
