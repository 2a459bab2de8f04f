//! Races over handles and processes have one winner.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use steady_ledger::Status;

use super::*;
use crate::peer::Peer;

/// lightdash#26487: a cancellation that was acknowledged could still land while the run was being finished.
#[test]
fn report_103_an_end_and_a_cancellation_at_the_finish_line_have_one_winner() {
    let desk = Desk::open();
    let other = desk.other().tasks();
    let mut winners = BTreeMap::<_, usize>::new();
    for round in 0..60 {
        let lease = desk.started(&format!("order-{round}"));
        desk.tasks().cancel("tenant-1", lease.task()).unwrap();
        let barrier = Barrier::new(3);
        let (completed, cancelled, asked) = thread::scope(|threads| {
            let completing = threads.spawn(|| {
                barrier.wait();
                named(desk.tasks().complete(&lease, body("done")))
            });
            let cancelling = threads.spawn(|| {
                barrier.wait();
                named(other.observe_cancel(&lease))
            });
            barrier.wait();
            let asked = named(other.cancel("tenant-1", lease.task()));
            (completing.join().unwrap(), cancelling.join().unwrap(), asked)
        });
        let task = desk.get(lease.task()).unwrap();
        match task.status {
            Status::Completed => assert_eq!((completed, cancelled), (Ok(()), Err("Over(Completed)".to_owned()))),
            Status::Cancelled => assert_eq!((cancelled, completed), (Ok(()), Err("Over(Cancelled)".to_owned()))),
            open @ (Status::Working | Status::InputRequired | Status::Failed) => panic!("{open}"),
        }
        assert_eq!(asked, Ok(()), "a request is acknowledged whoever won");
        *winners.entry(task.status).or_default() += 1;
    }
    assert_eq!(winners.values().sum::<usize>(), 60);
}

#[test]
fn a_key_at_a_barrier_from_two_handles_is_one_task() {
    let desk = Desk::open();
    let other = desk.other();
    let barrier = Barrier::new(4);
    for round in 0..25 {
        let ids: Vec<_> = thread::scope(|threads| {
            let all = [&desk.shop.ledger, &other, &desk.shop.ledger, &other].map(|ledger| {
                let barrier = &barrier;
                threads.spawn(move || {
                    barrier.wait();
                    named(create(&ledger.tasks(), &format!("order-{round}")))
                })
            });
            all.map(|one| one.join().unwrap().unwrap()).into()
        });
        assert_eq!(ids.iter().filter(|created| !created.is_replay()).count(), 1);
        let first = ids[0].clone().into_inner().id;
        assert!(ids.into_iter().all(|created| created.into_inner().id == first));
    }
    assert_eq!(desk.count("SELECT count(*) FROM ledger_task"), 25);
}

/// Claims tasks until there are none, and does each with one reservation.
fn work(tasks: &Tasks, owner: &str) -> usize {
    let mut done = 0;
    while let Some(claimed) = tasks.claim(&["reserve_inventory"], owner, Duration::from_secs(600)).unwrap() {
        assert_eq!(claimed.lease.epoch(), 1);
        let effect = |tx: &mut EffectTx<'_>| reserve(tx).map(drop).map_err(|_| "reserve".into());
        assert!(tasks.checkpoint_with(&claimed.lease, step(1), effect).unwrap().stored);
        tasks.complete(&claimed.lease, body(owner)).unwrap();
        done += 1;
    }
    done
}

const CHILD_DATABASE: &str = "LEDGER_TEST_TASKS_DATABASE";

/// Not a test by itself: the worker in the other process of the test below.
#[test]
fn child_worker() {
    let Some(path) = std::env::var_os(CHILD_DATABASE) else { return };
    let ledger = open(Path::new(&path));
    let mut out = std::io::stdout();
    writeln!(out, "\nready").unwrap();
    let mut go = [0];
    std::io::stdin().lock().read_exact(&mut go).unwrap();
    writeln!(out, "\ndone {}", work(&ledger.tasks(), "child")).unwrap();
}

