//! A virtual link, clock and executor: the ports of the kernel on one thread, with time that moves when it is told to.

mod drive;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use steady_core::id::RequestId;
use steady_core::kernel::{BadFrame, BoxFuture, Link, Ports, Received, Spawn, Timer, Unanswered};
use steady_core::time::Instant;

pub(crate) use drive::{Driven, Drops};

/// What the test and the ports share.
#[derive(Default)]
pub(crate) struct Shared {
    now: Instant,
    sleepers: BTreeMap<(Instant, usize), Waker>,
    next_sleeper: usize,
    tasks: Vec<Task>,
    jobs: Vec<Box<dyn FnOnce() + Send>>,
    input: VecDeque<Frame>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// How many bytes the link still takes; `None` for all.
    pub(crate) room: Option<usize>,
    pub(crate) written: Vec<u8>,
    /// Requests whose streams were closed.
    pub(crate) closed: Vec<RequestId>,
    /// Calls that the application does not go on with.
    #[allow(dead_code, reason = "each test binary uses a part of it")]
    pub(crate) abandoned: Vec<RequestId>,
    /// How many writes took something.
    #[allow(dead_code, reason = "each test binary uses a part of it")]
    pub(crate) writes: usize,
    /// What was written does not leave the process, as with a slow disk.
    pub(crate) slow_flush: bool,
    /// Writing fails from now on, as when the peer has closed its input; the same for what was written but not flushed.
    pub(crate) broken: bool,
    pub(crate) flush_broken: bool,
    /// The id of the answer that was skipped as too long.
    pub(crate) oversize: Option<RequestId>,
    /// Runs all tasks inside of a write, as other threads would.
    pub(crate) busy_threads: bool,
    /// What is read when nothing else waits.
    pub(crate) endless: Option<String>,
    pub(crate) reads: usize,
    /// How far the clock goes with each frame read.
    pub(crate) step: u64,
}

/// What the peer does next.
#[derive(Clone)]
pub(crate) enum Frame {
    Text(String),
    Bad(BadFrame),
    Unanswered(RequestId, Unanswered),
    Closed,
    Failed,
}

struct Task {
    future: BoxFuture<()>,
    bell: Arc<Flag>,
}

/// A waker that remembers.
pub(crate) struct Flag(AtomicBool);

impl Flag {
    /// Rung once, so that its future is polled for a first time.
    fn rung() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The ports. Clones share one world.
#[derive(Clone, Default)]
pub(crate) struct World(Arc<Mutex<Shared>>);

impl World {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().expect("no panic under the lock")
    }

    pub(crate) fn ports(&self) -> Ports {
        Ports { timer: Arc::new(self.clone()), spawn: Arc::new(self.clone()) }
    }

    pub(crate) fn link(&self) -> VirtualLink {
        VirtualLink { world: self.clone(), frame: String::new() }
    }

    pub(crate) fn feed(&self, frame: Frame) {
        let mut shared = self.lock();
        shared.input.push_back(frame);
        let reader = shared.reader.take();
        drop(shared);
        reader.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn send(&self, text: impl Into<String>) {
        self.feed(Frame::Text(text.into()));
    }

    /// Lets the link take `bytes` more; `None`: all that come.
    pub(crate) fn allow(&self, bytes: Option<usize>) {
        let mut shared = self.lock();
        shared.room = bytes;
        let writer = shared.writer.take();
        drop(shared);
        writer.into_iter().for_each(Waker::wake);
    }

    /// The lines that were written since the last call, cut at line ends; a rest without one stays.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut shared = self.lock();
        let end = shared.written.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let taken: Vec<u8> = shared.written.drain(..end).collect();
        String::from_utf8(taken).expect("UTF-8").lines().map(str::to_owned).collect()
    }

    /// Moves the clock and rings what is due.
    pub(crate) fn advance(&self, to: Instant) {
        let mut shared = self.lock();
        shared.now = to;
        let later = shared.sleepers.split_off(&(Instant::from_nanos(to.as_nanos() + 1), 0));
        let due = std::mem::replace(&mut shared.sleepers, later);
        drop(shared);
        due.into_values().for_each(Waker::wake);
    }

