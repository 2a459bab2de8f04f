//! What goes wrong around the writer: commits that fail, values of the application that misbehave when they are dropped,
//! handles that close at the wrong time.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use steady_crash_vfs::{Answer, Asked, Call, Disk};
use steady_ledger::rusqlite::ffi;
use steady_ledger::{TaskError, TaskSpec, Unkeyed};

use super::writer::{block_on, hold};
use super::*;

/// Longer than anything here takes on a busy machine.
const HANG: Duration = Duration::from_secs(60);

type Answered<T> = Pin<Box<dyn Future<Output = Result<Executed<T>, LedgerError>> + Send>>;

/// Queues a call.
fn queue<T, F>(ledger: &Ledger, key_text: &str, effect: F) -> Answered<T>
where
    T: Serialize + serde::de::DeserializeOwned + 'static,
    F: FnMut(&mut EffectTx<'_>) -> Result<T, EffectError<T>> + Send + 'static,
{
    Box::pin(ledger.execute_async(&Request::new(&scope(), &key(key_text), "{}"), effect))
}

/// Does something on another thread, and fails if it does not come to an end.
fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || drop(done.send(work())));
    ended.recv_timeout(HANG).expect("it hangs")
}

/// Calls the work when it is dropped.
struct AtDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_failed_commit_changes_no_answer_but_those_that_it_carried() {
    let disk = Disk::register("writer-faults");
    let shop = Shop::open_with(Options { vfs: Some(disk.name().into()), ..options() });
    let (release, holder) = hold(&shop.ledger);
    let fails = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&fails);
    disk.ask(move |Asked { call, .. }| {
        let fails = call == Call::Sync && fails.swap(false, Ordering::SeqCst);
        if fails { Answer::Fail(ffi::SQLITE_IOERR_FSYNC) } else { Answer::Do }
    });
    let first = queue(&shop.ledger, "order-1", reserve);
    let aborted = queue(&shop.ledger, "order-2", |_| Err::<i64, _>(EffectError::Abort("no stock".into())));
    let panicked = queue(&shop.ledger, "order-3", |_| -> Result<i64, EffectError<i64>> { panic!("planned") });
    let forbidden = queue(&shop.ledger, "order-4", |tx| Ok(tx.execute("PRAGMA synchronous = OFF", [])?));
    let keyless = shop.ledger.execute_keyless_async(&scope(), |_| Err::<i64, _>(EffectError::Abort("no stock".into())));
    // The slice of a transaction is over after this, and what comes next is left for another one.
    let slow = queue(&shop.ledger, "order-5", move |_| {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(100) {
            thread::yield_now();
        }
        armed.store(true, Ordering::SeqCst);
        Ok(5)
    });
    let later = queue(&shop.ledger, "order-6", reserve);
    drop(release);
    holder.join().unwrap();
    // On a busy machine its slice may have been over too, and its commit an earlier one.
    let first = block_on(first);
    assert!(matches!(first, Err(LedgerError::Storage(_)) | Ok(_)), "{first:?}");
    assert!(matches!(block_on(aborted), Err(LedgerError::Aborted(_))));
    assert!(matches!(block_on(panicked), Err(LedgerError::Panicked)));
    assert!(matches!(block_on(forbidden), Err(LedgerError::Forbidden)));
    assert!(matches!(block_on(keyless).map(Unkeyed::into_inner), Err(LedgerError::Aborted(_))));
    assert!(matches!(block_on(slow), Err(LedgerError::Storage(_))));
    assert!(matches!(block_on(later), Ok(Executed::Fresh(_))), "it did not run before");
    assert_eq!(shop.reservations(), 1 + i64::from(first.is_ok()));
    assert_eq!(shop.ledger.stats().looked_up, 1);
}

