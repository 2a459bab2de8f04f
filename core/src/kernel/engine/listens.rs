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
    /// Those that have nothing more to say, oldest first: each ends when its result and its notification have room. One
    /// that was cancelled may still stand here.
    ending: VecDeque<Handle>,
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
            *self = Self { ending: core::mem::take(&mut self.ending), ..Self::default() };
        }
    }

    /// A listen has nothing more to say.
    pub(super) fn end(&mut self, handle: Handle) {
        self.ending.push_back(handle);
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
        self.end_listens();
        loop {
            match self.listens.pull(|handle| self.coordinator.id(handle))? {
                Pulled::Message(handle) => return Some(handle),
                Pulled::Ended(handle, end) => self.listen_ended(handle, end),
            }
        }
    }

    /// Takes messages of listens for about so many bytes; whether there were any.
    pub(super) fn pull_into(&mut self, room: usize, mut encode: impl FnMut(Popped, Item<'_>)) -> bool {
        self.end_listens();
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
        match end {
            End::Drained => {
                self.listens.end(handle);
                self.end_listens();
            }
            End::Behind => {
                let what = "this client is too far behind with the changes it asked for: listen again and read anew";
                let error = RpcError::new(code::OVERLOADED, what);
                if let Some(slot) = self.coordinator.seat(handle) {
                    slot.fail(self.ports.timer.now(), &error, CancelReason::Ended);
                }
            }
            End::Closed => {}
        }
    }
}

impl<S> Engine<S> {
    /// Ends listens that have nothing more to say, as long as the notification of each has a place behind its result
    /// (rule C5). The others end when what waits now has left.
    pub(super) fn end_listens(&mut self) {
        while !self.listens.ending.is_empty() && self.queue.can_read(false) {
            self.end_next();
        }
    }

    /// Ends the others as well, and forgets what the rest still owes: the time is over.
    pub(super) fn end_rest(&mut self) {
        while !self.listens.ending.is_empty() {
            self.end_next();
        }
        self.listens = Listens::default();
    }

    fn end_next(&mut self) {
        let Some(handle) = self.listens.ending.pop_front() else { return };
        // One that was cancelled has ended.
        let Ok(end) = self.coordinator.end_listen(self.ports.timer.now(), handle) else { return };
        let mut body = Vec::new();
        // It must not leave before a result that has to wait for room. The result alone says it, too.
        let _placed = end.cancellation.encode(self.transport, &mut body) && self.queue.refuse_behind_finals(body);
    }
}