    /// Tasks and jobs that have not ended.
    pub(crate) fn running(&self) -> usize {
        let shared = self.lock();
        shared.tasks.len() + shared.jobs.len()
    }

    /// Polls every task that was woken, once; whether there was one.
    pub(crate) fn run_tasks(&self) -> bool {
        let tasks = std::mem::take(&mut self.lock().tasks);
        let mut progress = false;
        for mut task in tasks {
            let woken = task.bell.take();
            progress |= woken;
            let waker = Waker::from(Arc::clone(&task.bell));
            if !woken || task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                self.lock().tasks.push(task);
            }
        }
        progress
    }

    /// Runs the blocking jobs that wait.
    pub(crate) fn run_jobs(&self) {
        let jobs = std::mem::take(&mut self.lock().jobs);
        jobs.into_iter().for_each(|job| job());
    }

    /// Drops the blocking jobs that wait, as a pool does that shuts down.
    #[allow(dead_code, reason = "each test binary uses a part of it")]
    pub(crate) fn drop_jobs(&self) {
        let jobs = std::mem::take(&mut self.lock().jobs);
        drop(jobs);
    }
}

impl Timer for World {
    fn now(&self) -> Instant {
        self.lock().now
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
        let mut shared = self.lock();
        shared.next_sleeper += 1;
        let (world, key) = (self.clone(), (at, shared.next_sleeper));
        Box::pin(std::future::poll_fn(move |cx| {
            let mut shared = world.lock();
            if shared.now >= at {
                return Poll::Ready(());
            }
            shared.sleepers.insert(key, cx.waker().clone());
            Poll::Pending
        }))
    }
}

impl Spawn for World {
    fn spawn(&self, future: BoxFuture<()>) {
        self.lock().tasks.push(Task { future, bell: Flag::rung() });
    }

    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        self.lock().jobs.push(job);
    }
}

/// The server's end of the link.
pub(crate) struct VirtualLink {
    world: World,
    frame: String,
}

impl Link for VirtualLink {
    const BEFORE: &'static [u8] = b"";
    const AFTER: &'static [u8] = b"\n";

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Received<'_>> {
        let mut shared = self.world.lock();
        let frame = shared.input.pop_front().or_else(|| shared.endless.clone().map(Frame::Text));
        let Some(frame) = frame else {
            shared.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        shared.reads += 1;
        shared.now = Instant::from_nanos(shared.now.as_nanos() + shared.step);
        drop(shared);
        Poll::Ready(match frame {
            Frame::Text(text) => {
                self.frame = text;
                Received::Message(&self.frame)
            }
            Frame::Bad(bad) => Received::Bad(bad),
            Frame::Unanswered(id, end) => Received::Unanswered(id, end),
            Frame::Closed => Received::Closed,
            Frame::Failed => Received::Failed(io::ErrorKind::ConnectionReset.into()),
        })
    }

    fn close_stream(&mut self, request: &RequestId) {
        self.world.lock().closed.push(request.clone());
    }

    fn abandon(&mut self, call: &RequestId) {
        self.world.lock().abandoned.push(call.clone());
    }

    fn oversize_answer(&mut self) -> Option<RequestId> {
        self.world.lock().oversize.clone()
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.world.lock();
        if shared.input.iter().any(|frame| matches!(frame, Frame::Closed)) {
            return Poll::Ready(());
        }
        shared.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.world.lock().busy_threads {
            self.world.run_tasks();
        }
        let mut shared = self.world.lock();
        if shared.broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = shared.room.map_or(bytes.len(), |room| room.min(bytes.len()));
        if count == 0 {
            shared.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        shared.room = shared.room.map(|room| room - count);
        shared.written.extend_from_slice(&bytes[..count]);
        shared.writes += 1;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.world.lock();
        if shared.flush_broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if shared.slow_flush {
            shared.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}
