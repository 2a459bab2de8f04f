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
use steady_ledger::Unkeyed;
use steady_ledger::rusqlite::ffi;

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
