//! Decides which idempotency key a call carries, and refuses keys that cannot be trusted to mean one thing.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use thiserror::Error;

/// The member of a request's `params` that carries the key.
pub const PARAM_NAME: &str = "idempotencyKey";
/// The member of a request's `_meta` that carries the key.
pub const META_NAME: &str = "mcp-steady.dev/idempotencyKey";
/// The HTTP header that carries the key, bare or as a quoted string.
pub const HEADER_NAME: &str = "idempotency-key";

/// A business key, chosen by the caller: the same key means the same intention.
///
/// 1 to 255 bytes of visible ASCII (`0x21..=0x7e`): no blanks, so that a key cannot be changed by trimming, and no
/// letters that normalise.
///
/// ```
/// use steady_core::idempotency::{Key, KeyError};
///
/// assert_eq!(Key::parse("order-7").unwrap().as_str(), "order-7");
/// assert_eq!(Key::parse("order 7"), Err(KeyError::Character { at: 5 }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<str>);

impl Key {
    /// The longest key, in bytes.
    pub const MAX_LEN: usize = 255;

    /// The key with this text.
    ///
    /// # Errors
    ///
    /// [`KeyError::Empty`], [`KeyError::TooLong`] or [`KeyError::Character`] if the text is not a key.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if text.len() > Self::MAX_LEN {
            return Err(KeyError::TooLong { len: text.len() });
        }
        match text.bytes().position(|byte| !byte.is_ascii_graphic()) {
            Some(at) => Err(KeyError::Character { at }),
            None => Ok(Self(text.into())),
        }
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A place where a key can stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Source {
    /// [`PARAM_NAME`] in `params`.
    Params,
    /// [`META_NAME`] in `_meta`.
    Meta,
    /// The HTTP header [`HEADER_NAME`].
    Header,
    /// The argument that the tool configured as its key.
    Argument,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Params => "params.idempotencyKey",
            Self::Meta => "_meta[\"mcp-steady.dev/idempotencyKey\"]",
            Self::Header => "the Idempotency-Key header",
            Self::Argument => "the key argument",
        })
    }
}

/// The texts found at the places where a key can stand, unescaped but otherwise as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeySources<'a> {
    /// [`PARAM_NAME`] in `params`.
    pub params: Option<&'a str>,
    /// [`META_NAME`] in `_meta`.
    pub meta: Option<&'a str>,
    /// The HTTP header [`HEADER_NAME`]: bare, or as a quoted string in the syntax of structured fields.
    pub header: Option<&'a str>,
    /// The argument that the tool configured as its key. It must then be excluded from the fingerprint.
    pub argument: Option<&'a str>,
}

/// Why a call's key is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key is empty.
    #[error("the idempotency key is empty: send 1 to 255 visible ASCII characters, or none at all")]
    Empty,
    /// The key is longer than [`Key::MAX_LEN`].
    #[error("the idempotency key has {len} bytes: send at most 255")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The key has a blank, a control character or something beyond ASCII.
    #[error("the idempotency key has a character at byte {at} that is not visible ASCII (0x21 to 0x7e): leave it out")]
    Character {
        /// The byte offset of the first such character.
        at: usize,
    },
    /// The header starts with a quote, but is not a quoted string.
    #[error("the Idempotency-Key header is not a quoted string: close the quote and escape only \\\" and \\\\")]
    Quoting,
    /// Two places carry different keys.
    #[error("{first} and {second} carry different idempotency keys: send one key, or the same one in both")]
    Disagree {
        /// The place that is looked at first.
        first: Source,
        /// The place that differs from it.
        second: Source,
    },
}

/// The key that a call carries, if any. Every place that has one must have the same one.
///
/// The order of the places is that of [`KeySources`]; it decides only which error comes first.
///
/// # Errors
///
/// A malformed key at any place, even when another place has a good one, and [`KeyError::Disagree`] if two differ.
///
/// ```
/// use steady_core::idempotency::{KeyError, KeySources, Source, find_key};
///
/// let sources = KeySources { meta: Some("order-7"), header: Some("\"order-7\""), ..KeySources::default() };
/// assert_eq!(find_key(&sources).unwrap().unwrap().as_str(), "order-7");
///
/// let sources = KeySources { argument: Some("order-8"), ..sources };
/// let disagreement = KeyError::Disagree { first: Source::Meta, second: Source::Argument };
/// assert_eq!(find_key(&sources), Err(disagreement));
/// ```
pub fn find_key(sources: &KeySources<'_>) -> Result<Option<Key>, KeyError> {
    let header = sources.header.map(unquote).transpose()?;
    let places = [
        (Source::Params, sources.params),
        (Source::Meta, sources.meta),
        (Source::Header, header.as_deref()),
        (Source::Argument, sources.argument),
    ];
    let mut found: Option<(Source, Key)> = None;
    for (second, text) in places {
        let Some(text) = text else { continue };
        let key = Key::parse(text)?;
        match &found {
            Some((first, other)) if *other != key => return Err(KeyError::Disagree { first: *first, second }),
            Some(_) => {}
            None => found = Some((second, key)),
        }
    }
    Ok(found.map(|(_, key)| key))
}

/// The text of a header value: what is between the quotes of a quoted string, or all of a bare one.
fn unquote(value: &str) -> Result<Cow<'_, str>, KeyError> {
    let Some(rest) = value.strip_prefix('"') else {
        return Ok(Cow::Borrowed(value));
    };
    let inner = rest.strip_suffix('"').ok_or(KeyError::Quoting)?;
    let mut text = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(char) = chars.next() {
        match char {
            '"' => return Err(KeyError::Quoting),
            '\\' => match chars.next() {
                Some(escaped @ ('"' | '\\')) => text.push(escaped),
                Some(_) | None => return Err(KeyError::Quoting),
            },
            other => text.push(other),
        }
    }
    Ok(Cow::Owned(text))
}
