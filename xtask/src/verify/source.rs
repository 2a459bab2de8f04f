//! Rust source reduced to its code: comments and the insides of literals
//! become spaces, so that a rule about code is not triggered by words.

/// The code alone, with the same lines.
pub(crate) fn code_only(source: &str) -> String {
    let mut scanner = Scanner { rest: source, code: String::with_capacity(source.len()) };
    while scanner.step() {}
    scanner.code
}

struct Scanner<'a> {
    rest: &'a str,
    code: String,
}

impl Scanner<'_> {
    /// Takes one piece; false at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        if self.rest.starts_with("//") {
            self.blank(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.blank(block_comment(self.rest));
        } else if let Some(length) = raw_string(self.rest).filter(|_| !self.in_word()) {
            self.blank(length);
        } else if first == '"' {
            self.blank(quoted(self.rest, '"'));
        } else if first == '\'' && is_char(self.rest) {
            self.blank(quoted(self.rest, '\''));
        } else {
            self.code.push(first);
            self.rest = &self.rest[first.len_utf8()..];
        }
        true
    }

    /// Whether the scanner is inside an identifier, as at the `r` of `for`.
    fn in_word(&self) -> bool {
        self.code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
    }

    fn blank(&mut self, length: usize) {
        let (gone, rest) = self.rest.split_at(length);
        self.code.extend(gone.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }
}

/// The length of a block comment, which may hold others.
fn block_comment(text: &str) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < text.len() {
        let here = &text.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of `r"…"`, `r#"…"#`, `br"…"` and their like, if one starts here.
fn raw_string(text: &str) -> Option<usize> {
    let start = text.strip_prefix("br").or_else(|| text.strip_prefix("cr")).or_else(|| text.strip_prefix('r'))?;
    let hashes = start.len() - start.trim_start_matches('#').len();
    let body = start[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let opened = text.len() - body.len();
    Some(body.find(&end).map_or(text.len(), |at| opened + at + end.len()))
}

/// The length of a literal between two of `quote`, with its escapes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if !escaped && c == quote {
            return at + c.len_utf8();
        }
        escaped = !escaped && c == '\\';
    }
    text.len()
}

/// Tells `'a'` and `'\n'` from the lifetime `'a`.
fn is_char(text: &str) -> bool {
    let mut chars = text.chars().skip(1);
    let (first, second) = (chars.next(), chars.next());
    first == Some('\\') || second == Some('\'')
}

#[cfg(test)]
mod tests {
    use super::code_only;

    #[test]
    fn comments_and_literals_are_blanked() {
        let blanked = |source: &str| code_only(source).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(blanked("a // todo!()\nb"), "a b");
        assert_eq!(blanked("a /* x /* y */ todo!() */ b"), "a b");
        assert_eq!(blanked(r#"f("todo!() \" x", 1)"#), "f( , 1)");
        assert_eq!(blanked(r##"f(r#"a " todo!()"#, b"x", br"y")"##), "f( , b , )");
        assert_eq!(blanked(r"f('\'', '{', b'\\') + g::<'a>(x)"), "f( , , b ) + g::<'a>(x)");
        assert_eq!(blanked("for x in r#type { y }"), "for x in r#type { y }");
    }

    #[test]
    fn lines_stay_where_they_are() {
        let source = "a\n/* b\nc */ d\n\"e\nf\" g\n";
        let code = code_only(source);
        assert_eq!(code.lines().count(), source.lines().count());
        assert_eq!(code.lines().nth(4).map(str::trim), Some("g"));
    }

    #[test]
    fn unfinished_text_ends_at_the_end() {
        for source in ["/* a", "\"a", "r#\"a\"", "'\\", "// a", "é'é'"] {
            assert_eq!(code_only(source).chars().count(), source.chars().count(), "{source}");
        }
    }
}
