//! Decides what a call must state, and in which form it is answered.

use std::fmt;

use steady_core::idempotency::{Key, Scope, State};
use steady_core::time::WallTime;

/// One keyed call, as it is compared with its retries.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Request<'a> {
    /// Who calls what.
    pub scope: &'a Scope,
    /// The business key.
    pub key: &'a Key,
    /// The arguments: the raw text of a JSON object, as it came. It is fingerprinted, never stored.
    pub arguments: &'a str,
    /// The version of the operation's meaning. A key of another version is refused. Default: 1.
    pub version: u32,
    /// Top-level arguments that do not belong to the meaning of the call, such as the one that carries the key.
    pub exclude: &'a [&'a str],
}

impl<'a> Request<'a> {
    /// A call of version 1 of its operation, in which every argument counts.
    #[must_use]
    pub const fn new(scope: &'a Scope, key: &'a Key, arguments: &'a str) -> Self {
        Self { scope, key, arguments, version: 1, exclude: &[] }
    }

    /// The same call of this version of its operation.
    #[must_use]
    pub const fn version(self, version: u32) -> Self {
        Self { version, ..self }
    }

    /// The same call, in which these top-level arguments do not count.
    #[must_use]
    pub const fn exclude(self, exclude: &'a [&'a str]) -> Self {
        Self { exclude, ..self }
    }
}

/// Shows no argument.
impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("scope", self.scope)
            .field("key", self.key)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// The durable answer to a keyed call. Both kinds are decoded from the stored bytes; a caller owns its copy.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a result is either of this run or of an earlier one")]
pub enum Executed<T> {
    /// This call ran the effect.
    Fresh(T),
    /// An earlier call did.
    Replayed(T),
}

impl<T> Executed<T> {
    /// The answer, whoever ran the effect.
    pub fn into_inner(self) -> T {
        match self {
            Self::Fresh(value) | Self::Replayed(value) => value,
        }
    }

    /// Whether an earlier call ran the effect.
    pub const fn is_replay(&self) -> bool {
        matches!(self, Self::Replayed(_))
    }
}

/// Shows no result.
impl<T> fmt::Debug for Executed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_replay() { "Replayed(..)" } else { "Fresh(..)" })
    }
}

/// The durable answer to a call without a key. **A retry would run it again**: there is nothing to recognise it by.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Unkeyed<T>(pub(crate) T);

impl<T> Unkeyed<T> {
    /// The answer.
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// Shows no result.
impl<T> fmt::Debug for Unkeyed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unkeyed(..)")
    }
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reconciled {
    /// Where its execution stands.
    pub state: State,
    /// How many times its effect was committed: 1 if it is committed, else 0 as far as this ledger knows.
    pub executions: u64,
    /// When it reached its state.
    pub recorded_at: WallTime,
    /// Until when its result is replayed.
    pub expires_at: WallTime,
}
