//! The pages of `docs` against the code: generated ones must be what the code says, and the glossary's links must lead to
//! the types that they name.

use super::context::Context;
use crate::error::Error;
use crate::process::Command;
use serde_json::Value;
use std::fs;
use std::path::Path;

const GLOSSARY: &str = "docs/glossary.md";
/// The terms that the glossary must have.
const TERMS: usize = 10;

/// The step.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    let command = Command::line("cargo run -p mcp-steady-sim --bin steady-sim -- pages --dir docs --json");
    let done = cx.attempt(&command)?;
    let pages = pages(&done.stdout)?;
    done.checked(&command)?;
    let text = fs::read_to_string(GLOSSARY).map_err(Error::file(GLOSSARY))?;
    let source = |path: &str| fs::read_to_string(Path::new("docs").join(path)).ok();
    Error::unless_empty(glossary(&text, &source))?;
    cx.say(&format!("{pages} generated pages say what the code says; {TERMS} terms lead to their types"));
    Ok(())
}

/// How many pages were held against the code, if none of them drifted.
fn pages(text: &str) -> Result<usize, Error> {
    let answer: Value = serde_json::from_str(text)
        .map_err(|why| Error::check(format!("pages --json does not print one JSON value: {why}")))?;
    let list = |name: &str| answer.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    Error::unless_empty(list("drifts").iter().map(|drift| format!("a page drifted: {drift}")).collect())?;
    match (list("pages").len(), answer.get("holds")) {
        (0, _) => Err(Error::check("no page was held against the code")),
        (pages, Some(Value::Bool(true))) => Ok(pages),
        (_, verdict) => Err(Error::check(format!("pages --json says {verdict:?}"))),
    }
}

/// What is wrong with the glossary: too few terms, or a term without a link to a file that names its type.
fn glossary(text: &str, source: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let terms: Vec<&str> = text.split("\n\n").filter(|paragraph| paragraph.starts_with("**")).collect();
    let mut findings = Vec::new();
    if terms.len() != TERMS {
        findings.push(format!("{GLOSSARY}: {} terms instead of {TERMS}", terms.len()));
    }
    for term in terms {
        let title = term.split("**").nth(1).unwrap_or_default();
        let links: Vec<(&str, &str)> = term.split("[`").skip(1).filter_map(link).collect();
        if links.is_empty() {
            findings.push(format!("{GLOSSARY}: {title} links to no type"));
        }
        for (name, path) in links {
            // Some ids are declared by a macro, so the name alone has to do.
            let word = |text: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
            if !source(path).is_some_and(|text| word(&text)) {
                findings.push(format!("{GLOSSARY}: {title}: {path} does not name {name}"));
            }
        }
    }
    findings
}

/// Name and path of a link to a type, from behind its "[`".
fn link(rest: &str) -> Option<(&str, &str)> {
    let (name, rest) = rest.split_once("`](")?;
    Some((name, rest.split(')').next()?))
}

#[cfg(test)]
mod tests {
    use super::{TERMS, glossary, pages};

    #[test]
    fn a_drifted_page_and_a_run_of_nothing_fail() {
        assert_eq!(pages(r#"{"holds":true,"pages":["a.md","b.md"],"drifts":[]}"#).unwrap(), 2);
        for bad in [
            r#"{"holds":false,"pages":["a.md"],"drifts":[{"file":"docs/a.md","line":3}]}"#,
            r#"{"holds":true,"pages":[],"drifts":[]}"#,
            r#"{"pages":["a.md"],"drifts":[]}"#,
            "no JSON",
        ] {
            assert!(pages(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_term_must_lead_to_a_file_that_names_its_type() {
        let term = |link: &str| format!("**Term** ({link}). Words.");
        let text = |last: &str| {
            let good = vec![term("[`Attempt`](../core/src/id.rs)"); TERMS - 1];
            format!("# Glossary\n\n{}\n\n{last}\n", good.join("\n\n"))
        };
        let source = |path: &str| (path == "../core/src/id.rs").then(|| "pub struct Attempt(u16);".to_string());
        assert_eq!(glossary(&text(&term("[`Attempt`](../core/src/id.rs)")), &source), [""; 0]);
        for bad in [
            term("[`Attempts`](../core/src/id.rs)"),
            term("[`Attempt`](../core/src/gone.rs)"),
            term("no link"),
            String::new(),
        ] {
            assert_eq!(glossary(&text(&bad), &source).len(), 1, "{bad}");
        }
    }
}
