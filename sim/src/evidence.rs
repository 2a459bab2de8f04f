//! Evidence: what the shipped machines do where a reliability layer is usually wrong, as files for machines.
//!
//! Each [`Source`] makes one file from the machines, the kernel and a real ledger file in virtual time. No clock, no
//! randomness and no path of this machine is in it, so two runs write the same bytes. A file names the command that makes
//! it anew. What cannot be made is an error, and its file of an earlier run is gone by then.

mod key;
mod pressure;
mod race;
mod reconnect;
mod retry;
mod same_key;
mod shop;
mod task;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::demo::{Claim, Section};

/// What a file of the evidence is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Record {
    /// What happened, and the claims that were checked.
    pub section: Section,
    /// The same for programs.
    pub data: Value,
}

/// Something that makes a file of the evidence.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a test brings sources of its own")]
pub struct Source {
    /// The name of the file, without `.json`.
    pub name: &'static str,
    /// Which demand of the readiness verdict it answers, if any.
    pub gate: Option<&'static str>,
    /// Makes it. Scratch files go into the folder.
    pub make: fn(&Path) -> Result<Record, Failure>,
}

/// Why a record could not be made.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// All of them.
pub const SOURCES: [Source; 9] = [
    Source { name: "cancel-race-stdio", gate: Some("late cancellation"), make: race::stdio },
    Source { name: "cancel-race-http", gate: Some("late cancellation"), make: race::http },
    Source { name: "lost-response", gate: Some("lost response"), make: retry::lost_response },
    Source { name: "retry-table", gate: None, make: retry::table },
    Source { name: "key-record", gate: None, make: key::record },
    Source { name: "same-key", gate: None, make: same_key::record },
    Source { name: "buffer-overload", gate: Some("slow consumer"), make: pressure::record },
    Source { name: "reconnect", gate: Some("reconnect herd"), make: reconnect::record },
    Source { name: "task-cancel", gate: None, make: task::record },
];

/// A file that was written.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Written {
    /// Its name.
    pub file: String,
    /// What it is about.
    pub title: String,
    /// Which demand of the readiness verdict it answers.
    pub gate: Option<&'static str>,
    /// Whether every claim in it holds.
    pub holds: bool,
    /// How many claims that are.
    pub claims: usize,
}

/// A file as it is written.
#[derive(Serialize)]
struct Sheet<'a> {
    title: &'a str,
    regenerate: String,
    version: &'static str,
    gate: Option<&'static str>,
    holds: bool,
    claims: &'a [Claim],
    events: &'a [String],
    record: &'a Value,
}

/// Why there is no evidence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvidenceError {
    /// These could not be made, and why.
    #[error("not made: {}", .0.join("; "))]
    NotMade(Vec<String>),
    /// A file or a folder.
    #[error("{}: {why}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
}

/// The command that makes this file anew.
#[must_use]
pub fn command(name: &str) -> String {
    format!("cargo run -p mcp-steady-sim --bin steady-sim -- evidence --out target/evidence --only {name}")
}

/// Writes the files of these sources into `out`, which is made if need be.
///
/// # Errors
/// [`EvidenceError`] if a file cannot be written, or a source makes none, or one without a claim; the others are written.
pub fn write(sources: &[Source], out: &Path) -> Result<Vec<Written>, EvidenceError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |why| EvidenceError::File { path, why }
    };
    fs::create_dir_all(out).map_err(at(out))?;
    let (mut written, mut broken) = (Vec::new(), Vec::new());
    for source in sources {
        let path = out.join(format!("{}.json", source.name));
        match fs::remove_file(&path) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(at(&path)(why)),
            Ok(()) | Err(_) => {}
        }
        let scratch = tempfile::tempdir().map_err(at(&std::env::temp_dir()))?;
        match (source.make)(scratch.path()) {
            Ok(record) if record.section.claims.is_empty() => {
                broken.push(format!("{}: it claims nothing, so it shows nothing", source.name));
            }
            Ok(record) => {
                let sheet = sheet(source, &record);
                let text = serde_json::to_string_pretty(&sheet).map_err(|why| at(&path)(why.into()))?;
                fs::write(&path, text + "\n").map_err(at(&path))?;
                written.push(Written {
                    file: format!("{}.json", source.name),
                    title: sheet.title.to_owned(),
                    gate: sheet.gate,
                    holds: sheet.holds,
                    claims: sheet.claims.len(),
                });
            }
            Err(why) => broken.push(format!("{}: {why}", source.name)),
        }
    }
    if broken.is_empty() { Ok(written) } else { Err(EvidenceError::NotMade(broken)) }
}

fn sheet<'a>(source: &Source, record: &'a Record) -> Sheet<'a> {
    let Section { title, events, claims } = &record.section;
    Sheet {
        title,
        regenerate: command(source.name),
        version: env!("CARGO_PKG_VERSION"),
        gate: source.gate,
        holds: claims.iter().all(|claim| claim.holds),
        claims,
        events,
        record: &record.data,
    }
}
