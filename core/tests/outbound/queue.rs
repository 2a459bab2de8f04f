//! The buffer as it ships: behind a lock, between producers and one slow consumer.

use std::collections::BTreeMap;
use std::task::{Context, Poll};

use steady_core::kernel::OutboundQueue;
use steady_core::outbound::{Config, Handle, Popped, Pushed};

use super::full::{Bell, queue};
use super::invariants::{
    out_1_within_the_capacity, out_2_a_final_is_popped_once, out_3_nothing_follows_the_end,
    out_4_progress_keeps_its_order,
};
use super::{permit, show};

const TOKENS: u32 = 200;
const CAPACITY: usize = 16;
const FINALS: usize = 8;

/// What a client has seen of each request.
#[derive(Default)]
struct Seen {
    newest: BTreeMap<u32, f64>,
    finals: BTreeMap<u32, u32>,
}

impl Seen {
    fn take(&mut self, queue: &OutboundQueue) -> bool {
        let Some((Popped { handle, last }, text)) = queue.pop(show) else { return false };
        let index = handle.expect("no refusals here").index();
        out_3_nothing_follows_the_end(self.finals.contains_key(&index), &(index, &text));
        if last {
            assert_eq!(text, format!("final {index}"));
            *self.finals.entry(index).or_default() += 1;
            return true;
        }
        let value = text[1..].split(':').next().and_then(|value| value.parse().ok()).expect("progress");
        let newest = self.newest.insert(index, value);
        out_4_progress_keeps_its_order(newest, value, &index);
        true
    }
}

#[test]
fn statement_10_the_bounded_buffer_stays_within_capacity_and_keeps_the_final_response() {
    let config = Config { capacity: CAPACITY, bytes: 512, finals: FINALS, ..Config::default() };
    let (queue, calls) = queue(config, TOKENS);
    let mut seen = Seen::default();
    let mut waiting_finals = 0;
    let check = |waiting_finals: usize| {
        let (evictable, kept, (bytes, _)) = queue.occupancy();
        out_1_within_the_capacity(evictable, CAPACITY, &"messages");
        out_1_within_the_capacity(bytes, 512, &"bytes");
        out_1_within_the_capacity(kept, waiting_finals, &"nothing but finals is kept");
    };
    // 40 rounds of progress of 200 tokens through 16 places, one pop in a hundred pushes.
    for value in 1..=40 {
        for call in &calls {
            let pushed = queue.progress(*call, f64::from(value), Some(40.0), "a message of thirty-two bytes ..");
            assert_ne!(pushed, Pushed::Closed);
            check(waiting_finals);
        }
        seen.take(&queue);
        seen.take(&queue);
    }
    assert!(queue.take_lost().is_some_and(|lost| lost.progress > 1000), "the slow reader lost progress, and is told");
    for call in &calls {
        queue.finish(permit(*call), format!("final {}", call.index()).into_bytes());
        waiting_finals += 1;
        check(waiting_finals);
        assert_eq!(queue.progress(*call, 99.0, None, ""), Pushed::Closed, "nothing after the final");
    }
    assert!(!queue.can_read(false), "more finals than places: no further request is read");
    while seen.take(&queue) {
        check(waiting_finals);
    }
    assert_eq!(seen.finals.len(), TOKENS as usize, "every final arrived");
    seen.finals.iter().for_each(|(index, popped)| out_2_a_final_is_popped_once(&1, popped, index));
    assert!(queue.is_empty() && queue.can_read(false));
}

#[test]
fn as_many_places_as_requests_lose_nothing() {
    let (queue, calls) = queue(Config { capacity: 64, ..Config::default() }, 64);
    for value in 1..=100 {
        for call in &calls {
            let pushed = queue.progress(*call, f64::from(value), None, "x");
            assert!(matches!(pushed, Pushed::Queued | Pushed::Coalesced), "{pushed:?}");
        }
    }
    let mut seen = Seen::default();
    while seen.take(&queue) {}
    assert!(seen.newest.values().all(|value| value.to_bits() == 100_f64.to_bits()), "the newest of each");
    assert_eq!((seen.newest.len(), queue.take_lost()), (64, None));
}

