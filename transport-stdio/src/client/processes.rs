//! A client's child processes: each is watched, heard to its end, and followed by the next one.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::process;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use steady_core::kernel::client::{Driver, LinkEnd, LinkLoss, Turn};
use steady_core::kernel::{EraLink, Eras, Standing, Timer};
use tokio::sync::{oneshot, watch};

use super::child::{self, Child, Exit, Streams};
use super::command::Command;
use super::pipes::{self, Reader, Writer};
use super::restart::Crashes;
use super::supervisor::{Ready, StartError, poll_driver, started};
use super::tail::Tail;
use super::{Ladder, Status};
use crate::line::LineLink;

/// How long a link that ended waits for what the child's end says, and the other way round, before calls are settled.
const LAST_WORDS: Duration = Duration::from_millis(250);

type PipeLink = EraLink<LineLink<Reader, Writer>>;

/// What a client of child processes is made of.
struct Supervisor {
    driver: Driver<PipeLink>,
    command: Arc<Mutex<process::Command>>,
    program: String,
    ladder: Ladder,
    max_answer: usize,
    eras: Eras,
    /// What the children speak, as far as one has said so. It holds for the next child too: one of the older revisions may
    /// end on the probe.
    known: Option<Eras>,
    /// How far the child has come.
    standing: Standing,
    stderr: Option<usize>,
    crashes: Crashes,
    timer: Arc<dyn Timer>,
    status: watch::Sender<Status>,
    ready: Ready,
}

/// A running child and what it says beside its messages.
struct Running {
    child: Child,
    errors: Tail<Reader>,
}

/// What happened first.
enum Happened {
    Turn(Turn),
    Exit(Exit),
}

/// How a child's time ended.
enum End {
    /// Nobody wants it any more.
    Done,
    /// It ended or its link did; why, if that is not its end alone.
    Lost { end: Option<LinkEnd>, exit: Option<Exit> },
}

/// Starts the first child and the task that looks after it.
pub(super) async fn start(
    driver: Driver<PipeLink>,
    mut command: Command,
    status: watch::Sender<Status>,
) -> Result<(), StartError> {
    let program = command.process.get_program().to_string_lossy().into_owned();
    child::prepare(&mut command.process, command.stderr.is_some());
    let (ready, watched) = oneshot::channel();
    let mut supervisor = Supervisor {
        driver,
        command: Arc::new(Mutex::new(command.process)),
        program,
        ladder: command.ladder,
        max_answer: command.max_answer,
        eras: command.config.eras,
        known: None,
        standing: Standing::Unasked,
        stderr: command.stderr,
        crashes: Crashes::new(command.restart, super::jitter()),
        timer: crate::ports::tokio_timer(),
        status,
        ready: Some(ready),
    };
    let Some(first) = supervisor.spawn().await else {
        return Err(StartError::Lost(LinkLoss { what: "the client was closed".to_owned(), ..LinkLoss::default() }));
    };
    let first = first.map_err(|error| StartError::Spawn { program: supervisor.program.clone(), error })?;
    drop(tokio::spawn(supervisor.run(first)));
    started(watched).await
}

impl Supervisor {
    /// Starts a child and gives its pipes to the loop. `None`: the client was closed meanwhile; a child that starts all
    /// the same is led down its ladder by itself.
    async fn spawn(&mut self) -> Option<io::Result<Running>> {
        let spawn = Child::spawn(Arc::clone(&self.command), self.ladder);
        let spawned = self.drive_beside(spawn).await?;
        Some(spawned.and_then(|(child, streams)| self.open(child, streams)))
    }

    fn open(&mut self, child: Child, streams: Streams) -> io::Result<Running> {
        let (input, output, errors) = pipes::open(streams)?;
        let errors = Tail::new(errors, self.stderr.unwrap_or_default());
        self.status.send_modify(|status| status.pid = Some(child.id()));
        let link = LineLink::new(output, input, self.max_answer);
        let eras = if self.begins_with_handshake() { Eras::Legacy } else { self.eras };
        self.standing = Standing::Unasked;
        self.driver.attach(EraLink::new(link, eras, Arc::clone(&self.timer)));
        Ok(Running { child, errors })
    }

    /// Looks after children until there is no next one.
    async fn run(mut self, first: Running) {
        let mut running = Some(first);
        while let Some(mut child) = running.take() {
            let end = self.watch(&mut child).await;
            let again = match end {
                End::Done => {
                    self.finish(child).await;
                    break;
                }
                End::Lost { end, exit } => self.lost(child, end, exit).await,
            };
            let mut pause = again;
            while let Some(time) = pause.take() {
                if self.pause(time).await {
                    break;
                }
                // Closed while it was started: there is no next one.
                let Some(spawned) = self.spawn().await else { break };
                match spawned {
                    Ok(next) => {
                        self.status.send_modify(|status| status.restarts += 1);
                        running = Some(next);
                    }
                    Err(error) => {
                        let what = format!("the server {:?} cannot be started: {error}", self.program);
                        pause = self.settle(what, String::new());
                    }
                }
            }
        }
        self.driver.detach("the client was closed".to_owned(), String::new(), false);
        self.status.send_modify(|status| status.ended = true);
    }

