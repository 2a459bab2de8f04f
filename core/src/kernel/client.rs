//! The client's side of the kernel: handles that start calls on any thread, and one loop that carries them over a link.
//!
//! ```text
//!   Caller::call ──► machine (core::client) ──Send, Signal──► Outbox ──batch──► Link
//!   Pending      ◄── CallSlot ◄──Progress, Finished── machine ◄──Incoming── Driver ◄── Link
//! ```
//!
//! The machine stands behind one lock, each call's slot behind its own. Lock order: machine, then slot. Whoever feeds the
//! machine hands its local outputs to the slots under the same lock, so a caller is settled where its end is decided: a
//! cancellation in the thread that gives up, a timeout in the loop, whatever the link does meanwhile.
//!
//! What is for the link stays in the machine until the link takes it. A call that ends before that leaves no trace on the
//! wire; one that is out has one place there for its cancellation, since only what was out needs one. That bounds what
//! waits behind a stuck link by the cap of calls in flight.
//!
//! [`Driver`] outlives its links: the transport attaches one, hears of its loss, and attaches the next. Wire ids are never
//! used twice, so nothing of an older link can be taken for an answer.

mod caller;
mod changes;
mod driver;
mod error;
mod following;
mod incoming;
mod interactive;
mod listener;
mod lists;
mod outbox;
mod pending;
mod request;
mod shared;
mod slot;
mod stats;
mod task;
mod tools;
mod trace;

use alloc::boxed::Box;
use alloc::string::String;
use core::time::Duration;

pub use caller::Caller;
pub use changes::{Change, Changes, Fresh, Item};
pub use driver::{Driver, Turn};
pub use error::{CallError, LinkEnd, LinkLoss};
pub use interactive::{InputAsked, MAX_ROUNDS};
pub use listener::{ListenEvent, Listener, Notice};
pub use pending::{Canceller, Pending};
pub use request::Request;
pub use slot::Report;
pub use stats::{ClientStats, Traffic};
pub use task::{Called, TaskError, TaskHandle, TaskOptions, TaskView};
pub use tools::{Discovered, Raw, ToolInfo, ToolResult};

pub use super::engine::Eras;
pub use super::propagation::{Propagator, TraceContext};

use crate::client;
use crate::deadline::Limits;
use crate::transport::Transport;

/// Settings of a client.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..ClientConfig::new(..)")]
pub struct ClientConfig {
    /// The machine: cap of calls in flight, pauses and budget of retries, rate of progress.
    pub calls: client::Config,
    /// The clocks of a call that does not state its own. Default 30 s without progress, 5 minutes in all.
    pub limits: Limits,
    /// Longest request that is sent, in bytes; a longer one is refused before. Default 16 MiB.
    pub max_request: usize,
    /// Bytes of all requests in flight together; a call beyond is refused. Default 256 MiB.
    pub max_in_flight_bytes: usize,
    /// Progress values kept for a caller that does not read them; the newest stay. Default 16.
    pub progress_buffer: usize,
    /// How long a new link has for its answer to `server/discover`, before calls go out on it. `None`: it is not asked.
    /// Default 10 s.
    pub probe: Option<Duration>,
    /// Which revisions are spoken. Default both eras: a server that does not answer `server/discover` as a modern one is
    /// spoken to in 2025-11-25, 2025-06-18 or 2025-03-26, after a handshake. Without a probe there is only the modern one.
    pub eras: Eras,
    /// How long a link may take no byte while some wait, before it counts as lost. Default 5 minutes.
    pub write_stall: Duration,
    /// Messages handled in one turn before timers and writes get theirs. Default 64.
    pub turn_budget: usize,
    /// Name and version that every request carries (rule M3).
    pub info: (Box<str>, Box<str>),
    /// The capabilities that every request carries, a JSON object (rule M3). Default `{}`.
    pub capabilities: String,
    /// Where the trace context of a call comes from, which travels in its `_meta`. A caller's own `traceparent` there goes
    /// before. Default: none.
    pub trace: Option<Propagator>,
}

impl ClientConfig {
    /// The defaults for this transport.
    #[must_use]
    pub fn new(transport: Transport) -> Self {
        Self {
            calls: client::Config::new(transport),
            limits: client::CallOptions::default().limits,
            max_request: 16 << 20,
            max_in_flight_bytes: 256 << 20,
            progress_buffer: 16,
            probe: Some(Duration::from_secs(10)),
            eras: Eras::default(),
            write_stall: Duration::from_secs(300),
            turn_budget: 64,
            info: ("mcp-steady".into(), env!("CARGO_PKG_VERSION").into()),
            capabilities: "{}".into(),
            trace: None,
        }
    }
}
