//! Base64 for URLs without padding (RFC 4648, section 5): one spelling for each text of bytes, every other is refused.

use alloc::string::String;
use alloc::vec::Vec;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Appends the text of `bytes`.
pub(super) fn encode(out: &mut String, bytes: &[u8]) {
    for chunk in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=chunk.len()].copy_from_slice(chunk);
        let all = u32::from_be_bytes(padded);
        for digit in 0..=chunk.len() {
            let six = all >> (18 - 6 * digit) & 63;
            out.push(char::from(ALPHABET[six as usize]));
        }
    }
}

/// The text of `bytes` in the usual alphabet and with padding (RFC 4648, section 4), as resources carry it.
#[cfg(feature = "std")]
pub(crate) fn standard(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    encode(&mut out, bytes);
    let mut out = out.replace('-', "+").replace('_', "/");
    out.extend(core::iter::repeat_n('=', (4 - out.len() % 4) % 4));
    out
}

/// The bytes of `text`; `None` if it is not what `encode` writes for any.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.as_bytes().chunks(4) {
        let mut all = 0u32;
        for digit in chunk {
            all = all * 64 + u32::from(value(*digit)?);
        }
        // One digit is less than a byte; bits after the last byte would be a second spelling.
        let (bytes, spare) = match chunk.len() {
            4 => (3, 0),
            3 => (2, 2),
            2 => (1, 4),
            _ => return None,
        };
        if all & ((1 << spare) - 1) != 0 {
            return None;
        }
        out.extend_from_slice(&(all >> spare).to_be_bytes()[4 - bytes..]);
    }
    Some(out)
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_texts() {
        let cases: [(&[u8], &str); 6] =
            [(b"", ""), (b"f", "Zg"), (b"fo", "Zm8"), (b"foo", "Zm9v"), (b"foob", "Zm9vYg"), (&[0xfb, 0xff], "-_8")];
        for (bytes, text) in cases {
            let mut out = String::new();
            encode(&mut out, bytes);
            assert_eq!(out, text);
            assert_eq!(decode(text).as_deref(), Some(bytes));
        }
        for wrong in ["Z", "Zm9vY", "Zh", "Zm9", "Zg==", "Zm+v", "Zm/v", "Zm v", "Zmé"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn one_text_for_each_bytes(bytes: Vec<u8>, text in "[A-Za-z0-9_-]{0,9}") {
            let mut out = String::new();
            encode(&mut out, &bytes);
            prop_assert_eq!(decode(&out), Some(bytes));
            if let Some(bytes) = decode(&text) {
                let mut again = String::new();
                encode(&mut again, &bytes);
                prop_assert_eq!(again, text);
            }
        }
    }
}
