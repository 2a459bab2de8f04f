//! A single-threaded executor whose clock is virtual: same tasks, same order, every time.
//!
//! Tasks belong to groups, which stand for processes: a group can be killed at any step, or stopped and continued, as a
//! process can.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use steady_core::kernel::{BoxFuture, Ports, Spawn, Timer};
use steady_core::time::Instant;

/// Names a task of an [`Executor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u64);

/// Names a process: the tasks that live and die together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(u32);

#[derive(Default)]
struct State {
    now: Instant,
    ready: VecDeque<u64>,
    incoming: Vec<(u64, Group, BoxFuture<()>)>,
    next_task: u64,
    next_group: u32,
    /// Ordered by time, then by the order in which they were set.
    alarms: BTreeMap<(Instant, u64), Waker>,
    next_alarm: u64,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<State>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, group: Group, task: BoxFuture<()>) -> TaskId {
        let mut state = self.lock();
        state.next_task += 1;
        let id = state.next_task;
        state.incoming.push((id, group, task));
        TaskId(id)
    }
}

struct Task {
    group: Group,
    future: BoxFuture<()>,
    waker: Waker,
    /// Whether it stands in the queue.
    queued: Arc<TaskWaker>,
}

/// Runs tasks in virtual time.
#[derive(Default)]
pub struct Executor {
    shared: Shared,
    tasks: BTreeMap<u64, Task>,
    /// Stopped processes, and what of them was woken meanwhile.
    stopped: BTreeMap<Group, Vec<u64>>,
}

struct TaskWaker {
    shared: Shared,
    task: u64,
    queued: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.shared.lock().ready.push_back(self.task);
        }
    }
}

impl Executor {
    /// Nothing to run, at time zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The kernel's ports over this executor, for a process that never dies.
    #[must_use]
    pub fn ports(&self) -> Ports {
        self.spawner().ports(Group::default())
    }

    /// A handle to start tasks and processes with, also from inside of a task.
    #[must_use]
    pub fn spawner(&self) -> Spawner {
        Spawner(self.shared.clone())
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.shared.lock().now
    }

    /// Adds a task to the process that never dies.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) -> TaskId {
        self.shared.add(Group::default(), Box::pin(task))
    }

    /// Drops a task where it stands, as an executor does whose service future is dropped.
    pub fn kill(&mut self, task: TaskId) {
        self.adopt();
        drop(self.tasks.remove(&task.0));
    }

    /// Drops all tasks of a process where they stand.
    pub fn kill_group(&mut self, group: Group) {
        // Those that a dying task has started die too.
        loop {
            self.adopt();
            let ids: Vec<u64> = self.tasks.iter().filter(|(_, task)| task.group == group).map(|(id, _)| *id).collect();
            if ids.is_empty() {
                break;
            }
            for id in ids {
                drop(self.tasks.remove(&id));
            }
        }
        self.stopped.remove(&group);
    }

    /// Stops a process: its tasks are not polled until it goes on.
    pub fn stop(&mut self, group: Group) {
        self.stopped.entry(group).or_default();
    }

    /// Lets a stopped process go on.
    pub fn go_on(&mut self, group: Group) {
        let woken = self.stopped.remove(&group).unwrap_or_default();
        self.shared.lock().ready.extend(woken);
    }

    /// Tasks that have not ended, and are not of these processes.
    pub fn tasks_beside(&mut self, groups: &BTreeSet<Group>) -> usize {
        self.adopt();
        self.tasks.values().filter(|task| !groups.contains(&task.group)).count()
    }

    /// Polls the next task that is ready; `false` if there is none.
    pub fn step(&mut self) -> bool {
        self.adopt();
        loop {
            let Some(id) = self.shared.lock().ready.pop_front() else { return false };
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            if let Some(woken) = self.stopped.get_mut(&task.group) {
                woken.push(id);
                continue;
            }
            task.queued.queued.store(false, Ordering::Relaxed);
            if task.future.as_mut().poll(&mut Context::from_waker(&task.waker)).is_ready() {
                drop(self.tasks.remove(&id));
            }
            return true;
        }
    }

    /// Runs what is ready, without moving time.
    pub fn run_ready(&mut self) {
        while self.step() {}
    }

    /// When the next alarm rings.
    #[must_use]
    pub fn next_alarm(&self) -> Option<Instant> {
        self.shared.lock().alarms.first_key_value().map(|((at, _), _)| *at)
    }

    /// Moves time to `at`, ringing what is due on the way there. Time does not go back.
    pub fn advance_to(&mut self, at: Instant) {
        let mut state = self.shared.lock();
        state.now = state.now.max(at);
        let later = (Instant::from_nanos(state.now.as_nanos().saturating_add(1)), 0);
        let kept = state.alarms.split_off(&later);
        let due = std::mem::replace(&mut state.alarms, kept);
        drop(state);
        due.into_values().for_each(Waker::wake);
    }

    fn adopt(&mut self) {
        let mut state = self.shared.lock();
        for (id, group, future) in std::mem::take(&mut state.incoming) {
            let queued = Arc::new(TaskWaker { shared: self.shared.clone(), task: id, queued: AtomicBool::new(true) });
            let waker = Waker::from(Arc::clone(&queued));
            self.tasks.insert(id, Task { group, future, waker, queued });
            state.ready.push_back(id);
        }
    }
}

/// Starts tasks and processes, and reads the clock.
#[derive(Clone)]
pub struct Spawner(Shared);

impl Spawner {
    /// A new process without tasks.
    #[must_use]
    pub fn group(&self) -> Group {
        let mut state = self.0.lock();
        state.next_group += 1;
        Group(state.next_group)
    }

    /// Adds a task to a process.
    pub fn spawn(&self, group: Group, task: impl Future<Output = ()> + Send + 'static) -> TaskId {
        self.0.add(group, Box::pin(task))
    }

    /// The kernel's ports inside of a process.
    #[must_use]
    pub fn ports(&self, group: Group) -> Ports {
        let shared = self.0.clone();
        Ports { timer: Arc::new(VirtualTimer(shared.clone())), spawn: Arc::new(VirtualSpawn { shared, group }) }
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.0.lock().now
    }

    /// Wakes at `at`, once. It is not taken back: whoever is woken looks at the clock.
    pub(super) fn ring(&self, at: Instant, waker: &Waker) {
        let mut state = self.0.lock();
        state.next_alarm += 1;
        let alarm = state.next_alarm;
        state.alarms.insert((at, alarm), waker.clone());
    }
}

struct VirtualTimer(Shared);

impl Timer for VirtualTimer {
    fn now(&self) -> Instant {
        self.0.lock().now
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
        Box::pin(Sleep { shared: self.0.clone(), at, alarm: None })
    }
}

struct Sleep {
    shared: Shared,
    at: Instant,
    alarm: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        if state.now >= self.at {
            return Poll::Ready(());
        }
        let alarm = *self.alarm.get_or_insert_with(|| {
            state.next_alarm += 1;
            state.next_alarm
        });
        state.alarms.insert((self.at, alarm), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(alarm) = self.alarm {
            let waker = self.shared.lock().alarms.remove(&(self.at, alarm));
            // Not under the lock: what ends with a waker may be anything.
            drop(waker);
        }
    }
}

struct VirtualSpawn {
    shared: Shared,
    group: Group,
}

impl Spawn for VirtualSpawn {
    fn spawn(&self, task: BoxFuture<()>) {
        self.shared.add(self.group, task);
    }

    /// A blocking job takes no virtual time: it runs when its turn comes.
    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        self.shared.add(self.group, Box::pin(async move { job() }));
    }
}
