//! What is past its time goes, what is open stays, and no key runs twice whatever the clock does.

use std::time::{Duration, Instant};

use steady_ledger::{
    Begun, Collected, Durability, External, Message, Report, Resolved, State, Target, TaskError, TaskSpec, Upstream,
};

use super::clock::TestClock;
use super::*;

const START: i64 = 1_790_000_000_000;
const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// The default retention.
const WEEK: i64 = 7 * DAY;

fn shop_with(options: Options) -> (Shop, TestClock) {
    let clock = TestClock::at(START);
    (Shop::open_with(Options { clock: clock.clock(), ..options }), clock)
}

fn shop() -> (Shop, TestClock) {
    shop_with(options())
}

fn state(ledger: &Ledger, key_text: &str) -> Option<State> {
    ledger.reconcile(&scope(), &key(key_text)).unwrap().map(|known| known.state)
}

fn rows(shop: &Shop, table: &str) -> i64 {
    shop.stranger().query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

/// A key with a task.
fn create_task(shop: &Shop, key_text: &str) {
    let created = shop.ledger.tasks().create(&Request::new(&scope(), &key(key_text), "{}"), TaskSpec::default());
    assert!(!created.unwrap().is_replay());
}

fn end_task(shop: &Shop) {
    let end = "UPDATE ledger_task SET status = 'cancelled', cancel_requested_ms = 0, payload = NULL";
    assert_eq!(shop.stranger().execute(end, []).unwrap(), 1);
}

/// Lets the time come, and the ledger become sure of it.
fn come(ledger: &Ledger, clock: &TestClock, millis: i64) {
    clock.set(millis);
    let first = ledger.collect(0).unwrap();
    clock.pass(60_000);
    let second = ledger.collect(0).unwrap();
    assert!(!second.held_back, "{first:?} {second:?}");
}

#[test]
fn a_result_goes_and_its_key_stays() {
    let (shop, clock) = shop();
    call(&shop.ledger, "order-1").unwrap().into_inner();
    come(&shop.ledger, &clock, START + WEEK - 120_000);
    call(&shop.ledger, "order-2").unwrap().into_inner();
    assert_eq!(shop.ledger.collect(10).unwrap(), Collected::default());
    clock.set(START + WEEK);
    let collected = shop.ledger.collect(10).unwrap();
    assert_eq!((collected.expired, collected.more, collected.held_back), (1, false, false));
    assert_eq!(state(&shop.ledger, "order-1"), Some(State::Expired));
    assert!(matches!(call(&shop.ledger, "order-1"), Err(LedgerError::ResultExpired)));
    assert!(call(&shop.ledger, "order-2").unwrap().is_replay());
    assert_eq!((rows(&shop, "ledger_key"), rows(&shop, "ledger_result"), shop.reservations()), (2, 1, 2));
    assert_eq!(shop.ledger.reconcile(&scope(), &key("order-1")).unwrap().unwrap().executions, 1);
    // However much later, and however the clock goes.
    for millis in [START + 4000 * DAY, 0, i64::MAX] {
        clock.set(millis);
        shop.ledger.collect(10).unwrap();
        assert!(matches!(call(&shop.ledger, "order-1"), Err(LedgerError::ResultExpired)));
    }
    assert_eq!(shop.reservations(), 2);
}

#[test]
fn a_rejection_goes_as_a_result_does() {
    let (shop, clock) = shop();
    let refuse = |_: &mut EffectTx<'_>| Err(EffectError::<i64>::Reject(7));
    let run = || shop.ledger.execute(&Request::new(&scope(), &key("order-1"), "{}"), refuse);
    run().unwrap().into_inner();
    come(&shop.ledger, &clock, START + WEEK);
    assert_eq!(shop.ledger.collect(10).unwrap().expired, 1);
    assert!(matches!(run(), Err(LedgerError::ResultExpired)));
}

#[test]
fn a_collection_is_cut_into_transactions_and_stops_at_its_limit() {
    let (shop, clock) = shop_with(Options { durability: Durability::ProcessCrash, ..options() });
    for number in 0..1203 {
        call(&shop.ledger, &format!("order-{number}")).unwrap().into_inner();
    }
    come(&shop.ledger, &clock, START + WEEK);
    let before = shop.ledger.stats().batches;
    let first = shop.ledger.collect(1100).unwrap();
    assert_eq!((first.expired, first.more), (1100, true));
    assert_eq!(shop.ledger.stats().batches - before, 3, "500, 500 and 100 rows");
    let rest = shop.ledger.collect(u32::MAX).unwrap();
    assert_eq!((rest.expired, rest.more), (103, false));
    assert_eq!((rows(&shop, "ledger_key"), rows(&shop, "ledger_result")), (1203, 0));
}

#[test]
fn nothing_that_is_open_is_collected() {
    let clock = TestClock::at(START);
    let shop = Shop::open_with(Options { clock: clock.clock(), max_lease: Duration::MAX, ..options() });
    let begin = |key_text: &str| -> Result<Begun<i64>, LedgerError> {
        shop.ledger.begin(&Request::new(&scope(), &key(key_text), "{}"), &External::new(Duration::MAX))
    };
    let Ok(Begun::Send(started)) = begin("started") else { panic!("new") };
    let Ok(Begun::Send(doubtful)) = begin("doubtful") else { panic!("new") };
    doubtful.in_doubt().unwrap();
    let leave = |key_text: &str| {
        let effect = |tx: &mut EffectTx<'_>| {
            tx.enqueue(Message::new("bank", "x"))?;
            Ok(0)
        };
        shop.ledger.execute(&Request::new(&scope(), &key(key_text), "{}"), effect).unwrap().into_inner()
    };
    let outbox = shop.ledger.outbox(Target::new("bank"));
    leave("dead");
    outbox.claim(1, Duration::MAX).unwrap()[0].report(Report::Reject { reason: "no" }).unwrap();
    leave("lost");
    outbox.claim(1, Duration::MAX).unwrap()[0].report(Report::InDoubt { reason: "timeout" }).unwrap();
    leave("sending");
    let sending = outbox.claim(1, Duration::MAX).unwrap();
    leave("pending");
    create_task(&shop, "task");

    come(&shop.ledger, &clock, START + 1000 * DAY);
    assert_eq!(shop.ledger.collect(100).unwrap(), Collected::default());
    assert!(matches!(state(&shop.ledger, "started"), Some(State::Started { .. })));
    assert_eq!(state(&shop.ledger, "doubtful"), Some(State::InDoubt));
    for key_text in ["dead", "lost", "sending", "pending", "task"] {
        assert_eq!(state(&shop.ledger, key_text), Some(State::Committed), "{key_text}");
    }
    assert_eq!((rows(&shop, "ledger_outbox"), rows(&shop, "ledger_result")), (4, 5));

    // Once it is closed, it goes.
    started.commit(&1).unwrap();
    shop.ledger.resolve(&scope(), &key("doubtful"), &Resolved::Rejected(1), "ops", "").unwrap();
    sending[0].report(Report::Delivered).unwrap();
    outbox.claim(1, Duration::MAX).unwrap()[0].report(Report::Delivered).unwrap();
    for stuck in outbox.stuck(10).unwrap() {
        outbox.skip(&stuck.id, "ops", "").unwrap();
    }
    end_task(&shop);
    let collected = shop.ledger.collect(100).unwrap();
    assert_eq!((collected.messages, collected.expired), (4, 5));
    assert_eq!(shop.ledger.audit(&scope(), &key("doubtful")).unwrap().len(), 2, "the audit stays");
    come(&shop.ledger, &clock, START + 2000 * DAY);
    assert_eq!(shop.ledger.collect(100).unwrap().expired, 2);
}