/// What the file says after a commit of unknown outcome is told to nobody whose it is not (rule K5).
#[test]
fn k5_an_uncertain_commit_tells_nobody_of_another_callers_task() {
    let disk = Disk::register("writer-faults-k5");
    let shop = Shop::open_with(Options { vfs: Some(disk.name().into()), ..options() });
    let tasks = shop.ledger.tasks();
    let id = tasks.create_keyless(&scope(), TaskSpec::default()).unwrap().id;
    tasks.cancel("tenant-1", &id).unwrap();
    let (release, holder) = hold(&shop.ledger);
    let fails = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&fails);
    disk.ask(move |Asked { call, .. }| {
        let fails = call == Call::Sync && fails.swap(false, Ordering::SeqCst);
        if fails { Answer::Fail(ffi::SQLITE_IOERR_FSYNC) } else { Answer::Do }
    });
    let arming = queue(&shop.ledger, "order-1", move |_| {
        armed.store(true, Ordering::SeqCst);
        Ok(1)
    });
    let (own, probe) = (tasks.cancel_async("tenant-1", &id), tasks.cancel_async("tenant-2", &id));
    drop(release);
    holder.join().unwrap();
    assert!(matches!(block_on(arming), Err(LedgerError::Storage(_))));
    assert!(matches!(block_on(own), Ok(())), "it is to be cancelled, as its owner wanted");
    let probed = block_on(probe);
    assert!(matches!(probed, Err(TaskError::Unknown)), "{probed:?}");
}

#[test]
fn a_captured_value_that_calls_the_ledger_when_it_is_dropped_is_refused_and_does_not_hang() {
    let shop = Shop::open();
    let ledger = shop.ledger.clone();
    let (said, heard) = mpsc::channel();
    let dropped = AtDrop(move || said.send(call(&ledger, "order-2")).unwrap());
    let done = queue(&shop.ledger, "order-1", move |tx| {
        let _captured = &dropped;
        reserve(tx)
    });
    assert!(!block_on(done).unwrap().is_replay());
    let refused = heard.recv_timeout(HANG).expect("it hangs");
    assert!(matches!(refused, Err(LedgerError::Reentrant)), "{refused:?}");
    assert!(!call(&shop.ledger, "order-2").unwrap().is_replay());
}

#[test]
fn a_value_that_panics_when_it_is_dropped_ends_nothing() {
    #[derive(Debug)]
    struct Bomb(&'static str);
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(thread::panicking(), "{}", self.0);
        }
    }
    impl std::fmt::Display for Bomb {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }
    impl std::error::Error for Bomb {}

    let shop = Shop::open();
    let (release, holder) = hold(&shop.ledger);
    let bomb = Bomb("captured");
    let captured = queue(&shop.ledger, "order-1", move |tx| {
        let _captured = &bomb;
        reserve(tx)
    });
    // Nobody waits for this one, so its answer is dropped by the writer.
    drop(queue(&shop.ledger, "order-2", |_| Err::<i64, _>(EffectError::Abort(Box::new(Bomb("cause"))))));
    let denied = queue(&shop.ledger, "order-3", |tx| {
        drop(tx.execute("PRAGMA synchronous = OFF", []));
        Err::<i64, _>(EffectError::Abort(Box::new(Bomb("cause of what is refused"))))
    });
    let payload =
        queue(&shop.ledger, "order-4", |_| -> Result<i64, EffectError<i64>> { std::panic::panic_any(Bomb("payload")) });
    let after = queue(&shop.ledger, "order-5", reserve);
    drop(release);
    holder.join().unwrap();
    assert!(!block_on(captured).unwrap().is_replay());
    assert!(matches!(block_on(denied), Err(LedgerError::Forbidden)));
    assert!(matches!(block_on(payload), Err(LedgerError::Panicked)));
    assert!(!block_on(after).unwrap().is_replay());
    assert!(!call(&shop.ledger, "order-6").unwrap().is_replay());
    assert_eq!(shop.reservations(), 3);
}

#[test]
fn a_waker_that_panics_or_calls_the_ledger_ends_nothing() {
    struct Waking(Ledger, mpsc::Sender<Result<(), LedgerError>>);
    impl Wake for Waking {
        fn wake(self: Arc<Self>) {
            self.1.send(self.0.execute_keyless(&scope(), |_| Ok(())).map(Unkeyed::into_inner)).unwrap();
            panic!("planned");
        }
    }
    let shop = Shop::open();
    let (release, holder) = hold(&shop.ledger);
    let (said, heard) = mpsc::channel();
    let waker = Waker::from(Arc::new(Waking(shop.ledger.clone(), said)));
    let mut woken = queue(&shop.ledger, "order-1", reserve);
    assert!(matches!(woken.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending));
    let after = queue(&shop.ledger, "order-2", reserve);
    drop(release);
    holder.join().unwrap();
    assert!(matches!(heard.recv_timeout(HANG).expect("it hangs"), Err(LedgerError::Reentrant)));
    assert!(!block_on(after).unwrap().is_replay());
    assert!(!block_on(woken).unwrap().is_replay());
}

