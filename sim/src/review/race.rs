//! The race table: each race of the operation's request, as the shipped client and kernel decide it in virtual time.

use std::time::Duration;

use serde::Serialize;
use steady_core::client;
use steady_core::retry::Safety;

use super::Design;
use super::design::{Automatic, TransportKind};
use crate::experiment::{self, Limit, Promise, Row, Script, Step};

/// One race and its one outcome.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Race {
    /// What races.
    pub race: &'static str,
    /// What became of the request.
    #[serde(flatten)]
    pub row: Row,
    /// The steps, as `steady-sim lab --script` runs them.
    pub script: String,
}

/// How far apart two events are that do not race.
const APART: Duration = Duration::from_millis(20);
/// Longer than the client's first pause between two attempts.
const LATER: Duration = Duration::from_millis(300);
/// Less than the way of a message: what is under way has not arrived.
const CLOSE: Duration = Duration::from_micros(500);
/// The longest limit that is played.
const LONGEST: Duration = Duration::from_secs(600);
/// The shortest: all that a race does besides fits into it.
const SHORTEST: Duration = Duration::from_secs(1);
/// How often the shorter limit goes into the longer one, at most: so many times two reports a script has.
const RATIO: u32 = 200;
/// The unit of a script.
const UNIT: Duration = Duration::from_micros(1);

/// The two limits as they are played. What happens depends on their order, and not on their length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) idle: Option<Duration>,
    pub(super) max: Option<Duration>,
}

impl Limits {
    /// Both by one factor, after a ratio that would take too many steps is cut.
    pub(super) fn of(design: &Design) -> Self {
        let (idle, max) = (design.timeouts.idle, design.timeouts.max);
        let idle_first = matches!((idle, max), (Some(idle), Some(max)) if idle < max);
        let bounded = |limit: Option<Duration>, other: Option<Duration>| {
            limit.map(|limit| other.map_or(limit, |other| limit.min(other.saturating_mul(RATIO))))
        };
        let (idle, max) = (bounded(idle, max), bounded(max, idle));
        let limits = || [idle, max].into_iter().flatten();
        let (shortest, longest) = (limits().min().unwrap_or(SHORTEST), limits().max().unwrap_or(SHORTEST));
        let (to, from) = if longest > LONGEST {
            (LONGEST, longest)
        } else if shortest < SHORTEST {
            (SHORTEST, shortest)
        } else {
            (UNIT, UNIT)
        };
        let scaled = |limit: Duration| {
            let micros = limit.as_micros().saturating_mul(to.as_micros()) / from.as_micros().max(1);
            Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
        };
        let (idle, max) = (idle.map(scaled), max.map(scaled));
        // Rounding may not make them one.
        let below = max.filter(|_| idle_first).map(|max| max.saturating_sub(UNIT));
        Self { idle: idle.map(|idle| below.map_or(idle, |below| idle.min(below))), max }
    }
}

pub(super) fn table(design: &Design, class: Safety) -> Vec<Race> {
    let request = || String::from("A");
    let Limits { idle, max } = Limits::of(design);
    let contract = match class {
        Safety::Safe => Promise::Safe,
        Safety::Conditional => Promise::Key("key-1".into()),
        Safety::Unsafe => Promise::Unsafe,
    };
    // Every event of the table comes after the request was sent: only this policy sends it again then.
    let attempts = if design.retry.automatic == Automatic::MaybeSent { design.retry.attempts } else { 1 };
    let limit = |length: Option<Duration>| length.map_or(Limit::None, Limit::After);
    let (attempts, idle_limit, max_limit) = (Some(attempts), limit(idle), limit(max));
    let call = Step::Call { name: request(), idle: idle_limit, max: max_limit, contract, attempts };
    let (wait, late) = (Step::Wait(APART), Step::Wait(CLOSE));
    let mut races = vec![
        (
            "cancel, then complete",
            vec![call.clone(), wait.clone(), Step::Cancel(request()), wait.clone(), Step::Complete(request())],
        ),
        (
            "complete, then cancel",
            vec![call.clone(), wait.clone(), Step::Complete(request()), late, Step::Cancel(request())],
        ),
    ];
    if let Some(idle) = idle.filter(|idle| max.is_none_or(|max| *idle < max)) {
        let silence = Step::Wait(idle + APART);
        races
            .push(("silence to the idle limit, then complete", vec![call.clone(), silence, Step::Complete(request())]));
    }
    if let Some(max) = max {
        races.push(("progress to the maximum, then complete", to_maximum(&call, idle, max)));
    }
    if design.transport.kind == TransportKind::Http {
        let steps = vec![call, wait.clone(), Step::Break(request()), Step::Wait(LATER), Step::Complete(request())];
        races.push(("the stream breaks, then complete", steps));
    }
    races.into_iter().filter_map(|(race, steps)| play(design, race, steps)).collect()
}

