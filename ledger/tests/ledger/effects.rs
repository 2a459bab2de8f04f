//! An effect cannot end, split or outlive its transaction, and what fails leaves nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use steady_ledger::Unkeyed;

use super::*;

/// Runs an effect under a key, and then shows that neither it nor its key is there and the ledger works.
fn fails<F>(shop: &Shop, effect: F) -> LedgerError
where
    F: FnMut(&mut EffectTx<'_>) -> Result<Reserved, EffectError<Reserved>> + Clone + Send + 'static,
{
    let (scope, key, args) = (scope(), key("order-7"), arguments("a-1", 2));
    let before = shop.reservations();
    let keyed = shop.ledger.execute(&Request::new(&scope, &key, &args), effect.clone()).expect_err("keyed");
    assert_eq!(shop.ledger.reconcile(&scope, &key).unwrap(), None);
    let keyless = shop.ledger.execute_keyless(&scope, effect).map(Unkeyed::into_inner).expect_err("keyless");
    assert_eq!(std::mem::discriminant(&keyed), std::mem::discriminant(&keyless), "{keyed:?} {keyless:?}");
    assert_eq!(shop.reservations(), before);
    assert_eq!(shop.ledger.keyless_executions(&scope).unwrap(), 0);

    assert!(!call(&shop.ledger, "order-8").unwrap().is_replay(), "the ledger goes on");
    shop.stranger().execute("DELETE FROM ledger_key", []).unwrap();
    assert_eq!(shop.reservations(), before + 1);
    keyed
}

#[test]
fn an_abort_leaves_nothing_and_can_be_retried() {
    let shop = Shop::open();
    let error = fails(&shop, |tx| {
        reserve(tx)?;
        Err(std::io::Error::other("disk on fire").into())
    });
    let LedgerError::Aborted(cause) = error else { panic!("{error:?}") };
    assert_eq!(cause.to_string(), "disk on fire");
    assert!(!call(&shop.ledger, "order-7").unwrap().is_replay());
}

#[test]
fn a_failed_statement_aborts_by_default() {
    let shop = Shop::open();
    let error = fails(&shop, |tx| {
        reserve(tx)?;
        tx.execute("UPDATE stock SET units = -1 WHERE sku = 'a-1'", [])?;
        reserve(tx)
    });
    assert!(matches!(error, LedgerError::Aborted(_)), "{error:?}");
}

#[test]
fn a_panic_leaves_nothing_and_the_ledger_works() {
    let shop = Shop::open();
    let error = fails(&shop, |tx| {
        reserve(tx)?;
        // Unlike panic!, this prints nothing.
        std::panic::resume_unwind(Box::new("planned"))
    });
    assert!(matches!(error, LedgerError::Panicked), "{error:?}");
    assert!(!call(&shop.ledger, "order-7").unwrap().is_replay());
}

#[test]
fn sql_that_only_the_ledger_may_use_is_detected_even_if_the_effect_goes_on() {
    let shop = Shop::open();
    let forbidden = [
        "COMMIT",
        "END",
        "ROLLBACK",
        "BEGIN",
        "SAVEPOINT mine",
        "RELEASE ledger_unit",
        "ROLLBACK TO ledger_unit",
        "PRAGMA synchronous = OFF",
        "ATTACH ':memory:' AS other",
        "DETACH main",
        "DROP TABLE stock",
        "CREATE TABLE mine(x)",
        "CREATE TEMP TABLE mine(x)",
        "DELETE FROM ledger_key",
        "UPDATE LEDGER_RESULT SET body = x''",
        "SELECT secret FROM ledger_meta",
        "ANALYZE",
    ];
    for sql in forbidden {
        let error = fails(&shop, move |tx| {
            let reserved = reserve(tx)?;
            assert!(tx.execute(sql, []).is_err(), "{sql}");
            Ok(reserved)
        });
        assert!(matches!(error, LedgerError::Forbidden), "{sql}: {error:?}");
    }
}

#[test]
fn a_statement_that_rolls_everything_back_is_detected_and_nothing_follows_it() {
    let shop = Shop::open();
    let error = fails(&shop, |tx| {
        let reserved = reserve(tx)?;
        assert!(tx.execute("INSERT OR ROLLBACK INTO stock VALUES ('a-1', 1)", []).is_err());
        // Without a transaction this would be durable at once, without a key.
        assert!(reserve(tx).is_err());
        assert!(tx.query("SELECT * FROM stock", [], |_| Ok(())).is_err());
        Ok(reserved)
    });
    assert!(matches!(error, LedgerError::TransactionLost(_)), "{error:?}");
    assert!(std::error::Error::source(&error).is_some(), "its cause is kept: {error:?}");
}

#[test]
fn a_result_that_cannot_be_read_back_is_rolled_back() {
    #[derive(Clone, Debug, Deserialize)]
    struct OneWay;
    impl Serialize for OneWay {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_i64(7)
        }
    }
    let shop = Shop::open();
    let (scope, key, args) = (scope(), key("order-7"), arguments("a-1", 2));
    let one_way = shop.ledger.execute(&Request::new(&scope, &key, &args), |tx| {
        reserve(tx).map_err(|_| EffectError::Reject(OneWay))?;
        Ok(OneWay)
    });
    assert!(matches!(one_way, Err(LedgerError::Encoding)), "{one_way:?}");
    assert_eq!(shop.reservations(), 0);
    assert_eq!(shop.ledger.reconcile(&scope, &key).unwrap(), None);
}

