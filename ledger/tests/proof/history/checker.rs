//! Decides whether a history can be that of one ledger. A key is a register that is written once, so that a scan in the
//! order of the lines suffices:
//!
//! - its effect is there at most once, and only if a call that could have had it began;
//! - at most one call is told that it was the one (`fresh`), and every replay equals it and each other;
//! - once an answer shows the key, every call that begins later finds it;
//! - no answer shows a key before a call that could have written it began;
//! - a call whose arguments differ from those that won is never answered, and a mismatch needs such a difference.

use std::collections::{BTreeMap, BTreeSet};

/// How much of what was in a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) fresh: usize,
    pub(super) replayed: usize,
    pub(super) mismatch: usize,
    /// Looks that found the key.
    pub(super) seen: usize,
    /// Calls without an answer.
    pub(super) open: usize,
}

/// What is known of a key after some lines.
#[derive(Default)]
struct Register {
    /// The kinds of arguments of the calls that began.
    begun: BTreeSet<usize>,
    /// The result, and the kind of arguments it belongs to.
    value: Option<(i64, usize)>,
    fresh: usize,
    /// Whether an answer showed it.
    shown: bool,
    /// Whether some call may have had the effect.
    possible: bool,
}

/// A call under way.
#[derive(Clone, Copy)]
struct Open {
    number: u64,
    /// The kind of its arguments; none for a look.
    kind: Option<usize>,
    /// Whether an answer had shown the key before it began.
    must_find: bool,
}

/// Checks the lines of a history, and how often each key has its effect in the end.
pub(super) fn check(text: &str, effects: &[(u64, u64)]) -> Result<Report, String> {
    let mut registers: BTreeMap<u64, Register> = BTreeMap::new();
    let mut open: BTreeMap<&str, Open> = BTreeMap::new();
    let mut report = Report::default();
    // A process that was killed may have left half a line, which is no answer.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let (id, what) = line.split_once(' ').ok_or_else(|| format!("no line of a history: {line:?}"))?;
        let words: Vec<_> = what.split(' ').collect();
        if let ["invoke", rest @ ..] = &words[..] {
            let call = begin(&mut registers, rest).ok_or_else(|| format!("no call: {line:?}"))?;
            if open.insert(id, call).is_some() {
                return Err(format!("{line:?}: a call with this name is under way"));
            }
            continue;
        }
        let call = open.remove(id).ok_or_else(|| format!("{line:?}: an answer without a call"))?;
        let register = registers.entry(call.number).or_default();
        answer(register, call, &words, &mut report).map_err(|why| format!("{line:?} of key {}: {why}", call.number))?;
    }
    report.open = open.len();
    open.values().filter(|call| call.kind.is_some()).for_each(|call| {
        registers.entry(call.number).or_default().possible = true;
    });
    in_the_end(&registers, effects)?;
    Ok(report)
}

fn begin(registers: &mut BTreeMap<u64, Register>, words: &[&str]) -> Option<Open> {
    let (number, kind) = match words {
        ["charge", number, kind] => (number.parse().ok()?, Some(kind.parse().ok()?)),
        ["look", number] => (number.parse().ok()?, None),
        _ => return None,
    };
    let register = registers.entry(number).or_default();
    register.begun.extend(kind);
    Some(Open { number, kind, must_find: register.shown })
}

fn answer(register: &mut Register, call: Open, words: &[&str], report: &mut Report) -> Result<(), &'static str> {
    match (words, call.kind) {
        (["ok", how @ ("fresh" | "replayed"), id], Some(kind)) => {
            let id: i64 = id.parse().map_err(|_| "no result")?;
            if register.value.is_some_and(|value| value != (id, kind)) {
                return Err("another answer than that of the call that won");
            }
            if *how == "fresh" {
                register.fresh += 1;
                report.fresh += 1;
                if register.fresh > 1 || call.must_find {
                    return Err("it ran again");
                }
            } else {
                report.replayed += 1;
            }
            (register.value, register.shown, register.possible) = (Some((id, kind)), true, true);
            Ok(())
        }
        (["fail", "mismatch"], Some(kind)) => {
            report.mismatch += 1;
            let others = register.begun.iter().any(|begun| *begun != kind);
            if !others || register.value.is_some_and(|(_, won)| won == kind) {
                return Err("a mismatch without a difference");
            }
            // Whatever won, it is there.
            (register.shown, register.possible) = (true, true);
            Ok(())
        }
        (["fail", "absent"], Some(_)) if call.must_find => Err("it went back: the key was there before"),
        (["fail", "absent" | "busy"], Some(_)) => Ok(()),
        (["info"], _) => {
            register.possible |= call.kind.is_some();
            Ok(())
        }
        (["ok", "there"], None) => {
            report.seen += 1;
            if register.begun.is_empty() {
                return Err("it shows what nobody wrote");
            }
            (register.shown, register.possible) = (true, true);
            Ok(())
        }
        (["ok", "nothing"], None) if call.must_find => Err("it went back: the key was there before"),
        (["ok", "nothing"], None) => Ok(()),
        _ => Err("no answer to this call"),
    }
}

