//! One subscription: its listener, what it watches, and who is rung when there is something to take.

use alloc::boxed::Box;
use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;
use core::task::{Context, Poll, Waker};

use super::super::mutant;
use super::super::queue::OutboundQueue;
use super::super::sync::{Arc, Mutex};
use super::topic::{Topic, acknowledge};
use super::{Shared, State, SubscribeError};
use crate::id::RequestId;
use crate::listener::{self, End, Listener, Published, Slot};
use crate::outbound::Handle;
use crate::subscription::Refetch;

/// What publishers and the reader of a subscription share.
pub(super) struct Stream {
    pub(super) number: u64,
    inside: Mutex<Inside>,
}

struct Inside {
    listener: Listener<State>,
    /// What each slot watches.
    topics: Vec<Option<StdArc<Topic>>>,
    sink: Option<Sink>,
}

/// Who is rung.
pub(in super::super) enum Sink {
    /// A task that polls the subscription itself.
    Waker(Waker),
    /// The engine that serves the listen request.
    Engine(Arc<OutboundQueue>, Handle),
}

impl Sink {
    /// Says that there is something to take. Never under a lock of the hub.
    pub(in super::super) fn ring(self) {
        match self {
            Self::Waker(waker) => waker.wake(),
            Self::Engine(queue, handle) => queue.tell(|signals| signals.listens.push(handle)),
        }
    }
}

impl Inside {
    /// Whom to ring. An engine stays to be rung again; a waker is for once.
    fn waiting(&mut self) -> Option<Sink> {
        match &self.sink {
            Some(Sink::Engine(queue, handle)) => Some(Sink::Engine(Arc::clone(queue), *handle)),
            Some(Sink::Waker(_)) | None => self.sink.take(),
        }
    }
}

impl Stream {
    /// A slot for what this topic is about.
    pub(super) fn watch(&self, topic: &StdArc<Topic>) -> Result<Slot, SubscribeError> {
        let mut inside = self.inside.lock();
        let most = inside.listener.capacity();
        let slot = inside.listener.watch().ok_or(SubscribeError::TooMuch(most))?;
        if inside.topics.len() <= slot.index() {
            inside.topics.resize(slot.index() + 1, None);
        }
        inside.topics[slot.index()] = Some(StdArc::clone(topic));
        Ok(slot)
    }

    pub(super) fn unwatch(&self, slot: Slot) {
        let mut inside = self.inside.lock();
        inside.listener.unwatch(slot);
        if let Some(topic) = inside.topics.get_mut(slot.index()) {
            *topic = None;
        }
    }

    pub(super) fn publish(&self, slot: Slot, state: Option<State>) -> (Published, Option<Sink>) {
        let mut inside = self.inside.lock();
        let published = inside.listener.publish(slot, state);
        let wake = match published {
            Published::Marked { wake } | Published::Behind { wake } => wake,
            Published::Coalesced | Published::Ignored => false,
        };
        let waiting = if wake { inside.waiting() } else { None };
        (published, waiting)
    }
}

/// An open subscription of a [`Hub`](super::Hub). Dropping it ends it: nothing of it stays behind.
///
/// A `subscriptions/listen` request is served by returning it as [`Answer::Listen`](super::super::Answer::Listen), which
/// [`Hub::listen`](super::Hub::listen) does. Whoever carries changes in another way polls it.
pub struct Subscription {
    hub: Arc<Shared>,
    stream: Arc<Stream>,
    owner: Option<Box<str>>,
}

/// What a subscription says next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever polls a subscription must know each")]
pub enum Update {
    /// First of all: what follows is complete from here on. A listen is acknowledged by it (rule L1).
    Acknowledged,
    /// Something has changed.
    Changed(Change),
    /// No more comes. Without a call of [`Subscription::drain`], its reader was too far behind: read everything anew.
    Ended(End),
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// What to read again.
    pub refetch: Refetch,
    /// The method of its notification.
    pub method: &'static str,
    /// The new state of a task, a JSON object.
    pub state: Option<StdArc<str>>,
}

/// What an engine takes out of a subscription.
pub(in super::super) enum Taken {
    /// A notification was appended.
    Message,
    /// Nothing waits; it rings.
    Nothing,
    /// It is over.
    Ended(End),
}

/// What was taken, with its topic.
enum Next {
    Acknowledge(Vec<StdArc<Topic>>),
    Changed(StdArc<Topic>, Option<State>),
    Nothing,
    Ended(End),
}

impl Subscription {
    pub(super) fn open(
        hub: &Arc<Shared>,
        owner: Option<&str>,
        watched: impl IntoIterator<Item = Refetch>,
    ) -> Result<Self, SubscribeError> {
        let number = hub.registry.lock().admit(hub.config.subscriptions)?;
        let config = listener::Config { bytes: hub.config.state_bytes, ..listener::Config::default() };
        let inside = Inside { listener: Listener::new(config), topics: Vec::new(), sink: None };
        let stream = Arc::new(Stream { number, inside: Mutex::new(inside) });
        // From here on a failure drops it, which takes back what it has.
        let subscription = Self { hub: Arc::clone(hub), stream, owner: owner.map(Box::from) };
        for refetch in watched {
            subscription.watch(refetch)?;
        }
        Ok(subscription)
    }

