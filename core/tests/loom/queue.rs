//! The queue between producers, its one consumer, and the final.

use std::future::poll_fn;
use std::task::{Context, Poll};

use steady_core::coordinator::{Effect, Event, ServedRequest};
use steady_core::deadline::Limits;
use steady_core::kernel::OutboundQueue;
use steady_core::outbound::{Config, Handle, Item, Popped, Pushed, SendPermit};
use steady_core::time::Instant;

use super::invariants::out_3_nothing_follows_the_end;
use super::shim::{ALL, Arc, block_on, models, preemptions, spawn};

models! {
    a_parked_consumer_hears_of_what_comes: ALL, kills ["park-outside-lock", "waker-before-push"];
    progress_of_another_thread_never_follows_the_final: preemptions(2), kills ["close-after-final", "park-outside-lock"];
    a_producer_that_waits_for_room_and_a_parked_consumer_wake_each_other: ALL, kills ["wake-no-producer", "park-outside-lock"];
    a_purge_reaches_a_producer_that_waits_for_room: ALL, kills ["wake-no-producer"];
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
    block_on(poll_fn(|cx: &mut Context<'_>| {
        loop {
            if let Some(popped) = queue.pop(|item| matches!(item, Item::Progress { .. })) {
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
