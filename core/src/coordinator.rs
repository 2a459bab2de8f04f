//! All requests of one connection, or the one request of an HTTP exchange, on the server's side.
//!
//! It decides admission, the ids and progress tokens in use, what a cancellation names, and which request's clock runs out
//! next. Each request itself is a [`ServedRequest`] that lives in a [`Seat`]: directly in the coordinator, as a value that
//! can be searched, or behind a lock that a handler shares, as the kernel does it. The decisions are the same code.
//!
//! Methods are of four kinds: `start`, `cancel`, `release`, `close`, `end_listen` and `handler_ended` tell it what happened;
//! [`RequestCoordinator::poll`] says what to do, and its last answer carries the next deadline, so that no deadline can be
//! read before the work is drained; getters look; nothing else changes it.
//!
//! | event | answer |
//! |---|---|
//! | request with the id of one in flight | [`Refusal::DuplicateId`]: not executed, no error under that id (rule C10) |
//! | request over the cap | [`Refusal::Full`] |
//! | listen over the cap of listens | [`Refusal::TooManyListens`] |
//! | cancellation of an unknown id, an id of the other JSON type, a finished request | ignored and counted (rule C4) |
//! | cancellation of a request in flight | silence; id, token, permit and place are free at once (rules C3, C10) |
//! | any request after `close` | [`Refusal::Closed`] |
//!
//! Invariants: `COORD-1` no more than the cap is in flight, and no more listens than theirs; `COORD-2` an id names at most one request; `COORD-3` a cancelled
//! request frees everything at once; `COORD-4` after [`Polled::Idle`] no deadline at or before `now` remains; `COORD-5` only
//! an open listen can be ended by the server (rule C5).

mod seat;
mod served;
mod table;
mod timers;

use core::time::Duration;

pub use seat::{Ended, Seat};
pub use served::{Effect, Event, ServedRequest};
pub use table::{Cancelled, ListenEnd, NotAListen, Polled, Refusal, RequestCoordinator, Start};

use crate::deadline::Limits;
use crate::progress::SERVER_INTERVAL;
use crate::request::Terminal;

/// Limits of a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct Config {
    /// Requests in flight at once; each more is refused. Default 1024.
    pub in_flight: usize,
    /// Handlers that still run although their request was cancelled or timed out; at this number new requests are refused
    /// until one ends. Default 4096.
    pub stragglers: usize,
    /// Open listens, which are among the requests in flight; each more is refused. Default 128.
    pub listens: usize,
    /// The server's own clocks for each request. Default: no idle clock, one hour at most.
    pub limits: Limits,
    /// Shortest time between two progress notifications of one request. Default [`SERVER_INTERVAL`].
    pub progress_interval: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            in_flight: 1024,
            stragglers: 4096,
            listens: 128,
            limits: Limits { idle: None, maximum: Some(Duration::from_secs(3600)) },
            progress_interval: SERVER_INTERVAL,
        }
    }
}

/// What was counted on one connection. Numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Counters {
    /// Requests that were admitted.
    pub started: u64,
    /// Requests refused because of their id or token.
    pub duplicates: u64,
    /// Requests refused at the cap.
    pub refused: u64,
    /// Requests refused because the server is shutting down.
    pub refused_closing: u64,
    /// Requests that were answered, and whose answer has left.
    pub completed: u64,
    /// Requests that a cancellation ended, or on HTTP a disconnect (rule C1).
    pub cancelled: u64,
    /// Requests whose client was gone.
    pub lost: u64,
    /// Requests that had no progress for too long.
    pub idle_timeouts: u64,
    /// Requests that took too long in all.
    pub max_timeouts: u64,
    /// Cancellations of a request that had ended, its answer not yet sent.
    pub cancelled_late: u64,
    /// Cancellations of an id that names nothing in flight: unknown, finished and sent, or of the other JSON type.
    pub cancelled_unknown: u64,
}

impl Counters {
    /// Requests that a clock ended.
    #[must_use]
    pub const fn timed_out(&self) -> u64 {
        self.idle_timeouts + self.max_timeouts
    }

    fn count(&mut self, terminal: Terminal) {
        *match terminal {
            Terminal::Completed => &mut self.completed,
            Terminal::Cancelled => &mut self.cancelled,
            Terminal::IdleTimeout => &mut self.idle_timeouts,
            Terminal::MaxTimeout => &mut self.max_timeouts,
            Terminal::Lost => &mut self.lost,
        } += 1;
    }
}
