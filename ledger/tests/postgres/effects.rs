//! What an effect may do, and what becomes of those that do something else.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use steady_ledger::tokio_postgres::types::Type;
use steady_ledger::{EffectError, Executed, Isolation, LedgerError, Opening, PgLedger, PgOptions, Request, State};
use tokio::sync::oneshot;

use crate::cluster::{self, Cluster};
use crate::runtime;
use crate::shop::{Shop, charge, key, options, scope};

#[test]
fn an_effect_cannot_leave_its_transaction_or_touch_the_ledger() {
    let name = "an_effect_cannot_leave_its_transaction_or_touch_the_ledger";
    let Some(shop) = Shop::open(name, options()) else { return };
    shop.runtime.block_on(async {
        for sql in ["COMMIT", "ROLLBACK", "DELETE FROM ledger_key", "SET synchronous_commit = off", "LISTEN a"] {
            let (scope, key) = (scope(), key("order-1"));
            let done: Result<Executed<i64>, _> = shop
                .ledger
                .execute(&Request::new(&scope, &key, "{}"), |tx| {
                    Box::pin(async move {
                        charge(tx, "order-1").await?;
                        // Whatever it makes of the refusal.
                        drop(tx.execute(sql, &[]).await);
                        Ok(1)
                    })
                })
                .await;
            assert!(matches!(done, Err(LedgerError::Forbidden)), "{sql}: {done:?}");
        }
        assert_eq!(shop.number("SELECT count(*) FROM effect").await, 0);
        assert_eq!(shop.number("SELECT count(*) FROM ledger_key").await, 0);
        assert!(!shop.charge("order-1").await.unwrap().is_replay());
    });
}

/// A key without its result, whoever left it so, is no key that has not run.
#[test]
fn a_key_whose_transaction_was_ended_under_it_never_runs_again() {
    let name = "a_key_whose_transaction_was_ended_under_it_never_runs_again";
    let Some(shop) = Shop::open(name, options()) else { return };
    shop.runtime.block_on(async {
        shop.charge("order-1").await.unwrap().into_inner();
        let client = shop.stranger().await;
        client.batch_execute("UPDATE ledger_key SET result = NULL, result_digest = NULL").await.unwrap();
        let again = shop.charge("order-1").await;
        assert!(matches!(again, Err(LedgerError::Corrupt { .. })), "{again:?}");
        assert_eq!(shop.number("SELECT count(*) FROM effect").await, 1);
        let checked = shop.ledger.check(|_, _| {}).await.unwrap();
        assert!(checked.findings.iter().any(|found| found.what.contains("without a result")), "{checked:?}");
    });
}

#[test]
fn a_failed_statement_loses_the_transaction_and_a_refusal_after_it_is_kept() {
    let name = "a_failed_statement_loses_the_transaction_and_a_refusal_after_it_is_kept";
    let Some(shop) = Shop::open(name, options()) else { return };
    shop.runtime.block_on(async {
        let (scope, key) = (scope(), key("order-1"));
        let request = Request::new(&scope, &key, "{}");
        let fails = |refuses: bool| {
            shop.ledger.execute(&request, move |tx| {
                Box::pin(async move {
                    charge(tx, "order-1").await?;
                    let doubled = tx.execute("INSERT INTO account VALUES (1, 0)", &[]).await;
                    assert!(doubled.is_err());
                    if refuses { Err(EffectError::Reject(-1)) } else { Ok(1_i64) }
                })
            })
        };
        let lost = fails(false).await;
        assert!(matches!(lost, Err(LedgerError::TransactionLost(Some(_)))), "{lost:?}");
        assert_eq!(fails(true).await.unwrap(), Executed::Fresh(-1));
        assert_eq!(fails(true).await.unwrap(), Executed::Replayed(-1));
        assert_eq!(shop.number("SELECT count(*) FROM effect").await, 0);

        // A constraint that is checked at the commit.
        let key = crate::shop::key("order-2");
        let request = Request::new(&scope, &key, "{}");
        let late = shop.ledger.execute(&request, |tx| {
            Box::pin(async move {
                tx.execute("INSERT INTO late VALUES (1, 2)", &[]).await?;
                Ok(1_i64)
            })
        });
        let late = late.await;
        assert!(matches!(late, Err(LedgerError::Aborted(_))), "{late:?}");
        assert_eq!(shop.number("SELECT count(*) FROM late").await, 0);
    });
}