#[test]
fn a_lease_that_is_over_is_put_in_doubt_and_not_collected() {
    let (shop, clock) = shop();
    let begun: Result<Begun<i64>, _> =
        shop.ledger.begin(&Request::new(&scope(), &key("order-1"), "{}"), &External::new(Duration::from_secs(1)));
    drop(begun.unwrap());
    come(&shop.ledger, &clock, START + 1000);
    assert_eq!(state(&shop.ledger, "order-1"), Some(State::InDoubt));
}

#[test]
fn a_clock_that_jumps_ahead_deletes_nothing_until_it_is_confirmed() {
    let (shop, clock) = shop();
    call(&shop.ledger, "order-1").unwrap().into_inner();
    clock.set(START + 1000 * DAY);
    let held = shop.ledger.collect(10).unwrap();
    assert_eq!((held.held_back, held.expired), (true, 0));
    clock.pass(59_999);
    assert!(shop.ledger.collect(10).unwrap().held_back);
    // It was wrong.
    clock.set(START + HOUR);
    assert_eq!(shop.ledger.collect(10).unwrap(), Collected::default());
    assert!(call(&shop.ledger, "order-1").unwrap().is_replay());
    // It is right, as another handle finds too.
    clock.set(START + 1000 * DAY);
    assert!(shop.ledger.collect(10).unwrap().held_back);
    clock.pass(60_000);
    let other = Ledger::open(shop.path(), Options { clock: clock.clock(), ..options() }).unwrap();
    assert_eq!(other.collect(10).unwrap().expired, 1);
}

