//! The envelope: what kind of message a text is, with its parameters borrowed.

use alloc::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::code;
use crate::id::RequestId;

/// Longest string id that is accepted, in bytes. A longer one is a bad message.
pub const MAX_ID_BYTES: usize = 256;

/// One message of a peer.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "JSON-RPC has exactly these kinds")]
pub enum Message<'a> {
    /// A request: it has an id and wants an answer.
    Request {
        /// Its id.
        id: RequestId,
        /// Its method.
        method: Cow<'a, str>,
        /// Its parameters, as they came.
        params: Option<&'a RawValue>,
    },
    /// A notification: it has no id and wants none.
    Notification {
        /// Its method.
        method: Cow<'a, str>,
        /// Its parameters, as they came.
        params: Option<&'a RawValue>,
    },
    /// An answer.
    Response {
        /// The id it answers; none if the peer could not read ours (rule M6).
        id: Option<RequestId>,
        /// A result, or an error.
        body: Body<'a>,
    },
}

/// The payload of an answer, as it came.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_enums, reason = "JSON-RPC has exactly these two")]
pub enum Body<'a> {
    /// A result.
    Result(&'a RawValue),
    /// An error object.
    Error(&'a RawValue),
}

/// A text that is no message of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum BadMessage {
    /// Not JSON, or cut off.
    #[error("the text is not JSON")]
    NotJson,
    /// JSON, and not a single JSON-RPC 2.0 object.
    #[error("batches are not part of this protocol: send one message at a time")]
    Batch,
    /// An object whose members do not make a message, or make two.
    #[error("not a JSON-RPC 2.0 message")]
    Envelope,
    /// An id that is null, fractional, out of the 64-bit range, too long, or neither a string nor an integer (rule M2).
    #[error("a request id must be a string of at most {MAX_ID_BYTES} bytes or a 64-bit integer")]
    Id,
    /// A text that looks like an answer and cannot be read. It is never answered: two peers would echo errors for ever.
    #[error("an answer that cannot be read")]
    Answer,
}

impl BadMessage {
    /// The code of the id-less error that says so to the peer; none where no answer must be given (rule S2).
    #[must_use]
    pub const fn code(self) -> Option<i64> {
        match self {
            Self::NotJson => Some(code::PARSE_ERROR),
            Self::Batch | Self::Envelope | Self::Id => Some(code::INVALID_REQUEST),
            Self::Answer => None,
        }
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Keeps a member that is null apart from one that is absent.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads one message. Members of the envelope that this protocol does not know are passed over; a known one that stands
/// twice makes the message bad.
///
/// # Errors
/// [`BadMessage`] says what to answer, if anything.
pub fn parse(text: &str) -> Result<Message<'_>, BadMessage> {
    let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| unreadable(text, &error))?;
    let Envelope { jsonrpc, id, method, params, result, error } = envelope;
    if jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
        return Err(if result.is_some() || error.is_some() { BadMessage::Answer } else { BadMessage::Envelope });
    }
    match (method.map(|method| method.0), result, error) {
        (Some(method), None, None) => match id {
            None => Ok(Message::Notification { method, params }),
            Some(id) => Ok(Message::Request { id: request_id(id.get()).ok_or(BadMessage::Id)?, method, params }),
        },
        (None, Some(result), None) => {
            let id = id.and_then(|id| request_id(id.get())).ok_or(BadMessage::Answer)?;
            Ok(Message::Response { id: Some(id), body: Body::Result(result) })
        }
        (None, None, Some(error)) => {
            let id = match id.filter(|id| id.get() != "null") {
                None => None,
                Some(id) => Some(request_id(id.get()).ok_or(BadMessage::Answer)?),
            };
            Ok(Message::Response { id, body: Body::Error(error) })
        }
        (None, None, None) => Err(BadMessage::Envelope),
        (_, Some(_), _) | (_, _, Some(_)) => Err(BadMessage::Answer),
    }
}

