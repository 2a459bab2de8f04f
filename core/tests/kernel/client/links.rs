//! Links that break in the middle, and servers that answer what they were not asked.

use std::sync::mpsc::channel;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use steady_core::kernel::BadFrame;

use super::*;

/// A hang guard, not a measure.
const GUARD: Duration = Duration::from_secs(60);

/// Runs what may never return.
fn ends<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, over) = channel();
    std::thread::spawn(move || done.send(run()));
    over.recv_timeout(GUARD).expect("it hangs, or panicked")
}

/// A client whose link takes nothing more, with this call on it.
fn broken(pending: Request) -> (Client, Pending) {
    let mut client = Client::new(config());
    let pending = client.caller.call(pending);
    assert_eq!(client.heard(), ["1 tools/call"]);
    client.world.lock().broken = true;
    (client, pending)
}

#[test]
fn a_loop_without_a_link_does_not_spin_on_the_write_that_failed() {
    let turns = ends(|| {
        let (mut client, _pending) = broken(call());
        let _fails = client.caller.call(call());
        // More than one turn reads, so that the write fails before the end is read.
        for _ in 0..65 {
            client.world.feed(Frame::Bad(BadFrame::NotUtf8));
        }
        client.world.feed(Frame::Closed);
        let mut turns = Vec::new();
        let mut driver = client.driver.take().expect("it is there").into_inner();
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..4 {
            turns.push(Pin::new(&mut driver).poll(&mut cx).is_ready());
        }
        turns
    });
    assert_eq!(turns.iter().filter(|ready| **ready).count(), 1, "it is lost once: {turns:?}");
}

