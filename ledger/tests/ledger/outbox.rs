//! Messages leave after their effect, in the order of their line, and are never sent twice by guess.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use steady_ledger::{
    Backoff, Delivery, EnqueueError, Entropy, Message, Outbox, Report, Stuck, Target, Upstream, WallTime,
};

use super::clock::TestClock;
use super::*;

const LEASE: Duration = Duration::from_secs(30);
const LEASE_MS: i64 = 30_000;
const START: i64 = 1_790_000_000_000;
const HOUR: i64 = 3_600_000;
/// The longest pause that these targets make.
const CAP: i64 = 300_000;

fn shop() -> (Shop, TestClock) {
    let clock = TestClock::at(START);
    (Shop::open_with(Options { clock: clock.clock(), ..options() }), clock)
}

fn idempotent(name: &str) -> Target {
    Target::new(name).upstream(Upstream::Idempotent { window: Duration::from_secs(24 * 3600) })
}

/// Commits an effect that leaves these messages.
fn leave(ledger: &Ledger, key_text: &str, messages: &[Message]) -> Result<(), LedgerError> {
    let messages = messages.to_vec();
    let effect = move |tx: &mut EffectTx<'_>| {
        reserve(tx).map_err(|_| std::io::Error::other("reserve"))?;
        for message in &messages {
            tx.enqueue(message.clone())?;
        }
        Ok(0)
    };
    ledger.execute(&Request::new(&scope(), &key(key_text), &arguments("a-1", 2)), effect).map(|done| {
        done.into_inner();
    })
}

fn line(ordering_key: &str, payload: &str) -> Message {
    Message::new("bank", payload).ordering_key(ordering_key)
}

fn claim(outbox: &Outbox) -> Vec<Delivery> {
    outbox.claim(10, LEASE).unwrap()
}

fn payloads(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| str::from_utf8(delivery.payload()).unwrap()).collect()
}

fn one(outbox: &Outbox) -> Delivery {
    let mut claimed = claim(outbox);
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    claimed.remove(0)
}

fn stuck(outbox: &Outbox) -> Vec<Stuck> {
    outbox.stuck(10).unwrap()
}

fn actions(ledger: &Ledger, key_text: &str) -> Vec<&'static str> {
    ledger.audit(&scope(), &key(key_text)).unwrap().iter().map(|entry| entry.action.as_str()).collect()
}

#[test]
fn messages_leave_with_their_effect_or_not_at_all() {
    let (shop, _clock) = shop();
    let outbox = shop.ledger.outbox(Target::new("bank"));
    let run = |key_text: &str, end: fn() -> Result<i64, EffectError<i64>>| {
        shop.ledger.execute(&Request::new(&scope(), &key(key_text), "{}"), move |tx| {
            assert_eq!(tx.enqueue(Message::new("bank", "first"))?, 0);
            assert_eq!(tx.enqueue(Message::new("other", "second"))?, 1);
            end()
        })
    };
    run("order-1", || Err(EffectError::Reject(7))).unwrap().into_inner();
    run("order-2", || Err(std::io::Error::other("planned").into())).unwrap_err();
    run("order-3", || std::panic::resume_unwind(Box::new("planned"))).unwrap_err();
    assert!(claim(&outbox).is_empty());
    assert!(!run("order-4", || Ok(7)).unwrap().is_replay());
    assert!(run("order-4", || Ok(7)).unwrap().is_replay());
    let sent = claim(&outbox);
    assert_eq!(payloads(&sent), ["first"], "another target's message is not handed out");
    assert_eq!((sent[0].id().ordinal, sent[0].id().key.as_str(), sent[0].attempt()), (0, "order-4", 1));
    assert_eq!(sent[0].upstream_key().len(), 40);
    let other = one(&shop.ledger.outbox(Target::new("other")));
    assert_ne!(other.upstream_key(), sent[0].upstream_key());
    assert_ne!(other.upstream_key(), &*shop.ledger.upstream_key(&scope(), &key("order-4")));
}

