//! Several messages in one text, which revision 2025-03-26 alone has.
//!
//! All of them are read before any acts: a batch with a message that is none, or with a handshake, is refused whole.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::rpc::{BadMessage, Message, RpcError, code, method, parse};

/// Messages of one batch at most. What is beyond them is not read.
pub const MAX_BATCH: usize = 100;

/// Why a batch is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// No array, none of one to [`MAX_BATCH`] messages, or not JSON.
    #[error("a batch is a JSON array of one to {MAX_BATCH} messages")]
    Array,
    /// A handshake among them.
    #[error("initialize must not be part of a batch")]
    Initialize,
    /// One of them is no message.
    #[error("message {at} of the batch, counted from 0: {bad}")]
    Bad {
        /// Which.
        at: usize,
        /// What is wrong with it.
        bad: BadMessage,
        /// Whether there is a request among the others: then its sender waits, and must be told.
        asked: bool,
    },
}

impl BatchError {
    /// What the peer is told.
    #[must_use]
    pub fn error(&self) -> RpcError {
        RpcError::new(code::INVALID_REQUEST, self.to_string())
    }
}

/// Reads the messages of a batch, each with its text.
///
/// # Errors
/// [`BatchError`]: then none of them may act.
pub fn read(text: &str) -> Result<Vec<(&str, Message<'_>)>, BatchError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let texts = reader.deserialize_seq(Texts).map_err(|_| BatchError::Array)?;
    reader.end().map_err(|_| BatchError::Array)?;
    let parsed: Vec<_> = texts.iter().map(|text| parse(text.get())).collect();
    let asked = parsed.iter().any(|message| matches!(message, Ok(Message::Request { .. })));
    let mut messages = Vec::with_capacity(texts.len());
    for (at, (text, message)) in texts.into_iter().zip(parsed).enumerate() {
        let message = message.map_err(|bad| BatchError::Bad { at, bad, asked })?;
        if matches!(&message, Message::Request { method, .. } if method == method::INITIALIZE) {
            return Err(BatchError::Initialize);
        }
        messages.push((text.get(), message));
    }
    Ok(messages)
}

struct Texts;

impl<'de> Visitor<'de> for Texts {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one to {MAX_BATCH} messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = all.next_element()? {
            if texts.len() == MAX_BATCH {
                return Err(A::Error::invalid_length(MAX_BATCH + 1, &self));
            }
            texts.push(text);
        }
        if texts.is_empty() { Err(A::Error::invalid_length(0, &self)) } else { Ok(texts) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use super::*;

    const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

    fn batch(count: usize) -> String {
        format!("[{}]", alloc::vec![PING; count].join(","))
    }

    #[test]
    fn a_batch_is_one_message_to_a_hundred() {
        assert_eq!(read(&batch(MAX_BATCH)).expect("a batch").len(), MAX_BATCH);
        assert_eq!(read(&format!(" [ {PING} ] ")).expect("a batch")[0].0, PING);
        for bad in [&*batch(0), &batch(MAX_BATCH + 1), PING, "[", "", &format!("[{PING}]]")] {
            assert_eq!(read(bad).err(), Some(BatchError::Array), "{bad:.40}");
        }
    }

    #[test]
    fn one_that_is_none_and_a_handshake_refuse_all() {
        let with = |other: &str| read(&format!("[{PING},{other}]")).err();
        assert_eq!(with("7"), Some(BatchError::Bad { at: 1, bad: BadMessage::Answer, asked: true }));
        assert_eq!(read("[7]").err(), Some(BatchError::Bad { at: 0, bad: BadMessage::Answer, asked: false }));
        assert!(matches!(with("[]"), Some(BatchError::Bad { at: 1, .. })));
        let handshake = r#"{"jsonrpc":"2.0","id":2,"method":"initialize"}"#;
        assert_eq!(with(handshake), Some(BatchError::Initialize));
        assert_eq!(BatchError::Initialize.error().code, -32600);
    }
}
