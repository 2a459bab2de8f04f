//! The kernel's ports for one request: a clock that is set by hand, one spawned task, a link that reads from a list.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc as Shared, Mutex};
use std::task::{Context, Poll};

use steady_core::coordinator;
use steady_core::kernel::{
    Answer, BoxFuture, Call, Context as Request, Link, Ports, Received, ServerConfig, Service, Spawn, Timer,
};
use steady_core::time::Instant;

pub(crate) const REQUEST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":1}}}"#;
pub(crate) const CANCEL: &str = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;

/// What one side of a model shares with the kernel. Its locks are not loom's: nobody waits for another under them.
#[derive(Default)]
struct Shelf {
    now: Instant,
    task: Option<BoxFuture<()>>,
    input: VecDeque<&'static str>,
    closed: bool,
    written: Vec<u8>,
}

/// Clock, executor and link in one. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Still(Shared<Mutex<Shelf>>);

impl Still {
    pub(crate) fn ports(&self) -> Ports {
        Ports { timer: Shared::new(self.clone()), spawn: Shared::new(self.clone()) }
    }

    fn shelf(&self) -> std::sync::MutexGuard<'_, Shelf> {
        self.0.lock().expect("no panic")
    }

    /// The handler that was not done at its first poll.
    pub(crate) fn task(&self) -> BoxFuture<()> {
        self.shelf().task.take().expect("a handler that was not done at once")
    }

    /// What was spawned, if anything was.
    pub(crate) fn began(&self) -> Option<BoxFuture<()>> {
        self.shelf().task.take()
    }

    pub(crate) fn set_clock(&self, now: Instant) {
        self.shelf().now = now;
    }

    pub(crate) fn send(&self, frame: &'static str) {
        self.shelf().input.push_back(frame);
    }

    /// The peer sends nothing more.
    pub(crate) fn close(&self) {
        self.shelf().closed = true;
    }

    /// What was written, line by line.
    pub(crate) fn written(&self) -> Vec<String> {
        let written = std::mem::take(&mut self.shelf().written);
        String::from_utf8(written).expect("UTF-8").lines().map(str::to_owned).collect()
    }
}

impl Timer for Still {
    fn now(&self) -> Instant {
        self.shelf().now
    }

    fn sleep_until(&self, _: Instant) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

impl Spawn for Still {
    fn spawn(&self, task: BoxFuture<()>) {
        self.shelf().task = Some(task);
    }

    fn spawn_blocking(&self, _: Box<dyn FnOnce() + Send>) {
        unreachable!("no handler blocks here");
    }
}

/// The link wakes nobody: what it has is there before it is asked.
impl Link for Still {
    const BEFORE: &'static [u8] = b"";
    const AFTER: &'static [u8] = b"\n";

    fn poll_recv(&mut self, _: &mut Context<'_>) -> Poll<Received<'_>> {
        let mut shelf = self.shelf();
        match shelf.input.pop_front() {
            Some(frame) => Poll::Ready(Received::Message(frame)),
            None if shelf.closed => Poll::Ready(Received::Closed),
            None => Poll::Pending,
        }
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn poll_send(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.shelf().written.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What the handler does after its first poll, in which it is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Answers,
    ReportsAndAnswers,
    WaitsForItsCancellation,
}

/// A service of one request. It hands the handler's context out, for tasks of the handler's own.
pub(crate) struct Once {
    then: Then,
    context: Mutex<Option<Request>>,
}

impl Once {
    pub(crate) fn new(then: Then) -> Shared<Self> {
        Shared::new(Self { then, context: Mutex::new(None) })
    }

    pub(crate) fn context(&self) -> Request {
        self.context.lock().expect("no panic").take().expect("it was called")
    }
}

impl Service for Once {
    fn call(&self, _: Call, cx: Request) -> Answer {
        *self.context.lock().expect("no panic") = Some(cx.clone());
        let (then, mut polled) = (self.then, false);
        Answer::later(async move {
            poll_fn(|_| if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }).await;
            match then {
                Then::Answers => {}
                Then::ReportsAndAnswers => {
                    cx.report(1.0, None, "");
                }
                Then::WaitsForItsCancellation => {
                    cx.cancelled().await;
                }
            }
            Ok("{}".to_owned())
        })
    }
}

/// No rate limit, one place for lossless progress.
pub(crate) fn config() -> ServerConfig {
    let mut config = ServerConfig::default();
    config.requests = coordinator::Config { progress_interval: std::time::Duration::ZERO, ..config.requests };
    config.outbound.lossless = 1;
    config
}
