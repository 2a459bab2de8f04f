//! A subscription that reads by itself: at its start and after each loss, fresh state comes before anything else.
//!
//! [`Listener`] leaves the reading to its user, who may forget it. [`Changes`] does it through the client: lists over all
//! their pages, resources, tasks, eight at a time, as safe requests. A read that fails for a passing reason is tried again,
//! with the pauses of the subscription and under the client's retry budget, as long as there is a client; one that the
//! server refuses, or fails three times, is told, as the state of that thing is not known.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use super::caller::Caller;
use super::error::{CallError, passes};
use super::listener::{ListenEvent, Listener, Notice};
use super::tools::Raw;
use super::{Request, task};
use crate::backoff::{Backoff, Jitter};
use crate::id::Attempt;
use crate::rpc::{code, encode, method};
use crate::subscription::{Config, End, Filter, Refetch};

/// Reads that are under way at once.
const READS: usize = 8;
/// How often a server may fail one read, or keep it waiting, before that is told: it must not hold up the rest for ever.
const FAILURES: u32 = 3;
/// The shortest pause after a read that this client refused itself.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// What a subscription tells, in order.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a reader decides each")]
pub enum Change {
    /// A notification. What it is about can be read now, and has not been.
    Notice(Notice),
    /// A stream has begun, or something may have been missed: from here on these are read afresh. Nothing but their state comes before all of them
    /// are told (rule L5).
    Gap {
        /// What is read.
        refetch: Box<[Refetch]>,
    },
    /// The state of one of them, read after the gap.
    Fresh {
        /// What it is.
        what: Refetch,
        /// Its state.
        state: Fresh,
    },
    /// One of them cannot be read: the server refuses, its answer is unusable, or it failed or took too long three times. What
    /// is known of it is not to be trusted.
    Unreadable {
        /// What it is.
        what: Refetch,
        /// Why.
        error: CallError,
    },
    /// It is over. Nothing follows.
    Ended(End),
}

/// State that was read from its authoritative method.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the kinds of reads of rule L5")]
pub enum Fresh {
    /// All items of a list, each once by its stable identifier.
    List(Vec<Item>),
    /// The result for a resource or a task, a JSON object as it came.
    One(Raw),
}

/// One item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Item {
    /// Its stable identifier: a name, or a URI.
    pub id: Box<str>,
    /// The item, a JSON object as it came.
    pub value: Raw,
}

type Reading = Pin<Box<dyn Future<Output = (Refetch, Result<Fresh, CallError>)> + Send>>;

/// A subscription with its reads. Dropping it ends both.
#[must_use = "dropping a subscription ends it"]
pub struct Changes {
    caller: Caller,
    listener: Listener,
    backoff: Backoff,
    jitter: Jitter,
    reads: u64,
    /// A gap is open until all of these are read.
    gap: bool,
    waiting: VecDeque<Refetch>,
    under_way: Vec<Reading>,
}

impl Caller {
    /// Subscribes to what `filter` names, and reads it at the start and after each loss. For a reader that does
    /// the reads itself: [`listen`](Self::listen).
    ///
    /// # Errors
    /// Those of [`listen`](Self::listen).
    pub fn changes(&self, filter: Filter) -> Result<Changes, CallError> {
        self.changes_with(filter, Config::default())
    }

    /// The same with limits and pauses of the caller's own.
    ///
    /// # Errors
    /// Those of [`listen`](Self::listen).
    pub fn changes_with(&self, filter: Filter, config: Config) -> Result<Changes, CallError> {
        let mut jitter = self.shared.fork_jitter();
        let listener = self.listen(filter, config, jitter.fork(0))?;
        let (waiting, under_way) = (VecDeque::new(), Vec::new());
        let caller = self.clone();
        Ok(Changes { caller, listener, backoff: config.backoff, jitter, reads: 0, gap: false, waiting, under_way })
    }

    /// Reads one thing from its authoritative method, once.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn read_afresh(&self, what: &Refetch) -> Result<Fresh, CallError> {
        self.read(what, false).await
    }

    /// A repeat asks the retry budget first.
    async fn read(&self, what: &Refetch, repeats: bool) -> Result<Fresh, CallError> {
        let member = match what {
            Refetch::Tools => "tools",
            Refetch::Prompts => "prompts",
            Refetch::Resources => "resources",
            Refetch::Resource { uri } => return self.read_one(what.method(), ("uri", uri), repeats).await,
            Refetch::Task { task_id } => return self.read_one(what.method(), ("taskId", task_id), repeats).await,
        };
        self.list(what.method(), (member, what.stable_identifier()), repeats).await.map(Fresh::List)
    }

    async fn read_one(&self, method: &str, what: (&str, &str), repeats: bool) -> Result<Fresh, CallError> {
        let request = Request::raw(method, object(&[what])).safe().repeats(repeats);
        let request = if method == method::TASKS_GET { request.with_tasks() } else { request };
        self.call(request).await.map(Fresh::One)
    }
}

