//! Reads a design from TOML or JSON; an error names the place, and the member that was probably meant.

use std::time::Duration;

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
        let design: Self = read.map_err(|why| DesignError(with_hint(&why)))?;
        match nonsense(&design) {
            None => Ok(design),
            Some((table, member, why)) => {
                let line = line_of(text, table, member).map_or_else(String::new, |line| format!("line {line}: "));
                Err(DesignError(format!("{line}{table}.{member} {why}")))
            }
        }
    }
}

/// A number with which nothing could ever run: its table, its name, and why.
fn nonsense(design: &Design) -> Option<(&'static str, &'static str, &'static str)> {
    const ENDS: &str = "is zero: every call would end at once; leave it out for the default, or write \"none\"";
    let zero = |limit: Option<Duration>| limit.is_some_and(|limit| limit.is_zero());
    let (timeouts, retry) = (&design.timeouts, &design.retry);
    let proxy = design.transport.proxy.as_ref();
    [
        (zero(timeouts.idle), "timeouts", "idle", ENDS),
        (zero(timeouts.max), "timeouts", "max", ENDS),
        (zero(timeouts.server), "timeouts", "server", ENDS),
        (retry.attempts == 0, "retry", "attempts", "is 0: the first attempt counts, so 1 is the least"),
        (retry.cap < retry.base, "retry", "cap", "is below retry.base: a pause's last ceiling is at least its first"),
        (
            design.idempotency.as_ref().is_some_and(|key| key.replicas == 0),
            "idempotency",
            "replicas",
            "is 0: nothing would serve the operation; 1 is the least",
        ),
        (
            zero(design.queue.write_stall),
            "queue",
            "write_stall",
            "is zero: every write would count as stalled; write a length, or \"none\"",
        ),
        (
            zero(proxy.and_then(|proxy| proxy.idle_timeout)),
            "transport.proxy",
            "idle_timeout",
            "is zero: the proxy would cut every stream at once; write a length, or \"none\"",
        ),
    ]
    .into_iter()
    .find_map(|(wrong, table, member, why)| wrong.then_some((table, member, why)))
}

/// The line of a member in TOML, in its table or with the table's name in front; none in JSON.
fn line_of(text: &str, table: &str, member: &str) -> Option<usize> {
    let mut current = String::new();
    text.lines().zip(1..).find_map(|(line, number)| {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            name.trim().clone_into(&mut current);
        }
        let name = line.split_once('=')?.0.trim();
        let dotted = if current.is_empty() { name.to_owned() } else { format!("{current}.{name}") };
        (dotted.strip_prefix(table)?.strip_prefix('.')? == member).then_some(number)
    })
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
    fn numbers_with_which_nothing_could_run_are_refused() {
        let cases = [
            ("[timeouts]\nidle = \"0s\"\n", "line 5: timeouts.idle is zero"),
            ("[timeouts]\n\nmax = \"0ms\"\n", "line 6: timeouts.max is zero"),
            ("[timeouts]\nserver = \"0s\"\n", "line 5: timeouts.server is zero"),
            ("[retry]\nattempts = 0\n", "line 5: retry.attempts is 0"),
            ("[retry]\nbase = \"10s\"\ncap = \"0s\"\n", "line 6: retry.cap is below retry.base"),
            ("[retry]\nbase = \"10s\"\n", "retry.cap is below retry.base"),
            ("[queue]\nwrite_stall = \"0s\"\n", "line 5: queue.write_stall is zero"),
            ("[transport]\nproxy.idle_timeout = \"0s\"\n", "line 5: transport.proxy.idle_timeout is zero"),
            ("[transport.proxy]\nidle_timeout = \"0s\"\n", "line 5: transport.proxy.idle_timeout is zero"),
            (
                "[idempotency]\nkey = \"business\"\nstore = \"sqlite\"\nboundary = \"one_transaction\"\nreplicas = 0\n",
                "line 8: idempotency.replicas is 0",
            ),
        ];
        for (text, expected) in cases {
            let text = format!("[operation]\nname = \"a\"\neffect = \"read\"\n{text}");
            let why = Design::parse(&text).unwrap_err().to_string();
            assert!(why.starts_with(expected), "{text}: {why}");
        }
        let json = r#"{"operation":{"name":"a","effect":"read"},"retry":{"attempts":0}}"#;
        assert!(Design::parse(json).unwrap_err().to_string().starts_with("retry.attempts is 0"));
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
