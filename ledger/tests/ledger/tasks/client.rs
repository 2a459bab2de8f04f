//! What a client can do with a task, and what it cannot.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use steady_ledger::{Begun, Entropy, Executor, External, Revision, Status};

use super::*;
use crate::writer::{block_on, hold};

#[test]
fn k1_a_key_creates_one_task_and_finds_it_again() {
    let mut desk = Desk::open();
    let created = desk.create("order-7").unwrap();
    assert!(!created.is_replay());
    let task = created.into_inner();
    assert_eq!((task.status, task.created_at.unix_millis(), task.revision), (Status::Working, START, Revision::new(1)));
    assert_eq!(desk.create("order-7").unwrap(), Executed::Replayed(task.clone()));

    let (scope, key) = (scope(), key("order-7"));
    let changed = desk.tasks().create(&Request::new(&scope, &key, &arguments("a-1", 3)), TaskSpec::default());
    assert_eq!(named(changed), Err("Mismatch".to_owned()));
    assert_eq!(desk.shop.ledger.reconcile(&scope, &key).unwrap().unwrap().executions, 1);

    desk.shop.ledger.close().unwrap();
    desk.shop.ledger = desk.other();
    assert_eq!(desk.create("order-7").unwrap(), Executed::Replayed(task.clone()));

    let lease = desk.claim().unwrap().lease;
    desk.tasks().complete(&lease, body("done")).unwrap();
    let Executed::Replayed(over) = desk.create("order-7").unwrap() else { panic!("a second task") };
    assert_eq!((over.id, over.status, over.outcome), (task.id, Status::Completed, Some(body("done"))));
    assert_eq!(desk.count("SELECT count(*) FROM ledger_task"), 1);
}

#[test]
fn without_a_key_every_call_creates_a_task() {
    let desk = Desk::open();
    let ids: Vec<_> = (0..2).map(|_| desk.tasks().create_keyless(&scope(), TaskSpec::default()).unwrap().id).collect();
    assert_ne!(ids[0], ids[1]);
    let claimed = desk.claim().unwrap();
    assert_eq!((&claimed.lease.task().clone(), claimed.key), (&ids[0], None));
}

#[test]
fn k1_a_task_whose_caller_is_gone_is_durable_all_the_same() {
    let desk = Desk::open();
    let (scope, key, args) = (scope(), key("order-7"), arguments("a-1", 2));
    let request = Request::new(&scope, &key, &args);
    let (release, holder) = hold(&desk.shop.ledger);
    drop(desk.tasks().create_async(&request, TaskSpec::default()));
    let second = desk.tasks().create_async(&request, TaskSpec::default());
    drop(release);
    holder.join().unwrap();
    assert!(block_on(second).unwrap().is_replay());
    assert_eq!(desk.count("SELECT count(*) FROM ledger_task"), 1);
}

#[test]
fn k5_a_task_of_another_principal_is_as_unknown_as_one_that_never_existed() {
    let desk = Desk::open();
    let lease = desk.started("order-7");
    desk.tasks().ask(&lease, vec![("colour".into(), body("which?"))]).unwrap();
    let before = desk.get(lease.task()).unwrap();
    let never = TaskId::parse("00112233445566778899aabbccddeeff").unwrap();
    let answers = || BTreeMap::from([("colour".into(), body("red"))]);
    let shapes = |principal: &str, id: &TaskId| {
        let tasks = desk.tasks();
        let errors = [
            tasks.get(principal, id).unwrap_err(),
            tasks.cancel(principal, id).unwrap_err(),
            tasks.update(principal, id, answers()).unwrap_err(),
            block_on(tasks.get_async(principal, id)).unwrap_err(),
            block_on(tasks.cancel_async(principal, id)).unwrap_err(),
            block_on(tasks.update_async(principal, id, answers())).unwrap_err(),
        ];
        errors.map(|error| format!("{error} {error:?}"))
    };
    let unknown = shapes("tenant-1", &never);
    assert_eq!(shapes("tenant-2", lease.task()), unknown);
    for text in ["", "7", "00112233445566778899AABBCCDDEEFF", "00112233445566778899aabbccddeef'"] {
        let error = TaskId::parse(text).unwrap_err();
        assert_eq!(format!("{error} {error:?}"), unknown[0], "{text}");
    }
    assert_eq!(desk.get(lease.task()).unwrap(), before);
}

