//! Why a call has no result, and why there is no link.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;
use std::io;

use crate::retry::Verdict;
use crate::rpc::{RpcError, code};

/// Why a call has no result. What came from the peer is told apart from what was decided here (rule M7).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The cap of calls in flight is reached; nothing was sent.
    #[error("there are {limit} calls in flight already: wait for one to end, or raise the limit")]
    Full {
        /// The cap.
        limit: usize,
    },
    /// The requests in flight are too big together; nothing was sent.
    #[error("the requests in flight hold {limit} bytes at most together: wait for one to end, or raise the limit")]
    FullBytes {
        /// The limit, in bytes.
        limit: usize,
    },
    /// It repeats a call that failed, and the client's retries are used up; nothing was sent.
    #[error("the retries of this client are used up: wait until the budget has refilled")]
    NoBudget,
    /// The request is too long; nothing was sent.
    #[error("the request has {size} bytes and {limit} are allowed: send less, or raise the limit on both sides")]
    RequestTooLong {
        /// Its size, in bytes.
        size: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The parameters cannot be sent; nothing was.
    #[error("the parameters cannot be sent: {0}")]
    Params(Box<str>),
    /// The client was closed, or its link is gone for good; nothing was sent.
    #[error("the client is closed: {0}")]
    Closed(Arc<LinkLoss>),
    /// The server answered with an error.
    #[error("the server answered with an error: {0}")]
    Peer(RpcError),
    /// The request was refused by something else than a message of the protocol: an HTTP status, a header that cannot be
    /// written. It did not run.
    #[error("the request was refused: {0}")]
    Refused(Box<str>),
    /// The server's answer, a result or an error, was longer than is accepted, and was skipped. The request may have run.
    #[error("the server's answer is longer than the limit of this client and was skipped; the request may have run")]
    AnswerTooLong,
    /// The server's answer does not have the form that the method promises. The request ran.
    #[error("the server's answer cannot be used: {0}")]
    Answer(Box<str>),
    /// The server asked for input that the application did not give. Nothing of the call is left on the server.
    #[error("the server asks for the input {0:?}, and the application gave none")]
    NoInput(Box<str>),
    /// The caller gave it up.
    #[error("the call was cancelled")]
    Cancelled {
        /// What the contract says about sending it again.
        verdict: Verdict,
    },
    /// No progress for the idle limit. The server was told to stop.
    #[error("no answer and no progress for {limit:?}; if it was sent, the server was told to stop")]
    IdleTimeout {
        /// The limit.
        limit: Duration,
        /// What the contract says about sending it again.
        verdict: Verdict,
    },
    /// The maximum ran out. The server was told to stop.
    #[error("no answer within {limit:?}; if it was sent, the server was told to stop")]
    MaxTimeout {
        /// The limit.
        limit: Duration,
        /// What the contract says about sending it again.
        verdict: Verdict,
    },
    /// No byte of it left: it did not run.
    #[error("the request was never sent: {loss}")]
    NeverSent {
        /// What happened to the link.
        loss: Arc<LinkLoss>,
        /// What the contract says about sending it again.
        verdict: Verdict,
    },
    /// It may have run: the link was lost after it was sent. It is not sent again unless its contract allows that.
    #[error("the outcome is unknown, the request may have run: {loss}")]
    Unknown {
        /// What happened to the link.
        loss: Arc<LinkLoss>,
        /// What the contract says about sending it again.
        verdict: Verdict,
    },
}

impl CallError {
    /// What the contract says about sending the call again; `None` where the server has answered or the caller erred.
    #[must_use]
    pub const fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Cancelled { verdict }
            | Self::IdleTimeout { verdict, .. }
            | Self::MaxTimeout { verdict, .. }
            | Self::NeverSent { verdict, .. }
            | Self::Unknown { verdict, .. } => Some(*verdict),
            Self::Full { .. } | Self::FullBytes { .. } | Self::NoBudget | Self::Closed(_) => Some(Verdict::Retry),
            Self::RequestTooLong { .. }
            | Self::Params(_)
            | Self::Peer(_)
            | Self::Refused(_)
            | Self::AnswerTooLong
            | Self::NoInput(_)
            | Self::Answer(_) => None,
        }
    }

    /// What happened to the link, if that is the reason.
    #[must_use]
    pub fn loss(&self) -> Option<&LinkLoss> {
        match self {
            Self::Closed(loss) | Self::NeverSent { loss, .. } | Self::Unknown { loss, .. } => Some(loss),
            Self::Full { .. }
            | Self::FullBytes { .. }
            | Self::NoBudget
            | Self::RequestTooLong { .. }
            | Self::Params(_)
            | Self::Peer(_)
            | Self::Refused(_)
            | Self::AnswerTooLong
            | Self::Answer(_)
            | Self::NoInput(_)
            | Self::Cancelled { .. }
            | Self::IdleTimeout { .. }
            | Self::MaxTimeout { .. } => None,
        }
    }
}

/// Why a link is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a transport fills in all of it")]
pub struct LinkLoss {
    /// What happened, in words.
    pub what: String,
    /// The end of what the server's process wrote to its standard error; empty where there is no process.
    pub stderr: String,
    /// Which link it was: 1 is the first.
    pub generation: u64,
}

impl fmt::Display for LinkLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.stderr.is_empty() { Ok(()) } else { write!(f, "; its standard error ended with:\n{}", self.stderr) }
    }
}

/// How a link ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkEnd {
    /// The server closed it.
    #[error("the server closed its output")]
    Closed,
    /// It failed.
    #[error("the link to the server failed: {0}")]
    Failed(#[from] io::Error),
    /// The server took no byte for the write-stall limit.
    #[error("the server has not read for {0:?}")]
    Stalled(Duration),
    /// The server did not answer `server/discover` in time.
    #[error("the server did not answer server/discover within {0:?}")]
    NoAnswer(Duration),
    /// The server refused `server/discover`.
    #[error("the server does not speak this revision of the protocol: {0}")]
    Refused(RpcError),
    /// The server's answer to `server/discover` names no revision that is spoken here, or cannot be read.
    #[error("the server's answer to server/discover cannot be used: {0}")]
    Incompatible(Box<str>),
}

/// Whether an error of this code can pass by itself: the one rule for listens, for reads and for followed tasks.
pub(super) const fn passes(code: i64) -> bool {
    matches!(code, code::OVERLOADED | code::DEADLINE | code::INTERNAL_ERROR)
}
