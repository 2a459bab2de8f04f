//! An effect in another system is sent once, or its key is honestly in doubt.

use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use steady_ledger::{Action, Attempt, Begun, External, Resolved, State, Upstream, WallTime};

use super::clock::TestClock;
use super::*;

const LEASE: Duration = Duration::from_secs(30);
const LEASE_MS: i64 = 30_000;
const START: i64 = 1_790_000_000_000;
const HOUR: i64 = 3_600_000;

type End = fn(&Attempt) -> Result<(), LedgerError>;

/// A system that knows a request for a day.
fn idempotent() -> External {
    External::new(LEASE).upstream(Upstream::Idempotent { window: Duration::from_secs(24 * 3600) })
}

fn blind() -> External {
    External::new(LEASE)
}

fn shop() -> (Shop, TestClock) {
    let clock = TestClock::at(START);
    (Shop::open_with(Options { clock: clock.clock(), ..options() }), clock)
}

fn begin(ledger: &Ledger, external: &External) -> Result<Begun<String>, LedgerError> {
    ledger.begin(&Request::new(&scope(), &key("order-7"), &arguments("a-1", 2)), external)
}

fn attempt(ledger: &Ledger, external: &External) -> Attempt {
    match begin(ledger, external).unwrap() {
        Begun::Send(attempt) => attempt,
        Begun::Replayed(_) => panic!("replayed"),
    }
}

fn replayed(ledger: &Ledger) -> String {
    match begin(ledger, &blind()).unwrap() {
        Begun::Replayed(value) => value,
        Begun::Send(_) => panic!("sent again"),
    }
}

fn state(ledger: &Ledger) -> Option<State> {
    ledger.reconcile(&scope(), &key("order-7")).unwrap().map(|known| known.state)
}

fn resolve(ledger: &Ledger, resolved: &Resolved<String>) -> Result<(), LedgerError> {
    ledger.resolve(&scope(), &key("order-7"), resolved, "ops@example.com", "asked the bank")
}

fn actions(ledger: &Ledger) -> Vec<&'static str> {
    ledger.audit(&scope(), &key("order-7")).unwrap().iter().map(|entry| entry.action.as_str()).collect()
}

fn text(value: &str) -> String {
    value.to_owned()
}

/// Polls a future that does not wait, as it was handed to a writer on this thread.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match Box::pin(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("pending"),
    }
}