#[test]
fn the_same_key_of_another_principal_is_another_task() {
    let desk = Desk::open();
    let mine = desk.fresh("order-7");
    let theirs = create_for(&desk.tasks(), "tenant-2", "order-7", TaskSpec::default()).unwrap().into_inner();
    assert_ne!(mine, theirs.id);
    assert!(matches!(desk.get(&theirs.id), Err(TaskError::Unknown)));
}

#[test]
fn ids_are_the_entropy_that_was_given_and_never_overwrite_a_task() {
    let counter = Arc::new(AtomicU64::new(1));
    let next = Arc::clone(&counter);
    let entropy = Entropy::new(move |bytes| {
        bytes.fill(u8::try_from(next.load(Ordering::Relaxed)).unwrap());
        Ok(())
    });
    let shop = Shop::open_with(Options { entropy, ..options() });
    let first = create(&shop.ledger.tasks(), "order-1").unwrap().into_inner();
    assert_eq!(first.id.to_string(), "01".repeat(16));
    assert_eq!(TaskId::parse(first.id.as_str()).unwrap(), first.id);
    assert!(matches!(create(&shop.ledger.tasks(), "order-2"), Err(TaskError::Ledger(LedgerError::Storage(_)))));
    assert_eq!(shop.ledger.reconcile(&scope(), &key("order-2")).unwrap(), None, "no key without its task");
    counter.store(2, Ordering::Relaxed);
    assert_ne!(create(&shop.ledger.tasks(), "order-2").unwrap().into_inner().id, first.id);
}

#[test]
fn k3_a_cancel_request_is_recorded_once_and_changes_no_status() {
    let desk = Desk::open();
    let id = desk.fresh("order-7");
    desk.tasks().cancel("tenant-1", &id).unwrap();
    let asked = desk.get(&id).unwrap();
    assert_eq!((asked.status, asked.cancel_requested), (Status::Working, true));
    desk.tasks().cancel("tenant-1", &id).unwrap();
    assert_eq!(desk.get(&id).unwrap(), asked, "a repeated request changes nothing");

    let lease = desk.claim().unwrap().lease;
    desk.tasks().complete(&lease, body("done")).unwrap();
    let over = desk.get(&id).unwrap();
    assert_eq!((over.status, over.cancel_requested), (Status::Completed, true), "it may still be completed");

    let lease = desk.started("order-8");
    desk.tasks().complete(&lease, body("done")).unwrap();
    let over = desk.get(lease.task()).unwrap();
    desk.tasks().cancel("tenant-1", lease.task()).unwrap();
    assert_eq!(desk.get(lease.task()).unwrap(), over, "acknowledged, and without effect");
}

#[test]
fn an_expired_task_is_unknown_and_its_key_does_not_run_again() {
    let desk = Desk::open();
    let spec = TaskSpec { ttl: Some(Duration::from_millis(500)), ..TaskSpec::default() };
    let task = create_for(&desk.tasks(), "tenant-1", "order-7", spec.clone()).unwrap().into_inner();
    assert_eq!(task.ttl, spec.ttl);
    desk.advance(Duration::from_millis(499));
    desk.get(&task.id).unwrap();
    desk.advance(Duration::from_millis(1));
    assert_eq!(named(desk.get(&task.id)).map(drop), Err("Unknown".to_owned()));
    assert_eq!(named(desk.tasks().cancel("tenant-1", &task.id)), Err("Unknown".to_owned()));
    assert!(desk.claim().is_none(), "nobody could see what a worker would do");
    let again = || named(create_for(&desk.tasks(), "tenant-1", "order-7", spec.clone())).map(drop);
    assert_eq!(again(), Err("ResultExpired".to_owned()));
    // The row went with the claim. A clock that goes back brings nothing back.
    assert_eq!(desk.count("SELECT count(*) FROM ledger_task"), 0);
    desk.now.store(START, Ordering::Relaxed);
    assert_eq!(again(), Err("ResultExpired".to_owned()));
}

