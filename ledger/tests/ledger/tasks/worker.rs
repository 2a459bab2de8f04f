//! What a worker can do with a task, and when it no longer can.

use std::sync::atomic::AtomicUsize;

use steady_ledger::{BoxError, Status};

use super::*;
use crate::writer::block_on;

/// A reservation, as a step of a task.
fn reserving(tx: &mut EffectTx<'_>) -> Result<(), BoxError> {
    reserve(tx).map(drop).map_err(|_| "reserve".into())
}

#[test]
fn a_worker_gets_what_the_task_was_created_with() {
    let desk = Desk::open();
    let spec = TaskSpec { payload: Some(body("a-1")), message: Some("queued".into()), ..TaskSpec::default() };
    let task = create_for(&desk.tasks(), "tenant-1", "order-7", spec).unwrap().into_inner();
    assert!(desk.tasks().claim(&["another"], "worker-1", LEASE).unwrap().is_none());
    assert!(desk.tasks().claim(&[], "worker-1", LEASE).unwrap().is_none());
    let claimed = desk.claim().unwrap();
    assert_eq!((claimed.scope, claimed.key, claimed.payload), (scope(), Some(key("order-7")), Some(body("a-1"))));
    assert_eq!(claimed.progress, Progress { message: Some("queued".into()), ..Progress::default() });
    assert_eq!((claimed.lease.epoch(), claimed.lease.task()), (1, &task.id));
    assert!(desk.claim().is_none(), "a task has one worker");
    assert_eq!(desk.get(&task.id).unwrap(), task, "a client sees nothing of it");
}

#[test]
fn the_task_that_waits_longest_is_claimed_first_over_all_operations() {
    let desk = Desk::open();
    let tasks = desk.tasks();
    let create = |operation: &str| {
        desk.advance(Duration::from_millis(1));
        tasks.create_keyless(&Scope::new("tenant-1", operation), TaskSpec::default()).unwrap().id
    };
    let expected = [create("b"), create("a"), create("b")];
    let claimed = [(); 3].map(|()| tasks.claim(&["a", "b"], "worker-1", LEASE).unwrap().unwrap());
    assert_eq!(claimed.map(|claimed| claimed.lease.task().clone()), expected);
}

#[test]
fn a_lease_that_is_over_gives_the_task_to_the_next_worker_and_shuts_the_first_out() {
    let desk = Desk::open();
    let first = desk.started("order-7");
    let state = Progress { step: 3, state: Some(body("half")), message: Some("packing".into()) };
    assert!(desk.tasks().checkpoint(&first, state.clone()).unwrap().stored);
    desk.advance(LEASE - Duration::from_millis(1));
    assert!(desk.claim().is_none());
    assert!(!desk.tasks().checkpoint(&first, step(0)).unwrap().stored, "it only extends the lease");
    desk.advance(LEASE - Duration::from_millis(1));
    assert!(desk.claim().is_none());
    desk.advance(Duration::from_millis(1));
    let second = claim(&desk.other().tasks(), "worker-1").unwrap();
    assert_eq!((second.lease.epoch(), &second.progress), (2, &state));
    assert_all_refused(&desk.tasks(), &first, "LeaseLost");
    assert_eq!(desk.get(first.task()).unwrap().progress, state);
    desk.tasks().complete(&second.lease, body("done")).unwrap();
    assert_all_refused(&desk.tasks(), &first, "LeaseLost");
    assert_all_refused(&desk.tasks(), &second.lease, "Over(Completed)");
    assert_eq!(desk.get(first.task()).unwrap().outcome, Some(body("done")));
    assert_eq!(desk.shop.reservations(), 0);
}

#[test]
fn a_late_worker_goes_on_if_nobody_took_its_task() {
    let desk = Desk::open();
    let lease = desk.started("order-7");
    desk.advance(LEASE * 10);
    assert!(desk.tasks().checkpoint(&lease, step(1)).unwrap().stored);
    assert!(desk.claim().is_none());
    desk.tasks().complete(&lease, body("done")).unwrap();
}

