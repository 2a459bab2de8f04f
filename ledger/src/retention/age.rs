//! Decides how old a key is, if its text says so. What is read here is stored, so it must never change for a given text.

use steady_core::idempotency::Key;
use steady_core::time::WallTime;

/// The time in a key that is a UUID of version 7, or a ULID in upper case.
pub(crate) fn carried_time(key: &Key) -> Option<WallTime> {
    let text = key.as_str().as_bytes();
    let millis = match text.len() {
        36 => uuid_7(text),
        26 => ulid(text),
        _ => None,
    };
    millis.map(WallTime::from_unix_millis)
}

fn uuid_7(text: &[u8]) -> Option<i64> {
    let mut millis = 0;
    for (place, byte) in text.iter().enumerate() {
        let digit = char::from(*byte).to_digit(16);
        match (place, digit) {
            (8 | 13 | 18 | 23, _) if *byte == b'-' => {}
            (14, Some(7)) | (19, Some(8..=11)) => {}
            (8 | 13 | 14 | 18 | 19 | 23, _) | (_, None) => return None,
            (0..=12, Some(digit)) => millis = millis << 4 | i64::from(digit),
            (_, Some(_)) => {}
        }
    }
    Some(millis)
}

fn ulid(text: &[u8]) -> Option<i64> {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let mut millis = 0;
    for (place, byte) in text.iter().enumerate() {
        let digit = i64::try_from(ALPHABET.iter().position(|digit| digit == byte)?).ok()?;
        match place {
            // A ULID has 128 bits, two less than 26 digits.
            0 if digit > 7 => return None,
            0..10 => millis = millis << 5 | digit,
            _ => {}
        }
    }
    Some(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Option<i64> {
        carried_time(&Key::parse(text).unwrap()).map(WallTime::unix_millis)
    }

    #[test]
    fn the_examples_of_the_specifications_carry_their_time() {
        // RFC 9562, appendix A.6; the ULID specification.
        assert_eq!(time("017F22E2-79B0-7CC3-98C4-DC0C0C07398F"), Some(1_645_557_742_000));
        assert_eq!(time("017f22e2-79b0-7cc3-98c4-dc0c0c07398f"), Some(1_645_557_742_000));
        assert_eq!(time("01ARZ3NDEKTSV4RRFFQ69G5FAV"), Some(1_469_922_850_259));
        assert_eq!(time("7ZZZZZZZZZZZZZZZZZZZZZZZZZ"), Some((1 << 48) - 1));
    }

    #[test]
    fn a_key_that_only_looks_like_one_carries_none() {
        for text in [
            "017F22E2-79B0-4CC3-98C4-DC0C0C07398F",
            "017F22E2-79B0-7CC3-18C4-DC0C0C07398F",
            "017F22E2-79B0-7CC3-C8C4-DC0C0C07398F",
            "017F22E2x79B0-7CC3-98C4-DC0C0C07398F",
            "017F22E2-79B0-7CC3-98C4-DC0C0C07398G",
            "017F22E279B0-7CC3-98C4-DC0C0C0739-8F",
            "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "01arz3ndektsv4rrffq69g5fav",
            "order-7",
            "01ARZ3NDEKTSV4RRFFQ69G5FAVX",
        ] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
