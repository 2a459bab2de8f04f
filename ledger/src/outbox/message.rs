//! Decides what an effect can put into the outbox, and how much of it.

use std::fmt;

use steady_core::time::WallTime;
use thiserror::Error;

/// How many messages one effect may leave.
pub(crate) const MAX_MESSAGES: usize = 32;
/// The largest payload, in bytes.
pub(crate) const MAX_PAYLOAD: usize = 64 * 1024;
/// The longest name of a target and the longest ordering key, in bytes.
const MAX_NAME: usize = 255;

/// Something for another system to hear about an effect, once it is committed.
///
/// Its payload is kept in the file until it is delivered or skipped: put a reference into it rather than what is secret.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The name of the system: 255 bytes at most.
    pub target: Box<str>,
    /// Messages to a target with the same ordering key leave one after another. Default: none, it leaves on its own.
    pub ordering_key: Option<Box<str>>,
    /// What it says: 64 KiB at most.
    pub payload: Vec<u8>,
    /// From when on it is no longer sent. Default: never.
    pub deadline: Option<WallTime>,
}

impl Message {
    /// A message that waits for no other, for as long as it takes.
    #[must_use]
    pub fn new(target: impl Into<Box<str>>, payload: impl Into<Vec<u8>>) -> Self {
        Self { target: target.into(), ordering_key: None, payload: payload.into(), deadline: None }
    }

    /// The same message, after those with the same ordering key: 255 bytes at most.
    #[must_use]
    pub fn ordering_key(self, ordering_key: impl Into<Box<str>>) -> Self {
        Self { ordering_key: Some(ordering_key.into()), ..self }
    }

    /// The same message, not sent from then on.
    #[must_use]
    pub fn deadline(self, deadline: WallTime) -> Self {
        Self { deadline: Some(deadline), ..self }
    }
}

/// Shows no payload.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("target", &self.target)
            .field("ordering_key", &self.ordering_key)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// The effect does not run under an idempotency key of its own, so nothing could be told apart upstream. A checkpoint
    /// of a task does not either, as all of them share the key of the task.
    #[error(
        "only an effect with an idempotency key of its own can leave messages: run this one by execute, with a key"
    )]
    NoKey,
    /// A part of the message is too large.
    #[error("the {part} of a message is larger than {limit} bytes: make it shorter, or send a reference")]
    TooLarge {
        /// The part.
        part: &'static str,
        /// How many bytes it may have.
        limit: usize,
    },
    /// The effect has left as many messages as it may.
    #[error("an effect can leave {limit} messages: put more into each")]
    TooMany {
        /// How many it may leave.
        limit: usize,
    },
}

/// A message as it is stored.
pub(crate) struct Outgoing {
    pub(crate) target: Box<str>,
    pub(crate) ordering_key: Option<Box<str>>,
    pub(crate) payload: Vec<u8>,
    pub(crate) deadline: Option<i64>,
}

/// Adds a message to those of an effect. Returns its place.
pub(crate) fn enqueue(outgoing: Option<&mut Vec<Outgoing>>, message: Message) -> Result<u32, EnqueueError> {
    let outgoing = outgoing.ok_or(EnqueueError::NoKey)?;
    let Message { target, ordering_key, payload, deadline } = message;
    let sizes = [
        ("target", target.len(), MAX_NAME),
        ("ordering key", ordering_key.as_deref().map_or(0, str::len), MAX_NAME),
        ("payload", payload.len(), MAX_PAYLOAD),
    ];
    for (part, size, limit) in sizes {
        if size > limit {
            return Err(EnqueueError::TooLarge { part, limit });
        }
    }
    match u32::try_from(outgoing.len()) {
        Ok(ordinal) if outgoing.len() < MAX_MESSAGES => {
            let deadline = deadline.map(WallTime::unix_millis);
            outgoing.push(Outgoing { target, ordering_key, payload, deadline });
            Ok(ordinal)
        }
        Ok(_) | Err(_) => Err(EnqueueError::TooMany { limit: MAX_MESSAGES }),
    }
}
