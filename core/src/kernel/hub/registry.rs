//! Who watches what: topics with the streams that watch them.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;

use super::stream::{Sink, Stream};
use super::topic::{Topic, WATCH_COST};
use super::{State, SubscribeError};
use crate::listener::{Published, Slot};
use crate::subscription::Refetch;

use super::super::sync::Arc;

/// The topics that are watched. A topic that nobody watches is not there.
#[derive(Default)]
pub(super) struct Registry {
    topics: BTreeMap<Box<str>, Watchers>,
    open: usize,
    next: u64,
    /// What all topics and their watchers are charged with.
    name_bytes: usize,
}

struct Watchers {
    topic: StdArc<Topic>,
    streams: BTreeMap<u64, Watcher>,
}

struct Watcher {
    stream: Arc<Stream>,
    slot: Slot,
}

/// What a publication did.
#[derive(Default)]
pub(super) struct Told {
    pub(super) marked: u64,
    pub(super) coalesced: u64,
    pub(super) behind: u64,
    /// Whom to ring, outside of the lock.
    pub(super) waiting: Vec<Sink>,
}

impl Registry {
    pub(super) const fn open(&self) -> usize {
        self.open
    }

    pub(super) fn topics(&self) -> usize {
        self.topics.len()
    }

    pub(super) const fn name_bytes(&self) -> usize {
        self.name_bytes
    }

    pub(super) fn watched(&self) -> impl Iterator<Item = &Refetch> {
        self.topics.values().map(|watchers| &watchers.topic.watched)
    }

    /// A place for one stream more: its number.
    pub(super) const fn admit(&mut self, most: usize) -> Result<u64, SubscribeError> {
        if self.open >= most {
            return Err(SubscribeError::Full(most));
        }
        self.open += 1;
        self.next += 1;
        Ok(self.next)
    }

    /// A stream has ended; it watches nothing any more.
    pub(super) const fn release(&mut self) {
        self.open -= 1;
    }

    /// The stream watches this too, if it does not yet.
    pub(super) fn watch(
        &mut self,
        stream: &Arc<Stream>,
        topic: Topic,
        most_bytes: usize,
    ) -> Result<(), SubscribeError> {
        let known = self.topics.get(&topic.key);
        if known.is_some_and(|watchers| watchers.streams.contains_key(&stream.number)) {
            return Ok(());
        }
        let bytes = self.name_bytes + WATCH_COST + if known.is_some() { 0 } else { topic.cost() };
        if bytes > most_bytes {
            return Err(SubscribeError::TooManyNames);
        }
        let topic = known.map_or_else(|| StdArc::new(topic), |watchers| StdArc::clone(&watchers.topic));
        let slot = stream.watch(&topic)?;
        self.name_bytes = bytes;
        let entry = self.topics.entry(topic.key.clone());
        let watchers = entry.or_insert_with(|| Watchers { topic, streams: BTreeMap::new() });
        watchers.streams.insert(stream.number, Watcher { stream: Arc::clone(stream), slot });
        Ok(())
    }

    /// The stream does not watch this any more.
    pub(super) fn unwatch(&mut self, stream: &Stream, key: &str) {
        let Some(watchers) = self.topics.get_mut(key) else { return };
        let Some(watcher) = watchers.streams.remove(&stream.number) else { return };
        self.name_bytes -= WATCH_COST;
        stream.unwatch(watcher.slot);
        if watchers.streams.is_empty() {
            self.name_bytes -= watchers.topic.cost();
            self.topics.remove(key);
        }
    }

    /// Marks every stream that watches this.
    pub(super) fn publish(&mut self, key: &str, state: Option<&str>) -> Told {
        let mut told = Told::default();
        let Some(watchers) = self.topics.get(key) else { return told };
        let state = state.map(State::from);
        for Watcher { stream, slot } in watchers.streams.values() {
            let (published, waiting) = stream.publish(*slot, state.clone());
            match published {
                Published::Marked { .. } => told.marked += 1,
                Published::Coalesced => told.coalesced += 1,
                Published::Behind { .. } => told.behind += 1,
                Published::Ignored => {}
            }
            told.waiting.extend(waiting);
        }
        told
    }
}