#[test]
fn a_stalled_link_that_is_lost_leaves_no_alarm_behind() {
    let mut client = Client::new(ClientConfig { write_stall: Duration::from_secs(1), ..config() });
    client.world.allow(Some(10));
    let _pending = client.caller.call(call());
    client.run();
    assert!(matches!(client.at(1_000), Some(Turn::Lost(LinkEnd::Stalled(_)))));
    // Its transport polls on while it hears how the process ended; an alarm that is past would keep it busy.
    ends(move || {
        let mut driver = client.driver.take().expect("it is there").into_inner();
        assert!(Pin::new(&mut driver).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    });
}

#[test]
fn an_answer_that_comes_after_a_failed_write_counts() {
    let (mut client, mut pending) = broken(call());
    let mut fails = client.caller.call(call());
    assert!(client.run().is_none(), "nothing is there to read yet, and it may still come");
    client.say(&answer(1));
    assert!(matches!(end(&mut pending), Some(Ok(_))));
    client.lose(false);
    assert!(matches!(end(&mut fails), Some(Err(CallError::NeverSent { .. }))));
}

#[test]
fn a_link_that_cannot_be_written_is_lost_soon_although_it_is_not_closed() {
    let (mut client, _pending) = broken(call());
    let _fails = client.caller.call(call());
    assert!(client.run().is_none());
    assert!(client.at(249).is_none());
    assert!(matches!(client.at(250), Some(Turn::Lost(LinkEnd::Failed(_)))));
}

#[test]
fn an_answer_to_what_was_never_sent_is_nobodys() {
    let mut client = Client::new(config());
    client.world.allow(Some(10));
    // This one is taken for a write that does not end; what comes later waits in the machine.
    let _half_out = client.caller.call(call());
    client.run();
    let mut behind = client.caller.call(call());
    client.say(&progress(2, 1.0, "early"));
    client.say(&answer(2));
    assert!(end(&mut behind).is_none() && reports(&mut behind).is_empty());
    assert_eq!(client.caller.stats().calls.unknown_ids, 2);
    client.world.allow(None);
    assert_eq!(client.heard(), ["1 tools/call", "2 tools/call"]);
    client.say(&answer(2));
    assert!(matches!(end(&mut behind), Some(Ok(_))));
}

#[test]
fn an_answer_to_discover_that_is_too_long_is_told_as_such() {
    let mut client = Client::new(ClientConfig { probe: Some(Duration::from_secs(10)), ..config() });
    assert_eq!(client.heard(), ["\"discover-1\" server/discover"]);
    client.world.lock().oversize = Some("discover-1".into());
    client.world.feed(Frame::Bad(BadFrame::TooLong));
    let turn = client.run();
    assert!(matches!(&turn, Some(Turn::Lost(LinkEnd::Incompatible(why))) if why.contains("too long")), "{turn:?}");
}

#[test]
fn a_flush_that_fails_loses_the_link_and_one_that_never_ends_stalls_it() {
    let mut client = Client::new(ClientConfig { write_stall: Duration::from_secs(1), ..config() });
    client.world.lock().slow_flush = true;
    let _pending = client.caller.call(call());
    assert!(client.run().is_none());
    assert!(client.at(999).is_none());
    assert!(matches!(client.at(1_000), Some(Turn::Lost(LinkEnd::Stalled(_)))));

    let mut client = Client::new(config());
    client.world.lock().flush_broken = true;
    let _pending = client.caller.call(call());
    assert!(client.run().is_none(), "what the server said is still read");
    assert!(matches!(client.at(250), Some(Turn::Lost(LinkEnd::Failed(_)))));
}

#[test]
fn what_is_counted_as_sent_was_taken_by_the_link() {
    let mut client = Client::new(ClientConfig { probe: Some(Duration::from_secs(10)), ..config() });
    let probe = client.heard().len();
    let sent = client.caller.stats().sent;
    assert_eq!((probe, sent.messages), (1, 1), "the question to the server is one");
    client.say(&json!({"jsonrpc": "2.0", "id": "discover-1", "result": {"supportedVersions": ["2026-07-28"]}}));
    client.world.allow(Some(10));
    let _pending = client.caller.call(call());
    client.run();
    let half = client.caller.stats().sent;
    assert_eq!((half.messages, half.bytes), (1, sent.bytes + 10));
    client.world.allow(None);
    client.run();
    let whole = client.caller.stats().sent;
    assert_eq!((whole.messages, whole.bytes), (2, half.bytes + client.world.lock().written.len() as u64 - 10));
}

#[test]
fn a_keyed_call_that_was_never_sent_keeps_its_key() {
    let mut client = Client::new(config());
    client.world.allow(Some(0));
    let key = steady_core::idempotency::Key::parse("a-key-of-the-caller-0123456789").expect("a key");
    let mut never = client.caller.call(call().key(key));
    client.run();
    client.lose(false);
    let Some(Err(error)) = end(&mut never) else { panic!("it is over") };
    assert!(matches!(error, CallError::NeverSent { .. }), "{error}");
    assert_eq!(error.verdict(), Some(Verdict::RetrySameKey));
}

#[test]
fn a_reason_is_cut() {
    let mut client = Client::new(config());
    let pending = client.caller.call(call());
    client.run();
    client.world.lines();
    pending.cancel(&"\u{e9}".repeat(1 << 20));
    client.run();
    let line = client.world.lines().concat();
    assert!(line.contains("\u{e9}\u{e9}") && line.len() < 2_000, "{} bytes", line.len());
}

#[test]
fn a_link_that_takes_the_place_of_another_settles_what_was_on_it() {
    for lost in [false, true] {
        let mut client = Client::new(config());
        let mut mutation = client.caller.call(call());
        assert_eq!(client.heard(), ["1 tools/call"]);
        if lost {
            client.world.feed(Frame::Closed);
            client.run();
        }
        let mut driver = client.driver.take().expect("it was there").into_inner().0;
        driver.attach(client.world.link());
        client.driver = Some(Driven::new(Loop(driver)));
        client.run();
        assert!(matches!(end(&mut mutation), Some(Err(CallError::Unknown { .. }))), "lost: {lost}");
    }
}

/// A task that owns the loop.
struct Owner(#[expect(dead_code, reason = "it is only dropped")] std::sync::Mutex<Driver<VirtualLink>>);

impl Wake for Owner {
    fn wake(self: std::sync::Arc<Self>) {}
}

#[test]
fn the_waker_of_a_reader_that_moved_is_dropped_without_its_lock() {
    ends(|| {
        let mut client = Client::new(config());
        let mut listener = listens::listen(&client);
        client.run();
        let driver = client.driver.take().expect("it is there").into_inner().0;
        let waker = Waker::from(std::sync::Arc::new(Owner(std::sync::Mutex::new(driver))));
        assert!(pin!(listener.next()).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        // The last hold on the loop goes with the old waker, and the loop tells the reader that it is gone.
        let _told_later = now(listener.next());
    });
}

#[test]
fn settings_and_filters_that_cannot_be_sent_are_refused_at_once() {
    let world = World::default();
    let bad = ClientConfig { capabilities: "[]".to_owned(), ..config() };
    let refused = Driver::<VirtualLink>::new(bad, world.ports().timer, jitter()).expect_err("no object");
    assert!(matches!(&refused, CallError::Params(why) if why.contains("capabilities")), "{refused}");

    let client = Client::new(ClientConfig { max_request: 1_000, ..config() });
    let filter = format!(r#"{{"resourceSubscriptions":["file:///{}"]}}"#, "x".repeat(1_000));
    let filter = steady_core::subscription::Filter::parse(&filter).expect("a filter");
    let refused = client.caller.listen(filter, Default::default(), jitter()).expect_err("too long");
    assert!(matches!(refused, CallError::RequestTooLong { limit: 1_000, .. }), "{refused}");
}

/// A page of `tools/list` with another one behind it.
fn page(id: u64, filler: usize) -> Value {
    let result = json!({"tools": [], "nextCursor": id.to_string(), "filler": "x".repeat(filler)});
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

#[test]
fn one_clock_runs_over_all_pages_of_tools() {
    let limits = steady_core::deadline::Limits { idle: None, maximum: Some(Duration::from_millis(100)) };
    let mut client = Client::new(ClientConfig { limits, ..config() });
    let caller = client.caller.clone();
    let mut listed = pin!(caller.list_tools());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(listed.as_mut().poll(&mut cx).is_pending());
    client.at(60);
    client.say(&page(1, 0));
    assert!(listed.as_mut().poll(&mut cx).is_pending());
    client.at(99);
    assert!(listed.as_mut().poll(&mut cx).is_pending());
    client.at(100);
    let Poll::Ready(Err(error)) = listed.as_mut().poll(&mut cx) else {
        panic!("the second page has no clock of its own")
    };
    assert!(matches!(error, CallError::MaxTimeout { .. }), "{error}");
}

#[test]
fn pages_of_tools_are_bounded_together() {
    let mut client = Client::new(config());
    let caller = client.caller.clone();
    let mut listed = pin!(caller.list_tools());
    let mut cx = Context::from_waker(Waker::noop());
    for id in 1..=8 {
        let Poll::Pending = listed.as_mut().poll(&mut cx) else { panic!("page {id} is not asked for") };
        client.run();
        client.say(&page(id, 8 << 20));
    }
    let Poll::Ready(Err(error)) = listed.as_mut().poll(&mut cx) else { panic!("64 MiB and more") };
    assert!(matches!(&error, CallError::Answer(why) if why.contains("tools/list")), "{error}");
}
