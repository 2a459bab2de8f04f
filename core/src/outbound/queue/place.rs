//! Where an evictable message goes: in the place of an older one, in a free one, or in that of the oldest.

use super::Outbound;
use crate::outbound::entry::{Pushed, Slot, Takes};
use crate::outbound::{Coalesce, Handle};

impl Outbound {
    /// Asks `arm` whether newer values of the queued message of an open request may wait elsewhere. If so, that message is
    /// armed until a `settle` is called with it, which brings the newest of them: before it leaves, is dropped or replaced.
    #[cfg(feature = "std")]
    pub(crate) fn arm(&mut self, handle: Handle, arm: impl FnOnce(&Slot) -> bool) {
        let Some(stream) = self.streams.get(handle.index as usize) else { return };
        let waits =
            stream.generation == handle.generation && stream.takes == Takes::Progress && stream.last > self.head;
        if waits && self.config.coalesce == Coalesce::SameToken {
            let slot = &mut self.ring[((stream.last - 1) & self.mask) as usize];
            slot.armed = slot.armed || arm(slot);
        }
    }

    /// Settles what the stream of this index has armed, if anything.
    #[cfg(feature = "std")]
    pub(crate) fn settle(&mut self, index: u32, settle: impl FnMut(&mut Slot)) {
        let last = self.streams.get(index as usize).map_or(0, |stream| stream.last);
        if last > self.head {
            self.settle_at(last - 1, settle);
        }
    }

    /// Settles the message at this position, if it is armed.
    #[inline]
    pub(super) fn settle_at(&mut self, position: u64, mut settle: impl FnMut(&mut Slot)) {
        let slot = &mut self.ring[(position & self.mask) as usize];
        if slot.armed {
            slot.armed = false;
            self.text_bytes -= slot.text.len();
            settle(slot);
            self.text_bytes += slot.text.len();
        }
    }

    /// Finds the position for an evictable message of `len` text bytes, and accounts for it.
    #[inline]
    pub(super) fn place(
        &mut self,
        handle: Handle,
        takes: Takes,
        len: usize,
        mut settle: impl FnMut(&mut Slot),
    ) -> Option<(u64, Pushed)> {
        let stream = *self.streams.get(handle.index as usize)?;
        if stream.generation != handle.generation || stream.takes != takes {
            return None;
        }
        if self.replaces(stream.last) {
            let position = stream.last - 1;
            self.settle_at(position, &mut settle);
            let bytes = self.text_bytes - self.ring[(position & self.mask) as usize].text.len() + len;
            if bytes <= self.config.bytes {
                self.text_bytes = bytes;
                return Some((position, Pushed::Coalesced));
            }
        } else if self.has_room(len) {
            self.take_place(handle, takes, len);
            return Some((self.tail - 1, Pushed::Queued));
        }
        let pushed = if self.replaces(stream.last) {
            self.place_by_force(handle, takes, len, settle)
        } else {
            match self.place_anew(handle, takes, len, settle) {
                0 => Pushed::Queued,
                evicted => Pushed::Evicted(evicted),
            }
        };
        Some((self.streams[handle.index as usize].last - 1, pushed))
    }

    /// Whether what comes replaces the message before position `last`.
    #[inline]
    const fn replaces(&self, last: u64) -> bool {
        match self.config.coalesce {
            Coalesce::SameToken => last > self.head,
            Coalesce::Adjacent => last > self.head && last == self.tail,
        }
    }

    /// Whether there is a place for a further message.
    #[inline]
    const fn has_room(&self, len: usize) -> bool {
        self.tail - self.head < self.config.capacity as u64 && self.text_bytes + len <= self.config.bytes
    }

    #[inline]
    fn take_place(&mut self, handle: Handle, takes: Takes, len: usize) {
        let slot = &mut self.ring[(self.tail & self.mask) as usize];
        slot.handle = handle;
        slot.notice = takes == Takes::Notices;
        self.tail += 1;
        self.text_bytes += len;
        self.streams[handle.index as usize].last = self.tail;
    }

    /// Drops the oldest for a further message, and takes a place; how many were lost.
    #[inline(never)]
    fn place_anew(&mut self, handle: Handle, takes: Takes, len: usize, mut settle: impl FnMut(&mut Slot)) -> usize {
        let mut evicted = usize::from(self.evict_oldest(false, &mut settle));
        if !self.has_room(len) {
            evicted += self.make_room(len, settle);
        }
        self.take_place(handle, takes, len);
        evicted
    }

    /// Drops the oldest until there is room for a further message; how many were lost.
    #[inline(never)]
    fn make_room(&mut self, len: usize, mut settle: impl FnMut(&mut Slot)) -> usize {
        let mut evicted = 0;
        while !self.has_room(len) {
            evicted += usize::from(self.evict_oldest(false, &mut settle));
        }
        evicted
    }

    /// Drops the oldest until the longer text has room where it replaces one, or in a new place if that one went too.
    #[inline(never)]
    fn place_by_force(
        &mut self,
        handle: Handle,
        takes: Takes,
        len: usize,
        mut settle: impl FnMut(&mut Slot),
    ) -> Pushed {
        let position = self.streams[handle.index as usize].last - 1;
        let mut evicted = 0;
        while self.head < position {
            evicted += usize::from(self.evict_oldest(false, &mut settle));
            let bytes = self.text_bytes - self.ring[(position & self.mask) as usize].text.len() + len;
            if bytes <= self.config.bytes {
                self.text_bytes = bytes;
                return if evicted == 0 { Pushed::Coalesced } else { Pushed::Evicted(evicted) };
            }
        }
        let _none_is_lost: bool = self.evict_oldest(true, &mut settle);
        evicted += self.make_room(len, settle);
        self.take_place(handle, takes, len);
        if evicted == 0 { Pushed::Coalesced } else { Pushed::Evicted(evicted) }
    }

    /// Drops the oldest evictable message; whether that is a loss. One that is `superseded` by what comes is none.
    #[inline]
    fn evict_oldest(&mut self, superseded: bool, settle: impl FnMut(&mut Slot)) -> bool {
        self.settle_at(self.head, settle);
        let slot = &mut self.ring[(self.head & self.mask) as usize];
        self.head += 1;
        self.text_bytes -= slot.text.len();
        slot.let_go();
        let Handle { index, generation } = slot.handle;
        if superseded || self.streams[index as usize].generation != generation {
            return false;
        }
        if slot.notice {
            self.about[index as usize].lost = true;
            self.lost_topics = true;
        } else {
            self.lost_progress += 1;
        }
        true
    }
}
