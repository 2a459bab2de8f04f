//! Messages as text, appended to a buffer that the caller reuses. Nothing here fails and nothing allocates but the buffer.
//!
//! A message is one line without a line break inside; how messages are told apart on the wire is the transport's affair.

use alloc::string::String;
use alloc::vec::Vec;

use super::{RpcError, scan};
use crate::id::{ProgressToken, RequestId};

const HEX: &[u8; 16] = b"0123456789abcdef";
/// Integers up to here are exact in a float and print the same without a fraction.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Appends `text` as a JSON string.
pub fn string(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    out.reserve(rest.len());
    out.push(b'"');
    loop {
        let (copied, tail) = rest.split_at(scan::plain(rest));
        out.extend_from_slice(copied);
        let Some((byte, tail)) = tail.split_first() else { break };
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            _ => {
                let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&digits);
            }
        }
        rest = tail;
    }
    out.push(b'"');
}

/// Appends a finite number, without a fraction where it has none. Anything else becomes `null`.
pub fn number(out: &mut Vec<u8>, value: f64) {
    if !value.is_finite() {
        out.extend_from_slice(b"null");
        return;
    }
    #[expect(clippy::cast_possible_truncation, reason = "compared with the float again, and bounded by EXACT")]
    let integer = value as i64;
    #[expect(clippy::cast_precision_loss, reason = "exact below EXACT")]
    let whole = integer as f64;
    if whole == value && (-EXACT..=EXACT).contains(&value) {
        out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
    } else {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    }
}

/// Appends an id.
pub fn id(out: &mut Vec<u8>, id: &RequestId) {
    match id {
        RequestId::Integer(id) => out.extend_from_slice(itoa::Buffer::new().format(*id).as_bytes()),
        RequestId::String(id) => string(out, id),
    }
}

/// Appends a response with `result`, which is JSON text.
pub fn result(out: &mut Vec<u8>, request: &RequestId, result: &str) {
    // With room for the names and an integer.
    out.reserve(result.len() + 64);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    id(out, request);
    out.extend_from_slice(b",\"result\":");
    raw(out, result);
    out.push(b'}');
}

/// Appends the result with which the server ends a listen: empty, with the subscription's id (rules L2 and L4).
pub fn listen_end(out: &mut Vec<u8>, request: &RequestId) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    id(out, request);
    out.extend_from_slice(
        b",\"result\":{\"resultType\":\"complete\",\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":",
    );
    id(out, request);
    out.extend_from_slice(b"}}}");
}

/// The code, if this message, written by [`error`], is an error; `None` for every other that is written here.
#[must_use]
pub fn error_code(message: &[u8]) -> Option<i64> {
    let rest = message.strip_prefix(b"{\"jsonrpc\":\"2.0\"")?;
    let rest = match rest.strip_prefix(b",\"id\":") {
        None => rest,
        Some(id) => &id[id_length(id)..],
    };
    let code = rest.strip_prefix(b",\"error\":{\"code\":")?;
    let digits = code.iter().take_while(|byte| matches!(byte, b'-' | b'0'..=b'9')).count();
    core::str::from_utf8(&code[..digits]).ok()?.parse().ok()
}

/// How long the JSON text of the id is that `bytes` starts with.
fn id_length(bytes: &[u8]) -> usize {
    let mut escaped = false;
    let end = |byte: &u8| match byte {
        _ if core::mem::take(&mut escaped) => false,
        b'\\' => {
            escaped = true;
            false
        }
        byte => *byte == b'"',
    };
    match bytes.strip_prefix(b"\"") {
        Some(inner) => inner.iter().position(end).map_or(bytes.len(), |at| at + 2),
        None => bytes.iter().position(|byte| *byte == b',').unwrap_or(bytes.len()),
    }
}

/// Appends an error response; without an id where the request's could not be read (rule M6).
pub fn error(out: &mut Vec<u8>, request: Option<&RequestId>, error: &RpcError) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    if let Some(request) = request {
        out.extend_from_slice(b",\"id\":");
        id(out, request);
    }
    out.extend_from_slice(b",\"error\":{\"code\":");
    out.extend_from_slice(itoa::Buffer::new().format(error.code).as_bytes());
    out.extend_from_slice(b",\"message\":");
    string(out, &error.message);
    if let Some(data) = &error.data {
        out.extend_from_slice(b",\"data\":");
        raw(out, data);
    }
    out.extend_from_slice(b"}}");
}

/// Appends a request; `params` is JSON text.
pub fn request(out: &mut Vec<u8>, request: &RequestId, method: &str, params: &str) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    id(out, request);
    method_and_params(out, method, params);
}

/// Appends a notification; `params` is JSON text.
pub fn notification(out: &mut Vec<u8>, method: &str, params: &str) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    method_and_params(out, method, params);
}

fn method_and_params(out: &mut Vec<u8>, method: &str, params: &str) {
    out.extend_from_slice(b",\"method\":");
    string(out, method);
    out.extend_from_slice(b",\"params\":");
    raw(out, params);
    out.push(b'}');
}

