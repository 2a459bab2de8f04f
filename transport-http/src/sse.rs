//! Server-sent events: an encoder into a reused buffer and an incremental parser (rules H6, H7, T1).
//!
//! MCP uses a small part of the format. One event carries one JSON-RPC message in its `data:` lines; comment lines keep
//! a quiet stream alive and are never data. Streams are not resumable, so `id:` and `retry:` are never written, and
//! counted and ignored when read.
//!
//! Invariants:
//! - `SSE-1` the way a stream is cut into chunks changes no item and no count;
//! - `SSE-2` what the encoder writes, the parser gives back: the same text, with line ends as LF;
//! - `SSE-3` a comment is never data and never ends or starts an event;
//! - `SSE-4` an event that is too long or is not UTF-8 costs that event only, and the parser's memory stays bounded.
//!
//! ```
//! use steady_http::sse::{self, Item, Parser};
//!
//! let mut buffer = Vec::new();
//! sse::write_keep_alive(&mut buffer);
//! sse::write_event(&mut buffer, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
//!
//! let mut parser = Parser::new(1 << 20);
//! let mut chunk = buffer.as_slice();
//! while let Some(item) = parser.next(&mut chunk) {
//!     assert_eq!(item, Item::Event(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
//! }
//! assert_eq!((parser.counts().events, parser.counts().comments), (1, 1));
//! ```

mod parse;

pub use parse::{Counts, Item, Parser, Rejected};

/// The headers of every SSE response (rule H6).
pub const RESPONSE_HEADERS: [(&str, &str); 3] =
    [("content-type", "text/event-stream"), ("cache-control", "no-cache"), ("x-accel-buffering", "no")];

/// What stands before a message of one line, to make an event of it.
pub const EVENT_START: &[u8] = b"data: ";
/// What stands after it.
pub const EVENT_END: &[u8] = b"\n\n";

/// Appends one event with `payload` as its data.
///
/// A line end in the payload (LF, CR or CRLF) starts a further `data:` line, which the reader joins with LF. For JSON
/// this changes white space only: a line end inside a JSON string is always escaped. Writes no `event:`, no `id:` and no
/// `retry:` (rule H7). Grows `out` at most once where the payload has no line ends.
pub fn write_event(out: &mut Vec<u8>, payload: &str) {
    let mut rest = payload.as_bytes();
    out.reserve(EVENT_START.len() + rest.len() + EVENT_END.len());
    loop {
        out.extend_from_slice(EVENT_START);
        let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
            out.extend_from_slice(rest);
            out.extend_from_slice(EVENT_END);
            return;
        };
        let (line, tail) = rest.split_at(end);
        out.extend_from_slice(line);
        out.push(b'\n');
        rest = tail.strip_prefix(b"\r\n").unwrap_or_else(|| tail.get(1..).unwrap_or_default());
    }
}

/// Appends a comment line. It is liveness of the link (T1) and nothing else: not progress (T3), not data.
///
/// # Errors
/// [`LineBreak`] if `text` holds CR or LF; `out` is unchanged.
pub fn write_comment(out: &mut Vec<u8>, text: &str) -> Result<(), LineBreak> {
    if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_some() {
        return Err(LineBreak);
    }
    out.extend_from_slice(b": ");
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
    Ok(())
}

/// Appends the shortest comment and a blank line, for a stream that has been quiet (rule H6). Three bytes. Between
/// events only: the blank line ends an event that has begun.
pub fn write_keep_alive(out: &mut Vec<u8>) {
    // With its blank line, so that intermediaries that flush at event boundaries pass it on.
    out.extend_from_slice(b":\n\n");
}

/// A comment text with a line end, which would turn the rest of it into something else. Caller misuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an SSE comment must not hold a line end")]
pub struct LineBreak;
