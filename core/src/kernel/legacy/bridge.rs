//! One request of a session on its way through a handler of the modern revision, and back.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::task::{Poll, Waker};
use core::time::Duration;

use super::reader::Reader;
use super::session::{Question, Shared};
use crate::kernel::context::Context;
use crate::kernel::hub::Subscription;
use crate::kernel::port::{BoxFuture, Spawn, Timer};
use crate::kernel::service::{Answer, Call, Outcome, Service};
use crate::kernel::sync::Mutex;
use crate::legacy::{Handshake, answer, ask, request};
use crate::mrtr::{self, Input, InputRequest, ResultError};
use crate::rpc::{RpcError, code, encode, members, method};

/// How often a handler may ask within one request.
const MAX_ROUNDS: usize = 32;
/// How long a client may take to answer a question once it does not read the stream any more that the question went on. It
/// may have read it; if it has not, nobody will ever answer.
const AFTER_HANG_UP: Duration = Duration::from_secs(60);

/// What a request of a session needs beside its call.
pub(super) struct Bridge<S> {
    service: StdArc<S>,
    session: StdArc<Shared>,
    handshake: StdArc<Handshake>,
    way: Way,
}

/// How a request reaches its client.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) spawn: StdArc<dyn Spawn>,
    pub(super) timer: StdArc<dyn Timer>,
    /// Of the request's own stream, where it has one.
    pub(super) reader: Option<StdArc<Reader>>,
}

impl<S: Service> Bridge<S> {
    pub(super) fn new(service: StdArc<S>, session: StdArc<Shared>, handshake: StdArc<Handshake>, way: Way) -> Self {
        Self { service, session, handshake, way }
    }

    pub(super) fn handshake(&self) -> &StdArc<Handshake> {
        &self.handshake
    }

    pub(super) fn session(&self) -> &StdArc<Shared> {
        &self.session
    }