#[test]
fn a_clock_that_jumps_back_makes_nothing_young_again() {
    let (shop, clock) = shop();
    call(&shop.ledger, "order-1").unwrap().into_inner();
    come(&shop.ledger, &clock, START + WEEK);
    clock.set(START);
    assert!(matches!(call(&shop.ledger, "order-1"), Err(LedgerError::ResultExpired)));
    let other = Ledger::open(shop.path(), Options { clock: clock.clock(), ..options() }).unwrap();
    assert!(matches!(call(&other, "order-1"), Err(LedgerError::ResultExpired)));
    assert_eq!(other.collect(10).unwrap().expired, 1);
    // What is new is kept for its whole time, counted from the latest time that the file knows.
    call(&other, "order-2").unwrap().into_inner();
    let known = other.reconcile(&scope(), &key("order-2")).unwrap().unwrap();
    assert_eq!(known.expires_at.unix_millis() - known.recorded_at.unix_millis(), WEEK);
    assert!(known.recorded_at.unix_millis() >= START + WEEK);
}

/// A UUID of version 7 of this time.
fn uuid(millis: i64) -> String {
    let hex = format!("{millis:012x}");
    format!("{}-{}-7cc3-98c4-dc0c0c07398f", &hex[..8], &hex[8..])
}

#[test]
fn keys_that_carry_their_time_are_refused_beyond_the_horizon_and_only_those_are_forgotten() {
    let horizon = Duration::from_secs(30 * 24 * 3600);
    let (shop, clock) = shop_with(Options { key_horizon: Some(horizon), ..options() });
    let (old, new) = (uuid(START), uuid(START + 5 * DAY));
    for key_text in [&old, &new, "order-7"] {
        call(&shop.ledger, key_text).unwrap().into_inner();
    }
    let ancient = uuid(START - 30 * DAY - 1);
    assert!(matches!(call(&shop.ledger, &ancient), Err(LedgerError::KeyTooOld)));
    let begun: Result<Begun<i64>, _> =
        shop.ledger.begin(&Request::new(&scope(), &key(&ancient), "{}"), &External::new(Duration::MAX));
    assert!(matches!(begun, Err(LedgerError::KeyTooOld)));
    let edge = uuid(START - 30 * DAY);
    call(&shop.ledger, &edge).unwrap().into_inner();
    assert_eq!(shop.reservations(), 4);

    come(&shop.ledger, &clock, START + 31 * DAY);
    let collected = shop.ledger.collect(10).unwrap();
    assert_eq!((collected.expired, collected.forgotten), (4, 2));
    assert_eq!((state(&shop.ledger, &old), state(&shop.ledger, &edge)), (None, None));
    assert!(matches!(call(&shop.ledger, &new), Err(LedgerError::ResultExpired)));
    assert!(matches!(call(&shop.ledger, "order-7"), Err(LedgerError::ResultExpired)));
    assert!(matches!(call(&shop.ledger, &old), Err(LedgerError::KeyTooOld)));
    // Neither a clock that goes back nor a handle without a horizon lets it run again.
    clock.set(START);
    assert!(matches!(call(&shop.ledger, &old), Err(LedgerError::KeyTooOld)));
    let other = Ledger::open(shop.path(), Options { clock: clock.clock(), ..options() }).unwrap();
    assert!(matches!(call(&other, &old), Err(LedgerError::KeyTooOld)));
    assert_eq!(shop.reservations(), 4);
}

