//! One child process: spawned from the thread that never ends, reaped by a thread of its own, ended step by step.
//!
//! Nothing here needs a runtime: a child is led down its ladder and reaped although the runtime is gone or all of its threads
//! are stuck.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
    /// Not even SIGKILL has ended it in time. Its thread goes on waiting for it.
    stuck: bool,
    waker: Option<Waker>,
}

/// What became of a leader that was waited for.
#[cfg_attr(windows, expect(dead_code, reason = "its handle always tells there"))]
pub(super) enum Leader {
    /// It has ended, and its id is still its own.
    Ended,
    /// Its id may name another process by now.
    ReapedElsewhere,
    /// The system does not say.
    CannotTell,
}

/// What is done to a group.
type Step = fn(&Group);

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// By itself or by a signal, and is reaped.
    Ended(ExitStatus),
    /// Somebody else has reaped it.
    ReapedElsewhere,
    /// It has not: the process with this id outlasts SIGKILL, as one in a system call that hangs does.
    Stuck(u32),
}

/// How long a child may take to end after SIGKILL before it is given up.
const KILLED: Duration = Duration::from_secs(5);

impl Child {
    /// Starts `command`, which can be started again.
    pub(super) async fn spawn(command: Arc<Mutex<Command>>, ladder: Ladder) -> io::Result<(Self, Streams)> {
        let (reply, spawned) = oneshot::channel();
        on_spawner(Box::new(move || {
            let child = command.lock().unwrap_or_else(PoisonError::into_inner).spawn();
            // Nobody waits any more: what was started is dropped, and ended.
            let _nobody_waits = reply.send(child.and_then(|child| Self::look_after(child, ladder)));
        }))?;
        spawned.await.unwrap_or_else(|_| Err(io::Error::other("starting it panicked")))
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
        // A closure that cannot be run is dropped with all that it holds: the child is kept beside it.
        let kept = Arc::new(Mutex::new(Some(child)));
        let handed = Arc::clone(&kept);
        let take = |kept: &Mutex<Option<_>>| kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ended = thread::Builder::new().name("steady-child".into()).stack_size(64 << 10).spawn(move || {
            take(&handed).into_iter().for_each(|child| watched.reap(child));
        });
        if let Err(error) = ended {
            // No thread to wait for it: it must not stay, and is waited for here.
            process.unless_reaped(Group::kill);
            take(&kept).into_iter().for_each(|child| process.reap(child));
            return Err(error);
        }
        Ok((Self { process, ladder }, Streams { input, output, errors }))
    }

    pub(super) fn id(&self) -> u32 {
        self.process.pid
    }

