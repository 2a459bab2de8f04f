//! What the store of tasks did, in the order in which it did it, and what clients were told of their tasks.
//!
//! A task is known by its id. What has expired by the latest time that was ever shown may be gone, and what is gone is
//! judged no more.

use std::collections::BTreeMap;

use steady_core::kernel::tasks::Lease;
use steady_core::task::Status;

use super::{Check, Journal, Seen};

/// How long a task lives from its creation on, in milliseconds.
pub(in super::super) const TTL_MS: i64 = 6 * 3_600_000;

/// What is known of a task.
#[derive(Clone, Debug)]
struct Facts {
    created_at: i64,
    cancel_requested: bool,
    ended: Option<Status>,
    /// The newest lease, and until when it holds unless it was given back.
    lease: Option<Lease>,
    until: Option<i64>,
    /// The last step that was stored.
    step: u64,
}

/// What a worker did with its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Held {
    /// It kept it, and may have stored this step.
    Kept(Option<u64>),
    /// It gave it back.
    Released,
    /// It ended the task.
    Ended(Status),
}

/// All tasks of a world.
#[derive(Default)]
pub(super) struct Tasks {
    /// What a wall clock shows, and the latest that it ever showed, in milliseconds since 1970.
    wall: i64,
    latest: i64,
    facts: BTreeMap<Box<str>, Facts>,
    keys: BTreeMap<Box<str>, Box<str>>,
    /// The ids that clients were told, by the number of the call.
    of_calls: BTreeMap<usize, Box<str>>,
    /// Calls whose tasks are followed to their ends.
    followed: BTreeMap<usize, Box<str>>,
}

impl Tasks {
    pub(super) fn shows(&mut self, wall: i64) {
        self.wall = wall;
        self.latest = self.latest.max(wall);
    }

    fn may_be_gone(&self, facts: &Facts) -> bool {
        self.latest.saturating_sub(facts.created_at) >= TTL_MS
    }

    /// A task that is there for sure.
    fn alive(&self, id: &str) -> Option<&Facts> {
        self.facts.get(id).filter(|facts| !self.may_be_gone(facts))
    }
}

impl Facts {
    fn epoch(&self) -> u32 {
        self.lease.as_ref().map_or(0, |lease| lease.epoch)
    }
}

/// How long a lease is, in milliseconds.
fn length(lease: &Lease) -> i64 {
    i64::try_from(lease.duration.as_millis()).unwrap_or(i64::MAX)
}

impl Journal {
    fn of_task(&mut self, what: &'static str, id: &str, epoch: u32) {
        self.trace.note(self.now, Seen::Ledger, epoch.into(), 0, format!("{what}: {id}").as_bytes());
        self.count(what);
    }

    /// The store has made a task, or found the one of the key.
    pub(in super::super) fn task_created(&mut self, key: Option<&str>, id: &str, replayed: bool) {
        self.of_task(if replayed { "task: found by its key" } else { "task: created" }, id, 0);
        let created_at = self.tasks.wall;
        let fresh = Facts { created_at, cancel_requested: false, ended: None, lease: None, until: None, step: 0 };
        let known = self.tasks.facts.contains_key(id);
        self.demand(known == replayed, Check::TaskKept, || format!("task {id} is made anew: {}", !replayed));
        self.tasks.facts.entry(id.into()).or_insert(fresh);
        let Some(key) = key else { return };
        let before = self.tasks.keys.insert(key.into(), id.into());
        let other = before.filter(|before| **before != *id && self.tasks.alive(before).is_some());
        self.demand(other.is_none(), Check::TaskKept, || format!("{key} is the key of the tasks {other:?} and {id}"));
    }

    /// The store was asked for a task: how it stands, or nothing if it knows none.
    pub(in super::super) fn task_read(&mut self, id: &str, found: Option<Status>) {
        let Some(facts) = self.tasks.facts.get(id).cloned() else { return };
        let expired = self.tasks.may_be_gone(&facts);
        let Some(found) = found else {
            self.count("task: not known");
            return self.demand(expired, Check::TaskKept, || format!("task {id} is not known, and has not expired"));
        };
        let right = if found.is_terminal() { facts.ended == Some(found) } else { facts.ended.is_none() };
        self.demand(right, Check::TaskEnd, || {
            format!("task {id} is {found}, and its worker ended it as {:?}", facts.ended)
        });
    }

    /// The wish to cancel is stored.
    pub(in super::super) fn task_cancel_stored(&mut self, id: &str) {
        self.of_task("task: cancellation asked for", id, 0);
        if let Some(facts) = self.tasks.facts.get_mut(id) {
            facts.cancel_requested = true;
        }
    }

