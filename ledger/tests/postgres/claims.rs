//! What a key's row keeps from being there twice, or without its effect, when the lock of the key does not.

use std::num::NonZeroU32;

use steady_ledger::{EffectError, Executed, Isolation, LedgerError, PgOptions, PgTx, Request};

use crate::shop::{Shop, charge, key, options, scope};

/// A function hides from the ledger what it does.
const FUNCTIONS: &str = "
    CREATE FUNCTION forget() RETURNS void LANGUAGE sql AS 'DELETE FROM ledger_key';
    CREATE FUNCTION forge(name text) RETURNS void LANGUAGE sql AS
        'INSERT INTO ledger_key SELECT principal, operation, name, fingerprint, state, executions, lease_until_ms,
             recorded_ms, expires_ms, born_ms, result_digest, result FROM ledger_key WHERE key = ''order-0''';
";

#[test]
fn an_effect_cannot_take_its_own_key_away() {
    let Some(shop) = Shop::open("an_effect_cannot_take_its_own_key_away", options()) else { return };
    shop.runtime.block_on(async {
        shop.stranger().await.batch_execute(FUNCTIONS).await.unwrap();
        let (scope, key) = (scope(), key("order-1"));
        let request = Request::new(&scope, &key, "{}");
        let done = shop.ledger.execute(&request, |tx| {
            Box::pin(async move {
                let id = charge(tx, "order-1").await?;
                tx.execute("SELECT forget()", &[]).await?;
                Ok(id)
            })
        });
        assert!(!done.await.unwrap().is_replay());
        assert!(shop.charge("order-1").await.unwrap().is_replay());
        assert_eq!(shop.number("SELECT count(*) FROM effect").await, 1);
    });
}

#[test]
fn an_effect_that_forges_its_own_key_does_nothing() {
    let options = PgOptions { attempts: NonZeroU32::MIN, ..options() };
    let Some(shop) = Shop::open("an_effect_that_forges_its_own_key_does_nothing", options) else { return };
    shop.runtime.block_on(async {
        shop.stranger().await.batch_execute(FUNCTIONS).await.unwrap();
        shop.charge("order-0").await.unwrap().into_inner();
        let (scope, key) = (scope(), key("order-1"));
        let request = Request::new(&scope, &key, "{}");
        let done = shop.ledger.execute(&request, |tx| {
            Box::pin(async move {
                let id = charge(tx, "order-1").await?;
                tx.execute("SELECT forge('order-1')", &[]).await?;
                Ok(id)
            })
        });
        let done = done.await;
        assert!(matches!(done, Err(LedgerError::Busy { .. })), "{done:?}");
        assert_eq!(shop.number("SELECT count(*) FROM effect").await, 1);
        assert_eq!(shop.number("SELECT count(*) FROM ledger_key").await, 1);
    });
}

/// How an effect ends that ran for nothing.
#[derive(Clone, Copy, Debug)]
enum End {
    Commits,
    Refuses,
    Aborts,
    Fails,
    Panics,
}

async fn end(tx: &mut PgTx<'_>, end: End) -> Result<i64, EffectError<i64>> {
    let id = charge(tx, "order-1").await?;
    match end {
        End::Commits => Ok(id),
        End::Refuses => Err(EffectError::Reject(-1)),
        End::Aborts => Err(EffectError::Abort("sold out".into())),
        End::Fails => {
            tx.execute("INSERT INTO account VALUES (1, 0)", &[]).await?;
            Ok(id)
        }
        End::Panics => panic!("sold out"),
    }
}

/// In the moment between the look at a key and its lock another call can come to its end.
#[test]
fn an_effect_that_ran_for_nothing_is_undone_and_answered_with_what_is_there() {
    let name = "an_effect_that_ran_for_nothing_is_undone_and_answered_with_what_is_there";
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        for how in [End::Commits, End::Refuses, End::Aborts, End::Fails, End::Panics] {
            let Some(shop) = Shop::open(name, PgOptions { isolation, ..options() }) else { return };
            shop.runtime.block_on(async {
                shop.stranger().await.batch_execute(FUNCTIONS).await.unwrap();
                let first = shop.charge("order-0").await.unwrap().into_inner();
                let (scope, key) = (scope(), key("order-1"));
                let request = Request::new(&scope, &key, "{}");
                let mut calls = 0;
                let done = shop.ledger.execute(&request, |tx| {
                    calls += 1;
                    let shop = &shop;
                    Box::pin(async move {
                        let other = shop.stranger().await;
                        other.batch_execute("SELECT forge('order-1')").await?;
                        end(tx, how).await
                    })
                });
                let done = done.await;
                assert!(matches!(done, Ok(Executed::Replayed(row)) if row == first), "{isolation:?} {how:?}: {done:?}");
                assert_eq!(calls, 1);
                assert_eq!(shop.number("SELECT count(*) FROM effect").await, 1);
                assert_eq!(shop.number("SELECT balance FROM account").await, 1);
            });
        }
    }
}

/// Who shares a connection through a pooler may leave it with another setting.
#[test]
fn a_connection_that_was_left_forgetful_does_not_forget() {
    let name = "a_connection_that_was_left_forgetful_does_not_forget";
    let table = "
        CREATE TABLE IF NOT EXISTS seen(setting text NOT NULL);
        CREATE OR REPLACE FUNCTION sees() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN INSERT INTO seen VALUES (current_setting(''synchronous_commit'')); RETURN NULL; END';
        DROP TRIGGER IF EXISTS at_commit ON effect;
        CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION sees();";
    for (left, commits) in [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")] {
        let schema = format!("{}{table}SET synchronous_commit = {left};", crate::shop::SCHEMA);
        let options = PgOptions { schema: schema.into(), connections: NonZeroU32::MIN, ..options() };
        let Some(shop) = Shop::open(name, options) else { return };
        shop.runtime.block_on(async {
            shop.charge("order-1").await.unwrap().into_inner();
            let done = shop.ledger.execute_keyless(&scope(), |tx| Box::pin(charge(tx, "walk-in"))).await;
            done.unwrap().into_inner();
            let (scope, key) = (scope(), key("order-2"));
            let sql = "INSERT INTO effect(key) VALUES ('order-2') RETURNING id AS result";
            let request = Request::new(&scope, &key, "{}");
            shop.ledger.execute_sql::<i64>(&request, sql, &[]).await.unwrap().into_inner();
            let sql = format!("SELECT count(*) FROM seen WHERE setting = '{commits}'");
            assert_eq!(shop.number(&sql).await, 3, "{left}");
        });
    }
}