    /// What the service's own `subscriptions/listen` would hear of its lists.
    /// None if it has no hub; the error of one that is full.
    pub(super) fn listen(&self, cx: &Context) -> Result<Option<Subscription>, RpcError> {
        let lists =
            r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}}"#;
        let Some(params) = request::params(&self.handshake, None, Some(lists)) else { return Ok(None) };
        let call = Call::plain(method::LISTEN, &params);
        match self.service.call(call, cx.clone()) {
            Answer::Listen(subscription) => Ok(Some(subscription)),
            Answer::Ready(Err(full)) if full.code == code::OVERLOADED => Err(full),
            Answer::Ready(_) | Answer::Later(_) | Answer::Blocking(_) => Ok(None),
        }
    }

    /// Calls the handler, and answers with what `read` makes of its outcome.
    pub(super) fn call_once(
        self,
        call: Call,
        cx: Context,
        read: impl FnOnce(&Self, Outcome) -> Outcome + Send + 'static,
    ) -> Answer {
        match self.start(call, cx) {
            Started::Ready(outcome) => Answer::Ready(read(&self, outcome)),
            Started::Later(outcome) => Answer::later(async move {
                let outcome = outcome.await;
                read(&self, outcome)
            }),
        }
    }

    /// Calls the handler, asks the client what it needs, and answers as the older revisions do.
    pub(super) fn serve(self, call: Call, cx: Context) -> Answer {
        match self.start(call.clone(), cx.clone()) {
            Started::Ready(outcome) => match self.read(&call, outcome) {
                Read::Over(outcome) => Answer::Ready(outcome),
                Read::Asks(result) => Answer::later(self.go_on(call, cx, result)),
            },
            Started::Later(outcome) => Answer::later(async move {
                match self.read(&call, outcome.await) {
                    Read::Over(outcome) => outcome,
                    Read::Asks(result) => self.go_on(call, cx, result).await,
                }
            }),
        }
    }

    fn start(&self, call: Call, cx: Context) -> Started {
        match self.service.call(call, cx.clone()) {
            Answer::Ready(outcome) => Started::Ready(outcome),
            Answer::Later(outcome) => Started::Later(outcome),
            // Only the method that these revisions do not have is answered so.
            Answer::Listen(_) => Started::Ready(Err(RpcError::method_not_found(method::LISTEN))),
            Answer::Blocking(job) => {
                let waits = cx.clone();
                let job = Box::new(move || match waits.is_cancelled() {
                    // It may have waited for a thread longer than anybody waits for it.
                    Some(cancelled) => Err(cancelled.into()),
                    None => job(),
                });
                let done = run(&*self.way.spawn, job);
                // A job that blocks goes on whatever happens to its request: it counts as running until it has ended.
                Started::Later(Box::pin(async move { cx.uncancellable(done).await }))
            }
        }
    }

    fn read(&self, call: &Call, outcome: Outcome) -> Read {
        let result = match outcome {
            Ok(result) => result,
            Err(error) => return Read::Over(Err(answer::error(&call.method, &call.params, error))),
        };
        match mrtr::read_result(&call.method, &self.handshake.capabilities, &result) {
            Ok(mrtr::Outcome::Input(_)) => Read::Asks(result),
            Ok(mrtr::Outcome::Final) if is_task(&result) => Read::Over(Err(RpcError::internal(
                "this tool runs as a task, which needs a client of revision 2026-07-28",
            ))),
            Ok(mrtr::Outcome::Final) => Read::Over(Ok(answer::result(&call.method, result))),
            Err(ResultError::Undeclared(kind)) => Read::Over(Err(RpcError::missing_capability(kind.required()))),
            Err(error) => Read::Over(Err(RpcError::internal(error.to_string()))),
        }
    }

    /// Round after round, until the handler has its answer.
    async fn go_on(self, mut call: Call, cx: Context, mut result: String) -> Outcome {
        for _ in 0..MAX_ROUNDS {
            let params = match mrtr::read_result(&call.method, &self.handshake.capabilities, &result) {
                Ok(mrtr::Outcome::Input(demand)) => self.answers(&call, &cx, &demand).await?,
                Ok(mrtr::Outcome::Final) => return Ok(answer::result(&call.method, result)),
                Err(error) => return Err(RpcError::internal(error.to_string())),
            };
            call = call.again(&params).ok_or_else(|| RpcError::internal("what the client answered nests too deep"))?;
            let outcome = match self.start(call.clone(), cx.clone()) {
                Started::Ready(outcome) => outcome,
                Started::Later(outcome) => outcome.await,
            };
            match self.read(&call, outcome) {
                Read::Over(outcome) => return outcome,
                Read::Asks(again) => result = again,
            }
        }
        Err(RpcError::internal("the handler asks its client for input without an end"))
    }

    /// Asks the client all that the handler wants to know: the parameters of its next call.
    async fn answers(&self, call: &Call, cx: &Context, demand: &Input<'_>) -> Result<String, RpcError> {
        let mut asked = Vec::new();
        for request in &demand.requests {
            asked.push(self.ask(cx, request).await?);
        }
        let mut answers = Vec::new();
        for (request, asked) in demand.requests.iter().zip(&asked) {
            answers.push((&*request.key, self.given(request, &asked.question).await?));
        }
        let answers: Vec<(&str, &str)> = answers.iter().map(|(key, given)| (*key, &**given)).collect();
        demand.retry_params(&call.params, &answers).map_err(|error| RpcError::internal(error.to_string()))
    }

    /// What the client answers.
    async fn given(&self, request: &InputRequest<'_>, question: &Question) -> Result<Box<str>, RpcError> {
        let Way { timer, reader, .. } = &self.way;
        let mut limit: Option<BoxFuture<()>> = None;
        poll_fn(|cx| {
            if let Poll::Ready(given) = question.poll(cx) {
                return Poll::Ready(given.map_err(|error| refused(request, &error)));
            }
            let gone = |reader: &StdArc<Reader>| reader.poll_gone(cx).is_ready();
            if limit.is_none() && reader.as_ref().is_some_and(gone) {
                limit = Some(timer.sleep_until(timer.now() + AFTER_HANG_UP));
            }
            match &mut limit {
                Some(limit) => limit.as_mut().poll(cx).map(|()| Err(hung_up(request))),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Sends one question, on the way that the answer of its request will take.
    async fn ask(&self, cx: &Context, request: &InputRequest<'_>) -> Result<Waiting, RpcError> {
        let Handshake { revision, capabilities, .. } = &*self.handshake;
        if !ask::can_ask(*revision, capabilities, request.kind) {
            return Err(RpcError::missing_capability(request.kind.required()));
        }
        if self.way.reader.as_ref().is_some_and(|reader| reader.is_gone()) {
            return Err(hung_up(request));
        }
        let Some((id, question)) = self.session.ask() else {
            let most = ask::MAX_ASKED;
            let what = format!("{most} requests to this client wait for its answers; no other is sent before");
            return Err(RpcError::new(code::OVERLOADED, what));
        };
        let waiting = Waiting { session: StdArc::clone(&self.session), id, question };
        let mut body = Vec::new();
        let params = ask::params(*revision, request.kind, request.params, id);
        // 2^63 questions are beyond any session.
        let number = i64::try_from(id).unwrap_or(i64::MAX).into();
        encode::request(&mut body, &number, request.kind.method(), &params);
        let queued = poll_fn(|task| cx.slot.poll_notify(task, &body)).await;
        if queued { Ok(waiting) } else { Err(RpcError::internal("the request was over before its client was asked")) }
    }
}

/// A question that is out; dropped when nobody waits for its answer any more.
struct Waiting {
    session: StdArc<Shared>,
    id: u64,
    question: StdArc<Question>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.session.forget(self.id);
    }
}

enum Started {
    Ready(Outcome),
    Later(BoxFuture<Outcome>),
}

/// What an outcome is to an older revision.
enum Read {
    Over(Outcome),
    /// This result asks for input.
    Asks(String),
}

fn is_task(result: &str) -> bool {
    result.contains("\"task\"") && members(result, &["resultType"]) == Some([Some("\"task\"")])
}

/// A stream of a session is not resumed, so nobody can be asked on it any more.
fn hung_up(request: &InputRequest<'_>) -> RpcError {
    RpcError::internal(format!("the client hung up and did not answer {}", request.kind.method()))
}

fn refused(request: &InputRequest<'_>, error: &RpcError) -> RpcError {
    RpcError::internal(format!("the client answered {} with an error: {error}", request.kind.method()))
}

/// Runs a job where it may block; a future that ends with it, and with an error if it panics.
fn run(spawn: &dyn Spawn, job: Box<dyn FnOnce() -> Outcome + Send>) -> impl Future<Output = Outcome> + Send + use<> {
    let done = StdArc::new(Done::default());
    let job_done = Ends(StdArc::clone(&done));
    spawn.spawn_blocking(Box::new(move || job_done.0.settle(job())));
    poll_fn(move |cx| {
        let mut state = done.state.lock();
        match state.0.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
}

#[derive(Default)]
struct Done {
    state: Mutex<(Option<Outcome>, Option<Waker>)>,
}

impl Done {
    fn settle(&self, outcome: Outcome) {
        let mut state = self.state.lock();
        state.0.get_or_insert(outcome);
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A job that does not get to its end says so.
struct Ends(StdArc<Done>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.settle(Err(RpcError::internal("the handler panicked, or was dropped before it ran")));
    }
}
