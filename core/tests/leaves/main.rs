//! The leaf machines: every reachable state times every event, against golden tables that a reviewer reads.
//!
//! Each line is one transition: `state, event -> effect, next state`. Times count from the start. Of a request the idle
//! limit is 2, the maximum 4, the rate limit 2; those of subscriptions and followed tasks stand in `streams`. `STEADY_GOLDEN=write cargo test --test leaves` writes the tables anew.

mod draws;
#[path = "../support/invariants/mod.rs"]
mod invariants;
#[path = "../support/searched.rs"]
mod searched;
mod streams;
mod words;

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Debug;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use steady_core::coordinator::{self, ServedRequest};
use steady_core::deadline::{self, Clock, Deadline, Limits};
use steady_core::outbound::Handle;
use steady_core::progress::{self, Gate, Progress};
use steady_core::request::{self, Request, State};
use steady_core::time::Instant;

use invariants::{
    deadline_1_the_maximum_is_written_once, deadline_2_nothing_saves_after_the_maximum,
    prog_2_what_is_held_is_passed_on, prog_3_nothing_passes_after_the_end, req_1_one_terminal_state,
    req_2_one_right_to_answer, req_3_only_accepted_progress_moves_the_clock, srv_1_a_deadline_answers_one_error,
};
use searched::Searched;

const IDLE: u64 = 2;
const MAXIMUM: u64 = 4;
const INTERVAL: u64 = 2;

pub(crate) const fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

fn limits() -> Limits {
    Limits { idle: Some(ns(IDLE)), maximum: Some(ns(MAXIMUM)) }
}

fn value(number: u32) -> Progress {
    Progress::new(f64::from(number)).expect("finite")
}

/// A machine under search, with the time it has come to.
#[derive(Clone)]
struct At<M> {
    now: u64,
    machine: M,
}

/// Breadth first to the fixed point: at each state every event, now and one tick later, until `end`.
fn explore<M: Clone + Debug, E: Copy + Debug, F: Debug>(
    start: M,
    end: u64,
    events: &[(&str, E)],
    handle: impl FnMut(&mut M, Instant, E) -> F,
    show: impl Fn(&M) -> String,
    visit: impl FnMut(&M, u64, E, &F, &M),
) -> (Vec<String>, Searched) {
    explore_by(|machine| format!("{machine:?}"), start, end, events, handle, show, visit)
}

/// The same, where states with the same `key` go on in the same way: counters that nothing depends on are left out of it.
pub(crate) fn explore_by<M: Clone + Debug, E: Copy + Debug, F>(
    key: impl Fn(&M) -> String,
    start: M,
    end: u64,
    events: &[(&str, E)],
    mut handle: impl FnMut(&mut M, Instant, E) -> F,
    show: impl Fn(&M) -> String,
    mut visit: impl FnMut(&M, u64, E, &F, &M),
) -> (Vec<String>, Searched)
where
    F: Debug,
{
    let mut searched = Searched::begin();
    let (mut seen, mut listed) = (BTreeSet::new(), BTreeSet::new());
    let mut queue = VecDeque::from([At { now: 0, machine: start }]);
    let mut lines = Vec::new();
    while let Some(at) = queue.pop_front() {
        if !searched.state(seen.insert((at.now, key(&at.machine)))) {
            continue;
        }
        for (name, event) in events {
            searched.transitions += 1;
            let mut after = at.machine.clone();
            let effect = handle(&mut after, Instant::from_nanos(at.now), *event);
            visit(&at.machine, at.now, *event, &effect, &after);
            let effect = format!("{effect:?}").replace("Instant", "at");
            let (before, next) = (show(&at.machine), show(&after));
            // What is over stays so at any time.
            let over = !before.contains(|c: char| c.is_ascii_digit());
            let time = if over { "any".to_owned() } else { at.now.to_string() };
            let line = format!("{time:>3} {before}, {name} -> {effect}, {next}");
            // States that differ in what no longer counts read the same.
            if listed.insert(line.clone()) {
                lines.push(line);
            }
            queue.push_back(At { now: at.now, machine: after });
        }
        if at.now < end {
            queue.push_back(At { now: at.now + 1, machine: at.machine });
        }
    }
    (lines, searched)
}

/// Compares with the table in the repository, or writes it.
pub(crate) fn golden(name: &str, (lines, searched): (Vec<String>, Searched)) {
    searched.report(name);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name).with_extension("txt");
    let mut text = format!("{name}: {} states, {} transitions that read differently\n", searched.states, lines.len());
    for line in &lines {
        writeln!(text, "{line}").expect("writing to a String");
    }
    if std::env::var_os("STEADY_GOLDEN").is_some_and(|mode| mode == "write") {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
        std::fs::write(&path, &text).expect("writable");
    }
    let expected = std::fs::read_to_string(&path).expect("the table; STEADY_GOLDEN=write makes it");
    let differs = text.lines().zip(expected.lines()).find(|(now, before)| now != before);
    assert_eq!(differs, None, "{name}: read the change, then write the table anew with STEADY_GOLDEN=write");
    assert_eq!(text.lines().count(), expected.lines().count(), "{name}");
}

