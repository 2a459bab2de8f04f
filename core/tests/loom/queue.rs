//! The queue between producers, its one consumer, and the final.

use std::future::poll_fn;
use std::task::{Context, Poll};

use steady_core::coordinator::{Effect, Event, ServedRequest};
use steady_core::deadline::Limits;
use steady_core::kernel::OutboundQueue;
use steady_core::outbound::{Config, Handle, Item, Popped, Pushed, SendPermit};
use steady_core::time::Instant;

use super::invariants::{out_3_nothing_follows_the_end, out_4_progress_keeps_its_order};
use super::shim::{ALL, Arc, block_on, models, preemptions, spawn};

models! {
    a_parked_consumer_hears_of_what_comes: ALL, kills ["park-outside-lock", "waker-before-push"];
    progress_of_another_thread_never_follows_the_final: preemptions(2), kills ["close-after-final", "park-outside-lock"];
    a_producer_that_waits_for_room_and_a_parked_consumer_wake_each_other: ALL, kills ["wake-no-producer", "park-outside-lock"];
    a_purge_reaches_a_producer_that_waits_for_room: ALL, kills ["wake-no-producer"];
    the_newest_arrives_although_it_came_by_a_cell: ALL, kills ["settled-cell-takes-more", "cell-trusts-its-hint"];
    a_final_ends_what_a_cell_takes: ALL, kills ["final-leaves-the-cell"];
    two_requests_that_share_a_cell_keep_their_own: preemptions(2), kills ["cell-trusts-its-hint"];
}

fn permit(handle: Handle) -> SendPermit {
    let mut request = ServedRequest::start(Instant::ZERO, handle, Limits::default(), true, Default::default());
    let Effect::Respond { permit, .. } = request.handle(Instant::ZERO, Event::Complete) else { panic!("in flight") };
    permit
}

const CALL: Handle = Handle::new(0, 1);

fn queue(config: Config) -> Arc<OutboundQueue> {
    let queue = OutboundQueue::new(config);
    queue.open(CALL, "p");
    Arc::new(queue)
}

/// Takes the next message, parking until there is one.
fn next(queue: &OutboundQueue) -> (Popped, bool) {
    let (popped, value) = next_value(queue);
    (popped, value.is_some())
}

