//! The envelope: what kind of message a text is, with its parameters borrowed.

use alloc::borrow::Cow;

use serde_json::value::RawValue;

use super::code;
use super::meta::Params;
use super::scan::{Fault, Found, MAX_NESTING, Scanner, raw, text};
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
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
    /// A request or a notification whose arrays and objects nest deeper than the limit.
    #[error("the message is nested too deep: {MAX_NESTING} levels are read at most")]
    TooDeep {
        /// The request's id, where it stands before the level that is too deep.
        id: Option<RequestId>,
    },
    /// A text that looks like an answer and cannot be read. It is never answered: two peers would echo errors for ever.
    #[error("an answer that cannot be read")]
    Answer,
}

impl BadMessage {
    /// The code of the id-less error that says so to the peer; none where no answer must be given (rule S2).
    #[must_use]
    pub const fn code(&self) -> Option<i64> {
        match self {
            Self::NotJson => Some(code::PARSE_ERROR),
            Self::Batch | Self::Envelope | Self::Id | Self::TooDeep { .. } => Some(code::INVALID_REQUEST),
            Self::Answer => None,
        }
    }

    /// The id under which the error may go, where it could be read and names no request in flight (rules M6 and C10).
    #[must_use]
    pub const fn id(&self) -> Option<&RequestId> {
        match self {
            Self::TooDeep { id } => id.as_ref(),
            Self::NotJson | Self::Batch | Self::Envelope | Self::Id | Self::Answer => None,
        }
    }
}

const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// Reads one message. Members of the envelope that this protocol does not know are passed over; a known one that stands
/// twice makes the message bad. One pass, no recursion, and no memory but for an id that is a string.
///
/// # Errors
/// [`BadMessage`] says what to answer, if anything. How long a message may be is the transport's affair.
pub fn parse(text: &str) -> Result<Message<'_>, BadMessage> {
    parse_within(text, MAX_NESTING)
}

/// The same with another limit for the nesting, at most [`MAX_NESTING`]; the message itself is the first level.
///
/// # Errors
/// As [`parse`].
pub fn parse_within(text: &str, nesting: usize) -> Result<Message<'_>, BadMessage> {
    read(text, nesting, &mut Params::default())
}

/// Like [`parse`], and says in the same pass what the library reads of the parameters.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_params(text: &str) -> Result<(Message<'_>, Params<'_>), BadMessage> {
    let mut params = Params::default();
    read(text, MAX_NESTING, &mut params).map(|message| (message, params))
}

fn read<'a>(text: &'a str, nesting: usize, params: &mut Params<'a>) -> Result<Message<'a>, BadMessage> {
    let mut found = Found::NONE;
    let mut reading = 0;
    let mut scanner = Scanner::new(text, nesting);
    let passed = match scanner.peek() {
        Some(b'{') => scanner.object(|name, scanner| {
            reading = name.among(&MEMBERS);
            let value = if MEMBERS.get(reading) == Some(&"params") && scanner.peek() == Some(b'{') {
                scanner.lend(|scanner| params.pass(scanner))?
            } else {
                scanner.value()?
            };
            found.put(reading, value);
            Ok(())
        }),
        Some(_) | None => scanner.value().map(drop),
    };
    let start = text.trim_start_matches(BLANKS).bytes().next();
    match (passed.and_then(|()| scanner.end()), start) {
        (Ok(()) | Err(Fault::TooDeep), Some(b'[')) if looks_like_an_answer(text) => Err(BadMessage::Answer),
        (Ok(()) | Err(Fault::TooDeep), Some(b'[')) => Err(BadMessage::Batch),
        (Ok(()), Some(b'{')) => message(found),
        // JSON, and a line of a log: a number, a string.
        (Ok(()), _) => Err(BadMessage::Answer),
        (Err(Fault::TooDeep), _) => Err(too_deep(text, &found, MEMBERS.get(reading).copied())),
        (Err(Fault::Syntax), _) => Err(unreadable(text)),
    }
}

