//! What the coordinator counts.

use steady_core::coordinator::{Config, Start};
use steady_core::deadline::Limits;

use super::scripts::{config, limits, ms};
use super::world::World;

#[test]
fn a_request_is_watched_from_its_start_to_its_removal_if_it_has_a_clock() {
    let mut world = World::new(Config { limits: limits(500, 2000), ..config() });
    let [first, _second] = ["a", "b"].map(|id| world.start(id, false).unwrap());
    let _listen = world.start_with(Start { id: "c".into(), token: None, listen: true }).unwrap();
    assert_eq!((world.coordinator.counters().started, world.coordinator.armed()), (3, 2), "a listen has no clock");
    world.complete(first);
    assert_eq!(world.lines().len(), 1);
    assert_eq!((world.coordinator.in_flight(), world.coordinator.armed()), (2, 1));
    assert_eq!(world.coordinator.counters().started, 3, "what has been started stays counted");
}

#[test]
fn a_request_without_limits_is_not_watched() {
    let mut world = World::new(Config { limits: Limits::default(), ..config() });
    let _call = world.start("a", false).unwrap();
    assert_eq!(world.coordinator.armed(), 0);
}

#[test]
fn progress_moves_the_next_deadline_and_never_the_last() {
    let mut world = World::new(Config { limits: limits(500, 2000), ..config() });
    world.now = ms(10);
    let call = world.start("a", false).unwrap();
    world.now = ms(400);
    assert_eq!(world.report(call, false), Some(true));
    let seat = world.coordinator.seat(call).expect("in flight");
    assert_eq!((seat.wake_at(), seat.max_at()), (Some(ms(900)), Some(ms(2010))));
}
