//! The buffer as one list, in the order of arrival. Slow, and short enough to be read.

use steady_core::outbound::{Coalesce, Config, Handle, Lost, Popped, Pushed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Progress,
    Notice,
    Final,
    Lossless,
    Refusal,
}

#[derive(Clone, Debug)]
struct Message {
    handle: Option<Handle>,
    kind: Kind,
    /// How it is shown.
    shown: String,
    /// What counts against the byte budgets.
    len: usize,
    /// Purged, and waiting for its turn to vanish.
    dead: bool,
}

impl Message {
    fn evictable(&self) -> bool {
        matches!(self.kind, Kind::Progress | Kind::Notice)
    }
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    handle: Handle,
    closed: bool,
    topic: bool,
    lost: bool,
}

pub(crate) struct Model {
    pub(crate) config: Config,
    list: Vec<Message>,
    streams: Vec<Stream>,
    lost_progress: u64,
}

/// A text of this many bytes that is like no other.
pub(crate) fn text_of(serial: u32, len: usize) -> String {
    format!("{serial:09}").chars().rev().take(len).collect()
}

impl Model {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, list: Vec::new(), streams: Vec::new(), lost_progress: 0 }
    }

    pub(crate) fn is_open(&self, index: u32) -> bool {
        self.streams.iter().any(|stream| stream.handle.index() == index)
    }

    pub(crate) fn is_in_flight(&self, index: u32) -> bool {
        self.streams.iter().any(|stream| stream.handle.index() == index && !stream.closed)
    }

    pub(crate) fn open(&mut self, handle: Handle, topic: bool) {
        self.streams.push(Stream { handle, closed: false, topic, lost: false });
    }

    pub(crate) fn takes(&self, handle: Handle) -> bool {
        self.streams.iter().any(|stream| stream.handle == handle && !stream.closed)
    }

    fn stream(&mut self, handle: Handle) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|stream| stream.handle == handle)
    }

    pub(crate) fn progress(&mut self, handle: Handle, value: f64, text: &str) -> Pushed {
        let text = if text.len() > self.config.bytes { "" } else { text };
        self.push(handle, Kind::Progress, format!("={value}:{text}"), text.len())
    }

    pub(crate) fn notice(&mut self, handle: Handle, text: &str) -> Pushed {
        if text.len() > self.config.bytes {
            let Some(stream) = self.stream(handle) else { return Pushed::Closed };
            stream.lost = true;
            return Pushed::Evicted(1);
        }
        self.push(handle, Kind::Notice, text.to_owned(), text.len())
    }

    /// The message of this stream that a newer one replaces.
    fn replaceable(&self, handle: Handle) -> Option<usize> {
        let own = |message: &Message| message.handle == Some(handle);
        let newest = self.list.iter().rposition(|message| own(message) && message.evictable())?;
        let lossless_after = self.list[newest..].iter().any(|message| own(message) && message.kind == Kind::Lossless);
        let adjacent = self.list.iter().rposition(Message::evictable) == Some(newest);
        let allowed = match self.config.coalesce {
            Coalesce::SameToken => true,
            Coalesce::Adjacent => adjacent,
            _ => unreachable!("two policies"),
        };
        (allowed && !lossless_after).then_some(newest)
    }

    fn push(&mut self, handle: Handle, kind: Kind, shown: String, len: usize) -> Pushed {
        if self.stream(handle).is_none_or(|stream| stream.closed) {
            return Pushed::Closed;
        }
        let message = Message { handle: Some(handle), kind, shown, len, dead: false };
        let (mut evicted, mut replaced) = (0, false);
        loop {
            let own = self.replaceable(handle);
            let old = own.map_or(0, |at| self.list[at].len);
            let room = own.is_some() || self.counts().0 < self.config.capacity;
            if room && self.bytes().0 - old + len <= self.config.bytes {
                match own {
                    Some(at) => self.list[at] = message,
                    None => self.list.push(message),
                }
                replaced |= own.is_some();
                break;
            }
            let oldest = self.list.iter().position(Message::evictable).expect("something to evict");
            if own == Some(oldest) {
                self.list.remove(oldest);
                replaced = true;
            } else {
                evicted += usize::from(self.evict(oldest));
            }
        }
        match (evicted, replaced) {
            (0, false) => Pushed::Queued,
            (0, true) => Pushed::Coalesced,
            (count, _) => Pushed::Evicted(count),
        }
    }

    fn evict(&mut self, at: usize) -> bool {
        let message = self.list.remove(at);
        let Some(stream) = message.handle.filter(|_| !message.dead).and_then(|handle| self.stream(handle)) else {
            return false;
        };
        if stream.topic {
            stream.lost = true
        } else {
            self.lost_progress += 1
        }
        true
    }

    fn fits(&self, len: usize) -> bool {
        self.counts().1 == 0 || self.bytes().1 + len <= self.config.kept_bytes
    }

    fn count(&self, kind: Kind) -> usize {
        self.list.iter().filter(|message| message.kind == kind).count()
    }

    fn keep(&mut self, handle: Option<Handle>, kind: Kind, text: &str) -> bool {
        self.list.push(Message { handle, kind, shown: text.to_owned(), len: text.len(), dead: false });
        true
    }

    pub(crate) fn lossless(&mut self, handle: Handle, text: &str) -> bool {
        if self.stream(handle).is_none_or(|stream| stream.closed) {
            return true;
        }
        let waiting = || self.list.iter().filter(|message| message.kind == Kind::Lossless);
        let bytes: usize = waiting().map(|message| message.len).sum();
        let few = waiting().count() < self.config.lossless && bytes < self.config.lossless_bytes;
        let room = few && self.fits(text.len());
        room && self.keep(Some(handle), Kind::Lossless, text)
    }

    pub(crate) fn finish(&mut self, handle: Handle, text: &str) -> bool {
        if let Some(stream) = self.stream(handle) {
            stream.closed = true;
        }
        let room = self.count(Kind::Final) < self.config.finals && self.fits(text.len());
        room && self.keep(Some(handle), Kind::Final, text)
    }

    pub(crate) fn refuse(&mut self, text: &str) -> bool {
        self.count(Kind::Refusal) < self.config.refusals && self.keep(None, Kind::Refusal, text)
    }

    pub(crate) fn purge(&mut self, handle: Handle) {
        self.streams.retain(|stream| stream.handle != handle);
        self.list.iter_mut().filter(|message| message.handle == Some(handle)).for_each(|message| message.dead = true);
    }

    pub(crate) fn pop(&mut self) -> Option<(Popped, String)> {
        while !self.list.is_empty() {
            let message = self.list.remove(0);
            if !message.dead {
                let last = message.kind == Kind::Final;
                if last {
                    self.streams.retain(|stream| Some(stream.handle) != message.handle);
                }
                return Some((Popped { handle: message.handle, last }, message.shown));
            }
        }
        None
    }

    pub(crate) fn take_lost(&mut self) -> Option<Lost> {
        let progress = std::mem::take(&mut self.lost_progress);
        let mut topics = Vec::new();
        for stream in &mut self.streams {
            if std::mem::take(&mut stream.lost) {
                topics.push(stream.handle);
            }
        }
        (progress > 0 || !topics.is_empty()).then_some(Lost { progress, topics })
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        let evictable = self.list.iter().filter(|message| message.evictable()).count();
        (evictable, self.list.len() - evictable)
    }

    pub(crate) fn bytes(&self) -> (usize, usize) {
        let sum = |evictable: bool| {
            self.list.iter().filter(|message| message.evictable() == evictable).map(|message| message.len).sum()
        };
        (sum(true), sum(false))
    }

    /// Refusals that wait, and their bytes: they are bounded by their number alone.
    pub(crate) fn refusals(&self) -> (usize, usize) {
        let refusals = self.list.iter().filter(|message| message.kind == Kind::Refusal);
        (refusals.clone().count(), refusals.map(|message| message.len).sum())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
