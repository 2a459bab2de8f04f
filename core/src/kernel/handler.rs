//! Runs one handler to its end, or drops it after its grace period once nobody waits for it.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc as StdArc;
use core::any::Any;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::port::{BoxFuture, Timer};
use super::service::Outcome;
use super::slot::{Slot, Standing};
use super::sync::Arc;
use crate::outbound::Handle;
use crate::rpc::RpcError;

/// A handler's future under supervision: cancellation with grace, panics as -32603, and word of its end, always.
pub(super) struct HandlerTask {
    /// `None` once it has ended.
    future: Option<BoxFuture<Outcome>>,
    run: Run,
    grace: Duration,
    sleep: Option<BoxFuture<()>>,
    waiter: Option<u64>,
}

/// What a handler leaves behind when it ends, in whatever way.
pub(super) struct Run {
    pub(super) slot: Arc<Slot>,
    pub(super) timer: StdArc<dyn Timer>,
    handle: Handle,
    max_result: usize,
}

impl Run {
    pub(super) fn new(slot: Arc<Slot>, handle: Handle, timer: StdArc<dyn Timer>, max_result: usize) -> Self {
        Self { slot, timer, handle, max_result }
    }

    /// Runs a step of the handler in the span of its request; a panic in it becomes an answer.
    pub(super) fn guard<T>(&self, step: impl FnOnce() -> T) -> Result<T, RpcError> {
        let step = || self.slot.span.inside(step);
        catch_unwind(AssertUnwindSafe(step)).map_err(|panic| RpcError::internal(panic_text(panic.as_ref())))
    }

    pub(super) fn complete(&self, outcome: &Outcome) {
        match outcome {
            Ok(result) if result.len() > self.max_result => {
                let (is, most) = (result.len(), self.max_result);
                let why =
                    format!("the result has {is} bytes, and this server sends {most} at most: ask for less of it");
                self.answer(&Err(RpcError::internal(why)));
            }
            Ok(_) | Err(_) => self.answer(outcome),
        }
    }

    fn answer(&self, outcome: &Outcome) {
        if self.slot.complete(self.timer.now(), outcome) {
            self.slot.span.answered(outcome);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.slot.queue.tell(|signals| signals.ended.push(self.handle));
    }
}

impl HandlerTask {
    /// Polls a handler once, where its request was read. What is not done then goes on as a task, which registers to hear
    /// of the end of its request at its next poll.
    pub(super) fn start(future: BoxFuture<Outcome>, run: Run, grace: Duration) -> Option<Self> {
        let mut task = Self { future: Some(future), run, grace, sleep: None, waiter: None };
        let mut cx = Context::from_waker(Waker::noop());
        if task.step(&mut cx).is_pending() { Some(task) } else { None }
    }

    /// Polls the handler, and hands on its answer.
    fn step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(future) = &mut self.future else { return Poll::Ready(()) };
        let outcome = match self.run.guard(|| future.as_mut().poll(cx)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(outcome)) => outcome,
            Err(panic) => Err(panic),
        };
        self.drop_future();
        self.run.complete(&outcome);
        Poll::Ready(())
    }

    /// A future whose destructor panics must not take the executor with it.
    fn drop_future(&mut self) {
        let future = self.future.take();
        let _panic = self.run.guard(|| drop(future));
    }

    /// Whether the grace period of a handler whose request is over has run out.
    fn out_of_grace(&mut self, cx: &mut Context<'_>) -> bool {
        let over_at = match self.run.slot.standing(&mut self.waiter, cx.waker()) {
            Standing::InFlight | Standing::Shielded => return false,
            Standing::Over(at) => at,
        };
        let until = over_at + self.grace;
        if self.run.timer.now() >= until {
            return true;
        }
        let timer = &self.run.timer;
        let sleep = self.sleep.get_or_insert_with(|| timer.sleep_until(until));
        if sleep.as_mut().poll(cx).is_ready() {
            // The clock decides, not the alarm: a section that could not be cancelled has moved the end.
            self.sleep = None;
            cx.waker().wake_by_ref();
        }
        false
    }
}

impl Future for HandlerTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.out_of_grace(cx) {
            this.drop_future();
        }
        this.step(cx)
    }
}

impl Drop for HandlerTask {
    fn drop(&mut self) {
        if self.future.is_some() {
            // The executor gave it up. The request must not wait for its deadline for that; if it is over, this is nothing.
            self.drop_future();
            self.run.complete(&Err(dropped()));
        }
        if let Some(key) = self.waiter {
            self.run.slot.forget_waiter(key);
        }
    }
}

type Job = Box<dyn FnOnce() -> Outcome + Send>;

/// A handler that blocks its thread, on its way to one.
pub(super) struct BlockingTask {
    /// `None` once it runs.
    job: Option<Job>,
    run: Run,
}

impl BlockingTask {
    pub(super) const fn new(job: Job, run: Run) -> Self {
        Self { job: Some(job), run }
    }

    pub(super) fn run(mut self) {
        // It may have waited for a thread longer than anybody waits for it.
        if self.run.slot.reason().is_none()
            && let Some(job) = self.job.take()
        {
            let outcome = self.run.guard(job).unwrap_or_else(Err);
            self.run.complete(&outcome);
        }
    }
}

impl Drop for BlockingTask {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            // The executor gave it up unrun, or nobody waits for it any more and this is nothing.
            let _panic = self.run.guard(|| drop(job));
            self.run.complete(&Err(dropped()));
        }
    }
}

/// The answer in the place of a handler that its executor gave up.
fn dropped() -> RpcError {
    RpcError::internal("the handler was dropped before it answered")
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> Box<str> {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", text.unwrap_or("(no text)")).into()
}
