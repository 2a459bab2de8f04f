//! Reads JSON strings and blanks by hand, so that what two calls have in common never depends on a parser's features.

use alloc::vec::Vec;

use super::canonical::Problem;

/// A position in a JSON text.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The byte here, if the text goes on.
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The byte offset of this position.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// What is still unread. The position is on a character boundary.
    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    pub(super) fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// The error that says: not JSON, from here on.
    pub(super) fn syntax(&self) -> Problem {
        Problem::Syntax { offset: self.at }
    }

    /// Takes `byte`, which must be here.
    pub(super) fn take(&mut self, byte: u8) -> Result<(), Problem> {
        if self.peek() != Some(byte) {
            return Err(self.syntax());
        }
        self.at += 1;
        Ok(())
    }

    /// Takes `word`, which must be here.
    pub(super) fn word(&mut self, word: &str) -> Result<(), Problem> {
        if !self.rest().starts_with(word) {
            return Err(self.syntax());
        }
        self.at += word.len();
        Ok(())
    }

    /// Takes the string that must be here, and appends its text to `out`.
    pub(super) fn string(&mut self, out: &mut Vec<u8>) -> Result<(), Problem> {
        self.take(b'"')?;
        loop {
            let rest = self.rest();
            let plain = rest.bytes().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)).count();
            out.extend_from_slice(&rest.as_bytes()[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    let char = self.escape()?;
                    out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(_) | None => return Err(self.syntax()),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Problem> {
        self.take(b'\\')?;
        let char = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            Some(_) | None => return Err(self.syntax()),
        };
        self.at += 1;
        Ok(char)
    }

    /// The character of `uXXXX`, or of a pair of surrogates.
    fn unicode(&mut self) -> Result<char, Problem> {
        let first = self.unit()?;
        if let Some(char) = char::from_u32(first) {
            return Ok(char);
        }
        if first >= 0xdc00 || !self.rest().starts_with("\\u") {
            return Err(Problem::Surrogate);
        }
        self.at += 1;
        let second = self.unit()?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(Problem::Surrogate);
        }
        let scalar = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        char::from_u32(scalar).ok_or(Problem::Surrogate)
    }

    /// The UTF-16 unit of `uXXXX`.
    fn unit(&mut self) -> Result<u32, Problem> {
        self.take(b'u')?;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(|| self.syntax())?;
            unit = unit * 16 + digit;
            self.at += 1;
        }
        Ok(unit)
    }
}