#[test]
fn who_comes_while_a_call_runs_is_told_at_once() {
    let Some(shop) = Shop::open("who_comes_while_a_call_runs_is_told_at_once", options()) else { return };
    shop.runtime.block_on(async {
        let (entered, is_in) = oneshot::channel::<()>();
        let (leave, may_leave) = oneshot::channel::<()>();
        let mut gates = Some((entered, may_leave));
        let (scope, key) = (scope(), key("order-1"));
        let request = Request::new(&scope, &key, "{}");
        let first = shop.ledger.execute(&request, |tx| {
            let gates = gates.take();
            Box::pin(async move {
                let (entered, may_leave) = gates.ok_or_else(|| EffectError::Abort("called twice".into()))?;
                let id = charge(tx, "order-1").await?;
                entered.send(()).map_err(|()| EffectError::Abort("nobody waits".into()))?;
                may_leave.await?;
                Ok(id)
            })
        });
        let others = async {
            is_in.await.unwrap();
            let second = shop.charge("order-1").await;
            assert!(matches!(second, Err(LedgerError::InFlight { .. })), "{second:?}");
            let other = Request::new(&scope, &key, r#"{"a":1}"#);
            let outside = shop.ledger.begin::<i64>(&other, &steady_ledger::External::new(Duration::from_secs(1))).await;
            assert!(matches!(outside, Err(LedgerError::InFlight { .. })), "{outside:?}");
            let sql = "INSERT INTO effect(key) VALUES ('x') RETURNING id AS result";
            let statement = shop.ledger.execute_sql::<i64>(&request, sql, &[]).await;
            assert!(matches!(statement, Err(LedgerError::InFlight { .. })), "{statement:?}");
            assert_eq!(shop.ledger.reconcile(&scope, &key).await.unwrap(), None, "nothing is committed yet");
            leave.send(()).unwrap();
        };
        let (first, ()) = tokio::join!(first, others);
        assert!(!first.unwrap().is_replay());
        assert!(shop.charge("order-1").await.unwrap().is_replay());
        assert_eq!(shop.number("SELECT count(*) FROM effect").await, 1);
    });
}

#[test]
fn an_effect_that_takes_too_long_is_rolled_back_and_frees_its_key() {
    let name = "an_effect_that_takes_too_long_is_rolled_back_and_frees_its_key";
    let options = PgOptions { effect_time: Duration::from_millis(300), ..options() };
    let Some(shop) = Shop::open(name, options) else { return };
    shop.runtime.block_on(async {
        let (scope, key) = (scope(), key("order-1"));
        let request = Request::new(&scope, &key, "{}");
        let sleeps = |sql: &'static str| {
            shop.ledger.execute(&request, move |tx| {
                Box::pin(async move {
                    charge(tx, "order-1").await?;
                    if sql.is_empty() {
                        std::future::pending::<()>().await;
                    }
                    tx.query(sql, &[]).await?;
                    Ok(1_i64)
                })
            })
        };
        for sql in ["", "SELECT pg_sleep(60)"] {
            let mut late = sleeps(sql).await;
            // The database needs a moment to find that its client is gone.
            while matches!(late, Err(LedgerError::InFlight { .. })) {
                tokio::task::yield_now().await;
                late = sleeps(sql).await;
            }
            assert!(matches!(late, Err(LedgerError::TimeLimit)), "{late:?}");
        }
        let mut freed = shop.charge("order-1").await;
        while matches!(freed, Err(LedgerError::InFlight { .. })) {
            tokio::task::yield_now().await;
            freed = shop.charge("order-1").await;
        }
        assert!(!freed.unwrap().is_replay());
        assert_eq!(shop.number("SELECT count(*) FROM effect").await, 1);
    });
}

#[test]
fn an_effect_that_the_database_gave_up_runs_again_and_has_one_effect() {
    let name = "an_effect_that_the_database_gave_up_runs_again_and_has_one_effect";
    let options = PgOptions { isolation: Isolation::RepeatableRead, ..options() };
    let Some(shop) = Shop::open(name, options) else { return };
    shop.runtime.block_on(async {
        let calls = AtomicU32::new(0);
        let (scope, key) = (scope(), key("order-1"));
        let request = Request::new(&scope, &key, "{}");
        let done = shop.ledger.execute(&request, |tx| {
            Box::pin(async {
                tx.query("SELECT balance FROM account", &[]).await?;
                if calls.fetch_add(1, Ordering::Relaxed) == 0 {
                    // Somebody else changes what this one has seen.
                    shop.stranger().await.batch_execute("UPDATE account SET balance = balance + 10").await?;
                }
                charge(tx, "order-1").await
            })
        });
        assert!(!done.await.unwrap().is_replay());
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        assert_eq!(shop.number("SELECT balance FROM account").await, 11);
        assert_eq!(shop.number("SELECT count(*) FROM effect").await, 1);
        assert_eq!(shop.ledger.reconcile(&scope, &key).await.unwrap().unwrap().state, State::Committed);
    });
}

