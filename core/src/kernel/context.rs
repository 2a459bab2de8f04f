//! What a handler knows of its request: whether it should stop, where progress goes, when the deadline is.

use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::Poll;

use super::mutant;
use super::port::Timer;
use super::slot::{CancelReason, Slot, Standing};
use super::sync::Arc;
use crate::id::{ProgressToken, RequestId};
use crate::progress::Progress;
use crate::rpc::{Level, encode, members, method, text};
use crate::time::Instant;

/// The request was cancelled, its client is gone, or its deadline ran out: nobody waits for the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request is over: {reason:?}")]
#[non_exhaustive]
pub struct Cancelled {
    /// Why.
    pub reason: CancelReason,
}

impl From<Cancelled> for crate::rpc::RpcError {
    /// What a handler may return with `?`; it is never sent, since the request is over (rule C3).
    fn from(_: Cancelled) -> Self {
        Self::internal("cancelled")
    }
}

/// The handler's side of a request. Clones share it.
#[derive(Clone)]
pub struct Context {
    pub(super) slot: Arc<Slot>,
    pub(super) timer: StdArc<dyn Timer>,
    pub(super) token: Option<StdArc<ProgressToken>>,
    pub(super) principal: Option<StdArc<str>>,
    pub(super) log_level: Option<Level>,
    pub(super) listen: bool,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("id", &self.slot.id).finish_non_exhaustive()
    }
}

impl Context {
    /// The JSON-RPC id of the request. It correlates messages; it is no key for de-duplication.
    #[must_use]
    pub fn request_id(&self) -> &RequestId {
        &self.slot.id
    }

    /// The authenticated caller, where the transport knows one; on stdio it is configured.
    #[must_use]
    pub fn principal(&self) -> Option<&str> {
        self.principal.as_deref().filter(|name| !name.is_empty())
    }

    /// Whether the client asked for progress (rule T4).
    #[must_use]
    pub const fn wants_progress(&self) -> bool {
        self.token.is_some()
    }

    /// From which level on the client wants log messages for this request (rule M11); `None`: it asked for none.
    #[must_use]
    pub const fn log_level(&self) -> Option<Level> {
        self.log_level
    }

