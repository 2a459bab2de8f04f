//! A subscription as the application reads it: notices in order, gaps with what to refetch, and its end.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};

use super::shared::Shared;
use super::tools::Raw;
use crate::id::SubscriptionId;
use crate::kernel::sync::{Arc, Mutex, wait};
use crate::rpc::{members, text};
use crate::subscription::{End, Refetch};

/// Notices that wait to be read, at most. Beyond it all of them are dropped, and what the filter covers is to be refetched.
const NOTICES: usize = 256;
/// Their bytes, at most.
const BYTES: usize = 1 << 20;

/// What happens to a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a reader decides each")]
pub enum ListenEvent {
    /// A notification.
    Notice(Notice),
    /// A stream has begun, or something may have been missed: read these afresh, then call [`Listener::refetched`] (rule L5).
    /// What is read afresh covers what came before this. What comes after it is newer, also if it comes before that call,
    /// as it does when this stands for notices that the reader left waiting until there were too many.
    Gap {
        /// Each from its authoritative method.
        refetch: Box<[Refetch]>,
    },
    /// It is over. Nothing follows.
    Ended(End),
}

/// A notification of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notice {
    /// What it is about, as `notifications/tools/list_changed`.
    pub method: Box<str>,
    /// Its parameters, as they came.
    pub params: Raw,
}

impl Notice {
    /// What is to be read for it: the list that changed, the resource, the task. `None` for a notification of another kind.
    #[must_use]
    pub fn about(&self) -> Option<Refetch> {
        let member = |name: &str| {
            let [value] = members(self.params.get(), &[name])?;
            value.and_then(text).map(Into::into)
        };
        Refetch::of_notice(&self.method, member)
    }
}

/// A subscription that its reader and the loop share.
#[derive(Debug)]
pub(super) struct Inbox {
    refetch: Box<[Refetch]>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<ListenEvent>,
    /// Of the notices among them.
    bytes: usize,
    waker: Option<Waker>,
}

impl Inbox {
    pub(super) fn new(refetch: &[Refetch]) -> Self {
        Self { refetch: refetch.into(), state: Mutex::default() }
    }

    /// Keeps an event; whom to wake. The machine tells one gap at a time and one end, so only notices can be many.
    pub(super) fn push(&self, event: ListenEvent) -> Option<Waker> {
        let mut state = self.state.lock();
        let size = event.size();
        if state.events.len() >= NOTICES || state.bytes + size > BYTES {
            state.events.clear();
            state.bytes = 0;
            state.events.push_back(ListenEvent::Gap { refetch: self.refetch.clone() });
        }
        let covered = matches!((&event, state.events.back()), (ListenEvent::Gap { .. }, Some(ListenEvent::Gap { .. })));
        // A notice that alone is too big is covered by the refetch as well.
        if !covered && size <= BYTES {
            state.bytes += size;
            state.events.push_back(event);
        }
        state.waker.take()
    }

    fn poll_next(&self, cx: &Context<'_>) -> Poll<ListenEvent> {
        let mut state = self.state.lock();
        match state.events.pop_front() {
            Some(event) => {
                state.bytes -= event.size();
                if let ListenEvent::Ended(_) = event {
                    state.events.push_front(event.clone());
                }
                Poll::Ready(event)
            }
            None => {
                wait(state, cx, |state| &mut state.waker);
                Poll::Pending
            }
        }
    }
}

impl Inbox {
    fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        let state = self.state.lock();
        if matches!(state.events.back(), Some(ListenEvent::Ended(_))) {
            return Poll::Ready(());
        }
        wait(state, cx, |state| &mut state.waker);
        Poll::Pending
    }
}

impl ListenEvent {
    fn size(&self) -> usize {
        match self {
            Self::Notice(notice) => notice.method.len() + notice.params.get().len(),
            Self::Gap { .. } | Self::Ended(_) => 0,
        }
    }
}

/// A subscription. It is sent again on every new link; dropping it ends it.
#[must_use = "dropping a subscription ends it"]
pub struct Listener {
    pub(super) shared: Arc<Shared>,
    pub(super) id: SubscriptionId,
    pub(super) inbox: Arc<Inbox>,
}

impl Listener {
    /// What happens next. After [`ListenEvent::Ended`] it is that for ever.
    pub async fn next(&mut self) -> ListenEvent {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    pub(super) fn poll_next(&mut self, cx: &Context<'_>) -> Poll<ListenEvent> {
        self.inbox.poll_next(cx)
    }

    /// Ready once it is over, whatever waits to be read before that.
    pub(super) fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        self.inbox.poll_ended(cx)
    }

    /// What the last [`ListenEvent::Gap`] named is read: notices may go on, or the gap comes again.
    pub fn refetched(&self) {
        let mut state = self.shared.lock();
        state.machine.refetched(self.id);
        state.settle();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let now = self.shared.timer.now();
        self.shared.lock().unlisten(now, self.id);
    }
}

impl core::fmt::Debug for Listener {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Listener").field("id", &self.id).finish_non_exhaustive()
    }
}
