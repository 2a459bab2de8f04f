//! A read of the application holds up nobody, and has an end.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use steady_ledger::Executor;

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

/// Calls until the log is full. How many were answered.
fn fill(ledger: &Ledger) -> usize {
    // Each call writes some pages, so this is far beyond the limit.
    let refused = (0..10_000).position(|n| match call(ledger, &format!("fill-{n}")) {
        Ok(_) => false,
        Err(LedgerError::LogFull { .. }) => true,
        Err(error) => panic!("{error}"),
    });
    refused.expect("the log is bounded")
}

#[test]
fn the_log_is_bounded_while_somebody_reads() {
    const LIMIT: u64 = 300_000;
    for executor in [Executor::Thread, Executor::Inline] {
        let shop = Shop::open_with(Options { wal_limit: LIMIT, executor, ..options() });
        let log = || std::fs::metadata(shop.dir.path().join("shop.db-wal")).unwrap().len();
        let stranger = shop.stranger();
        stranger.execute_batch("BEGIN; SELECT count(*) FROM stock").unwrap();
        let answered = fill(&shop.ledger);
        assert!(answered > 0 && log() < LIMIT + 100_000, "{answered} calls, {} bytes", log());
        let refused = call(&shop.ledger, "order-7").unwrap_err();
        assert!(matches!(refused, LedgerError::LogFull { reading: 0 }), "{refused:?}");
        assert_eq!(shop.reservations() as usize, answered);
        stranger.execute_batch("COMMIT").unwrap();
        assert!(!call(&shop.ledger, "order-7").unwrap().is_replay(), "it did not run before");

        let ledger = shop.ledger.clone();
        let refused = shop.ledger.read(move |tx| {
            tx.query_row("SELECT count(*) FROM stock", [], |_| Ok(()))?;
            Ok(thread::spawn(move || {
                fill(&ledger);
                call(&ledger, "order-8").unwrap_err()
            })
            .join()
            .unwrap())
        });
        let refused = refused.unwrap();
        assert!(matches!(refused, LedgerError::LogFull { reading: 1 }), "{refused:?}");
        assert!(!call(&shop.ledger, "order-8").unwrap().is_replay());
    }
}

#[test]
fn reads_are_bounded_and_end_with_the_ledger() {
    let shop = Shop::open_with(Options { busy_timeout: Duration::from_millis(50), ..options() });
    let (enter, entered) = mpsc::channel();
    let releases: Vec<_> = (0..8)
        .map(|_| {
            let (ledger, enter) = (shop.ledger.clone(), enter.clone());
            let (release, released) = mpsc::channel::<()>();
            let reader = thread::spawn(move || {
                let read = ledger.read(|_| {
                    enter.send(()).unwrap();
                    let _ended = released.recv();
                    Ok(())
                });
                read.unwrap();
            });
            entered.recv_timeout(HANG).unwrap();
            (release, reader)
        })
        .collect();
    assert_eq!(shop.ledger.stats().reading, 8);
    let ninth = shop.ledger.read(|_| Ok(()));
    assert!(matches!(ninth, Err(LedgerError::Busy { operation: None })), "{ninth:?}");
    call(&shop.ledger, "order-7").unwrap().into_inner();
    for (release, reader) in releases {
        drop(release);
        reader.join().unwrap();
    }
    assert_eq!((shop.reservations(), shop.ledger.stats().reading), (1, 0));
    let ledger = shop.ledger.clone();
    let panics = thread::spawn(move || ledger.read(|_| -> rusqlite::Result<()> { panic!("planned") }));
    assert!(panics.join().is_err());
    assert_eq!((shop.reservations(), shop.ledger.stats().reading), (1, 0), "a panic gives its place back");
    shop.ledger.close().unwrap();
    assert!(matches!(shop.ledger.read(|_| Ok(())), Err(LedgerError::Closed)));
}
