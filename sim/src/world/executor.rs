//! A single-threaded executor whose clock is virtual: same tasks, same order, every time.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use steady_core::kernel::{BoxFuture, Ports, Spawn, Timer};
use steady_core::time::Instant;

/// Names a task of an [`Executor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u64);

#[derive(Default)]
struct State {
    now: Instant,
    ready: VecDeque<u64>,
    incoming: Vec<(u64, BoxFuture<()>)>,
    next_task: u64,
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
}

/// Runs tasks in virtual time.
#[derive(Default)]
pub struct Executor {
    shared: Shared,
    tasks: BTreeMap<u64, (BoxFuture<()>, Waker)>,
}

struct TaskWaker {
    shared: Shared,
    task: u64,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut state = self.shared.lock();
        if !state.ready.contains(&self.task) {
            state.ready.push_back(self.task);
        }
    }
}

impl Executor {
    /// Nothing to run, at time zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The kernel's ports over this executor.
    #[must_use]
    pub fn ports(&self) -> Ports {
        Ports { timer: Arc::new(VirtualTimer(self.shared.clone())), spawn: Arc::new(VirtualSpawn(self.shared.clone())) }
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.shared.lock().now
    }

    /// Adds a task.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) -> TaskId {
        TaskId(VirtualSpawn(self.shared.clone()).add(Box::pin(task)))
    }

    /// Drops a task where it stands, as an executor does whose service future is dropped.
    pub fn kill(&mut self, task: TaskId) {
        self.adopt();
        drop(self.tasks.remove(&task.0));
    }

    /// Runs what is ready, without moving time.
    pub fn run_ready(&mut self) {
        loop {
            self.adopt();
            let Some(task) = self.shared.lock().ready.pop_front() else { return };
            let Some((mut future, waker)) = self.tasks.remove(&task) else { continue };
            if future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                self.tasks.insert(task, (future, waker));
            }
        }
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
        for (task, future) in std::mem::take(&mut state.incoming) {
            let waker = Waker::from(Arc::new(TaskWaker { shared: self.shared.clone(), task }));
            self.tasks.insert(task, (future, waker));
            state.ready.push_back(task);
        }
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
            self.shared.lock().alarms.remove(&(self.at, alarm));
        }
    }
}

struct VirtualSpawn(Shared);

impl VirtualSpawn {
    fn add(&self, task: BoxFuture<()>) -> u64 {
        let mut state = self.0.lock();
        state.next_task += 1;
        let id = state.next_task;
        state.incoming.push((id, task));
        id
    }
}

impl Spawn for VirtualSpawn {
    fn spawn(&self, task: BoxFuture<()>) {
        self.add(task);
    }

    /// A blocking job takes no virtual time: it runs when its turn comes.
    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        self.add(Box::pin(async move { job() }));
    }
}
