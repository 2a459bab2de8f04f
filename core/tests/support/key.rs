//! The state of a machine as a text for search: what `Debug` shows, with times relative and identifiers by their rank.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Write};

/// What the next number in the text is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Number {
    Plain,
    Time,
    Forgotten,
    Call,
    Wire,
}

struct Key<'a> {
    out: String,
    now: u64,
    next: Number,
    ids: BTreeMap<(Number, String), usize>,
    /// Members from the first to before the second count.
    members: (&'a str, &'a str),
    counts: bool,
}

/// The members of `machine` from the one named `from` to before the one named `to`. `Instant`s count from `now` and stop
/// at zero, generations and progress values are forgotten, call and wire ids become their rank.
pub(crate) fn key(machine: &impl Debug, (from, to): (&str, &str), now: u64) -> String {
    let members = (from, to);
    let mut key = Key { out: String::new(), now, next: Number::Plain, ids: BTreeMap::new(), members, counts: false };
    write!(key, "{machine:?}").expect("writing to a String");
    key.out
}

impl Write for Key<'_> {
    /// `Debug` hands over names, punctuation and numbers in pieces of their own.
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if piece == self.members.0 {
            self.counts = true;
        } else if piece == self.members.1 {
            self.counts = false;
        }
        if !self.counts {
            return Ok(());
        }
        if piece.as_bytes().first().is_some_and(u8::is_ascii_digit) {
            match self.next {
                Number::Plain => self.out.push_str(piece),
                Number::Forgotten => {}
                Number::Time => {
                    let time: u64 = piece.parse().map_err(|_| fmt::Error)?;
                    write!(self.out, "{}", time.saturating_sub(self.now))?;
                }
                Number::Call | Number::Wire => {
                    let rank = self.ids.len();
                    let rank = *self.ids.entry((self.next, piece.to_owned())).or_insert(rank);
                    write!(self.out, "{rank}")?;
                }
            }
            self.next = Number::Plain;
            return Ok(());
        }
        self.next = match piece {
            "Instant" => Number::Time,
            "generation" | "Progress" => Number::Forgotten,
            "CallId" => Number::Call,
            "WireId" => Number::Wire,
            "(" | ": " => self.next,
            _ => Number::Plain,
        };
        self.out.push_str(piece);
        Ok(())
    }
}
