//! A client's calls: their attempts, their one deadline, the cancel signal of the transport, and answers that come too late.
//!
//! ```text
//!   call ──► Send (wire 1) ──► answer ─────────────────────────────► Finished(Answered)
//!              │  ▲   ├─ cancel, drop ─► Signal ──────────────────► Finished(Cancelled)
//!              │  │   ├─ a clock ran out ─► Signal ────────────────► Finished(IdleTimeout | MaxTimeout)
//!              │  │   └─ link or stream lost ─┬─ may not be sent again ► Finished(Unknown | NeverSent)
//!              │  └── Send (a fresh wire id) ◄─ pause ◄──────────────┘ contract, attempts, budget and time allow it
//! ```
//!
//! The caller is settled at once and locally; nothing waits for the peer or for the link (rule C4). What the signal is on
//! the wire is the transport's nature, and the machine knows only its kind: on stdio a `notifications/cancelled` message,
//! on HTTP the end of the request's stream and no message at all (rules C1 and C2).
//!
//! | event | answer |
//! |---|---|
//! | an answer to an attempt that was given up | ignored, counted as late (rule C4) |
//! | an answer to an id that was never used | ignored, counted as unknown |
//! | `notifications/cancelled` from the server for a call | ignored, counted: the call lives (rule C9) |
//! | an answer and a clock that was not handled yet | the answer |
//! | progress at or after the maximum | does not save the call (rule T5) |
//! | link lost, the call may have been sent | sent again only as [`Contract`] allows, else outcome unknown |
//!
//! Subscriptions live beside the calls and share link, wire ids and output: [`Client::listen`].
//!
//! Methods are of four kinds: [`Client::call`] and [`Client::cancel`] are what the application wants;
//! [`Client::handle_input`] and [`Client::handle_timeout`] are what the world did; [`Client::poll_output`] says what to do,
//! and its last answer carries the next deadline; getters look.
//!
//! Invariants: `CALL-1` one outcome a call; `CALL-2` every attempt has a wire id of its own (rule H7); `CALL-3` one deadline
//! over all attempts and pauses; `CALL-4` an unsafe call that may have been sent is never sent again; `CALL-5` a cancel
//! signal goes out for a call that is given up while an attempt of it may run, once, and for nothing else.

mod io;
mod listens;
mod table;

use core::time::Duration;

pub use io::{Input, Output};
pub use listens::{MAX_SUBSCRIPTIONS, TooManySubscriptions};
pub use table::{CallError, Client};

use crate::backoff::Backoff;
use crate::deadline::Limits;
use crate::progress::CLIENT_INTERVAL;
use crate::retry::{BudgetConfig, Contract, Verdict};
pub use crate::transport::{CancelSignal, Transport};

/// Settings of a client.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Client defaults")]
pub struct Config {
    /// The transport.
    pub transport: Transport,
    /// Calls in flight at once; each more is refused. Default 1024.
    pub in_flight: usize,
    /// Shortest time between two progress values handed to the application. Default [`CLIENT_INTERVAL`].
    pub progress_interval: Duration,
    /// Pauses between attempts.
    pub backoff: Backoff,
    /// Retries that all calls share.
    pub budget: BudgetConfig,
}

impl Config {
    /// The defaults for this transport.
    #[must_use]
    pub fn new(transport: Transport) -> Self {
        Self {
            transport,
            in_flight: 1024,
            progress_interval: CLIENT_INTERVAL,
            backoff: Backoff::default(),
            budget: BudgetConfig::default(),
        }
    }
}

/// What a caller states about one call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct CallOptions {
    /// The clocks, over all attempts and pauses. Default 30 s idle, 5 minutes at most.
    pub limits: Limits,
    /// What repeating the operation can do. Default: unsafe.
    pub contract: Contract,
    /// Attempts at most, the first included. Default 3.
    pub attempts: u16,
    /// Whether it repeats an earlier call that failed: then it earns no retry but asks for one. Default: no.
    pub repeats: bool,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            limits: Limits { idle: Some(Duration::from_secs(30)), maximum: Some(Duration::from_secs(300)) },
            contract: Contract::default(),
            attempts: 3,
            repeats: false,
        }
    }
}

/// How a call ended. `R` is the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "every way a call can end; callers must decide each")]
pub enum Outcome<R> {
    /// The server answered, with a result or an error.
    Answered(R),
    /// The application gave it up.
    Cancelled,
    /// No progress for the idle limit.
    IdleTimeout,
    /// The maximum ran out.
    MaxTimeout,
    /// No byte of it left: it did not run.
    NeverSent,
    /// It may have run: the link was lost after it was sent.
    Unknown,
}

/// The end of a call, and what the caller may do next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finished<R> {
    /// How it ended.
    pub outcome: Outcome<R>,
    /// What the contract says about sending it again; nothing to say after an answer.
    pub verdict: Option<Verdict>,
}

/// What a client counted. Numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Answers to attempts that were given up.
    pub late_answers: u64,
    /// Answers and progress for ids that are not in use.
    pub unknown_ids: u64,
    /// Progress that did not increase.
    pub refused_progress: u64,
    /// `notifications/cancelled` of the server for a call.
    pub stray_cancellations: u64,
    /// Attempts after the first.
    pub retries: u64,
}
