//! One session, on the server's side: what it lets through, and when.
//!
//! ```text
//!                initialize              initialized
//!   ┌─ Fresh ───────────────► Opening ───────────────► Open ◄─┐ initialize: begins again
//!   │ ping                      │ requests               │────┘
//!   │ only                      ▼                        ▼
//!   └────────────────────────► Closed ◄──────────────────┘   (sticky)
//! ```
//!
//! | event | Fresh | Opening | Open | Closed |
//! |---|---|---|---|---|
//! | `initialize` | begin | begin anew | begin anew | refuse |
//! | `ping` | answer | answer | answer | refuse |
//! | a request of the revision | refuse | serve | serve | refuse |
//! | a request of the modern revision only | refuse | refuse | refuse | refuse |
//! | `notifications/initialized` | ignore | release notifications | ignore | ignore |
//! | a batch | refuse | as the revision says | as the revision says | refuse |
//! | a change to announce | keep back | keep back | announce | drop |
//!
//! A client need not wait for `notifications/initialized` before its first request, nor for the answer to `initialize`:
//! what it sends after that is served. A second `initialize` begins the session anew, since programs that share one server
//! send one each; what runs goes on.
//!
//! Invariants: `LEG-1` no request reaches a handler before a handshake or after the end; `LEG-2` no change is announced
//! before `notifications/initialized`; `LEG-3` a batch is read under 2025-03-26 alone; `LEG-4` a closed session stays
//! closed.

use super::{Revision, method};
use crate::rpc;

/// What a request is to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a session decides each")]
pub enum Asked {
    /// The handshake.
    Initialize,
    /// `ping`.
    Ping,
    /// `logging/setLevel`.
    Level,
    /// `resources/subscribe`.
    Subscribe,
    /// `resources/unsubscribe`.
    Unsubscribe,
    /// A method that only the modern revision has.
    Modern,
    /// A method that both have: a handler's.
    Shared,
}

impl Asked {
    /// What a request for this method is.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            rpc::method::INITIALIZE => Self::Initialize,
            method::PING => Self::Ping,
            method::SET_LEVEL => Self::Level,
            method::SUBSCRIBE => Self::Subscribe,
            method::UNSUBSCRIBE => Self::Unsubscribe,
            rpc::method::DISCOVER | rpc::method::LISTEN => Self::Modern,
            // The tasks of 2025-11-25 were an experiment with other methods under the same names; they are not offered.
            task if task.starts_with("tasks/") => Self::Modern,
            _ => Self::Shared,
        }
    }
}

/// What happened to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "an event of a leaf machine is matched without a rest arm")]
pub enum Event {
    /// `initialize`, which agreed on this revision.
    Initialize(Revision),
    /// `notifications/initialized`.
    Initialized,
    /// Another request.
    Request(Asked),
    /// Several messages in one array.
    Batch,
    /// Something changed that the client may want to know.
    Change,
    /// It was ended, by either side.
    Close,
}

/// What a session answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "an effect of a leaf machine is matched without a rest arm")]
pub enum Effect {
    /// Nothing to do.
    Nothing,
    /// Answer the handshake with this revision. What an earlier one left, its log level and its subscriptions, is void.
    Begin(Revision),
    /// The client is ready: changes that were kept back may go.
    Ready,
    /// Serve the request.
    Serve,
    /// Read the messages of the batch one by one.
    Unpack,
    /// Tell the client of the change.
    Announce,
    /// Keep the change until the client is ready.
    KeepBack,
    /// Answer with this error.
    Refuse(Refusal),
}

/// Why a session refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No handshake yet.
    #[error("send initialize first, or the metadata of revision 2026-07-28 with each request")]
    NotInitialized,
    /// Ended.
    #[error("this session has ended: start a new one with initialize")]
    Ended,
    /// Of the modern revision only.
    #[error("this method is not part of the revision that this session agreed on")]
    NotInRevision,
    /// Only 2025-03-26 has batches.
    #[error("only revision 2025-03-26 has batches: send one message at a time")]
    NoBatches,
}

/// A session. See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Session {
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum Phase {
    #[default]
    Fresh,
    Opening(Revision),
    Open(Revision),
    Closed,
}

impl Session {
    /// A session before its handshake.
    #[must_use]
    pub const fn new() -> Self {
        Self { phase: Phase::Fresh }
    }

    /// The one transition.
    pub fn handle(&mut self, event: Event) -> Effect {
        match (event, self.phase) {
            (Event::Close, _) => {
                self.phase = Phase::Closed;
                Effect::Nothing
            }
            (Event::Initialize(_) | Event::Request(_) | Event::Batch, Phase::Closed) => Effect::Refuse(Refusal::Ended),
            (Event::Initialize(revision), Phase::Fresh | Phase::Opening(_) | Phase::Open(_)) => {
                self.phase = Phase::Opening(revision);
                Effect::Begin(revision)
            }
            (Event::Initialized, Phase::Opening(revision)) => {
                self.phase = Phase::Open(revision);
                Effect::Ready
            }
            (Event::Initialized, Phase::Fresh | Phase::Open(_) | Phase::Closed) | (Event::Change, Phase::Closed) => {
                Effect::Nothing
            }
            (Event::Request(Asked::Ping), Phase::Fresh | Phase::Opening(_) | Phase::Open(_)) => Effect::Serve,
            (Event::Request(_) | Event::Batch, Phase::Fresh) => Effect::Refuse(Refusal::NotInitialized),
            (Event::Request(asked), Phase::Opening(_) | Phase::Open(_)) => request(asked),
            (Event::Batch, Phase::Opening(revision) | Phase::Open(revision)) => {
                if revision.has_batches() {
                    Effect::Unpack
                } else {
                    Effect::Refuse(Refusal::NoBatches)
                }
            }
            (Event::Change, Phase::Fresh | Phase::Opening(_)) => Effect::KeepBack,
            (Event::Change, Phase::Open(_)) => Effect::Announce,
        }
    }

    /// What was agreed on, while it holds.
    #[must_use]
    pub const fn revision(&self) -> Option<Revision> {
        match self.phase {
            Phase::Opening(revision) | Phase::Open(revision) => Some(revision),
            Phase::Fresh | Phase::Closed => None,
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }
}

const fn request(asked: Asked) -> Effect {
    match asked {
        Asked::Ping | Asked::Level | Asked::Subscribe | Asked::Unsubscribe | Asked::Shared => Effect::Serve,
        // The handshake has an event of its own: this one came where there is none, as in a batch.
        Asked::Initialize | Asked::Modern => Effect::Refuse(Refusal::NotInRevision),
    }
}