pub(crate) fn time(at: Option<Instant>) -> String {
    at.map_or_else(|| "never".to_owned(), |at| at.as_nanos().to_string())
}

#[test]
fn the_deadline() {
    let events = [("activity", deadline::Event::Activity), ("tick", deadline::Event::Tick)];
    let handle = |machine: &mut Deadline, now, event| machine.handle(now, event);
    let show = |machine: &Deadline| format!("wakes {}", time(machine.wake_at()));
    let table = explore(
        Deadline::start(Instant::ZERO, limits()),
        6,
        &events,
        handle,
        show,
        |before, now, event, effect, after| {
            let context = format!("{before:?} {now} {event:?} {effect:?}");
            deadline_1_the_maximum_is_written_once(before.max_at(), after.max_at(), &context);
            let times = (Instant::from_nanos(now), before.max_at());
            deadline_2_nothing_saves_after_the_maximum(times, (before, after), &context);
            if event == deadline::Event::Tick {
                let due = before.wake_at().is_some_and(|at| at.as_nanos() <= now);
                assert_eq!(matches!(effect, deadline::Effect::Elapsed(_)), due, "{context}");
            }
        },
    );
    golden("deadline", table);
}

const REQUEST_EVENTS: [(&str, request::Event); 5] = [
    ("complete", request::Event::Complete),
    ("cancel", request::Event::Cancel),
    ("progress", request::Event::Progress),
    ("lost", request::Event::Lost),
    ("tick", request::Event::Tick),
];

#[test]
fn the_request() {
    let handle = |machine: &mut Request, now, event| machine.handle(now, event);
    let show = |machine: &Request| match machine.state() {
        State::InFlight => format!("in flight, wakes {}", time(machine.wake_at())),
        State::Over(terminal) => terminal.to_string(),
    };
    let start = Request::start(Instant::ZERO, limits());
    let table = explore(start, 6, &REQUEST_EVENTS, handle, show, |before, now, event, effect, after| {
        let context = format!("{before:?} {now} {event:?} {effect:?} {after:?}");
        req_1_one_terminal_state(before.terminal(), after.terminal(), &context);
        match before.terminal() {
            Some(terminal) => assert_eq!((effect, before), (&request::Effect::TooLate(terminal), after), "{context}"),
            None => {
                let settled = after.terminal().map(request::Effect::Settled);
                assert!(settled.is_none() || settled.as_ref() == Some(effect), "{context}");
                assert_eq!(settled.is_some(), after.wake_at().is_none(), "{context}");
            }
        }
        if after.terminal().is_none() {
            let clocks = (before.wake_at(), after.wake_at());
            req_3_only_accepted_progress_moves_the_clock(event == request::Event::Progress, clocks, &context);
        }
    });
    golden("request", table);
}

#[test]
fn the_gate() {
    let events = [
        ("report 1", progress::Event::Report(value(1))),
        ("report 2", progress::Event::Report(value(2))),
        ("report 2 now", progress::Event::ReportNow(value(2))),
        ("tick", progress::Event::Tick),
        ("finish", progress::Event::Finish),
        ("discard", progress::Event::Discard),
    ];
    let handle = |machine: &mut Gate, now, event| machine.handle(now, event);
    let table = explore(Gate::new(ns(INTERVAL)), 4, &events, handle, show_gate, |before, now, event, effect, after| {
        let context = format!("{before:?} {now} {event:?} {effect:?} {after:?}");
        let closed = |gate: &Gate| format!("{gate:?}").contains("closed: true");
        let refused = matches!(effect, progress::Effect::Refused | progress::Effect::Nothing);
        prog_3_nothing_passes_after_the_end(closed(before), !refused || before != after, &context);
        let held = (before.wake_at().is_some(), after.wake_at().is_some());
        let passed = matches!(effect, progress::Effect::Release | progress::Effect::Forward);
        prog_2_what_is_held_is_passed_on(held, passed, event == progress::Event::Discard, &context);
        if *effect == progress::Effect::Refused {
            assert_eq!(before, after, "{context}");
        }
    });
    golden("gate", table);
}

