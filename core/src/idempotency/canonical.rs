//! Decides when two argument objects are the same: exactly when their canonical bytes are.
//!
//! The encoding is `fp1`: those three bytes, then one value. Every value starts with a tag and ends where its tag says,
//! so no two different values share their bytes:
//!
//! | value | bytes |
//! |---|---|
//! | null, true, false | `n`, `t`, `f` |
//! | integer in `i64` | `i`, 8 bytes |
//! | integer above `i64::MAX` | `u`, 8 bytes |
//! | other number | `d`, the 8 bytes of the double |
//! | string | `s`, its length in 8 bytes, UTF-8 |
//! | array | `a`, its values, `e` |
//! | object | `o`, its members sorted by the bytes of their names, each a string and a value, `e` |
//!
//! All integers are big-endian. A change of any rule here is a new version beside this one, never a change of `fp1`:
//! fingerprints lie in databases.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};
use core::ops::Range;

use thiserror::Error;

use super::number::{self, Number};
use super::text::Scanner;

/// How deep arrays and objects may nest; the argument object itself is the first level.
pub const MAX_DEPTH: usize = 128;

/// The version tag that every encoding starts with.
const VERSION: &[u8] = b"fp1";

/// The longest part of a place that an error repeats, in characters.
const MAX_SEGMENT: usize = 64;

/// Why arguments have no canonical form.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// Not JSON.
    #[error("not JSON from byte {offset} on: send valid JSON")]
    Syntax {
        /// The byte offset in the text.
        offset: usize,
    },
    /// Not an object.
    #[error("not an object: send the arguments as a JSON object")]
    NotAnObject,
    /// A name stands twice in one object: parsers disagree on which one counts.
    #[error("the name stands twice in its object: send it once")]
    Duplicate,
    /// More than [`MAX_DEPTH`] levels.
    #[error("nested deeper than 128 levels: flatten the arguments")]
    TooDeep,
    /// Half of a surrogate pair: no text.
    #[error("a \\u escape is half of a surrogate pair: send whole characters")]
    Surrogate,
    /// An integer outside of `i64` and `u64`.
    #[error("the integer fits neither a signed nor an unsigned 64-bit integer: send it as a string")]
    IntegerRange,
    /// An integral number beyond 2^53, written with a point or an exponent.
    #[error("the number is integral and beyond 2^53, but written with a point or an exponent: write plain digits")]
    DecimalRange,
    /// A decimal whose nearest double is an integer, or no number at all.
    #[error("the number has more digits than a double keeps: send it as a string")]
    Rounded,
}

/// Where and why arguments have no canonical form. Holds names from the arguments, but no values.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub struct CanonicalError {
    /// A JSON pointer to the value, such as `/items/3/amount`; empty for the arguments as a whole. Long names are cut.
    pub place: Box<str>,
    /// What is wrong there.
    pub problem: Problem,
}

impl fmt::Display for CanonicalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            write!(f, "arguments: {}", self.problem)
        } else {
            write!(f, "argument {}: {}", self.place, self.problem)
        }
    }
}

/// The canonical bytes of the JSON object `json`, without the top-level members named in `exclude`.
///
/// Equal bytes mean equal arguments, under these rules:
///
/// - The order of members, blanks and the spelling of strings do not count. `1`, `1.0` and `1e0` are one number.
/// - Integers in `i64` and `u64` are exact. A number with a point or an exponent equals the integer it is, up to 2^53.
/// - Other numbers are equal if their doubles are; `-0` is `0`.
/// - Numbers that these rules would have to round to an integer are refused, and so are names that stand twice.
/// - Strings are compared by code point, without Unicode normalisation: a false difference is a refusal, a false match
///   is a wrong payment. An absent member is not `null`.
///
/// Excluded members must still be valid.
///
/// # Errors
///
/// [`CanonicalError`] with the first place that has no canonical form.
///
/// ```
/// use steady_core::idempotency::canonical_arguments;
///
/// let one = canonical_arguments(r#"{"sku":"a-1","quantity":2,"idempotencyKey":"k"}"#, &["idempotencyKey"]).unwrap();
/// let other = canonical_arguments(r#"{ "quantity": 2.0, "sku": "a\u002d1" }"#, &[]).unwrap();
/// assert_eq!(one, other);
///
/// let error = canonical_arguments(r#"{"items":[{"amount":18446744073709551616}]}"#, &[]).unwrap_err();
/// assert_eq!(&*error.place, "/items/0/amount");
/// ```
pub fn canonical_arguments(json: &str, exclude: &[&str]) -> Result<Vec<u8>, CanonicalError> {
    let mut out = Vec::with_capacity(VERSION.len() + json.len());
    out.extend_from_slice(VERSION);
    let mut encoder = Encoder { scanner: Scanner::new(json), out, open: Vec::new(), exclude };
    match encoder.run() {
        Ok(()) => Ok(encoder.out),
        Err(problem) => Err(CanonicalError { place: encoder.place(), problem }),
    }
}

