//! JSON text checked in one pass, without recursion and without a tree: where values start and end is all that is kept.
//!
//! What is around the current value is a bit for each level, so the nesting that is allowed at most is the width of that
//! integer, and nothing here allocates. The grammar is that of RFC 8259; as in any lazy reader, whether an escape is half
//! of a surrogate pair is seen when a string is read as text.

use alloc::borrow::Cow;
use alloc::string::String;

use serde::de::value::{BorrowedStrDeserializer, Error as Unread, MapDeserializer};
use serde::de::{Deserialize, Deserializer, Visitor};
use serde_json::value::RawValue;

/// How deep arrays and objects of a message may nest; the message itself is the first level.
pub const MAX_NESTING: usize = 128;

/// Why a text is not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Not JSON from here on.
    Syntax,
    /// Nested deeper than the limit. What follows is unread.
    TooDeep,
}

/// A position in a JSON text.
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// Levels that may still be opened.
    room: usize,
}

impl<'a> Scanner<'a> {
    /// At the first character that is no blank. A nesting above [`MAX_NESTING`] is taken as that.
    pub(crate) fn new(text: &'a str, nesting: usize) -> Self {
        let mut scanner = Self { text, at: 0, room: nesting.min(MAX_NESTING) };
        scanner.blanks();
        scanner
    }

    /// The byte here, if the text goes on.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Nothing but blanks may follow.
    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        self.blanks();
        if self.at == self.text.len() { Ok(()) } else { Err(Fault::Syntax) }
    }

    /// Passes the object that must be here. `each` gets a member's name and must pass its value.
    pub(crate) fn object(
        &mut self,
        mut each: impl FnMut(Name<'a>, &mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.take(b'{')?;
        self.room = self.room.checked_sub(1).ok_or(Fault::TooDeep)?;
        self.blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
        } else {
            loop {
                let name = self.name()?;
                each(name, self)?;
                self.blanks();
                match self.next() {
                    Some(b',') => self.blanks(),
                    Some(b'}') => break,
                    Some(_) | None => return Err(Fault::Syntax),
                }
            }
        }
        self.room += 1;
        Ok(())
    }

    /// Passes one value and lends its text.
    pub(crate) fn value(&mut self) -> Result<&'a str, Fault> {
        let start = self.at;
        // A bit for each container around: 1 for an object.
        let mut open = 0u128;
        let mut depth = 0;
        loop {
            match self.peek() {
                Some(b'"') => drop(self.string()?),
                Some(b'{' | b'[') if depth == self.room => return Err(Fault::TooDeep),
                Some(bracket @ (b'{' | b'[')) => {
                    let object = bracket == b'{';
                    self.at += 1;
                    self.blanks();
                    // In ASCII a closing bracket is two after its opening one.
                    if self.peek() == Some(bracket + 2) {
                        self.at += 1;
                    } else {
                        open = open << 1 | u128::from(object);
                        depth += 1;
                        if object {
                            self.name()?;
                        }
                        continue;
                    }
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.word("true")?,
                Some(b'f') => self.word("false")?,
                Some(b'n') => self.word("null")?,
                Some(_) | None => return Err(Fault::Syntax),
            }
            // A value that is complete may complete the ones around it.
            loop {
                if depth == 0 {
                    return self.text.get(start..self.at).ok_or(Fault::Syntax);
                }
                self.blanks();
                let object = open & 1 == 1;
                match self.next() {
                    Some(b',') => {
                        self.blanks();
                        if object {
                            self.name()?;
                        }
                        break;
                    }
                    Some(b'}') if object => {}
                    Some(b']') if !object => {}
                    Some(_) | None => return Err(Fault::Syntax),
                }
                open >>= 1;
                depth -= 1;
            }
        }
    }

    /// Passes a name, its colon and the blanks around.
    fn name(&mut self) -> Result<Name<'a>, Fault> {
        let start = self.at;
        let escaped = self.string()?;
        let quoted = self.text.get(start..self.at).ok_or(Fault::Syntax)?;
        self.blanks();
        self.take(b':')?;
        self.blanks();
        Ok(Name { quoted, escaped })
    }

    /// Passes a string; whether it has an escape.
    fn string(&mut self) -> Result<bool, Fault> {
        self.take(b'"')?;
        let mut escaped = false;
        loop {
            self.at += plain(self.text.as_bytes().get(self.at..).unwrap_or_default());
            match self.next() {
                Some(b'"') => return Ok(escaped),
                Some(b'\\') => self.escape()?,
                Some(_) | None => return Err(Fault::Syntax),
            }
            escaped = true;
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        match self.next() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(()),
            Some(b'u') => {
                let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or(Fault::Syntax)?;
                self.at += 4;
                if digits.iter().all(u8::is_ascii_hexdigit) { Ok(()) } else { Err(Fault::Syntax) }
            }
            Some(_) | None => Err(Fault::Syntax),
        }
    }

    fn number(&mut self) -> Result<(), Fault> {
        self.skip(|byte| byte == b'-', 1);
        let zero = self.peek() == Some(b'0');
        let whole = self.skip(|byte| byte.is_ascii_digit(), usize::MAX);
        if whole == 0 || (zero && whole > 1) {
            return Err(Fault::Syntax);
        }
        if self.skip(|byte| byte == b'.', 1) == 1 && self.skip(|byte| byte.is_ascii_digit(), usize::MAX) == 0 {
            return Err(Fault::Syntax);
        }
        if self.skip(|byte| matches!(byte, b'e' | b'E'), 1) == 1 {
            self.skip(|byte| matches!(byte, b'+' | b'-'), 1);
            if self.skip(|byte| byte.is_ascii_digit(), usize::MAX) == 0 {
                return Err(Fault::Syntax);
            }
        }
        Ok(())
    }

    fn word(&mut self, word: &str) -> Result<(), Fault> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        if !rest.starts_with(word.as_bytes()) {
            return Err(Fault::Syntax);
        }
        self.at += word.len();
        Ok(())
    }

    /// Passes at most `most` bytes of this kind; how many there were.
    fn skip(&mut self, kind: impl Fn(u8) -> bool, most: usize) -> usize {
        let start = self.at;
        while self.at - start < most && self.peek().is_some_and(&kind) {
            self.at += 1;
        }
        self.at - start
    }

    #[inline]
    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Result<(), Fault> {
        if self.next() == Some(byte) { Ok(()) } else { Err(Fault::Syntax) }
    }

    #[inline]
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek();
        self.at += usize::from(byte.is_some());
        byte
    }
}

