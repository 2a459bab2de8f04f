//! Output: text for people, JSON for machines.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

/// A text from a ledger, as it may be printed: what could steer a terminal, start a line or turn its direction is spelt
/// out. Callers choose names and keys, and operators read them.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        if steers(letter) { plain.extend(letter.escape_unicode()) } else { plain.push(letter) }
    }
    plain
}

/// Whether it is a control character, or one that changes the direction of what follows.
fn steers(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The same JSON, whose texts are spelt out in the same way.
fn plain_json(json: &str) -> String {
    let mut plain = String::with_capacity(json.len());
    for letter in json.chars() {
        // Outside of its texts JSON has only line breaks of these. None of the others is beyond 16 bits.
        if letter != '\n' && steers(letter) {
            plain.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            plain.push(letter);
        }
    }
    plain
}

/// Prints an answer, as one JSON object or as text.
pub(crate) fn print<T: Serialize>(
    json: bool,
    answer: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Box<dyn Error>> {
    let mut printed = if json { plain_json(&serde_json::to_string_pretty(answer)?) } else { text(answer) };
    if !printed.ends_with('\n') {
        printed.push('\n');
    }
    match io::stdout().lock().write_all(printed.as_bytes()) {
        // Whoever closed the pipe has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Says why a command could not do its work.
pub(crate) fn failed(error: &dyn Error, json: bool) -> ExitCode {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    let line = if json {
        plain_json(&serde_json::json!({ "error": message }).to_string())
    } else {
        format!("error: {}", plain(&message))
    };
    let written = writeln!(io::stderr(), "{line}");
    drop(written);
    ExitCode::from(2)
}

/// A table of two columns or more, aligned.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A time of the ledger, in Unix milliseconds: UTC, to the second. SQLite knows the calendar.
pub(crate) fn time(unix_millis: i64) -> String {
    let date = "SELECT datetime(?1, 'unixepoch') || ' UTC'";
    rusqlite::Connection::open_in_memory()
        .and_then(|conn| conn.query_row(date, [unix_millis.div_euclid(1000)], |row| row.get(0)))
        .unwrap_or_else(|_| format!("{unix_millis} ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_and_what_has_none_is_a_number() {
        assert_eq!(time(1_790_000_000_999), "2026-09-21 14:13:20 UTC");
        assert_eq!(time(-1), "1969-12-31 23:59:59 UTC");
        assert_eq!(time(i64::MAX), format!("{} ms", i64::MAX));
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["a", "bc"], ["def", "g"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "a    bc\ndef  g\n");
    }
}
