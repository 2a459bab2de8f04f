//! No passage of time makes a key run again.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use steady_ledger::{Clock, State, WallTime};

use super::*;

/// A shop whose clock stands where the test puts it.
fn shop_at(millis: i64) -> (Shop, Arc<AtomicI64>) {
    let now = Arc::new(AtomicI64::new(millis));
    let read = Arc::clone(&now);
    let clock = Clock::new(move || WallTime::from_unix_millis(read.load(Ordering::Relaxed)));
    (Shop::open_with(Options { clock, retention: Duration::from_millis(100), ..options() }), now)
}

#[test]
fn a_result_past_its_retention_is_refused_and_never_runs_again() {
    let (shop, now) = shop_at(1_000);
    call(&shop.ledger, "order-7").unwrap().into_inner();
    now.store(1_099, Ordering::Relaxed);
    assert!(call(&shop.ledger, "order-7").unwrap().is_replay());
    for late in [1_100, i64::MAX] {
        now.store(late, Ordering::Relaxed);
        assert!(matches!(call(&shop.ledger, "order-7"), Err(LedgerError::ResultExpired)));
    }
    let known = shop.ledger.reconcile(&scope(), &key("order-7")).unwrap().unwrap();
    assert_eq!((known.recorded_at.unix_millis(), known.expires_at.unix_millis()), (1_000, 1_100));
    assert_eq!(shop.reservations(), 1);
}

/// Rows as an operation with an outside effect leaves them.
#[test]
fn a_key_that_is_under_way_or_in_doubt_is_refused_and_never_runs_again() {
    let (shop, now) = shop_at(1_000);
    call(&shop.ledger, "order-7").unwrap().into_inner();
    let put = |state: i64, lease: Option<i64>| {
        let sql = "UPDATE ledger_key SET state = ?1, lease_until_ms = ?2, result_id = NULL, result_digest = NULL";
        shop.stranger().execute(sql, (state, lease)).unwrap();
    };
    let state = || shop.ledger.reconcile(&scope(), &key("order-7")).unwrap().unwrap().state;
    put(1, Some(1_500));
    assert_eq!(state(), State::Started { lease_until: WallTime::from_unix_millis(1_500) });
    let Err(LedgerError::InFlight { retry_after }) = call(&shop.ledger, "order-7") else { panic!("in flight") };
    assert_eq!(retry_after, Duration::from_millis(500));
    now.store(1_500, Ordering::Relaxed);
    assert!(matches!(call(&shop.ledger, "order-7"), Err(LedgerError::InDoubt)));
    put(4, None);
    assert_eq!(state(), State::InDoubt);
    now.store(i64::MAX, Ordering::Relaxed);
    assert!(matches!(call(&shop.ledger, "order-7"), Err(LedgerError::InDoubt)));
    put(5, None);
    assert_eq!(state(), State::Expired);
    now.store(0, Ordering::Relaxed);
    assert!(matches!(call(&shop.ledger, "order-7"), Err(LedgerError::ResultExpired)));
    assert_eq!(shop.reservations(), 1);
}