#[test]
fn a_ledger_inside_an_effect_or_a_read_is_refused_instead_of_waiting_for_itself() {
    let shop = Shop::open();
    let inner = shop.ledger.clone();
    let path = shop.path();
    let error = fails(&shop, move |tx| {
        assert!(matches!(call(&inner, "order-9"), Err(LedgerError::Reentrant)));
        assert!(matches!(inner.execute_keyless(&scope(), reserve), Err(LedgerError::Reentrant)));
        assert!(matches!(inner.read(|_| Ok(())), Err(LedgerError::Reentrant)));
        assert!(matches!(inner.close(), Err(LedgerError::Reentrant)));
        assert!(matches!(Ledger::open(&path, options()), Err(LedgerError::Reentrant)));
        reserve(tx)?;
        Err(LedgerError::Reentrant.into())
    });
    assert!(matches!(error, LedgerError::Aborted(_)), "{error:?}");
    let inner = &shop.ledger;
    let from_a_read = shop.ledger.read(|_| Ok(call(inner, "order-9"))).unwrap();
    assert!(matches!(from_a_read, Err(LedgerError::Reentrant)), "{from_a_read:?}");
}

#[test]
fn a_read_sees_committed_rows_and_changes_nothing() {
    let shop = Shop::open();
    call(&shop.ledger, "order-7").unwrap().into_inner();
    let skus = shop.ledger.read(|tx| tx.query("SELECT sku FROM reservation", [], |row| row.get::<_, String>(0)));
    assert_eq!(skus.unwrap(), ["a-1"]);
    for sql in ["DELETE FROM stock RETURNING sku", "SELECT secret FROM ledger_meta", "PRAGMA journal_mode"] {
        assert!(shop.ledger.read(|tx| tx.query(sql, [], |_| Ok(()))).is_err(), "{sql}");
    }
    let panicking = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        drop(shop.ledger.read::<()>(|_| std::panic::resume_unwind(Box::new("planned"))));
    }));
    assert!(panicking.is_err());
    assert_eq!(shop.reservations(), 1, "a read works after one that panicked");
}

const CHECKED_AT_COMMIT: &str = "
    CREATE TABLE IF NOT EXISTS reservation(id INTEGER PRIMARY KEY, sku TEXT, units INTEGER) STRICT;
    CREATE TABLE IF NOT EXISTS stock(sku TEXT PRIMARY KEY, units INTEGER) STRICT;
    CREATE TABLE IF NOT EXISTS line(
        reservation INTEGER NOT NULL REFERENCES reservation(id) DEFERRABLE INITIALLY DEFERRED
    ) STRICT;
