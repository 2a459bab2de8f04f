//! A clock that jumps, either way, loses no task and holds none up.

use steady_ledger::Status;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MINUTE: Duration = Duration::from_secs(60);

impl Desk {
    fn set(&self, millis: i64) {
        self.now.store(millis, Ordering::Relaxed);
    }
}

#[test]
fn a_clock_that_jumps_ahead_removes_no_task_until_it_is_confirmed() {
    let desk = Desk::open();
    let id = desk.fresh("order-7");
    desk.advance(DAY * 2);
    assert!(desk.claim().is_none());
    assert!(matches!(desk.get(&id), Err(TaskError::Unknown)), "it hides what it shows as expired");
    desk.create("order-8").unwrap().into_inner();
    assert_eq!(desk.tasks().collect_expired(10).unwrap(), 0);
    // It was wrong.
    desk.set(START);
    assert_eq!(desk.get(&id).unwrap().status, Status::Working);
    assert_eq!(*desk.claim().unwrap().lease.task(), id);
    // It is right.
    desk.advance(DAY * 2);
    assert_eq!(desk.tasks().collect_expired(10).unwrap(), 0);
    desk.advance(MINUTE);
    assert_eq!(desk.tasks().collect_expired(10).unwrap(), 1);
}

#[test]
fn a_task_that_is_created_after_a_wrong_clock_was_put_right_lives_its_time() {
    let desk = Desk::open();
    desk.advance(DAY * 1000);
    assert_eq!(desk.tasks().collect_expired(1).unwrap(), 0);
    desk.advance(MINUTE);
    assert_eq!(desk.tasks().collect_expired(1).unwrap(), 0, "believed");
    desk.set(START);
    let id = desk.fresh("order-7");
    assert_eq!(desk.tasks().collect_expired(10).unwrap(), 0);
    assert_eq!(*desk.claim().unwrap().lease.task(), id);
    desk.advance(DAY);
    assert_eq!(desk.tasks().collect_expired(10).unwrap(), 1);
}

#[test]
fn a_clock_that_goes_back_leaves_no_task_stuck() {
    let desk = Desk::open();
    let spec = TaskSpec { ttl: Some(Duration::from_millis(10)), ..TaskSpec::default() };
    let expired = desk.tasks().create_keyless(&scope(), spec).unwrap().id;
    let outlived = desk.claim().unwrap().lease;
    assert_eq!(*outlived.task(), expired);
    let long = desk.fresh("long");
    let held = desk.tasks().claim(&["reserve_inventory"], "worker-1", DAY * 7).unwrap().unwrap().lease;
    assert_eq!(*held.task(), long);
    desk.advance(DAY);
    assert_eq!(named(desk.tasks().checkpoint(&outlived, step(1)).map(drop)), Err("LeaseLost".to_owned()));
    let outside = desk.started("outside");
    desk.tasks().external_started(&outside).unwrap();
    let lost = desk.started("lost");
    let waiting = desk.fresh("waiting");

    desk.set(START + 1_000);
    let first = desk.claim().unwrap().lease;
    assert_eq!(*first.task(), waiting);
    assert_eq!(*desk.claim().unwrap().lease.task(), *lost.task());
    assert!(desk.claim().is_none(), "a long lease is as long as it is");
    let in_doubt = desk.tasks().in_doubt(None, 10).unwrap();
    assert_eq!(in_doubt.into_iter().map(|task| task.id).collect::<Vec<_>>(), [outside.task().clone()]);
    assert_all_refused(&desk.tasks(), &lost, "LeaseLost");
    assert_all_refused(&desk.tasks(), &outlived, "LeaseLost");
    assert_eq!(desk.count("SELECT count(*) FROM ledger_task"), 4, "what has expired is gone");
    desk.tasks().resolve(outside.task(), steady_ledger::Resolution::Requeue, "ada", "").unwrap();
    desk.tasks().complete(&first, body("done")).unwrap();
    assert!([0, 1].into_iter().filter_map(|_| desk.claim()).any(|claimed| claimed.lease.task() == outside.task()));
}
