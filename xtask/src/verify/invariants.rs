//! The invariants, both ways: an id that a machine of core declares has a
//! checker, that checker is called by a test and refuses a wrong value, and no
//! text cites an id that nobody declares.
//!
//! - **Declared:** in the `//!` doc of a source file, in the paragraph or list
//!   that opens with `Invariants:` or `Invariant:`, an id in backticks at the
//!   start of a statement.
//! - **Checked:** a function of `core/tests/support/invariants`, named after the
//!   id (`req_1_…`), with the id in its doc.
//! - **Cited:** three capitals or more, a dash, one or two digits, in any Rust or
//!   Markdown file.

use super::context::Context;
use super::tidy::{files_that_end, relative};
use crate::error::Error;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Whose invariants need checkers.
const MACHINES: &str = "core/src/";
/// Where the checkers are.
const HOME: &str = "core/tests/support/invariants/";
/// Where each refuses a wrong value.
const REFUSED: &str = "core/tests/invariants/refused.rs";
/// This file and its tests speak of ids that are none.
const SELF: &str = "xtask/src/verify/invariants.rs";
/// What looks like an id and is the name of something else.
const NOT_IDS: [&str; 1] = ["UTF"];

/// The step.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    let root = &cx.workspace.root;
    let mut files = Vec::new();
    for path in files_that_end(root, &["rs", "md"])? {
        let name = relative(&path, root);
        if name != SELF {
            files.push((name, fs::read_to_string(&path).map_err(Error::file(&path))?));
        }
    }
    let survey = Survey::of(&files);
    cx.say(&format!("{} invariants of core, {} checkers", survey.machines().count(), survey.checkers.len()));
    Error::unless_empty(survey.findings())
}

/// A function of the checkers' home.
#[derive(Debug)]
struct Checker {
    name: String,
    id: String,
    /// Whether its doc names the id.
    documented: bool,
}

/// What the files say.
#[derive(Debug, Default)]
struct Survey {
    /// Each id with the files that declare it.
    declared: BTreeMap<String, Vec<String>>,
    checkers: Vec<Checker>,
    /// Each cited id with a file and line.
    cited: BTreeMap<String, String>,
    /// Checkers that a test calls.
    called: BTreeSet<String>,
    /// Checkers that are shown to refuse something.
    refused: BTreeSet<String>,
}

impl Survey {
    fn of(files: &[(String, String)]) -> Self {
        let mut survey = Self::default();
        for (name, text) in files {
            for id in declarations(text) {
                survey.declared.entry(id).or_default().push(name.clone());
            }
            for (index, line) in text.lines().enumerate() {
                for id in ids(line) {
                    survey.cited.entry(id).or_insert_with(|| format!("{name}:{}", index + 1));
                }
            }
            if name.starts_with(HOME) {
                survey.checkers.extend(checkers(text));
            }
        }
        for (name, text) in files {
            let seen = if name == REFUSED { &mut survey.refused } else { &mut survey.called };
            let called = survey.checkers.iter().filter(|checker| names(text, &checker.name, name == REFUSED));
            if !name.starts_with(HOME) {
                seen.extend(called.map(|checker| checker.name.clone()));
            }
        }
        survey
    }

    fn machines(&self) -> impl Iterator<Item = (&String, &Vec<String>)> {
        self.declared.iter().filter(|(_, files)| files.iter().any(|file| file.starts_with(MACHINES)))
    }

    fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        for (id, files) in self.machines() {
            if !self.checkers.iter().any(|checker| checker.id == *id) {
                findings.push(format!("{}: {id} has no checker: add a function to {HOME}", files[0]));
            }
        }
        for Checker { name, id, documented } in &self.checkers {
            if !self.declared.contains_key(id) {
                findings.push(format!("{HOME}: {name} checks {id}, which no machine declares"));
            } else if !documented {
                findings.push(format!("{HOME}: the doc of {name} does not name `{id}`"));
            }
            if !self.called.contains(name) {
                findings.push(format!("{HOME}: no test calls {name}"));
            }
            if !self.refused.contains(name) {
                findings.push(format!("{REFUSED}: nothing shows that {name} can fail"));
            }
        }
        let unknown = self.cited.iter().filter(|(id, _)| !self.declared.contains_key(*id));
        findings.extend(unknown.map(|(id, place)| format!("{place}: cites {id}, which no module declares")));
        findings
    }
}