/// All members, in a reader's words.
fn show_gate(gate: &Gate) -> String {
    let text = format!("{gate:?}");
    let last = [1, 2].into_iter().find(|number| text.contains(&format!("{:?}", value(*number))));
    let last = last.map_or_else(|| "none".to_owned(), |number| number.to_string());
    let next = text.split_once("next_at: Instant(").and_then(|(_, rest)| rest.split_once(')')).map(|(at, _)| at);
    let closed = if text.contains("closed: true") { ", closed" } else { "" };
    let held = if text.contains("held: true") { ", held" } else { "" };
    format!("last {last}, next at {}{held}{closed}", next.expect("a member"))
}

#[test]
fn the_served_request() {
    let events = [
        ("report 1", coordinator::Event::Report(value(1))),
        ("report 2", coordinator::Event::Report(value(2))),
        ("report 2 now", coordinator::Event::ReportNow(value(2))),
        ("complete", coordinator::Event::Complete),
        ("cancel", coordinator::Event::Cancel),
        ("lost", coordinator::Event::Lost),
        ("tick", coordinator::Event::Tick),
    ];
    for wants_progress in [true, false] {
        let start = ServedRequest::start(Instant::ZERO, Handle::new(0, 1), limits(), wants_progress, ns(INTERVAL));
        let table = explore(start, 5, &events, served_handle, show_served, |before, now, event, effect, after| {
            check_served(before, now, event, effect, after);
        });
        golden(if wants_progress { "served" } else { "served_without_token" }, table);
    }
}

fn served_handle(machine: &mut ServedRequest, now: Instant, event: coordinator::Event) -> Answer {
    Answer(machine.handle(now, event))
}

/// An effect whose permit is not spelled out.
struct Answer(coordinator::Effect);

impl Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            coordinator::Effect::Respond { release: true, .. } => f.write_str("release, then respond"),
            coordinator::Effect::Respond { .. } => f.write_str("respond"),
            coordinator::Effect::Expired { clock: Clock::Idle, .. } => f.write_str("idle error"),
            coordinator::Effect::Expired { .. } => f.write_str("maximum error"),
            other @ (coordinator::Effect::Nothing
            | coordinator::Effect::Forward
            | coordinator::Effect::Hold { .. }
            | coordinator::Effect::Release
            | coordinator::Effect::Quiet
            | coordinator::Effect::Refused
            | coordinator::Effect::Silent(_)
            | coordinator::Effect::TooLate(_)) => write!(f, "{other:?}"),
        }
    }
}

fn show_served(machine: &ServedRequest) -> String {
    if let Some(terminal) = machine.terminal() {
        return terminal.to_string();
    }
    let text = format!("{machine:?}");
    let gate = text.split_once("gate: ").expect("a member").1;
    let number = |of: &str, name: &str| {
        of.split_once(name).and_then(|(_, rest)| rest.split_once(')')).map(|(number, _)| number.to_owned())
    };
    let last = [1, 2].into_iter().find(|number| gate.contains(&format!("{:?}", value(*number))));
    let last = last.map_or_else(|| "none".to_owned(), |number| number.to_string());
    let idle = number(&text, "idle_at: Some(Instant(").expect("a member");
    let next = number(gate, "next_at: Instant(").expect("a member");
    let held = if gate.contains("held: true") { ", held" } else { "" };
    format!("idle {idle}, last {last}, next at {next}{held}")
}

fn check_served(
    before: &ServedRequest,
    now: u64,
    event: coordinator::Event,
    Answer(effect): &Answer,
    after: &ServedRequest,
) {
    let context = format!("{before:?} {now} {event:?} {effect:?} {after:?}");
    let permits = matches!(effect, coordinator::Effect::Respond { .. } | coordinator::Effect::Expired { .. });
    req_1_one_terminal_state(before.terminal(), after.terminal(), &context);
    req_2_one_right_to_answer(before.terminal(), after.terminal(), permits, &context);
    match (before.terminal(), after.terminal()) {
        (Some(_), _) => assert_eq!(before, after, "{context}"),
        (None, Some(ended)) => {
            assert_eq!(effect.ended(), Some(ended), "{context}");
            srv_1_a_deadline_answers_one_error(ended, permits, &context);
        }
        (None, None) => {}
    }
    if *effect == coordinator::Effect::Refused {
        req_3_only_accepted_progress_moves_the_clock(false, (before.wake_at(), after.wake_at()), &context);
        assert_eq!(before, after, "{context}");
    }
    if now >= MAXIMUM && matches!(event, coordinator::Event::Report(_) | coordinator::Event::ReportNow(_)) {
        assert!(after.terminal().is_some() || *effect == coordinator::Effect::Refused, "rule T5 {context}");
    }
    if after.terminal().is_some() {
        assert_eq!(after.wake_at(), None, "{context}");
    }
}
