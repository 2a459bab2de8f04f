//! Durable tasks on the client (`io.modelcontextprotocol/tasks`): a call that may become one, its handle, and its end.
//!
//! A handle is an id and a client. The id may be kept anywhere and used in another process: [`Caller::task`]. Following only
//! reads, so nothing here creates a task again. What is lost before the server's answer is a matter of the call's contract:
//! with a key the same bytes are sent again and the server finds its task, without one the outcome is unknown.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::future::Future;
use core::time::Duration;

use super::Request;
use super::caller::Caller;
use super::changes::{is_passing, object};
use super::error::CallError;
use super::following::Following;
use super::interactive::{InputAsked, MAX_ROUNDS};
use super::tools::{Raw, ToolResult};
use crate::follow;
use crate::id::Attempt;
use crate::mrtr::{self, MAX_INPUTS};
use crate::rpc::scan::members;
use crate::rpc::{RpcError, code, encode, method, text};
use crate::task::Status;

/// How a task is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct TaskOptions {
    /// The rhythm: bounds of the server's interval, pauses after failures, how long at most. Default: the defaults of that.
    pub follow: follow::Config,
    /// Whether to subscribe to the task beside asking for it, so that its end is heard before the next question; one of the
    /// client's subscriptions while it is followed. Without room, or where the server refuses, it is asked for only.
    /// Default true.
    pub notifications: bool,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self { follow: follow::Config::default(), notifications: true }
    }
}

/// What a call became.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a result, or a task")]
pub enum Called {
    /// The tool has answered.
    Done(ToolResult),
    /// The server made a task of it, which is durable.
    Task(TaskHandle),
}

/// A task as its server describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskView {
    /// Its id.
    pub id: Box<str>,
    /// Its status (rule K2).
    pub status: Status,
    /// What the server says about it, for people.
    pub message: Option<Box<str>>,
    /// How often the server wants to be asked.
    pub poll_interval: Option<Duration>,
    /// How long it is kept from its creation on; `None`: without an end.
    pub ttl: Option<Duration>,
    /// All of it, as it came: `result`, `error` or `inputRequests` among it (rule K4).
    pub raw: Raw,
}

/// Why a task has no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The call that was to become one failed, or a question about one that no later question would cure. What the error says
    /// of the outcome holds; a task that was created lives on.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The task ended with an error.
    #[error("the task {task:?} failed: {error}")]
    Failed {
        /// The task.
        task: Box<str>,
        /// The error.
        error: RpcError,
    },
    /// The task was cancelled.
    #[error("the task {task:?} was cancelled")]
    Cancelled {
        /// The task.
        task: Box<str>,
    },
    /// The server does not know the task: it has expired, or is another caller's (rule K4).
    #[error("the server does not know the task {task:?}: it has expired, or is another caller's")]
    Gone {
        /// The task.
        task: Box<str>,
    },
    /// It was followed for as long as was asked for. It lives on: follow it again, with its id.
    #[error("the task {task:?} has not ended in time; it lives on")]
    GaveUp {
        /// The task.
        task: Box<str>,
    },
    /// The task waits for input, and the application gave none. It lives on, and waits.
    #[error("the task {task:?} waits for the input {key:?}, and the application gave none")]
    NoInput {
        /// The task.
        task: Box<str>,
        /// The input.
        key: Box<str>,
    },
}

/// A durable task of a server. Dropping it leaves the task alone (rule K3).
#[derive(Clone, Debug)]
pub struct TaskHandle {
    caller: Caller,
    id: Box<str>,
}

impl Caller {
    /// The task with this id, also one that another process created.
    #[must_use]
    pub fn task(&self, id: &str) -> TaskHandle {
        TaskHandle { caller: self.clone(), id: id.into() }
    }

    /// Calls a tool that may answer by a task: the extension is declared for this request.
    ///
    /// # Errors
    /// [`CallError`]. After [`CallError::Unknown`] there may be a task that nobody knows the id of; with a
    /// [key](Request::key) the same call finds it.
    pub async fn call_or_task(&self, request: Request) -> Result<Called, CallError> {
        self.read_called(self.call(request.with_tasks()).await?)
    }

    /// Calls a tool, follows the task if the server makes one, and answers what either asks for on the way: `answer` gives
    /// the JSON object for each question, or `None` to give it up.
    ///
    /// # Errors
    /// [`TaskError`]. All but those of the call name the task, which can be taken up again.
    pub async fn call_to_end<F, A>(
        &self,
        request: Request,
        options: TaskOptions,
        mut answer: F,
    ) -> Result<ToolResult, TaskError>
    where
        F: FnMut(InputAsked) -> A,
        A: Future<Output = Option<String>>,
    {
        let result = self.call_with_input(request.with_tasks(), &mut answer).await?;
        match self.read_called(result)? {
            Called::Done(result) => Ok(result),
            Called::Task(task) => task.finish_with_input(options, answer).await,
        }
    }