/// Both are stored under the key: neither may be taken for the other.
#[test]
fn a_task_and_a_call_with_the_same_key_and_arguments_are_no_answer_to_each_other() {
    let desk = Desk::open();
    let begin = |key_text: &str| -> Result<Begun<Reserved>, LedgerError> {
        let external = External::new(Duration::from_secs(1));
        desk.shop.ledger.begin(&Request::new(&scope(), &key(key_text), &arguments("a-1", 2)), &external)
    };
    desk.fresh("order-7");
    let claimed = desk.claim().unwrap();
    let args = arguments("a-1", 2);
    let same = desk
        .shop
        .ledger
        .execute(&Request::new(&claimed.scope, &claimed.key.unwrap(), &args), |_| Ok::<String, _>("ran".into()));
    assert!(matches!(same, Err(LedgerError::Mismatch)), "{same:?}");
    assert!(matches!(begin("order-7"), Err(LedgerError::Mismatch)));
    assert!(desk.create("order-7").unwrap().is_replay());

    call(&desk.shop.ledger, "order-8").unwrap().into_inner();
    let Ok(Begun::Send(attempt)) = begin("order-9") else { panic!("new") };
    for key_text in ["order-8", "order-9"] {
        assert_eq!(named(desk.create(key_text)).map(drop), Err("Mismatch".to_owned()), "{key_text}");
    }
    drop(attempt);
    assert_eq!(desk.count("SELECT count(*) FROM ledger_task"), 1);
}

#[test]
fn a_key_finds_its_task_for_as_long_as_that_lives() {
    let desk = Desk::open();
    let day = Duration::from_secs(24 * 60 * 60);
    let spec = TaskSpec { ttl: Some(day * 20), ..TaskSpec::default() };
    let task = create_for(&desk.tasks(), "tenant-1", "order-7", spec).unwrap().into_inner();
    desk.advance(day * 20 - Duration::from_millis(1));
    assert_eq!(desk.create("order-7").unwrap(), Executed::Replayed(task), "past the retention of results");
}

#[test]
fn expired_tasks_are_no_work_however_many_there_are() {
    let desk = Desk::open();
    let spec = TaskSpec { ttl: Some(Duration::from_millis(10)), ..TaskSpec::default() };
    for _ in 0..40 {
        desk.tasks().create_keyless(&scope(), spec.clone()).unwrap();
    }
    desk.advance(Duration::from_millis(10));
    assert!((0..4).all(|_| desk.claim().is_none()));
    assert_eq!(desk.count("SELECT count(*) FROM ledger_task"), 0, "a few went with each claim");
}

#[test]
fn an_expired_task_counts_while_somebody_works_on_it() {
    let desk = Desk::open_with(TaskLimits { live_per_principal: 1, ..TaskLimits::default() });
    let spec = TaskSpec { ttl: Some(Duration::from_millis(10)), ..TaskSpec::default() };
    let create = || named(desk.tasks().create_keyless(&scope(), spec.clone())).map(drop);
    create().unwrap();
    let lease = desk.claim().unwrap().lease;
    desk.advance(Duration::from_millis(10));
    assert_eq!(create(), Err("TooMany { limit: 1 }".to_owned()));
    desk.tasks().complete(&lease, body("for nobody")).unwrap();
    create().unwrap();
}

#[test]
fn a_task_without_an_end_is_cut_to_the_cap_if_there_is_one() {
    let endless = TaskSpec { ttl: None, ..TaskSpec::default() };
    let created = |max_ttl| {
        let desk = Desk::open_with(TaskLimits { max_ttl, ..TaskLimits::default() });
        let task = create_for(&desk.tasks(), "tenant-1", "order-7", endless.clone()).unwrap().into_inner();
        desk.now.store(i64::MAX, Ordering::Relaxed);
        (task.ttl, desk.get(&task.id).is_ok(), desk.create("order-7").is_ok_and(|created| created.is_replay()))
    };
    assert_eq!(created(None), (None, true, false), "the time itself has an end, and with it the key");
    let cap = Some(Duration::from_secs(60));
    assert_eq!(created(cap), (cap, false, false));
}

