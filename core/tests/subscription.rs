//! The client's subscription machine: scripts for the rules, and every reachable state times every event.

#[path = "support/invariants/mod.rs"]
mod invariants;
#[path = "support/searched.rs"]
mod searched;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use steady_core::backoff::{Backoff, Jitter};
use steady_core::id::{Attempt, ClientId};
use steady_core::subscription::{Config, Effect, End, Event, State, Subscription, Violation};
use steady_core::time::Instant;

use invariants::{
    sub_1_only_an_acknowledged_stream_delivers, sub_3_a_stream_that_opens_is_read_afresh, sub_4_an_end_is_an_end,
    sub_5_no_due_deadline_remains, sub_6_a_pause_is_within_its_ceiling, sub_8_only_silence_ends_an_open_stream,
};
use searched::Searched;

fn open(config: Config) -> Subscription {
    Subscription::open(Instant::ZERO, config, Jitter::seeded(ClientId::new(1), 0))
}

fn until(effect: Effect) -> Instant {
    let (Effect::Wait { until } | Effect::AbortAndWait { until }) = effect else { panic!("no pause: {effect:?}") };
    until
}

#[test]
fn every_reconnection_is_a_new_request_and_a_refetch() {
    let mut subscription = open(Config::default());
    let mut now = Instant::ZERO;
    assert_eq!(subscription.handle(now, Event::Acknowledged), Effect::Opened);
    for _ in 0..5 {
        now = until(subscription.handle(now, Event::Lost));
        assert_eq!(subscription.handle(now, Event::Clock), Effect::Listen);
        // Nothing counts before the new stream is acknowledged; then everything covered is read afresh.
        assert_eq!(
            subscription.handle(now, Event::Message),
            Effect::Violation(Violation::MessageBeforeAcknowledgement)
        );
        assert_eq!(subscription.handle(now, Event::Acknowledged), Effect::Opened);
    }
}

#[test]
fn a_graceful_end_is_an_end() {
    let mut subscription = open(Config::default());
    let now = Instant::ZERO;
    let _ = subscription.handle(now, Event::Acknowledged);
    let finish = Effect::Finish { end: End::Graceful, abort: false };
    assert_eq!(subscription.handle(now, Event::FinalResult), finish);
    assert_eq!(subscription.handle(now, Event::Lost), Effect::TooLate);
    assert_eq!(subscription.handle(Instant::MAX, Event::Clock), Effect::Nothing);
    assert_eq!(subscription.poll_timeout(), None);
}

#[test]
fn a_graceful_end_is_reopened_when_asked_for() {
    let mut subscription = open(Config { reopen_after_end: true, ..Config::default() });
    let _ = subscription.handle(Instant::ZERO, Event::Acknowledged);
    let until = until(subscription.handle(Instant::ZERO, Event::FinalResult));
    assert_eq!(subscription.handle(until, Event::Clock), Effect::Listen);
}

#[test]
fn the_acknowledgement_deadline_aborts_and_an_open_stream_has_none() {
    let config = Config::default();
    let mut subscription = open(config);
    let deadline = Instant::ZERO + config.ack_deadline;
    let mut in_time = subscription.clone();
    assert_eq!(in_time.handle(deadline, Event::Acknowledged), Effect::Opened, "in hand beats the timer");
    assert_eq!(in_time.poll_timeout(), None);
    assert_eq!(in_time.handle(Instant::MAX, Event::Clock), Effect::Nothing);
    let effect = subscription.handle(deadline, Event::Clock);
    assert!(matches!(effect, Effect::AbortAndWait { .. }));
    assert_eq!(subscription.handle(deadline, Event::Acknowledged), Effect::Stale);
}

#[test]
fn only_a_stable_stream_starts_the_pauses_over() {
    let config = Config::default();
    let mut subscription = open(config);
    let mut now = Instant::ZERO;
    for _ in 0..6 {
        let _ = subscription.handle(now, Event::Acknowledged);
        now = until(subscription.handle(now, Event::Lost));
        let _ = subscription.handle(now, Event::Clock);
    }
    assert_eq!(subscription.attempt().number(), 7, "flapping is not forgiven");
    let _ = subscription.handle(now, Event::Acknowledged);
    let until = until(subscription.handle(now + config.stable_after, Event::Lost));
    assert!(until.saturating_since(now + config.stable_after) <= config.backoff.base);
    assert_eq!(subscription.attempt().number(), 2);
}