#[test]
fn what_an_effect_may_leave_is_bounded() {
    let (shop, _clock) = shop();
    let try_it = |messages: Vec<Message>| {
        let effect = move |tx: &mut EffectTx<'_>| -> Result<i64, EffectError<i64>> {
            for message in &messages {
                tx.enqueue(message.clone())?;
            }
            Ok(0)
        };
        let done = shop.ledger.execute(&Request::new(&scope(), &key("order-1"), "{}"), effect);
        let Err(LedgerError::Aborted(cause)) = done else { panic!("{done:?}") };
        cause.downcast::<EnqueueError>().map(|error| *error).unwrap()
    };
    let limit = 64 * 1024;
    let large = EnqueueError::TooLarge { part: "payload", limit };
    assert_eq!(try_it(vec![Message::new("bank", vec![0; limit + 1])]), large);
    let target = EnqueueError::TooLarge { part: "target", limit: 255 };
    assert_eq!(try_it(vec![Message::new("b".repeat(256), "")]), target);
    let ordering = EnqueueError::TooLarge { part: "ordering key", limit: 255 };
    assert_eq!(try_it(vec![line(&"b".repeat(256), "")]), ordering);
    assert_eq!(try_it(vec![Message::new("bank", ""); 33]), EnqueueError::TooMany { limit: 32 });
    leave(&shop.ledger, "order-1", &vec![Message::new("bank", vec![0; limit]); 32]).unwrap();
    let keyless = shop.ledger.execute_keyless(&scope(), |tx| {
        tx.enqueue(Message::new("bank", ""))?;
        Ok(0)
    });
    let Err(LedgerError::Aborted(cause)) = keyless else { panic!("{keyless:?}") };
    assert_eq!(cause.downcast_ref(), Some(&EnqueueError::NoKey));
}

#[test]
fn a_full_outbox_rolls_the_effect_back_until_there_is_room() {
    let shop = Shop::open_with(Options { outbox_capacity: 2, ..options() });
    let outbox = shop.ledger.outbox(Target::new("bank"));
    leave(&shop.ledger, "order-1", &[line("a", "1")]).unwrap();
    let two = [line("a", "2"), line("a", "3")];
    assert!(matches!(leave(&shop.ledger, "order-2", &two), Err(LedgerError::OutboxFull)));
    assert_eq!(shop.reservations(), 1);
    assert_eq!(shop.ledger.reconcile(&scope(), &key("order-2")).unwrap(), None);
    one(&outbox).report(Report::Delivered).unwrap();
    leave(&shop.ledger, "order-2", &two).unwrap();
    one(&outbox).report(Report::Reject { reason: "closed account" }).unwrap();
    assert!(matches!(leave(&shop.ledger, "order-3", &two[..1]), Err(LedgerError::OutboxFull)));
    outbox.skip(&stuck(&outbox)[0].id, "ops", "").unwrap();
    leave(&shop.ledger, "order-3", &two[..1]).unwrap();
}

#[test]
fn a_line_leaves_in_order_and_a_dead_head_holds_back_no_other_line() {
    let (shop, _clock) = shop();
    let outbox = shop.ledger.outbox(Target::new("bank"));
    leave(&shop.ledger, "order-1", &[line("a", "a1"), line("b", "b1"), line("a", "a2")]).unwrap();
    leave(&shop.ledger, "order-2", &[line("a", "a3"), line("b", "b2"), Message::new("bank", "free")]).unwrap();
    let first = claim(&outbox);
    assert_eq!(payloads(&first), ["a1", "b1", "free"]);
    assert!(claim(&outbox).is_empty(), "what is being sent holds its line");
    first[0].report(Report::Reject { reason: "closed account" }).unwrap();
    first[1].report(Report::Delivered).unwrap();
    first[2].report(Report::Delivered).unwrap();
    let second = claim(&outbox);
    assert_eq!(payloads(&second), ["b2"]);
    let dead = stuck(&outbox);
    assert_eq!((dead.len(), &*dead[0].reason, dead[0].in_doubt), (1, "closed account", false));
    assert_eq!((dead[0].upstream_key.as_ref(), dead[0].attempts), (first[0].upstream_key(), 1));
    // What comes later waits behind the dead one too.
    leave(&shop.ledger, "order-3", &[line("a", "a4")]).unwrap();
    assert!(claim(&outbox).is_empty());
    outbox.requeue(&dead[0].id, None, "ops", "account open again").unwrap();
    assert!(matches!(first[0].report(Report::Delivered), Err(LedgerError::Stale)), "a person has decided");
    let again = one(&outbox);
    assert_eq!((payloads(std::slice::from_ref(&again)), again.attempt()), (vec!["a1"], 1));
    assert_eq!(again.upstream_key(), first[0].upstream_key());
    assert!(matches!(first[0].report(Report::Delivered), Err(LedgerError::Stale)));
    again.report(Report::Reject { reason: "closed for good" }).unwrap();
    outbox.skip(&dead[0].id, "ops", "paid by hand").unwrap();
    for expected in ["a2", "a3", "a4"] {
        let delivery = one(&outbox);
        assert_eq!(payloads(std::slice::from_ref(&delivery)), [expected]);
        delivery.report(Report::Delivered).unwrap();
    }
    assert_eq!(actions(&shop.ledger, "order-1"), ["requeued", "skipped"]);
    let audit = shop.ledger.audit(&scope(), &key("order-1")).unwrap();
    assert_eq!((audit[1].message, &*audit[1].actor, &*audit[1].note), (Some(0), "ops", "paid by hand"));
}

