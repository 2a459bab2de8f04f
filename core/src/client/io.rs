//! What goes into a client machine, and what it says to do.

use alloc::boxed::Box;

use super::{CancelSignal, Finished};
use crate::id::{Attempt, CallId, SubscriptionId, WireId};
use crate::progress::Progress;
use crate::subscription::{self, RecoveryPlan, Refetch};
use crate::time::Instant;

/// What the world did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a shell feeds these; the machine matches each")]
pub enum Input<R> {
    /// An answer under this id.
    Response {
        /// The id it answers.
        wire: WireId,
        /// The answer.
        answer: R,
    },
    /// Progress under this token, which is the attempt's id.
    Progress {
        /// The token.
        wire: WireId,
        /// The value.
        value: Progress,
    },
    /// The server sent `notifications/cancelled` for this id.
    Cancelled {
        /// The id.
        wire: WireId,
    },
    /// The link proved that no byte of this attempt left.
    NotSent {
        /// The attempt.
        wire: WireId,
    },
    /// The stream of this attempt ended without an answer (HTTP).
    StreamLost {
        /// The attempt.
        wire: WireId,
    },
    /// The server acknowledged the listen request with this id (rule L1).
    Acknowledged {
        /// The id.
        wire: WireId,
    },
    /// A notification stamped with the id of a listen request (rule L2).
    Notice {
        /// The id.
        wire: WireId,
        /// The notification.
        notice: R,
        /// What is to be read for it, if the shell could tell.
        about: Option<Refetch>,
    },
    /// The server answered a listen request: with its final result, or with an error that asking again would not cure.
    ListenEnded {
        /// The id.
        wire: WireId,
        /// Whether it was an error.
        refused: bool,
    },
    /// Anything came over the link: a sign of life of every stream on it (rule T1). Cheap, and needed only where a
    /// subscription has a [`liveness`](subscription::Config::liveness).
    Heard,
    /// The link is gone, and every attempt on it.
    LinkLost,
    /// The link is there again.
    LinkUp,
}

impl<R> Input<R> {
    /// The attempt that a server names in it.
    pub(super) const fn of_server(&self) -> Option<WireId> {
        match self {
            Self::Response { wire, .. }
            | Self::Progress { wire, .. }
            | Self::StreamLost { wire }
            | Self::Acknowledged { wire }
            | Self::Notice { wire, .. }
            | Self::ListenEnded { wire, .. } => Some(*wire),
            // A cancellation is counted whatever it names.
            Self::Cancelled { .. } | Self::NotSent { .. } | Self::Heard | Self::LinkLost | Self::LinkUp => None,
        }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "the last answer is Idle; callers loop until then")]
pub enum Output<P, R> {
    /// Send the request under this id, which is also its progress token.
    Send {
        /// The call.
        call: CallId,
        /// The id of this attempt.
        wire: WireId,
        /// Which attempt it is.
        attempt: Attempt,
        /// What to send: the same bytes for every attempt.
        payload: P,
    },
    /// Tell the server in the transport's way that this attempt is given up.
    Signal {
        /// The attempt.
        wire: WireId,
        /// The way.
        signal: CancelSignal,
    },
    /// Hand this progress to the application. Values increase within an attempt; a new one starts afresh.
    Progress {
        /// The call.
        call: CallId,
        /// The value.
        value: Progress,
    },
    /// The call is over.
    Finished {
        /// The call.
        call: CallId,
        /// How, and what may be done next.
        finished: Finished<R>,
    },
    /// Send a listen request: a new id, the same filter as ever, no `Last-Event-ID` (rule L5).
    Listen {
        /// The subscription.
        subscription: SubscriptionId,
        /// What to send.
        plan: RecoveryPlan,
    },
    /// A stream has begun, or something may have been missed: refetch these, then say so with [`Client::refetched`](super::Client::refetched). Nothing of the subscription
    /// is delivered before.
    Gap {
        /// The subscription.
        subscription: SubscriptionId,
        /// What to read, each from its authoritative method: all of the plan, or what changed while that was read.
        refetch: Box<[Refetch]>,
    },
    /// Hand this notification to the application.
    Notice {
        /// The subscription.
        subscription: SubscriptionId,
        /// The notification.
        notice: R,
    },
    /// The subscription is over.
    Unsubscribed {
        /// The subscription.
        subscription: SubscriptionId,
        /// Why.
        end: subscription::End,
    },
    /// Nothing more at this time; call `handle_timeout` at `wake_at`, or come back after the next event.
    Idle {
        /// The next deadline, if there is one.
        wake_at: Option<Instant>,
    },
}

impl<P, R> Output<P, R> {
    /// Whether it is to be written to the link.
    #[must_use]
    pub const fn is_for_link(&self) -> bool {
        match self {
            Self::Send { .. } | Self::Signal { .. } | Self::Listen { .. } => true,
            Self::Progress { .. }
            | Self::Finished { .. }
            | Self::Gap { .. }
            | Self::Notice { .. }
            | Self::Unsubscribed { .. }
            | Self::Idle { .. } => false,
        }
    }
}