/// Appends the notification that cancels `request` (rule C2).
pub fn cancelled(out: &mut Vec<u8>, request: &RequestId, reason: Option<&str>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":");
    id(out, request);
    if let Some(reason) = reason {
        out.extend_from_slice(b",\"reason\":");
        string(out, reason);
    }
    out.extend_from_slice(b"}}");
}

/// Replaces `out` by the text of a progress notification up to its value: the part that one request's notifications share.
pub fn progress_prefix(out: &mut String, token: &ProgressToken) {
    let mut bytes = core::mem::take(out).into_bytes();
    bytes.clear();
    progress_head(&mut bytes, token);
    *out = String::from_utf8(bytes).unwrap_or_default();
}

fn progress_head(out: &mut Vec<u8>, token: &ProgressToken) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":");
    id(out, &token.0);
    out.extend_from_slice(b",\"progress\":");
}

/// Appends a progress notification: its prefix and the rest. An empty message is left out.
pub fn progress(out: &mut Vec<u8>, prefix: &str, value: f64, total: Option<f64>, message: &str) {
    out.extend_from_slice(prefix.as_bytes());
    progress_tail(out, value, total, message);
}

/// A progress notification whose prefix is not at hand.
#[cfg(feature = "std")]
pub(crate) fn whole_progress(token: &ProgressToken, value: f64, total: Option<f64>, message: &str) -> Vec<u8> {
    // Its fixed text, two numbers and a token of usual length: written without growing.
    let mut out = Vec::with_capacity(192 + message.len());
    progress_head(&mut out, token);
    progress_tail(&mut out, value, total, message);
    out
}

fn progress_tail(out: &mut Vec<u8>, value: f64, total: Option<f64>, message: &str) {
    number(out, value);
    if let Some(total) = total {
        out.extend_from_slice(b",\"total\":");
        number(out, total);
    }
    if !message.is_empty() {
        out.extend_from_slice(b",\"message\":");
        string(out, message);
    }
    out.extend_from_slice(b"}}");
}

/// Appends JSON text with line breaks, which can only stand between its tokens, turned into spaces.
pub(crate) fn raw(out: &mut Vec<u8>, json: &str) {
    let start = out.len();
    out.extend_from_slice(json.as_bytes());
    if memchr::memchr2(b'\n', b'\r', json.as_bytes()).is_some() {
        for byte in &mut out[start..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn strings_are_read_back_as_they_were() {
        let hostile: String = (0u8..=127).map(char::from).chain("é\u{2028}😀".chars()).collect();
        let json = text(|out| string(out, &hostile));
        assert!(!json.contains('\n'));
        assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), hostile);
    }

    #[test]
    fn numbers_are_read_back_as_they_were() {
        for value in [0.0, -1.0, 100.0, 0.1, 1.5e300, -2.5e-300, EXACT, EXACT * 4.0, f64::MAX, f64::MIN_POSITIVE] {
            let json = text(|out| number(out, value));
            assert_eq!(serde_json::from_str::<f64>(&json).expect("JSON").to_bits(), value.to_bits(), "{json}");
        }
        assert_eq!(text(|out| number(out, 100.0)), "100");
    }

    #[test]
    fn messages_are_one_line() {
        let id = RequestId::from("a\"b");
        assert_eq!(
            text(|out| result(out, &id, "{\n\"a\":\r1}")),
            r#"{"jsonrpc":"2.0","id":"a\"b","result":{ "a": 1}}"#
        );
        let bad = RpcError::new(-31001, "no").with_data("[1]").with_data("[1]");
        assert_eq!(
            text(|out| error(out, None, &bad)),
            r#"{"jsonrpc":"2.0","error":{"code":-31001,"message":"no","data":[1]}}"#
        );
        assert_eq!(RpcError::new(1, "x").with_data("{").data, None);
        assert_eq!(
            text(|out| cancelled(out, &7.into(), Some("enough"))),
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"enough"}}"#
        );
    }

    #[test]
    fn the_code_of_an_error_is_found_again() {
        for id in [RequestId::from("a\\\"b,"), RequestId::from(""), (-7).into()] {
            let bad = RpcError::new(-32601, "\"error\":{\"code\":1");
            let mut message = Vec::new();
            error(&mut message, Some(&id), &bad);
            assert_eq!(error_code(&message), Some(-32601), "{id:?}");
            message.clear();
            result(&mut message, &id, r#"{"error":{"code":-32601}}"#);
            assert_eq!(error_code(&message), None, "{id:?}");
        }
        let mut message = Vec::new();
        error(&mut message, None, &RpcError::new(-32700, ""));
        assert_eq!(error_code(&message), Some(-32700));
        for cut in 0..message.len() {
            let _no_panic = error_code(&message[..cut]);
        }
    }

    #[test]
    fn progress_has_the_parts_it_was_given() {
        let mut prefix = String::new();
        progress_prefix(&mut prefix, &ProgressToken("t".into()));
        let json = text(|out| progress(out, &prefix, 1.5, Some(3.0), "half"));
        assert_eq!(
            json,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1.5,"total":3,"message":"half"}}"#
        );
    }
}
