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