struct Encoder<'a> {
    scanner: Scanner<'a>,
    out: Vec<u8>,
    /// The arrays and objects around the current value, outermost first.
    open: Vec<Container>,
    exclude: &'a [&'a str],
}

enum Container {
    Array { index: usize },
    Object { start: usize, members: Vec<Member>, current: Option<Member> },
}

/// A member of an object, by its bytes in the output.
struct Member {
    /// The bytes of its name's text.
    name: Range<usize>,
    /// Name and value, with their tags.
    whole: Range<usize>,
}

impl Encoder<'_> {
    fn run(&mut self) -> Result<(), Problem> {
        self.scanner.skip_blanks();
        match self.scanner.peek() {
            Some(b'{') => {}
            Some(b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => return Err(Problem::NotAnObject),
            Some(_) | None => return Err(self.scanner.syntax()),
        }
        loop {
            // A value that is complete may complete the ones around it.
            let mut complete = self.value()?;
            while complete {
                self.scanner.skip_blanks();
                if self.open.is_empty() {
                    return match self.scanner.peek() {
                        None => Ok(()),
                        Some(_) => Err(self.scanner.syntax()),
                    };
                }
                complete = self.separator()?;
            }
        }
    }

    /// Takes a scalar, or the start of a container. Says whether the value is complete.
    fn value(&mut self) -> Result<bool, Problem> {
        self.scanner.skip_blanks();
        match self.scanner.peek() {
            Some(b'{') => return self.open(b'o', b'}'),
            Some(b'[') => return self.open(b'a', b']'),
            Some(b'"') => {
                self.string()?;
            }
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", b't')?,
            Some(b'f') => self.word("false", b'f')?,
            Some(b'n') => self.word("null", b'n')?,
            Some(_) | None => return Err(self.scanner.syntax()),
        }
        Ok(true)
    }

    fn open(&mut self, tag: u8, end: u8) -> Result<bool, Problem> {
        if self.open.len() == MAX_DEPTH {
            return Err(Problem::TooDeep);
        }
        self.scanner.advance(1);
        let start = self.out.len();
        self.out.push(tag);
        self.scanner.skip_blanks();
        if self.scanner.peek() == Some(end) {
            self.scanner.advance(1);
            self.out.push(b'e');
            return Ok(true);
        }
        if tag == b'a' {
            self.open.push(Container::Array { index: 0 });
        } else {
            self.open.push(Container::Object { start, members: Vec::new(), current: None });
            self.name()?;
        }
        Ok(false)
    }

    /// Takes what follows a value in its container. Says whether the container is complete.
    fn separator(&mut self) -> Result<bool, Problem> {
        let end = self.out.len();
        let next = self.scanner.peek();
        match (self.open.last_mut(), next) {
            (Some(Container::Array { index }), Some(b',')) => {
                *index += 1;
                self.scanner.advance(1);
                Ok(false)
            }
            (Some(Container::Array { .. }), Some(b']')) => {
                self.scanner.advance(1);
                self.out.push(b'e');
                self.open.pop();
                Ok(true)
            }
            (Some(Container::Object { members, current, .. }), Some(b',' | b'}')) => {
                members.extend(current.take().map(|member| Member { whole: member.whole.start..end, ..member }));
                self.scanner.advance(1);
                if next == Some(b',') {
                    self.name()?;
                    return Ok(false);
                }
                self.close_object()?;
                Ok(true)
            }
            (Some(Container::Array { .. } | Container::Object { .. }) | None, _) => Err(self.scanner.syntax()),
        }
    }

    /// Takes the name of a member and its colon.
    fn name(&mut self) -> Result<(), Problem> {
        self.scanner.skip_blanks();
        let start = self.out.len();
        let name = self.string()?;
        self.scanner.skip_blanks();
        self.scanner.take(b':')?;
        if let Some(Container::Object { current, .. }) = self.open.last_mut() {
            *current = Some(Member { whole: start..name.end, name });
        }
        Ok(())
    }

    /// Sorts the members of the innermost object, and drops the excluded ones if it is the outermost.
    fn close_object(&mut self) -> Result<(), Problem> {
        let outermost = self.open.len() == 1;
        let Some(Container::Object { start, members, current }) = self.open.last_mut() else {
            return Err(self.scanner.syntax());
        };
        let out = &mut self.out;
        members.sort_by(|a, b| out[a.name.clone()].cmp(&out[b.name.clone()]));
        if let Some(twice) = members.windows(2).position(|pair| out[pair[0].name.clone()] == out[pair[1].name.clone()])
        {
            *current = Some(members.swap_remove(twice));
            return Err(Problem::Duplicate);
        }
        let excluded = |name: &[u8]| outermost && self.exclude.iter().any(|other| other.as_bytes() == name);
        let mut sorted = Vec::with_capacity(out.len() - *start);
        for member in members.iter().filter(|member| !excluded(&out[member.name.clone()])) {
            sorted.extend_from_slice(&out[member.whole.clone()]);
        }
        out.truncate(*start + 1);
        out.append(&mut sorted);
        out.push(b'e');
        self.open.pop();
        Ok(())
    }

    /// Takes a string. Says where its text is in the output.
    fn string(&mut self) -> Result<Range<usize>, Problem> {
        self.out.push(b's');
        let start = self.out.len() + 8;
        self.out.extend_from_slice(&[0; 8]);
        self.scanner.string(&mut self.out)?;
        let len = (self.out.len() - start) as u64;
        self.out[start - 8..start].copy_from_slice(&len.to_be_bytes());
        Ok(start..self.out.len())
    }

    fn number(&mut self) -> Result<(), Problem> {
        let here = self.scanner.offset();
        let (number, len) = number::read(self.scanner.rest()).map_err(|problem| problem.moved_by(here))?;
        self.scanner.advance(len);
        let (tag, bytes) = match number {
            Number::Signed(integer) => (b'i', integer.to_be_bytes()),
            Number::Unsigned(integer) => (b'u', integer.to_be_bytes()),
            Number::Fraction(bits) => (b'd', bits.to_be_bytes()),
        };
        self.out.push(tag);
        self.out.extend_from_slice(&bytes);
        Ok(())
    }

    fn word(&mut self, word: &str, tag: u8) -> Result<(), Problem> {
        self.scanner.word(word)?;
        self.out.push(tag);
        Ok(())
    }

    /// A JSON pointer to the current value.
    fn place(&self) -> Box<str> {
        let mut place = String::new();
        for container in &self.open {
            match container {
                Container::Array { index } => {
                    let written = write!(place, "/{index}");
                    debug_assert!(written.is_ok(), "a string takes all that is written to it");
                }
                Container::Object { current: Some(member), .. } => {
                    place.push('/');
                    push_segment(&mut place, &self.out[member.name.clone()]);
                }
                Container::Object { current: None, .. } => {}
            }
        }
        place.into()
    }
}

impl Problem {
    /// The same problem, in a text that starts `offset` bytes earlier.
    fn moved_by(self, by: usize) -> Self {
        if let Self::Syntax { offset } = self { Self::Syntax { offset: offset + by } } else { self }
    }
}

/// Appends a name to a JSON pointer: escaped, and cut if it is long.
fn push_segment(place: &mut String, name: &[u8]) {
    let name = String::from_utf8_lossy(name).into_owned();
    let cut = name.char_indices().nth(MAX_SEGMENT).map_or(name.len(), |(at, _)| at);
    let shown = name[..cut].to_owned().replace('~', "~0").replace('/', "~1");
    place.push_str(&shown);
    if cut < name.len() {
        place.push('…');
    }
}
