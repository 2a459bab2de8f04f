//! Rule C1: a disconnect is a cancellation, whenever it comes. The handler hears of it through its context.

use super::support::{Lab, call, post};

const GONE: &str = "Disconnected";

#[test]
fn before_the_first_byte_of_the_answer() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "wait", "{}"));
    lab.hears(&["started"]);
    drop(peer);
    lab.hears(&[GONE]);
    lab.until(|counters| counters.abandoned == 1 && counters.in_flight == 0 && counters.handlers == 0);
}

#[test]
fn between_two_events() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "says", "{}"));
    lab.hears(&["started"]);
    assert_eq!(peer.head().status, 200);
    assert!(peer.chunk().expect("an event").contains("said"));
    drop(peer);
    lab.hears(&[GONE]);
}

#[test]
fn while_a_write_is_blocked() {
    for close in [true, false] {
        let lab = Lab::start();
        let mut peer = lab.connect();
        peer.post(&call(1, "flood", r#"{"bytes":4000}"#));
        lab.hears(&["started", "blocked"]);
        if close {
            // Unread bytes: the connection is reset.
            drop(peer);
        } else {
            peer.half_close();
        }
        lab.hears(&[GONE]);
    }
}

#[test]
fn after_stray_bytes() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.send(format!("{}stray", post(&call(1, "wait", "{}"))).as_bytes());
    lab.hears(&["started"]);
    peer.send(b"more of it");
    drop(peer);
    lab.hears(&[GONE]);
}

#[test]
fn after_a_pipelined_request() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    let (first, second) = (post(&call(1, "wait", "{}")), post(&call(2, "echo", "{}")));
    peer.send(format!("{first}{second}").as_bytes());
    lab.hears(&["started"]);
    drop(peer);
    lab.hears(&[GONE]);
    lab.ping();
    assert_eq!(lab.service.counters().requests, 2, "the second request of a client that is gone is not served");
}

#[test]
fn after_more_pipelined_bytes_than_are_read_ahead() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "wait", "{}"));
    lab.hears(&["started"]);
    peer.send(&vec![b'x'; 48 << 10]);
    drop(peer);
    lab.hears(&[GONE]);
}

#[test]
fn at_a_half_close_whether_the_client_reads_or_not() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "says", "{}"));
    assert_eq!(peer.head().status, 200);
    peer.chunk().expect("an event");
    peer.half_close();
    lab.hears(&["started", GONE]);
    // The stream ends without its proper end: nothing that looks like an answer.
    assert_eq!(peer.rest(), b"", "no further message after a cancellation (rule C3)");
}

#[test]
fn a_half_close_together_with_the_request_still_gets_an_answer_that_is_there_at_once() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "echo", r#"{"text":"quick"}"#));
    peer.half_close();
    assert!(peer.answer().text().contains("quick"));
    assert_eq!(peer.rest(), b"");
}

#[test]
fn bytes_that_come_early_cancel_nothing() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    let (first, second) = (post(&call(1, "gate", "{}")), post(&call(2, "echo", r#"{"text":"second"}"#)));
    peer.send(first.as_bytes());
    lab.hears(&["started"]);
    peer.send(second.as_bytes());
    lab.ping();
    lab.open_the_gate();
    lab.hears(&["cancelled: false", "dropped"]);
    assert!(peer.answer().text().contains("through the gate"));
    assert!(peer.answer().text().contains("second"));
}

#[test]
fn a_megabyte_that_comes_early_is_read_once_it_is_due() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "gate", "{}"));
    lab.hears(&["started"]);
    let text = "z".repeat(1 << 20);
    let second = post(&call(2, "echo", &format!(r#"{{"text":"{text}"}}"#)));
    let mut writer = peer.stream.try_clone().expect("a handle");
    let sent = std::thread::spawn(move || std::io::Write::write_all(&mut writer, second.as_bytes()));
    lab.ping();
    lab.open_the_gate();
    assert!(peer.answer().text().contains("through the gate"));
    assert!(peer.answer().text().contains(&text));
    sent.join().expect("no panic").expect("all sent");
}