/// The same, with the value of progress.
fn next_value(queue: &OutboundQueue) -> (Popped, Option<f64>) {
    let value = |item: Item<'_>| if let Item::Progress { progress, .. } = item { Some(progress) } else { None };
    block_on(poll_fn(|cx: &mut Context<'_>| {
        loop {
            if let Some(popped) = queue.pop(value) {
                return Poll::Ready(popped);
            }
            if queue.park(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }))
}

fn a_parked_consumer_hears_of_what_comes() {
    let queue = queue(Config { capacity: 2, ..Config::default() });
    let producer = {
        let queue = Arc::clone(&queue);
        spawn(move || {
            assert_eq!(queue.progress(CALL, 1.0, None, ""), Pushed::Queued);
            queue.finish(permit(CALL), b"final".to_vec());
        })
    };
    let (first, progress) = next(&queue);
    if progress {
        assert!(!first.last && next(&queue).0.last);
    } else {
        panic!("the final came without the progress before it");
    }
    producer.join().expect("no panic");
    assert!(queue.is_empty());
}

fn progress_of_another_thread_never_follows_the_final() {
    let queue = queue(Config { capacity: 2, ..Config::default() });
    let reporter = {
        let queue = Arc::clone(&queue);
        spawn(move || {
            let _before_or_after_the_final: Pushed = queue.progress(CALL, 1.0, None, "");
        })
    };
    let finisher = {
        let queue = Arc::clone(&queue);
        spawn(move || queue.finish(permit(CALL), b"final".to_vec()))
    };
    while !next(&queue).0.last {}
    reporter.join().expect("no panic");
    finisher.join().expect("no panic");
    out_3_nothing_follows_the_end(!queue.is_empty(), &"after the final");
}

fn a_producer_that_waits_for_room_and_a_parked_consumer_wake_each_other() {
    let queue = queue(Config { lossless: 1, ..Config::default() });
    let producer = {
        let queue = Arc::clone(&queue);
        spawn(move || {
            for body in [b"1", b"2"] {
                block_on(poll_fn(|cx: &mut Context<'_>| queue.poll_lossless(cx, CALL, body)));
            }
        })
    };
    assert!(!next(&queue).0.last);
    assert!(!next(&queue).0.last);
    producer.join().expect("no panic");
    assert!(queue.is_empty());
}

fn a_purge_reaches_a_producer_that_waits_for_room() {
    let queue = queue(Config { lossless: 1, ..Config::default() });
    let producer = {
        let queue = Arc::clone(&queue);
        spawn(move || {
            for body in [b"1", b"2"] {
                block_on(poll_fn(|cx: &mut Context<'_>| queue.poll_lossless(cx, CALL, body)));
            }
        })
    };
    queue.purge(CALL);
    producer.join().expect("no panic: the producer does not wait for ever");
    out_3_nothing_follows_the_end(queue.pop(|_| ()).is_some(), &"after a purge");
}

/// A reporter that met the consumer at the lock goes on by the cell.
fn the_newest_arrives_although_it_came_by_a_cell() {
    let queue = queue(Config { capacity: 1, ..Config::default() });
    let reporter = {
        let queue = Arc::clone(&queue);
        spawn(move || {
            for value in [1.0, 2.0] {
                assert_ne!(queue.progress(CALL, value, None, ""), Pushed::Closed);
            }
        })
    };
    let mut newest = None;
    while newest != Some(2.0) {
        let (_, value) = next_value(&queue);
        let value = value.expect("progress");
        out_4_progress_keeps_its_order(newest, value, &"by the cell");
        newest = Some(value);
    }
    reporter.join().expect("no panic");
    assert!(queue.is_empty());
}

fn a_final_ends_what_a_cell_takes() {
    let queue = queue(Config { capacity: 1, ..Config::default() });
    let reporter = {
        let queue = Arc::clone(&queue);
        spawn(move || {
            assert_ne!(queue.progress(CALL, 1.0, None, ""), Pushed::Closed);
            queue.finish(permit(CALL), b"final".to_vec());
            out_3_nothing_follows_the_end(queue.progress(CALL, 2.0, None, "") != Pushed::Closed, &"after the final");
        })
    };
    let first = next(&queue);
    assert!(first.1 && next(&queue).0.last, "the progress, then the final");
    reporter.join().expect("no panic");
    assert!(queue.is_empty());
}

fn two_requests_that_share_a_cell_keep_their_own() {
    let queue = queue(Config { capacity: 2, ..Config::default() });
    // Two places, two cells: these indices have the same one. Nothing is dropped.
    let other = Handle::new(2, 1);
    queue.open(other, "p");
    let reporters = [(CALL, 1.0), (other, 10.0)].map(|(call, unit)| {
        let queue = Arc::clone(&queue);
        spawn(move || {
            assert_ne!(queue.progress(call, unit, None, ""), Pushed::Closed);
            assert_ne!(queue.progress(call, 2.0 * unit, None, ""), Pushed::Closed);
            queue.finish(permit(call), b"final".to_vec());
        })
    });
    let (mut newest, mut finals) = ([None; 3], 0);
    while finals < 2 {
        let (Popped { handle, last }, value) = next_value(&queue);
        let index = handle.expect("no refusals here").index() as usize;
        if last {
            assert_eq!(newest[index], Some([2.0, 0.0, 20.0][index]), "the newest came before the final");
            finals += 1;
        } else {
            let value = value.expect("progress");
            out_4_progress_keeps_its_order(newest[index], value, &index);
            newest[index] = Some(value);
        }
    }
    reporters.into_iter().for_each(|reporter| reporter.join().expect("no panic"));
    assert!(queue.is_empty());
}
