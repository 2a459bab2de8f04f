//! What becomes of tasks that nobody ends: in doubt, expired, or tampered with.

use steady_ledger::{Resolution, Status};

use super::*;

/// A task whose worker was lost in an external step.
fn lost(desk: &Desk, key_text: &str) -> Lease {
    let lease = desk.started(key_text);
    desk.tasks().external_started(&lease).unwrap();
    desk.advance(LEASE);
    lease
}

#[test]
fn a_worker_that_is_lost_in_an_external_step_leaves_a_doubt_that_nobody_runs() {
    let desk = Desk::open();
    let lease = lost(&desk, "order-7");
    let before = desk.tasks().last_revision().unwrap();
    assert!(desk.claim().is_none());
    let task = desk.get(lease.task()).unwrap();
    assert_eq!((task.status, task.revision > before), (Status::Working, true), "a client hears of it");
    assert!(task.progress.message.unwrap().contains("unknown outcome"));
    assert_all_refused(&desk.tasks(), &lease, "LeaseLost");
    desk.now.store(i64::MAX / 2, Ordering::Relaxed);
    assert!(desk.claim().is_none(), "no passage of time ends it");
    let doubts = desk.tasks().in_doubt(None, 10).unwrap();
    assert_eq!(doubts.len(), 1);
    assert_eq!((&doubts[0].id, doubts[0].in_doubt, doubts[0].epoch), (lease.task(), true, 2));
    assert_eq!(desk.tasks().in_doubt(Some(lease.task()), 10).unwrap(), []);
}

#[test]
fn a_step_that_is_done_or_a_lease_that_holds_leaves_no_doubt() {
    let desk = Desk::open();
    let lease = desk.started("order-7");
    desk.tasks().external_started(&lease).unwrap();
    desk.advance(LEASE - Duration::from_millis(1));
    assert_eq!(desk.tasks().expire_leases(10).unwrap(), 0);
    desk.tasks().external_done(&lease).unwrap();
    desk.advance(LEASE);
    assert_eq!(desk.tasks().expire_leases(10).unwrap(), 0);
    assert_eq!(desk.claim().unwrap().lease.epoch(), 2);
}

#[test]
fn a_worker_that_gives_up_in_an_external_step_leaves_a_doubt() {
    let desk = Desk::open();
    let lease = desk.started("order-7");
    desk.tasks().external_started(&lease).unwrap();
    desk.tasks().release(&lease).unwrap();
    assert!(desk.claim().is_none());
    assert_eq!(desk.tasks().in_doubt(None, 10).unwrap().len(), 1);
}

#[test]
fn an_operator_resolves_a_doubt_once() {
    let desk = Desk::open();
    let tasks = desk.tasks();
    let resolve =
        |lease: &Lease, resolution| named(tasks.resolve(lease.task(), resolution, "ada", "asked the carrier"));
    for (number, resolution, status, outcome) in [
        (1, Resolution::Complete(body("shipped")), Status::Completed, Some(body("shipped"))),
        (2, Resolution::Fail(body("refused")), Status::Failed, Some(body("refused"))),
        (3, Resolution::Cancel, Status::Cancelled, None),
        (4, Resolution::Requeue, Status::Working, None),
    ] {
        let lease = lost(&desk, &format!("order-{number}"));
        assert_eq!(resolve(&lease, resolution.clone()), Err("NotInDoubt".to_owned()), "not yet");
        assert_eq!(tasks.expire_leases(10).unwrap(), 1);
        if matches!(resolution, Resolution::Cancel) {
            assert_eq!(resolve(&lease, Resolution::Cancel), Err("NotRequested".to_owned()));
            tasks.cancel("tenant-1", lease.task()).unwrap();
        }
        let before = tasks.last_revision().unwrap();
        resolve(&lease, resolution.clone()).unwrap();
        let task = desk.get(lease.task()).unwrap();
        assert!(task.revision > before);
        assert_eq!((task.status, task.outcome, task.progress.message), (status, outcome, None));
        assert_eq!(resolve(&lease, resolution), Err("NotInDoubt".to_owned()), "not again");
        assert_eq!(tasks.in_doubt(None, 10).unwrap(), []);
        assert_eq!(desk.count("SELECT count(*) FROM ledger_task_audit"), number);
        if status == Status::Working {
            assert_eq!(desk.claim().unwrap().lease.epoch(), 3);
        }
    }
    let audit =
        "SELECT count(*) FROM ledger_task_audit WHERE actor = 'ada' AND note = 'asked the carrier' AND at_ms > 0";
    assert_eq!(desk.count(audit), 4);
    let asks = Body::new(&serde_json::json!({ "resultType": "input_required" })).unwrap();
    let lease = lost(&desk, "order-5");
    tasks.expire_leases(10).unwrap();
    assert_eq!(resolve(&lease, Resolution::Complete(asks)), Err("NotFinal".to_owned()));
    let never = TaskId::parse(&"0".repeat(32)).unwrap();
    assert_eq!(named(tasks.resolve(&never, Resolution::Requeue, "ada", "")), Err("Unknown".to_owned()));
}