fn in_the_end(registers: &BTreeMap<u64, Register>, effects: &[(u64, u64)]) -> Result<(), String> {
    let effects: BTreeMap<u64, u64> = effects.iter().copied().collect();
    if let Some(number) = effects.keys().find(|number| !registers.contains_key(number)) {
        return Err(format!("key {number} has an effect without a call"));
    }
    for (number, register) in registers {
        let count = effects.get(number).copied().unwrap_or(0);
        match count {
            0 if register.shown => return Err(format!("key {number} was answered and has no effect")),
            1 if !register.possible => return Err(format!("key {number} has an effect, and every call of it failed")),
            0 | 1 => {}
            _ => return Err(format!("key {number} has {count} effects")),
        }
    }
    Ok(())
}

mod tests {
    use super::check;

    /// Keys, each with the number of its effects.
    type Effects = &'static [(u64, u64)];

    /// The history, the effects in the end, and what is said of it; nothing if it is good.
    const HISTORIES: &[(&str, Effects, &str)] = &[
        (
            "a invoke charge 1 0;a ok fresh 5;b invoke charge 1 0;b ok replayed 5;c invoke look 1;c ok there",
            &[(1, 1)],
            "",
        ),
        ("a invoke charge 1 0;b invoke charge 1 0;b ok replayed 5;a ok fresh 5", &[(1, 1)], ""),
        ("a invoke charge 1 0;b invoke look 1;b ok nothing;a ok fresh 5", &[(1, 1)], ""),
        ("a invoke charge 1 0;a fail absent", &[], ""),
        ("a invoke charge 1 0", &[(1, 1)], ""),
        ("a invoke charge 1 0", &[], ""),
        ("a invoke charge 1 0;a info;b invoke look 1;b ok nothing", &[], ""),
        ("a invoke charge 1 0;b invoke charge 1 1;b fail mismatch;a ok fresh 5", &[(1, 1)], ""),
        ("a invoke charge 1 0;a ok fresh 5;b invoke charge 1 0;b ok fresh 6", &[(1, 2)], "another answer"),
        ("a invoke charge 1 0;b invoke charge 1 0;a ok fresh 5;b ok fresh 5", &[(1, 1)], "ran again"),
        ("a invoke charge 1 0;a ok fresh 5", &[(1, 2)], "2 effects"),
        ("a invoke charge 1 0;a ok fresh 5", &[], "has no effect"),
        ("a invoke charge 1 0;a fail absent", &[(1, 1)], "every call of it failed"),
        ("a invoke charge 1 0;a ok fresh 5;b invoke charge 1 0;b ok replayed 6", &[(1, 1)], "another answer"),
        ("a invoke charge 1 0;a ok fresh 5;b invoke charge 1 1;b ok replayed 5", &[(1, 1)], "another answer"),
        ("a invoke charge 1 0;a ok fresh 5;b invoke look 1;b ok nothing", &[(1, 1)], "went back"),
        (
            "a invoke charge 1 0;b invoke look 1;b ok there;a ok fresh 5;c invoke look 1;c ok nothing",
            &[(1, 1)],
            "went back",
        ),
        ("a invoke charge 1 0;a ok fresh 5;b invoke charge 1 0;b fail absent", &[(1, 1)], "went back"),
        ("a invoke look 1;a ok there;b invoke charge 1 0;b ok fresh 5", &[(1, 1)], "nobody wrote"),
        (
            "a invoke charge 1 0;b invoke look 1;b ok there;c invoke charge 1 0;c ok fresh 5;a ok replayed 5",
            &[(1, 1)],
            "ran again",
        ),
        ("a invoke charge 1 0;a fail mismatch", &[], "without a difference"),
        (
            "a invoke charge 1 0;a ok fresh 5;b invoke charge 1 0;c invoke charge 1 1;b fail mismatch",
            &[(1, 1)],
            "without a difference",
        ),
        ("a invoke charge 1 0;a ok fresh 5", &[(1, 1), (2, 1)], "without a call"),
        ("a ok fresh 5", &[(1, 1)], "without a call"),
        ("a invoke charge 1 0;a ok there", &[(1, 1)], "no answer to this call"),
    ];

    #[test]
    fn good_histories_pass_and_broken_ones_are_refused() {
        for (history, effects, expected) in HISTORIES {
            let text = history.replace(';', "\n") + "\n";
            let found = check(&text, effects).err().unwrap_or_default();
            let fits = if expected.is_empty() { found.is_empty() } else { found.contains(expected) };
            assert!(fits, "{history}: {found:?}, expected {expected:?}");
        }
    }

    #[test]
    fn half_a_line_at_the_end_is_no_answer() {
        assert_eq!(check("a invoke charge 1 0\na ok fr", &[(1, 1)]).map(|report| report.open), Ok(1));
    }
}
