//! Messages, and relays in many replicas that share them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use steady_ledger::{Isolation, LedgerError, Message, PgLedger, PgOptions, Report, Request, Target, Upstream};

use crate::shop::{Shop, key, options, scope};

const LEASE: Duration = Duration::from_secs(600);

async fn leave(ledger: &PgLedger, number: usize, line: Option<&str>) -> Result<(), LedgerError> {
    let (scope, key) = (scope(), key(&format!("order-{number}")));
    let request = Request::new(&scope, &key, "{}");
    let done = ledger.execute(&request, |tx| {
        Box::pin(async move {
            let message = Message::new("bank", number.to_string());
            tx.enqueue(match line {
                Some(line) => message.ordering_key(line),
                None => message,
            })?;
            Ok(0)
        })
    });
    done.await.map(|_| ())
}

#[test]
fn relays_in_many_replicas_get_different_messages_and_keep_the_order_of_each_line() {
    let name = "relays_in_many_replicas_get_different_messages_and_keep_the_order_of_each_line";
    let Some(shop) = Shop::open(name, options()) else { return };
    shop.runtime.block_on(async {
        let lines = ["a", "b", "c"];
        // Effects that leave messages in the same lines at the same time.
        let writers = lines.map(|line| {
            let ledger = &shop.ledger;
            async move {
                for number in 0..20 {
                    let id = number * 10 + usize::from(line.as_bytes()[0] - b'a');
                    leave(ledger, id, Some(if number % 2 == 0 { line } else { "shared" })).await.unwrap();
                }
            }
        });
        let [a, b, c] = writers;
        tokio::join!(a, b, c);
        let mut replicas = Vec::new();
        for _ in 0..3 {
            let ledger = PgLedger::open(&shop.config, options()).await.unwrap();
            replicas.push(tokio::spawn(async move {
                let outbox = ledger.outbox(Target::new("bank"));
                let mut sent = Vec::new();
                let mut idle = 0;
                while idle < 3 {
                    let claimed = outbox.claim(4, LEASE).await.unwrap();
                    idle = if claimed.is_empty() { idle + 1 } else { 0 };
                    for delivery in claimed {
                        let number: usize = str::from_utf8(delivery.payload()).unwrap().parse().unwrap();
                        sent.push((delivery.ordering_key().unwrap().to_owned(), number));
                        delivery.report(Report::Delivered).await.unwrap();
                    }
                }
                sent
            }));
        }
        let mut all = Vec::new();
        for replica in replicas {
            let sent = replica.await.unwrap();
            // What one of them sent of a line is in the order of the line.
            let mut last: BTreeMap<String, usize> = BTreeMap::new();
            for (line, number) in sent.iter().filter(|(line, _)| line != "shared") {
                assert!(last.insert(line.clone(), *number).is_none_or(|before| before < *number), "{line}: {number}");
            }
            all.extend(sent);
        }
        let numbers: BTreeSet<usize> = all.iter().map(|(_, number)| *number).collect();
        assert_eq!((all.len(), numbers.len()), (60, 60), "each once");
        assert!(shop.ledger.check(|_, _| {}).await.unwrap().is_sound());
        assert_eq!(shop.ledger.collect(100).await.unwrap().messages, 60);
    });
}

#[test]
fn a_message_that_may_have_arrived_waits_for_a_person_and_holds_its_line_back() {
    let name = "a_message_that_may_have_arrived_waits_for_a_person_and_holds_its_line_back";
    let Some(shop) = Shop::open(name, options()) else { return };
    shop.runtime.block_on(async {
        for number in 0..2 {
            leave(&shop.ledger, number, Some("line")).await.unwrap();
        }
        let outbox = shop.ledger.outbox(Target::new("bank"));
        let [first] = &outbox.claim(9, LEASE).await.unwrap()[..] else { panic!("one of a line at a time") };
        first.report(Report::InDoubt { reason: "timeout" }).await.unwrap();
        assert!(outbox.claim(9, LEASE).await.unwrap().is_empty());
        let [stuck] = &outbox.stuck(9).await.unwrap()[..] else { panic!("one is stuck") };
        assert!(stuck.in_doubt && &*stuck.reason == "timeout" && &*stuck.upstream_key == first.upstream_key());
        outbox.skip(&stuck.id, "operator", "seen there").await.unwrap();
        assert!(matches!(outbox.skip(&stuck.id, "operator", "").await, Err(LedgerError::NotStuck)));
        let second = outbox.claim(9, LEASE).await.unwrap();
        assert_eq!(second[0].payload(), b"1");
        second[0].report(Report::Reject { reason: "closed" }).await.unwrap();
        second[0].report(Report::Reject { reason: "closed" }).await.unwrap();
        let stuck = outbox.stuck(9).await.unwrap();
        outbox.requeue(&stuck[0].id, None, "operator", "open again").await.unwrap();
        let again = outbox.claim(9, LEASE).await.unwrap();
        assert!(matches!(second[0].report(Report::Delivered).await, Err(LedgerError::Stale)));
        again[0].report(Report::Delivered).await.unwrap();
        let audit = shop.ledger.audit(&scope(), &key("order-0")).await.unwrap();
        let actions: Vec<_> = audit.iter().map(|entry| entry.action.as_str()).collect();
        assert_eq!(actions, ["reported_in_doubt", "skipped"]);
    });
}

