//! A read of the application holds up nobody, and has an end.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;

/// Long enough for any machine; a test that waits for it has failed.
const HANG: Duration = Duration::from_secs(60);

#[test]
fn a_read_that_waits_for_a_call_and_for_another_read_ends() {
    let shop = Shop::open();
    call(&shop.ledger, "order-7").unwrap().into_inner();
    let ledger = shop.ledger.clone();
    let seen = shop.ledger.read(move |_| {
        let (answer, answered) = mpsc::channel();
        thread::spawn(move || {
            let replayed = call(&ledger, "order-7").unwrap().is_replay();
            answer.send((replayed, reservations(&ledger))).unwrap();
        });
        Ok(answered.recv_timeout(HANG).ok())
    });
    assert_eq!(seen.unwrap(), Some((true, 1)));
}

#[test]
fn the_sql_of_a_read_has_a_limited_time() {
    let shop = Shop::open_with(Options { effect_time: Duration::from_millis(50), ..options() });
    // Not endless: without a limit the test fails instead of hanging.
    let long =
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 50000000) SELECT count(*) FROM n";
    let read = shop.ledger.read(|tx| tx.query_row(long, [], |row| row.get::<_, i64>(0)));
    assert!(matches!(read, Err(LedgerError::TimeLimit)), "{read:?}");
    assert_eq!(shop.reservations(), 0, "the next read has its own time");
}
