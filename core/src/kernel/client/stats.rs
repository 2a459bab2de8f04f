//! What a client counted.

use alloc::boxed::Box;

use crate::client::Counters;

/// A snapshot of a client's counters. Numbers only grow, but for the two that say how it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// What the machine counted: late answers, unknown ids, refused progress, stray cancellations, retries.
    pub calls: Counters,
    /// Calls in flight now.
    pub in_flight: usize,
    /// Which link is or was the last: 1 is the first.
    pub generation: u64,
    /// Calls that were started.
    pub started: u64,
    /// Calls that were refused before anything was sent: cap, size, parameters, closed client.
    pub refused: u64,
    /// Calls that ended with a result.
    pub answered: u64,
    /// Calls that the server answered with an error.
    pub peer_errors: u64,
    /// Calls whose answer was too long to read.
    pub too_long: u64,
    /// Calls that were cancelled here. No failures.
    pub cancelled: u64,
    /// Calls that ran into their idle limit.
    pub idle_timeouts: u64,
    /// Calls that ran into their maximum.
    pub max_timeouts: u64,
    /// Calls that ended without having been sent.
    pub never_sent: u64,
    /// Calls whose outcome is unknown.
    pub unknown: u64,
    /// Progress values that made room for newer ones, unread.
    pub progress_dropped: u64,
    /// Messages that the link took whole, the question to each new server among them, and bytes that it took.
    pub sent: Traffic,
    /// Messages and bytes that were read, without framing.
    pub received: Traffic,
    /// Lines that were no message of a server, the server's requests among them (rule M1).
    pub bad_messages: u64,
    /// The start of the last of them.
    pub last_bad: Option<Box<str>>,
}

/// How much went one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Messages.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
}