#[test]
fn a_target_that_recognises_messages_gets_them_again_and_a_full_outbox_takes_none() {
    let name = "a_target_that_recognises_messages_gets_them_again_and_a_full_outbox_takes_none";
    let options = PgOptions { outbox_capacity: 2, ..options() };
    let Some(shop) = Shop::open(name, options) else { return };
    shop.runtime.block_on(async {
        for number in 0..2 {
            leave(&shop.ledger, number, None).await.unwrap();
        }
        assert!(matches!(leave(&shop.ledger, 2, None).await, Err(LedgerError::OutboxFull)));
        assert_eq!(shop.number("SELECT count(*) FROM ledger_key").await, 2, "its effect is rolled back");
        let window = Duration::from_secs(3600);
        let outbox = shop.ledger.outbox(Target::new("bank").upstream(Upstream::Idempotent { window }));
        // Leases that are over at once: the senders fell silent.
        assert_eq!(outbox.claim(9, Duration::ZERO).await.unwrap().len(), 2);
        let again = outbox.claim(9, LEASE).await.unwrap();
        assert_eq!(again.iter().map(|delivery| delivery.attempt()).collect::<Vec<_>>(), [2, 2]);
        for delivery in &again {
            assert!(delivery.is_live());
            delivery.report(Report::Delivered).await.unwrap();
        }
        leave(&shop.ledger, 2, None).await.unwrap();
    });
}

#[test]
fn a_relay_hears_of_a_message_at_once_and_looks_by_itself_if_nobody_tells_it() {
    let name = "a_relay_hears_of_a_message_at_once_and_looks_by_itself_if_nobody_tells_it";
    let Some(shop) = Shop::open(name, options()) else { return };
    shop.runtime.block_on(async {
        let wakes = shop.ledger.wakes(&shop.config).unwrap();
        let mut waiter = wakes.messages();
        let forever = Duration::from_secs(3600);
        // The first is that it listens now.
        waiter.wait(forever).await;
        for number in 0..3 {
            leave(&shop.ledger, number, None).await.unwrap();
            waiter.wait(forever).await;
        }
        let mut tasks = wakes.tasks();
        let spec = steady_ledger::TaskSpec::default();
        shop.ledger.tasks().create_keyless(&scope(), spec).await.unwrap();
        tasks.wait(forever).await;
        // Its connection is gone, and comes again.
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND query LIKE 'LISTEN%'";
        shop.stranger().await.batch_execute(sql).await.unwrap();
        waiter.wait(forever).await;
        drop(wakes);
        waiter.wait(Duration::from_millis(1)).await;
    });
}

/// What a relay says whose lease is over changes nothing, whoever has the message now.
#[test]
fn a_relay_that_lost_its_lease_cannot_mark_a_message_sent() {
    let name = "a_relay_that_lost_its_lease_cannot_mark_a_message_sent";
    let Some(shop) = Shop::open(name, options()) else { return };
    shop.runtime.block_on(async {
        let window = Duration::from_secs(3600);
        let outbox = shop.ledger.outbox(Target::new("bank").upstream(Upstream::Idempotent { window }));
        leave(&shop.ledger, 0, None).await.unwrap();
        let [late] = &outbox.claim(9, Duration::ZERO).await.unwrap()[..] else { panic!("one message") };
        // Another replica has it now, and is at it.
        let other = PgLedger::open(&shop.config, options()).await.unwrap();
        let other = other.outbox(Target::new("bank").upstream(Upstream::Idempotent { window }));
        let [owner] = &other.claim(9, LEASE).await.unwrap()[..] else { panic!("it is free again") };
        let state = "SELECT state::bigint FROM ledger_outbox";
        for word in [Report::Delivered, Report::Reject { reason: "no" }, Report::InDoubt { reason: "timeout" }] {
            let told = late.report(word).await;
            assert!(matches!(told, Err(LedgerError::Stale)), "{told:?}");
            assert_eq!(shop.number(state).await, 2, "it is still being sent by its owner");
        }
        owner.report(Report::Delivered).await.unwrap();
        assert!(matches!(late.report(Report::Reject { reason: "no" }).await, Err(LedgerError::Stale)));
        assert_eq!(shop.number(state).await, 3);
    });
}

/// Transactions that see one moment do not see what became of a line since.
#[test]
fn a_line_goes_on_whatever_happens_to_it_during_an_effect() {
    let name = "a_line_goes_on_whatever_happens_to_it_during_an_effect";
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let Some(shop) = Shop::open(name, PgOptions { isolation, ..options() }) else { return };
        shop.runtime.block_on(async {
            let (ledger, outbox) = (&shop.ledger, &shop.ledger.outbox(Target::new("bank")));
            let deliver = async || {
                let mut sent = Vec::new();
                for delivery in outbox.claim(9, LEASE).await.unwrap() {
                    sent.push(str::from_utf8(delivery.payload()).unwrap().to_owned());
                    delivery.report(Report::Delivered).await.unwrap();
                }
                sent
            };
            let deliver = &deliver;
            let behind = async |number: usize, more: bool| {
                let (scope, key) = (scope(), key(&format!("order-{number}")));
                let request = Request::new(&scope, &key, "{}");
                let done = ledger.execute(&request, |tx| {
                    Box::pin(async move {
                        if more {
                            leave(ledger, number - 1, Some("line")).await.unwrap();
                        } else {
                            deliver().await;
                        }
                        tx.enqueue(Message::new("bank", number.to_string()).ordering_key("line"))?;
                        Ok(0)
                    })
                });
                done.await.map(|_| ())
            };
            // The head goes while an effect runs that comes after it.
            leave(ledger, 0, Some("line")).await.unwrap();
            behind(1, false).await.unwrap();
            assert_eq!(deliver().await, ["1"], "{isolation:?}");
            // A head comes while an effect runs that found none.
            behind(3, true).await.unwrap();
            assert_eq!((deliver().await, deliver().await), (vec!["2".into()], vec!["3".to_owned()]), "{isolation:?}");
        });
    }
}
