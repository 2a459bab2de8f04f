//! One script for each rule.

use std::time::Duration;

use steady_core::coordinator::{Config, Polled, Refusal, RequestCoordinator, ServedRequest, Start};
use steady_core::deadline::Limits;
use steady_core::id::{ProgressToken, RequestId};
use steady_core::rpc::read_cancellation;
use steady_core::time::Instant;
use steady_core::transport::Transport;

use super::world::World;

const A: &str = "\"a\"";

pub(crate) fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

pub(crate) fn limits(idle: u64, maximum: u64) -> Limits {
    Limits { idle: Some(Duration::from_millis(idle)), maximum: Some(Duration::from_millis(maximum)) }
}

pub(crate) fn config() -> Config {
    Config { limits: limits(500, 2000), ..Config::default() }
}

fn line(id: &str, text: &str) -> (String, String) {
    (id.to_owned(), text.to_owned())
}

#[test]
fn statement_03_cancel_then_complete_suppresses_the_response() {
    let mut world = World::new(config());
    let call = world.start("a", false).unwrap();
    assert_eq!(world.report(call, false), Some(true));
    world.now = ms(1);
    assert_eq!(world.cancel(&"a".into()), Some(true));
    world.complete(call);
    assert_eq!(world.lines(), [], "no response, and the progress that waited is gone too");
    world.go_to(ms(10_000));
    assert_eq!(world.lines(), [], "no timeout error either: silence (rule C3)");
    assert_eq!((world.coordinator.in_flight(), world.coordinator.stragglers()), (0, 0));
    assert_eq!(world.coordinator.counters().cancelled, 1);
}

#[test]
fn statement_04_complete_then_cancel_keeps_the_response_and_ignores_the_late_cancellation() {
    let mut world = World::new(config());
    let call = world.start("a", false).unwrap();
    world.complete(call);
    assert_eq!(world.cancel(&"a".into()), Some(false), "answered, not yet sent: too late");
    assert_eq!(world.lines(), [line(A, "result")]);
    assert_eq!(world.cancel(&"a".into()), None, "sent: the id names nothing");
    assert_eq!(world.lines(), []);
    let counters = world.coordinator.counters();
    assert_eq!((counters.cancelled, counters.cancelled_late, counters.cancelled_unknown), (0, 1, 1));
}

#[test]
fn cancellations_of_nothing_are_ignored_and_counted() {
    let mut world = World::new(config());
    let call = world.start_with(Start { id: 7.into(), token: None, listen: false }).unwrap();
    assert_eq!(world.cancel(&"x".into()), None, "an unknown id");
    assert_eq!(world.cancel(&"7".into()), None, "the other JSON type");
    assert_eq!(world.cancel(&8.into()), None);
    for malformed in [r#""x""#, "{}", r#"{"requestId":null}"#, r#"{"requestId":7.5}"#, r#"{"requestId":[7]}"#] {
        assert_eq!(read_cancellation(malformed), None, "{malformed} names no request");
    }
    assert_eq!(world.coordinator.counters().cancelled_unknown, 3);
    world.complete(call);
    assert_eq!(world.lines(), [line("7", "result")], "the call lives");
}

#[test]
fn a_cancellation_frees_id_token_permit_and_place_at_once() {
    let cap = 50;
    let mut world = World::new(Config { in_flight: cap, stragglers: 1000, ..config() });
    let ids: Vec<String> = (0..cap).map(|n| format!("r{n}")).collect();
    for _round in 0..3 {
        for id in &ids {
            world.start(id, false).unwrap();
        }
        assert_eq!(world.start("one more", false), Err(Refusal::Full(cap)));
        for id in &ids {
            assert_eq!(world.cancel(&id.as_str().into()), Some(true));
        }
        assert_eq!(world.coordinator.in_flight(), 0, "COORD-3");
    }
    assert_eq!(world.coordinator.stragglers(), 3 * cap, "the handlers have not heard of it yet");
    for id in &ids {
        let call = world.start(id, false).unwrap();
        assert!((call.index() as usize) < cap, "places are reused");
        world.complete(call);
    }
    assert_eq!(world.lines().len(), cap, "each of the last round is answered");
    assert_eq!(world.coordinator.armed(), 0);
}

