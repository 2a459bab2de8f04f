//! Each answer to "full", through the wrapper that ships, with more tokens than capacity.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use steady_core::kernel::OutboundQueue;
use steady_core::outbound::{Batch, Coalesce, Config, Handle, Item, Lost, Outbound, Popped, Pushed};

use super::{permit, show};

/// Counts how often it was woken.
#[derive(Default)]
pub(crate) struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let bell = Arc::new(Self::default());
        (Arc::clone(&bell), bell.into())
    }

    pub(crate) fn rings(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A queue with `tokens` open requests.
pub(crate) fn queue(config: Config, tokens: u32) -> (OutboundQueue, Vec<Handle>) {
    let queue = OutboundQueue::new(config);
    let handles: Vec<Handle> = (0..tokens).map(|index| Handle::new(index, 1)).collect();
    for handle in &handles {
        queue.open(*handle, "p");
    }
    (queue, handles)
}

fn next(queue: &OutboundQueue) -> Option<(Option<u32>, String)> {
    queue.pop(show).map(|(popped, text)| (popped.handle.map(Handle::index), text))
}

fn rest(queue: &OutboundQueue) -> Vec<String> {
    std::iter::from_fn(|| next(queue)).map(|(_, text)| text).collect()
}

#[test]
fn full_of_one_token_the_newest_value_replaces_the_one_that_waits() {
    let (queue, calls) = queue(Config { capacity: 2, ..Config::default() }, 3);
    assert_eq!(queue.progress(calls[0], 1.0, None, "a"), Pushed::Queued);
    assert_eq!(queue.progress(calls[1], 1.0, None, "b"), Pushed::Queued);
    for value in 2..100 {
        assert_eq!(queue.progress(calls[0], f64::from(value), None, "a"), Pushed::Coalesced);
    }
    assert_eq!(queue.occupancy().0, 2);
    assert_eq!(rest(&queue), ["=99:a", "=1:b"], "in its old place");
    assert_eq!(queue.take_lost(), None, "what was superseded is no loss");
}

#[test]
fn full_under_the_adjacent_policy_only_the_newest_message_is_replaced() {
    let config = Config { capacity: 3, coalesce: Coalesce::Adjacent, ..Config::default() };
    let (queue, calls) = queue(config, 4);
    assert_eq!(queue.progress(calls[0], 1.0, None, ""), Pushed::Queued);
    assert_eq!(queue.progress(calls[0], 2.0, None, ""), Pushed::Coalesced);
    assert_eq!(queue.progress(calls[1], 1.0, None, ""), Pushed::Queued);
    assert_eq!(queue.progress(calls[0], 3.0, None, ""), Pushed::Queued, "another one stands between");
    assert_eq!(queue.progress(calls[2], 1.0, None, ""), Pushed::Evicted(1));
    assert_eq!(queue.progress(calls[3], 1.0, None, ""), Pushed::Evicted(1));
    assert_eq!(rest(&queue), ["=3:", "=1:", "=1:"]);
    assert_eq!(queue.take_lost(), Some(Lost { progress: 2, topics: vec![] }));
}

#[test]
fn full_of_other_tokens_the_oldest_progress_is_dropped_and_counted() {
    let (queue, calls) = queue(Config { capacity: 3, ..Config::default() }, 5);
    let pushed: Vec<Pushed> = calls.iter().map(|call| queue.progress(*call, 1.0, None, "x")).collect();
    assert_eq!(pushed[..3], [Pushed::Queued; 3]);
    assert_eq!(pushed[3..], [Pushed::Evicted(1); 2]);
    let order: Vec<Option<u32>> = std::iter::from_fn(|| next(&queue)).map(|(index, _)| index).collect();
    assert_eq!(order, [Some(2), Some(3), Some(4)]);
    assert_eq!(queue.take_lost(), Some(Lost { progress: 2, topics: vec![] }));
    assert_eq!(queue.take_lost(), None, "taken is taken");
}

#[test]
fn full_of_bytes_the_oldest_leave_until_the_new_one_fits_and_a_token_keeps_one_place() {
    let (queue, calls) = queue(Config { capacity: 8, bytes: 10, ..Config::default() }, 4);
    for call in &calls[..3] {
        assert_eq!(queue.progress(*call, 1.0, None, "abc"), Pushed::Queued);
    }
    assert_eq!(queue.progress(calls[3], 1.0, None, "abcdefgh"), Pushed::Evicted(3));
    assert_eq!(queue.occupancy().2.0, 8);
    assert_eq!(queue.progress(calls[0], 2.0, None, "ab"), Pushed::Queued);
    // The newer text of the same token is longer than what is left: others go for it, not a second place.
    assert_eq!(queue.progress(calls[0], 3.0, None, "abcdef"), Pushed::Evicted(1));
    assert_eq!(queue.occupancy(), (1, 0, (6, 0)));
    assert_eq!(queue.progress(calls[1], 2.0, None, "a text over the whole budget"), Pushed::Queued);
    assert_eq!(rest(&queue), ["=3:abcdef", "=2:"], "a message too long is left out, the value goes");
}

#[test]
fn full_of_notices_the_topics_are_marked_for_refetch_until_a_consumer_takes_the_mark() {
    let (queue, calls) = queue(Config { capacity: 2, ..Config::default() }, 3);
    let topics = [Handle::new(3, 1), Handle::new(4, 1)];
    topics.iter().for_each(|topic| queue.open_topic(*topic));
    assert_eq!(queue.notice(topics[0], "n1"), Pushed::Queued);
    assert_eq!(queue.notice(topics[0], "n2"), Pushed::Coalesced, "a topic's newer notice says the same");
    assert_eq!(queue.notice(topics[1], "m1"), Pushed::Queued);
    for call in &calls {
        assert_eq!(queue.progress(*call, 1.0, None, ""), Pushed::Evicted(1));
    }
    // Later notices, pops and progress do not take the mark away.
    assert_eq!(queue.notice(topics[0], "n3"), Pushed::Evicted(1));
    assert_eq!(rest(&queue), ["=1:", "n3"]);
    assert_eq!(queue.take_lost(), Some(Lost { progress: 2, topics: topics.to_vec() }));
    assert_eq!(queue.take_lost(), None);
    let huge = "x".repeat(300 << 10);
    assert_eq!(queue.notice(topics[1], &huge), Pushed::Evicted(1), "too long for the budget: refetch at once");
    assert_eq!(queue.take_lost(), Some(Lost { progress: 0, topics: vec![topics[1]] }));
}

#[test]
fn the_loss_of_a_topic_that_was_closed_is_nobodys() {
    let queue = OutboundQueue::new(Config { capacity: 1, ..Config::default() });
    let topic = Handle::new(0, 1);
    queue.open_topic(topic);
    queue.open(Handle::new(1, 1), "p");
    assert_eq!(queue.notice(topic, "n"), Pushed::Queued);
    assert_eq!(queue.progress(Handle::new(1, 1), 1.0, None, ""), Pushed::Evicted(1));
    queue.purge(topic);
    assert_eq!(queue.take_lost(), None);
}

#[test]
fn a_stream_takes_only_its_own_kind() {
    let (queue, calls) = queue(Config::default(), 1);
    let topic = Handle::new(1, 1);
    queue.open_topic(topic);
    assert_eq!(queue.notice(calls[0], "n"), Pushed::Closed);
    assert_eq!(queue.progress(topic, 1.0, None, ""), Pushed::Closed);
    assert!(queue.is_empty());
}

#[test]
fn full_of_finals_a_final_waits_with_its_permit_and_leaves_later() {
    let (queue, calls) = queue(Config { finals: 2, ..Config::default() }, 5);
    for call in &calls {
        queue.finish(permit(*call), format!("final {}", call.index()).into_bytes());
    }
    assert!(!queue.can_read(false), "no input while a final waits for room");
    assert_eq!(queue.occupancy().1, 5, "what waits for room is counted");
    assert_eq!(queue.progress(calls[4], 1.0, None, ""), Pushed::Closed, "closed although it still waits");
    let mut seen = Vec::new();
    while let Some((popped, text)) = queue.pop(show) {
        assert!(popped.last);
        seen.push(text);
    }
    assert_eq!(seen, ["final 0", "final 1", "final 2", "final 3", "final 4"], "each once, in order");
    assert!(queue.can_read(false));
}

#[test]
fn full_of_kept_bytes_a_final_waits_and_lossless_progress_does_not_overtake_it() {
    let config = Config { kept_bytes: 10, ..Config::default() };
    let (queue, calls) = queue(config, 3);
    let (bell, waker) = Bell::new();
    let cx = Context::from_waker(&waker);
    assert_eq!(queue.poll_lossless(&cx, calls[0], b"12345678"), Poll::Ready(()));
    queue.finish(permit(calls[1]), b"a final larger than the budget".to_vec());
    assert!(!queue.can_read(false));
    assert_eq!(queue.poll_lossless(&cx, calls[2], b"x"), Poll::Pending, "it would keep the final out for ever");
    assert_eq!(next(&queue), Some((Some(0), "12345678".into())));
    assert_eq!(bell.rings(), 0, "the room is the final's");
    assert_eq!(next(&queue), Some((Some(1), "a final larger than the budget".into())));
    assert_eq!(bell.rings(), 1);
    assert_eq!(queue.poll_lossless(&cx, calls[2], b"x"), Poll::Ready(()));
}

#[test]
fn full_of_lossless_progress_each_producer_waits_and_a_pop_wakes_it() {
    let (queue, calls) = queue(Config { lossless: 1, ..Config::default() }, 3);
    let (bells, wakers): (Vec<_>, Vec<_>) = (0..4).map(|_| Bell::new()).unzip();
    let poll = |who: usize, call: Handle, text: &str| {
        queue.poll_lossless(&Context::from_waker(&wakers[who]), call, text.as_bytes())
    };
    assert_eq!(poll(0, calls[0], "a1"), Poll::Ready(()));
    assert_eq!(poll(0, calls[0], "a2"), Poll::Pending);
    assert_eq!(poll(1, calls[1], "b1"), Poll::Pending);
    // Two tasks of one request: neither may take the other's place among the waiting.
    assert_eq!(poll(2, calls[2], "c1"), Poll::Pending);
    assert_eq!(poll(3, calls[2], "c2"), Poll::Pending);
    assert_eq!(poll(3, calls[2], "c2"), Poll::Pending, "polled again, registered once");
    assert_eq!(next(&queue), Some((Some(0), "a1".into())));
    assert_eq!(bells.iter().map(|bell| bell.rings()).collect::<Vec<_>>(), [1, 1, 1, 1]);
    assert_eq!(poll(0, calls[0], "a2"), Poll::Ready(()));
    assert_eq!(poll(1, calls[1], "b1"), Poll::Pending);
    queue.purge(calls[1]);
    assert_eq!(bells[1].rings(), 2, "a cancelled producer does not wait for room");
    assert_eq!(poll(1, calls[1], "b1"), Poll::Ready(()), "dropped: its request is gone");
    // The final of its request too, although nobody pops any more.
    assert_eq!(poll(2, calls[2], "c1"), Poll::Pending);
    let before = bells[2].rings();
    queue.finish(permit(calls[2]), b"c".to_vec());
    assert_eq!(bells[2].rings(), before + 1, "nothing follows its final: it must not wait for room");
    assert_eq!(poll(2, calls[2], "c1"), Poll::Ready(()));
    assert_eq!(rest(&queue), ["a2", "c"]);
}

#[test]
fn full_of_lossless_bytes_progress_waits_and_large_ones_have_the_same_chance() {
    let (queue, calls) = queue(Config { lossless_bytes: 4, ..Config::default() }, 1);
    let (bell, waker) = Bell::new();
    let poll = |text: &str| queue.poll_lossless(&Context::from_waker(&waker), calls[0], text.as_bytes());
    assert_eq!(poll("abc"), Poll::Ready(()));
    assert_eq!(poll("larger"), Poll::Ready(()), "there was room for a small one");
    assert_eq!(poll("d"), Poll::Pending);
    assert_eq!(next(&queue), Some((Some(0), "abc".into())));
    assert_eq!(poll("d"), Poll::Pending);
    assert_eq!(bell.rings(), 0);
    assert_eq!(next(&queue), Some((Some(0), "larger".into())));
    assert_eq!(bell.rings(), 1);
    assert_eq!(poll("d"), Poll::Ready(()));
}

#[test]
fn at_the_cap_of_requests_nothing_is_read_while_a_final_waits_to_leave() {
    let (queue, calls) = queue(Config::default(), 2);
    assert!(queue.can_read(true), "no final frees a place");
    queue.finish(permit(calls[0]), b"a".to_vec());
    assert!(queue.can_read(false) && !queue.can_read(true));
    assert_eq!(rest(&queue), ["a"]);
    assert!(queue.can_read(true));
}

#[test]
fn full_of_refusals_reading_stops_until_one_has_left() {
    let (queue, _) = queue(Config { refusals: 2, ..Config::default() }, 1);
    assert!(queue.can_read(false));
    assert!(queue.refuse(b"r1".to_vec()));
    assert!(queue.can_read(false));
    assert!(queue.refuse(b"r2".to_vec()));
    assert!(!queue.can_read(false));
    assert!(!queue.refuse(b"r3".to_vec()));
    let popped = queue.pop(show);
    assert_eq!(popped, Some((Popped { handle: None, last: false }, "r1".into())));
    assert!(queue.can_read(false));
}

#[test]
fn capacities_of_zero_are_taken_as_one() {
    let config = Config { capacity: 0, finals: 0, lossless: 0, refusals: 0, ..Config::default() };
    let (queue, calls) = queue(config, 2);
    assert!(queue.can_read(false));
    assert!(queue.refuse(b"refusal".to_vec()));
    assert_eq!(queue.progress(calls[0], 1.0, None, ""), Pushed::Queued);
    let (_, waker) = Bell::new();
    assert_eq!(queue.poll_lossless(&Context::from_waker(&waker), calls[0], b"kept"), Poll::Ready(()));
    queue.finish(permit(calls[0]), b"final".to_vec());
    assert_eq!(rest(&queue), ["refusal", "=1:", "kept", "final"]);
}

#[test]
fn a_handle_that_was_never_opened_takes_nothing() {
    let mut buffer = Outbound::new(Config::default());
    buffer.open(Handle::new(1, 1), "");
    assert_eq!(buffer.progress(Handle::new(0, 0), 1.0, None, ""), Pushed::Closed);
    assert!(!buffer.is_open(Handle::new(0, 0)));
    buffer.open(Handle::new(2, 0), "");
    assert_eq!(buffer.progress(Handle::new(2, 0), 1.0, None, ""), Pushed::Closed, "generations count from 1");
    assert!(buffer.is_empty());
}

#[test]
fn a_batch_gives_each_message_the_prefix_of_its_own_request() {
    let (queue, mut batch) = (OutboundQueue::new(Config::default()), Batch::default());
    let mut round = |first: Handle, prefixes: [&str; 2]| {
        let calls = [first, Handle::new(5, 1)];
        for (call, prefix) in calls.iter().zip(prefixes) {
            queue.open(*call, prefix);
            assert_eq!(queue.progress(*call, 1.0, None, "m"), Pushed::Queued);
        }
        queue.pop_into(&mut batch, 32, usize::MAX);
        let mut seen = Vec::new();
        batch.drain(|_, item| match item {
            Item::Progress { prefix, .. } => seen.push(prefix.to_owned()),
            Item::Text(_) => panic!("progress"),
        });
        queue.purge(calls[0]);
        assert_eq!(seen, prefixes);
    };
    round(Handle::new(0, 1), ["a", "b"]);
    round(Handle::new(0, 2), ["longer", "b"]);
}

#[test]
fn a_batch_makes_room_for_finals_and_producers_that_wait() {
    let (queue, calls) = queue(Config { finals: 1, lossless: 1, ..Config::default() }, 3);
    let (bell, waker) = Bell::new();
    let cx = Context::from_waker(&waker);
    assert_eq!(queue.poll_lossless(&cx, calls[2], b"l1"), Poll::Ready(()));
    assert_eq!(queue.poll_lossless(&cx, calls[2], b"l2"), Poll::Pending);
    queue.finish(permit(calls[0]), b"f0".to_vec());
    queue.finish(permit(calls[1]), b"f1".to_vec());
    let mut batch = Batch::default();
    queue.pop_into(&mut batch, 32, usize::MAX);
    assert_eq!(batch.len(), 2);
    assert_eq!(bell.rings(), 1, "the final that waited found room, and so may the producer");
    assert!(queue.can_read(false));
    assert_eq!(rest(&queue), ["f1"]);
}
