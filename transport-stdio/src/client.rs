//! The client: a server as a supervised child process, or any pair of streams.
//!
//! ```no_run
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! use steady_stdio::client::{Client, Command, Request};
//!
//! let client = Client::spawn(Command::new("counter")).await?;
//! let mut call = client.call(Request::raw("tools/call", r#"{"name":"count","arguments":{"to":5}}"#));
//! while let Some(report) = call.progress().await {
//!     eprintln!("{} of {:?}", report.progress, report.total);
//! }
//! println!("{}", call.tool_result().await?.text());
//! client.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! | what happens | what follows |
//! |---|---|
//! | a call is dropped, or cancelled | it ends here at once, the server is told as soon as the pipe takes it (rule C2) |
//! | no progress for 30 s, or 5 minutes in all | the same; both limits can be set for a client and for a call (rule T1) |
//! | the server does not read | calls end all the same; nothing waits for the pipe |
//! | the child ends or closes its output | every call ends at once, as unknown or never sent, with the end of its standard error (rule S4) |
//! | the last handle is gone, or [`Client::shutdown`] | standard input is closed, then SIGTERM, then SIGKILL to the whole process group (rule S3) |
//!
//! # Processes that outlive
//! The child leads a process group of its own. Whatever is left of the group when the child ends is killed, and the child
//! is always reaped, by a thread that no runtime can take away. On Linux the kernel kills the child when the process that
//! spawned it dies; its own children are then found by the end of their pipes only. Elsewhere a dead parent is noticed by
//! the end of standard input alone; on Windows a job object ends with the process that holds it. When a program returns from `main` right after it let go of a client, its threads end
//! with it, and so does the waiting: await [`Client::shutdown`] first. A server that made a process group or a session of
//! its own for its children looks after them itself.

mod child;
mod command;
#[cfg_attr(windows, path = "client/job.rs")]
mod group;
#[cfg(target_os = "linux")]
mod orphan;
mod pipes;
mod processes;
mod restart;
mod supervisor;
mod tail;

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use steady_core::backoff::Jitter;
use steady_core::kernel::EraLink;
use steady_core::kernel::client::Driver;
use steady_core::subscription;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::line::LineLink;
use crate::ports::tokio_timer;

pub use command::{Command, Ladder};
pub use restart::Restart;
pub use steady_core::client::Transport;
pub use steady_core::kernel::Eras;
pub use steady_core::kernel::client::{
    CallError, Called, Caller, Canceller, Change, Changes, ClientConfig, ClientStats, Discovered, Fresh, InputAsked,
    Item, LinkLoss, ListenEvent, Listener, Notice, Pending, Propagator, Raw, Report, Request, TaskError, TaskHandle,
    TaskOptions, TaskView, ToolInfo, ToolResult, TraceContext, Traffic,
};
pub use steady_core::subscription::{End, Filter, Refetch};
pub use supervisor::StartError;

/// Longest answer that is read, in bytes, unless stated otherwise; see [`Command::max_answer`].
pub const MAX_ANSWER: usize = 16 << 20;

/// The settings of a client over stdio.
#[must_use]
pub fn config() -> ClientConfig {
    ClientConfig::new(Transport::Stdio)
}

/// A connected client. Clones share it; it derefs to the [`Caller`] that starts calls.
#[derive(Clone, Debug)]
pub struct Client {
    caller: Caller,
    status: watch::Receiver<Status>,
}

/// How the connection of a client stands.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// The process that serves now, which is its process group too; none while there is none.
    pub pid: Option<u32>,
    /// How often the server was started again.
    pub restarts: u64,
    /// The last link that was lost.
    pub last_loss: Option<Arc<LinkLoss>>,
    /// How the last process ended, in words.
    pub last_exit: Option<Arc<str>>,
    /// Nothing is looked after any more: the process is reaped or given up, and no other will be started.
    pub ended: bool,
}

impl Client {
    /// Starts a server, asks it for `server/discover`, and looks after it from then on. Needs a tokio runtime with IO and
    /// time enabled.
    ///
    /// A server that ends on that question, as some of the older revisions do, is started once more for a handshake. What
    /// its revision is holds for each process that follows it, until one refuses.
    ///
    /// # Errors
    /// [`StartError`] if no request can be built with the settings, if the program cannot be started, or ends or misbehaves before it has answered; with the end of its
    /// standard error.
    pub async fn spawn(command: Command) -> Result<Self, StartError> {
        let (driver, caller) =
            Driver::new(command.config.clone(), tokio_timer(), jitter()).map_err(StartError::Settings)?;
        let (status, watched) = watch::channel(Status::default());
        let started = processes::start(driver, command, status).await;
        // The handle keeps the loop from ending while it starts.
        started.map(|()| Self { caller, status: watched })
    }

    /// A client over any pair of streams with the same framing: a Unix socket, TCP, the pipes of a process that somebody
    /// else looks after. It has no second link: the end of this one ends it. Needs a tokio runtime with time enabled.
    ///
    /// # Errors
    /// [`StartError`] if no request can be built with the settings, or the link ends before the server has answered `server/discover`.
    pub async fn attach<R, W>(reader: R, writer: W, config: ClientConfig, max_answer: usize) -> Result<Self, StartError>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let eras = config.eras;
        let (mut driver, caller) = Driver::new(config, tokio_timer(), jitter()).map_err(StartError::Settings)?;
        let (status, watched) = watch::channel(Status::default());
        driver.attach(EraLink::new(LineLink::new(reader, writer, max_answer), eras, tokio_timer()));
        supervisor::attach(driver, status).await.map(|()| Self { caller, status: watched })
    }

    /// Subscribes to what `filter` names. It is asked for again on every new link, and the reader is told what to refetch.
    ///
    /// # Errors
    /// [`CallError::Full`], [`CallError::Closed`], or [`CallError::RequestTooLong`] for the filter.
    pub fn listen(&self, filter: Filter) -> Result<Listener, CallError> {
        self.caller.listen(filter, subscription::Config::default(), jitter())
    }

    /// Ends the client: calls in flight are cancelled, later ones refused, the child is led down its ladder. Returns once
    /// it is reaped, and says how it ended. A child that outlasts SIGKILL for five seconds is given up, and named in
    /// [`Status::last_exit`]; one whose start had not ended yet is led down by itself.
    pub async fn shutdown(&self) -> Status {
        self.caller.close();
        self.ended().await
    }

    /// Waits until nothing runs any more.
    pub async fn ended(&self) -> Status {
        let mut status = self.status.clone();
        match status.wait_for(|status| status.ended).await {
            Ok(status) => status.clone(),
            // The task that looks after it is gone with its runtime; the child's own threads go on.
            Err(_) => Status { ended: true, ..self.status() },
        }
    }

    /// How the connection stands.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// A watch over how the connection stands.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }
}

impl std::ops::Deref for Client {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
}

/// Picks that differ between processes and clients. The standard library seeds its hashers from the operating system.
fn jitter() -> Jitter {
    let bits = || std::hash::RandomState::new().build_hasher().finish();
    Jitter::random(((u128::from(bits()) << 64) | u128::from(bits())).to_le_bytes())
}
