//! The bytes of one batched write, and which request each line of them belongs to.

use alloc::vec::Vec;

use super::engine::Engine;
use super::port::Link;
use super::service::Service;
use crate::outbound::{Batch, Handle, Item};
use crate::rpc::encode;

/// Where filling stops, in bytes: a batch is one `write`, and 16 to 64 lines of it cost about as much as one.
const BATCH: usize = 64 << 10;

/// Encoded messages on their way to the link.
#[derive(Debug, Default)]
pub(super) struct Staging {
    bytes: Vec<u8>,
    sent: usize,
    batch: Batch,
    /// Where each staged message ends, and whose it is.
    messages: Vec<(Option<Handle>, usize)>,
}

impl Staging {
    /// What waits to be written.
    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Takes messages from the queue, if all that was staged before is written.
    pub(super) fn fill<L: Link, S: Service>(&mut self, engine: &mut Engine<S>) {
        if !self.pending().is_empty() {
            return;
        }
        self.bytes.clear();
        self.messages.clear();
        self.sent = 0;
        while self.bytes.len() < BATCH {
            let Self { bytes, messages, batch, .. } = self;
            let any = engine.pop_into(batch, BATCH - bytes.len(), |popped, item| {
                bytes.extend_from_slice(L::BEFORE);
                append(bytes, item);
                bytes.extend_from_slice(L::AFTER);
                messages.push((popped.handle.filter(|_| !popped.last), bytes.len()));
            });
            if !any {
                break;
            }
        }
        if self.bytes.is_empty() && self.bytes.capacity() > 2 * BATCH {
            self.bytes = Vec::new();
        }
    }

    /// The link took `count` bytes.
    pub(super) fn sent(&mut self, count: usize) {
        self.sent = self.bytes.len().min(self.sent + count);
    }

    /// Drops the staged messages of cancelled requests that have not started to leave (rule C3). A line that is half
    /// written is finished: the peer could not read the next one otherwise.
    pub(super) fn purge(&mut self, cancelled: &[Handle]) {
        let gone = |whose: &Option<Handle>| whose.is_some_and(|handle| cancelled.contains(&handle));
        if self.pending().is_empty() || !self.messages.iter().any(|(whose, _)| gone(whose)) {
            return;
        }
        let (mut kept, mut start) = (Vec::with_capacity(self.bytes.len()), 0);
        let mut messages = Vec::with_capacity(self.messages.len());
        for &(whose, end) in &self.messages {
            if !gone(&whose) || start < self.sent {
                kept.extend_from_slice(&self.bytes[start..end]);
                messages.push((whose, kept.len()));
            }
            start = end;
        }
        // Only messages beyond the written part were dropped, so `sent` still points at the same byte.
        self.bytes = kept;
        self.messages = messages;
    }
}

/// Appends the text of a message.
pub(super) fn append(out: &mut Vec<u8>, item: Item<'_>) {
    match item {
        Item::Text(text) => out.extend_from_slice(text),
        Item::Progress { prefix, progress, total, message } => {
            encode::progress(out, prefix, progress, total, message);
        }
    }
}