#[test]
fn a_stream_that_is_silent_for_its_liveness_is_lost_and_any_sign_of_life_keeps_it() {
    let liveness = Some(Duration::from_secs(10));
    let mut subscription = open(Config { liveness, ..Config::default() });
    let at = |seconds: u64| Instant::from_millis(seconds * 1000);
    let _opened = subscription.handle(at(0), Event::Acknowledged);
    assert_eq!(subscription.poll_timeout(), Some(at(10)));
    assert_eq!(subscription.handle(at(8), Event::Message), Effect::Deliver);
    assert_eq!(subscription.handle(at(17), Event::Heard { at: at(16) }), Effect::Nothing, "a comment, say");
    assert_eq!(subscription.handle(at(17), Event::Heard { at: at(3) }), Effect::Nothing, "old news");
    assert_eq!(subscription.handle(at(18), Event::Clock), Effect::Nothing);
    assert_eq!(subscription.poll_timeout(), Some(at(26)));
    // In hand when the timer comes: it wins.
    assert_eq!(subscription.handle(at(26), Event::Heard { at: at(26) }), Effect::Nothing);
    assert_eq!(subscription.handle(at(26), Event::Clock), Effect::Nothing);
    let lost = subscription.handle(at(36), Event::Clock);
    assert!(matches!(lost, Effect::AbortAndWait { until } if until <= at(37)), "{lost:?}: it was stable");

    let mut for_ever = open(Config::default());
    let _opened = for_ever.handle(at(0), Event::Acknowledged);
    assert_eq!((for_ever.poll_timeout(), for_ever.handle(Instant::MAX, Event::Clock)), (None, Effect::Nothing));
}

#[test]
fn no_configuration_makes_a_loop_without_time() {
    let nothing = Backoff { base: Duration::ZERO, cap: Duration::ZERO };
    let liveness = Some(Duration::ZERO);
    let config = Config { ack_deadline: Duration::ZERO, backoff: nothing, liveness, ..Config::default() };
    let mut subscription = open(config);
    let mut now = Instant::ZERO;
    for round in 0..10 {
        if round % 4 == 2 {
            let _opened_if_it_was_opening = subscription.handle(now, Event::Acknowledged);
        }
        assert_eq!(subscription.handle(now, Event::Clock), Effect::Nothing, "not due yet");
        let due = subscription.poll_timeout().expect("a deadline");
        assert!(due > now);
        now = due;
        assert_ne!(subscription.handle(now, Event::Clock), Effect::Nothing);
    }
}

/// A clock that matters in three places relative to a deadline: before it, just before it, and on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Distance {
    Far,
    JustBefore,
    Reached,
}

fn distance(now: Instant, deadline: Instant) -> Distance {
    match deadline.saturating_since(now).as_nanos() {
        0 => Distance::Reached,
        1 => Distance::JustBefore,
        _ => Distance::Far,
    }
}

/// The state's next interesting moments: its deadline, and when an open stream becomes stable.
fn moments(subscription: &Subscription, config: Config) -> [Option<Instant>; 2] {
    let stable = match subscription.state() {
        State::Open { since, .. } => Some(since + config.stable_after),
        State::Opening { .. } | State::Waiting { .. } | State::Ended(_) => None,
    };
    [subscription.poll_timeout(), stable]
}

