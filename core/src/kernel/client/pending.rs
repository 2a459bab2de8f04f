//! A call that was started: its progress, its cancellation, its end.

use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll};

use super::error::CallError;
use super::shared::Shared;
use super::slot::{CallSlot, Report};
use super::tools::{Raw, ToolResult};
use crate::id::CallId;
use crate::kernel::legacy::parked_call;
use crate::kernel::sync::Arc;

/// A call in flight: a future of its result. It runs whether it is polled or not; dropping it cancels it, always.
///
/// ```
/// use steady_core::kernel::client::{CallError, Caller, Raw, Request};
///
/// async fn count(client: &Caller) -> Result<Raw, CallError> {
///     let mut call = client.call(Request::tool("count", &[("to", 5)].into_iter().collect::<std::collections::BTreeMap<_, _>>()));
///     while let Some(report) = call.progress().await {
///         println!("{} of {:?}", report.progress, report.total);
///     }
///     call.await
/// }
/// ```
#[must_use = "dropping a call cancels it"]
pub struct Pending {
    started: Result<Started, Option<CallError>>,
}

struct Started {
    shared: Arc<Shared>,
    call: CallId,
    slot: Arc<CallSlot>,
    /// The outcome was handed out.
    over: bool,
}

impl Pending {
    pub(super) fn new(shared: Arc<Shared>, started: Result<(CallId, Arc<CallSlot>), CallError>) -> Self {
        let started = started.map(|(call, slot)| Started { shared, call, slot, over: false });
        Self { started: started.map_err(Some) }
    }

    /// The next progress value, in order; `None` once the call is over and what came before is read. Values that were not
    /// read in time make room for newer ones. After a cancellation or a timeout there is none.
    pub async fn progress(&mut self) -> Option<Report> {
        let Ok(started) = &self.started else { return None };
        poll_fn(|cx| started.slot.poll_report(cx)).await
    }

    /// Gives the call up, with a reason for people, of which the first KiB is sent: the server is told, and the call ends at
    /// once, here. Nothing if it is over.
    pub fn cancel(&self, reason: &str) {
        if let Ok(started) = &self.started {
            started.cancel(Some(reason));
        }
    }

    /// Something that can cancel the call while it is awaited.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        let started = self.started.as_ref().ok();
        Canceller(started.map(|started| (Arc::clone(&started.shared), started.call)))
    }

    /// The result of a tool.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn tool_result(self) -> Result<ToolResult, CallError> {
        ToolResult::read(self.await?)
    }
}

impl Started {
    fn cancel(&self, reason: Option<&str>) {
        let now = self.shared.timer.now();
        self.shared.lock().cancel(now, self.call, reason);
    }

    /// Nobody looks at its end. A demand for input may be there already, behind which a server waits.
    fn leave(&self) {
        self.cancel(None);
        if let Some(Ok(demand)) = self.slot.take_outcome()
            && let Some(call) = parked_call(demand.get())
        {
            self.shared.lock().abandon(call);
        }
    }
}

impl Future for Pending {
    type Output = Result<Raw, CallError>;

    /// # Panics
    /// When it is polled again after its end.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.started {
            Ok(started) => {
                assert!(!started.over, "a call was polled after its end");
                let outcome = started.slot.poll_outcome(cx);
                started.over = outcome.is_ready();
                outcome
            }
            Err(refused) => match refused.take() {
                Some(error) => Poll::Ready(Err(error)),
                None => panic!("a call was polled after its end"),
            },
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Ok(started) = &self.started
            && !started.over
        {
            started.leave();
        }
    }
}

impl core::fmt::Debug for Pending {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let call = self.started.as_ref().ok().map(|started| started.call);
        f.debug_struct("Pending").field("call", &call).finish_non_exhaustive()
    }
}

/// Cancels a call from elsewhere.
#[derive(Clone)]
pub struct Canceller(Option<(Arc<Shared>, CallId)>);

impl Canceller {
    /// See [`Pending::cancel`].
    pub fn cancel(&self, reason: &str) {
        if let Some((shared, call)) = &self.0 {
            let now = shared.timer.now();
            shared.lock().cancel(now, *call, Some(reason));
        }
    }
}

impl core::fmt::Debug for Canceller {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Canceller").field(&self.0.as_ref().map(|(_, call)| call)).finish()
    }
}