#[test]
fn lists_are_bounded_and_go_on_where_they_ended() {
    let desk = Desk::open();
    let mut ids: Vec<_> = (0..5).map(|number| desk.fresh(&format!("order-{number}"))).collect();
    ids.sort();
    let lease = desk.claim().unwrap().lease;
    desk.tasks().complete(&lease, body("done")).unwrap();
    ids.retain(|id| id != lease.task());
    let list =
        |after, limit| -> Vec<_> { desk.tasks().live(after, limit).unwrap().into_iter().map(|task| task.id).collect() };
    assert_eq!(list(None, 3), ids[..3]);
    assert_eq!(list(Some(&ids[2]), u32::MAX), ids[3..]);
    let claimed = desk.claim().unwrap();
    let live = desk.tasks().live(None, 10).unwrap();
    let task = live.iter().find(|task| task.id == *claimed.lease.task()).unwrap();
    assert_eq!((task.owner.as_deref(), task.claimable_at.unix_millis()), (Some("worker-1"), START + 100));
    assert_eq!((&task.scope, task.created_at.unix_millis(), task.in_doubt), (&scope(), START, false));
}

#[test]
fn expired_tasks_are_removed_in_batches_but_not_those_that_somebody_holds() {
    let desk = Desk::open();
    let spec = TaskSpec { ttl: Some(Duration::from_millis(500)), ..TaskSpec::default() };
    let create = || desk.tasks().create_keyless(&scope(), spec.clone()).unwrap().id;
    let (in_doubt, held, over, waiting) = (create(), create(), create(), create());
    let claim = |lease| desk.tasks().claim(&["reserve_inventory"], "worker-1", lease).unwrap().unwrap().lease;
    let lease = claim(LEASE);
    assert_eq!(*lease.task(), in_doubt);
    desk.tasks().external_started(&lease).unwrap();
    let holds = claim(Duration::from_secs(60));
    let lease = claim(LEASE);
    desk.tasks().ask(&lease, vec![("size".into(), body("which?"))]).unwrap();
    let abandoned = claim(LEASE);
    desk.tasks().complete(&abandoned, body("done")).unwrap();
    assert_eq!(desk.tasks().collect_expired(10).unwrap(), 0);
    desk.advance(Duration::from_millis(500));
    assert_eq!(desk.tasks().expire_leases(10).unwrap(), 1);
    assert_eq!(desk.tasks().collect_expired(1).unwrap(), 1);
    assert_eq!(desk.tasks().collect_expired(10).unwrap(), 1, "{over} and {waiting} are gone");
    assert_eq!(desk.tasks().collect_expired(10).unwrap(), 0);
    assert_eq!(desk.count("SELECT count(*) FROM ledger_task_input"), 0);
    let left: Vec<_> = desk.tasks().live(None, 10).unwrap().into_iter().map(|task| task.id).collect();
    assert_eq!(left.len(), 2);
    assert!(left.contains(&in_doubt) && left.contains(&held));
    assert_all_refused(&desk.tasks(), &lease, "LeaseLost");
    desk.tasks().complete(&holds, body("for nobody")).unwrap();
    assert_eq!(desk.tasks().collect_expired(10).unwrap(), 1);
    desk.tasks().resolve(&in_doubt, Resolution::Fail(body("lost")), "ada", "too late").unwrap();
    assert_eq!(desk.tasks().collect_expired(10).unwrap(), 1);
}

