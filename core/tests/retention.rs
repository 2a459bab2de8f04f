//! The allocator is counted: a place of the outbound buffer keeps the memory of a small text for the next one, and none of
//! a large one. A test binary of its own, since it puts a counting allocator in place of the global one.

use steady_core::outbound::{Batch, Config, Handle, Item, Outbound};

/// The largest text whose memory is kept, in bytes.
const RETAINED: usize = 1024;

const CALL: Handle = Handle::new(0, 1);

fn ignore(_: Item<'_>) {}

/// A buffer with one place; what has been measured so far is its own memory.
fn buffer() -> Outbound {
    let mut outbound = Outbound::new(Config { capacity: 1, ..Config::default() });
    outbound.open(CALL, "p");
    outbound
}

/// Lets a text of this many bytes through; the change of memory in use, and the allocations.
fn pass(outbound: &mut Outbound, text: &str) -> (i64, u64) {
    let counted = allocation_counter::measure(|| {
        let _pushed = outbound.progress(CALL, 1.0, None, text);
        assert!(outbound.pop(ignore).is_some());
    });
    (counted.bytes_current, counted.count_total)
}

#[test]
fn an_idle_place_keeps_the_memory_of_a_small_text_only() {
    let (small, large) = ("x".repeat(RETAINED), "x".repeat(RETAINED + 1));
    let mut outbound = buffer();
    let (kept, _) = pass(&mut outbound, &small);
    assert_eq!(kept, i64::try_from(RETAINED).expect("small"), "the allocator is counted");
    assert_eq!(pass(&mut outbound, &small), (0, 0), "the next one finds it");

    let mut outbound = buffer();
    assert_eq!(pass(&mut outbound, &large).0, 0, "given back");
    assert_ne!(pass(&mut outbound, &large).1, 0);
}

#[test]
fn a_batch_leaves_no_large_memory_in_the_place_that_it_was_taken_from() {
    let large = "x".repeat(100 * RETAINED);
    let (mut outbound, mut batch) = (buffer(), Batch::default());
    // The memory of the first text becomes the batch's, and goes to the place in exchange for the second one's.
    for _ in 0..2 {
        let _pushed = outbound.progress(CALL, 1.0, None, &large);
        outbound.pop_into(&mut batch, 1, usize::MAX);
        assert_eq!((batch.len(), batch.is_empty()), (1, false));
        batch.drain(|_, item| ignore(item));
        assert!(batch.is_empty());
    }
    let freed = allocation_counter::measure(|| drop(outbound)).bytes_current;
    let most = i64::try_from(50 * RETAINED).expect("small");
    assert!(freed < 0 && -freed < most, "{freed}");
}