/// Makes a message of the members of an object.
fn message<'a>(found: Found<'a, 6>) -> Result<Message<'a>, BadMessage> {
    let [jsonrpc, id, method, params, result, error] = found.values;
    let method = method.filter(|method| *method != "null");
    // Some peers write every member. A null beside the real one is as good as none.
    let besides = |real: bool, other: Option<&'a str>| other.filter(|other| !real || *other != "null");
    let result = besides(method.is_some(), result);
    let error = besides(method.is_some() || result.is_some(), error);
    // An unreadable answer is told apart first: it is never answered.
    let answer = result.is_some() || error.is_some();
    if found.twice || jsonrpc != Some("\"2.0\"") || (answer && method.is_some()) {
        return Err(if answer { BadMessage::Answer } else { BadMessage::Envelope });
    }
    match (method, result, error) {
        (Some(method), _, _) => {
            let method = text(method).ok_or(BadMessage::Envelope)?;
            let params = params.and_then(raw);
            match id {
                None => Ok(Message::Notification { method, params }),
                Some(id) => Ok(Message::Request { id: request_id(id).ok_or(BadMessage::Id)?, method, params }),
            }
        }
        (None, Some(result), None) => {
            let id = id.and_then(request_id).ok_or(BadMessage::Answer)?;
            Ok(Message::Response { id: Some(id), body: Body::Result(raw(result).ok_or(BadMessage::Answer)?) })
        }
        (None, None, Some(error)) => {
            let id = match id.filter(|id| *id != "null") {
                None => None,
                Some(id) => Some(request_id(id).ok_or(BadMessage::Answer)?),
            };
            Ok(Message::Response { id, body: Body::Error(raw(error).ok_or(BadMessage::Answer)?) })
        }
        (None, None, None) => Err(BadMessage::Envelope),
        (None, Some(_), Some(_)) => Err(BadMessage::Answer),
    }
}

/// Reads an id from its JSON text. The range is that of `i64`.
pub(crate) fn request_id(json: &str) -> Option<RequestId> {
    if json.starts_with('"') {
        // A byte is at most six in its longest spelling: what is longer is refused unread.
        if json.len() > 2 + 6 * MAX_ID_BYTES {
            return None;
        }
        let id = text(json)?;
        return (id.len() <= MAX_ID_BYTES).then(|| RequestId::String(id.as_ref().into()));
    }
    // What JSON and the parser both take is an integer without a fraction, an exponent, or a plus.
    json.parse().ok().map(RequestId::Integer)
}

/// The message is refused at the bracket that goes too deep: what stands before it decides whether it is answered.
fn too_deep(text: &str, found: &Found<'_, 6>, reading: Option<&str>) -> BadMessage {
    let [_, id, method, _, result, error] = found.values;
    let answer = result.is_some() || error.is_some() || matches!(reading, Some("result" | "error"));
    if answer || (method.is_none() && reading != Some("params") && looks_like_an_answer(text)) {
        return BadMessage::Answer;
    }
    BadMessage::TooDeep { id: id.filter(|_| !found.twice).and_then(request_id) }
}

fn unreadable(text: &str) -> BadMessage {
    // A cut-off answer, or a line of a log, is not answered; something that set out to be a request is.
    let message = text.trim_start_matches(BLANKS).starts_with(['{', '[']);
    if message && !looks_like_an_answer(text) { BadMessage::NotJson } else { BadMessage::Answer }
}

fn looks_like_an_answer(text: &str) -> bool {
    text.contains("\"result\"") || text.contains("\"error\"")
}

const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

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
        for nulls in [
            r#"{"jsonrpc":"2.0","id":3,"method":"m","result":null,"error":null}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":null,"result":1,"error":null}"#,
        ] {
            assert!(parse(nulls).is_ok(), "a null beside the real member is as good as none: {nulls}");
        }
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
            (r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{}}"#, BadMessage::Answer),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).map(|_| ()), Err(expected), "{text}");
        }
        let with_id = |id: &str| alloc::format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"m"}}"#);
        for (unit, fits) in [("x", true), ("\\u0078", true), ("x", false), ("\\u0078", false)] {
            let text = with_id(&unit.repeat(MAX_ID_BYTES + usize::from(!fits)));
            assert_eq!(parse(&text).is_ok(), fits, "{unit}");
        }
    }

    #[test]
    fn deep_nesting_is_read_without_recursion() {
        let depth = 1_000_000;
        let text = alloc::format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{}{}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        );
        assert_eq!(parse(&text).map(|_| ()), Err(BadMessage::TooDeep { id: Some(1.into()) }));
    }
}