#[test]
fn workers_of_two_processes_do_each_task_once() {
    let shop = Shop::open();
    const TASKS: usize = 40;
    let ids: Vec<_> =
        (0..TASKS).map(|n| create(&shop.ledger.tasks(), &format!("order-{n}")).unwrap().into_inner().id).collect();
    let mut child = Peer::spawn("tasks::races::child_worker", [(CHILD_DATABASE, shop.path().as_os_str())]);
    child.expect("ready");
    child.go();
    let mine = work(&shop.ledger.tasks(), "parent");
    let theirs: usize = child.expect("done").trim_start_matches("done ").parse().unwrap();
    child.join();
    assert_eq!(mine + theirs, TASKS);
    assert_eq!(shop.reservations(), 40);
    let by_child = ids.iter().filter(|id| {
        let task = shop.ledger.tasks().get("tenant-1", id).unwrap();
        assert_eq!((task.status, task.progress.step), (Status::Completed, 1));
        task.outcome.unwrap().decode::<String>().unwrap() == "child"
    });
    assert_eq!(by_child.count(), theirs);
}

/// Does what waits, telling of each thing once it is acknowledged.
fn work_aloud(tasks: &Tasks, tell: impl Fn(&str, &TaskId)) {
    let effect = |tx: &mut EffectTx<'_>| reserve(tx).map(drop).map_err(|_| "reserve".into());
    // The lease of a worker that was killed is over at once.
    while let Some(claimed) = tasks.claim(&["reserve_inventory"], "worker-1", Duration::ZERO).unwrap() {
        let id = claimed.lease.task();
        let stored = tasks.checkpoint_with(&claimed.lease, step(1), effect).unwrap().stored;
        assert_eq!(stored, claimed.progress.step == 0);
        tell("stepped", id);
        tasks.complete(&claimed.lease, body("done")).unwrap();
        tell("done", id);
    }
}

const ENDLESS_CHILD_DATABASE: &str = "LEDGER_TEST_ENDLESS_TASKS_DATABASE";

/// Not a test by itself: the test below kills it.
#[test]
fn endless_child_worker() {
    let Some(path) = std::env::var_os(ENDLESS_CHILD_DATABASE) else { return };
    let tasks = open(Path::new(&path)).tasks();
    let tell = |what: &str, id: &TaskId| writeln!(std::io::stdout(), "\nack {what} {id}").unwrap();
    for number in 0.. {
        tell(&number.to_string(), &create(&tasks, &format!("order-{number}")).unwrap().into_inner().id);
        work_aloud(&tasks, tell);
    }
}

#[test]
fn a_killed_worker_has_kept_what_it_acknowledged_and_repeats_no_step() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    for kill_after in [1, 2, 3, 5, 8, 13, 30] {
        let mut peer = Peer::spawn("tasks::races::endless_child_worker", [(ENDLESS_CHILD_DATABASE, path.as_os_str())]);
        let acknowledged: Vec<_> = (0..kill_after).map(|_| peer.expect("ack")).collect();
        peer.kill();

        let ledger = open(&path);
        for line in acknowledged {
            let words: Vec<_> = line.split(' ').collect();
            let task = ledger.tasks().get("tenant-1", &TaskId::parse(words[2]).unwrap()).unwrap();
            match words[1] {
                "stepped" => assert_eq!(task.progress.step, 1, "{line}"),
                "done" => assert_eq!(task.status, Status::Completed, "{line}"),
                number => {
                    let replay = create(&ledger.tasks(), &format!("order-{number}")).unwrap();
                    assert!(replay.is_replay() && replay.into_inner().id == task.id, "{line}");
                }
            }
        }
        let halves = "SELECT (SELECT count(*) FROM reservation) - (SELECT sum(step) FROM ledger_task),
                             (SELECT count(*) FROM ledger_key) - (SELECT count(*) FROM ledger_task)";
        let stranger = rusqlite::Connection::open(&path).unwrap();
        let halves: (i64, i64) = stranger.query_row(halves, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(halves, (0, 0), "a step without its effect, or a task without its key");
    }
    let ledger = open(&path);
    work_aloud(&ledger.tasks(), |_, _| ());
    assert_eq!(ledger.tasks().live(None, 10).unwrap(), []);
}