";

#[test]
fn a_constraint_that_fails_at_the_commit_leaves_nothing() {
    let shop = Shop::open_with(Options { schema: CHECKED_AT_COMMIT.into(), ..Options::default() });
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let error = fails(&shop, move |tx| {
        counted.fetch_add(1, Ordering::Relaxed);
        tx.execute("INSERT INTO line VALUES (999)", [])?;
        reserve(tx)
    });
    assert!(matches!(error, LedgerError::Aborted(_)), "{error:?}");
    assert_eq!(runs.load(Ordering::Relaxed), 2, "once keyed and once keyless");
}

#[test]
#[cfg(unix)]
fn a_commit_that_fails_on_a_file_that_is_gone_is_unknown() {
    let shop = Shop::open_with(Options { schema: CHECKED_AT_COMMIT.into(), ..Options::default() });
    let (from, to) = (shop.path(), shop.dir.path().join("elsewhere.db"));
    let (scope, key, args) = (scope(), key("order-7"), arguments("a-1", 2));
    let moved = (from.clone(), to.clone());
    let answer = shop.ledger.execute(&Request::new(&scope, &key, &args), move |tx| {
        tx.execute("INSERT INTO line VALUES (999)", [])?;
        std::fs::rename(&moved.0, &moved.1)?;
        reserve(tx)
    });
    assert!(matches!(answer, Err(LedgerError::CommitUnknown(_))), "{answer:?}");
    std::fs::rename(to, from).unwrap();
    assert!(!call(&shop.ledger, "order-7").unwrap().is_replay(), "the same handle finds the file again");
}

/// The file is swapped for one in which the key is committed, as if the failed commit had reached the disk after all.
#[test]
#[cfg(unix)]
fn a_failed_commit_is_answered_from_what_the_file_says() {
    let with_secret = |schema: &'static str| Options {
        schema: schema.into(),
        secret: Some(steady_ledger::Secret::new([7; 32])),
        ..Options::default()
    };
    let shop = Shop::open_with(with_secret(CHECKED_AT_COMMIT));
    let (path, twin_path) = (shop.path(), shop.dir.path().join("twin.db"));
    let twin = Ledger::open(&twin_path, with_secret(SCHEMA)).unwrap();
    let theirs = call(&twin, "order-7").unwrap().into_inner();
    twin.close().unwrap();

    let (scope, key, args) = (scope(), key("order-7"), arguments("a-1", 2));
    let answer = shop.ledger.execute(&Request::new(&scope, &key, &args), move |tx| {
        tx.execute("INSERT INTO line VALUES (999)", [])?;
        for suffix in ["", "-wal", "-shm"] {
            let name = |stem: &str| path.with_file_name(format!("{stem}.db{suffix}"));
            std::fs::rename(name("shop"), name("gone"))?;
        }
        std::fs::rename(&twin_path, &path)?;
        reserve(tx)?;
        Ok(Reserved { id: 999, notes: vec![] })
    });
    assert_eq!(answer.unwrap(), Executed::Replayed(theirs));
}

#[test]
fn a_waiting_call_runs_after_the_effect_before_it() {
    let shop = Shop::open();
    let started = Arc::new(OnceLock::new());
    let announce = Arc::clone(&started);
    let (scope, key, args) = (scope(), key("order-7"), arguments("a-1", 2));
    let ledger = shop.ledger.clone();
    std::thread::scope(|threads| {
        let second = threads.spawn(|| {
            started.wait();
            call(&ledger, "order-7").unwrap()
        });
        let first = shop.ledger.execute(&Request::new(&scope, &key, &args), move |tx| {
            announce.get_or_init(|| ());
            reserve(tx)
        });
        assert_eq!(second.join().unwrap(), Executed::Replayed(first.unwrap().into_inner()));
    });
}
