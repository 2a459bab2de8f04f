//! What a server's message is to a client.

use alloc::borrow::Cow;
use alloc::boxed::Box;

use serde_json::value::RawValue;

use super::listener::Notice;
use super::slot::Report;
use super::tools::Raw;
use crate::id::{RequestId, WireId};
use crate::progress::Progress;
use crate::rpc::scan::{members, text};
use crate::rpc::{self, Body, Message, RpcError, code, method};

/// An answer, or why there is none that can be read.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Result(Raw),
    Error(RpcError),
    TooLong,
    /// By something else than a message of the protocol.
    Refused(Box<str>),
    /// Of a subscription; no answer.
    Notice(Notice),
}

/// One message of a server.
#[derive(Debug)]
pub(super) enum Incoming {
    Answer {
        id: RequestId,
        answer: Answer,
    },
    Progress {
        wire: WireId,
        value: Progress,
        report: Report,
    },
    Cancelled {
        wire: WireId,
    },
    /// A subscription's first message.
    Acknowledged {
        wire: WireId,
    },
    /// A notification of a subscription.
    Notice {
        wire: WireId,
        notice: Notice,
    },
    /// A notification that the client does not decide about.
    Ignored,
    /// Nothing that a server may send, or no message at all.
    Bad,
}

/// The attempt that an id names.
pub(super) fn wire(id: &RequestId) -> Option<WireId> {
    match id {
        RequestId::Integer(id) => u64::try_from(*id).ok().map(WireId::new),
        RequestId::String(_) => None,
    }
}

/// Reads one message.
pub(super) fn read(text: &str) -> Incoming {
    match rpc::parse(text) {
        Ok(Message::Response { id: Some(id), body }) => {
            let answer = match body {
                Body::Result(result) => Answer::Result(Raw::new(result)),
                Body::Error(error) => Answer::Error(read_error(error)),
            };
            Incoming::Answer { id, answer }
        }
        Ok(Message::Notification { method, params }) => notification(&method, params),
        // An error without an id says that the server could not read us; nothing can be settled with it.
        Ok(Message::Response { id: None, .. } | Message::Request { .. }) | Err(_) => Incoming::Bad,
    }
}

fn notification(name: &str, params: Option<&RawValue>) -> Incoming {
    let params = params.map_or("{}", RawValue::get);
    match name {
        method::PROGRESS => {
            let Some(notice) = rpc::read_progress_notice(params) else { return Incoming::Bad };
            let Some(wire) = wire(&notice.token.0) else { return Incoming::Bad };
            let message =
                notice.message.map_or_else(Default::default, |message| shortened(&message, Report::MAX_MESSAGE));
            let report = Report { progress: notice.value.value(), total: notice.total, message };
            Incoming::Progress { wire, value: notice.value, report }
        }
        method::CANCELLED => {
            let named = rpc::read_cancellation(params).and_then(|cancellation| wire(&cancellation.id));
            named.map_or(Incoming::Bad, |wire| Incoming::Cancelled { wire })
        }
        _ => {
            let Some(wire) = subscription(params) else { return Incoming::Ignored };
            if name == method::ACKNOWLEDGED {
                return Incoming::Acknowledged { wire };
            }
            Incoming::Notice { wire, notice: Notice { method: name.into(), params: Raw::text(params) } }
        }
    }
}

/// The listen request whose stamp a notification carries (rule L2).
fn subscription(params: &str) -> Option<WireId> {
    let [meta] = members(params, &["_meta"])?;
    let [id] = members(meta?, &["io.modelcontextprotocol/subscriptionId"])?;
    wire(&rpc::request_id(id?)?)
}

/// Reads an error object. One without a code or a text is an error all the same.
pub(super) fn read_error(error: &RawValue) -> RpcError {
    let found = members(error.get(), &["code", "message", "data"]);
    let [number, message, data] = found.unwrap_or_default();
    let number = number.and_then(|json| json.parse().ok()).unwrap_or(code::INTERNAL_ERROR);
    let message = message.and_then(text).unwrap_or(Cow::Borrowed("the server's error has no text"));
    let error = RpcError::new(number, message.as_ref());
    match data {
        Some(data) => error.with_data(data),
        None => error,
    }
}

/// The same of JSON text.
pub(super) fn read_error_text(error: &str) -> RpcError {
    serde_json::from_str(error).map_or_else(|_| RpcError::internal("the server's error cannot be read"), read_error)
}

/// The start of a text, at most `most` bytes.
pub(super) fn shortened(text: &str, most: usize) -> Box<str> {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or_default()).unwrap_or_default().into()
}
