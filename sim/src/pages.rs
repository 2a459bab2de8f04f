//! Pages of documentation that are made from the code that decides what they say: a page that differs is out of date.

mod failures;
mod limits;
mod scale;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use steady_core::retry;

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The name of its file.
    pub file: &'static str,
    /// What it must say.
    pub text: String,
}

/// A page whose file says something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Drift {
    /// The file.
    pub file: PathBuf,
    /// The first line that differs; 1 is the first of the file.
    pub line: usize,
    /// What stands there; nothing if the file ends before, or is not there.
    pub found: Option<String>,
    /// What the code says; nothing if the page ends before.
    pub expected: Option<String>,
}

/// The command that writes them.
const WRITE: &str = "cargo run -p mcp-steady-sim --bin steady-sim -- pages --dir docs --write";

/// All of them. The fixtures of the failure table run for it.
///
/// # Errors
/// In words, if a fixture cannot run or does not show what its row would say.
pub fn all() -> Result<Vec<Page>, String> {
    Ok(vec![
        page("retry.md", "Retry matrix", RETRY, &retry::matrix_markdown()),
        page("limits.md", "Limits", LIMITS, &limits::table()),
        page("failures.md", "Failures", FAILURES, &failures::table()?),
        page("scale.md", "Scale", SCALE, &scale::text()),
    ])
}

const FAILURES: &str = "What goes wrong in production. Each row was run twice through the same events, in virtual time: with \
    the code that people write first, and with the shipped machines; one measure judges both. One of them again: \
    `steady-sim failures NAME`.";

const SCALE: &str = "What becomes of a server that a large fleet listens to, when it is lost: what its clients ask of it when they \
    come back, and what gives way first.";

const RETRY: &str = "What a client may do after an attempt that ended without an answer. The contract is what the \
    **caller** states about the operation; hints of the server (`readOnlyHint`, `idempotentHint`) are never read for it. \
    *Never sent* means that the link proved that no byte of the request left. *Reconcile first* means: find out what \
    happened, by the business key or by a read, before anything is sent again. Decided by \
    [`retry::verdict`](../core/src/retry.rs).";

const LIMITS: &str = "Every limit that a program can set, with what happens when it is reached. The defaults are read from \
    the `Default` (or `new`) of the type in the first column. *none* means that there is no limit unless one is set.";

fn page(file: &'static str, title: &str, about: &str, body: &str) -> Page {
    Page {
        file,
        text: format!("# {title}\n\n<!-- Made by `{WRITE}`; do not edit. -->\n\n{about}\n\n{}\n", body.trim_end()),
    }
}

/// Holds the files in `dir` against the pages.
///
/// # Errors
/// If a file is there and cannot be read, with its path.
pub fn check(dir: &Path, pages: &[Page]) -> Result<Vec<Drift>, (PathBuf, io::Error)> {
    let mut drifts = Vec::new();
    for page in pages {
        let path = dir.join(page.file);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => String::new(),
            Err(why) => return Err((path, why)),
        };
        drifts.extend(drift(path, &text, &page.text));
    }
    Ok(drifts)
}

fn drift(file: PathBuf, found: &str, expected: &str) -> Option<Drift> {
    let (mut ours, mut theirs) = (expected.split('\n'), found.split('\n'));
    let mut line = 0;
    loop {
        line += 1;
        match (theirs.next(), ours.next()) {
            (None, None) => return None,
            (found, expected) if found == expected => {}
            (found, expected) => {
                let (found, expected) = (found.map(str::to_owned), expected.map(str::to_owned));
                return Some(Drift { file, line, found, expected });
            }
        }
    }
}

/// Writes the pages into `dir`.
///
/// # Errors
/// If a file cannot be written, with its path.
pub fn write(dir: &Path, pages: &[Page]) -> Result<(), (PathBuf, io::Error)> {
    fs::create_dir_all(dir).map_err(|why| (dir.to_owned(), why))?;
    pages.iter().try_for_each(|page| {
        let path = dir.join(page.file);
        fs::write(&path, &page.text).map_err(|why| (path, why))
    })
}