    fn read_called(&self, result: Raw) -> Result<Called, CallError> {
        let result = ToolResult::read(result)?;
        if result.result_type != "task" {
            return Ok(Called::Done(result));
        }
        let task = TaskView::read(result.raw)?;
        Ok(Called::Task(self.task(&task.id)))
    }
}

impl TaskHandle {
    /// The id. It is all that is needed to take the task up again, by a client with the same authorisation.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How the task stands.
    ///
    /// # Errors
    /// [`TaskError::Gone`], [`TaskError::Call`].
    pub async fn get(&self) -> Result<TaskView, TaskError> {
        let answer = self.caller.call(get(&self.id)).await;
        Ok(TaskView::read(answer.map_err(|error| self.failed(error))?)?)
    }

    /// Gives the task input: by the keys that it asked for, a JSON object each. Answering twice does nothing (rule K4).
    ///
    /// # Errors
    /// [`TaskError::Gone`], [`TaskError::Call`].
    pub async fn update(&self, answers: &[(&str, &str)]) -> Result<(), TaskError> {
        let mut params = b"{\"taskId\":".to_vec();
        encode::string(&mut params, &self.id);
        params.extend_from_slice(b",\"inputResponses\":{");
        for (nth, (key, answer)) in answers.iter().enumerate() {
            if nth > 0 {
                params.push(b',');
            }
            encode::string(&mut params, key);
            params.push(b':');
            params.extend_from_slice(answer.as_bytes());
        }
        params.extend_from_slice(b"}}");
        let params = String::from_utf8(params).unwrap_or_default();
        // Answers are ignored that were given before: it is safe to give them again.
        self.ask(Request::raw(method::TASKS_UPDATE, params)).await
    }

    /// Asks for the end of the task. That it was asked for is all that this says: the task may yet complete (rule K3).
    ///
    /// # Errors
    /// [`TaskError::Gone`], [`TaskError::Call`].
    pub async fn cancel(&self) -> Result<(), TaskError> {
        self.ask(Request::raw(method::TASKS_CANCEL, object(&[("taskId", &self.id)]))).await
    }