#[test]
fn whoever_closes_too_takes_nothing_from_what_was_taken_in() {
    for _ in 0..10 {
        let shop = Shop::open();
        let (release, holder) = hold(&shop.ledger);
        // Some batches.
        let calls: Vec<_> = (0..1000).map(|n| queue(&shop.ledger, &format!("order-{n}"), |_| Ok(7))).collect();
        let close = || {
            let ledger = shop.ledger.clone();
            thread::spawn(move || ledger.close())
        };
        let first = close();
        while !matches!(
            queue(&shop.ledger, "late", |_| Ok(7)).as_mut().poll(&mut Context::from_waker(Waker::noop())),
            Poll::Ready(Err(LedgerError::Closed))
        ) {
            thread::yield_now();
        }
        let others = [close(), close()];
        drop(release);
        holder.join().unwrap();
        for call in calls {
            assert!(!block_on(call).unwrap().is_replay());
        }
        first.join().unwrap().unwrap();
        others.into_iter().for_each(|other| other.join().unwrap().unwrap());
    }
}

#[test]
fn a_ledger_whose_last_handle_goes_inside_of_anothers_effect_is_closed() {
    let (shop, other) = (Shop::open(), Shop::open());
    let Shop { dir, ledger } = other;
    assert!(!call(&ledger, "order-1").unwrap().is_replay());
    let log = dir.path().join("shop.db-wal");
    assert!(log.exists());
    let mut ledger = Some(ledger);
    let done = shop.ledger.execute_keyless(&scope(), move |_| {
        drop(ledger.take());
        Ok(())
    });
    done.unwrap().into_inner();
    // The last connection of a file takes the log with it.
    let until = Instant::now() + HANG;
    while log.exists() && Instant::now() < until {
        thread::yield_now();
    }
    assert!(!log.exists(), "its writer is still there");
}

#[test]
fn a_file_that_a_newer_release_migrated_is_not_written_any_more() {
    let shop = Shop::open();
    call(&shop.ledger, "order-1").unwrap().into_inner();
    let known: i64 = shop.stranger().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    shop.stranger().pragma_update(None, "user_version", known + 1).unwrap();
    let refused = call(&shop.ledger, "order-2");
    let found = known + 1;
    assert!(matches!(refused, Err(LedgerError::NewerSchema { found: f, known: k }) if (f, k) == (found, known)));
    let ledger = shop.ledger.clone();
    let refused = within(move || ledger.execute_keyless(&scope(), |_| Ok(())).map(Unkeyed::into_inner));
    assert!(matches!(refused, Err(LedgerError::NewerSchema { .. })), "{refused:?}");
    shop.stranger().pragma_update(None, "user_version", known).unwrap();
    call(&shop.ledger, "order-2").unwrap().into_inner();
    assert_eq!(shop.reservations(), 2);
}

/// Another file, put in the place of the ledger, knows nothing of what was committed.
#[test]
fn a_new_connection_that_finds_another_ledger_answers_nothing() {
    let disk = Disk::register("writer-faults-replaced");
    let shop = Shop::open_with(Options { vfs: Some(disk.name().into()), ..options() });
    call(&shop.ledger, "order-1").unwrap().into_inner();
    let other = Shop::open();
    other.ledger.close().unwrap();
    let (path, from) = (shop.path(), other.path());
    let lost = shop.ledger.execute(&Request::new(&scope(), &key("order-2"), "{}"), move |tx| {
        let (path, from) = (path.clone(), from.clone());
        let hits = std::sync::atomic::AtomicUsize::new(0);
        disk.ask(move |Asked { call, .. }| {
            if call != Call::Sync || hits.fetch_add(1, Ordering::SeqCst) > 0 {
                return Answer::Do;
            }
            for part in ["shop.db-wal", "shop.db-shm"] {
                std::fs::remove_file(path.with_file_name(part)).unwrap();
            }
            std::fs::rename(&from, &path).unwrap();
            Answer::Fail(ffi::SQLITE_IOERR_FSYNC)
        });
        reserve(tx)
    });
    let Err(LedgerError::CommitUnknown(cause)) = lost else { panic!("{lost:?}") };
    assert!(cause.to_string().contains("another secret"), "{cause}");
    assert!(matches!(call(&shop.ledger, "order-3"), Err(LedgerError::WrongSecret)));
}
