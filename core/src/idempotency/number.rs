//! Decides which JSON numbers are equal, from their digits. No value is rounded on the way to an integer.

use super::canonical::Problem;

/// A number, in the one form that all equal spellings share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// An integer in `i64`.
    Signed(i64),
    /// An integer above `i64::MAX`.
    Unsigned(u64),
    /// The bits of a double that is not an integer.
    Fraction(u64),
}

/// The largest magnitude up to which a decimal or exponent spelling counts as an integer: 2^53.
const EXACT: u64 = 1 << 53;

/// Reads the number at the start of `text`, and says how many bytes it takes.
///
/// # Errors
///
/// [`Problem::Syntax`] with the offset from the start of `text`, or the reason why the number has no exact form.
pub(super) fn read(text: &str) -> Result<(Number, usize), Problem> {
    let lexeme = Lexeme::read(text.as_bytes())?;
    let number = match lexeme.spelling {
        Spelling::Integer => integer(&lexeme)?,
        Spelling::Decimal { exponent } => decimal(&text[..lexeme.len], &lexeme, exponent)?,
    };
    Ok((number, lexeme.len))
}

/// The parts of a number as it is written.
struct Lexeme<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    spelling: Spelling,
    len: usize,
}

enum Spelling {
    Integer,
    Decimal { exponent: i64 },
}

impl<'a> Lexeme<'a> {
    fn read(text: &'a [u8]) -> Result<Self, Problem> {
        let negative = text.first() == Some(&b'-');
        let mut at = usize::from(negative);
        let whole = digits(text, at)?;
        at += whole.len();
        if whole.len() > 1 && whole[0] == b'0' {
            return Err(Problem::Syntax { offset: at - whole.len() });
        }
        let mut spelling = Spelling::Integer;
        let mut fraction: &[u8] = &[];
        if text.get(at) == Some(&b'.') {
            fraction = digits(text, at + 1)?;
            at += 1 + fraction.len();
            spelling = Spelling::Decimal { exponent: 0 };
        }
        if let Some(b'e' | b'E') = text.get(at) {
            at += 1;
            let sign = text.get(at).copied();
            at += usize::from(matches!(sign, Some(b'+' | b'-')));
            let power = digits(text, at)?;
            at += power.len();
            let size = power.iter().fold(0i64, |size, digit| size.saturating_mul(10).saturating_add(value(*digit)));
            let exponent = if sign == Some(b'-') { -size } else { size };
            spelling = Spelling::Decimal { exponent };
        }
        Ok(Self { negative, whole, fraction, spelling, len: at })
    }
}

/// The run of digits at `at`, at least one.
fn digits(text: &[u8], at: usize) -> Result<&[u8], Problem> {
    let tail = text.get(at..).unwrap_or_default();
    let len = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if len == 0 { Err(Problem::Syntax { offset: at }) } else { Ok(&tail[..len]) }
}

fn value(digit: u8) -> i64 {
    i64::from(digit - b'0')
}

/// A number without point and exponent: exact in `i64` or `u64`, or refused.
fn integer(lexeme: &Lexeme<'_>) -> Result<Number, Problem> {
    let size = magnitude(lexeme.whole.iter(), 0).ok_or(Problem::IntegerRange)?;
    signed(lexeme.negative, size).ok_or(Problem::IntegerRange)
}

/// A number with a point or an exponent: an integer if its digits say so, else a double.
fn decimal(text: &str, lexeme: &Lexeme<'_>, exponent: i64) -> Result<Number, Problem> {
    let written = lexeme.whole.len() + lexeme.fraction.len();
    let all = || lexeme.whole.iter().chain(lexeme.fraction);
    let Some(last) = last_nonzero(all()) else {
        return Ok(Number::Signed(0));
    };
    let places = i64::try_from(lexeme.fraction.len()).unwrap_or(i64::MAX);
    let zeros = i64::try_from(written - last - 1).unwrap_or(i64::MAX);
    let scale = exponent.saturating_sub(places).saturating_add(zeros);
    if let Ok(scale) = u64::try_from(scale) {
        let size = magnitude(all().take(last + 1), scale).filter(|size| *size <= EXACT);
        return size.and_then(|size| signed(lexeme.negative, size)).ok_or(Problem::DecimalRange);
    }
    let double: f64 = text.parse().map_err(|_| Problem::Syntax { offset: 0 })?;
    // The digits are not an integer. If the nearest double is one, it stands for another number.
    let rounded = double.abs() >= EXACT as f64 || (double as i64) as f64 == double;
    if rounded { Err(Problem::Rounded) } else { Ok(Number::Fraction(double.to_bits())) }
}

/// The position of the last digit that is not a zero.
fn last_nonzero<'a>(digits: impl Iterator<Item = &'a u8>) -> Option<usize> {
    digits.enumerate().filter(|(_, digit)| **digit != b'0').last().map(|(at, _)| at)
}

/// `digits` times ten to the power of `scale`, if it fits.
fn magnitude<'a>(digits: impl Iterator<Item = &'a u8>, scale: u64) -> Option<u64> {
    let mut size = 0u64;
    for digit in digits {
        size = size.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    size.checked_mul(10u64.checked_pow(u32::try_from(scale).ok()?)?)
}

/// The integer with this sign and size, if it is in `i64` or `u64`.
fn signed(negative: bool, size: u64) -> Option<Number> {
    if negative {
        return 0i64.checked_sub_unsigned(size).map(Number::Signed);
    }
    Some(i64::try_from(size).map_or(Number::Unsigned(size), Number::Signed))
}