#[test]
fn a_record_of_an_old_key_is_answered_as_long_as_it_is_there() {
    let horizon = Duration::from_secs(24 * 3600);
    let (shop, clock) = shop_with(Options { key_horizon: Some(horizon), ..options() });
    let order = uuid(START);
    call(&shop.ledger, &order).unwrap().into_inner();
    come(&shop.ledger, &clock, START + 2 * DAY);
    assert_eq!(shop.ledger.collect(10).unwrap().forgotten, 0);
    assert!(call(&shop.ledger, &order).unwrap().is_replay());
}

#[test]
fn a_tombstone_stays_as_long_as_something_refers_to_it() {
    let (shop, clock) = shop_with(Options { key_horizon: Some(Duration::ZERO), ..options() });
    let order = uuid(START);
    create_task(&shop, &order);
    end_task(&shop);
    come(&shop.ledger, &clock, START + WEEK);
    let collected = shop.ledger.collect(10).unwrap();
    assert_eq!((collected.expired, collected.forgotten), (1, 0));
    shop.stranger().execute("DELETE FROM ledger_task", []).unwrap();
    assert_eq!(shop.ledger.collect(10).unwrap().forgotten, 1);
}

#[test]
fn a_short_key_is_refused_if_the_deployment_wants_longer_ones() {
    let (shop, _clock) = shop_with(Options { min_key_len: 8, ..options() });
    assert!(matches!(call(&shop.ledger, "order-7"), Err(LedgerError::InvalidKey { min: 8 })));
    call(&shop.ledger, "order-77").unwrap().into_inner();
    assert_eq!(shop.reservations(), 1);
}