/// The ids that a module's doc declares.
fn declarations(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block = String::new();
    let doc = source.lines().take_while(|line| line.starts_with("//!")).map(|line| line[3..].trim());
    for line in doc.chain([""]) {
        if line.is_empty() {
            found.extend(statements(&block));
            block.clear();
        } else if !block.is_empty() || line.starts_with("Invariants:") || line.starts_with("Invariant:") {
            block.push_str(line);
            block.push(' ');
        }
    }
    found
}

/// The ids in a block that begin a statement: after a colon, a semicolon or the dash of a list.
fn statements(block: &str) -> Vec<String> {
    let pieces: Vec<&str> = block.split('`').collect();
    let mut found = Vec::new();
    for (index, piece) in pieces.iter().enumerate().skip(1).step_by(2) {
        let begins = pieces[index - 1].trim_end().ends_with([':', ';', '-']);
        if begins && ids(piece).first().is_some_and(|id| id == piece) {
            found.push(piece.to_string());
        }
    }
    found
}

/// What looks like the id of an invariant.
fn ids(line: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_id = |word: &&str| {
        let Some((prefix, number)) = word.split_once('-') else { return false };
        let capitals = prefix.len() >= 3 && prefix.chars().all(|c| c.is_ascii_uppercase());
        let digits = (1..=2).contains(&number.len()) && number.chars().all(|c| c.is_ascii_digit());
        capitals && digits && !NOT_IDS.contains(&prefix)
    };
    line.split(|c| !is_part(c)).filter(is_id).map(String::from).collect()
}

/// The checkers of a file: functions whose name begins with an id, each with its doc.
fn checkers(source: &str) -> Vec<Checker> {
    let mut found = Vec::new();
    let mut doc = String::new();
    for line in source.lines() {
        if let Some(text) = line.strip_prefix("///") {
            doc.push_str(text);
        } else if let Some(rest) = line.strip_prefix("pub(crate) fn ") {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if let Some(id) = id_of(&name) {
                let documented = doc.contains(&format!("`{id}`"));
                found.push(Checker { name, id, documented });
            }
            doc.clear();
        } else if !line.starts_with("#[") {
            doc.clear();
        }
    }
    found
}

/// `req_1_one_terminal_state` is about `REQ-1`.
fn id_of(name: &str) -> Option<String> {
    let mut words = name.splitn(3, '_');
    let (prefix, number, rest) = (words.next()?, words.next()?, words.next()?);
    let id = format!("{}-{number}", prefix.to_uppercase());
    (!rest.is_empty() && ids(&id).first() == Some(&id)).then_some(id)
}

/// Whether the text calls the checker; in the table of refusals, whether it has a row.
fn names(text: &str, checker: &str, row: bool) -> bool {
    let after = if row { ':' } else { '(' };
    text.match_indices(checker).any(|(at, _)| {
        let whole = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        whole && text[at + checker.len()..].starts_with(after)
    })
}

#[cfg(test)]
mod tests {
    use super::{Survey, checkers, declarations, ids, names};

    const LINE: &str = "//! A machine.\n//!\n//! Invariants: `AAA-1` one end (rule X1); `AAA-2` at most one\n\
        //! permit (see `BBB-9`); `AAA-3` silence.\n//!\n//! `CCC-1` is only spoken of.\n\nconst X: &str = \"\";\n";
    const LIST: &str =
        "//! A machine.\n//!\n//! Invariants:\n//! - `AAA-1` one; and\n//!   more of it;\n//! - `AAA-2` two.\n";

    #[test]
    fn declarations_are_read_from_a_paragraph_and_from_a_list() {
        assert_eq!(declarations(LINE), ["AAA-1", "AAA-2", "AAA-3"]);
        assert_eq!(declarations(LIST), ["AAA-1", "AAA-2"]);
        assert_eq!(declarations("//! Invariant: `DDD-4` stays.\n"), ["DDD-4"]);
        assert_eq!(declarations("//! No more.\n\n//! Invariants: `AAA-1` too late.\n"), [""; 0]);
        assert_eq!(declarations("// Invariants: `AAA-1` is no doc.\n"), [""; 0]);
    }