#[test]
fn large_results_are_replayed_and_go_with_their_day() {
    let options = PgOptions { retention: Duration::from_secs(24 * 60 * 60), ..options() };
    let Some(shop) = Shop::open("large_results_are_replayed_and_go_with_their_day", options) else { return };
    shop.runtime.block_on(async {
        let (scope, key) = (scope(), key("order-1"));
        let text = "x".repeat(100_000);
        for replayed in [false, true] {
            let text = &text;
            let request = Request::new(&scope, &key, "{}");
            let done = shop.ledger.execute(&request, |_| Box::pin(async { Ok(text.clone()) }));
            let done = done.await.unwrap();
            assert_eq!((done.is_replay(), done.into_inner().len()), (replayed, 100_000));
        }
        let days = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'ledger_result'::regclass";
        assert_eq!(shop.number(days).await, 4, "today, two days ahead, and the rest");
        assert_eq!(shop.number("SELECT count(*) FROM ledger_result_rest").await, 0);
        shop.ledger.collect(10).await.unwrap();
        assert_eq!(shop.number("SELECT count(*) FROM ledger_result").await, 1);

        // Three days later, by the clock of another replica.
        let now = shop.number("SELECT (extract(epoch FROM now()) * 1000)::bigint + 3 * 86400000").await;
        let clock = steady_ledger::Clock::new(move || steady_ledger::WallTime::from_unix_millis(now));
        let later =
            PgOptions { clock: Some(clock), retention: Duration::from_secs(24 * 60 * 60), ..crate::shop::options() };
        let later = PgLedger::open(&shop.config, later).await.unwrap();
        later.trust_clock("operator", "a test").await.unwrap();
        assert_eq!(later.collect(10).await.unwrap().expired, 1);
        assert_eq!(shop.number("SELECT count(*) FROM ledger_result").await, 0);
        assert_eq!(shop.number(days).await, 4, "the days that are over are gone");
        let expired = crate::shop::charge_on(&later, "order-1").await;
        assert!(matches!(expired, Err(LedgerError::ResultExpired)), "{expired:?}");
    });
}

#[test]
fn a_statement_without_exactly_one_result_leaves_nothing() {
    let Some(shop) = Shop::open("a_statement_without_exactly_one_result_leaves_nothing", options()) else { return };
    shop.runtime.block_on(async {
        let (scope, key) = (scope(), key("order-1"));
        let request = Request::new(&scope, &key, "{}");
        for sql in [
            "UPDATE account SET balance = 7 WHERE id = 99 RETURNING balance AS result",
            "INSERT INTO effect(key) VALUES ('a'), ('b') RETURNING id AS result",
            "INSERT INTO effect(key) VALUES ('a') RETURNING 'input_required' AS result",
            "INSERT INTO account VALUES (1, 0) RETURNING id AS result",
        ] {
            let done = shop.ledger.execute_sql::<serde_json::Value>(&request, sql, &[]).await;
            assert!(matches!(done, Err(LedgerError::Aborted(_))), "{sql}: {done:?}");
        }
        assert_eq!(shop.number("SELECT count(*) FROM effect").await, 0);
        let sql = "UPDATE account SET balance = balance + $1 WHERE id = 1 RETURNING balance AS result";
        let add = |by: i64| {
            let request = &request;
            let ledger = &shop.ledger;
            async move { ledger.execute_sql::<i64>(request, sql, &[(&by, Type::INT8)]).await.unwrap() }
        };
        assert_eq!(add(5).await, Executed::Fresh(5));
        assert_eq!(add(5).await, Executed::Replayed(5));
        assert_eq!(shop.charge("order-1").await.unwrap(), Executed::Replayed(5), "one key, whatever the form");
    });
}

#[test]
fn keyless_effects_run_each_time_and_are_counted() {
    let Some(shop) = Shop::open("keyless_effects_run_each_time_and_are_counted", options()) else { return };
    shop.runtime.block_on(async {
        for _ in 0..3 {
            let done = shop.ledger.execute_keyless(&scope(), |tx| Box::pin(charge(tx, "walk-in"))).await;
            done.unwrap().into_inner();
        }
        let scope = scope();
        let refused = shop.ledger.execute_keyless(&scope, |tx| {
            Box::pin(async move {
                charge(tx, "walk-in").await?;
                Err::<i64, _>(EffectError::Reject(-1))
            })
        });
        assert_eq!(refused.await.unwrap().into_inner(), -1);
        assert_eq!(shop.ledger.keyless_executions(&scope).await.unwrap(), 3);
        assert_eq!(shop.number("SELECT count(*) FROM effect").await, 3);
    });
}

