//! What a client counts, and how many writes its messages cost.

use super::{Client, Pending, answer, call, config, end};

fn writes(client: &Client) -> usize {
    client.world.lock().writes
}

#[test]
fn what_waits_for_the_link_at_once_leaves_in_one_write_and_a_lone_call_at_once() {
    let mut client = Client::new(config());
    let _many: Vec<Pending> = (0..100).map(|_| client.caller.call(call())).collect();
    assert_eq!(client.heard().len(), 100);
    assert_eq!(writes(&client), 1, "one batch");
    let lone = client.caller.call(call());
    client.run();
    assert_eq!(writes(&client), 2, "it does not wait for more");
    drop(lone);
    client.run();
    assert_eq!(writes(&client), 3, "nor does its cancellation");
}

#[test]
fn the_mark_is_the_most_that_waited_for_the_link_at_once() {
    let mut client = Client::new(config());
    let first = client.caller.call(call());
    client.run();
    assert_eq!(client.caller.stats().queue_high, 1);
    client.world.allow(Some(0));
    let _taken_for_the_next_write = client.caller.call(call());
    client.run();
    let behind: Vec<Pending> = (0..7).map(|_| client.caller.call(call())).collect();
    // Its cancellation waits, too.
    drop(first);
    assert_eq!(client.caller.stats().queue_high, 8);
    // What was not sent leaves no trace.
    drop(behind);
    client.world.allow(None);
    assert_eq!(client.heard(), ["1 tools/call", "2 tools/call", "cancelled 1"]);
    assert_eq!(client.caller.stats().queue_high, 8, "a mark stays");
}

#[test]
fn each_link_after_the_first_is_a_restart() {
    let mut client = Client::new(config());
    assert_eq!(client.caller.stats().restarts, 0);
    for restarts in 1..4 {
        client.lose(true);
        assert_eq!(client.caller.stats().restarts, restarts);
    }
    let mut pending = client.caller.call(call());
    client.run();
    client.say(&answer(1));
    assert!(matches!(end(&mut pending), Some(Ok(_))));
    client.lose(false);
    assert_eq!(client.caller.stats().restarts, 3, "there is no other link");
}