#[test]
fn a_principal_at_its_cap_is_refused_until_a_task_ends() {
    let desk = Desk::open_with(TaskLimits { live_per_principal: 2, ..TaskLimits::default() });
    let short = TaskSpec { ttl: Some(Duration::from_millis(500)), ..TaskSpec::default() };
    let create = |number: usize| create_for(&desk.tasks(), "tenant-1", &format!("order-{number}"), short.clone());
    let full = || Err("TooMany { limit: 2 }".to_owned());
    create(1).unwrap().into_inner();
    create(2).unwrap().into_inner();
    assert_eq!(named(create(3)).map(drop), full());
    assert_eq!(named(desk.tasks().create_keyless(&scope(), short.clone())).map(drop), full());
    assert!(create(1).unwrap().is_replay(), "a retry needs no room");
    create_for(&desk.tasks(), "tenant-2", "order-1", short.clone()).unwrap().into_inner();
    assert_eq!(desk.shop.ledger.reconcile(&scope(), &key("order-3")).unwrap(), None, "a refused key is free");

    let lease = desk.claim().unwrap().lease;
    desk.tasks().fail(&lease, body("no stock")).unwrap();
    create(3).unwrap().into_inner();
    assert_eq!(named(create(4)).map(drop), full());
    desk.advance(Duration::from_millis(500));
    create(4).unwrap().into_inner();
    assert_eq!(desk.count("SELECT count(*) FROM ledger_task"), 1, "what had expired made room");
}

#[test]
fn what_is_too_large_is_refused() {
    let desk = Desk::open_with(TaskLimits { max_body: 10, ..TaskLimits::default() });
    let (fits, large) = (body("12345678"), body("123456789"));
    let refused = |answer: Result<(), TaskError>| assert_eq!(named(answer), Err("TooLarge { limit: 10 }".to_owned()));
    let spec = |payload: &Body| TaskSpec { payload: Some(payload.clone()), ..TaskSpec::default() };
    refused(desk.tasks().create_keyless(&scope(), spec(&large)).map(drop));
    desk.tasks().create_keyless(&scope(), spec(&fits)).unwrap();
    let lease = desk.claim().unwrap().lease;
    let (tasks, id) = (desk.tasks(), lease.task());
    let progress = |state: &Body| Progress { step: 1, state: Some(state.clone()), message: None };
    refused(tasks.checkpoint(&lease, progress(&large)).map(drop));
    assert!(tasks.checkpoint(&lease, progress(&fits)).unwrap().stored);
    refused(tasks.ask(&lease, vec![("a".into(), fits.clone()), ("b".into(), large.clone())]));
    tasks.ask(&lease, vec![("a".into(), fits.clone())]).unwrap();
    refused(tasks.update("tenant-1", id, BTreeMap::from([("a".into(), large.clone())])));
    refused(tasks.complete(&lease, large.clone()));
    refused(tasks.fail(&lease, large));
    let long = "x".repeat(4097);
    let said = Progress { step: 2, message: Some(long.as_str().into()), ..Progress::default() };
    let refused = |answer: Result<(), TaskError>| assert_eq!(named(answer), Err("TooLarge { limit: 4096 }".to_owned()));
    refused(tasks.checkpoint(&lease, said).map(drop));
    refused(tasks.claim(&["reserve_inventory"], &long, LEASE).map(drop));
    refused(tasks.ask(&lease, vec![(long.as_str().into(), fits.clone())]));
    refused(tasks.create_keyless(&scope(), TaskSpec { message: Some(long.into()), ..spec(&fits) }).map(drop));
    tasks.complete(&lease, fits).unwrap();
}

