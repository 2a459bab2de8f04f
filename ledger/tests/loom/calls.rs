//! Callers that push, a writer that takes, and someone who closes.

use std::time::Duration;

use super::queue::{Queue, Refused};
use super::shim::{ALL, Arc, models, preemptions, spawn};

models! {
    what_is_taken_in_comes_out: ALL, kills ["queue-park-outside-lock"];
    a_writer_with_patience_hears_of_what_comes: ALL, kills ["queue-park-outside-lock"];
    a_close_loses_nothing_that_was_taken_in: ALL, kills ["queue-look-then-push", "queue-end-at-close"];
    a_close_ends_a_writer_that_waits: ALL, kills ["queue-close-wakes-nobody", "queue-park-outside-lock"];
    callers_share_the_room: preemptions(2), kills ["queue-look-then-push"];
}

/// Takes until the end, and returns what came.
fn take_all(queue: &Queue<usize>) -> Vec<usize> {
    let mut all = Vec::new();
    while let Some(items) = queue.take(2) {
        assert!(!items.is_empty(), "a batch is never empty");
        all.extend(items);
    }
    assert_eq!(queue.take(2), None, "the end stays the end");
    all
}

fn what_is_taken_in_comes_out() {
    let queue = Arc::new(Queue::new(2));
    let caller = {
        let queue = Arc::clone(&queue);
        spawn(move || (0..2).for_each(|item| assert_eq!(queue.push(item), Ok(()))))
    };
    let mut came = Vec::new();
    while came.len() < 2 {
        came.extend(queue.take(2).expect("nobody closes it"));
    }
    assert_eq!(came, [0, 1], "in order, and once");
    caller.join().expect("no panic");
}

/// Under loom, patience does not end by itself: only what comes ends the wait.
fn a_writer_with_patience_hears_of_what_comes() {
    let queue = Arc::new(Queue::new(2));
    let caller = {
        let queue = Arc::clone(&queue);
        spawn(move || (0..2).for_each(|item| assert_eq!(queue.push(item), Ok(()))))
    };
    let mut came = Vec::new();
    while came.len() < 2 {
        came.extend(queue.take_within(2, Duration::from_secs(60)).expect("nobody closes it"));
    }
    assert_eq!(came, [0, 1], "in order, and once");
    caller.join().expect("no panic");
    let (waiting, most) = queue.depth();
    assert!(waiting == 0 && (1..=2).contains(&most));
}

fn a_close_loses_nothing_that_was_taken_in() {
    let queue = Arc::new(Queue::new(2));
    let caller = {
        let queue = Arc::clone(&queue);
        spawn(move || (0..2).filter(|item| queue.push(*item).is_ok()).collect::<Vec<usize>>())
    };
    queue.close();
    // The writer goes on after the close: what is in the queue by now is all there will ever be.
    let came = take_all(&queue);
    assert_eq!(queue.push(9), Err(Refused::Closed));
    let accepted = caller.join().expect("no panic");
    assert_eq!(came, accepted, "what was accepted is what came out");
}

fn a_close_ends_a_writer_that_waits() {
    let queue = Arc::new(Queue::new(1));
    let writer = {
        let queue = Arc::clone(&queue);
        spawn(move || take_all(&queue))
    };
    let accepted = queue.push(7);
    queue.close();
    assert_eq!(accepted, Ok(()));
    assert_eq!(writer.join().expect("no panic"), [7]);
}

fn callers_share_the_room() {
    let queue = Arc::new(Queue::new(1));
    let callers = [0, 1].map(|item| {
        let queue = Arc::clone(&queue);
        spawn(move || queue.push(item).map(|()| item))
    });
    let accepted = callers.map(|caller| caller.join().expect("no panic"));
    let accepted: Vec<usize> = accepted.into_iter().flatten().collect();
    assert_eq!(accepted.len(), 1, "one place, one item");
    queue.close();
    assert_eq!(take_all(&queue), accepted);
}