type Key = (&'static str, [Option<Distance>; 2], Option<End>, u16, Option<Duration>);

/// Times relative to now, attempts up to where the ceiling stops growing, counters forgotten.
fn key(subscription: &Subscription, now: Instant, config: Config) -> Key {
    let (name, end) = match subscription.state() {
        State::Opening { .. } => ("opening", None),
        State::Open { .. } => ("open", None),
        State::Waiting { .. } => ("waiting", None),
        State::Ended(end) => ("ended", Some(end)),
    };
    // Whether it is stable when it falls silent is decided by how long it was heard.
    let stable = match subscription.state() {
        State::Open { since, heard } => Some(heard.saturating_since(since).min(config.stable_after)),
        State::Opening { .. } | State::Waiting { .. } | State::Ended(_) => None,
    };
    let distances = moments(subscription, config).map(|at| at.map(|at| distance(now, at)));
    let attempt = subscription.attempt().number().min(7);
    (name, distances, end, attempt, stable)
}

fn events(now: Instant) -> [Event; 8] {
    let heard = Event::Heard { at: now };
    let others = [Event::FinalResult, Event::Refused, Event::Lost, Event::Close, Event::Clock];
    let [end, refused, lost, close, clock] = others;
    [Event::Acknowledged, Event::Message, heard, end, refused, lost, close, clock]
}

#[test]
fn every_reachable_state_and_every_event() {
    for (reopen_after_end, liveness) in [(false, None), (true, None), (false, Some(Duration::from_secs(3)))] {
        let config = Config { reopen_after_end, liveness, ..Config::default() };
        let (searched, effects) = explore(config);
        searched.report("subscription");
        assert_eq!(effects.len(), 10, "every effect occurs: {effects:?}");
    }
}

fn explore(config: Config) -> (Searched, BTreeMap<&'static str, u32>) {
    let mut searched = Searched::begin();
    let mut seen = HashSet::new();
    let mut queue = VecDeque::from([(Instant::ZERO, open(config))]);
    let mut effects = BTreeMap::new();
    while let Some((now, subscription)) = queue.pop_front() {
        if !searched.state(seen.insert(key(&subscription, now, config))) {
            continue;
        }
        for event in events(now) {
            let mut after = subscription.clone();
            let effect = after.handle(now, event);
            check(now, config, &subscription, event, effect, &after);
            *effects.entry(name(effect)).or_default() += 1;
            searched.transitions += 1;
            queue.push_back((now, after));
        }
        // Time moves to just before and onto the next moments, and nowhere else.
        for at in moments(&subscription, config).into_iter().flatten() {
            let before = Instant::from_nanos(at.as_nanos().saturating_sub(1));
            let moved = [before, at].into_iter().filter(|to| *to > now);
            queue.extend(moved.map(|to| (to, subscription.clone())));
        }
    }
    (searched, effects)
}

fn check(now: Instant, config: Config, before: &Subscription, event: Event, effect: Effect, after: &Subscription) {
    let context = format!("{now} {before:?} --{event:?}--> {effect:?} {after:?}");
    match effect {
        Effect::Deliver => {
            sub_1_only_an_acknowledged_stream_delivers(before.state(), &context);
            assert_eq!(before.attempt(), after.attempt(), "{context}");
            sub_1_only_an_acknowledged_stream_delivers(after.state(), &context);
        }
        Effect::Listen => {
            assert!(matches!(before.state(), State::Waiting { until } if until <= now), "{context}");
            assert!(matches!(after.state(), State::Opening { .. }), "{context}");
        }
        Effect::Opened => assert!(matches!(before.state(), State::Opening { .. }), "{context}"),
        Effect::Wait { until } | Effect::AbortAndWait { until } => {
            assert_eq!(after.state(), State::Waiting { until }, "{context}");
            let ceiling = pause_ceiling(config.backoff, after.attempt());
            sub_6_a_pause_is_within_its_ceiling(until.saturating_since(now), ceiling, &context);
            let aborts = matches!(effect, Effect::AbortAndWait { .. });
            assert_eq!(aborts, event == Event::Clock, "only a deadline aborts {context}");
        }
        Effect::Finish { end, abort } => {
            assert_eq!(after.state(), State::Ended(end), "{context}");
            let alive = !matches!(before.state(), State::Waiting { .. });
            assert_eq!(abort, end == End::Closed && alive, "{context}");
        }
        Effect::Violation(_) => {
            assert_eq!(after.violations(), before.violations() + 1, "{context}");
            assert_eq!(after.state(), before.state(), "{context}");
        }
        Effect::Nothing if matches!(event, Event::Heard { .. }) => {
            assert_eq!(before.attempt(), after.attempt(), "{context}");
        }
        Effect::Nothing | Effect::Stale | Effect::TooLate => assert_eq!(before, after, "{context}"),
    }
    let [was_open, is_open] = [before, after].map(|machine| matches!(machine.state(), State::Open { .. }));
    sub_3_a_stream_that_opens_is_read_afresh(is_open && !was_open, effect == Effect::Opened, &context);
    if let (State::Open { heard, .. }, Event::Clock) = (before.state(), event) {
        let ended = !matches!(after.state(), State::Open { .. });
        sub_8_only_silence_ends_an_open_stream(now.saturating_since(heard), config.liveness, ended, &context);
    }
    let alive = matches!(before.state(), State::Opening { .. } | State::Open { .. });
    let graceful = alive && event == Event::FinalResult && !config.reopen_after_end;
    sub_4_an_end_is_an_end(before.state(), after.state(), graceful, &context);
    if event == Event::Clock {
        sub_5_no_due_deadline_remains(now, after.poll_timeout(), &context);
    }
}

/// The ceiling of the pause just taken: `next` is the attempt after the one that failed.
fn pause_ceiling(backoff: Backoff, next: Attempt) -> Duration {
    let mut attempt = Attempt::FIRST;
    while attempt.next().number() < next.number() {
        attempt = attempt.next();
    }
    backoff.ceiling(attempt)
}

fn name(effect: Effect) -> &'static str {
    match effect {
        Effect::Nothing => "Nothing",
        Effect::Listen => "Listen",
        Effect::Opened => "Opened",
        Effect::Deliver => "Deliver",
        Effect::Wait { .. } => "Wait",
        Effect::AbortAndWait { .. } => "AbortAndWait",
        Effect::Finish { .. } => "Finish",
        Effect::Violation(_) => "Violation",
        Effect::Stale => "Stale",
        Effect::TooLate => "TooLate",
    }
}
