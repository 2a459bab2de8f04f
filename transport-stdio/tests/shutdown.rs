//! A server that is told to end by a signal: what runs may finish, the rest is refused, and it always ends.
#![cfg(unix)]

mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use rustix::process::Signal;
use support::{GUARD, Peer, call};

/// Bytes in a pipe that nearly fill it: batches do not share its pages, so it is full before its 64 KiB.
const PIPE_FULL: u64 = 48 << 10;

/// A call whose handler has reported once.
fn running(peer: &mut Peer, tool: &str) {
    peer.send(&call(1, tool, "{}"));
    assert!(peer.line().contains("progress"), "the handler runs");
}

#[test]
fn sigterm_ends_an_idle_server_in_order() {
    let mut peer = Peer::spawn();
    peer.ping(1);
    peer.signal(Signal::TERM);
    assert_eq!(peer.exit().code(), Some(0));
    assert_eq!(peer.rest(), [""; 0]);
}

#[test]
fn sigterm_lets_a_call_finish_and_refuses_new_ones() {
    // The call waits for the order to end, however long it takes to come, and then a little more.
    let mut peer = Peer::spawn_with(&["patient"]);
    running(&mut peer, "finish");
    peer.signal(Signal::TERM);
    let mut refused = false;
    for id in 2.. {
        peer.send(&call(id, "echo", r#"{"text":"pong"}"#));
        let answers = peer.until_answer(&id.to_string());
        let answer = answers.last().expect("one");
        if answer.contains("-31001") {
            assert!(answer.contains("shutting down"), "{answer}");
            refused = true;
            break;
        }
        assert!(answer.contains("pong"), "it serves until the signal has arrived: {answer}");
    }
    assert!(refused);
    assert_eq!(peer.exit().code(), Some(0));
    assert!(peer.rest().iter().any(|line| line.contains("finished")));
}

#[test]
fn sigterm_answers_a_call_that_does_not_stop_with_an_error() {
    for tool in ["ignore", "block"] {
        let mut peer = Peer::spawn();
        running(&mut peer, tool);
        peer.signal(Signal::TERM);
        assert_eq!(peer.exit().code(), Some(0));
        let rest = peer.rest();
        assert_eq!(rest.len(), 1, "{rest:?}");
        assert!(rest[0].contains("\"id\":1,") && rest[0].contains("-31001"), "rule C8: {rest:?}");
    }
}

#[test]
fn sigterm_ends_a_server_whose_client_reads_nothing() {
    let mut child = support::fixture().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("piped");
    let output = child.stdout.take().expect("piped");
    std::io::Write::write_all(&mut input, (call(1, "flood", "{}") + "\n").as_bytes()).expect("written");
    let start = std::time::Instant::now();
    while rustix::io::ioctl_fionread(&output).expect("a pipe") < PIPE_FULL {
        assert!(start.elapsed() < GUARD, "the pipe does not fill: {:?}", rustix::io::ioctl_fionread(&output));
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).expect("a child of ours");
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        assert!(start.elapsed() < GUARD, "the server does not exit");
        std::thread::yield_now();
    };
    assert!(status.code().is_some(), "it ended by itself: {status}");
    drop((input, output));
}

#[test]
fn a_second_sigterm_ends_what_runs_at_once() {
    let mut peer = Peer::spawn_with(&["patient"]);
    running(&mut peer, "ignore");
    peer.signal(Signal::TERM);
    let mut id = 2;
    // Until the first one is noticed: signals of a kind that wait are one.
    while peer.is_alive() {
        peer.send(&call(id, "echo", "{}"));
        if peer.until_answer(&id.to_string()).last().is_some_and(|line| line.contains("-31001")) {
            break;
        }
        id += 1;
    }
    assert!(peer.is_alive(), "its handler has an hour");
    peer.signal(Signal::TERM);
    assert_eq!(peer.exit().code(), Some(0));
    assert!(peer.rest().iter().any(|line| line.contains("\"id\":1,") && line.contains("-31001")));
}

#[test]
fn sigterm_ends_a_server_whose_handler_blocks_the_connection() {
    let mut peer = Peer::spawn();
    running(&mut peer, "hog");
    peer.signal(Signal::TERM);
    assert_eq!(peer.exit().code(), Some(1), "nothing could be sent any more");
}

#[test]
fn other_signals_and_choices() {
    for (arguments, signal, code) in [
        (&["no-signals"][..], Signal::TERM, None),
        (&[][..], Signal::INT, None),
        (&["interrupt"][..], Signal::INT, Some(0)),
        (&["interrupt"][..], Signal::TERM, Some(0)),
    ] {
        let mut peer = Peer::spawn_with(arguments);
        peer.ping(1);
        peer.signal(signal);
        let status = peer.exit();
        assert_eq!(status.code(), code, "{arguments:?}");
        assert_eq!(status.signal(), if code.is_none() { Some(signal.as_raw()) } else { None }, "{arguments:?}");
    }
}

#[test]
fn a_program_that_cleans_up_after_it_served_is_left_alone() {
    let mut peer = Peer::spawn_with(&["clean-up"]);
    peer.ping(1);
    peer.signal(Signal::TERM);
    // Its clean-up outlasts every limit of its server.
    assert_eq!(peer.exit().code(), Some(0));
}

#[test]
fn limits_without_end_are_no_panic() {
    let mut peer = Peer::spawn_with(&["endless"]);
    peer.ping(1);
    peer.signal(Signal::TERM);
    assert_eq!(peer.exit().code(), Some(0));
}
