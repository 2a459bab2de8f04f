//! What goes into the outbound buffer, what comes out, and what it answers.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Handle, SendPermit};

/// What became of an evictable message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "every answer of the policy; the kernel decides each")]
pub enum Pushed {
    /// It waits in a place of its own.
    Queued,
    /// It replaced an older one of the same stream.
    Coalesced,
    /// It waits, and this many older evictable messages were dropped for it.
    Evicted(usize),
    /// Its stream is closed, unknown, or of the other kind: dropped.
    Closed,
}

/// A kept message that found no room, handed back whole.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the caller takes both parts back")]
pub struct Refused {
    /// The permit, still good.
    pub permit: SendPermit,
    /// The text.
    pub body: Vec<u8>,
}

/// What was dropped since it was last taken (`OUT-5`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a plain report")]
pub struct Lost {
    /// Progress values that were dropped for newer ones of other tokens.
    pub progress: u64,
    /// Topics of which a notice was dropped: their readers must refetch.
    pub topics: Vec<Handle>,
}

/// A message at the head of the buffer, lent while it is encoded.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "a transport must know how to frame each")]
pub enum Item<'a> {
    /// Progress, in parts: the text up to the value, the value, the total and the message.
    Progress {
        /// The notification's text up to and without the progress value.
        prefix: &'a str,
        /// The progress value.
        progress: f64,
        /// The total, if there is one.
        total: Option<f64>,
        /// The message; empty means none.
        message: &'a str,
    },
    /// A whole message: a response, a notification, a refusal.
    Text(&'a [u8]),
}

/// Which message left the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a plain report")]
pub struct Popped {
    /// The stream it belonged to; none for a refusal.
    pub handle: Option<Handle>,
    /// Whether it was the final response of its request: the handle is free now.
    pub last: bool,
}

/// A place in the evictable ring: one cache line. Its text buffer outlives the message in it.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Slot {
    pub(crate) handle: Handle,
    pub(crate) progress: f64,
    pub(crate) total: Option<f64>,
    pub(crate) text: String,
    pub(super) notice: bool,
    /// Whether a newer value of it may wait elsewhere, until it is settled.
    pub(super) armed: bool,
}

impl Default for Slot {
    fn default() -> Self {
        Self { handle: NO_STREAM, progress: 0.0, total: None, text: String::new(), notice: false, armed: false }
    }
}

impl Slot {
    /// Keeps the text's memory for the next message unless it is large: idle slots must not add up beyond the budget.
    #[inline]
    pub(super) fn let_go(&mut self) {
        if self.text.capacity() > RETAINED {
            self.text = String::new();
        }
    }
}

/// The handle of nothing.
pub(super) const NO_STREAM: Handle = Handle::new(u32::MAX, 0);

/// Largest text buffer an idle slot keeps, in bytes.
pub(crate) const RETAINED: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Final,
    Lossless,
    Refusal,
}

#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// The evictable position that it must follow.
    pub(super) stamp: u64,
    /// The stream it belongs to; a refusal belongs to none.
    pub(super) handle: Handle,
    pub(super) kind: Kind,
    pub(super) body: Vec<u8>,
}

/// What a push needs to know of a stream. It is small, since there may be many streams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    /// Position after the queued message that a newer one may replace. Stands for none unless it is beyond the head.
    pub(super) last: u64,
    /// Generation of the open handle; 0 when none is.
    pub(super) generation: u32,
    pub(super) takes: Takes,
}

/// Which evictable messages a stream takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Takes {
    /// It is closed, or there is none.
    #[default]
    Nothing,
    Progress,
    Notices,
}

/// The rest of what the buffer knows of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    pub(super) prefix: String,
    pub(super) lost: bool,
}