#[test]
fn new_tasks_clear_old_ones_away() {
    let desk = Desk::open();
    let spec = TaskSpec { ttl: Some(Duration::from_millis(10)), ..TaskSpec::default() };
    for _ in 0..100 {
        desk.tasks().create_keyless(&scope(), spec.clone()).unwrap();
        desk.advance(Duration::from_millis(5));
    }
    assert_eq!(desk.count("SELECT count(*) FROM ledger_task"), 2);
}

#[test]
fn a_terminal_task_stays_as_it_is_even_for_a_stranger() {
    let desk = Desk::open();
    let lease = desk.started("order-7");
    desk.tasks().complete(&lease, body("done")).unwrap();
    let asked = desk.started("order-8");
    desk.tasks().ask(&asked, vec![("size".into(), body("which?"))]).unwrap();
    let stranger = desk.shop.stranger();
    stranger.execute("UPDATE ledger_task_input SET response = '1'", []).unwrap();
    let refused = [
        "UPDATE ledger_task SET status = 'working', outcome = NULL WHERE status = 'completed'",
        "UPDATE ledger_task SET outcome = '1' WHERE status = 'completed'",
        "UPDATE ledger_task SET lease_epoch = 9 WHERE status = 'completed'",
        "INSERT OR REPLACE INTO ledger_task SELECT * FROM ledger_task WHERE status = 'completed'",
        "UPDATE ledger_task_input SET response = '2'",
        "UPDATE ledger_task SET status = 'completed' WHERE status = 'input_required'",
        "UPDATE ledger_task SET status = 'cancelled' WHERE status = 'input_required'",
        "UPDATE ledger_task SET in_doubt = 1 WHERE status = 'input_required'",
        "UPDATE ledger_task SET status = 'done' WHERE status = 'input_required'",
    ];
    for sql in refused {
        let error = stranger.execute(sql, []).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::ConstraintViolation), "{sql}: {error}");
    }
    assert_eq!(desk.get(lease.task()).unwrap().outcome, Some(body("done")));
}

const SECRET: &str = "4000-1234-SECRET";

#[test]
fn nothing_that_is_printed_holds_a_content_and_the_payload_goes_with_the_end() {
    let desk = Desk::open();
    let spec = TaskSpec { payload: Some(body(SECRET)), ..TaskSpec::default() };
    let mut printed = vec![format!("{spec:?}")];
    let created = create_for(&desk.tasks(), "tenant-1", "order-7", spec).unwrap();
    printed.push(format!("{created:?} {:?}", created.clone().into_inner()));
    let claimed = desk.claim().unwrap();
    printed.push(format!("{claimed:?} {:?}", desk.tasks()));
    let lease = &claimed.lease;
    let progress = Progress { step: 1, state: Some(body(SECRET)), message: None };
    printed.push(format!("{:?}", desk.tasks().checkpoint(lease, progress).unwrap()));
    desk.tasks().ask(lease, vec![("size".into(), body(SECRET))]).unwrap();
    printed.push(format!("{:?}", desk.get(lease.task()).unwrap()));
    let answer = std::collections::BTreeMap::from([("size".into(), body(SECRET))]);
    desk.tasks().update("tenant-1", lease.task(), answer).unwrap();
    printed.push(format!("{:?}", desk.tasks().checkpoint(lease, step(2)).unwrap()));
    let unreadable = body(SECRET).decode::<i64>().unwrap_err();
    printed.push(format!("{unreadable} {unreadable:?}"));
    assert_eq!(desk.count("SELECT payload IS NOT NULL FROM ledger_task"), 1);
    desk.tasks().complete(lease, body(SECRET)).unwrap();
    assert_eq!(desk.count("SELECT payload IS NULL FROM ledger_task"), 1);
    let over = desk.get(lease.task()).unwrap();
    assert_eq!(over.outcome.as_ref().unwrap().decode::<String>().unwrap(), SECRET);
    printed.push(format!("{over:?} {:?}", Resolution::Complete(body(SECRET))));
    for text in printed {
        assert!(!text.contains(SECRET), "{text}");
    }
}
