//! A writer that answers, or goes without, and a caller who blocks or polls.

use super::reply::reply;
use super::shim::{ALL, block_on, models, spawn};

models! {
    a_caller_that_blocks_hears_the_answer: ALL, kills ["reply-park-outside-lock"];
    a_caller_that_polls_hears_the_answer: ALL, kills ["reply-look-then-register"];
    a_caller_that_blocks_hears_that_there_is_none: ALL, kills ["reply-ends-in-silence", "reply-park-outside-lock"];
    a_caller_that_polls_hears_that_there_is_none: ALL, kills ["reply-ends-in-silence", "reply-look-then-register"];
    a_caller_may_be_gone: ALL, kills ["reply-park-outside-lock"];
}

fn a_caller_that_blocks_hears_the_answer() {
    let (sender, receiver) = reply();
    let writer = spawn(move || sender.send(7));
    assert_eq!(receiver.wait(), Some(7));
    writer.join().expect("no panic");
}

fn a_caller_that_polls_hears_the_answer() {
    let (sender, receiver) = reply();
    let writer = spawn(move || sender.send(7));
    assert_eq!(block_on(receiver), Some(7));
    writer.join().expect("no panic");
}

fn a_caller_that_blocks_hears_that_there_is_none() {
    let (sender, receiver) = reply::<u8>();
    let writer = spawn(move || drop(sender));
    assert_eq!(receiver.wait(), None);
    writer.join().expect("no panic");
}

fn a_caller_that_polls_hears_that_there_is_none() {
    let (sender, receiver) = reply::<u8>();
    let writer = spawn(move || drop(sender));
    assert_eq!(block_on(receiver), None);
    writer.join().expect("no panic");
}

/// The answer of one that went away disturbs nobody else's.
fn a_caller_may_be_gone() {
    let (sender, receiver) = reply();
    let (other, others) = reply();
    let writer = spawn(move || {
        sender.send(7);
        other.send(8);
    });
    drop(receiver);
    assert_eq!(others.wait(), Some(8));
    writer.join().expect("no panic");
}
