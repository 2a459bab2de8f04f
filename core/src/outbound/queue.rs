//! The policy itself: two rings, one order.

mod place;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::entry::{About, Item, Kept, Kind, Lost, NO_STREAM, Popped, Pushed, Refused, Slot, Stream, Takes};
use super::{Batch, Config, Handle, SendPermit};

/// The bounded outbound buffer. See the [module](super).
///
/// ```
/// use steady_core::outbound::{Config, Handle, Item, Outbound, Pushed};
///
/// let mut buffer = Outbound::new(Config { capacity: 2, ..Config::default() });
/// let call = Handle::new(0, 1);
/// buffer.open(call, "…,\"progress\":");
/// assert_eq!(buffer.progress(call, 1.0, None, "one"), Pushed::Queued);
/// assert_eq!(buffer.progress(call, 2.0, None, "two"), Pushed::Coalesced);
/// let popped = buffer.pop(|item| matches!(item, Item::Progress { progress, .. } if progress == 2.0));
/// assert_eq!(popped.map(|(_, newest)| newest), Some(true));
/// assert!(buffer.is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Outbound {
    config: Config,
    ring: Box<[Slot]>,
    mask: u64,
    head: u64,
    tail: u64,
    text_bytes: usize,
    kept: VecDeque<Kept>,
    kept_bytes: usize,
    finals: usize,
    lossless: usize,
    lossless_bytes: usize,
    refusals: usize,
    streams: Vec<Stream>,
    /// Of the same length.
    about: Vec<About>,
    lost_progress: u64,
    lost_topics: bool,
}

impl Outbound {
    /// An empty buffer. A capacity of zero messages is taken as one.
    #[must_use]
    pub fn new(mut config: Config) -> Self {
        for count in [
            &mut config.capacity,
            &mut config.finals,
            &mut config.lossless,
            &mut config.lossless_bytes,
            &mut config.refusals,
        ] {
            *count = (*count).max(1);
        }
        let size = config.capacity.next_power_of_two();
        let mut ring = Vec::new();
        ring.resize_with(size, Slot::default);
        Self {
            config,
            ring: ring.into_boxed_slice(),
            mask: size as u64 - 1,
            head: 0,
            tail: 0,
            text_bytes: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            finals: 0,
            lossless: 0,
            lossless_bytes: 0,
            refusals: 0,
            streams: Vec::new(),
            about: Vec::new(),
            lost_progress: 0,
            lost_topics: false,
        }
    }

    /// Opens the stream of a request. `prefix` is the text of its progress notification up to the value.
    pub fn open(&mut self, handle: Handle, prefix: &str) {
        self.open_stream(handle, prefix, Takes::Progress);
    }

    /// Opens the stream of a topic of notices.
    pub fn open_topic(&mut self, handle: Handle) {
        self.open_stream(handle, "", Takes::Notices);
    }

    fn open_stream(&mut self, handle: Handle, prefix: &str, takes: Takes) {
        let index = handle.index as usize;
        if self.streams.len() <= index {
            self.streams.resize_with(index + 1, Stream::default);
            self.about.resize_with(index + 1, About::default);
        }
        // Generation 0 stands for no stream.
        let takes = if handle.generation == 0 { Takes::Nothing } else { takes };
        self.streams[index] = Stream { last: 0, generation: handle.generation, takes };
        let about = &mut self.about[index];
        about.lost = false;
        about.prefix.clear();
        about.prefix.push_str(prefix);
    }

    /// Queues progress of an open request. A message longer than the byte budget is left out, the value goes.
    #[inline]
    pub fn progress(&mut self, handle: Handle, progress: f64, total: Option<f64>, message: &str) -> Pushed {
        self.progress_settling(handle, progress, total, message, |_| ())
    }

    /// Queues a notice of an open topic: a whole message that a newer one of the topic replaces. One longer than the
    /// byte budget is marked as lost at once.
    pub fn notice(&mut self, topic: Handle, message: &str) -> Pushed {
        self.notice_settling(topic, message, |_| ())
    }

    /// Queues progress; `settle` brings the newer value of a message that leaves or changes (see [`arm`](Self::arm)).
    #[inline]
    pub(crate) fn progress_settling(
        &mut self,
        handle: Handle,
        progress: f64,
        total: Option<f64>,
        message: &str,
        settle: impl FnMut(&mut Slot),
    ) -> Pushed {
        let message = if message.len() > self.config.bytes { "" } else { message };
        let Some((position, pushed)) = self.place(handle, Takes::Progress, message.len(), settle) else {
            return Pushed::Closed;
        };
        let slot = &mut self.ring[(position & self.mask) as usize];
        slot.progress = progress;
        slot.total = total;
        slot.text.clear();
        slot.text.push_str(message);
        pushed
    }