    /// Drives the link until it or the child ends.
    async fn watch(&mut self, running: &mut Running) -> End {
        let (driver, ready, standing) = (&mut self.driver, &mut self.ready, &mut self.standing);
        let happened = poll_fn(|cx| {
            let _more_or_over = running.errors.poll_pump(cx);
            match poll_driver(driver, ready, cx) {
                Poll::Ready(turn) => Poll::Ready(Happened::Turn(turn)),
                Poll::Pending => {
                    // A link that ended cannot be asked any more.
                    *standing = driver.link().map_or(*standing, EraLink::standing);
                    running.child.poll_exit(cx).map(Happened::Exit)
                }
            }
        });
        match happened.await {
            Happened::Turn(Turn::Done) => End::Done,
            Happened::Turn(Turn::Lost(end)) => self.hear_exit(running, end).await,
            Happened::Exit(exit) => self.hear_link(running, exit).await,
        }
    }

    /// The link ended: the child's end may say why. Its errors are read to their end.
    async fn hear_exit(&mut self, running: &mut Running, end: LinkEnd) -> End {
        let (driver, ready) = (&mut self.driver, &mut self.ready);
        let mut exit = None;
        let heard = poll_fn(|cx| {
            let told = running.errors.poll_pump(cx).is_ready();
            let _clocks = poll_driver(driver, ready, cx);
            if let Poll::Ready(ended) = running.child.poll_exit(cx) {
                exit = Some(ended);
            }
            if told && exit.is_some() { Poll::Ready(()) } else { Poll::Pending }
        });
        // What is not heard in time is left unsaid.
        let _in_time = tokio::time::timeout(LAST_WORDS, heard).await;
        let closed = matches!(end, LinkEnd::Closed);
        End::Lost { end: Some(end).filter(|_| !(closed && exit.is_some())), exit }
    }

    /// The child ended: what it had written is read to its end. A process of another group may hold its pipes open.
    async fn hear_link(&mut self, running: &mut Running, exit: Exit) -> End {
        let (driver, ready) = (&mut self.driver, &mut self.ready);
        let (mut lost, mut done) = (false, false);
        let heard = poll_fn(|cx| {
            let told = running.errors.poll_pump(cx).is_ready();
            match poll_driver(driver, ready, cx) {
                Poll::Ready(Turn::Lost(_)) => lost = true,
                Poll::Ready(Turn::Done) => done = true,
                Poll::Pending => {}
            }
            if done || (told && lost) { Poll::Ready(()) } else { Poll::Pending }
        });
        let _in_time = tokio::time::timeout(LAST_WORDS, heard).await;
        if done { End::Done } else { End::Lost { end: None, exit: Some(exit) } }
    }

    /// Settles the calls of a child that is gone or given up. The pause before the next one, if there is one.
    async fn lost(&mut self, running: Running, end: Option<LinkEnd>, exit: Option<Exit>) -> Option<Duration> {
        let said = exit.map(exit_in_words);
        let what = match (end, &said) {
            (None, None) => "the server is gone".to_owned(),
            (None, Some(said)) => format!("the server {:?} {said}", self.program),
            (Some(end), None) => format!("{end}; its process is told to stop"),
            (Some(end), Some(said)) => format!("{end}; its process {said}"),
        };
        let pause = self.settle(what, running.errors.text());
        if let Some(said) = said {
            self.status.send_modify(|status| {
                status.pid = None;
                status.last_exit = Some(said.into());
            });
            return pause;
        }
        // One child for a client at a time: the next one starts when this one is gone.
        self.wait_for_end(running).await;
        pause
    }

    /// Whether the next child is not probed: the last one agreed on an older revision, or ended on its probe.
    fn begins_with_handshake(&self) -> bool {
        self.eras == Eras::Both && self.known == Some(Eras::Legacy)
    }

    /// Keeps what the child said of its era before it ended; whether it is started again at once for a handshake. That is
    /// done at most once for each time that a child ends: one that ends on its handshake is not known any more.
    fn learn(&mut self) -> bool {
        match std::mem::replace(&mut self.standing, Standing::Unasked) {
            // It was not started, or ended before it was asked.
            Standing::Unasked => false,
            Standing::Modern => {
                self.known = Some(Eras::Modern);
                false
            }
            Standing::Legacy => {
                self.known = Some(Eras::Legacy);
                false
            }
            Standing::Shaking => {
                self.known = None;
                false
            }
            Standing::Probed => {
                let again = self.eras == Eras::Both && self.known.is_none();
                if again {
                    self.known = Some(Eras::Legacy);
                }
                again
            }
        }
    }

