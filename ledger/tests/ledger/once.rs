//! A key runs once: over threads, handles, processes and restarts.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use steady_ledger::{Executed, Request, State};

use super::peer::Peer;
use super::*;

#[test]
fn statement_07_one_key_at_a_barrier_from_two_connections_runs_once() {
    let shop = Shop::open();
    let other = open(&shop.path());
    let barrier = Barrier::new(4);
    const ROUNDS: i64 = 100;
    let all: Vec<_> = thread::scope(|threads| {
        let workers: Vec<_> = [&shop.ledger, &other, &shop.ledger, &other]
            .into_iter()
            .map(|ledger| {
                let barrier = &barrier;
                threads.spawn(move || {
                    (0..ROUNDS)
                        .map(|round| {
                            barrier.wait();
                            call(ledger, &format!("order-{round}"))
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let answers = workers.into_iter().map(|worker| worker.join().unwrap());
        // Only now: a worker that stopped at an error would leave the others at the barrier.
        answers.map(|answers| answers.into_iter().collect::<Result<Vec<_>, _>>().unwrap()).collect()
    });
    for round in 0..usize::try_from(ROUNDS).unwrap() {
        let answers: Vec<_> = all.iter().map(|answers| &answers[round]).collect();
        assert_eq!(answers.iter().filter(|answer| !answer.is_replay()).count(), 1, "round {round}");
        let values: Vec<_> = answers.into_iter().map(|answer| answer.clone().into_inner()).collect();
        assert!(values.iter().all(|value| *value == values[0]), "round {round}: {values:?}");
    }
    assert_eq!(shop.reservations(), ROUNDS);
    let stock = |tx: &steady_ledger::ReadTx<'_>| {
        tx.query_row("SELECT units FROM stock WHERE sku = 'a-1'", [], |row| row.get::<_, i64>(0))
    };
    assert_eq!(other.read(stock).unwrap(), 1_000_000 - 2 * ROUNDS);
}

const CHILD_DATABASE: &str = "LEDGER_TEST_DATABASE";
const ENDLESS_CHILD_DATABASE: &str = "LEDGER_TEST_ENDLESS_DATABASE";
const KEYS: i64 = 40;

/// Not a test by itself: the other processes of the tests below run it.
#[test]
fn child_process() {
    let Some(path) = std::env::var_os(CHILD_DATABASE) else { return };
    // Opening is part of the race: the file is new.
    let ledger = open(Path::new(&path));
    let (mut out, mut input) = (std::io::stdout(), std::io::stdin().lock());
    let mut go = [0];
    for number in 0..KEYS {
        writeln!(out, "\nready").unwrap();
        input.read_exact(&mut go).unwrap();
        let answer = call(&ledger, &format!("order-{number}")).unwrap();
        let replay = answer.is_replay();
        writeln!(out, "\nanswer {replay} {}", answer.into_inner().id).unwrap();
    }
}

#[test]
fn statement_07_one_key_from_two_processes_runs_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let mut peers = [(); 2].map(|()| Peer::spawn("once::child_process", [(CHILD_DATABASE, path.as_os_str())]));
    for number in 0..KEYS {
        peers.iter_mut().for_each(|peer| drop(peer.expect("ready")));
        peers.iter_mut().for_each(Peer::go);
        let answers = peers.each_mut().map(|peer| peer.expect("answer"));
        let of = |answer: &str| {
            let mut words = answer.split(' ').skip(1).map(str::to_owned);
            (words.next().unwrap() == "true", words.next().unwrap())
        };
        let (one, other) = (of(&answers[0]), of(&answers[1]));
        assert_ne!(one.0, other.0, "key {number}: {answers:?}");
        assert_eq!(one.1, other.1, "key {number}: {answers:?}");
    }
    peers.into_iter().for_each(Peer::join);
    assert_eq!(reservations(&open(&path)), KEYS);
}

/// Not a test by itself: a process that works until it is killed. It reports what was acknowledged to it.
#[test]
fn endless_child_process() {
    let Some(path) = std::env::var_os(ENDLESS_CHILD_DATABASE) else { return };
    let ledger = open(Path::new(&path));
    for number in 0.. {
        let answer = call(&ledger, &format!("order-{number}")).unwrap().into_inner();
        writeln!(std::io::stdout(), "\nanswer {number} {}", answer.id).unwrap();
    }
}

#[test]
fn a_killed_process_has_kept_what_it_acknowledged_and_nothing_without_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    for kill_after in [1, 2, 7, 20, 41] {
        let mut peer = Peer::spawn("once::endless_child_process", [(ENDLESS_CHILD_DATABASE, path.as_os_str())]);
        let acknowledged: Vec<_> = (0..kill_after).map(|_| peer.expect("answer")).collect();
        peer.kill();

        let ledger = open(&path);
        for line in acknowledged {
            let words: Vec<_> = line.split(' ').collect();
            let replay = call(&ledger, &format!("order-{}", words[1])).unwrap();
            assert!(replay.is_replay(), "{line}");
            assert_eq!(replay.into_inner().id.to_string(), words[2]);
        }
        let unkeyed = "SELECT (SELECT count(*) FROM reservation) - (SELECT count(*) FROM ledger_key)";
        let stranger = rusqlite::Connection::open(&path).unwrap();
        assert_eq!(stranger.query_row(unkeyed, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    }
}

#[test]
fn statement_08_a_key_survives_reopening_and_replays() {
    let shop = Shop::open();
    let first = call(&shop.ledger, "order-7").unwrap();
    assert!(!first.is_replay());
    shop.ledger.close().unwrap();
    assert!(matches!(call(&shop.ledger, "order-7"), Err(LedgerError::Closed)));
    assert!(matches!(shop.ledger.reconcile(&scope(), &key("order-7")), Err(LedgerError::Closed)));
    shop.ledger.close().unwrap();

    let again = open(&shop.path());
    assert_eq!(call(&again, "order-7").unwrap(), Executed::Replayed(first.into_inner()));
    assert_eq!(reservations(&again), 1);
}

#[test]
fn scopes_share_no_keys() {
    let shop = Shop::open();
    let (args, key) = (arguments("a-1", 2), key("order-7"));
    let scopes = [scope(), Scope::new("tenant-2", "reserve_inventory"), Scope::new("tenant-1", "release_inventory")];
    for scope in &scopes {
        assert_eq!(shop.ledger.reconcile(scope, &key).unwrap(), None);
        assert!(!shop.ledger.execute(&Request::new(scope, &key, &args), reserve).unwrap().is_replay());
    }
    assert_eq!(shop.reservations(), 3);
}

#[test]
fn reconciling_reads_and_creates_nothing() {
    let shop = Shop::open();
    for _ in 0..2 {
        assert_eq!(shop.ledger.reconcile(&scope(), &key("order-7")).unwrap(), None);
    }
    call(&shop.ledger, "order-7").unwrap().into_inner();
    call(&shop.ledger, "order-7").unwrap().into_inner();
    let known = shop.ledger.reconcile(&scope(), &key("order-7")).unwrap().unwrap();
    assert_eq!((known.state, known.executions), (State::Committed, 1));
    let rows = |conn: &rusqlite::Connection| {
        conn.query_row("SELECT count(*) FROM ledger_key", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(rows(&shop.stranger()), 1);
}

/// The id of a request is no input at all: two requests without a key are two executions.
#[test]
fn statement_06_a_call_without_a_key_runs_every_time() {
    let shop = Shop::open();
    let ids = [1, 2, 3].map(|_| shop.ledger.execute_keyless(&scope(), reserve).unwrap().into_inner().id);
    assert_eq!(ids, [1, 2, 3]);
    assert_eq!(shop.reservations(), 3);
    assert_eq!(shop.ledger.keyless_executions(&scope()).unwrap(), 3);
    assert_eq!(shop.ledger.keyless_executions(&Scope::new("tenant-2", "reserve_inventory")).unwrap(), 0);
}

/// The last line of defence: the schema itself refuses a second execution.
#[test]
fn the_schema_refuses_a_second_execution() {
    let shop = Shop::open();
    call(&shop.ledger, "order-7").unwrap().into_inner();
    let stranger = shop.stranger();
    assert!(stranger.execute("UPDATE ledger_key SET executions = 2", []).is_err());
    assert!(stranger.execute("INSERT INTO ledger_key SELECT * FROM ledger_key", []).is_err());
}

#[test]
fn a_writer_elsewhere_is_waited_for_and_then_reported() {
    let shop = Shop::open_with(Options { busy_timeout: std::time::Duration::from_millis(1), ..options() });
    let stranger = shop.stranger();
    call(&shop.ledger, "order-1").unwrap().into_inner();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(matches!(call(&shop.ledger, "order-2"), Err(LedgerError::Busy { .. })));
    assert!(call(&shop.ledger, "order-1").unwrap().is_replay(), "a replay needs no write lock");
    stranger.execute_batch("ROLLBACK").unwrap();
    assert!(!call(&shop.ledger, "order-2").unwrap().is_replay());
}