    #[test]
    fn an_id_is_capitals_a_dash_and_a_number() {
        assert_eq!(ids("AAA-1, (BBB-22): `CCC-3`..`CCC-5`\"DDD-4 x\""), ["AAA-1", "BBB-22", "CCC-3", "CCC-5", "DDD-4"]);
        for none in ["UTF-8", "SHA-256", "AA-1", "Aaa-1", "AAA-1-2", "X-AAA-1", "AAA-x", "AAA_1", "xAAA-1"] {
            assert_eq!(ids(none), [""; 0], "{none}");
        }
    }

    #[test]
    fn checkers_are_known_by_name_and_doc() {
        let source = "/// `AAA-1` one.\n/// More.\n#[track_caller]\npub(crate) fn aaa_1_one(x: u8) {}\n\n\
            /// Two.\npub(crate) fn aaa_2_two<T>() {}\n\npub(crate) fn helper() {}\nfn aaa_3_private() {}\n";
        let found = checkers(source);
        let read: Vec<_> = found.iter().map(|c| (c.name.as_str(), c.id.as_str(), c.documented)).collect();
        assert_eq!(read, [("aaa_1_one", "AAA-1", true), ("aaa_2_two", "AAA-2", false)]);
    }

    #[test]
    fn an_import_is_no_call() {
        assert!(names("  aaa_1_one(1);", "aaa_1_one", false));
        assert!(!names("use invariants::{aaa_1_one, x};", "aaa_1_one", false));
        assert!(!names("baaa_1_one(1)", "aaa_1_one", false));
        assert!(names("    aaa_1_one: (1), not (2);", "aaa_1_one", true));
        assert!(!names("aaa_1_one(1)", "aaa_1_one", true));
    }

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
        Survey::of(&files).findings()
    }

    const MACHINE: (&str, &str) = ("core/src/a.rs", "//! Invariants: `AAA-1` one.\n");
    const CHECKER: (&str, &str) =
        ("core/tests/support/invariants/a.rs", "/// `AAA-1` one.\npub(crate) fn aaa_1_one() {}\n");
    const CALL: (&str, &str) = ("core/tests/a.rs", "fn test() { aaa_1_one(); }\n");
    const ROW: (&str, &str) = ("core/tests/invariants/refused.rs", "aaa_1_one: (1), not (2);\n");

    #[test]
    fn both_ways_hold_or_say_what_is_missing() {
        assert_eq!(findings(&[MACHINE, CHECKER, CALL, ROW]), [""; 0]);
        assert_eq!(findings(&[MACHINE]).len(), 1);
        assert!(findings(&[MACHINE])[0].starts_with("core/src/a.rs: AAA-1 has no checker"));
        assert!(findings(&[MACHINE, CHECKER, ROW])[0].ends_with("no test calls aaa_1_one"));
        assert!(findings(&[MACHINE, CHECKER, CALL])[0].ends_with("nothing shows that aaa_1_one can fail"));
        let orphan = findings(&[CHECKER, CALL, ROW]);
        assert!(orphan[0].contains("which no machine declares"), "{orphan:?}");
        let silent = ("core/tests/support/invariants/a.rs", "pub(crate) fn aaa_1_one() {}\n");
        assert!(findings(&[MACHINE, silent, CALL, ROW])[0].contains("does not name `AAA-1`"));
    }

    #[test]
    fn a_citation_of_nothing_is_found_and_others_need_no_checker() {
        let readme = ("README.md", "It holds.\nSee `AAA-2`.\n");
        assert_eq!(
            findings(&[MACHINE, CHECKER, CALL, ROW, readme]),
            ["README.md:2: cites AAA-2, which no module declares"]
        );
        let other = ("transport-http/src/b.rs", "//! Invariants: `BBB-1` one.\n");
        assert_eq!(findings(&[other]), [""; 0]);
    }
}