#[test]
fn a_duplicate_id_or_token_is_refused_and_the_first_lives() {
    let mut world = World::new(config());
    let first = world.start("a", false).unwrap();
    assert_eq!(world.start("a", false), Err(Refusal::DuplicateId));
    let start = Start { id: "b".into(), token: Some(ProgressToken("a".into())), listen: false };
    assert_eq!(world.start_with(start.clone()), Err(Refusal::DuplicateToken));
    assert_eq!(world.coordinator.counters().duplicates, 2);
    // The other JSON type is another id and another token.
    for id in [RequestId::from(1), RequestId::from("1")] {
        let start = Start { id: id.clone(), token: Some(ProgressToken(id)), listen: false };
        world.start_with(start).unwrap();
    }
    world.complete(first);
    assert_eq!(world.start("a", false), Err(Refusal::DuplicateId), "answered, not yet sent: still in use");
    assert_eq!(world.lines(), [line(A, "result")]);
    world.start_with(start).unwrap();
    // What is said under an id in flight would settle that request, even while the connection closes (rule C10).
    world.coordinator.drain();
    assert_eq!(world.start("b", false), Err(Refusal::DuplicateId));
    assert_eq!(world.start("c", false), Err(Refusal::Closed));
}

#[test]
fn handlers_that_outlive_their_requests_are_capped() {
    let mut world = World::new(Config { stragglers: 2, ..config() });
    let calls = ["a", "b"].map(|id| world.start(id, false).unwrap());
    for id in ["a", "b"] {
        assert_eq!(world.cancel(&id.into()), Some(true));
    }
    assert_eq!(world.coordinator.stragglers(), 2);
    assert!(matches!(world.start("c", false), Err(Refusal::Full(_))));
    world.end_handler(calls[0]);
    let next = world.start("c", false).unwrap();
    world.complete(next);
    assert_eq!(world.coordinator.stragglers(), 1, "a handler that ends in time is none");
    world.end_handler(calls[1]);
    assert_eq!((world.coordinator.stragglers(), world.coordinator.counters().refused), (0, 1));
}

#[test]
fn idle_500_maximum_2000_with_progress_in_time_lives_until_the_maximum() {
    let mut world = World::new(config());
    let call = world.start("a", false).unwrap();
    for at in [400, 800, 1200] {
        world.go_to(ms(at));
        assert_eq!(world.report(call, false), Some(true));
    }
    world.go_to(ms(1500));
    assert_eq!(world.lines(), [line(A, "3")], "alive at 1500; the newest value replaced the others");
    for at in [1600, 1999] {
        world.go_to(ms(at));
        assert_eq!(world.report(call, false), Some(true));
    }
    world.go_to(ms(2000));
    assert_eq!(world.lines(), [line(A, "5"), line(A, "Maximum ran out")], "progress at 1999 does not move it");
    world.complete(call);
    assert_eq!(world.lines(), [], "the late completion is dropped (rule C8: exactly one error)");
    assert_eq!(world.coordinator.counters().timed_out(), 1);
}

#[test]
fn without_progress_the_idle_clock_ends_it_at_500() {
    let mut world = World::new(config());
    let call = world.start("a", false).unwrap();
    assert_eq!(world.report(call, false), Some(true));
    assert_eq!(world.lines(), [line(A, "1")]);
    for at in [100, 300, 499] {
        world.go_to(ms(at));
        assert_eq!(world.report(call, true), Some(false), "the same value again is no activity (REQ-3)");
    }
    assert_eq!(world.lines(), []);
    world.go_to(ms(500));
    assert_eq!(world.lines(), [line(A, "Idle ran out")]);
}

#[test]
fn progress_in_hand_at_the_maximum_saves_nothing_and_a_flood_cannot_postpone_the_clock() {
    let mut world = World::new(Config { limits: limits(500, 2000), progress_interval: Duration::ZERO, ..config() });
    let call = world.start("a", false).unwrap();
    for step in 1..2000 {
        world.now = ms(step);
        assert_eq!(world.report(call, false), Some(true));
    }
    world.now = ms(2000);
    for _ in 0..100 {
        assert_eq!(world.report(call, false), Some(false), "rule T5, before the clock was looked at");
    }
    assert_eq!(world.lines(), [line(A, "1999"), line(A, "Maximum ran out")]);
    assert_eq!(world.poll(), None, "and no deadline is left over");
}

#[test]
fn a_held_value_leaves_when_its_time_comes_and_before_the_answer() {
    let mut world = World::new(config());
    let call = world.start("a", false).unwrap();
    for at in [0, 10, 20] {
        world.now = ms(at);
        assert_eq!(world.report(call, false), Some(true));
    }
    assert_eq!(world.lines(), [line(A, "1")], "one in 50 ms");
    assert_eq!(world.poll(), Some(ms(50)));
    world.go_to(ms(50));
    assert_eq!(world.lines(), [line(A, "3")]);
    world.now = ms(60);
    assert_eq!(world.report(call, false), Some(true));
    world.complete(call);
    assert_eq!(world.lines(), [line(A, "4"), line(A, "result")], "PROG-2");
}