/// Reads an id from its JSON text. The range is that of `i64`.
pub(super) fn request_id(text: &str) -> Option<RequestId> {
    if text.starts_with('"') {
        let id: Cow<'_, str> = serde_json::from_str::<Text<'_>>(text).ok()?.0;
        return (id.len() <= MAX_ID_BYTES).then(|| RequestId::String(id.as_ref().into()));
    }
    let integer = text.strip_prefix('-').unwrap_or(text);
    let whole = !integer.is_empty() && integer.bytes().all(|byte| byte.is_ascii_digit());
    whole.then(|| text.parse().ok().map(RequestId::Integer)).flatten()
}

/// A JSON string, borrowed where it has no escapes.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

fn unreadable(text: &str, error: &serde_json::Error) -> BadMessage {
    let start = text.trim_start_matches([' ', '\t', '\r', '\n']);
    // What looks like an answer, or like a line of a log, is not answered; what set out to be a request is.
    let answer = text.contains("\"result\"") || text.contains("\"error\"");
    match (answer, start.as_bytes().first(), error.is_data()) {
        (false, Some(b'['), true) => BadMessage::Batch,
        (false, Some(b'{'), true) => BadMessage::Envelope,
        (false, Some(b'{' | b'['), false) => BadMessage::NotJson,
        _ => BadMessage::Answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_of_messages() {
        let request = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"x":[1]},"extra":{}}"#;
        let Ok(Message::Request { id, method, params }) = parse(request) else { panic!("a request") };
        assert_eq!((id, method.as_ref()), (RequestId::from("a"), "tools/call"));
        assert_eq!(params.map(RawValue::get), Some(r#"{"x":[1]}"#));
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","method":"m","params":"x"}"#),
            Ok(Message::Notification { params: Some(_), .. })
        ));
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","error":{"code":1,"message":""}}"#),
            Ok(Message::Response { id: None, body: Body::Error(_) })
        ));
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","id":3,"result":null}"#),
            Ok(Message::Response { id: Some(RequestId::Integer(3)), body: Body::Result(_) })
        ));
    }

    #[test]
    fn bad_texts_are_named() {
        let cases = [
            ("", BadMessage::Answer),
            ("starting server on 8080", BadMessage::Answer),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m""#, BadMessage::NotJson),
            (r#"{"jsonrpc":"2.0","id":1,"result":{"#, BadMessage::Answer),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, BadMessage::Batch),
            (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, BadMessage::Envelope),
            (r#"{"id":1,"method":"m"}"#, BadMessage::Envelope),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#, BadMessage::Envelope),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","method":"n"}"#, BadMessage::Envelope),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, BadMessage::Envelope),
            (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, BadMessage::Id),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, BadMessage::Id),
            (r#"{"jsonrpc":"2.0","id":9223372036854775808,"method":"m"}"#, BadMessage::Id),
            (r#"{"jsonrpc":"2.0","id":[],"method":"m"}"#, BadMessage::Id),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","result":1}"#, BadMessage::Answer),
            (r#"{"jsonrpc":"2.0","id":1}"#, BadMessage::Envelope),
            (r#"{"jsonrpc":"2.0","result":1}"#, BadMessage::Answer),
            (r#"{"error":{"code":-32700,"message":"no jsonrpc"}}"#, BadMessage::Answer),
            (r#"{"id":1,"result":{}}"#, BadMessage::Answer),
            (r#"{"jsonrpc":"2.0","id":1,"id":1,"result":{}}"#, BadMessage::Answer),
            (r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#, BadMessage::Answer),
            ("2026-07-28 10:00 INFO start", BadMessage::Answer),
            ("42", BadMessage::Answer),
            (r#""log""#, BadMessage::Answer),
            ("[", BadMessage::NotJson),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).map(|_| ()), Err(expected), "{text}");
        }
        let long = alloc::format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#, "x".repeat(MAX_ID_BYTES + 1));
        assert_eq!(parse(&long).map(|_| ()), Err(BadMessage::Id));
    }

    #[test]
    fn deep_nesting_is_read_without_recursion() {
        let depth = 1_000_000;
        let text = alloc::format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{}{}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        );
        assert!(matches!(parse(&text), Ok(Message::Request { .. }) | Err(BadMessage::NotJson)));
    }
}