    /// A worker has a task, and is told to go on after this step.
    pub(in super::super) fn task_claimed(&mut self, lease: &Lease, resumes_after: u64) {
        let (id, epoch) = (&*lease.task, lease.epoch);
        self.of_task(if epoch > 1 { "task: claimed after a worker was lost" } else { "task: claimed" }, id, epoch);
        let wall = self.tasks.wall;
        let until = wall.saturating_add(length(lease));
        let Some(facts) = self.tasks.facts.get_mut(id) else { return };
        let before = facts.clone();
        (facts.lease, facts.until) = (Some(lease.clone()), Some(until));
        // A lease that ends later than it is long is of a clock that has gone back.
        let longest = before.lease.as_ref().map_or(0, length);
        let over = |until: i64| until <= wall || until.saturating_sub(wall) > longest;
        let free = before.until.is_none_or(over) && epoch > before.epoch() && before.ended.is_none();
        self.demand(free, Check::TaskLease, || format!("task {id} is claimed as lease {epoch}, beside {before:?}"));
        self.demand(resumes_after == before.step, Check::TaskProgress, || {
            format!("task {id} goes on after step {resumes_after}, and {} is stored", before.step)
        });
    }

    /// The newest lease of a task.
    pub(in super::super) fn newest_lease(&self, id: &str) -> Option<Lease> {
        self.tasks.facts.get(id)?.lease.clone()
    }

    /// The store took what a worker wrote under this lease.
    pub(in super::super) fn task_held(&mut self, id: &str, epoch: u32, held: Held) {
        match held {
            Held::Kept(Some(_)) => self.of_task("task: step stored", id, epoch),
            Held::Kept(None) => self.count("task: lease kept"),
            Held::Released => self.of_task("task: given back", id, epoch),
            Held::Ended(Status::Completed) => self.of_task("task: ended completed", id, epoch),
            Held::Ended(Status::Cancelled) => self.of_task("task: ended cancelled", id, epoch),
            Held::Ended(_) => self.of_task("task: ended failed", id, epoch),
        }
        let wall = self.tasks.wall;
        let Some(facts) = self.tasks.facts.get_mut(id) else { return };
        let before = facts.clone();
        facts.until = match held {
            Held::Kept(_) => facts.lease.as_ref().map(|lease| wall.saturating_add(length(lease))),
            Held::Released | Held::Ended(_) => None,
        };
        match held {
            Held::Kept(step) => facts.step = step.unwrap_or(facts.step),
            Held::Released => {}
            Held::Ended(status) => facts.ended = Some(status),
        }
        self.demand(epoch == before.epoch(), Check::TaskLease, || {
            format!("task {id}: lease {epoch} wrote {held:?}, and {} is the newest", before.epoch())
        });
        let once = before.ended.is_none();
        self.demand(once, Check::TaskEnd, || format!("task {id} was {:?}, and then {held:?}", before.ended));
        match held {
            Held::Kept(Some(step)) => self.demand(step == before.step + 1, Check::TaskProgress, || {
                format!("task {id} stores step {step} after {}", before.step)
            }),
            Held::Ended(Status::Cancelled) => self.demand(before.cancel_requested, Check::TaskEnd, || {
                format!("task {id} was cancelled, and nobody asked for it")
            }),
            Held::Kept(None) | Held::Released | Held::Ended(_) => {}
        }
    }

    /// A call has become a task, and its client follows it.
    pub(in super::super) fn task_of(&mut self, order: usize, id: &str) {
        let known = self.tasks.facts.contains_key(id);
        self.demand(known, Check::TaskKept, || format!("a client was told of the task {id}, which is not stored"));
        self.tasks.of_calls.insert(order, id.into());
        self.tasks.followed.insert(order, id.into());
    }

    /// The task that the call with this name has become.
    pub(in super::super) fn task_named(&self, client: usize, call: u32) -> Option<Box<str>> {
        let order = self.orders.iter().rposition(|order| (order.client, order.name) == (client, call))?;
        self.tasks.of_calls.get(&order).cloned()
    }

    /// A client was told how the task of its call ended; nothing if it was told otherwise, or gave it up.
    pub(in super::super) fn task_told(&mut self, order: usize, kind: &'static str, end: Option<Status>) {
        let Some(id) = self.tasks.followed.remove(&order) else { return };
        self.of_task(kind, &id, 0);
        let (Some(end), Some(facts)) = (end, self.tasks.facts.get(&id).cloned()) else { return };
        self.demand(facts.ended == Some(end), Check::TaskEnd, || {
            format!("a client was told that task {id} is {end}, and its worker ended it as {:?}", facts.ended)
        });
    }

    /// Tasks that have neither ended nor expired.
    pub(in super::super) fn open_tasks(&self) -> usize {
        self.tasks.facts.values().filter(|facts| facts.ended.is_none() && !self.tasks.may_be_gone(facts)).count()
    }

    /// Tasks whose ends clients wait for.
    pub(in super::super) fn followed_tasks(&self) -> usize {
        self.tasks.followed.len()
    }

    /// All is healed, workers work, and every task had its time.
    pub(in super::super) fn tasks_at_rest(&mut self) {
        if self.world.workers == 0 {
            return;
        }
        let (open, followed) = (self.open_tasks(), self.tasks.followed.clone());
        self.demand(open == 0, Check::TasksInCalm, || format!("{open} tasks have not ended though all is well"));
        self.demand(followed.is_empty(), Check::TasksInCalm, || {
            format!("clients were not told how these ended, by the calls that made them: {followed:?}")
        });
    }
}
