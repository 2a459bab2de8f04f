//! Reports on standard output: for people, in colour on a terminal only, or as JSON.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use steady_sim::demo::{Report, Section};
use steady_sim::swarm::Violation;

/// Says that a command could not do its work. Exit code 2, as for a wrong command line.
#[expect(clippy::print_stderr, reason = "errors of a command go to standard error")]
pub(crate) fn failed(why: &str) -> ExitCode {
    eprintln!("error: {why}");
    ExitCode::from(2)
}

/// Prints a report; exit code 1 if a claim does not hold.
pub(crate) fn report(report: &Report, json: bool, verbose: bool) -> ExitCode {
    let mut out = io::stdout().lock();
    let printed = if json {
        self::json(&mut out, &Json { holds: report.holds(), report })
    } else {
        let paint = Paint(out.is_terminal());
        people(&mut out, report, paint, verbose)
    };
    exit(printed, report.holds())
}

/// Prints one JSON value for machines.
pub(crate) fn json(out: &mut impl Write, value: &impl serde::Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    writeln!(out, "{text}")
}

/// How a command ends that has printed what it found.
pub(crate) fn exit(printed: io::Result<()>, holds: bool) -> ExitCode {
    match printed {
        Ok(()) if !holds => ExitCode::FAILURE,
        printed => finished(printed),
    }
}

/// The exit code of a command whose work ends with printing.
pub(crate) fn finished(printed: io::Result<()>) -> ExitCode {
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever closed the pipe has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => failed(&format!("cannot write: {error}")),
    }
}

/// A broken promise in one line.
pub(crate) fn violation(violation: &Violation) -> String {
    let check = serde_json::to_value(violation.check).unwrap_or_default();
    format!("{} at {} ms: {}", check.as_str().unwrap_or_default(), violation.at / 1_000_000, violation.what)
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads a file that a person wrote, or standard input for `-`: at most `longest` bytes, in UTF-8. A byte
/// order mark is skipped.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn read_text(file: &Path, longest: u64) -> Result<String, String> {
    let source: Box<dyn Read> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(file).map_err(|error| format!("cannot be opened: {error}"))?)
    };
    let mut bytes = Vec::new();
    source.take(longest + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > longest {
        return Err(format!("it is longer than {longest} bytes"));
    }
    // Some editors begin a file with it.
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    String::from_utf8(bytes).map_err(|error| {
        let line =
            error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line}: it is not UTF-8")
    })
}

#[derive(serde::Serialize)]
struct Json<'a> {
    holds: bool,
    #[serde(flatten)]
    report: &'a Report,
}

#[derive(Clone, Copy)]
pub(crate) struct Paint(pub(crate) bool);

impl Paint {
    pub(crate) fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Longest line of an event, in characters; `--verbose` shows all of it.
const EVENT_WIDTH: usize = 150;

fn people(out: &mut impl Write, report: &Report, paint: Paint, verbose: bool) -> io::Result<()> {
    for Section { title, events, claims, .. } in &report.sections {
        writeln!(out, "{}", paint.with("1", title))?;
        for event in events {
            let shown: String = if verbose || event.chars().count() <= EVENT_WIDTH {
                event.clone()
            } else {
                event.chars().take(EVENT_WIDTH - 1).chain(['…']).collect()
            };
            writeln!(out, "  {}", paint.with("2", &shown))?;
        }
        for claim in claims {
            let mark = if claim.holds { paint.with("32", "holds") } else { paint.with("31", "FAILS") };
            writeln!(out, "  {mark}  {} ({})", claim.text, claim.found)?;
        }
        writeln!(out)?;
    }
    let claims = report.sections.iter().flat_map(|section| &section.claims);
    let (held, all) = (claims.clone().filter(|claim| claim.holds).count(), claims.count());
    writeln!(out, "{held} of {all} claims hold")
}
