//! The handle of a client: it starts calls, from any thread.

use alloc::sync::Arc as StdArc;

use serde::Serialize;

use super::Request;
use super::error::CallError;
use super::listener::Listener;
use super::pending::Pending;
use super::shared::Shared;
use super::stats::ClientStats;
use super::tools::{Discovered, ToolResult};
use crate::backoff::Jitter;
use crate::kernel::sync::Arc;
use crate::rpc::method;
use crate::subscription::{self, Filter};

/// A handle of a client. Clones share it; when the last one is gone and no call is in flight, the client ends.
pub struct Caller {
    pub(super) shared: Arc<Shared>,
}

impl Caller {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        shared.lock().handles += 1;
        Self { shared }
    }

    /// Starts a call at once. A call that is refused here (cap, size, parameters, closed client) says so when it is
    /// awaited, and nothing of it was sent.
    pub fn call(&self, request: Request) -> Pending {
        Pending::new(Arc::clone(&self.shared), self.shared.start(&request))
    }

    /// Calls a tool and reads its result.
    ///
    /// # Errors
    /// [`CallError`]. A tool that failed is a result with `is_error`.
    pub async fn call_tool(&self, name: &str, arguments: &(impl Serialize + ?Sized)) -> Result<ToolResult, CallError> {
        let pending = self.call(Request::tool(name, arguments));
        pending.tool_result().await
    }

    /// Asks the server what it is (rule M8).
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn discover(&self) -> Result<Discovered, CallError> {
        self.call(Request::raw(method::DISCOVER, "{}").safe()).await?.parse()
    }

    /// Subscribes to what `filter` names (rules L1 to L6). After a loss the same filter is asked for again, under a new
    /// id, and the reader is told what to refetch; [`changes`](Self::changes) does that by itself.
    ///
    /// # Errors
    /// [`CallError::Full`] at [`MAX_SUBSCRIPTIONS`](crate::client::MAX_SUBSCRIPTIONS), [`CallError::Closed`].
    pub fn listen(&self, filter: Filter, config: subscription::Config, jitter: Jitter) -> Result<Listener, CallError> {
        let (id, inbox) = self.shared.listen(filter, config, jitter)?;
        Ok(Listener { shared: Arc::clone(&self.shared), id, inbox })
    }

    /// What the server of the current link answered to `server/discover`; none before, or without a probe.
    #[must_use]
    pub fn server(&self) -> Option<StdArc<Discovered>> {
        self.shared.lock().server.clone()
    }

    /// What was counted. Not from a subscriber of `tracing` or a recorder of `metrics`, which are told under the client's lock.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.shared.stats()
    }

    /// Ends the client: every call in flight is cancelled, every later one refused. The transport then closes the link.
    pub fn close(&self) {
        let now = self.shared.timer.now();
        self.shared.lock().close(now);
    }
}

impl Clone for Caller {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.handles -= 1;
        state.wake_driver();
    }
}

impl core::fmt::Debug for Caller {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Caller")
    }
}
