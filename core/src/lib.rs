//! No-IO state machines and the runtime-agnostic kernel of mcp-steady.
//!
//! Every decision of the project is here: pure machines that are values and get the time handed in, and (feature `std`, on
//! by default) the [`kernel`] that carries them for every transport. Without `std` nothing here can reach a clock, a
//! socket, a thread or a source of randomness, and `cargo check --no-default-features` shows it.
//!
//! | module | decides |
//! |---|---|
//! | [`request`], [`deadline`] | how one request ends, on either side |
//! | [`coordinator`] | all requests of a server's connection, or of one HTTP exchange |
//! | [`client`] | a client's calls, their attempts, the cancel signal by transport, late answers |
//! | [`progress`], [`outbound`] | what reaches a slow reader, and what is dropped for it |
//! | [`listener`] | what a listen stream owes its client |
//! | [`backoff`], [`retry`] | whether a call may be sent again, and when |
//! | [`subscription`], [`task`], [`follow`] | recovery of a listen stream; a durable task's status; a client that waits for it |
//! | [`idempotency`] | what makes two calls the same |
//! | [`rpc`] | messages as text, both ways |
//! | [`legacy`] | the revisions before 2026-07-28: handshake, sessions, their messages as modern ones and back |
//! | [`mrtr`] | requests over several round trips: what may be asked for, and what state comes back |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod backoff;
pub mod client;
pub mod coordinator;
pub mod deadline;
pub mod follow;
pub mod id;
pub mod idempotency;
#[cfg(feature = "std")]
pub mod kernel;
pub mod legacy;
pub mod listener;
pub mod mrtr;
pub mod outbound;
pub mod progress;
pub mod request;
pub mod retry;
pub mod rpc;
pub mod subscription;
pub mod task;
pub mod time;
pub mod transport;

/// A clock read that `cargo xtask verify` plants, to see that the build without `std` refuses it.
#[cfg(steady_planted_clock)]
#[must_use]
pub fn planted_clock() -> std::time::Instant {
    std::time::Instant::now()
}