/// Progress in time for each idle deadline, until the maximum has passed.
fn to_maximum(call: &Step, idle: Option<Duration>, max: Duration) -> Vec<Step> {
    let pause = idle.map_or(max / 4, |idle| (idle / 2).min(max / 4)).max(UNIT);
    let mut steps = vec![call.clone()];
    let mut passed = Duration::ZERO;
    while passed <= max {
        steps.extend([Step::Wait(pause), Step::Progress("A".into())]);
        passed += pause;
    }
    steps.push(Step::Complete("A".into()));
    steps
}

fn play(design: &Design, race: &'static str, steps: Vec<Step>) -> Option<Race> {
    let transport = match design.transport.kind {
        TransportKind::Stdio => client::Transport::Stdio,
        TransportKind::Http => client::Transport::Http,
    };
    let script = Script { transport, latency: Duration::from_millis(1), lines: Vec::new(), steps };
    let found = experiment::run(&script).ok()?;
    let row = found.rows.into_iter().next()?;
    Some(Race { race, row, script: script.to_string() })
}

/// What to say if the limits that were played are not those of the plan.
pub(super) fn note(design: &Design) -> Option<String> {
    let Limits { idle, max } = Limits::of(design);
    let planned = &design.timeouts;
    let text = |limit: Option<Duration>| limit.map_or_else(|| "none".into(), experiment::duration_text);
    ((idle, max) != (planned.idle, planned.max)).then(|| {
        format!(
            "Played with idle {} and max {}, in the place of {} and {}: which is first decides, and not how long they are.",
            text(idle),
            text(max),
            text(planned.idle),
            text(planned.max)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::review;
    use super::*;

    fn races(text: &str) -> Vec<(&'static str, &'static str)> {
        let design = Design::parse(&format!("[operation]\nname = \"a\"\neffect = \"read\"\n{text}")).expect("a design");
        review(&design).races.into_iter().map(|Race { race, row, .. }| (race, row.client)).collect()
    }

    const EXPECTED: [(&str, &str); 4] = [
        ("cancel, then complete", "cancelled"),
        ("complete, then cancel", "cancelled"),
        ("silence to the idle limit, then complete", "idle timeout"),
        ("progress to the maximum, then complete", "maximum timeout"),
    ];

    #[test]
    fn limits_of_any_length_have_the_same_races() {
        for (idle, max) in [
            ("30s", "5m"),
            ("15m", "1h"),
            ("500ms", "5m"),
            ("1s", "10m"),
            ("1us", "9000d"),
            ("10ms", "15ms"),
            ("2ms", "3ms"),
            ("9999999999us", "10000000000us"),
        ] {
            assert_eq!(races(&format!("[timeouts]\nidle = \"{idle}\"\nmax = \"{max}\"\n")), EXPECTED, "{idle} {max}");
        }
    }

    #[test]
    fn a_limit_that_never_acts_has_no_race_and_one_that_is_absent_is_not_replaced() {
        let without = |index: usize| {
            let mut races = EXPECTED.to_vec();
            races.remove(index);
            races
        };
        assert_eq!(races("[timeouts]\nidle = \"1h\"\nmax = \"10m\"\n"), without(2));
        assert_eq!(races("[timeouts]\nidle = \"none\"\nmax = \"10m\"\n"), without(2));
        assert_eq!(races("[timeouts]\nidle = \"30s\"\nmax = \"none\"\n"), without(3));
    }

    #[test]
    fn the_policy_decides_whether_a_broken_stream_is_followed_by_another_attempt() {
        for (automatic, attempts, client) in [
            ("never", 3, "unknown"),
            ("never_sent", 3, "unknown"),
            ("maybe_sent", 1, "unknown"),
            ("maybe_sent", 2, "completed"),
        ] {
            let text = format!(
                "[transport]\nkind = \"http\"\n[timeouts]\nidle = \"50ms\"\n\
                 [retry]\nautomatic = \"{automatic}\"\nattempts = {attempts}\n"
            );
            assert_eq!(races(&text).last(), Some(&("the stream breaks, then complete", client)), "{text}");
        }
    }

    #[test]
    fn limits_that_are_played_otherwise_are_told() {
        let told = |idle: &str, max: &str| {
            let text =
                format!("[operation]\nname=\"a\"\neffect=\"read\"\n[timeouts]\nidle=\"{idle}\"\nmax=\"{max}\"\n");
            note(&Design::parse(&text).expect("a design"))
        };
        assert_eq!(told("30s", "5m"), None);
        let told = told("15m", "1h").expect("a note");
        assert!(told.starts_with("Played with idle 150s and max 10m, in the place of 15m and 60m"), "{told}");
    }
}