    /// Resolves once it is reaped, or given up.
    pub(super) fn poll_exit(&self, cx: &Context<'_>) -> Poll<Exit> {
        self.process.poll_exit(cx)
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
        if stopping.spawn(move || process.descend(ladder, KILLED)).is_err() {
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

    fn poll_exit(&self, cx: &Context<'_>) -> Poll<Exit> {
        let mut state = self.lock();
        if let Some(exit) = state.exit.or_else(|| state.stuck.then_some(Exit::Stuck(self.pid))) {
            return Poll::Ready(exit);
        }
        let old = state.waker.replace(cx.waker().clone());
        drop(state);
        // Not under the lock: what ends with a waker may be a task that holds this child.
        drop(old);
        Poll::Pending
    }

    /// Waits for the end, kills what is left of the group, and reaps.
    fn reap(&self, mut child: std::process::Child) {
        let exit = match self.group.wait_for_leader(&mut child) {
            Leader::Ended => None,
            Leader::ReapedElsewhere => Some(Exit::ReapedElsewhere),
            // Not under the lock, since it waits; and when it is over, the group's id may name others.
            Leader::CannotTell => Some(waited(&mut child)),
        };
        let mut state = self.lock();
        state.exit = exit.or_else(|| {
            self.group.kill();
            Some(waited(&mut child))
        });
        let waker = state.waker.take();
        drop(state);
        self.exited.notify_all();
        waker.into_iter().for_each(Waker::wake);
    }

    /// `last`: how long it may take to end after the last step.
    fn descend(&self, ladder: Ladder, last: Duration) {
        let steps: [(Duration, Step); 2] = [(ladder.close, Group::ask_to_end), (ladder.terminate, Group::kill)];
        for (patience, step) in steps {
            if self.exits_within(patience) {
                return;
            }
            self.unless_reaped(step);
        }
        if !self.exits_within(last) {
            let mut state = self.lock();
            state.stuck = true;
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
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

fn waited(child: &mut std::process::Child) -> Exit {
    child.wait().map_or(Exit::ReapedElsewhere, Exit::Ended)
}

/// Children that wait to be spawned at once; each more is refused.
const SPAWNS: usize = 1024;

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Runs a job on the one thread that spawns children and lives as long as the process.
pub(super) fn on_spawner(job: Job) -> io::Result<()> {
    static SPAWNER: Mutex<Option<SyncSender<Job>>> = Mutex::new(None);
    let mut spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    // What failed may work the next time: nothing is kept of it.
    let jobs = match spawner.take() {
        Some(jobs) => jobs,
        None => start_spawner()?,
    };
    // Never waits: this may be called on a thread that runs futures.
    let sent = jobs.try_send(job);
    *spawner = Some(jobs);
    sent.map_err(|_| io::Error::other("too many children are started at once"))
}

fn start_spawner() -> io::Result<SyncSender<Job>> {
    let (sender, jobs) = sync_channel::<Job>(SPAWNS);
    thread::Builder::new().name("steady-spawn".into()).spawn(move || {
        for job in jobs {
            // With this thread every child would end, those of other clients too.
            let _told_by_its_silence = catch_unwind(AssertUnwindSafe(job));
        }
    })?;
    Ok(sender)
}

/// Pipes the child's streams, and makes it the leader of a group that ends with this process where the system can do that.
pub(super) fn prepare(command: &mut Command, capture_errors: bool) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(if capture_errors { Stdio::piped() } else { Stdio::inherit() });
    group::prepare(command);
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::sync::mpsc::channel;

    /// A hang guard, not a measure.
    const GUARD: Duration = Duration::from_secs(60);

    /// A child in a group of its own, and what would be known of it; nobody reaps it yet.
    fn unwatched(text: &str) -> (std::process::Child, Process) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text]).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().expect("it starts");
        let group = Group::of(&child).expect("a group");
        let process = Process { pid: child.id(), group, state: Mutex::default(), exited: Condvar::new() };
        (child, process)
    }

    #[test]
    fn a_child_that_outlasts_the_last_step_is_given_up_by_name() {
        let (mut child, process) = unwatched("exec sleep 1000");
        let cx = Context::from_waker(Waker::noop());
        assert!(process.poll_exit(&cx).is_pending());
        // Nobody tells of its end, as if there was none.
        process.descend(Ladder { close: Duration::ZERO, terminate: Duration::ZERO }, Duration::ZERO);
        assert_eq!(process.poll_exit(&cx), Poll::Ready(Exit::Stuck(child.id())));
        assert!(child.wait().is_ok_and(|status| status.code().is_none()), "it had its signals");
    }

    #[test]
    fn what_somebody_else_reaped_is_not_signalled() {
        let (mut child, process) = unwatched("exec 3<&0; (read line <&3; echo alive) & exit 3");
        let (mut input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let leader = rustix::process::Pid::from_child(&child);
        let options = rustix::process::WaitOptions::empty();
        rustix::process::waitpid(Some(leader), options).expect("a child of ours");
        process.reap(child);
        let exit = process.poll_exit(&Context::from_waker(Waker::noop()));
        assert_eq!(exit, Poll::Ready(Exit::ReapedElsewhere));
        // Its id could name another group by now; here it still names the one of what it left behind.
        let _unless_it_is_dead = io::Write::write_all(&mut input, b"go\n");
        assert_eq!(io::read_to_string(output).expect("text"), "alive\n");
    }

    #[test]
    fn a_job_that_panics_does_not_end_the_thread_that_spawns() {
        let (told, heard) = channel();
        let tell = told.clone();
        on_spawner(Box::new(move || {
            tell.send(thread::current().id()).expect("the test waits");
            panic!("on purpose");
        }))
        .expect("there is room");
        on_spawner(Box::new(move || told.send(thread::current().id()).expect("the test waits")))
            .expect("there is room");
        let first = heard.recv_timeout(GUARD).expect("it runs");
        assert_eq!(heard.recv_timeout(GUARD).expect("the next one runs"), first, "on the same thread");
    }
}
