//! The kernel that every transport shares: it carries the machines over threads and wakers, and needs no runtime.
//!
//! ```text
//!   Link ──texts──► Connection ─┐                       ┌─► Service ──► handler (inline, spawned, or blocking)
//!                   Exchange ───┴─► engine: coordinator ┤                  │ Context: report, cancelled, checkpoint
//!   Link ◄─batch──  staging ◄── OutboundQueue ◄─────────┴── Slot ◄─────────┘
//! ```
//!
//! [`Connection`] is the loop of a multiplexed link (stdio); [`Exchange`] is one HTTP request. Both wrap the same engine.
//! [`Link`], [`Timer`] and [`Spawn`] are what a transport, or the simulator, implements. Lock order: slot, then
//! queue, then cell.
//!
//! Subscribers (feature `tracing`) and recorders (feature `metrics`) are called under these locks. They must not come back:
//! no [`Stats::snapshot`], no [`Context`], nothing of a [`client`].

mod alarm;
mod cells;
pub mod client;
mod connection;
mod context;
mod engine;
mod exchange;
mod foreign;
mod handler;
mod hub;
mod legacy;
mod mutant;
mod port;
mod propagation;
mod queue;
mod resources;
mod service;
mod shutdown;
mod signalled;
mod signals;
mod skim;
mod slot;
mod staging;
mod stats;
mod sync;
pub mod tasks;
mod tools;
mod trace;

use alloc::sync::Arc;

pub use connection::{Connection, ConnectionError};
pub use context::{Cancelled, Context};
pub use engine::{Eras, ServerConfig};
pub use exchange::{Exchange, Request};
pub use hub::{BadState, Change, Hub, HubConfig, HubCounters, Kinds, SubscribeError, Subscription, Update};
pub use legacy::{EraLink, LegacyExchange, LegacyRequest, LegacySession, LegacyStream, NotBegun, Standing};
pub use port::{BadFrame, BoxFuture, Lapse, Link, Received, Spawn, Timer, Unanswered};
pub use queue::OutboundQueue;
pub use resources::{Contents, Resource, ResourcePage, ResourceRead, Resources};
pub use service::{Answer, Call, Outcome, Service};
pub use shutdown::Shutdown;
pub use signalled::end_at_signals;
pub use skim::Skim;
pub use slot::CancelReason;
pub use stats::{ServerCounters, Stats};
pub use tools::{Reply, ToolCall, Tools};

/// The ports that a server needs beside its link.
#[derive(Clone)]
#[expect(clippy::exhaustive_structs, reason = "a transport fills in both")]
pub struct Ports {
    /// The clock.
    pub timer: Arc<dyn Timer>,
    /// Where handlers run.
    pub spawn: Arc<dyn Spawn>,
}

impl core::fmt::Debug for Ports {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Ports")
    }
}