    /// When the server's own maximum for this request runs out.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.slot.max_at()
    }

    /// The time now, on the clock of [`deadline`](Self::deadline).
    #[must_use]
    pub fn now(&self) -> Instant {
        self.timer.now()
    }

    /// Waits until `at`. Says so at once if the request is over before.
    ///
    /// # Errors
    /// [`Cancelled`] if nobody waits for the answer any more.
    pub async fn sleep_until(&self, at: Instant) -> Result<(), Cancelled> {
        let mut sleep = self.timer.sleep_until(at);
        let mut cancelled = core::pin::pin!(self.cancelled());
        poll_fn(|cx| {
            if let Poll::Ready(cancelled) = cancelled.as_mut().poll(cx) {
                return Poll::Ready(Err(cancelled));
            }
            sleep.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Why the handler should stop, if it should.
    #[must_use]
    pub fn is_cancelled(&self) -> Option<Cancelled> {
        self.slot.reason().map(|reason| Cancelled { reason })
    }

    /// Waits until the request is cancelled, its client is gone or its deadline runs out.
    pub fn cancelled(&self) -> impl Future<Output = Cancelled> + Send + '_ {
        CancelledFuture { slot: &self.slot, key: None }
    }

    /// Lets others run, then says whether to go on. Call it between steps of work that can stop there.
    ///
    /// # Errors
    /// [`Cancelled`] if nobody waits for the answer any more.
    pub async fn checkpoint(&self) -> Result<(), Cancelled> {
        let mut yielded = false;
        poll_fn(|cx| {
            if core::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        self.is_cancelled().map_or(Ok(()), Err)
    }

    /// Reports progress. It never waits: at most one value a token waits to be sent, the newest; the rate is limited and
    /// the last value always goes out before the answer. `total` is the value at the end, if it is known; an empty
    /// `message` is none. Whether it was accepted: values must strictly increase (rule P2), NaN never is.
    #[expect(clippy::must_use_candidate, reason = "a handler that does not care need not look")]
    pub fn report(&self, progress: f64, total: Option<f64>, message: &str) -> bool {
        let Some(value) = Progress::new(progress) else { return false };
        let total = total.filter(|total| total.is_finite());
        self.slot.report(self.timer.now(), value, total, message)
    }

    /// Reports progress that is not coalesced and not rate-limited: it waits for room instead. It lets others run, so a
    /// handler that does nothing else can be cancelled.
    ///
    /// # Errors
    /// [`Cancelled`] if nobody waits for the answer any more.
    pub async fn report_all(&self, progress: f64, total: Option<f64>, message: &str) -> Result<(), Cancelled> {
        let Some(value) = Progress::new(progress) else { return self.checkpoint().await };
        let total = total.filter(|total| total.is_finite());
        let whole = |token: &StdArc<_>| encode::whole_progress(token, progress, total, message);
        let body = self.token.as_ref().map(whole).unwrap_or_default();
        let queued = poll_fn(|cx| self.slot.poll_report_all(cx, self.timer.now(), value, &body)).await;
        // What is queued comes to a stop when there is no more room; the rest has to stop by itself.
        if queued { self.is_cancelled().map_or(Ok(()), Err) } else { self.checkpoint().await }
    }

    /// Sends a notification that belongs to this request, on the way that its answer will take: what a listen is for, or a
    /// log message. It waits for room, and is never dropped. `params` is JSON text.
    ///
    /// Three are not sent: progress, which [`report`](Self::report) and [`report_all`](Self::report_all) keep in order (rule
    /// P2); a log message below the level that the request [asked for](Self::log_level), or on one that asked for none
    /// (rule M11); any log message on a listen (rule L6).
    ///
    /// # Errors
    /// [`Cancelled`] if nobody waits for the answer any more.
    pub async fn notify(&self, name: &str, params: &str) -> Result<(), Cancelled> {
        if name == method::PROGRESS || (name == method::MESSAGE && !self.wants_log(params)) {
            return self.checkpoint().await;
        }
        let mut body = Vec::new();
        encode::notification(&mut body, name, params);
        let queued = poll_fn(|cx| self.slot.poll_notify(cx, &body)).await;
        if queued { self.is_cancelled().map_or(Ok(()), Err) } else { self.checkpoint().await }
    }

    /// Whether a log message may go to this request. One whose level cannot be read is above all of them.
    fn wants_log(&self, params: &str) -> bool {
        let Some(asked) = self.log_level.filter(|_| !self.listen) else { return false };
        let level = members(params, &["level"]).and_then(|[level]| text(level?));
        level.and_then(|name| Level::of(&name)).is_none_or(|level| level >= asked)
    }

    /// Runs `section` to its end although the request may be cancelled meanwhile: a cancellation that arrives in it is
    /// accepted, so nothing is sent for the request any more, and the handler is not dropped before the section ends; its
    /// grace period starts then. `is_cancelled` tells afterwards.
    pub async fn uncancellable<T>(&self, section: impl Future<Output = T>) -> T {
        let _shield = Shield::raise(self);
        section.await
    }
}

struct Shield<'a>(&'a Context);

impl<'a> Shield<'a> {
    fn raise(cx: &'a Context) -> Self {
        cx.slot.shield();
        Self(cx)
    }
}

impl Drop for Shield<'_> {
    fn drop(&mut self) {
        self.0.slot.unshield(self.0.timer.now());
    }
}

struct CancelledFuture<'a> {
    slot: &'a Arc<Slot>,
    key: Option<u64>,
}

impl Future for CancelledFuture<'_> {
    type Output = Cancelled;

    fn poll(mut self: Pin<&mut Self>, cx: &mut core::task::Context<'_>) -> Poll<Cancelled> {
        let slot = self.slot;
        let early = mutant::is("look-then-register").then(|| slot.reason());
        let _registered: Standing = slot.standing(&mut self.key, cx.waker());
        // The end may have come in between.
        early.unwrap_or_else(|| slot.reason()).map_or(Poll::Pending, |reason| Poll::Ready(Cancelled { reason }))
    }
}

impl Drop for CancelledFuture<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.slot.forget_waiter(key);
        }
    }
}
