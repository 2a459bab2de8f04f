//! The open listens of an engine that a hub serves: which of them have something to say.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::super::handler::Run;
use super::super::hub::{Subscription, Taken};
use super::super::service::Service;
use super::super::slot::CancelReason;
use super::super::sync::Arc;
use super::Engine;
use crate::id::RequestId;
use crate::listener::End;
use crate::outbound::{Handle, Item, Popped};
use crate::rpc::{RpcError, code, method};

/// Subscriptions by the handle of their listen request. There are no more than requests in flight.
#[derive(Debug, Default)]
pub(super) struct Listens {
    open: BTreeMap<Handle, Subscription>,
    /// Oldest first. One that has ended may still stand here.
    ready: VecDeque<Handle>,
    /// Reused for each message.
    text: Vec<u8>,
}

/// What was found.
enum Pulled {
    /// A notification of this listen is in the text.
    Message(Handle),
    /// This listen is over: answer it.
    Ended(Handle, End),
}

impl Listens {
    fn open(&mut self, handle: Handle, subscription: Subscription) {
        self.open.insert(handle, subscription);
        self.ready.push_back(handle);
    }

    /// The subscription is over, and the hub forgets it.
    pub(super) fn close(&mut self, handle: Handle) {
        if self.open.remove(&handle).is_some() && self.open.is_empty() {
            *self = Self::default();
        }
    }

    pub(super) fn close_all(&mut self) {
        *self = Self::default();
    }

    pub(super) fn ready(&mut self, handles: impl Iterator<Item = Handle>) {
        self.ready.extend(handles.filter(|handle| self.open.contains_key(handle)));
    }

    /// Ends a listen once it has said what it owes; whether it is one of these.
    pub(super) fn drain(&mut self, handle: Handle) -> bool {
        let Some(subscription) = self.open.get(&handle) else { return false };
        subscription.drain();
        true
    }

    /// Takes one message of the listen whose turn it is. `id` knows the id of its request.
    fn pull<'a>(&mut self, id: impl Fn(Handle) -> Option<&'a RequestId>) -> Option<Pulled> {
        self.text.clear();
        while let Some(handle) = self.ready.pop_front() {
            let (Some(subscription), Some(id)) = (self.open.get(&handle), id(handle)) else { continue };
            match subscription.take_into(&mut self.text, id) {
                Taken::Message => {
                    // One message a turn: a listen that owes many does not keep the others waiting.
                    self.ready.push_back(handle);
                    return Some(Pulled::Message(handle));
                }
                Taken::Nothing => {}
                Taken::Ended(end) => {
                    self.close(handle);
                    return Some(Pulled::Ended(handle, end));
                }
            }
        }
        None
    }
}

impl<S: Service> Engine<S> {
    /// Serves a listen from a hub's subscription: its messages are pulled when there is room for them.
    pub(super) fn listen(&mut self, handle: Handle, run: &Run, subscription: Subscription) {
        if !self.coordinator.is_listen(handle) {
            let what = alloc::format!("the handler answered by a subscription, which only {} can be", method::LISTEN);
            return run.complete(&Err(RpcError::internal(what)));
        }
        subscription.attach(Arc::clone(&self.queue), handle);
        self.listens.open(handle, subscription);
        if self.coordinator.is_closed() {
            self.listens.drain(handle);
        }
    }

    /// Takes one message of a listen, if one has something to say.
    pub(super) fn pull<R>(&mut self, encode: impl FnOnce(Item<'_>) -> R) -> Option<(Popped, R)> {
        let handle = self.pull_text()?;
        let popped = Popped { handle: Some(handle), last: false };
        Some((popped, encode(Item::Text(&self.listens.text))))
    }

    /// The listen whose message is now in the text. One that is over is answered meanwhile.
    fn pull_text(&mut self) -> Option<Handle> {
        loop {
            match self.listens.pull(|handle| self.coordinator.id(handle))? {
                Pulled::Message(handle) => return Some(handle),
                Pulled::Ended(handle, end) => self.listen_ended(handle, end),
            }
        }
    }

    /// Takes messages of listens for about so many bytes; whether there were any.
    pub(super) fn pull_into(&mut self, room: usize, mut encode: impl FnMut(Popped, Item<'_>)) -> bool {
        let mut taken = 0;
        while taken < room && !self.listens.ready.is_empty() {
            let Some(handle) = self.pull_text() else { break };
            self.counters.messages_out += 1;
            taken += self.listens.text.len();
            encode(Popped { handle: Some(handle), last: false }, Item::Text(&self.listens.text));
        }
        taken > 0
    }

    fn listen_ended(&mut self, handle: Handle, end: End) {
        let now = self.ports.timer.now();
        match end {
            End::Drained => self.end_listen(now, handle),
            End::Behind => {
                let what = "this client is too far behind with the changes it asked for: listen again and read anew";
                let error = RpcError::new(code::OVERLOADED, what);
                if let Some(slot) = self.coordinator.seat(handle) {
                    slot.fail(now, &error, CancelReason::Ended);
                }
            }
            End::Closed => {}
        }
    }
}