/// Nobody can answer it, see it or cancel it any more: a worker that kept it would wait for ever.
#[test]
fn a_task_whose_life_is_over_is_no_work_any_more_not_even_if_it_waits_for_an_answer() {
    let desk = Desk::open_with(TaskLimits { live_per_principal: 1, ..TaskLimits::default() });
    let spec = TaskSpec { ttl: Some(Duration::from_millis(150)), ..TaskSpec::default() };
    let create = || desk.tasks().create_keyless(&scope(), spec.clone());
    create().unwrap();
    let lease = desk.claim().unwrap().lease;
    desk.tasks().ask(&lease, vec![("size".into(), body("which?"))]).unwrap();
    desk.advance(Duration::from_millis(90));
    assert!(!desk.tasks().checkpoint(&lease, step(0)).unwrap().stored, "it lives");
    desk.advance(Duration::from_millis(60));
    let calls = [
        named(desk.tasks().checkpoint(&lease, step(0)).map(drop)),
        named(desk.tasks().checkpoint_with(&lease, step(1), reserving).map(drop)),
        named(desk.tasks().ask(&lease, vec![("colour".into(), body("which?"))])),
        named(desk.tasks().external_started(&lease)),
    ];
    assert_eq!(calls, [(); 4].map(|()| Err("LeaseLost".to_owned())));
    assert_eq!(
        named(create()).map(drop),
        Err("TooMany { limit: 1 }".to_owned()),
        "it holds its place to its lease's end"
    );
    // Nothing extended that.
    desk.advance(Duration::from_millis(40));
    create().unwrap();
    assert_eq!(desk.shop.reservations(), 0);
}

#[test]
fn a_step_outside_can_be_closed_after_the_life_of_its_task() {
    let desk = Desk::open();
    let spec = TaskSpec { ttl: Some(Duration::from_millis(50)), ..TaskSpec::default() };
    desk.tasks().create_keyless(&scope(), spec).unwrap();
    let lease = desk.claim().unwrap().lease;
    desk.tasks().external_started(&lease).unwrap();
    desk.advance(Duration::from_millis(50));
    assert!(desk.tasks().checkpoint(&lease, step(1)).unwrap().stored);
    desk.tasks().external_done(&lease).unwrap();
    assert_eq!(named(desk.tasks().checkpoint(&lease, step(2)).map(drop)), Err("LeaseLost".to_owned()));
    desk.tasks().release(&lease).unwrap();
}

#[test]
fn a_lease_is_of_its_owner_and_of_its_epoch() {
    let desk = Desk::open();
    let first = desk.started("order-7");
    desk.tasks().release(&first).unwrap();
    assert_all_refused(&desk.tasks(), &first, "LeaseLost");
    let second = claim(&desk.tasks(), "worker-2").unwrap().lease;
    assert_eq!(second.epoch(), 2, "at once, and with a new epoch");
    assert_all_refused(&desk.tasks(), &first, "LeaseLost");
    assert_eq!(second.duration(), LEASE);
}

#[test]
fn a_crash_between_two_steps_repeats_neither() {
    let mut desk = Desk::open();
    let lease = desk.started("order-7");
    let progress = |number: u64| Progress { step: number, state: Some(body("kept")), message: None };
    assert!(desk.tasks().checkpoint_with(&lease, progress(1), reserving).unwrap().stored);
    // The worker and its process are gone.
    desk.shop.ledger.close().unwrap();
    desk.shop.ledger = desk.other();
    assert!(desk.claim().is_none(), "its lease is not");
    desk.advance(LEASE);
    let claimed = desk.claim().unwrap();
    assert_eq!((claimed.lease.epoch(), claimed.progress), (2, progress(1)));
    let again = desk.tasks().checkpoint_with(&claimed.lease, step(1), reserving).unwrap();
    assert_eq!((again.stored, desk.shop.reservations()), (false, 1));
    assert!(desk.tasks().checkpoint_with(&claimed.lease, progress(2), reserving).unwrap().stored);
    assert_eq!(desk.shop.reservations(), 2);
}