    async fn ask(&self, request: Request) -> Result<(), TaskError> {
        match self.caller.call(request.safe().with_tasks()).await {
            Ok(_) => Ok(()),
            // It may be about the answers as well: whether the task is gone, a look at it says.
            Err(error) if is_gone(&error) => match self.get().await {
                Err(gone @ TaskError::Gone { .. }) => Err(gone),
                Ok(_) | Err(_) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Follows the task to its end, in the server's rhythm. Questions that get no answer are asked again, over any number of
    /// links; the future may be dropped, and the task followed anew.
    ///
    /// # Errors
    /// [`TaskError`]; [`TaskError::NoInput`] if the task asks for input: [`update`](Self::update) it and go on.
    pub async fn finish(&self, options: TaskOptions) -> Result<ToolResult, TaskError> {
        self.finish_with_input(options, |_| core::future::ready(None)).await
    }

    /// The same, and answers what the task asks for: each key once (rule K4). While `answer` is awaited no clock runs.
    ///
    /// # Errors
    /// [`TaskError`].
    pub async fn finish_with_input<F, A>(&self, options: TaskOptions, mut answer: F) -> Result<ToolResult, TaskError>
    where
        F: FnMut(InputAsked) -> A,
        A: Future<Output = Option<String>>,
    {
        let mut following = Following::start(self.caller.clone(), &self.id, options);
        let mut answered = BTreeSet::new();
        loop {
            let view = following.next().await?;
            match view.status {
                Status::Working => {}
                Status::InputRequired => {
                    if self.give_input(&view, &options.follow, &mut answered, &mut answer).await? {
                        following.answered();
                    }
                }
                Status::Completed => return Ok(ToolResult::read(view.member("result")?)?),
                Status::Failed => {
                    let error = super::incoming::read_error_text(view.member("error")?.get());
                    return Err(TaskError::Failed { task: self.id.clone(), error });
                }
                Status::Cancelled => return Err(TaskError::Cancelled { task: self.id.clone() }),
            }
        }
    }

    /// Asks the application for what it was not asked before, and sends it; whether there was any.
    async fn give_input<F, A>(
        &self,
        view: &TaskView,
        rhythm: &follow::Config,
        answered: &mut BTreeSet<Box<str>>,
        answer: &mut F,
    ) -> Result<bool, TaskError>
    where
        F: FnMut(InputAsked) -> A,
        A: Future<Output = Option<String>>,
    {
        let demand = view.member("inputRequests")?;
        let capabilities = &self.caller.shared.config.capabilities;
        let requests = mrtr::read_requests(capabilities, demand.get());
        let requests = requests.map_err(|error| CallError::Answer(error.to_string().into()))?;
        let mut answers: Vec<(Box<str>, String)> = Vec::new();
        for asked in requests {
            let key: Box<str> = asked.key.as_ref().into();
            if answered.contains(&key) {
                continue;
            }
            if answered.len() + answers.len() >= MAX_ROUNDS * MAX_INPUTS {
                return Err(CallError::Answer("the task asks for input without an end".into()).into());
            }
            let asked = InputAsked { key: key.clone(), kind: asked.kind, params: Raw::text(asked.params) };
            let Some(given) = answer(asked).await else {
                return Err(TaskError::NoInput { task: self.id.clone(), key });
            };
            if members(&given, &[]).map(|[]| ()).is_none() {
                return Err(CallError::Params(format!("the answer to {key:?} is no JSON object").into()).into());
            }
            answers.push((key, given));
        }
        if answers.is_empty() {
            return Ok(false);
        }
        let given: Vec<(&str, &str)> = answers.iter().map(|(key, answer)| (&**key, answer.as_str())).collect();
        self.update_in_time(&given, rhythm).await?;
        answered.extend(answers.into_iter().map(|(key, _)| key));
        Ok(true)
    }

    /// As [`update`](Self::update), again and again while what hinders it can pass: a person is not asked twice.
    async fn update_in_time(&self, given: &[(&str, &str)], rhythm: &follow::Config) -> Result<(), TaskError> {
        let (mut jitter, mut attempt) = (self.caller.shared.fork_jitter(), Attempt::FIRST);
        let begun = self.caller.shared.timer.now();
        loop {
            match self.update(given).await {
                Err(TaskError::Call(error)) if is_passing(&error) => {
                    let spent = self.caller.shared.timer.now().saturating_since(begun);
                    if rhythm.maximum.is_some_and(|maximum| spent >= maximum) {
                        return Err(TaskError::GaveUp { task: self.id.clone() });
                    }
                    let pause = rhythm.backoff.delay(attempt, &mut jitter);
                    attempt = attempt.next();
                    sleep(&self.caller, pause).await;
                }
                end => return end,
            }
        }
    }

    fn failed(&self, error: CallError) -> TaskError {
        if is_gone(&error) { TaskError::Gone { task: self.id.clone() } } else { TaskError::Call(error) }
    }
}

/// Whether a question about a task got -32602, which is for an id that the server does not know (rule K4).
pub(super) fn is_gone(error: &CallError) -> bool {
    matches!(error, CallError::Peer(error) if error.code == code::INVALID_PARAMS)
}

/// The question how a task stands. It only reads.
pub(super) fn get(task: &str) -> Request {
    Request::raw(method::TASKS_GET, object(&[("taskId", task)])).safe().with_tasks()
}

/// Waits for this long.
pub(super) async fn sleep(caller: &Caller, pause: Duration) {
    let timer = &caller.shared.timer;
    let until = timer.now() + pause;
    while timer.now() < until {
        timer.sleep_until(until).await;
    }
}

impl TaskView {
    /// Reads the flat description that `tasks/get`, a created task and its notifications carry.
    pub(super) fn read(raw: Raw) -> Result<Self, CallError> {
        let names = ["taskId", "status", "statusMessage", "pollIntervalMs", "ttlMs"];
        let read = || {
            let [id, status, message, interval, ttl] = members(raw.get(), &names)?;
            let millis = |json: Option<&str>| json.and_then(|json| json.parse().ok()).map(Duration::from_millis);
            Some(Self {
                id: text(id?)?.into(),
                status: Status::parse(&text(status?)?)?,
                message: message.and_then(text).map(Into::into),
                poll_interval: millis(interval),
                ttl: millis(ttl),
                raw: raw.clone(),
            })
        };
        read().ok_or_else(|| CallError::Answer("it is no task with a taskId and a status that is known".into()))
    }

    fn member(&self, name: &str) -> Result<Raw, CallError> {
        let found = members(self.raw.get(), &[name]).and_then(|[json]| json);
        let missing = || CallError::Answer(format!("a task that is {} has no {name}", self.status).into());
        found.map(Raw::text).ok_or_else(missing)
    }
}
