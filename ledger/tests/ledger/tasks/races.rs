//! Races over handles and processes have one winner.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use steady_ledger::Status;

use super::*;
use crate::once::Peer;

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
    let mut child = Peer::spawn("tasks::races::child_worker", CHILD_DATABASE, &shop.path());
    child.line("ready");
    child.go();
    let mine = work(&shop.ledger.tasks(), "parent");
    let theirs: usize = child.line("done").trim_start_matches("done ").parse().unwrap();
    assert!(child.child.wait().unwrap().success());
    assert_eq!(mine + theirs, TASKS);
    assert_eq!(shop.reservations(), 40);
    let by_child = ids.iter().filter(|id| {
        let task = shop.ledger.tasks().get("tenant-1", id).unwrap();
        assert_eq!((task.status, task.progress.step), (Status::Completed, 1));
        task.outcome.unwrap().decode::<String>().unwrap() == "child"
    });
    assert_eq!(by_child.count(), theirs);
}
