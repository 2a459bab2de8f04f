//! Messages taken together: one critical section for many, and the encoding outside of it.

use alloc::string::String;
use alloc::vec::Vec;

use super::Handle;
use super::entry::{Item, Kept, Popped, Slot};

/// Messages that left the buffer and are yet to be encoded. It is reused: text is swapped into it, not copied.
#[derive(Debug, Default)]
pub struct Batch {
    taken: Vec<Taken>,
    len: usize,
    bytes: usize,
    /// The prefix of each stream, with the generation that it belongs to, so that it need not be copied for each message.
    prefixes: Vec<(u32, String)>,
}

#[derive(Debug, Default)]
struct Taken {
    slot: Slot,
    /// A kept message instead of the slot.
    kept: Option<(Popped, Vec<u8>)>,
}

impl Batch {
    /// How many messages it holds.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Text bytes of all of them.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Lends each message to `encode`, oldest first, and is empty afterwards.
    #[inline]
    pub fn drain(&mut self, mut encode: impl FnMut(Popped, Item<'_>)) {
        let len = core::mem::take(&mut self.len);
        self.bytes = 0;
        for Taken { slot, kept } in self.taken.iter_mut().take(len) {
            if let Some((popped, body)) = kept.take() {
                encode(popped, Item::Text(&body));
                continue;
            }
            let item = if slot.notice {
                Item::Text(slot.text.as_bytes())
            } else {
                let prefix = &self.prefixes[slot.handle.index as usize].1;
                Item::Progress { prefix, progress: slot.progress, total: slot.total, message: &slot.text }
            };
            encode(Popped { handle: Some(slot.handle), last: false }, item);
        }
    }

    /// Whether it holds this many messages, or this many text bytes.
    pub(super) const fn is_full(&self, messages: usize, bytes: usize) -> bool {
        self.len >= messages || self.bytes >= bytes
    }

    fn next(&mut self) -> &mut Taken {
        if self.len == self.taken.len() {
            self.taken.push(Taken::default());
        }
        self.len += 1;
        &mut self.taken[self.len - 1]
    }

    pub(super) fn take_kept(&mut self, kept: Kept, popped: Popped) {
        self.bytes += kept.body.len();
        self.next().kept = Some((popped, kept.body));
    }

    /// Takes the message out of `slot`, which gets the memory of an earlier one.
    #[inline]
    pub(super) fn take_slot(&mut self, slot: &mut Slot, prefix: &str) {
        self.bytes += slot.text.len();
        if !slot.notice {
            self.remember(slot, prefix);
        }
        let taken = &mut self.next().slot;
        taken.handle = slot.handle;
        taken.notice = slot.notice;
        taken.progress = slot.progress;
        taken.total = slot.total;
        core::mem::swap(&mut taken.text, &mut slot.text);
        slot.let_go();
    }

    #[inline]
    fn remember(&mut self, slot: &Slot, prefix: &str) {
        let Handle { index, generation: current } = slot.handle;
        let index = index as usize;
        if self.prefixes.get(index).is_none_or(|(generation, _)| *generation != current) {
            if self.prefixes.len() <= index {
                self.prefixes.resize_with(index + 1, Default::default);
            }
            let (generation, known) = &mut self.prefixes[index];
            *generation = current;
            known.clear();
            known.push_str(prefix);
        }
    }
}
