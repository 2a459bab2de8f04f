//! The bytes of one batched write to a server, and which attempt each message of them belongs to.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use super::request;
use super::shared::{ForLink, Shared};
use crate::id::{RequestId, WireId};
use crate::kernel::port::Link;
use crate::rpc::encode;

/// Where filling stops, in bytes.
const BATCH: usize = 64 << 10;

/// Encoded messages on their way to the link.
#[derive(Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
    /// The requests among them, and where each starts.
    requests: Vec<(WireId, usize)>,
    /// Requests whose streams are to be closed: all of them are written.
    closings: Vec<WireId>,
    /// Calls that the application does not go on with.
    abandoned: Vec<WireId>,
    /// Where the messages that are not written whole end.
    ends: VecDeque<usize>,
    taken: Vec<ForLink>,
    scratch: String,
}

impl Outbox {
    /// What waits to be written.
    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Takes the requests whose streams are to be closed. Each was written before: a signal is taken from the machine
    /// only after its request, and [`fill`](Self::fill) takes nothing before all is written.
    pub(super) fn closings(&mut self) -> impl Iterator<Item = RequestId> + '_ {
        self.closings.drain(..).map(request::id)
    }

    /// Takes the calls that the application does not go on with.
    pub(super) fn abandoned(&mut self) -> impl Iterator<Item = RequestId> + '_ {
        self.abandoned.drain(..).map(request::id)
    }

    /// Takes messages, if all that was taken before is written.
    pub(super) fn fill<L: Link>(&mut self, shared: &Shared) {
        if !self.pending().is_empty() {
            return;
        }
        self.clear();
        let mut state = shared.lock();
        let mut size = 0;
        while size < BATCH
            && let Some(message) = state.poll_link()
        {
            size += match &message {
                ForLink::Request(_, payload) => payload.size(),
                ForLink::Cancellation(..) | ForLink::Listen(..) => 100,
                // No bytes: a batch of these alone would be taken for the last. Calls in flight bound them, and their own
                // capacity.
                ForLink::Close(_) | ForLink::Abandon(_) => 0,
            };
            self.taken.push(message);
        }
        drop(state);
        for message in core::mem::take(&mut self.taken) {
            self.encode::<L>(message, shared);
        }
    }

    fn encode<L: Link>(&mut self, message: ForLink, shared: &Shared) {
        match message {
            ForLink::Close(wire) => return self.closings.push(wire),
            ForLink::Abandon(wire) => return self.abandoned.push(wire),
            ForLink::Request(..) | ForLink::Cancellation(..) | ForLink::Listen(_) => {}
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(L::BEFORE);
        match message {
            ForLink::Close(_) | ForLink::Abandon(_) => {}
            ForLink::Request(wire, payload) => {
                self.requests.push((wire, start));
                payload.encode(&mut self.bytes, &mut self.scratch, wire);
            }
            ForLink::Listen(plan) => {
                self.requests.push((plan.wire(), start));
                // It was built before, for its size.
                let listen = request::listen(plan.filter());
                if let Ok(payload) = listen.payload(shared.meta(&listen), usize::MAX) {
                    payload.encode_as(&mut self.bytes, &request::id(plan.wire()));
                }
            }
            ForLink::Cancellation(wire, reason) => {
                encode::cancelled(&mut self.bytes, &request::id(wire), reason.as_deref());
            }
        }
        self.bytes.extend_from_slice(L::AFTER);
        self.ends.push_back(self.bytes.len());
    }

    /// Puts a message of the loop's own, on an empty outbox.
    pub(super) fn put<L: Link>(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.clear();
        self.bytes.extend_from_slice(L::BEFORE);
        write(&mut self.bytes);
        self.bytes.extend_from_slice(L::AFTER);
        self.ends.push_back(self.bytes.len());
    }

    /// The link took `count` bytes. How many messages are out whole by that.
    pub(super) fn sent(&mut self, count: usize) -> usize {
        self.sent = self.bytes.len().min(self.sent + count);
        let before = self.ends.len();
        while self.ends.front().is_some_and(|end| *end <= self.sent) {
            self.ends.pop_front();
        }
        before - self.ends.len()
    }

    /// The requests of which no byte was written.
    pub(super) fn unsent(&self) -> Vec<WireId> {
        let unsent = self.requests.iter().filter(|(_, start)| *start >= self.sent);
        unsent.map(|(wire, _)| *wire).collect()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        if self.bytes.capacity() > 2 * BATCH {
            self.bytes = Vec::new();
        }
        if self.scratch.capacity() > 2 * BATCH {
            self.scratch = String::new();
        }
        self.bytes.clear();
        self.requests.clear();
        self.ends.clear();
        self.sent = 0;
    }
}