#[test]
fn re_arming_leaves_one_deadline_a_request() {
    let limits = Limits { idle: None, maximum: Some(Duration::from_secs(3600)) };
    let mut world = World::new(Config { limits, ..config() });
    let calls: Vec<_> = (0..10).map(|n| world.start(&n.to_string(), false).unwrap()).collect();
    for step in 1..2000 {
        world.go_to(ms(step * 7));
        for call in &calls {
            assert_eq!(world.report(*call, false), Some(true));
        }
        assert!(world.coordinator.armed() <= calls.len(), "{} deadlines are watched", world.coordinator.armed());
    }
    assert_eq!(world.coordinator.counters().timed_out(), 0);
}

#[test]
fn after_idle_no_deadline_at_or_before_now_remains() {
    let mut world = World::new(config());
    for n in 0..100 {
        world.now = ms(n);
        world.start(&n.to_string(), false).unwrap();
    }
    // A shell that slept too long: all are due at once.
    world.now = ms(550);
    assert_eq!(world.poll(), Some(ms(551)), "COORD-4");
    let lines = world.lines();
    assert_eq!(lines.len(), 51);
    assert!(lines.iter().all(|(_, text)| text == "Idle ran out"));
    assert_eq!(lines[0].0, "\"0\"", "the earliest first");
}

#[test]
fn only_an_open_listen_is_ended_by_the_server() {
    let mut world = World::new(config());
    let call = world.start("call", false).unwrap();
    let listen = world.start("listen", true).unwrap();
    assert!(world.coordinator.end_listen(world.now, call).is_err(), "COORD-5: a call is the client's to cancel");
    world.go_to(ms(499));
    world.complete(call);
    world.go_to(ms(1_000_000));
    let end = world.coordinator.end_listen(world.now, listen).expect("open, and under no clock");
    assert_eq!(*end.cancellation.id(), "listen".into());
    let mut notice = Vec::new();
    assert!(!end.cancellation.encode(Transport::Http, &mut notice) && notice.is_empty(), "on HTTP the stream closes");
    assert!(end.cancellation.encode(Transport::Stdio, &mut notice), "on stdio the notification follows the result");
    assert_eq!(notice, br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"listen"}}"#);
    world.act(listen, end.effect);
    assert!(world.coordinator.end_listen(world.now, listen).is_err(), "ended");
    assert_eq!(world.lines(), [line("\"call\"", "result"), line("\"listen\"", "result")]);
    assert!(world.coordinator.end_listen(world.now, listen).is_err(), "gone");
    let listen = world.start("listen", true).unwrap();
    assert_eq!(world.cancel(&"listen".into()), Some(true));
    assert!(world.coordinator.end_listen(world.now, listen).is_err(), "cancelled");
}

#[test]
fn closing_ends_in_silence_what_is_in_flight_and_keeps_what_is_answered() {
    let mut world = World::new(config());
    let [answered, running] = ["answered", "running"].map(|id| world.start(id, false).unwrap());
    assert_eq!(world.report(running, false), Some(true));
    world.complete(answered);
    world.close();
    assert_eq!(world.start("late", false), Err(Refusal::Closed));
    assert_eq!(world.lines(), [line("\"answered\"", "result")]);
    assert_eq!((world.coordinator.in_flight(), world.coordinator.stragglers()), (0, 1));
    world.complete(running);
    world.close();
    assert_eq!((world.lines(), world.coordinator.stragglers()), (vec![], 0));
}

#[test]
fn a_coordinator_at_rest_has_no_deadline() {
    let mut coordinator = RequestCoordinator::<ServedRequest>::new(Config::default());
    assert_eq!(coordinator.poll(Instant::MAX), Polled::Idle { wake_at: None });
}

#[test]
fn a_listen_over_its_cap_is_refused_and_a_cancelled_one_frees_its_place() {
    let mut world = World::new(Config { listens: 1, ..Config::default() });
    world.start("a", true).expect("the first");
    assert_eq!(world.start("b", true), Err(Refusal::TooManyListens(1)));
    world.start("b", false).expect("other requests have their own cap");
    assert_eq!(world.cancel(&"a".into()), Some(true));
    assert_eq!(world.coordinator.listens(), 0);
    world.start("c", true).expect("its place is free at once");
}
