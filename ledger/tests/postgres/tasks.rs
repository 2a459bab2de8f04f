//! Durable tasks, and workers in many replicas that share them.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use steady_core::kernel::tasks::TaskStoreError;
use steady_ledger::tokio_postgres::types::Type;
use steady_ledger::{
    Body, Clock, LedgerError, PgLedger, PgOptions, Progress, Request, Resolution, Scope, Status, TaskError, TaskSpec,
};

use crate::shop::{SCHEMA, Shop, key, options};
use crate::task_port::{Both, every_promise};

const LEASE: Duration = Duration::from_secs(600);

#[test]
fn it_keeps_every_promise_of_the_task_ports() {
    // A change shows once every transaction that began before it is over, in whichever database of the server.
    let Some((_cluster, shop)) = Shop::alone("it_keeps_every_promise_of_the_task_ports", options()) else { return };
    let schemas = Cell::new(0);
    every_promise(&|clock: Option<Clock>| -> Box<dyn Both> {
        schemas.set(schemas.get() + 1);
        let schema = format!("port{}", schemas.get());
        let config = format!("{} options='-c search_path={schema}'", shop.config);
        shop.runtime.block_on(async {
            shop.stranger().await.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
            Box::new(PgLedger::open(&config, PgOptions { clock, ..options() }).await.unwrap().tasks())
        })
    });
}

fn scope() -> Scope {
    Scope::new("tenant-1", "pack")
}

#[test]
fn workers_in_many_replicas_get_different_tasks_and_each_step_has_one_effect() {
    let name = "workers_in_many_replicas_get_different_tasks_and_each_step_has_one_effect";
    let Some((_cluster, shop)) = Shop::alone(name, options()) else { return };
    shop.runtime.block_on(async {
        let tasks = shop.ledger.tasks();
        for number in 0..24 {
            let key = key(&format!("order-{number}"));
            let created = tasks.create(&Request::new(&scope(), &key, "{}"), TaskSpec::default()).await.unwrap();
            assert!(!created.is_replay());
        }
        let mut workers = Vec::new();
        for worker in 0..4 {
            let tasks = PgLedger::open(&shop.config, options()).await.unwrap().tasks();
            workers.push(tokio::spawn(async move {
                let mut mine = Vec::new();
                // A task that somebody looks at is passed by, so one empty answer is not the end.
                while mine.len() < 24 {
                    let Some(claimed) = tasks.claim(&["pack"], &format!("w{worker}"), LEASE).await.unwrap() else {
                        if tasks.live(None, 1).await.unwrap().is_empty() {
                            break;
                        }
                        tokio::task::yield_now().await;
                        continue;
                    };
                    let name = claimed.key.as_ref().unwrap().as_str().to_owned();
                    for stored in [true, false] {
                        let progress = Progress { step: 1, ..Progress::default() };
                        let name = name.as_str();
                        let done = tasks.checkpoint_with(&claimed.lease, progress, |tx| {
                            Box::pin(async move {
                                tx.execute("INSERT INTO effect(key) VALUES ($1)", &[(&name, Type::TEXT)]).await?;
                                Ok(())
                            })
                        });
                        assert_eq!(done.await.unwrap().stored, stored);
                    }
                    tasks.complete(&claimed.lease, Body::new("packed").unwrap()).await.unwrap();
                    mine.push(name);
                }
                mine
            }));
        }
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.await.unwrap());
        }
        assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (24, 24));
        assert_eq!(shop.number("SELECT count(*) FROM effect").await, 24);
        let changed = tasks.changed_since(steady_ledger::Revision::new(0), 100).await.unwrap();
        assert_eq!(changed.len(), 24);
        assert!(changed.is_sorted_by_key(|change| change.revision));
    });
}

/// A number that a transaction under way has got already is lower than that of one that has committed since.
#[test]
fn who_follows_the_changes_misses_none_that_commits_late() {
    let name = "who_follows_the_changes_misses_none_that_commits_late";
    let Some((_cluster, shop)) = Shop::alone(name, options()) else { return };
    shop.runtime.block_on(async {
        let tasks = shop.ledger.tasks();
        let early = tasks.create_keyless(&scope(), TaskSpec::default()).await.unwrap();
        let start = tasks.changed_since(steady_ledger::Revision::new(0), 9).await.unwrap()[0].revision;
        // Somebody writes, and takes their time to commit.
        let slow = shop.stranger().await;
        let sql = "BEGIN; UPDATE ledger_task SET revision = pg_current_xact_id()::text::bigint, progress = '1'";
        slow.batch_execute(sql).await.unwrap();
        let late = tasks.create_keyless(&scope(), TaskSpec::default()).await.unwrap();
        assert!(tasks.changed_since(start, 9).await.unwrap().is_empty(), "not before those that began earlier");
        slow.batch_execute("COMMIT").await.unwrap();
        let changed = tasks.changed_since(start, 9).await.unwrap();
        assert_eq!(changed.iter().map(|change| &change.id).collect::<Vec<_>>(), [&early.id, &late.id]);
        assert_eq!(tasks.changed_since(start, 1).await.unwrap().len(), 1);
    });
}

