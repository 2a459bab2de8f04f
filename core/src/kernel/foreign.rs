//! What a server receives that is no request of the modern revision.

use alloc::borrow::Cow;

use serde_json::value::RawValue;

use crate::id::RequestId;
use crate::rpc::{BadMessage, Body, Message, MetaError};

/// A message that the engine does not decide about.
#[derive(Debug)]
pub(super) enum Foreign<'a> {
    /// A request without the metadata of the modern revision, or with some of another one.
    Request {
        id: RequestId,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
        /// What the modern revision says to it.
        error: MetaError,
    },
    /// A notification that is no cancellation.
    Notification { method: Cow<'a, str> },
    /// An answer: servers of the modern revision ask nothing (rule M1).
    Response { id: Option<RequestId>, body: Body<'a> },
    /// No message, or several in one text.
    Bad(BadMessage),
}

impl<'a> Foreign<'a> {
    /// A message whose metadata was not looked at.
    pub(super) fn of(message: Message<'a>) -> Option<Self> {
        Some(match message {
            Message::Request { id, method, params } => {
                Self::Request { id, method, params, error: MetaError::Invalid("params._meta is not looked at") }
            }
            Message::Notification { method, .. } => Self::Notification { method },
            Message::Response { id, body } => Self::Response { id, body },
        })
    }
}