#[test]
fn a_started_effect_is_durable_before_it_may_be_sent_and_its_outcome_is_replayed() {
    for (reject, state_after, executions) in [(false, State::Committed, 1), (true, State::Rejected, 0)] {
        let (shop, _clock) = shop();
        let attempt = attempt(&shop.ledger, &blind());
        let lease_until = WallTime::from_unix_millis(START + LEASE_MS);
        assert_eq!((attempt.number(), attempt.lease_until(), attempt.is_live()), (1, lease_until, true));
        let stored: i64 = shop.stranger().query_row("SELECT state FROM ledger_key", [], |row| row.get(0)).unwrap();
        assert_eq!(stored, 1);
        let Err(LedgerError::InFlight { retry_after }) = begin(&shop.ledger, &blind()) else { panic!("in flight") };
        assert_eq!(retry_after, LEASE);
        if reject { attempt.reject(&text("done")) } else { attempt.commit(&text("done")) }.unwrap();
        assert_eq!(replayed(&shop.ledger), "done");
        let known = shop.ledger.reconcile(&scope(), &key("order-7")).unwrap().unwrap();
        assert_eq!((known.state, known.executions), (state_after, executions));
        assert_eq!(actions(&shop.ledger), [""; 0], "the plain course of things needs no audit");
        let left: i64 = shop.stranger().query_row("SELECT count(*) FROM ledger_attempt", [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0);
    }
}

#[test]
fn other_arguments_are_a_mismatch_in_every_state() {
    let (shop, clock) = shop();
    let other = || -> Result<Begun<String>, _> {
        shop.ledger.begin(&Request::new(&scope(), &key("order-7"), &arguments("a-1", 3)), &idempotent())
    };
    let attempt = attempt(&shop.ledger, &idempotent());
    assert!(matches!(other(), Err(LedgerError::Mismatch)));
    clock.pass(LEASE_MS);
    assert!(matches!(other(), Err(LedgerError::Mismatch)));
    attempt.in_doubt().unwrap();
    assert!(matches!(other(), Err(LedgerError::Mismatch)));
    attempt.commit(&text("done")).unwrap();
    assert!(matches!(other(), Err(LedgerError::Mismatch)));
}

#[test]
fn an_effect_that_was_never_sent_leaves_no_trace_and_may_begin_anew() {
    let (shop, _clock) = shop();
    let first = attempt(&shop.ledger, &blind());
    first.not_sent().unwrap();
    assert_eq!(state(&shop.ledger), None);
    first.not_sent().unwrap();
    let second = attempt(&shop.ledger, &blind());
    assert_eq!((second.number(), second.upstream_key()), (1, first.upstream_key()));
    for stale in [first.not_sent(), first.in_doubt(), first.commit(&text("first")), first.reject(&text("first"))] {
        assert!(matches!(stale, Err(LedgerError::Stale)), "{stale:?}");
    }
    second.commit(&text("second")).unwrap();
    assert_eq!(replayed(&shop.ledger), "second");
}

#[test]
fn a_lease_that_ends_puts_the_key_in_doubt_and_nothing_sends_it_again() {
    let (shop, clock) = shop();
    drop(attempt(&shop.ledger, &blind()));
    clock.pass(LEASE_MS - 1);
    assert!(matches!(begin(&shop.ledger, &blind()), Err(LedgerError::InFlight { .. })));
    clock.pass(1);
    for external in [blind(), idempotent(), blind()] {
        // The first call said that the other system is not known to be idempotent: a later one cannot unsay it.
        assert!(matches!(begin(&shop.ledger, &external), Err(LedgerError::InDoubt)));
        assert_eq!(state(&shop.ledger), Some(State::InDoubt));
    }
    assert_eq!(actions(&shop.ledger), ["lease_expired"]);
    clock.pass(400 * 24 * HOUR);
    assert!(matches!(begin(&shop.ledger, &idempotent()), Err(LedgerError::InDoubt)));
    let execute = call(&shop.ledger, "order-7");
    assert!(matches!(execute, Err(LedgerError::InDoubt)), "a local effect does not run under it either");
}

#[test]
fn a_late_outcome_of_the_same_attempt_is_evidence() {
    let ends: [End; 3] = [|late| late.commit(&text("done")), |late| late.reject(&text("refused")), Attempt::not_sent];
    let expected =
        [(Some(State::Committed), "committed_late"), (Some(State::Rejected), "rejected_late"), (None, "never_sent")];
    for (end, (state_after, action)) in ends.into_iter().zip(expected) {
        for explicit in [true, false] {
            let (shop, clock) = shop();
            let late = attempt(&shop.ledger, &blind());
            if explicit {
                late.in_doubt().unwrap();
                late.in_doubt().unwrap();
            } else {
                clock.pass(LEASE_MS);
                assert!(!late.is_live());
                assert!(matches!(begin(&shop.ledger, &blind()), Err(LedgerError::InDoubt)));
            }
            assert_eq!(state(&shop.ledger), Some(State::InDoubt));
            end(&late).unwrap();
            assert_eq!(state(&shop.ledger), state_after);
            let doubted = if explicit { "reported_in_doubt" } else { "lease_expired" };
            assert_eq!(actions(&shop.ledger), [doubted, action]);
            end(&late).unwrap();
            assert_eq!(actions(&shop.ledger).len(), 2, "a repeated report changes nothing");
        }
    }
}

#[test]
fn what_was_resolved_is_not_overturned_by_a_late_outcome() {
    let (shop, _clock) = shop();
    let late = attempt(&shop.ledger, &blind());
    late.in_doubt().unwrap();
    resolve(&shop.ledger, &Resolved::Rejected(text("not found at the bank"))).unwrap();
    for stale in [late.commit(&text("done")), late.not_sent(), late.in_doubt()] {
        assert!(matches!(stale, Err(LedgerError::Stale)), "{stale:?}");
    }
    late.reject(&text("not found at the bank")).unwrap();
    assert_eq!(replayed(&shop.ledger), "not found at the bank");
    let audit = shop.ledger.audit(&scope(), &key("order-7")).unwrap();
    let last = audit.last().unwrap();
    assert_eq!(
        (last.action, &*last.actor, &*last.note),
        (Action::ResolvedRejected, "ops@example.com", "asked the bank")
    );
    assert_eq!((last.at, last.message), (WallTime::from_unix_millis(START), None));
    assert_eq!(audit.len(), 2);
}

#[test]
fn only_a_key_in_doubt_can_be_resolved() {
    let (shop, clock) = shop();
    let committed = Resolved::Committed(text("found at the bank"));
    assert!(matches!(resolve(&shop.ledger, &committed), Err(LedgerError::NotInDoubt)));
    let sent = attempt(&shop.ledger, &blind());
    assert!(matches!(resolve(&shop.ledger, &committed), Err(LedgerError::InFlight { .. })));
    let long = "x".repeat(4097);
    let too_long = shop.ledger.resolve(&scope(), &key("order-7"), &committed, "ops", &long);
    assert!(matches!(too_long, Err(LedgerError::TooLarge { part: "note", limit: 4096 })));
    clock.pass(LEASE_MS);
    resolve(&shop.ledger, &committed).unwrap();
    assert_eq!(replayed(&shop.ledger), "found at the bank");
    assert_eq!(shop.ledger.reconcile(&scope(), &key("order-7")).unwrap().unwrap().executions, 1);
    assert!(matches!(resolve(&shop.ledger, &committed), Err(LedgerError::NotInDoubt)));
    assert!(matches!(sent.reject(&text("late")), Err(LedgerError::Stale)));
    assert_eq!(actions(&shop.ledger), ["resolved_committed"]);
}

#[test]
fn an_idempotent_system_gets_the_same_key_again_as_long_as_its_window_is_open() {
    let (shop, clock) = shop();
    let first = attempt(&shop.ledger, &idempotent());
    clock.pass(LEASE_MS);
    let second = attempt(&shop.ledger, &idempotent());
    assert_eq!((second.number(), second.upstream_key()), (2, first.upstream_key()));
    assert!(matches!(begin(&shop.ledger, &idempotent()), Err(LedgerError::InFlight { .. })));
    for stale in [first.commit(&text("first")), first.in_doubt(), first.not_sent()] {
        assert!(matches!(stale, Err(LedgerError::Stale)), "{stale:?}");
    }
    second.not_sent().unwrap();
    assert_eq!(state(&shop.ledger), Some(State::InDoubt), "the first one may have been sent");
    assert!(matches!(begin(&shop.ledger, &blind()), Err(LedgerError::InDoubt)));

    // The lease of 30 s and a minute have to fit before the end of the day.
    clock.set(START + 24 * HOUR - LEASE_MS - 60_001);
    let third = attempt(&shop.ledger, &idempotent());
    assert_eq!(third.number(), 3);
    third.in_doubt().unwrap();
    clock.pass(1);
    assert!(matches!(begin(&shop.ledger, &idempotent()), Err(LedgerError::InDoubt)));
    // A shorter window of a later call counts, a longer one does not.
    clock.set(START + HOUR);
    let window = Duration::from_secs(3600);
    let shorter = External::new(LEASE).upstream(Upstream::Idempotent { window });
    assert!(matches!(begin(&shop.ledger, &shorter), Err(LedgerError::InDoubt)));
    third.commit(&text("done")).unwrap();
    assert_eq!(replayed(&shop.ledger), "done");
    assert_eq!(actions(&shop.ledger), ["resent", "reported_in_doubt", "resent", "reported_in_doubt", "committed_late"]);
}

#[test]
fn a_clock_that_jumps_never_sends_again_what_the_other_system_may_have_forgotten() {
    let (shop, clock) = shop();
    attempt(&shop.ledger, &idempotent()).in_doubt().unwrap();
    // Ahead of the window, and back: what the file has seen counts.
    clock.set(START + 25 * HOUR);
    assert!(matches!(begin(&shop.ledger, &idempotent()), Err(LedgerError::InDoubt)));
    clock.pass(60_000);
    assert!(matches!(begin(&shop.ledger, &idempotent()), Err(LedgerError::InDoubt)));
    clock.set(START);
    assert!(matches!(begin(&shop.ledger, &idempotent()), Err(LedgerError::InDoubt)));
    let reopened = Ledger::open(shop.path(), Options { clock: clock.clock(), ..options() }).unwrap();
    assert!(matches!(begin(&reopened, &idempotent()), Err(LedgerError::InDoubt)));
}

#[test]
fn a_lease_of_a_clock_that_went_back_ends() {
    let (shop, clock) = shop();
    clock.set(START + 1000 * HOUR);
    let early = attempt(&shop.ledger, &idempotent());
    clock.set(START + 1);
    for _ in 0..3 {
        assert!(matches!(begin(&shop.ledger, &idempotent()), Err(LedgerError::InDoubt)), "nor is it sent again");
    }
    assert_eq!(state(&shop.ledger), Some(State::InDoubt));
    early.commit(&text("done")).unwrap();
    assert_eq!(replayed(&shop.ledger), "done");
}

#[test]
fn two_handles_race_for_a_key_and_one_wins() {
    let (shop, clock) = shop();
    let other = Ledger::open(shop.path(), Options { clock: clock.clock(), ..options() }).unwrap();
    let handles = [shop.ledger.clone(), other.clone()];
    for round in 0..2 {
        let barrier = Barrier::new(2);
        let won: Vec<_> = thread::scope(|threads| {
            let race = |ledger| {
                let barrier = &barrier;
                threads.spawn(move || {
                    barrier.wait();
                    begin(ledger, &idempotent())
                })
            };
            handles.each_ref().map(race).into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let attempts: Vec<_> = won
            .into_iter()
            .filter_map(|begun| match begun {
                Ok(Begun::Send(attempt)) => Some(attempt),
                Ok(Begun::Replayed(_)) => panic!("nothing to replay"),
                Err(LedgerError::InFlight { .. }) => None,
                Err(error) => panic!("{error:?}"),
            })
            .collect();
        assert_eq!(attempts.iter().map(Attempt::number).collect::<Vec<_>>(), [round + 1]);
        clock.pass(LEASE_MS);
    }
}

#[test]
fn two_handles_report_and_resolve_at_once_and_one_outcome_stays() {
    let (shop, clock) = shop();
    let other = Ledger::open(shop.path(), Options { clock: clock.clock(), ..options() }).unwrap();
    let sent = attempt(&shop.ledger, &blind());
    sent.in_doubt().unwrap();
    let barrier = Barrier::new(2);
    let (reported, resolved) = thread::scope(|threads| {
        let report = threads.spawn(|| {
            barrier.wait();
            sent.commit(&text("reported"))
        });
        barrier.wait();
        let resolved = resolve(&other, &Resolved::Rejected(text("resolved")));
        (report.join().unwrap(), resolved)
    });
    match (reported, resolved) {
        (Ok(()), Err(LedgerError::NotInDoubt)) => assert_eq!(replayed(&other), "reported"),
        (Err(LedgerError::Stale), Ok(())) => assert_eq!(replayed(&shop.ledger), "resolved"),
        both => panic!("{both:?}"),
    }
}

#[test]
fn a_process_that_dies_leaves_a_key_that_the_next_one_puts_in_doubt() {
    let (mut shop, clock) = shop();
    drop(attempt(&shop.ledger, &blind()));
    let reopen =
        || Ledger::open(shop.dir.path().join("shop.db"), Options { clock: clock.clock(), ..options() }).unwrap();
    shop.ledger.close().unwrap();
    shop.ledger = reopen();
    assert!(matches!(state(&shop.ledger), Some(State::Started { .. })), "its lease still runs");
    clock.pass(LEASE_MS);
    shop.ledger.close().unwrap();
    shop.ledger = reopen();
    assert_eq!(state(&shop.ledger), Some(State::InDoubt), "found when it was opened");
    let listed = shop.ledger.in_doubt(10).unwrap();
    let [found] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((&found.scope, &found.key, found.attempts), (&scope(), &key("order-7"), 1));
    assert_eq!(found.upstream_key, shop.ledger.upstream_key(&scope(), &key("order-7")));
    assert_eq!(found.first_sent_at, Some(WallTime::from_unix_millis(START)));
    resolve(&shop.ledger, &Resolved::Committed(text("found"))).unwrap();
    assert_eq!(shop.ledger.in_doubt(10).unwrap(), []);
    assert_eq!(replayed(&shop.ledger), "found");
}

#[test]
fn what_cannot_be_an_outcome_is_refused_and_the_attempt_stays() {
    let (shop, _clock) = shop();
    let sent = attempt(&shop.ledger, &blind());
    let asks = serde_json::json!({"resultType": "input_required", "requestState": "x"});
    assert!(matches!(sent.commit(&asks), Err(LedgerError::NotFinal)));
    assert!(matches!(sent.reject(&asks), Err(LedgerError::NotFinal)));
    assert!(matches!(sent.commit(&f64::NAN), Err(LedgerError::Encoding)));
    assert!(matches!(state(&shop.ledger), Some(State::Started { .. })));
    sent.in_doubt().unwrap();
    let resolved = shop.ledger.resolve(&scope(), &key("order-7"), &Resolved::Committed(asks), "ops", "");
    assert!(matches!(resolved, Err(LedgerError::NotFinal)));
    sent.commit(&text("done")).unwrap();
}

#[test]
fn the_async_forms_do_the_same_even_if_nobody_waits() {
    let (shop, clock) = shop();
    let (scope, order, args) = (scope(), key("order-7"), arguments("a-1", 2));
    let request = Request::new(&scope, &order, &args);
    let inline = Options { executor: steady_ledger::Executor::Inline, clock: clock.clock(), ..options() };
    let ledger = Ledger::open(shop.path(), inline).unwrap();
    let Begun::Send(first) = ready(ledger.begin_async::<String>(&request, &blind())).unwrap() else { panic!("new") };
    ready(first.not_sent_async()).unwrap();
    let Begun::Send(second) = ready(ledger.begin_async::<String>(&request, &blind())).unwrap() else { panic!("new") };
    drop(second.in_doubt_async());
    assert_eq!(state(&ledger), Some(State::InDoubt));
    ready(second.reject_async(&text("refused"))).unwrap();
    assert!(matches!(ready(second.commit_async(&text("done"))), Err(LedgerError::Stale)));
    let Begun::Replayed(value) = ready(ledger.begin_async::<String>(&request, &blind())).unwrap() else { panic!() };
    assert_eq!(value, "refused");
}

#[test]
fn nothing_printed_shows_a_key_or_a_result() {
    let (shop, _clock) = shop();
    let begun = begin(&shop.ledger, &blind()).unwrap();
    let shown = format!("{begun:?} {:?}", Resolved::Committed(text("the result")));
    assert!(
        shown.contains("reserve_inventory") && !shown.contains("order-7") && !shown.contains("the result"),
        "{shown}"
    );
    let Begun::Send(attempt) = begun else { panic!("new") };
    attempt.commit(&text("the result")).unwrap();
    assert_eq!(format!("{:?}", begin(&shop.ledger, &blind()).unwrap()), "Replayed(..)");
}