/// How many advisory locks there are, of those that are held and of those that are waited for.
async fn key_locks(shop: &Shop) -> (i64, i64) {
    let count = |granted: bool| {
        format!(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted = {granted}
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
    };
    (shop.number(&count(true)).await, shop.number(&count(false)).await)
}

async fn until_locks_are(shop: &Shop, wanted: (i64, i64)) {
    let hang = std::time::Instant::now() + Duration::from_secs(60);
    while key_locks(shop).await != wanted {
        assert!(std::time::Instant::now() < hang, "{:?} instead of {wanted:?}", key_locks(shop).await);
    }
}

#[test]
fn the_retry_of_a_creation_that_commits_slowly_waits_and_gets_its_task() {
    let name = "the_retry_of_a_creation_that_commits_slowly_waits_and_gets_its_task";
    let Some(shop) = Shop::open(name, options()) else { return };
    shop.runtime.block_on(async {
        let create = || {
            let tasks = shop.ledger.tasks();
            tokio::spawn(async move {
                let (scope, key) = (scope(), key("order-7"));
                tasks.create(&Request::new(&scope, &key, "{}"), TaskSpec::default()).await
            })
        };
        // Whoever makes a task is held up, with its key in hand.
        let slow = shop.stranger().await;
        slow.batch_execute("BEGIN; LOCK TABLE ledger_task IN EXCLUSIVE MODE").await.unwrap();
        let first = create();
        until_locks_are(&shop, (1, 0)).await;
        let refused = create().await.unwrap().unwrap_err();
        assert!(matches!(refused, TaskError::Ledger(LedgerError::InFlight { .. })), "not for ever: {refused:?}");
        let told = TaskStoreError::from(&refused);
        assert!(matches!(told, TaskStoreError::Busy { .. }), "it can be repeated: {told:?}");
        let again = create();
        until_locks_are(&shop, (1, 1)).await;
        slow.batch_execute("COMMIT").await.unwrap();
        let (first, again) = (first.await.unwrap().unwrap(), again.await.unwrap().unwrap());
        assert_eq!((first.is_replay(), again.is_replay()), (false, true));
        assert_eq!(first.into_inner().id, again.into_inner().id);
        assert_eq!(shop.number("SELECT count(*) FROM ledger_task").await, 1);
    });
}

#[test]
fn a_worker_lost_in_an_external_step_leaves_its_task_to_an_operator() {
    let name = "a_worker_lost_in_an_external_step_leaves_its_task_to_an_operator";
    let Some(shop) = Shop::open(name, options()) else { return };
    assert!(SCHEMA.contains("effect"));
    shop.runtime.block_on(async {
        let tasks = shop.ledger.tasks();
        let task = tasks.create_keyless(&scope(), TaskSpec::default()).await.unwrap();
        let claimed = tasks.claim(&["pack"], "w1", LEASE).await.unwrap().unwrap();
        tasks.external_started(&claimed.lease).await.unwrap();
        // Its lease is over.
        shop.stranger().await.batch_execute("UPDATE ledger_task SET claimable_ms = 0").await.unwrap();
        assert!(tasks.claim(&["pack"], "w2", LEASE).await.unwrap().is_none());
        assert_eq!(tasks.in_doubt(None, 9).await.unwrap().len(), 1);
        let stale = tasks.complete(&claimed.lease, Body::new("x").unwrap()).await;
        assert!(matches!(stale, Err(TaskError::LeaseLost)), "{stale:?}");
        let cancelled = tasks.resolve(&task.id, Resolution::Cancel, "operator", "").await;
        assert!(matches!(cancelled, Err(TaskError::NotRequested)), "{cancelled:?}");
        assert_eq!(tasks.in_doubt(None, 9).await.unwrap().len(), 1, "a refused decision changes nothing");
        tasks.resolve(&task.id, Resolution::Requeue, "operator", "never sent").await.unwrap();
        let claimed = tasks.claim(&["pack"], "w2", LEASE).await.unwrap().unwrap();
        let asks = tasks.complete(&claimed.lease, Body::from_json(r#"{"resultType":"input_required"}"#).unwrap()).await;
        assert!(matches!(asks, Err(TaskError::Ledger(LedgerError::NotFinal))), "{asks:?}");
        tasks.complete(&claimed.lease, Body::new("packed").unwrap()).await.unwrap();
        assert_eq!(tasks.get("tenant-1", &task.id).await.unwrap().status, Status::Completed);
        let sticky = shop.stranger().await.batch_execute("UPDATE ledger_task SET status = 'working'").await;
        assert!(sticky.is_err(), "the database refuses it too");
    });
}