#[test]
fn a_server_that_forgets_and_a_wrong_secret_are_refused() {
    let Some(shop) = Shop::open("a_server_that_forgets_and_a_wrong_secret_are_refused", options()) else { return };
    shop.runtime.block_on(async {
        let lazy = format!("{} options='-c synchronous_commit=off'", shop.config);
        let refused = PgLedger::open(&lazy, options()).await;
        assert!(matches!(&refused, Err(LedgerError::NotDurable { setting, .. }) if &**setting == "synchronous_commit"));
        let secret = Some(steady_ledger::Secret::new([9; 32]));
        let refused = PgLedger::open(&shop.config, PgOptions { secret, ..options() }).await;
        assert!(matches!(refused, Err(LedgerError::WrongSecret)));
        let far = PgLedger::open("host=db.example.com user=a", options()).await;
        assert!(matches!(far, Err(LedgerError::Unencrypted)));
    });
}

#[test]
fn a_standby_is_refused() {
    let name = "a_standby_is_refused";
    let Some(cluster) = Cluster::start() else { return cluster::skip(name, "PostgreSQL with its server programs") };
    let (config, folder) = (cluster.config("postgres"), cluster.folder().display().to_string());
    runtime().block_on(PgLedger::open(&config, options())).unwrap();
    cluster.run("pg_basebackup", ["-h", &folder, "-U", "postgres", "-D", "standby", "-R", "-c", "fast"]);
    let settings = "-c listen_addresses= -c port=5433 -c max_connections=200 -c unix_socket_directories=";
    let settings = format!("{settings}{folder}");
    cluster.run("pg_ctl", ["-D", "standby", "-l", "standby.log", "-w", "-t", "60", "-o", &settings, "start"]);
    // A tool that creates nothing is refused, too: what it reads could be old.
    let refused = [Opening::CreateOrMigrate, Opening::Existing].map(|opening| {
        runtime().block_on(PgLedger::open(&format!("{config} port=5433"), PgOptions { opening, ..options() }))
    });
    cluster.run("pg_ctl", ["-D", "standby", "-m", "immediate", "-w", "stop"]);
    assert!(refused.iter().all(|opened| matches!(opened, Err(LedgerError::NotPrimary))), "{refused:?}");
}

/// Nobody moves a connection but those who wait for it: also several at once, and one that waits when another has gone.
#[test]
fn statements_of_an_effect_that_go_out_together_are_all_answered() {
    let name = "statements_of_an_effect_that_go_out_together_are_all_answered";
    let Some(shop) = Shop::open(name, options()) else { return };
    shop.runtime.block_on(async {
        let (scope, key) = (scope(), key("order-1"));
        let request = Request::new(&scope, &key, "{}");
        let done = shop.ledger.execute(&request, |tx| {
            Box::pin(async move {
                let tx = &*tx;
                let number =
                    async |sql: &str| tx.query_opt(sql, &[]).await.map(|row| row.map(|row| row.get::<_, i32>(0)));
                let slow = "SELECT 1 FROM pg_sleep(0.05)";
                let (one, two, three) = tokio::join!(number("SELECT 1"), number(slow), number("SELECT 3"));
                // The answer of one that nobody waits for any more is passed over.
                let gone = tokio::select! { biased; _ = number(slow) => false, () = std::future::ready(()) => true };
                let four = number("SELECT 4").await?;
                let sum: i32 = [one?, two?, three?, four].into_iter().flatten().sum();
                Ok(i64::from(sum) + i64::from(gone))
            })
        });
        assert!(matches!(done.await, Ok(Executed::Fresh(10))));
    });
}

/// The database can find at the very end that a transaction has to go. Nothing of it is there then.
#[test]
fn an_effect_without_a_key_that_is_given_up_at_its_commit_runs_again() {
    let name = "an_effect_without_a_key_that_is_given_up_at_its_commit_runs_again";
    let Some(shop) = Shop::open(name, PgOptions { isolation: Isolation::Serializable, ..options() }) else { return };
    shop.runtime.block_on(async {
        // First with its last row, then with the commit itself.
        let sql = "CREATE SEQUENCE once;
                   CREATE FUNCTION gives_up() RETURNS trigger LANGUAGE plpgsql AS
                       'BEGIN IF nextval(''once'') IN (1, 3) THEN RAISE EXCEPTION ''x'' USING ERRCODE = ''40001''; END IF;
                              RETURN NULL; END';
                   CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON ledger_receipt DEFERRABLE INITIALLY DEFERRED
                       FOR EACH ROW EXECUTE FUNCTION gives_up();
                   CREATE TRIGGER before_it AFTER INSERT ON ledger_receipt FOR EACH ROW EXECUTE FUNCTION gives_up();";
        shop.stranger().await.batch_execute(sql).await.unwrap();
        let done = shop.ledger.execute_keyless(&scope(), |tx| Box::pin(charge(tx, "none"))).await;
        assert!(done.is_ok(), "{done:?}");
        assert_eq!(shop.number("SELECT count(*) FROM effect").await, 1);
        assert_eq!(shop.ledger.keyless_executions(&scope()).await.unwrap(), 1);
    });
}
