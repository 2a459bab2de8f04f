//! Identifiers, each its own type: what a peer chose ([`RequestId`], [`ProgressToken`]) and what we count ourselves.

use alloc::boxed::Box;
use core::fmt;

/// The id of a JSON-RPC request: a string or an integer, never null (rule M2).
///
/// The two kinds never compare equal: `1` and `"1"` are different ids, and a cancellation with the other JSON type names
/// an unknown request (rule C4).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "JSON-RPC has exactly these two kinds")]
pub enum RequestId {
    /// An integer id.
    Integer(i64),
    /// A string id.
    String(Box<str>),
}

impl From<i64> for RequestId {
    fn from(id: i64) -> Self {
        Self::Integer(id)
    }
}

impl From<&str> for RequestId {
    fn from(id: &str) -> Self {
        Self::String(id.into())
    }
}

/// As it reads in a log: `7` or `"seven"`.
impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(id) => write!(f, "{id}"),
            Self::String(id) => write!(f, "{id:?}"),
        }
    }
}

/// The token under which a request asks for progress: a string or an integer, unique among active requests (rule P1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgressToken(pub RequestId);

impl fmt::Display for ProgressToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! counted {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The identifier with this number.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// Its number.
            #[must_use]
            pub const fn number(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "-{}"), self.0)
            }
        }
    };
}

counted!(
    /// One logical call of a client, over all its attempts.
    CallId, "call"
);
counted!(
    /// The JSON-RPC id of one attempt. A re-issue is a new request with a new one (rule H7), never a reused one.
    WireId, "wire"
);
counted!(
    /// A client process, as far as jitter is concerned: equal ids back off in step, different ids spread.
    ClientId, "client"
);
counted!(
    /// A subscription of a client, over all the listen requests that carry it.
    SubscriptionId, "subscription"
);

/// Which attempt of a call: 1 is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(u16);

impl Attempt {
    /// The first attempt.
    pub const FIRST: Self = Self(1);

    /// The attempt after this one, saturating.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Its number, counted from 1.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn ids_of_the_two_json_types_differ() {
        assert_ne!(RequestId::from(1), RequestId::from("1"));
        assert_eq!(RequestId::from("a\"b").to_string(), "\"a\\\"b\"");
        assert_eq!(CallId::new(7).to_string(), "call-7");
    }
}