#[test]
fn a_parked_consumer_is_woken_once_by_whatever_comes() {
    let (queue, calls) = queue(Config::default(), 4);
    let (bell, waker) = Bell::new();
    let cx = Context::from_waker(&waker);
    let mut rings = 0;
    let mut woken_by = |push: &dyn Fn()| {
        assert_eq!(queue.park(&cx), Poll::Pending);
        push();
        push();
        rings += 1;
        assert_eq!(bell.rings(), rings, "once, however much came");
        assert_eq!(queue.park(&cx), Poll::Ready(()), "something waits: no parking");
        while queue.pop(show).is_some() {}
    };
    woken_by(&|| assert_ne!(queue.progress(calls[0], 1.0, None, ""), Pushed::Closed));
    woken_by(&|| assert!(queue.poll_lossless(&cx, calls[1], b"kept").is_ready()));
    woken_by(&|| assert!(queue.refuse(b"no".to_vec())));
    let finals = std::cell::Cell::new(2_usize);
    woken_by(&|| {
        queue.finish(permit(calls[finals.get()]), b"done".to_vec());
        finals.set(finals.get() + 1);
    });
}

#[test]
fn a_purged_request_leaves_nothing_and_its_place_serves_the_next() {
    let (queue, calls) = queue(Config { capacity: 4, ..Config::default() }, 2);
    let (_, waker) = Bell::new();
    let cx = Context::from_waker(&waker);
    assert_eq!(queue.progress(calls[0], 1.0, None, "old"), Pushed::Queued);
    assert!(queue.poll_lossless(&cx, calls[0], b"old kept").is_ready());
    assert_eq!(queue.progress(calls[1], 1.0, None, "other"), Pushed::Queued);
    queue.purge(calls[0]);
    let next = Handle::new(0, 2);
    queue.open(next, "q");
    assert_eq!(queue.progress(calls[0], 2.0, None, "late"), Pushed::Closed, "the old handle is dead");
    assert_eq!(queue.progress(next, 1.0, None, "new"), Pushed::Queued, "and coalesces with nothing old");
    let popped: Vec<_> = std::iter::from_fn(|| queue.pop(show)).collect();
    let of = |handle, text: &str| (Popped { handle: Some(handle), last: false }, text.to_owned());
    assert_eq!(popped, [of(calls[1], "=1:other"), of(next, "=1:new")]);
}

/// Threads that meet at the lock go on by the cells: what leaves is the same.
#[test]
fn reporters_that_collide_lose_neither_their_newest_value_nor_their_final() {
    const REPORTERS: u32 = 4;
    const VALUES: u32 = 20_000;
    let (queue, calls) = queue(Config { capacity: 8, ..Config::default() }, 2 * REPORTERS);
    let mut seen = Seen::default();
    std::thread::scope(|scope| {
        for own in calls.chunks(2) {
            let queue = &queue;
            scope.spawn(move || {
                for value in 1..=VALUES {
                    for call in own {
                        let pushed = queue.progress(*call, f64::from(value), None, "the same length");
                        assert!(matches!(pushed, Pushed::Queued | Pushed::Coalesced), "a place for each: {pushed:?}");
                    }
                }
                for call in own {
                    queue.finish(permit(*call), format!("final {}", call.index()).into_bytes());
                    assert_eq!(queue.progress(*call, f64::from(VALUES + 1), None, ""), Pushed::Closed);
                }
            });
        }
        while seen.finals.len() < calls.len() {
            if !seen.take(&queue) {
                std::thread::yield_now();
            }
        }
    });
    for call in &calls {
        out_2_a_final_is_popped_once(&Some(&1), &seen.finals.get(&call.index()), call);
        assert_eq!(seen.newest.get(&call.index()), Some(&f64::from(VALUES)), "the newest came before the final");
    }
    assert!(queue.is_empty() && queue.take_lost().is_none());
}
