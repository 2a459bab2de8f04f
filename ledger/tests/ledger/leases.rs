//! A lease that nobody could have meant ends all the same, so that what its holder left can be settled.

use std::time::Duration;

use steady_ledger::{Begun, External, Message, Resolved, Target, TaskSpec};

use super::clock::TestClock;
use super::*;

const START: i64 = 1_790_000_000_000;
const DAY: i64 = 86_400_000;

fn shop() -> (Shop, TestClock) {
    let clock = TestClock::at(START);
    (Shop::open_with(Options { clock: clock.clock(), ..options() }), clock)
}

#[test]
fn an_outside_effect_of_a_lease_without_end_can_be_resolved_after_a_day() {
    let (shop, clock) = shop();
    let (scope, order) = (scope(), key("order-7"));
    let begun = shop.ledger.begin::<i64>(&Request::new(&scope, &order, "{}"), &External::new(Duration::MAX));
    let Begun::Send(attempt) = begun.unwrap() else { panic!("replayed") };
    assert_eq!(attempt.lease_until().unix_millis(), START + DAY, "its sender is told");
    drop(attempt);
    let resolve = || shop.ledger.resolve(&scope, &order, &Resolved::Committed(7), "ops", "seen");
    clock.pass(DAY - 1);
    assert!(matches!(resolve(), Err(LedgerError::InFlight { .. })));
    clock.pass(1);
    resolve().unwrap();
}

#[test]
fn a_message_of_a_lease_without_end_is_found_after_a_day() {
    let (shop, clock) = shop();
    let leave = |tx: &mut EffectTx<'_>| Ok(tx.enqueue(Message::new("mail", "hello"))?);
    shop.ledger.execute(&Request::new(&scope(), &key("order-7"), "{}"), leave).unwrap().into_inner();
    let outbox = shop.ledger.outbox(Target::new("mail"));
    let sent = outbox.claim(1, Duration::MAX).unwrap();
    assert_eq!(sent[0].lease_until().unix_millis(), START + DAY);
    drop(sent);
    for (pass, stuck) in [(DAY - 1, 0), (1, 1)] {
        clock.pass(pass);
        assert!(outbox.claim(1, Duration::MAX).unwrap().is_empty());
        assert_eq!(outbox.stuck(10).unwrap().len(), stuck);
    }
}

#[test]
fn a_task_of_a_lease_without_end_goes_to_the_next_worker_after_a_day() {
    let (shop, clock) = shop();
    let tasks = shop.ledger.tasks();
    tasks.create_keyless(&scope(), TaskSpec { ttl: None, ..TaskSpec::default() }).unwrap();
    let claim = |owner| tasks.claim(&[&scope().operation], owner, Duration::MAX).unwrap();
    let first = claim("worker-1").unwrap();
    clock.pass(1);
    let kept = tasks.checkpoint(&first.lease, steady_ledger::Progress::default()).unwrap();
    assert!(!kept.cancel_requested);
    clock.pass(DAY - 1);
    assert!(claim("worker-2").is_none(), "a checkpoint extends it");
    clock.pass(1);
    assert!(claim("worker-2").is_some());
}
