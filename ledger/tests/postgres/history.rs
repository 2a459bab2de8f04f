//! What callers in many processes saw of the same keys, and whether one ledger can have told them so.
//!
//! They append to one file: a line before each call and one after its answer. An answer whose line stands before the line of
//! another call was there before that call began. Each effect leaves a row that names the call that ran it, so of each
//! answer it can be told whether it is true.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What a caller heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// This call ran the effect, whose row has this number.
    Fresh(i64),
    /// An earlier call did, or this one, in a commit whose answer was lost.
    Replayed(i64),
    /// This call had no effect, for certain.
    Absent,
    /// Nobody knows.
    Unknown,
    /// A look found the key.
    There,
    /// A look found nothing.
    Nothing,
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh(row) => write!(f, "fresh {row}"),
            Self::Replayed(row) => write!(f, "replayed {row}"),
            Self::Absent => f.write_str("absent"),
            Self::Unknown => f.write_str("unknown"),
            Self::There => f.write_str("there"),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}

impl Heard {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let row = |words: &mut std::str::Split<'_, char>| words.next()?.parse().ok();
        Some(match words.next()? {
            "fresh" => Self::Fresh(row(&mut words)?),
            "replayed" => Self::Replayed(row(&mut words)?),
            "absent" => Self::Absent,
            "unknown" => Self::Unknown,
            "there" => Self::There,
            "nothing" => Self::Nothing,
            _ => return None,
        })
    }
}

/// The row that an effect left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: i64,
    pub(crate) key: String,
    pub(crate) call: String,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Two effects of one key.
    Twice(String),
    /// What was answered is not there.
    Lost(String),
    /// An answer is not what its call did, or names somebody else's effect.
    Untrue(String),
    /// A look did not find what was answered before it began.
    Back(String),
    /// An effect without its key, or a key without its effect.
    Half(String),
    /// A line that no caller writes.
    Unreadable(String),
}

/// How much there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) fresh: usize,
    pub(crate) replayed: usize,
    pub(crate) absent: usize,
    pub(crate) unknown: usize,
    /// Calls whose caller was killed before it heard anything.
    pub(crate) silent: usize,
}

/// Whether one ledger can have told them so that has these rows and these committed keys. Lines are `CALL invoke KEY` and
/// `CALL heard ANSWER`.
pub(crate) fn check(lines: &[String], rows: &[Row], committed: &BTreeSet<String>) -> Result<Counts, Violation> {
    let mut of_key: BTreeMap<&str, &Row> = BTreeMap::new();
    for row in rows {
        if of_key.insert(&row.key, row).is_some() {
            return Err(Violation::Twice(row.key.clone()));
        }
        if !committed.contains(&row.key) {
            return Err(Violation::Half(row.key.clone()));
        }
    }
    if let Some(key) = committed.iter().find(|key| !of_key.contains_key(key.as_str())) {
        return Err(Violation::Half(key.clone()));
    }
    let mut counts = Counts::default();
    // The key of each call that has no answer yet, and whether it was answered for when the call began.
    let mut open: BTreeMap<&str, (&str, bool)> = BTreeMap::new();
    let mut answered: BTreeSet<&str> = BTreeSet::new();
    for line in lines {
        let unreadable = || Violation::Unreadable(line.clone());
        let (call, rest) = line.split_once(' ').ok_or_else(unreadable)?;
        if let Some(key) = rest.strip_prefix("invoke ") {
            if open.insert(call, (key, answered.contains(key))).is_some() {
                return Err(unreadable());
            }
            continue;
        }
        let heard = rest.strip_prefix("heard ").and_then(Heard::parse).ok_or_else(unreadable)?;
        let (key, was_answered) = open.remove(call).ok_or_else(unreadable)?;
        let row = of_key.get(key).copied();
        let lost = || Violation::Lost(format!("{line} of {key}"));
        let untrue = || Violation::Untrue(format!("{line} of {key}: {row:?}"));
        match heard {
            Heard::Fresh(id) => {
                counts.fresh += 1;
                let row = row.ok_or_else(lost)?;
                if row.id != id || row.call != call {
                    return Err(untrue());
                }
            }
            Heard::Replayed(id) => {
                counts.replayed += 1;
                if row.ok_or_else(lost)?.id != id {
                    return Err(untrue());
                }
            }
            Heard::Absent => {
                counts.absent += 1;
                if row.is_some_and(|row| row.call == call) {
                    return Err(untrue());
                }
            }
            Heard::Unknown => counts.unknown += 1,
            Heard::There if row.is_none() => return Err(lost()),
            Heard::There => {}
            Heard::Nothing if was_answered => return Err(Violation::Back(format!("{line} of {key}"))),
            Heard::Nothing => continue,
        }
        if !matches!(heard, Heard::Absent | Heard::Unknown) {
            answered.insert(key);
        }
    }
    counts.silent = open.len();
    Ok(counts)
}

#[test]
fn a_history_that_no_ledger_can_have_told_is_refused() {
    let lines = |text: &str| text.split('\n').map(str::to_owned).collect::<Vec<_>>();
    let row = |id, key: &str, call: &str| Row { id, key: key.to_owned(), call: call.to_owned() };
    let good = lines(
        "a invoke k1\na heard fresh 1\nb invoke k1\nc invoke k2\nb heard replayed 1\nc heard unknown\nd invoke k3\n\
         d heard absent\ne invoke k1\ne heard there\nf invoke k3\nf heard nothing\ng invoke k2",
    );
    let rows = [row(1, "k1", "a"), row(2, "k2", "c")];
    let committed = BTreeSet::from(["k1".to_owned(), "k2".to_owned()]);
    let counts = Counts { fresh: 1, replayed: 1, absent: 1, unknown: 1, silent: 1 };
    assert_eq!(check(&good, &rows, &committed), Ok(counts));

    let found = |lines: &[String], rows: &[Row]| {
        let committed = rows.iter().map(|row| row.key.clone()).chain(["k2".to_owned()]).collect();
        check(lines, rows, &committed).unwrap_err()
    };
    let twice = [row(1, "k1", "a"), row(2, "k2", "c"), row(3, "k1", "b")];
    assert!(matches!(found(&good, &twice), Violation::Twice(_)));
    assert!(matches!(found(&good, &rows[1..]), Violation::Lost(_)));
    assert!(matches!(found(&good, &rows[..1]), Violation::Half(_)), "a key without its effect");
    let half = check(&good, &rows, &BTreeSet::from(["k2".to_owned()]));
    assert!(matches!(half, Err(Violation::Half(_))), "an effect without its key");
    let wrong = |from: &str, to: &str| {
        let changed = lines(&good.join("\n").replace(from, to));
        assert_ne!(changed, good);
        found(&changed, &rows)
    };
    assert!(matches!(wrong("a heard fresh 1", "a heard fresh 9"), Violation::Untrue(_)));
    assert!(matches!(wrong("b heard replayed 1", "b heard replayed 2"), Violation::Untrue(_)));
    assert!(matches!(wrong("b heard replayed 1", "b heard fresh 1"), Violation::Untrue(_)), "two that ran it");
    assert!(matches!(wrong("a heard fresh 1", "a heard absent"), Violation::Untrue(_)), "it is there");
    assert!(matches!(wrong("e heard there", "e heard nothing"), Violation::Back(_)));
    assert!(matches!(wrong("f heard nothing", "f heard there"), Violation::Lost(_)));
    assert!(matches!(wrong("d heard absent", "d heard"), Violation::Unreadable(_)));
    assert!(matches!(wrong("a heard fresh 1\n", "a heard fresh 1\na heard fresh 1\n"), Violation::Unreadable(_)));
}