    /// Settles the calls of a link that is gone. The pause before the next start, if there is one.
    fn settle(&mut self, what: String, stderr: String) -> Option<Duration> {
        let loss = LinkLoss { what, stderr, generation: self.driver.generation() };
        let pause = if self.learn() {
            // The next one is greeted by a handshake.
            Some(Duration::ZERO)
        } else {
            match self.ready.take() {
                None => self.crashes.crashed(self.timer.now()),
                // What never came up is no crash to recover from.
                Some(ready) => {
                    let _nobody_waits = ready.send(Err(loss.clone()));
                    None
                }
            }
        };
        self.driver.detach(loss.what.clone(), loss.stderr.clone(), pause.is_some());
        self.status.send_modify(|status| status.last_loss = Some(Arc::new(loss)));
        pause
    }

    /// Waits before the next start; whether the client was closed meanwhile.
    async fn pause(&mut self, time: Duration) -> bool {
        self.drive_beside(tokio::time::sleep(time)).await.is_none()
    }

    /// Waits for `other` while calls keep their clocks; `None`: the client was closed meanwhile.
    async fn drive_beside<T>(&mut self, other: impl Future<Output = T>) -> Option<T> {
        let mut other = pin!(other);
        let (driver, ready) = (&mut self.driver, &mut self.ready);
        poll_fn(|cx| match poll_driver(driver, ready, cx) {
            Poll::Ready(Turn::Done) => Poll::Ready(None),
            Poll::Ready(Turn::Lost(_)) | Poll::Pending => other.as_mut().poll(cx).map(Some),
        })
        .await
    }

    /// The application is done: the child is led down its ladder, and reaped.
    async fn finish(&mut self, running: Running) {
        let link = self.driver.take_link();
        self.driver.detach("the client was closed".to_owned(), String::new(), false);
        // Only the input is closed: a server that flushes its last answers must not meet a broken pipe.
        let output = link.map(|link| link.into_inner().into_reader());
        let mut output = Tail::new(output, 0);
        let mut running = running;
        running.child.stop();
        let exit = poll_fn(|cx| {
            let _thrown_away = output.poll_pump(cx);
            let _more_or_over = running.errors.poll_pump(cx);
            running.child.poll_exit(cx)
        })
        .await;
        self.ended(exit);
    }

    /// Leads a child that lost its link down its ladder; calls that wait for the next one keep their clocks.
    async fn wait_for_end(&mut self, mut running: Running) {
        running.child.stop();
        let (driver, ready) = (&mut self.driver, &mut self.ready);
        let exit = poll_fn(|cx| {
            let _more_or_over = running.errors.poll_pump(cx);
            let _clocks = poll_driver(driver, ready, cx);
            running.child.poll_exit(cx)
        })
        .await;
        self.ended(exit);
    }

    fn ended(&self, exit: Exit) {
        self.status.send_modify(|status| {
            status.pid = None;
            status.last_exit = Some(exit_in_words(exit).into());
        });
    }
}

fn exit_in_words(exit: Exit) -> String {
    match exit {
        Exit::Ended(status) => format!("ended with {status}"),
        Exit::ReapedElsewhere => "has ended, and another part of this program reaped it".to_owned(),
        Exit::Stuck(pid) => {
            format!("could not be ended: process {pid} outlasts SIGKILL, as in a system call that hangs")
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::super::{CallError, Client, ClientConfig, Request, Restart, config};
    use super::*;
    use std::sync::mpsc::channel;
    use steady_core::backoff::Backoff;

    /// A hang guard, not a measure.
    const GUARD: Duration = Duration::from_secs(60);

    async fn clocks_run_and_an_end_is_heard_while_the_next_child_is_started() {
        let millisecond = Duration::from_millis(1);
        let at_once = Restart { backoff: Backoff { base: millisecond, cap: millisecond }, ..Restart::default() };
        let config = ClientConfig { probe: None, ..config() };
        let command = Command::new("/bin/sh").args(["-c", "read line; exit 1"]).config(config).restart(at_once);
        let client = Client::spawn(command).await.expect("it starts");
        // From here on no child can be started.
        let (release, held) = channel::<()>();
        child::on_spawner(Box::new(move || assert!(held.recv().is_err(), "it is only let go"))).expect("there is room");
        let lost = client.call(Request::raw("a", "{}")).await;
        assert!(matches!(lost, Err(CallError::Unknown { .. })), "{lost:?}");
        let waits = client.call(Request::raw("b", "{}").max(Some(Duration::from_millis(50)))).await;
        assert!(matches!(waits, Err(CallError::MaxTimeout { .. })), "{waits:?}");
        let status = client.shutdown().await;
        assert!(status.ended && status.restarts == 0, "{status:?}");
        drop(release);
    }

    #[test]
    fn a_start_that_takes_its_time_keeps_nobody_waiting() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let test = clocks_run_and_an_end_is_heard_while_the_next_child_is_started();
        runtime.block_on(async { tokio::time::timeout(GUARD, test).await.expect("it hangs") });
    }
}
