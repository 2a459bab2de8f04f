//! The allocator is counted: progress costs no allocation once the buffer has seen a message of that size.
//!
//! A test binary of its own, since it puts a counting allocator in place of the global one.

use std::task::{Context, Poll, Waker};

use steady_core::kernel::OutboundQueue;
use steady_core::outbound::{Batch, Coalesce, Config, Handle, Item, Pushed};
use steady_core::rpc::encode;

const TEXT: &str = "a progress message of forty-odd bytes ...";
const TOKENS: u32 = 64;

/// What a connection does: pushes that queue, coalesce and evict, and pops into a reused buffer.
fn round(queue: &OutboundQueue, calls: &[Handle], value: f64, batch: &mut Batch, out: &mut Vec<u8>) {
    for call in calls {
        assert_ne!(queue.progress(*call, value, Some(100.0), TEXT), Pushed::Closed);
        assert_ne!(queue.progress(*call, value + 0.5, Some(100.0), TEXT), Pushed::Closed);
    }
    out.clear();
    // One by one, then the rest together.
    for _ in 0..8 {
        assert!(queue.pop(|item| append(out, item)).is_some());
    }
    loop {
        queue.pop_into(batch, 32, usize::MAX);
        if batch.is_empty() {
            break;
        }
        batch.drain(|_, item| append(out, item));
    }
    let cx = Context::from_waker(Waker::noop());
    assert_eq!(queue.park(&cx), Poll::Pending);
}

fn append(out: &mut Vec<u8>, item: Item<'_>) {
    match item {
        Item::Progress { prefix, progress, total, message } => encode::progress(out, prefix, progress, total, message),
        Item::Text(text) => out.extend_from_slice(text),
    }
}

#[test]
fn progress_in_steady_state_allocates_nothing() {
    let control = allocation_counter::measure(|| drop(std::hint::black_box(Box::new(TOKENS))));
    assert_eq!(control.count_total, 1, "the allocator is counted");
    for (capacity, coalesce) in [(256, Coalesce::SameToken), (16, Coalesce::SameToken), (16, Coalesce::Adjacent)] {
        let queue = OutboundQueue::new(Config { capacity, coalesce, ..Config::default() });
        let calls: Vec<Handle> = (0..TOKENS).map(|index| Handle::new(index, 1)).collect();
        calls.iter().for_each(|call| queue.open(*call, "{\"progressToken\":1,\"progress\":"));
        let (mut out, mut batch) = (Vec::new(), Batch::default());
        // Every place of the ring is used once, and gets its text buffer.
        for warm in 0..16_u8 {
            round(&queue, &calls, f64::from(warm), &mut batch, &mut out);
        }
        let counted = allocation_counter::measure(|| {
            for value in 16..200_u8 {
                round(&queue, &calls, f64::from(value), &mut batch, &mut out);
            }
        });
        assert_eq!(counted.count_total, 0, "capacity {capacity}, {coalesce:?}: {counted:?}");
    }
}

#[test]
fn a_reader_that_keeps_up_finds_the_same_place_each_time() {
    let (queue, call) = (OutboundQueue::new(Config::default()), Handle::new(0, 1));
    queue.open(call, "{\"progressToken\":1,\"progress\":");
    let through = |value: u8| {
        let pushed = queue.progress(call, f64::from(value), None, "one text, copied into the memory of the last one");
        assert_eq!(pushed, Pushed::Queued);
        assert!(queue.pop(|_| ()).is_some());
    };
    through(0);
    let counted = allocation_counter::measure(|| (1..100).for_each(through));
    assert_eq!(counted.count_total, 0, "{counted:?}");
}