#[test]
fn after_a_crash_what_is_pending_was_never_sent_and_what_was_sent_is_in_doubt() {
    let (mut shop, clock) = shop();
    leave(&shop.ledger, "order-1", &[line("a", "a1"), line("b", "b1")]).unwrap();
    let sending: Vec<_> = shop.ledger.outbox(Target::new("bank")).claim(1, LEASE).unwrap();
    assert_eq!(payloads(&sending), ["a1"]);
    let states = || -> Vec<i64> {
        let conn = shop.stranger();
        let mut statement = conn.prepare("SELECT state FROM ledger_outbox ORDER BY id").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(states(), [2, 1], "that it is being sent is stored before it is handed out");
    drop(sending);
    shop.ledger.close().unwrap();
    shop.ledger = Ledger::open(shop.path(), Options { clock: clock.clock(), ..options() }).unwrap();
    let outbox = shop.ledger.outbox(Target::new("bank"));
    let unsent = one(&outbox);
    assert_eq!(payloads(std::slice::from_ref(&unsent)), ["b1"]);
    clock.pass(LEASE_MS);
    assert!(claim(&outbox).is_empty());
    let in_doubt = stuck(&outbox);
    assert_eq!(
        in_doubt.iter().map(|stuck| (stuck.in_doubt, &*stuck.reason)).collect::<Vec<_>>(),
        [(true, "its lease is over"); 2]
    );
    assert_eq!(actions(&shop.ledger, "order-1"), ["lease_expired", "lease_expired"]);
    clock.pass(1000 * HOUR);
    assert!(claim(&outbox).is_empty(), "time alone sends nothing again");
}

#[test]
fn a_target_that_recognises_a_message_gets_it_again_as_long_as_it_does() {
    let (shop, clock) = shop();
    let outbox = shop.ledger.outbox(idempotent("bank"));
    leave(&shop.ledger, "order-1", &[line("a", "a1")]).unwrap();
    let first = one(&outbox);
    clock.pass(LEASE_MS - 1);
    assert!(first.is_live() && claim(&outbox).is_empty());
    clock.pass(1);
    let second = one(&outbox);
    assert_eq!((second.attempt(), second.upstream_key()), (2, first.upstream_key()));
    assert!(!first.is_live() && second.is_live());
    assert!(matches!(first.report(Report::Delivered), Err(LedgerError::Stale)), "another attempt is under way");
    second.report(Report::InDoubt { reason: "timeout" }).unwrap();
    // The lease of 30 s and a minute have to fit before the end of the day.
    clock.set(START + 24 * HOUR - LEASE_MS - 60_001);
    let third = one(&outbox);
    assert_eq!(third.attempt(), 3);
    third.report(Report::InDoubt { reason: "timeout" }).unwrap();
    assert!(stuck(&outbox).is_empty());
    clock.set(START + 24 * HOUR);
    assert!(claim(&outbox).is_empty());
    let in_doubt = stuck(&outbox);
    assert_eq!(in_doubt.iter().map(|stuck| stuck.in_doubt).collect::<Vec<_>>(), [true]);
}

#[test]
fn a_retry_comes_after_a_pause_with_full_jitter_and_attempts_run_out() {
    let (shop, clock) = shop();
    let mut target = Target::new("bank");
    target.attempts = 3.try_into().unwrap();
    target.backoff = Backoff { base: Duration::from_secs(200), cap: Duration::from_millis(CAP as u64) };
    let outbox = shop.ledger.outbox(target);
    let messages: Vec<_> = (0..10).map(|number| Message::new("bank", format!("{number}"))).collect();
    leave(&shop.ledger, "order-1", &messages).unwrap();
    for ceiling in [200_000, CAP] {
        let claimed = claim(&outbox);
        assert_eq!(claimed.len(), 10);
        let now = clock.millis();
        for delivery in &claimed {
            delivery.report(Report::Retry { reason: "503" }).unwrap();
            delivery.report(Report::Retry { reason: "503" }).unwrap();
        }
        let conn = shop.stranger();
        let mut statement = conn.prepare("SELECT next_ms FROM ledger_outbox").unwrap();
        let next: BTreeSet<i64> = statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
        assert!(next.iter().all(|next| (now..=now + ceiling).contains(next)), "{next:?}");
        assert!(next.len() > 5, "they do not come back in step: {next:?}");
        clock.pass(ceiling);
    }
    let last = claim(&outbox);
    assert_eq!(last.iter().map(Delivery::attempt).collect::<Vec<_>>(), [3; 10]);
    for delivery in &last {
        delivery.report(Report::Retry { reason: "503 again" }).unwrap();
        delivery.report(Report::Retry { reason: "503 again" }).unwrap();
    }
    clock.pass(CAP);
    assert!(claim(&outbox).is_empty());
    let dead = outbox.stuck(100).unwrap();
    assert!(dead.len() == 10 && dead.iter().all(|stuck| !stuck.in_doubt && &*stuck.reason == "503 again"));
}

#[test]
fn a_message_that_is_lost_again_and_again_ends_up_in_doubt() {
    let (shop, clock) = shop();
    let mut target = idempotent("bank");
    target.attempts = 2.try_into().unwrap();
    let outbox = shop.ledger.outbox(target);
    leave(&shop.ledger, "order-1", &[line("a", "a1")]).unwrap();
    for attempt in 1..=2 {
        assert_eq!(one(&outbox).attempt(), attempt);
        clock.pass(LEASE_MS);
    }
    assert!(claim(&outbox).is_empty());
    assert_eq!(stuck(&outbox).iter().map(|stuck| (stuck.in_doubt, stuck.attempts)).collect::<Vec<_>>(), [(true, 2)]);
}

#[test]
fn a_late_report_counts_until_somebody_decided() {
    let (shop, clock) = shop();
    let outbox = shop.ledger.outbox(Target::new("bank"));
    let reports = [
        (Report::Delivered, "delivered_late", 0),
        (Report::Reject { reason: "no" }, "rejected_late", 1),
        (Report::NotSent, "never_sent", 0),
        (Report::Retry { reason: "503" }, "never_sent", 0),
    ];
    for (number, (report, action, left)) in reports.into_iter().enumerate() {
        let key_text = format!("order-{number}");
        leave(&shop.ledger, &key_text, &[line(&key_text, "x")]).unwrap();
        let late = one(&outbox);
        late.report(Report::InDoubt { reason: "timeout" }).unwrap();
        late.report(Report::InDoubt { reason: "timeout" }).unwrap();
        assert!(stuck(&outbox)[0].in_doubt);
        late.report(report).unwrap();
        late.report(report).unwrap();
        assert_eq!(actions(&shop.ledger, &key_text), ["reported_in_doubt", action]);
        assert_eq!(stuck(&outbox).len(), left);
        clock.pass(CAP);
        for delivery in claim(&outbox) {
            delivery.report(Report::Delivered).unwrap();
        }
        for dead in stuck(&outbox) {
            outbox.skip(&dead.id, "ops", "").unwrap();
        }
        for report in [Report::Retry { reason: "" }, Report::NotSent, Report::InDoubt { reason: "" }] {
            assert!(matches!(late.report(report), Err(LedgerError::Stale)), "{report:?}");
        }
    }
}

#[test]
fn an_attempt_that_was_not_sent_says_nothing_of_those_before_it() {
    let (shop, clock) = shop();
    let outbox = shop.ledger.outbox(idempotent("bank"));
    leave(&shop.ledger, "order-1", &[line("a", "a1")]).unwrap();
    one(&outbox).report(Report::InDoubt { reason: "timeout" }).unwrap();
    clock.pass(CAP);
    let second = one(&outbox);
    second.report(Report::NotSent).unwrap();
    let blind = shop.ledger.outbox(Target::new("bank"));
    assert!(claim(&blind).is_empty(), "the first attempt may have arrived");
    assert_eq!(stuck(&blind).iter().map(|stuck| stuck.in_doubt).collect::<Vec<_>>(), [true]);
    assert_eq!(actions(&shop.ledger, "order-1"), ["not_resent"]);
    // An attempt that is certain of itself takes its own doubt away.
    leave(&shop.ledger, "order-2", &[line("b", "b1")]).unwrap();
    let sent = one(&blind);
    sent.report(Report::InDoubt { reason: "timeout" }).unwrap();
    sent.report(Report::NotSent).unwrap();
    let again = one(&blind);
    assert_eq!((again.attempt(), payloads(std::slice::from_ref(&again))), (1, vec!["b1"]));
}

#[test]
fn nothing_is_sent_after_its_deadline() {
    let (shop, clock) = shop();
    let outbox = shop.ledger.outbox(idempotent("bank"));
    let at = |millis| WallTime::from_unix_millis(START + millis);
    leave(&shop.ledger, "order-1", &[line("a", "a1").deadline(at(10_000)), line("a", "a2")]).unwrap();
    leave(&shop.ledger, "order-2", &[line("b", "b1").deadline(at(10_000))]).unwrap();
    let first = claim(&outbox);
    assert_eq!(first.iter().map(Delivery::lease_until).collect::<Vec<_>>(), [at(10_000); 2]);
    first[0].report(Report::NotSent).unwrap();
    first[1].report(Report::InDoubt { reason: "timeout" }).unwrap();
    clock.set(START + 10_000);
    assert!(claim(&outbox).is_empty());
    let found = stuck(&outbox);
    assert_eq!(
        found.iter().map(|stuck| (stuck.in_doubt, &*stuck.reason)).collect::<Vec<_>>(),
        [(false, "its deadline is over"), (true, "its deadline is over")]
    );
    outbox.requeue(&found[0].id, Some(at(20_000)), "ops", "still wanted").unwrap();
    assert_eq!(payloads(&claim(&outbox)), ["a1"]);
}

#[test]
fn a_deadline_is_not_over_on_the_word_of_a_clock_that_jumped() {
    let (shop, clock) = shop();
    let outbox = shop.ledger.outbox(Target::new("bank"));
    let deadline = WallTime::from_unix_millis(START + 10_000);
    leave(&shop.ledger, "order-1", &[line("a", "a1").deadline(deadline)]).unwrap();
    clock.set(START + 100 * HOUR);
    assert!(claim(&outbox).is_empty() && stuck(&outbox).is_empty(), "neither sent nor dead");
    clock.set(START + 1_000);
    assert!(claim(&outbox).is_empty(), "the jump is only just over");
    assert_eq!(payloads(&claim(&outbox)), ["a1"]);
}

#[test]
fn a_payload_is_gone_from_the_file_once_it_is_delivered() {
    const SECRET: &str = "4000-1234-SECRET";
    let (shop, _clock) = shop();
    let outbox = shop.ledger.outbox(Target::new("bank"));
    let payload = SECRET.repeat(2000);
    let messages = [line("a", &payload), line("b", SECRET), line("c", &payload)];
    assert!(!format!("{messages:?}").contains(SECRET));
    leave(&shop.ledger, "order-1", &messages).unwrap();
    let claimed = claim(&outbox);
    assert!(!format!("{claimed:?}").contains(SECRET));
    let found = || {
        std::fs::read_dir(shop.dir.path()).unwrap().any(|file| {
            let content = std::fs::read(file.unwrap().path()).unwrap();
            content.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
        })
    };
    claimed[0].report(Report::Delivered).unwrap();
    claimed[1].report(Report::Delivered).unwrap();
    claimed[2].report(Report::Reject { reason: "no" }).unwrap();
    assert!(found(), "the dead one still has it");
    outbox.skip(&stuck(&outbox)[0].id, "ops", "").unwrap();
    shop.ledger.close().unwrap();
    drop((claimed, outbox));
    assert!(!found());
}

#[test]
fn two_relays_never_get_the_same_message() {
    let (shop, clock) = shop();
    let messages: Vec<_> = (0..32).map(|number| Message::new("bank", format!("{number}"))).collect();
    for order in 0..4 {
        leave(&shop.ledger, &format!("order-{order}"), &messages).unwrap();
    }
    let other = Ledger::open(shop.path(), Options { clock: clock.clock(), ..options() }).unwrap();
    let relays = [shop.ledger.outbox(Target::new("bank")), other.outbox(Target::new("bank"))];
    let barrier = Barrier::new(2);
    let relay = |outbox: &Outbox| {
        barrier.wait();
        let mut sent = Vec::new();
        loop {
            let claimed = outbox.claim(7, LEASE).unwrap();
            if claimed.is_empty() {
                return sent;
            }
            for delivery in claimed {
                delivery.report(Report::Delivered).unwrap();
                sent.push(delivery.upstream_key().to_owned());
            }
        }
    };
    let sent: Vec<_> = thread::scope(|threads| {
        let threads = relays.each_ref().map(|outbox| threads.spawn(|| relay(outbox)));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let distinct: BTreeSet<_> = sent.iter().collect();
    assert_eq!((sent.len(), distinct.len()), (128, 128));
}

#[test]
fn people_decide_only_about_what_waits_for_them() {
    let (shop, _clock) = shop();
    let outbox = shop.ledger.outbox(Target::new("bank"));
    leave(&shop.ledger, "order-1", &[line("a", "a1"), line("a", "a2")]).unwrap();
    let sending = one(&outbox);
    let id = sending.id();
    let refused = [outbox.requeue(id, None, "ops", ""), outbox.skip(id, "ops", "")];
    assert!(refused.iter().all(|refused| matches!(refused, Err(LedgerError::NotStuck))), "{refused:?}");
    let elsewhere = shop.ledger.outbox(Target::new("other"));
    assert!(matches!(elsewhere.skip(id, "ops", ""), Err(LedgerError::NotStuck)));
    let long = outbox.skip(id, &"x".repeat(256), "");
    assert!(matches!(long, Err(LedgerError::TooLarge { part: "actor", limit: 255 })));
    // One that waits in the middle of its line can be given up, and the line stays in order.
    let mut second = id.clone();
    second.ordinal = 1;
    outbox.skip(&second, "ops", "not wanted").unwrap();
    sending.report(Report::Delivered).unwrap();
    assert!(claim(&outbox).is_empty());
    for done in [id, &second] {
        assert!(matches!(outbox.requeue(done, None, "ops", ""), Err(LedgerError::NotStuck)));
    }
    leave(&shop.ledger, "order-2", &[line("a", "a3")]).unwrap();
    assert_eq!(payloads(&claim(&outbox)), ["a3"]);
}

#[test]
fn a_reason_is_cut_to_what_is_kept() {
    let (shop, _clock) = shop();
    let outbox = shop.ledger.outbox(Target::new("bank"));
    leave(&shop.ledger, "order-1", &[line("a", "a1")]).unwrap();
    one(&outbox).report(Report::Reject { reason: &"é".repeat(1000) }).unwrap();
    assert_eq!(&*stuck(&outbox)[0].reason, "é".repeat(512));
}

#[test]
fn without_entropy_nothing_is_claimed() {
    let clock = TestClock::at(START);
    let calls = std::sync::atomic::AtomicU32::new(0);
    let entropy = Entropy::new(move |bytes| {
        if calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0 {
            return Err("no entropy".into());
        }
        bytes.fill(7);
        Ok(())
    });
    let shop = Shop::open_with(Options { clock: clock.clock(), entropy, ..options() });
    leave(&shop.ledger, "order-1", &[line("a", "a1")]).unwrap();
    assert!(matches!(shop.ledger.outbox(Target::new("bank")).claim(1, LEASE), Err(LedgerError::Storage(_))));
    let state: i64 = shop.stranger().query_row("SELECT state FROM ledger_outbox", [], |row| row.get(0)).unwrap();
    assert_eq!(state, 1);
}
