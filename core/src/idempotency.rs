//! Decides whether a call that carries a business key runs, replays or is refused.
//!
//! Three questions, all answered without a clock, a hash or a database:
//!
//! 1. Which key does the call carry? [`find_key`], over the places where a client may put it.
//! 2. Are two calls the same call? [`canonical_arguments`] gives equal bytes for equal arguments, and only for those.
//! 3. What follows from what is stored? [`decide`], over a [`Record`] and the fingerprint of the call in hand.
//!
//! A store keeps one record for each ([`Scope`], [`Key`]). The record moves only along these arrows:
//!
//! ```text
//! (absent) ──► Committed ──► Expired      a local effect: one transaction, no visible middle
//!     │  └───► Rejected  ──► Expired
//!     └──────► Started ──► Committed | Rejected | InDoubt       an effect outside of the store
//!                                         InDoubt ──► Committed | Rejected   (by a person or a lookup, never by time)
//! ```
//!
//! Only the owner of a `Started` key can take it back to absent, by its word that nothing was sent. No arrow leads from
//! `InDoubt` to a second execution: sending again is left to a system that does the same request once.

mod canonical;
mod key;
mod number;
#[cfg(test)]
mod tests;
mod text;
mod verdict;

pub use canonical::{CanonicalError, MAX_DEPTH, Problem, canonical_arguments};
pub use key::{HEADER_NAME, Key, KeyError, KeySources, META_NAME, PARAM_NAME, Source, find_key};
pub use verdict::{Record, State, Verdict, decide};

use alloc::boxed::Box;

/// Whose call of what: the space in which a [`Key`] is unique.
///
/// `principal` is the *authenticated* caller; on stdio, where nobody authenticates, it is configured. It never comes
/// from the arguments: a `tenant` argument is an argument, so it enters the fingerprint and nothing else. `operation` is
/// the tool's name, free of any protocol version.
///
/// Two scopes share nothing: the same key under another principal is another call, and cannot be probed from here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// The authenticated (on stdio: configured) caller.
    pub principal: Box<str>,
    /// The operation, by its tool name.
    pub operation: Box<str>,
}

impl Scope {
    /// The scope of `operation` for `principal`.
    #[must_use]
    pub fn new(principal: impl Into<Box<str>>, operation: impl Into<Box<str>>) -> Self {
        Self { principal: principal.into(), operation: operation.into() }
    }
}