#[test]
fn a_step_and_its_effect_are_one() {
    let desk = Desk::open();
    let lease = desk.started("order-7");
    let before = desk.get(lease.task()).unwrap();
    desk.advance(Duration::from_millis(60));
    let fails = |effect: fn(&mut EffectTx<'_>) -> Result<(), BoxError>| {
        named(desk.tasks().checkpoint_with(&lease, step(1), effect)).map(drop).unwrap_err()
    };
    let aborted = fails(|tx| {
        reserving(tx)?;
        Err("no stock".into())
    });
    assert_eq!(aborted, r#"Aborted("no stock")"#);
    let ended = fails(|tx| {
        reserving(tx)?;
        drop(tx.execute("COMMIT", []));
        Ok(())
    });
    assert_eq!(ended, "Forbidden");
    assert_eq!(fails(|_| std::panic::resume_unwind(Box::new("planned"))), "Panicked");
    assert_eq!(
        fails(|tx| {
            reserving(tx)?;
            drop(tx.execute("UPDATE ledger_task SET step = 9", []));
            Ok(())
        }),
        "Forbidden"
    );
    assert_eq!((desk.get(lease.task()).unwrap(), desk.shop.reservations()), (before, 0));
    assert_eq!(desk.count("SELECT claimable_ms FROM ledger_task"), START + 100, "the lease is as it was");
    assert!(desk.tasks().checkpoint_with(&lease, step(1), reserving).unwrap().stored);
    assert_eq!((desk.get(lease.task()).unwrap().progress.step, desk.shop.reservations()), (1, 1));
}

#[test]
fn an_effect_of_a_task_may_not_call_the_ledger() {
    let desk = Desk::open();
    let lease = desk.started("order-7");
    let (tasks, inner) = (desk.tasks(), lease.clone());
    let inside = move |_: &mut EffectTx<'_>| {
        assert_eq!(named(tasks.complete(&inner, body("done"))), Err("Reentrant".to_owned()));
        assert_eq!(named(tasks.get("tenant-1", inner.task())).map(drop), Err("Reentrant".to_owned()));
        Ok(())
    };
    assert!(desk.tasks().checkpoint_with(&lease, step(1), inside).unwrap().stored);
}

#[test]
fn progress_never_goes_back() {
    let desk = Desk::open();
    let lease = desk.started("order-7");
    let at = |step, text: &str| Progress { step, state: Some(body(text)), message: Some(text.into()) };
    for (progress, stored) in [(at(5, "five"), true), (at(4, "four"), false), (at(5, "again"), false)] {
        assert_eq!(desk.tasks().checkpoint(&lease, progress).unwrap().stored, stored);
        assert_eq!(desk.get(lease.task()).unwrap().progress, at(5, "five"));
    }
    assert!(desk.tasks().checkpoint(&lease, step(u64::MAX)).unwrap().stored);
    let last = desk.get(lease.task()).unwrap();
    assert_eq!((last.progress.step, last.progress.message.as_deref()), (i64::MAX.unsigned_abs(), Some("five")));
}

#[test]
fn a_checkpoint_brings_the_cancellation_and_the_worker_ends_the_task() {
    let desk = Desk::open();
    let lease = desk.started("order-7");
    assert!(!desk.tasks().checkpoint(&lease, step(1)).unwrap().cancel_requested);
    assert_eq!(named(desk.tasks().observe_cancel(&lease)), Err("NotRequested".to_owned()));
    desk.other().tasks().cancel("tenant-1", lease.task()).unwrap();
    assert!(desk.tasks().checkpoint(&lease, step(1)).unwrap().cancel_requested);
    assert!(desk.tasks().checkpoint_with(&lease, step(2), reserving).unwrap().cancel_requested);
    desk.tasks().observe_cancel(&lease).unwrap();
    let over = desk.get(lease.task()).unwrap();
    assert_eq!((over.status, over.outcome), (Status::Cancelled, None));
    assert_all_refused(&desk.tasks(), &lease, "Over(Cancelled)");
}

