//! Many callers share a commit, and none of them notices.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use steady_ledger::{Executor, Unkeyed};

use super::*;

/// Holds the writer until the sender is dropped, and returns once it is held.
pub(super) fn hold(ledger: &Ledger) -> (mpsc::Sender<()>, thread::JoinHandle<()>) {
    let (release, released) = mpsc::channel();
    let (announce, held) = mpsc::channel();
    let ledger = ledger.clone();
    let holder = thread::spawn(move || {
        let scope = Scope::new("tenant-1", "hold");
        let done = ledger.execute_keyless(&scope, move |_| {
            announce.send(()).unwrap();
            let _ended = released.recv();
            Ok(())
        });
        done.map(Unkeyed::into_inner).unwrap();
    });
    held.recv().unwrap();
    (release, holder)
}

/// Polls a future on this thread until it is done.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

type Call = std::pin::Pin<Box<dyn Future<Output = Result<Executed<Reserved>, LedgerError>> + Send>>;

/// Queues a call, whose effect runs this statement after the reservation.
fn queue(ledger: &Ledger, key_text: &str, then: &'static str) -> Call {
    Box::pin(ledger.execute_async(&Request::new(&scope(), &key(key_text), &arguments("a-1", 2)), move |tx| {
        let reserved = reserve(tx)?;
        if !then.is_empty() {
            tx.execute(then, [])?;
        }
        Ok(reserved)
    }))
}

/// What is in the log since it was emptied: one commit record ends each transaction.
fn commits(shop: &Shop, work: impl FnOnce()) -> usize {
    let frames = |shop: &Shop| std::fs::metadata(shop.dir.path().join("shop.db-wal")).unwrap().len();
    shop.stranger().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    assert_eq!(frames(shop), 0);
    work();
    let wal = std::fs::read(shop.dir.path().join("shop.db-wal")).unwrap();
    // Header of 32 bytes; frames of 24 + 4096, whose second word is the size of the database if it ends a commit.
    wal[32..].chunks_exact(24 + 4096).filter(|frame| frame[4..8] != [0; 4]).count()
}

#[test]
fn calls_that_wait_share_one_commit() {
    let shop = Shop::open();
    let count = commits(&shop, || {
        let (release, holder) = hold(&shop.ledger);
        let calls: Vec<_> = (0..100).map(|n| queue(&shop.ledger, &format!("order-{n}"), "")).collect();
        drop(release);
        holder.join().unwrap();
        for call in calls {
            assert!(!block_on(call).unwrap().is_replay());
        }
    });
    assert!(count <= 4, "{count} commits for 101 calls");
    assert_eq!(shop.reservations(), 100);
}

#[test]
fn a_failure_in_a_batch_takes_nobody_with_it() {
    let shop = Shop::open();
    let (release, holder) = hold(&shop.ledger);
    let steps = [
        ("order-1", ""),
        ("order-2", "UPDATE stock SET units = -1 WHERE sku = 'a-1'"),
        ("order-3", "COMMIT"),
        ("order-4", "INSERT OR ROLLBACK INTO stock VALUES ('a-1', 1)"),
        ("order-5", "PRAGMA synchronous = OFF"),
        ("order-1", ""),
        ("order-6", "INSERT OR ROLLBACK INTO stock VALUES ('a-1', 1)"),
        ("order-7", ""),
    ];
    let calls = steps.map(|(key, then)| queue(&shop.ledger, key, then));
    drop(release);
    holder.join().unwrap();
    let answers = calls.map(block_on);
    assert!(matches!(
        answers,
        [
            Ok(Executed::Fresh(_)),
            Err(LedgerError::Aborted(_)),
            Err(LedgerError::Forbidden),
            Err(LedgerError::TransactionLost(_)),
            Err(LedgerError::Forbidden),
            Ok(Executed::Replayed(_)),
            Err(LedgerError::TransactionLost(_)),
            Ok(Executed::Fresh(_))
        ]
    ));
    assert_eq!(shop.reservations(), 2);
    for key_text in ["order-2", "order-3", "order-4", "order-5", "order-6"] {
        assert_eq!(shop.ledger.reconcile(&scope(), &key(key_text)).unwrap(), None, "{key_text}");
    }
}

#[test]
fn a_check_at_the_commit_fails_only_the_call_that_broke_it() {
    let schema = "
        CREATE TABLE IF NOT EXISTS reservation(id INTEGER PRIMARY KEY, sku TEXT, units INTEGER) STRICT;
        CREATE TABLE IF NOT EXISTS stock(sku TEXT PRIMARY KEY, units INTEGER) STRICT;
        CREATE TABLE IF NOT EXISTS line(
            reservation INTEGER NOT NULL REFERENCES reservation(id) DEFERRABLE INITIALLY DEFERRED
        ) STRICT;";
    let shop = Shop::open_with(Options { schema: schema.into(), ..Options::default() });
    let (release, holder) = hold(&shop.ledger);
    let steps = [("order-1", ""), ("order-2", "INSERT INTO line VALUES (999)"), ("order-3", "")];
    let calls = steps.map(|(key, then)| queue(&shop.ledger, key, then));
    drop(release);
    holder.join().unwrap();
    let answers = calls.map(block_on);
    assert!(
        matches!(answers, [Ok(Executed::Fresh(_)), Err(LedgerError::Aborted(_)), Ok(Executed::Fresh(_))]),
        "{answers:?}"
    );
    assert_eq!(shop.reservations(), 2);
}