#[test]
fn a_watcher_is_called_for_what_a_client_can_see_and_before_the_answer() {
    let desk = Desk::open();
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (counted, inside, ledger) = (Arc::clone(&calls), Arc::clone(&seen), desk.shop.ledger.clone());
    let watcher: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        inside.lock().unwrap().push(named(ledger.tasks().last_revision()));
    });
    desk.tasks().on_change(&watcher).unwrap();
    let called = |work: &dyn Fn()| {
        let before = calls.load(Ordering::Relaxed);
        work();
        calls.load(Ordering::Relaxed) - before
    };
    let (tasks, id) = (desk.tasks(), std::cell::OnceCell::new());
    assert_eq!(called(&|| id.set(desk.fresh("order-7")).unwrap()), 1);
    let id = id.get().unwrap();
    assert_eq!(called(&|| assert!(desk.create("order-7").unwrap().is_replay())), 0);
    let claimed = std::cell::OnceCell::new();
    assert_eq!(called(&|| claimed.set(desk.claim().unwrap()).unwrap()), 0, "a claim shows nothing to a client");
    let lease = &claimed.get().unwrap().lease;
    assert_eq!(called(&|| assert!(tasks.checkpoint(lease, step(1)).unwrap().stored)), 1);
    assert_eq!(called(&|| assert!(!tasks.checkpoint(lease, step(1)).unwrap().stored)), 0);
    assert_eq!(called(&|| tasks.cancel("tenant-1", id).unwrap()), 1);
    assert_eq!(called(&|| tasks.cancel("tenant-1", id).unwrap()), 0);
    assert_eq!(called(&|| tasks.observe_cancel(lease).unwrap()), 1);
    assert_eq!(called(&|| assert!(tasks.observe_cancel(lease).is_err())), 0);
    assert_eq!(*seen.lock().unwrap(), vec![Err("Reentrant".to_owned()); 4]);
    drop(watcher);
    assert_eq!(called(&|| drop(desk.fresh("order-8"))), 0);
}

fn panicking() {
    std::panic::resume_unwind(Box::new("planned"));
}

#[test]
fn a_watcher_that_panics_harms_nobody_and_their_number_is_bounded() {
    for executor in [Executor::Thread, Executor::Inline] {
        let shop = Shop::open_with(Options { executor, ..options() });
        let tasks = shop.ledger.tasks();
        let watchers: Vec<Arc<dyn Fn() + Send + Sync>> = (0..64).map(|_| Arc::new(panicking) as _).collect();
        watchers.iter().for_each(|watcher| tasks.on_change(watcher).unwrap());
        let one_more: Arc<dyn Fn() + Send + Sync> = Arc::new(|| ());
        assert!(matches!(tasks.on_change(&one_more), Err(TaskError::TooManyWatchers { limit: 64 })));
        assert!(!create(&tasks, "order-7").unwrap().is_replay());
        drop(watchers);
        tasks.on_change(&one_more).unwrap();
    }
}

#[test]
fn changes_are_found_by_their_revision_also_those_of_another_handle() {
    let desk = Desk::open();
    let other = desk.other().tasks();
    let (tasks, since) = (desk.tasks(), desk.tasks().last_revision().unwrap());
    let first = desk.fresh("order-1");
    let second = create(&other, "order-2").unwrap().into_inner().id;
    let ids = |since| -> Vec<_> {
        let changed = tasks.changed_since(since, 10).unwrap();
        changed.into_iter().map(|changed| (changed.id, changed.revision.number())).collect()
    };
    assert_eq!(ids(since), [(first.clone(), 1), (second.clone(), 2)]);
    other.cancel("tenant-1", &first).unwrap();
    assert_eq!(ids(since), [(second, 2), (first.clone(), 3)], "each once, by its last change");
    assert_eq!(ids(Revision::new(2)), [(first, 3)]);
    assert_eq!(tasks.last_revision().unwrap(), Revision::new(3));
    assert_eq!(ids(Revision::new(3)), []);
    assert_eq!(ids(Revision::new(u64::MAX)), []);
    assert_eq!(block_on(tasks.changed_since_async(since, 1)).unwrap()[0].principal, "tenant-1".into());
}