#[test]
fn the_log_shrinks_once_a_long_reader_is_gone() {
    let schema = "CREATE TABLE IF NOT EXISTS blob(bytes BLOB) STRICT";
    let shop =
        Shop::open_with(Options { schema: schema.into(), durability: Durability::ProcessCrash, ..Options::default() });
    let fill = || {
        let filled = shop
            .ledger
            .execute_keyless(&scope(), |tx| Ok(tx.execute("INSERT INTO blob VALUES (zeroblob(4000000))", [])?));
        filled.unwrap().into_inner()
    };
    let log = shop.dir.path().join("shop.db-wal");
    let log_size = || std::fs::metadata(&log).unwrap().len();
    fill();
    let reader = shop.stranger();
    reader.execute_batch("BEGIN").unwrap();
    let count = |conn: &rusqlite::Connection| {
        conn.query_row("SELECT count(*) FROM blob", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(count(&reader), 1);
    for _ in 0..20 {
        fill();
    }
    let (seen, size) = (shop.ledger.stats().wal_bytes, log_size());
    assert!(seen > 64 * 1024 * 1024 && size >= seen, "{seen} {size}");
    assert_eq!(count(&reader), 1, "its snapshot holds");
    reader.execute_batch("COMMIT").unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while (log_size(), shop.ledger.stats().wal_bytes) != (0, 0) && Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!((log_size(), shop.ledger.stats().wal_bytes), (0, 0), "by itself, when nobody writes");
    fill();
    assert!(shop.ledger.stats().wal_bytes < 8 * 1024 * 1024);
}

#[test]
fn the_counters_tell_what_happened() {
    let (shop, _clock) = shop();
    let before = shop.ledger.stats();
    assert_eq!((before.committed, before.queued_most), (0, 0));
    call(&shop.ledger, "order-1").unwrap().into_inner();
    call(&shop.ledger, "order-1").unwrap().into_inner();
    let abort = |_: &mut EffectTx<'_>| Err(EffectError::<i64>::Abort("planned".into()));
    shop.ledger.execute(&Request::new(&scope(), &key("order-2"), "{}"), abort).unwrap_err();
    let after = shop.ledger.stats();
    assert_eq!((after.committed, after.failed, after.replays), (1, 1, 1));
    assert_eq!((after.queued, after.queued_most, after.turned_away, after.looked_up), (0, 1, 0, 0));
    assert!(after.batches >= 1);
}

/// A clock that was wrong for so long that it was believed, and was then put right: time stands still for what is kept,
/// but nothing that waits for a moment waits for years.
#[test]
fn a_clock_that_was_believed_and_put_right_stops_nothing_and_opens_no_window() {
    let (shop, clock) = shop_with(Options { key_horizon: Some(Duration::from_secs(24 * 3600)), ..options() });
    come(&shop.ledger, &clock, START + 1000 * DAY);
    clock.set(START);
    let window = Upstream::Idempotent { window: Duration::from_secs(24 * 3600) };
    let external = External::new(Duration::from_secs(30)).upstream(window);
    let begin = || -> Result<Begun<i64>, LedgerError> {
        shop.ledger.begin(&Request::new(&scope(), &key("order-1"), "{}"), &external)
    };
    let Ok(Begun::Send(attempt)) = begin() else { panic!("new") };
    assert!(attempt.is_live());
    assert!(matches!(begin(), Err(LedgerError::InFlight { .. })));
    let other = shop.ledger.execute(&Request::new(&scope(), &key("order-1"), "{}"), |_| Ok(0));
    assert!(matches!(other, Err(LedgerError::InFlight { .. })));
    clock.pass(30_000);
    assert!(!attempt.is_live());
    for days in [0, 1, 2] {
        clock.set(START + days * DAY + 30_000);
        assert!(matches!(begin(), Err(LedgerError::InDoubt)), "nobody knows how old the first request is");
    }

    let effect = |tx: &mut EffectTx<'_>| Ok(tx.enqueue(Message::new("bank", "x"))?);
    // A key of now is not too old, whatever was believed of the time.
    let order = uuid(clock.millis());
    shop.ledger.execute(&Request::new(&scope(), &key(&order), "{}"), effect).unwrap().into_inner();
    let outbox = shop.ledger.outbox(Target::new("bank"));
    let claim = || outbox.claim(1, Duration::from_secs(30)).unwrap();
    claim()[0].report(Report::Retry { reason: "503" }).unwrap();
    clock.pass(1_000);
    let sent = claim();
    assert_eq!(sent.len(), 1, "the pause is over");
    clock.pass(30_000);
    assert!(claim().is_empty());
    assert!(outbox.stuck(1).unwrap()[0].in_doubt, "the lease is over");
}

#[test]
fn a_task_is_refused_for_a_key_beyond_the_horizon() {
    let (shop, _clock) = shop_with(Options { key_horizon: Some(Duration::from_secs(24 * 3600)), ..options() });
    let ancient = key(&uuid(START - DAY - 1));
    let created = shop.ledger.tasks().create(&Request::new(&scope(), &ancient, "{}"), TaskSpec::default());
    assert!(matches!(created, Err(TaskError::Ledger(LedgerError::KeyTooOld))), "{created:?}");
}

#[test]
fn keys_of_today_are_good_after_a_wrong_clock_that_was_believed() {
    let (shop, clock) = shop_with(Options { key_horizon: Some(Duration::from_secs(30 * 24 * 3600)), ..options() });
    let order = uuid(START);
    call(&shop.ledger, &order).unwrap().into_inner();
    come(&shop.ledger, &clock, START + 1000 * DAY);
    let collected = shop.ledger.collect(10).unwrap();
    assert_eq!((collected.expired, collected.forgotten), (1, 1));
    clock.set(START + 1);
    assert!(matches!(call(&shop.ledger, &order), Err(LedgerError::KeyTooOld)), "it ran");
    assert!(!call(&shop.ledger, &uuid(START + 1)).unwrap().is_replay());
    assert_eq!(shop.reservations(), 2);
}

#[test]
fn an_operator_puts_the_time_right_after_a_wrong_clock_that_was_believed() {
    let (shop, clock) = shop();
    let other = Ledger::open(shop.path(), Options { clock: clock.clock(), ..options() }).unwrap();
    come(&shop.ledger, &clock, START + 1000 * DAY);
    other.collect(0).unwrap();
    clock.set(START);
    let outbox = shop.ledger.outbox(Target::new("bank"));
    let deadline = steady_ledger::WallTime::from_unix_millis(START + DAY);
    let effect = move |tx: &mut EffectTx<'_>| Ok(tx.enqueue(Message::new("bank", "x").deadline(deadline))?);
    shop.ledger.execute(&Request::new(&scope(), &key("order-1"), "{}"), effect).unwrap().into_inner();
    assert!(outbox.claim(1, Duration::from_secs(30)).unwrap().is_empty(), "it waits");
    assert!(outbox.stuck(1).unwrap().is_empty(), "and is not given up");

    let too_long = shop.ledger.trust_clock("ada", &"x".repeat(5000));
    assert!(matches!(too_long, Err(LedgerError::TooLarge { .. })));
    shop.ledger.trust_clock("ada", "the clock was wrong for an hour").unwrap();
    let audit = "SELECT before_ms - after_ms, actor, note FROM ledger_clock_audit";
    let row = shop
        .stranger()
        .query_row(audit, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?)));
    let believed = 1000 * DAY + 60_000;
    assert_eq!(row.unwrap(), (believed, "ada".to_owned(), "the clock was wrong for an hour".to_owned()));
    outbox.claim(1, Duration::from_secs(30)).unwrap()[0].report(Report::Delivered).unwrap();
    // Other handles follow, and results expire again.
    other.collect(0).unwrap();
    call(&other, "order-2").unwrap().into_inner();
    assert_eq!(other.reconcile(&scope(), &key("order-2")).unwrap().unwrap().recorded_at.unix_millis(), START);
    come(&other, &clock, START + WEEK);
    assert_eq!(other.collect(10).unwrap().expired, 1);
}