#[test]
fn k2_an_error_of_the_tool_is_a_result_and_a_demand_for_input_is_none() {
    let desk = Desk::open();
    let lease = desk.started("order-7");
    let result = |json: &str| Body::new(&serde_json::from_str::<serde_json::Value>(json).unwrap()).unwrap();
    let asks = result(r#"{"resultType":"input_required","inputRequests":{}}"#);
    assert_eq!(named(desk.tasks().complete(&lease, asks)), Err("NotFinal".to_owned()));
    let tool_error = result(r#"{"content":[],"isError":true}"#);
    desk.tasks().complete(&lease, tool_error.clone()).unwrap();
    let over = desk.get(lease.task()).unwrap();
    assert_eq!((over.status, over.outcome), (Status::Completed, Some(tool_error)));

    let lease = desk.started("order-8");
    desk.tasks().fail(&lease, result(r#"{"code":-32603,"message":"down"}"#)).unwrap();
    assert_eq!(desk.get(lease.task()).unwrap().status, Status::Failed);
    assert_all_refused(&desk.tasks(), &lease, "Over(Failed)");
}

#[test]
fn the_async_forms_do_the_same() {
    let desk = Desk::open();
    let tasks = desk.tasks();
    block_on(tasks.create_keyless_async(&scope(), TaskSpec::default())).unwrap();
    let claimed = block_on(tasks.claim_async(&["reserve_inventory"], "worker-1", LEASE)).unwrap().unwrap();
    let lease = &claimed.lease;
    assert!(block_on(tasks.checkpoint_async(lease, step(1))).unwrap().stored);
    assert!(block_on(tasks.checkpoint_with_async(lease, step(2), reserving)).unwrap().stored);
    block_on(tasks.external_started_async(lease)).unwrap();
    block_on(tasks.external_done_async(lease)).unwrap();
    block_on(tasks.ask_async(lease, vec![("size".into(), body("which?"))])).unwrap();
    block_on(tasks.release_async(lease)).unwrap();
    let answer = std::collections::BTreeMap::from([("size".into(), body("small"))]);
    block_on(tasks.update_async("tenant-1", lease.task(), answer)).unwrap();
    let lease = &desk.claim().unwrap().lease;
    block_on(tasks.cancel_async("tenant-1", lease.task())).unwrap();
    block_on(tasks.observe_cancel_async(lease)).unwrap();
    assert_eq!(named(block_on(tasks.complete_async(lease, body("late")))), Err("Over(Cancelled)".to_owned()));
    assert_eq!(named(block_on(tasks.fail_async(lease, body("late")))), Err("Over(Cancelled)".to_owned()));
    assert_eq!(block_on(tasks.get_async("tenant-1", lease.task())).unwrap().status, Status::Cancelled);
    desk.shop.ledger.close().unwrap();
    assert_eq!(named(block_on(tasks.get_async("tenant-1", lease.task()))).map(drop), Err("Closed".to_owned()));
    assert_eq!(named(desk.get(lease.task())).map(drop), Err("Closed".to_owned()));
}

const CHECKED_AT_COMMIT: &str = "
    CREATE TABLE IF NOT EXISTS line(
        reservation INTEGER NOT NULL REFERENCES reservation(id) DEFERRABLE INITIALLY DEFERRED
    ) STRICT;
";

#[test]
fn a_step_that_fails_at_the_commit_is_not_stored() {
    let shop = Shop::open_with(Options { schema: format!("{SCHEMA}{CHECKED_AT_COMMIT}").into(), ..options() });
    let tasks = shop.ledger.tasks();
    create(&tasks, "order-7").unwrap().into_inner();
    let lease = claim(&tasks, "worker-1").unwrap().lease;
    let broken = |tx: &mut EffectTx<'_>| Ok(tx.execute("INSERT INTO line VALUES (999)", []).map(drop)?);
    let error = tasks.checkpoint_with(&lease, step(1), broken).unwrap_err();
    assert!(matches!(error, TaskError::Ledger(LedgerError::Aborted(_))), "{error:?}");
    assert_eq!(tasks.get("tenant-1", lease.task()).unwrap().progress.step, 0);
}

/// The file is swapped for one in which the step is stored, as if the failed commit had reached the disk after all.
#[test]
#[cfg(unix)]
fn a_failed_commit_of_a_step_is_answered_from_what_the_file_says() {
    let with = || Options { schema: format!("{SCHEMA}{CHECKED_AT_COMMIT}").into(), ..options() };
    let shop = Shop::open_with(with());
    let (path, twin_path) = (shop.path(), shop.dir.path().join("twin.db"));
    create(&shop.ledger.tasks(), "order-7").unwrap().into_inner();
    let lease = claim(&shop.ledger.tasks(), "worker-1").unwrap().lease;
    shop.ledger.close().unwrap();
    std::fs::copy(&path, &twin_path).unwrap();
    let twin = Ledger::open(&twin_path, with()).unwrap();
    assert!(twin.tasks().checkpoint(&lease, step(1)).unwrap().stored);
    twin.close().unwrap();

    let ledger = Ledger::open(&path, with()).unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let swapping = move |tx: &mut EffectTx<'_>| {
        counted.fetch_add(1, Ordering::Relaxed);
        tx.execute("INSERT INTO line VALUES (999)", [])?;
        for suffix in ["", "-wal", "-shm"] {
            let name = |stem: &str| path.with_file_name(format!("{stem}.db{suffix}"));
            std::fs::rename(name("shop"), name("gone"))?;
        }
        Ok(std::fs::rename(&twin_path, &path)?)
    };
    assert!(ledger.tasks().checkpoint_with(&lease, step(1), swapping).unwrap().stored);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}