    pub(crate) fn notice_settling(&mut self, topic: Handle, message: &str, settle: impl FnMut(&mut Slot)) -> Pushed {
        if message.len() > self.config.bytes {
            if self.live(topic).is_none_or(|stream| stream.takes != Takes::Notices) {
                return Pushed::Closed;
            }
            self.about[topic.index as usize].lost = true;
            self.lost_topics = true;
            return Pushed::Evicted(1);
        }
        let Some((position, pushed)) = self.place(topic, Takes::Notices, message.len(), settle) else {
            return Pushed::Closed;
        };
        let slot = &mut self.ring[(position & self.mask) as usize];
        slot.text.clear();
        slot.text.push_str(message);
        pushed
    }

    /// Queues lossless progress of an open request: a whole message, never coalesced, never dropped. `false`: no room.
    #[must_use]
    pub fn lossless(&mut self, handle: Handle, body: &[u8]) -> bool {
        let full = !self.lossless_fits(body.len());
        let Some(stream) = self.live(handle).filter(|stream| stream.takes != Takes::Nothing) else { return true };
        if full {
            return false;
        }
        // What comes later must not take a place before this one (OUT-4).
        stream.last = 0;
        self.lossless += 1;
        self.lossless_bytes += body.len();
        self.keep(handle, Kind::Lossless, body.to_vec());
        true
    }

    /// Queues the final response of a request and closes its stream.
    ///
    /// # Errors
    /// [`Refused`] hands permit and text back when no final has room; try again after a pop. Progress is refused from
    /// then on all the same.
    pub fn finish(&mut self, permit: SendPermit, body: Vec<u8>) -> Result<(), Refused> {
        let handle = permit.handle();
        self.close(handle);
        if self.finals >= self.config.finals || !self.fits(body.len()) {
            return Err(Refused { permit, body });
        }
        self.finals += 1;
        self.keep(handle, Kind::Final, body);
        Ok(())
    }

    /// Closes the stream of a request whose final has to wait elsewhere: progress of it is refused from now on.
    pub fn close(&mut self, handle: Handle) {
        if let Some(stream) = self.live(handle) {
            stream.takes = Takes::Nothing;
        }
    }

    /// Queues an error that holds no permit. `false`: the places for refusals are spent; read no more input until one
    /// has left.
    #[must_use]
    pub fn refuse(&mut self, body: Vec<u8>) -> bool {
        if !self.can_refuse() {
            return false;
        }
        self.refusals += 1;
        self.keep(NO_STREAM, Kind::Refusal, body);
        true
    }

    /// Whether a refusal has a place.
    #[must_use]
    pub fn can_refuse(&self) -> bool {
        self.refusals < self.config.refusals
    }

    /// Whether this stream takes messages: open, and not closed by a final.
    #[must_use]
    pub fn is_open(&self, handle: Handle) -> bool {
        let stream = self.streams.get(handle.index as usize);
        let open = |stream: &Stream| handle.generation != 0 && stream.generation == handle.generation;
        stream.is_some_and(|stream| open(stream) && stream.takes != Takes::Nothing)
    }

    /// Whether lossless progress of this many bytes has a place.
    #[must_use]
    pub fn lossless_fits(&self, bytes: usize) -> bool {
        let few = self.lossless < self.config.lossless && self.lossless_bytes < self.config.lossless_bytes;
        few && self.fits(bytes)
    }

    /// Forgets a cancelled request: none of its queued messages leaves (`OUT-3`), its handle is free.
    pub fn purge(&mut self, handle: Handle) {
        if let Some(stream) = self.live(handle) {
            *stream = Stream::default();
            self.about[handle.index as usize].lost = false;
        }
    }

