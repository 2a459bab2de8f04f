//! Header values that are not plain ASCII: the `=?base64?...?=` form (rule H3).

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// A value looked encoded and was not Base64 of UTF-8, padding included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not Base64 of UTF-8")]
pub struct BadEncoding;

/// What a header value means: itself, unless it has both the prefix `=?base64?` and the suffix `?=`, in this case.
///
/// # Errors
/// [`BadEncoding`] if what lies between them is not padded standard Base64 of UTF-8.
pub fn decode_value(value: &str) -> Result<Cow<'_, str>, BadEncoding> {
    let Some(encoded) = value.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)) else {
        return Ok(Cow::Borrowed(value));
    };
    let bytes = STANDARD.decode(encoded).map_err(|_| BadEncoding)?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| BadEncoding)
}

/// The header value that means `value`: itself if it is plain, else the encoded form.
///
/// Plain is: visible ASCII with spaces inside, and not of a form that could be taken for an encoded one.
#[must_use]
pub fn encode_value(value: &str) -> Cow<'_, str> {
    let visible = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let padded = value.starts_with(' ') || value.ends_with(' ');
    let lookalike = value.starts_with(PREFIX) && value.ends_with(SUFFIX);
    if visible && !padded && !lookalike {
        return Cow::Borrowed(value);
    }
    let mut encoded = String::from(PREFIX);
    STANDARD.encode_string(value, &mut encoded);
    encoded.push_str(SUFFIX);
    Cow::Owned(encoded)
}