/// A JSON object with these members, each a string.
pub(super) fn object(members: &[(&str, &str)]) -> alloc::string::String {
    let mut out = b"{".to_vec();
    for (nth, (name, value)) in members.iter().enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        encode::string(&mut out, name);
        out.push(b':');
        encode::string(&mut out, value);
    }
    out.push(b'}');
    alloc::string::String::from_utf8(out).unwrap_or_default()
}

/// Whether the same read can have an answer later.
pub(super) fn is_passing(error: &CallError) -> bool {
    match error {
        CallError::Peer(error) => passes(error.code),
        CallError::Full { .. }
        | CallError::FullBytes { .. }
        | CallError::NoBudget
        | CallError::IdleTimeout { .. }
        | CallError::MaxTimeout { .. }
        | CallError::NeverSent { .. }
        | CallError::Unknown { .. } => true,
        CallError::RequestTooLong { .. }
        | CallError::Params(_)
        | CallError::Closed(_)
        | CallError::Refused(_)
        | CallError::AnswerTooLong
        | CallError::Answer(_)
        | CallError::NoInput(_)
        | CallError::Cancelled { .. } => false,
    }
}

/// Whether nothing was sent, for want of room or of retries.
const fn is_refused_here(error: &CallError) -> bool {
    matches!(error, CallError::Full { .. } | CallError::FullBytes { .. } | CallError::NoBudget)
}

/// Whether the server had the question and failed it, other than by saying that it has too much to do.
fn is_failure(error: &CallError) -> bool {
    if let CallError::Peer(error) = error {
        return error.code != code::OVERLOADED;
    }
    matches!(error, CallError::IdleTimeout { .. } | CallError::MaxTimeout { .. })
}

impl Changes {
    /// What happens next. After [`Change::Ended`] it is that for ever. A future of this may be dropped at any time: what was
    /// under way goes on with the next one.
    pub async fn next(&mut self) -> Change {
        if self.gap {
            // A subscription that is over says so, however long its reads would take.
            let read = poll_fn(|cx| match self.listener.poll_ended(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => self.poll_read(cx),
            });
            if let Some(change) = read.await {
                return change;
            }
            self.gap = false;
            self.waiting.clear();
            self.under_way.clear();
            self.listener.refetched();
        }
        match self.listener.next().await {
            ListenEvent::Notice(notice) => Change::Notice(notice),
            ListenEvent::Ended(end) => Change::Ended(end),
            ListenEvent::Gap { refetch } => {
                self.gap = true;
                self.waiting.extend(refetch.iter().cloned());
                Change::Gap { refetch }
            }
        }
    }

    /// The end of a read that is under way; `None` once there is none.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Change>> {
        while self.under_way.len() < READS
            && let Some(what) = self.waiting.pop_front()
        {
            self.reads += 1;
            let jitter = self.jitter.fork(self.reads);
            self.under_way.push(Box::pin(read_until_it_is(self.caller.clone(), what, self.backoff, jitter)));
        }
        if self.under_way.is_empty() {
            return Poll::Ready(None);
        }
        for at in 0..self.under_way.len() {
            let Some(reading) = self.under_way.get_mut(at) else { break };
            if let Poll::Ready((what, read)) = reading.as_mut().poll(cx) {
                drop(self.under_way.swap_remove(at));
                return Poll::Ready(Some(match read {
                    Ok(state) => Change::Fresh { what, state },
                    Err(error) => Change::Unreadable { what, error },
                }));
            }
        }
        Poll::Pending
    }
}

async fn read_until_it_is(
    caller: Caller,
    what: Refetch,
    backoff: Backoff,
    mut jitter: Jitter,
) -> (Refetch, Result<Fresh, CallError>) {
    let mut attempt = Attempt::FIRST;
    let mut failures = 0;
    loop {
        let read = caller.read(&what, attempt != Attempt::FIRST).await;
        failures += u32::from(read.as_ref().is_err_and(is_failure));
        match read {
            Err(error) if is_passing(&error) && failures < FAILURES => {
                let pause = backoff.delay(attempt, &mut jitter);
                attempt = attempt.next();
                // What was refused here took no time: without a pause it would be asked again for ever, at once.
                let least = if is_refused_here(&error) { LEAST_PAUSE } else { Duration::ZERO };
                task::sleep(&caller, pause.max(least)).await;
            }
            read => return (what, read),
        }
    }
}

impl core::fmt::Debug for Changes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Changes").field("listener", &self.listener).field("gap", &self.gap).finish_non_exhaustive()
    }
}