    /// Watches this too.
    ///
    /// # Errors
    /// [`SubscribeError`] at a limit; nothing has changed then.
    pub fn watch(&self, watched: Refetch) -> Result<(), SubscribeError> {
        let topic = Topic::new(watched, self.owner.as_deref());
        self.hub.registry.lock().watch(&self.stream, topic, self.hub.config.name_bytes)
    }

    /// Watches this no more. What waits of it is not said.
    pub fn unwatch(&self, watched: Refetch) {
        let topic = Topic::new(watched, self.owner.as_deref());
        self.hub.registry.lock().unwatch(&self.stream, &topic.key);
    }

    /// The next update. The task of `cx` is rung when there is one.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Update> {
        let mut old = None;
        let next = self.next(|inside| old = inside.sink.replace(Sink::Waker(cx.waker().clone())));
        // Not under the lock: what ends with a waker may be a task that holds this very subscription.
        drop(old);
        Poll::Ready(match next {
            Next::Acknowledge(_) => Update::Acknowledged,
            Next::Changed(topic, state) => {
                Update::Changed(Change { refetch: topic.watched.clone(), method: topic.method(), state })
            }
            Next::Ended(end) => Update::Ended(end),
            Next::Nothing => return Poll::Pending,
        })
    }

    /// Says what waits, and then that it has ended.
    pub fn drain(&self) {
        let mut inside = self.stream.inside.lock();
        let waiting = if inside.listener.drain() { inside.waiting() } else { None };
        drop(inside);
        if let Some(sink) = waiting {
            sink.ring();
        }
    }

    /// Rings this engine from now on.
    pub(in super::super) fn attach(&self, queue: Arc<OutboundQueue>, handle: Handle) {
        self.stream.inside.lock().sink = Some(Sink::Engine(queue, handle));
    }

    /// Appends its next notification, as one of the listen request `id` (rule L2).
    pub(in super::super) fn take_into(&self, out: &mut Vec<u8>, id: &RequestId) -> Taken {
        match self.next(|_| ()) {
            Next::Acknowledge(topics) => {
                acknowledge(out, id, topics.iter().map(|topic| &topic.watched));
                Taken::Message
            }
            Next::Changed(topic, state) => {
                topic.encode(out, id, state.as_deref());
                Taken::Message
            }
            Next::Nothing => Taken::Nothing,
            Next::Ended(end) => Taken::Ended(end),
        }
    }

    /// What is next; `waits` runs under the lock that saw nothing, so that no ring is lost.
    fn next(&self, waits: impl FnOnce(&mut Inside)) -> Next {
        let mut inside = self.stream.inside.lock();
        loop {
            return match inside.listener.take() {
                listener::Taken::Acknowledge => {
                    if mutant::is("changes-before-the-acknowledgement") {
                        drop(inside);
                        inside = self.stream.inside.lock();
                        if let listener::Taken::Notify { slot, state } = inside.listener.take()
                            && let Some(Some(topic)) = inside.topics.get(slot.index())
                        {
                            return Next::Changed(StdArc::clone(topic), state);
                        }
                    }
                    let mut topics: Vec<_> = inside.topics.iter().flatten().cloned().collect();
                    topics.sort_by(|a, b| a.watched.cmp(&b.watched));
                    Next::Acknowledge(topics)
                }
                listener::Taken::Notify { slot, state } => match inside.topics.get(slot.index()) {
                    Some(Some(topic)) => Next::Changed(StdArc::clone(topic), state),
                    Some(None) | None => continue,
                },
                listener::Taken::Nothing => {
                    waits(&mut self.stream.inside.keep(inside, "hub-parks-outside-lock"));
                    Next::Nothing
                }
                listener::Taken::Finish(end) => Next::Ended(end),
                listener::Taken::Over => Next::Ended(inside.listener.ended().unwrap_or(End::Closed)),
            };
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut registry = self.hub.registry.lock();
        if !mutant::is("dropped-listen-stays-watched") {
            let mut inside = self.stream.inside.lock();
            inside.listener.close();
            let topics = core::mem::take(&mut inside.topics);
            let sink = inside.sink.take();
            drop(inside);
            for topic in topics.iter().flatten() {
                registry.unwatch(&self.stream, &topic.key);
            }
            registry.release();
            drop(registry);
            drop(sink);
        }
    }
}

impl core::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let owner: Option<&str> = self.owner.as_deref();
        f.debug_struct("Subscription")
            .field("number", &self.stream.number)
            .field("owner", &owner)
            .finish_non_exhaustive()
    }
}
