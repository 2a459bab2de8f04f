//! The durable tasks that a client follows: when to ask for each, and what its answers mean.
//!
//! The question itself is an ordinary safe call (`tasks/get`); the application makes it when told to, and says what came.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use super::io::Output;
use super::table::Client;
use crate::backoff::Jitter;
use crate::follow::{Config, Effect, Event, Follow};
use crate::id::FollowId;
use crate::time::Instant;

/// Tasks that a client can follow at once.
pub const MAX_FOLLOWS: usize = 1024;

#[derive(Clone, Debug, Default)]
pub(super) struct Follows {
    entries: BTreeMap<FollowId, Entry>,
    next: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    machine: Follow,
    task: Box<str>,
}

/// The client is at its limit of tasks to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{MAX_FOLLOWS} tasks are followed already: stop following one first; the tasks themselves live on")]
#[non_exhaustive]
pub struct TooManyFollows;

impl Follows {
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.entries.values().filter_map(|entry| entry.machine.wake_at()).min()
    }
}

impl<P: Clone, R> Client<P, R> {
    /// Follows the task with this id to its end, also one that another process created.
    ///
    /// # Errors
    /// [`TooManyFollows`] at [`MAX_FOLLOWS`].
    pub fn follow(
        &mut self,
        now: Instant,
        task: &str,
        config: Config,
        jitter: Jitter,
    ) -> Result<FollowId, TooManyFollows> {
        if self.follows.entries.len() >= MAX_FOLLOWS {
            return Err(TooManyFollows);
        }
        self.follows.next += 1;
        let id = FollowId::new(self.follows.next);
        let entry = Entry { machine: Follow::start(now, config, jitter), task: task.into() };
        self.follows.entries.insert(id, entry);
        self.ask(id);
        Ok(id)
    }

    /// What became of the task that is followed: the answer to a question, a notification, or that there was none.
    pub fn followed(&mut self, now: Instant, id: FollowId, event: Event) {
        let Some(entry) = self.follows.entries.get_mut(&id) else { return };
        match entry.machine.handle(now, event) {
            Effect::Nothing | Effect::Wait { .. } | Effect::TooLate => {}
            Effect::Ask => self.ask(id),
            Effect::Finish(end) => {
                self.follows.entries.remove(&id);
                self.outputs.push_back(Output::Followed { follow: id, end });
            }
        }
    }

    pub(super) fn tick_follows(&mut self, now: Instant) {
        let entries = self.follows.entries.iter();
        let due = entries.filter(|(_, entry)| entry.machine.wake_at().is_some_and(|at| at <= now));
        let due: alloc::vec::Vec<FollowId> = due.map(|(id, _)| *id).collect();
        for id in due {
            self.followed(now, id, Event::Clock);
        }
    }

    fn ask(&mut self, id: FollowId) {
        if let Some(entry) = self.follows.entries.get(&id) {
            self.outputs.push_back(Output::Ask { follow: id, task: entry.task.clone() });
        }
    }
}