    /// Takes the oldest message, lending it to `encode`, and says whose it was.
    #[inline]
    pub fn pop<R>(&mut self, encode: impl FnOnce(Item<'_>) -> R) -> Option<(Popped, R)> {
        self.pop_settling(encode, |_| ())
    }

    /// Takes the oldest messages, until `batch` holds this many or at least this many text bytes.
    pub fn pop_into(&mut self, batch: &mut Batch, messages: usize, bytes: usize) {
        self.pop_into_settling(batch, messages, bytes, |_| ());
    }

    #[inline]
    pub(crate) fn pop_settling<R>(
        &mut self,
        encode: impl FnOnce(Item<'_>) -> R,
        settle: impl FnMut(&mut Slot),
    ) -> Option<(Popped, R)> {
        // Wide results that travel through memory cost more than the rest of a pop: hence small parts, all inlined.
        if !self.kept.is_empty()
            && let Some((kept, popped)) = self.pop_kept()
        {
            return Some((popped, encode(Item::Text(&kept.body))));
        }
        let position = self.pop_evictable(settle)?;
        let slot = &mut self.ring[(position & self.mask) as usize];
        let item = if slot.notice {
            Item::Text(slot.text.as_bytes())
        } else {
            let prefix = &self.about[slot.handle.index as usize].prefix;
            Item::Progress { prefix, progress: slot.progress, total: slot.total, message: &slot.text }
        };
        let encoded = encode(item);
        slot.let_go();
        Some((Popped { handle: Some(slot.handle), last: false }, encoded))
    }

    pub(crate) fn pop_into_settling(
        &mut self,
        batch: &mut Batch,
        messages: usize,
        bytes: usize,
        mut settle: impl FnMut(&mut Slot),
    ) {
        while !batch.is_full(messages, bytes) {
            if !self.kept.is_empty()
                && let Some((kept, popped)) = self.pop_kept()
            {
                batch.take_kept(kept, popped);
                continue;
            }
            let Some(position) = self.pop_evictable(&mut settle) else { break };
            let slot = &mut self.ring[(position & self.mask) as usize];
            batch.take_slot(slot, &self.about[slot.handle.index as usize].prefix);
        }
    }

    /// Takes the kept messages that are next until one is of a live stream. Purged evictable ones in between go as well.
    #[inline(never)]
    fn pop_kept(&mut self) -> Option<(Kept, Popped)> {
        loop {
            if self.kept.front()?.stamp <= self.head {
                let kept = self.kept.pop_front()?;
                if let Some(popped) = self.account(&kept) {
                    return Some((kept, popped));
                }
            } else if !self.drop_purged_head() {
                return None;
            }
        }
    }

    /// Drops the oldest evictable message if its stream was purged.
    fn drop_purged_head(&mut self) -> bool {
        let slot = &mut self.ring[(self.head & self.mask) as usize];
        let purged = self.streams[slot.handle.index as usize].generation != slot.handle.generation;
        if purged {
            self.head += 1;
            self.text_bytes -= slot.text.len();
            slot.let_go();
        }
        purged
    }

    /// Takes the oldest evictable message of a live stream out of the accounts; its position.
    #[inline]
    fn pop_evictable(&mut self, mut settle: impl FnMut(&mut Slot)) -> Option<u64> {
        while self.head != self.tail {
            let position = self.head;
            self.settle_at(position, &mut settle);
            let slot = &mut self.ring[(position & self.mask) as usize];
            let stream = &mut self.streams[slot.handle.index as usize];
            self.text_bytes -= slot.text.len();
            if stream.generation != slot.handle.generation {
                self.head += 1;
                slot.let_go();
                continue;
            }
            if position + 1 == self.tail && self.kept.is_empty() {
                // A reader that keeps up finds the same place in the cache each time. No position beyond it is in use.
                self.tail = position;
                stream.last = 0;
            } else {
                self.head = position + 1;
            }
            return Some(position);
        }
        None
    }

    /// Takes a kept message out of the accounts; `None` if its request was purged.
    fn account(&mut self, kept: &Kept) -> Option<Popped> {
        self.kept_bytes -= kept.body.len();
        match kept.kind {
            Kind::Final => {
                self.finals -= 1;
                self.purge(kept.handle);
                Some(Popped { handle: Some(kept.handle), last: true })
            }
            Kind::Lossless => {
                self.lossless -= 1;
                self.lossless_bytes -= kept.body.len();
                self.live(kept.handle).map(|_| Popped { handle: Some(kept.handle), last: false })
            }
            Kind::Refusal => {
                self.refusals -= 1;
                Some(Popped { handle: None, last: false })
            }
        }
    }

    /// What was dropped since the last call (`OUT-5`); `None` if nothing was.
    pub fn take_lost(&mut self) -> Option<Lost> {
        if self.lost_progress == 0 && !self.lost_topics {
            return None;
        }
        let mut lost = Lost { progress: core::mem::take(&mut self.lost_progress), topics: Vec::new() };
        if core::mem::take(&mut self.lost_topics) {
            for (index, (stream, about)) in (0u32..).zip(self.streams.iter().zip(&mut self.about)) {
                if core::mem::take(&mut about.lost) {
                    lost.topics.push(Handle::new(index, stream.generation));
                }
            }
        }
        // A topic that was closed since takes its mark along.
        (lost.progress > 0 || !lost.topics.is_empty()).then_some(lost)
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail && self.kept.is_empty()
    }

    /// Evictable messages that wait, purged ones included until their turn.
    #[must_use]
    pub fn evictable(&self) -> usize {
        usize::try_from(self.tail - self.head).unwrap_or(usize::MAX)
    }

    /// Kept messages that wait.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Final responses that wait.
    #[must_use]
    pub const fn finals(&self) -> usize {
        self.finals
    }

    /// Text bytes that wait: evictable and kept.
    #[must_use]
    pub const fn bytes(&self) -> (usize, usize) {
        (self.text_bytes, self.kept_bytes)
    }

    #[inline]
    fn live(&mut self, handle: Handle) -> Option<&mut Stream> {
        // Generation 0 stands for no stream at all.
        let open = |stream: &&mut Stream| handle.generation != 0 && stream.generation == handle.generation;
        self.streams.get_mut(handle.index as usize).filter(open)
    }

    fn fits(&self, bytes: usize) -> bool {
        self.kept.is_empty() || self.kept_bytes.saturating_add(bytes) <= self.config.kept_bytes
    }

    fn keep(&mut self, handle: Handle, kind: Kind, body: Vec<u8>) {
        self.kept_bytes += body.len();
        self.kept.push_back(Kept { stamp: self.tail, handle, kind, body });
    }
}