/// The name of a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a> {
    quoted: &'a str,
    escaped: bool,
}

impl<'a> Name<'a> {
    /// Whether it reads `plain`. One with an escape is compared by what it means.
    #[inline]
    pub(crate) fn is(self, plain: &str) -> bool {
        if self.escaped {
            return self.text().is_some_and(|name| name == plain);
        }
        self.quoted.len() == plain.len() + 2 && &self.quoted.as_bytes()[1..=plain.len()] == plain.as_bytes()
    }

    /// Which of `names` it is; their number if it is none of them.
    #[inline]
    pub(crate) fn among<const N: usize>(self, names: &[&str; N]) -> usize {
        names.iter().position(|name| self.is(name)).unwrap_or(N)
    }

    /// As it came, with its quotes.
    pub(crate) const fn quoted(self) -> &'a str {
        self.quoted
    }

    /// What it says; `None` if it is half of a surrogate pair.
    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        text(self.quoted)
    }
}

/// How many characters at the start stand for themselves in a JSON string, in bytes; looked at eight at a time.
#[inline]
pub(crate) fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    let mut at = 0;
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let chunk = u64::from_le_bytes(*chunk);
        let (quote, slash) = (chunk ^ (ONES * 0x22), chunk ^ (ONES * 0x5c));
        // The high bit of a byte below the subtrahend; a borrow can only set others above the first of them.
        let control = chunk.wrapping_sub(ONES * 0x20) & !chunk;
        let stop = (control | quote.wrapping_sub(ONES) & !quote | slash.wrapping_sub(ONES) & !slash) & HIGH;
        if stop != 0 {
            return at + stop.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)) {
        at += 1;
    }
    at
}

/// The values of some members of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a, const N: usize> {
    /// In the order of the names asked for.
    pub(crate) values: [Option<&'a str>; N],
    /// One of the names stands twice.
    pub(crate) twice: bool,
}

impl<'a, const N: usize> Found<'a, N> {
    pub(crate) const NONE: Self = Self { values: [None; N], twice: false };

    /// Keeps the value of the member asked for as number `nth`; there may be none.
    pub(crate) fn put(&mut self, nth: usize, value: &'a str) {
        if let Some(place) = self.values.get_mut(nth) {
            self.twice |= place.replace(value).is_some();
        }
    }
}

/// The values of the members `names` of the object that `json` must be; `None` if it is none, or names one of them twice.
#[must_use]
pub fn members<'a, const N: usize>(json: &'a str, names: &[&str; N]) -> Option<[Option<&'a str>; N]> {
    let mut found = Found::NONE;
    let mut scanner = Scanner::new(json, MAX_NESTING);
    let passed = scanner.object(|name, scanner| {
        found.put(name.among(names), scanner.value()?);
        Ok(())
    });
    passed.and_then(|()| scanner.end()).is_ok_and(|()| !found.twice).then_some(found.values)
}

/// What a JSON string says, borrowed where it has no escapes; `None` if it is no string, or half of a surrogate pair.
#[must_use]
pub fn text(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr2(b'\\', b'"', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(json).ok().map(Cow::Owned)
}

/// A value that a scanner has passed, as serde_json's type for such text, and not read again.
pub(crate) fn raw(json: &str) -> Option<&RawValue> {
    let checked = <&RawValue>::deserialize(Checked(json)).ok();
    // In case that serde_json comes to hand its raw values over in another way.
    checked.or_else(|| serde_json::from_str(json).ok())
}

/// Hands text to a visitor in the way in which serde_json hands raw values over.
struct Checked<'a>(&'a str);

impl<'de> Deserializer<'de> for Checked<'de> {
    type Error = Unread;

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Unread> {
        visitor.visit_map(MapDeserializer::new(core::iter::once((name, BorrowedStrDeserializer::new(self.0)))))
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        visitor.visit_borrowed_str(self.0)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq
        tuple tuple_struct map struct enum identifier ignored_any
    }
}
