//! Finds the id of an answer that is too long to be kept, byte by byte, in whatever pieces it comes.
//!
//! Peers write the members of a message in any order, the id also last. So all of the text is passed over, with a depth and
//! a few bytes of memory, and what stands inside of the values is not checked.

use alloc::vec::Vec;

use crate::id::RequestId;
use crate::rpc;

/// Longest text of an id that is looked at, in bytes.
const LONGEST: usize = 2 + 6 * rpc::MAX_ID_BYTES;

/// A message that is passed over.
#[derive(Clone, Debug, Default)]
pub struct Skim {
    depth: usize,
    started: bool,
    in_string: bool,
    escaped: bool,
    /// A member's name is read, or the last one that was.
    name: Vec<u8>,
    at: At,
    /// The text of the id; `None`: there was none yet.
    id: Option<Vec<u8>>,
    /// A member that makes it no answer, or an id that cannot be one.
    spoiled: bool,
    answer: bool,
}

/// What comes next in the outermost object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Name,
    Value,
    Id,
}

impl Skim {
    /// Passes over the next piece of the text.
    pub fn feed(&mut self, piece: &[u8]) {
        piece.iter().for_each(|byte| self.byte(*byte));
    }

    /// The id, if the text was an answer with one.
    #[must_use]
    pub fn id(&self) -> Option<RequestId> {
        let id = self.id.as_deref().filter(|_| self.answer && !self.spoiled && self.depth == 0)?;
        rpc::request_id(core::str::from_utf8(id).ok()?.trim())
    }

    fn byte(&mut self, byte: u8) {
        if self.in_string {
            let ends = byte == b'"' && !self.escaped;
            self.escaped = byte == b'\\' && !self.escaped;
            self.in_string = !ends;
            if self.depth == 1 {
                match self.at {
                    At::Name if !ends => keep(&mut self.name, byte, 8),
                    At::Id => self.keep_id(byte),
                    At::Name | At::Value => {}
                }
            }
            return;
        }
        if self.depth == 0 {
            // A message is one object, and nothing else but blanks.
            let opens = byte == b'{' && !self.started;
            self.started |= opens;
            self.depth = usize::from(opens);
            self.spoiled |= !opens && !byte.is_ascii_whitespace();
            return;
        }
        match byte {
            b'{' | b'[' => {
                self.spoiled |= self.at == At::Id;
                self.depth = self.depth.saturating_add(1);
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b'"' => {
                self.in_string = true;
                if self.depth == 1 {
                    match self.at {
                        At::Name => self.name.clear(),
                        At::Id => self.keep_id(byte),
                        At::Value => {}
                    }
                }
            }
            b':' if self.depth == 1 && self.at == At::Name => self.member(),
            b',' if self.depth == 1 => self.at = At::Name,
            _ if self.depth == 1 && self.at == At::Id => self.keep_id(byte),
            _ => {}
        }
    }

    /// The value of the member `name` follows.
    fn member(&mut self) {
        self.at = At::Value;
        match &*self.name {
            b"id" => {
                self.at = At::Id;
                self.spoiled |= self.id.replace(Vec::new()).is_some();
            }
            b"method" => self.spoiled = true,
            b"result" | b"error" => self.answer = true,
            _ => {}
        }
    }

    fn keep_id(&mut self, byte: u8) {
        if let Some(id) = &mut self.id {
            keep(id, byte, LONGEST);
        }
    }
}

/// Keeps a byte; one more than `most`, so that a text that is too long is told from one that fits.
fn keep(text: &mut Vec<u8>, byte: u8, most: usize) {
    if text.len() <= most {
        text.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::{String, ToString};

    fn id_of(text: &str, chunk: usize) -> Option<RequestId> {
        let mut skim = Skim::default();
        text.as_bytes().chunks(chunk).for_each(|piece| skim.feed(piece));
        skim.id()
    }

    #[test]
    fn an_answers_id_is_found_wherever_it_stands_whatever_the_chunks() {
        let deep = r#"{"id":9,"x":["}",{"method":"\"\\"},"\\\""],"result":[{"id":8}]}"#;
        let long = "\u{e9}".repeat(300);
        let cases: [(String, Option<RequestId>); 15] = [
            (format!(r#"{{"jsonrpc":"2.0","id":7,"result":{deep}}}"#), Some(7.into())),
            (format!(r#"{{"result":{deep},"jsonrpc":"2.0","id":7}}"#), Some(7.into())),
            (format!("{{ \"error\" : {deep} ,\t\"id\" : \"a\\u0062\" }} "), Some("ab".into())),
            (format!(r#"{{"id":-7,"error":{deep}}}"#), Some((-7).into())),
            (format!(r#"{{"id":7,"method":"m","params":{deep}}}"#), None),
            (format!(r#"{{"params":{deep},"method":"m"}}"#), None),
            (format!(r#"{{"id":7,"id":7,"result":{deep}}}"#), None),
            (format!(r#"{{"id":[7],"result":{deep}}}"#), None),
            (format!(r#"{{"id":1.5,"result":{deep}}}"#), None),
            (format!(r#"{{"id":"{long}","result":{deep}}}"#), None),
            (format!(r#"{{"id":7,"result":{deep}"#), None),
            (format!("log line {deep}"), None),
            (deep.to_string(), Some(9.into())),
            (format!("{deep}{deep}"), None),
            (format!("[{deep}]"), None),
        ];
        for (text, expected) in cases {
            for chunk in 1..=text.len() {
                assert_eq!(id_of(&text, chunk), expected, "{text} in chunks of {chunk}");
            }
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut skim = Skim::default();
        skim.feed(b"{\"result\":1,\"id\":\"");
        (0..1 << 20).for_each(|_| skim.feed(b"x"));
        skim.feed(b"\",\"");
        (0..1 << 20).for_each(|_| skim.feed(b"y"));
        assert!(skim.name.capacity() + skim.id.as_ref().map_or(0, Vec::capacity) < 8 << 10);
    }
}