#[test]
fn a_ledger_in_use_is_never_far_behind_its_clock() {
    let (shop, clock) = shop();
    for hour in 0..6 {
        for half in 0..4 {
            clock.set(START + (2 * hour * 4 + 2 * half) * HOUR / 4);
            call(&shop.ledger, &format!("order-{hour}-{half}")).unwrap().into_inner();
        }
        assert!(!shop.ledger.collect(10).unwrap().held_back, "{hour}");
    }
}

#[test]
fn all_keys_whose_lease_is_over_are_put_in_doubt_however_many_there_are() {
    let prepared = || {
        let (shop, clock) = shop();
        let begun: Result<Begun<i64>, _> =
            shop.ledger.begin(&Request::new(&scope(), &key("order-0"), "{}"), &External::new(Duration::from_secs(1)));
        drop(begun.unwrap());
        let more = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)
                    INSERT INTO ledger_key(principal, operation, key, fingerprint, state, executions, lease_until_ms,
                                           recorded_ms, expires_ms)
                    SELECT principal, operation, 'order-' || i, fingerprint, state, executions, lease_until_ms,
                           recorded_ms, expires_ms FROM ledger_key, n";
        assert_eq!(shop.stranger().execute(more, []).unwrap(), 1200);
        clock.pass(1_000);
        (shop, clock)
    };
    let (shop, _clock) = prepared();
    assert_eq!(shop.ledger.in_doubt(2000).unwrap().len(), 1201);
    let (shop, _clock) = prepared();
    assert_eq!(shop.ledger.collect(10).unwrap(), in_doubt(1201));
}

fn in_doubt(keys: u32) -> Collected {
    let mut collected = Collected::default();
    collected.in_doubt = keys;
    collected
}
