//! URI templates (RFC 6570) read backwards: does a URI come from a template, and with which values?
//!
//! Of the templates, the two forms that servers use: `{name}`, whose decoded value holds no `/`, and `{+name}`, whose value
//! may hold some. A value is never empty, and ends where the text that follows it first stands: matching looks at each
//! character once for each variable, whatever a client sends.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// A template, or a plain URI, which has no variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    /// What stands before the first variable.
    start: Box<str>,
    variables: Vec<Variable>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Variable {
    name: Box<str>,
    /// Whether it may hold reserved characters, `/` among them.
    reserved: bool,
    /// The text that follows it.
    after: Box<str>,
}

impl Template {
    /// Reads a template; `Err` says what is not understood.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let (start, mut rest) = match text.split_once('{') {
            None => (text, None),
            Some((start, rest)) => (start, Some(rest)),
        };
        let mut variables = Vec::new();
        while let Some(open) = rest {
            let (inside, after) = open.split_once('}').ok_or("a brace is not closed")?;
            let (reserved, name) = inside.strip_prefix('+').map_or((false, inside), |name| (true, name));
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                return Err("a variable is {name} or {+name}, with a name of letters, digits and _");
            }
            let (after, next) = match after.split_once('{') {
                None => (after, None),
                Some(("", _)) => return Err("two variables need a text between them"),
                Some((between, next)) => (between, Some(next)),
            };
            variables.push(Variable { name: name.into(), reserved, after: after.into() });
            rest = next;
        }
        let template = Self { start: start.into(), variables };
        if template.texts().any(|text| text.contains('}')) { Err("a brace is not opened") } else { Ok(template) }
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        core::iter::once(&*self.start).chain(self.variables.iter().map(|variable| &*variable.after))
    }

    pub(super) const fn is_plain(&self) -> bool {
        self.variables.is_empty()
    }

    /// The values of its variables, in their order, if the URI comes from it.
    pub(super) fn values<'a>(&self, uri: &'a str) -> Option<Vec<Cow<'a, str>>> {
        let rest = uri.strip_prefix(&*self.start)?;
        let Some((last, others)) = self.variables.split_last() else { return rest.is_empty().then(Vec::new) };
        let (mut values, mut rest) = (Vec::with_capacity(self.variables.len()), rest);
        for variable in others {
            let (value, after) = split_first(rest, &variable.after)?;
            values.push(variable.value(value)?);
            rest = after;
        }
        values.push(last.value(rest.strip_suffix(&*last.after)?)?);
        Some(values)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(|variable| &*variable.name)
    }
}

impl Variable {
    /// What this text says as its value, if it can be one.
    fn value<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        let value = decode(text)?;
        // Decoded: `..%2F..%2Fetc` is a way out of a folder, whoever joins it to a path.
        (!value.is_empty() && (self.reserved || !value.contains('/'))).then_some(value)
    }
}

/// Splits at the first `separator` that is not at the start.
fn split_first<'a>(text: &'a str, separator: &str) -> Option<(&'a str, &'a str)> {
    let first = text.chars().next()?.len_utf8();
    let end = first + text[first..].find(separator)?;
    Some((&text[..end], &text[end + separator.len()..]))
}

/// What a value says: `%20` is a blank. `None` if it is no UTF-8 then.
fn decode(value: &str) -> Option<Cow<'_, str>> {
    if !value.contains('%') {
        return Some(Cow::Borrowed(value));
    }
    let (mut out, mut rest) = (Vec::with_capacity(value.len()), value.as_bytes());
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'%' {
            let digits = tail.first_chunk::<2>()?;
            let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            out.push(digit(digits[0])? << 4 | digit(digits[1])?);
            rest = &tail[2..];
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(template: &str, uri: &str) -> Option<Vec<String>> {
        let template = Template::parse(template).expect("a template");
        template.values(uri).map(|values| values.into_iter().map(Cow::into_owned).collect())
    }

    fn some(expected: &[&str]) -> Option<Vec<String>> {
        Some(expected.iter().map(|&value| value.into()).collect())
    }

    #[test]
    fn a_uri_comes_from_its_template() {
        assert_eq!(values("stock://{tenant}/{sku}", "stock://acme/widget"), some(&["acme", "widget"]));
        assert_eq!(values("stock://{tenant}/{sku}", "stock://a%2Cb/w%20x"), some(&["a,b", "w x"]));
        assert_eq!(values("file:///{+path}", "file:///a%2Fb"), some(&["a/b"]));
        assert_eq!(values("test://{id}/data", "test://7/data"), some(&["7"]));
        assert_eq!(values("test://{id}-{n}/d", "test://a-b-c/d"), some(&["a", "b-c"]));
        assert_eq!(values("file:///{+path}", "file:///a/b"), some(&["a/b"]));
        assert_eq!(values("file:///{+path}.rs", "file:///a.rs/b.rs"), some(&["a.rs/b"]));
        assert_eq!(values("{+a}x{+b}x", "xxxx"), some(&["x", "x"]));
        assert_eq!(values("plain://x", "plain://x"), some(&[]));
        for (template, uri) in [
            ("stock://{tenant}/{sku}", "stock://acme/"),
            ("stock://{tenant}/{sku}", "stock:///widget"),
            ("stock://{tenant}/{sku}", "stock://acme/widget/x"),
            ("stock://{tenant}/{sku}", "stock://a%2Fb/widget"),
            ("file:///docs/{name}", "file:///docs/..%2F..%2fetc%2Fpasswd"),
            ("stock://{tenant}/{sku}", "stock://acme/w%"),
            ("stock://{tenant}/{sku}", "stock://acme/w%zz"),
            ("stock://{tenant}/{sku}", "stock://acme/w%FF"),
            ("stock://{tenant}/{sku}", "other://acme/widget"),
            ("test://{id}/data", "test://data"),
            ("plain://x", "plain://x/"),
            ("plain://x", "plain://"),
            ("é{a}", "é"),
            ("a{b}a", "aa"),
        ] {
            assert_eq!(values(template, uri), None, "{template} {uri}");
        }
    }

    #[test]
    fn other_templates_are_refused() {
        for bad in ["a{b", "a}b", "a{}", "{a}{b}", "{?q}", "{a,b}", "x{a}y}z", "{#a}"] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }
}
