//! Reads a design from TOML or JSON; an error names the place, and the member that was probably meant.

use super::Design;

/// Why a text is no design.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DesignError(String);

impl Design {
    /// Reads a design: TOML, or JSON if it begins with a brace.
    ///
    /// # Errors
    /// [`DesignError`] with the line, and for an unknown member the one that was probably meant.
    pub fn parse(text: &str) -> Result<Self, DesignError> {
        let read = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| error.to_string())
        } else {
            toml::from_str(text).map_err(|error: toml::de::Error| {
                let at = error.span().map_or(0, |span| span.start);
                let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
                format!("line {line}: {}", error.message())
            })
        };
        read.map_err(|why| DesignError(with_hint(&why)))
    }
}

/// Adds the member that was probably meant to an error about an unknown one.
fn with_hint(why: &str) -> String {
    let mut quoted = why.split('`').skip(1).step_by(2);
    let unknown = (why.contains("unknown field") || why.contains("unknown variant")).then(|| quoted.next()).flatten();
    let near = unknown.and_then(|word| quoted.find(|known| crate::suggest::is_near(word, known)));
    near.map_or_else(|| why.to_owned(), |near| format!("{why}; did you mean `{near}`?"))
}

/// A length of time, as `30s`.
pub(super) mod length {
    use std::time::Duration;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer};

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(input)?;
        crate::experiment::parse_duration(&text).map_err(D::Error::custom)
    }
}

/// A length of time, or `none`.
pub(super) mod optional {
    use std::time::Duration;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer};

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
        let text = String::deserialize(input)?;
        if text == "none" {
            return Ok(None);
        }
        crate::experiment::parse_duration(&text).map(Some).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::Design;

    #[test]
    fn errors_name_the_line_and_what_was_probably_meant() {
        let cases = [
            ("[operation]\nname = \"a\"\nefect = \"read\"\n", "line 3: ", "did you mean `effect`?"),
            ("[operation]\nname = \"a\"\neffect = \"mutate\"\n", "line 3: ", "expected `read` or `mutation`"),
            ("[operation]\nname = \"a\"\neffect = \"read\"\n[timeout]\n", "line 4: ", "did you mean `timeouts`?"),
            (
                "[operation]\nname = \"a\"\neffect = \"read\"\n[timeouts]\nidle = \"soon\"\n",
                "line 5: ",
                "`soon` is no length of time",
            ),
            ("[operation]\nname = \"a\"\n", "line 1: ", "missing field `effect`"),
            ("{\"operation\":{\"name\":\"a\",\"efect\":\"read\"}}", "at line 1 column 32", "did you mean `effect`?"),
        ];
        for (text, place, hint) in cases {
            let why = Design::parse(text).unwrap_err().to_string();
            assert!(why.contains(place) && why.contains(hint), "{why}");
        }
    }

    #[test]
    fn toml_and_json_say_the_same() {
        let toml = Design::parse("[operation]\nname = \"a\"\neffect = \"read\"\n[timeouts]\nmax = \"none\"\n").unwrap();
        let json = r#"{"operation":{"name":"a","effect":"read"},"timeouts":{"max":"none"}}"#;
        let json = Design::parse(json).unwrap();
        assert_eq!(format!("{toml:?}"), format!("{json:?}"));
        assert_eq!(toml.timeouts.max, None);
    }
}
