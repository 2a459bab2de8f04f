//! A task that is followed: its questions, its notifications, its pauses. The machine [`Follow`] decides, this carries.

use alloc::boxed::Box;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll};

use super::caller::Caller;
use super::changes::is_passing;
use super::error::CallError;
use super::listener::{ListenEvent, Listener};
use super::pending::Pending;
use super::task::{self, TaskError, TaskOptions, TaskView};
use crate::follow::{Effect, End, Event, Follow};
use crate::kernel::BoxFuture;
use crate::rpc::method;
use crate::subscription::{self, Filter, Refetch};
use crate::time::Instant;

/// One task, followed.
pub(super) struct Following {
    caller: Caller,
    task: Box<str>,
    machine: Follow,
    question: Option<Pending>,
    /// The last question got no answer: the next one is a retry.
    failed: bool,
    listener: Option<Listener>,
    alarm: Option<(Instant, BoxFuture<()>)>,
}

/// What one look at the world gave.
enum Step {
    /// Something was done; look again.
    On,
    Seen(TaskView),
    Over(TaskError),
}

impl Following {
    pub(super) fn start(caller: Caller, task: &str, options: TaskOptions) -> Self {
        let mut jitter = caller.shared.fork_jitter();
        let listener = if options.notifications { listen(&caller, task, jitter.fork(1)) } else { None };
        let machine = Follow::start(caller.shared.timer.now(), options.follow, jitter);
        let mut following =
            Self { caller, task: task.into(), machine, question: None, failed: false, listener, alarm: None };
        following.ask();
        following
    }

    /// The next state that is heard of, by a question or by a notification.
    pub(super) async fn next(&mut self) -> Result<TaskView, TaskError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The task was given input just now.
    pub(super) fn answered(&mut self) {
        self.learn(Event::Answered);
    }

    /// The state may have changed.
    fn learn(&mut self, event: Event) {
        let now = self.caller.shared.timer.now();
        if self.machine.handle(now, event) == Effect::Ask {
            self.ask();
        }
    }

    fn ask(&mut self) {
        let repeats = core::mem::take(&mut self.failed);
        self.question = Some(self.caller.call(task::get(&self.task).repeats(repeats)));
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<TaskView, TaskError>> {
        loop {
            // An end in hand beats a clock that was not handled yet.
            let step = match self.poll_notice(cx) {
                Poll::Ready(step) => step,
                Poll::Pending => match self.poll_question(cx) {
                    Poll::Ready(step) => step,
                    Poll::Pending => match self.poll_clock(cx) {
                        Poll::Ready(step) => step,
                        Poll::Pending => return Poll::Pending,
                    },
                },
            };
            match step {
                Step::On => {}
                Step::Seen(view) => return Poll::Ready(Ok(view)),
                Step::Over(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_notice(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let Some(listener) = &mut self.listener else { return Poll::Pending };
        let event = match listener.poll_next(cx) {
            Poll::Ready(event) => event,
            Poll::Pending => return Poll::Pending,
        };
        Poll::Ready(match event {
            ListenEvent::Ended(_) => {
                self.listener = None;
                Step::On
            }
            // Questions are asked anyhow, the next one soon.
            ListenEvent::Gap { .. } => {
                listener.refetched();
                self.learn(Event::Missed);
                Step::On
            }
            ListenEvent::Notice(notice) => {
                let ours = Refetch::Task { task_id: self.task.clone() };
                if &*notice.method != method::TASKS_NOTICE || notice.about() != Some(ours) {
                    return Poll::Ready(Step::On);
                }
                match TaskView::read(notice.params) {
                    Ok(view) => self.heard(view, false),
                    Err(_) => {
                        self.learn(Event::Missed);
                        Step::On
                    }
                }
            }
        })
    }

    fn poll_question(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let Some(question) = &mut self.question else { return Poll::Pending };
        let answer = match Pin::new(question).poll(cx) {
            Poll::Ready(answer) => answer,
            Poll::Pending => return Poll::Pending,
        };
        self.question = None;
        Poll::Ready(match answer.and_then(TaskView::read) {
            Ok(view) => self.heard(view, true),
            Err(error) => self.unanswered(error),
        })
    }

    fn poll_clock(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let Some(at) = self.machine.wake_at() else { return Poll::Pending };
        let timer = &self.caller.shared.timer;
        let now = timer.now();
        if now >= at {
            self.alarm = None;
            let effect = self.machine.handle(now, Event::Clock);
            return Poll::Ready(self.follow(effect));
        }
        if self.alarm.as_ref().is_none_or(|(armed, _)| *armed != at) {
            self.alarm = Some((at, timer.sleep_until(at)));
        }
        let Some((_, alarm)) = &mut self.alarm else { return Poll::Pending };
        // Only the clock says whether the time has come.
        alarm.as_mut().poll(cx).map(|()| {
            self.alarm = None;
            Step::On
        })
    }

    /// The state, as an answer or as a notification.
    fn heard(&mut self, view: TaskView, answer: bool) -> Step {
        let (terminal, interval) = (view.status.is_terminal(), view.poll_interval);
        let event = if answer { Event::Seen { terminal, interval } } else { Event::Notified { terminal, interval } };
        match self.machine.handle(self.caller.shared.timer.now(), event) {
            Effect::TooLate => Step::On,
            Effect::Ask => {
                self.ask();
                Step::Seen(view)
            }
            Effect::Nothing | Effect::Wait { .. } | Effect::Finish(_) => Step::Seen(view),
        }
    }

    fn unanswered(&mut self, error: CallError) -> Step {
        let event = if task::is_gone(&error) {
            Event::Gone
        } else if is_passing(&error) {
            self.failed = true;
            Event::Failed
        } else {
            return Step::Over(TaskError::Call(error));
        };
        let effect = self.machine.handle(self.caller.shared.timer.now(), event);
        self.follow(effect)
    }

    fn follow(&mut self, effect: Effect) -> Step {
        let task = self.task.clone();
        match effect {
            Effect::Ask => {
                self.ask();
                Step::On
            }
            Effect::Finish(End::GaveUp | End::Stopped | End::Terminal) => Step::Over(TaskError::GaveUp { task }),
            Effect::Finish(End::Gone) => Step::Over(TaskError::Gone { task }),
            Effect::Nothing | Effect::Wait { .. } | Effect::TooLate => Step::On,
        }
    }
}

/// A subscription to one task, if there is room.
fn listen(caller: &Caller, task: &str, jitter: crate::backoff::Jitter) -> Option<Listener> {
    let mut filter = b"{\"taskIds\":[".to_vec();
    crate::rpc::encode::string(&mut filter, task);
    filter.extend_from_slice(b"]}");
    let filter = Filter::parse(core::str::from_utf8(&filter).ok()?).ok()?;
    caller.listen(filter, subscription::Config::default(), jitter).ok()
}
