//! The client's subscription machine: scripts for the rules, and every reachable state times every event.

#[path = "support/invariants/mod.rs"]
mod invariants;
#[path = "support/searched.rs"]
mod searched;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use steady_core::backoff::{Backoff, Jitter};
use steady_core::id::{Attempt, ClientId, WireId};
use steady_core::subscription::{Config, Effect, End, Event, Filter, RecoveryPlan, State, Subscription, Violation};
use steady_core::time::Instant;

use invariants::{
    sub_1_only_an_acknowledged_stream_delivers, sub_2_a_recovery_is_a_new_request,
    sub_3_a_recovered_stream_is_read_afresh, sub_4_an_end_is_an_end, sub_5_no_due_deadline_remains,
    sub_6_a_pause_is_within_its_ceiling,
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
fn statement_11_reconnecting_uses_a_new_request_without_last_event_id_and_refetches() {
    let text = r#"{"toolsListChanged":true,"resourceSubscriptions":["file:///a"],"taskIds":["t"]}"#;
    let filter = Filter::parse(text).unwrap();
    let mut subscription = open(Config::default());
    let mut now = Instant::ZERO;
    let mut wire = WireId::new(1);
    let mut used = BTreeSet::from([wire]);
    assert_eq!(
        subscription.handle(now, Event::Acknowledged),
        Effect::Opened { refetch: false },
        "nothing was missed before the first stream"
    );
    for _ in 0..5 {
        now = until(subscription.handle(now, Event::Lost));
        assert_eq!(subscription.handle(now, Event::Clock), Effect::Listen);
        let fresh = WireId::new(wire.number() + 1);
        let plan = RecoveryPlan::new(wire, fresh, filter.clone()).unwrap();
        assert!(used.insert(plan.wire()), "a new request every time");
        let filters = (text, plan.filter().as_str());
        sub_2_a_recovery_is_a_new_request((wire, plan.wire()), filters, plan.send_last_event_id(), &now);
        // Nothing counts before the new stream is acknowledged; then everything covered is read afresh.
        assert_eq!(
            subscription.handle(now, Event::Message),
            Effect::Violation(Violation::MessageBeforeAcknowledgement)
        );
        assert_eq!(subscription.handle(now, Event::Acknowledged), Effect::Opened { refetch: true });
        let methods: Vec<_> = plan.refetch().iter().map(|refetch| refetch.method()).collect();
        assert_eq!(methods, ["tools/list", "resources/read", "tasks/get"]);
        wire = fresh;
    }
    assert_eq!(
        RecoveryPlan::new(wire, wire, filter).map_err(|reused| reused.0),
        Err(wire),
        "the lost id cannot be used again"
    );
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
    assert_eq!(
        in_time.handle(deadline, Event::Acknowledged),
        Effect::Opened { refetch: false },
        "in hand beats the timer"
    );
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
fn no_configuration_makes_a_loop_without_time() {
    let nothing = Backoff { base: Duration::ZERO, cap: Duration::ZERO };
    let config = Config { ack_deadline: Duration::ZERO, backoff: nothing, ..Config::default() };
    let mut subscription = open(config);
    let mut now = Instant::ZERO;
    for _ in 0..10 {
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

/// Where the state's next interesting moment is: its deadline, or when an open stream becomes stable.
fn moment(subscription: &Subscription, config: Config) -> Option<Instant> {
    match subscription.state() {
        State::Opening { deadline } => Some(deadline),
        State::Open { since } => Some(since + config.stable_after),
        State::Waiting { until } => Some(until),
        State::Ended(_) => None,
    }
}

type Key = (&'static str, Option<Distance>, Option<End>, u16, bool);

/// Times relative to now, attempts up to where the ceiling stops growing, counters forgotten.
fn key(subscription: &Subscription, now: Instant, config: Config) -> Key {
    let (name, end) = match subscription.state() {
        State::Opening { .. } => ("opening", None),
        State::Open { .. } => ("open", None),
        State::Waiting { .. } => ("waiting", None),
        State::Ended(end) => ("ended", Some(end)),
    };
    let distance = moment(subscription, config).map(|at| distance(now, at));
    (name, distance, end, subscription.attempt().number().min(7), subscription.is_recovering())
}

const EVENTS: [Event; 7] =
    [Event::Acknowledged, Event::Message, Event::FinalResult, Event::Refused, Event::Lost, Event::Close, Event::Clock];

#[test]
fn every_reachable_state_and_every_event() {
    for reopen_after_end in [false, true] {
        let config = Config { reopen_after_end, ..Config::default() };
        let (searched, effects) = explore(config);
        searched.report("subscription");
        assert_eq!(effects.len(), 11, "every effect occurs: {effects:?}");
    }
}

fn explore(config: Config) -> (Searched, BTreeMap<&'static str, u32>) {
    let mut searched = Searched::begin();
    let mut seen = HashSet::new();
    let mut queue = VecDeque::from([(Instant::ZERO, open(config), false)]);
    let mut effects = BTreeMap::new();
    while let Some((now, subscription, opened)) = queue.pop_front() {
        if !searched.state(seen.insert(key(&subscription, now, config))) {
            continue;
        }
        for event in EVENTS {
            let mut after = subscription.clone();
            let effect = after.handle(now, event);
            check(now, config, &subscription, event, effect, &after);
            if let Effect::Opened { refetch } = effect {
                sub_3_a_recovered_stream_is_read_afresh(opened, refetch, &subscription);
            }
            *effects.entry(name(effect)).or_default() += 1;
            searched.transitions += 1;
            let opened = opened || matches!(effect, Effect::Opened { .. });
            queue.push_back((now, after, opened));
        }
        // Time moves to just before and onto the next moment, and nowhere else.
        if let Some(at) = moment(&subscription, config) {
            let before = Instant::from_nanos(at.as_nanos().saturating_sub(1));
            queue.extend([before, at].into_iter().filter(|to| *to > now).map(|to| (to, subscription.clone(), opened)));
        }
    }
    (searched, effects)
}

fn check(now: Instant, config: Config, before: &Subscription, event: Event, effect: Effect, after: &Subscription) {
    let context = format!("{now} {before:?} --{event:?}--> {effect:?} {after:?}");
    match effect {
        Effect::Deliver => {
            sub_1_only_an_acknowledged_stream_delivers(before.state(), &context);
            assert_eq!(before, after, "{context}");
        }
        Effect::Listen => {
            assert!(matches!(before.state(), State::Waiting { until } if until <= now), "{context}");
            assert!(matches!(after.state(), State::Opening { .. }), "{context}");
        }
        Effect::Opened { refetch } => {
            assert!(matches!(before.state(), State::Opening { .. }), "{context}");
            sub_3_a_recovered_stream_is_read_afresh(before.is_recovering(), refetch, &context);
        }
        Effect::Wait { until } | Effect::AbortAndWait { until } => {
            assert_eq!(after.state(), State::Waiting { until }, "{context}");
            let ceiling = pause_ceiling(config.backoff, after.attempt());
            sub_6_a_pause_is_within_its_ceiling(until.saturating_since(now), ceiling, &context);
            let aborts = matches!(effect, Effect::AbortAndWait { .. });
            assert_eq!(aborts, event == Event::Clock, "only the deadline aborts {context}");
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
        Effect::Nothing | Effect::Stale | Effect::TooLate => assert_eq!(before, after, "{context}"),
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
        Effect::Opened { refetch: false } => "Opened",
        Effect::Opened { refetch: true } => "Opened again",
        Effect::Deliver => "Deliver",
        Effect::Wait { .. } => "Wait",
        Effect::AbortAndWait { .. } => "AbortAndWait",
        Effect::Finish { .. } => "Finish",
        Effect::Violation(_) => "Violation",
        Effect::Stale => "Stale",
        Effect::TooLate => "TooLate",
    }
}