#[test]
fn a_call_whose_future_is_dropped_commits_all_the_same() {
    let shop = Shop::open();
    let (release, holder) = hold(&shop.ledger);
    drop(queue(&shop.ledger, "order-1", ""));
    drop(release);
    holder.join().unwrap();
    let retry = block_on(queue(&shop.ledger, "order-1", "")).unwrap();
    assert!(retry.is_replay());
    assert_eq!(shop.reservations(), 1);
}

#[test]
fn what_was_taken_in_before_a_close_is_done() {
    let shop = Shop::open();
    let (release, holder) = hold(&shop.ledger);
    let call = queue(&shop.ledger, "order-1", "");
    drop(release);
    shop.ledger.close().unwrap();
    holder.join().unwrap();
    assert!(!block_on(call).unwrap().is_replay());
    assert!(matches!(block_on(queue(&shop.ledger, "order-2", "")), Err(LedgerError::Closed)));
}

#[test]
fn a_stuck_effect_turns_new_calls_away_and_is_named() {
    let shop = Shop::open_with(Options { effect_time: Duration::from_millis(1), ..options() });
    let (release, holder) = hold(&shop.ledger);
    let mut context = Context::from_waker(Waker::noop());
    let refused = loop {
        // Those that come before the time is over wait in the queue.
        match queue(&shop.ledger, "order-1", "").as_mut().poll(&mut context) {
            Poll::Ready(answer) => break answer,
            Poll::Pending => thread::yield_now(),
        }
    };
    let Err(LedgerError::Busy { operation: Some(operation) }) = &refused else { panic!("{refused:?}") };
    assert_eq!(&**operation, "hold");
    assert!(refused.unwrap_err().to_string().contains(r#"busy with "hold""#));
    drop(release);
    holder.join().unwrap();
    // On a busy machine an effect of the queue can take longer than the limit too.
    let done = loop {
        match block_on(queue(&shop.ledger, "order-1", "")) {
            Err(LedgerError::Busy { .. } | LedgerError::TimeLimit) => thread::yield_now(),
            answer => break answer,
        }
    };
    done.unwrap().into_inner();
    assert_eq!(shop.reservations(), 1);
}

#[test]
fn sql_that_runs_too_long_is_stopped_and_rolled_back() {
    let shop = Shop::open_with(Options { effect_time: Duration::from_millis(1), ..options() });
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let args = arguments("a-1", 2);
    let slow = shop.ledger.execute(&Request::new(&scope(), &key("order-1"), &args), move |tx| {
        let reserved = reserve(tx)?;
        // The effect goes on as if nothing had happened.
        assert!(tx.query_row(endless, [], |row| row.get::<_, i64>(0)).is_err());
        Ok(reserved)
    });
    assert!(matches!(slow, Err(LedgerError::TimeLimit)), "{slow:?}");
    assert!(!call(&shop.ledger, "order-1").unwrap().is_replay());
    assert_eq!(shop.reservations(), 1);
}

#[test]
fn the_caller_itself_can_be_the_writer() {
    let shop = Shop::open_with(Options { executor: Executor::Inline, ..options() });
    let here = thread::current().id();
    let run = |key_text: &str| {
        shop.ledger.execute_async(&Request::new(&scope(), &key(key_text), &arguments("a-1", 2)), move |tx| {
            assert_eq!(thread::current().id(), here);
            reserve(tx)
        })
    };
    let call = run("order-1");
    assert_eq!(shop.reservations(), 1, "before the first poll");
    assert!(!block_on(call).unwrap().is_replay());
    assert!(block_on(run("order-1")).unwrap().is_replay());
    shop.ledger.close().unwrap();
    assert!(matches!(block_on(run("order-2")), Err(LedgerError::Closed)));
}

#[test]
fn an_effect_may_own_the_last_handle() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let runs = Arc::new(AtomicUsize::new(0));
    let ledger = open(&path);
    let (release, holder) = hold(&ledger);
    let (owned, counted) = (ledger.clone(), Arc::clone(&runs));
    let call = ledger.execute_keyless_async(&scope(), move |_| {
        let _owned = &owned;
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    drop(ledger);
    drop(release);
    holder.join().unwrap();
    block_on(call).map(Unkeyed::into_inner).unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[test]
fn many_threads_run_each_key_once() {
    let shop = Shop::open();
    let start = Barrier::new(8);
    let fresh = AtomicUsize::new(0);
    thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                start.wait();
                for n in 0..40 {
                    let fresh_now = !call(&shop.ledger, &format!("order-{n}")).unwrap().is_replay();
                    fresh.fetch_add(usize::from(fresh_now), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(fresh.load(Ordering::Relaxed), 40);
    assert_eq!(shop.reservations(), 40);
}
