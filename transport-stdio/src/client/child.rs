//! One child process: spawned from the thread that never ends, reaped by a thread of its own, ended step by step.
//!
//! Nothing here needs a runtime: a child is led down its ladder and reaped although the runtime is gone or all of its threads
//! are stuck.

use std::io;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Ladder;
use super::group::{self, Group};

/// A running child and the processes that it starts. Dropping it leads it down its ladder.
pub(super) struct Child {
    process: Arc<Process>,
    ladder: Ladder,
}

/// Its standard streams.
pub(super) struct Streams {
    pub(super) input: ChildStdin,
    pub(super) output: ChildStdout,
    pub(super) errors: Option<ChildStderr>,
}

struct Process {
    pid: u32,
    group: Group,
    state: Mutex<State>,
    exited: Condvar,
}

#[derive(Default)]
struct State {
    /// It has ended and is reaped: its pid may name another process by now.
    exit: Option<Exit>,
    stopping: bool,
    waker: Option<Waker>,
}

/// What is done to a group.
type Step = fn(&Group);

/// How it ended; `None`: somebody else has reaped it.
pub(super) type Exit = Option<ExitStatus>;

impl Child {
    /// Starts `command`, which comes back for the next time.
    pub(super) async fn spawn(mut command: Command, ladder: Ladder) -> (Command, io::Result<(Self, Streams)>) {
        let (reply, spawned) = oneshot::channel();
        let job = Box::new(move || {
            let child = command.spawn().and_then(|child| Self::look_after(child, ladder));
            // Nobody waits any more: what was started is dropped, and ended.
            let _nobody_waits = reply.send((command, child));
        });
        if let Err(error) = on_spawner(job) {
            return (Command::new(""), Err(error));
        }
        match spawned.await {
            Ok(spawned) => spawned,
            Err(_) => (Command::new(""), Err(io::Error::other("the thread that spawns children is gone"))),
        }
    }

    fn look_after(mut child: std::process::Child, ladder: Ladder) -> io::Result<(Self, Streams)> {
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the child's streams are not piped"));
        };
        let errors = child.stderr.take();
        let group = match Group::of(&child) {
            Ok(group) => group,
            Err(error) => {
                let _ended = child.kill().and_then(|()| child.wait());
                return Err(error);
            }
        };
        let (state, exited) = (Mutex::default(), Condvar::new());
        let process = Arc::new(Process { pid: child.id(), group, state, exited });
        let watched = Arc::clone(&process);
        let ended = thread::Builder::new().name("steady-child".into()).stack_size(64 << 10).spawn(move || {
            watched.reap(child);
        });
        if let Err(error) = ended {
            // No thread to wait for it: it must not stay. The process ends as a zombie, which our own end takes away.
            process.unless_reaped(Group::kill);
            return Err(error);
        }
        Ok((Self { process, ladder }, Streams { input, output, errors }))
    }

    pub(super) fn id(&self) -> u32 {
        self.process.pid
    }

    /// Resolves once it is reaped.
    pub(super) fn poll_exit(&self, cx: &Context<'_>) -> Poll<Exit> {
        let mut state = self.process.lock();
        if let Some(exit) = state.exit {
            return Poll::Ready(exit);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Leads it down its ladder, in a thread of its own. Its standard input must be closed already.
    pub(super) fn stop(&self) {
        let mut state = self.process.lock();
        if state.exit.is_some() || std::mem::replace(&mut state.stopping, true) {
            return;
        }
        drop(state);
        let (process, ladder) = (Arc::clone(&self.process), self.ladder);
        let stopping = thread::Builder::new().name("steady-stop".into()).stack_size(64 << 10);
        if stopping.spawn(move || process.descend(ladder)).is_err() {
            self.process.unless_reaped(Group::kill);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Process {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end, kills what is left of the group, and reaps.
    fn reap(&self, mut child: std::process::Child) {
        self.group.wait_for_leader(&mut child);
        let mut state = self.lock();
        self.group.kill();
        state.exit = Some(child.wait().ok());
        let waker = state.waker.take();
        drop(state);
        self.exited.notify_all();
        waker.into_iter().for_each(Waker::wake);
    }

    fn descend(&self, ladder: Ladder) {
        let steps: [(Duration, Step); 2] = [(ladder.close, Group::ask_to_end), (ladder.terminate, Group::kill)];
        for (patience, step) in steps {
            if self.exits_within(patience) {
                return;
            }
            self.unless_reaped(step);
        }
    }

    fn exits_within(&self, patience: Duration) -> bool {
        let until = Instant::now().checked_add(patience);
        let mut state = self.lock();
        while state.exit.is_none() {
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            state = self.exited.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Does something to the whole group, unless its leader is reaped: its id may name others by then.
    fn unless_reaped(&self, act: Step) {
        let state = self.lock();
        if state.exit.is_none() {
            act(&self.group);
        }
    }
}

/// Children that wait to be spawned at once; each more is refused.
const SPAWNS: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

/// Runs a job on the one thread that spawns children and lives as long as the process.
fn on_spawner(job: Job) -> io::Result<()> {
    static SPAWNER: OnceLock<Option<SyncSender<Job>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = sync_channel::<Job>(SPAWNS);
        let thread = thread::Builder::new().name("steady-spawn".into());
        thread.spawn(move || jobs.into_iter().for_each(|job| job())).ok().map(|_| sender)
    });
    let gone = || io::Error::other("the thread that spawns children cannot be started");
    // Never waits: this may be called on a thread that runs futures.
    spawner
        .as_ref()
        .ok_or_else(gone)?
        .try_send(job)
        .map_err(|_| io::Error::other("too many children are started at once"))
}

/// Pipes the child's streams, and makes it the leader of a group that ends with this process where the system can do that.
pub(super) fn prepare(command: &mut Command, capture_errors: bool) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(if capture_errors { Stdio::piped() } else { Stdio::inherit() });
    group::prepare(command);
}
