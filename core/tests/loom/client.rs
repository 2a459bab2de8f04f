//! A client between its loop and its callers: the loop sleeps through no call, a caller through no end, and an answer and a
//! cancellation have one winner.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use steady_core::backoff::Jitter;
use steady_core::client::Transport;
use steady_core::id::ClientId;
use steady_core::kernel::client::{CallError, Caller, ClientConfig, Driver, Request, Turn};

use super::ports::Still;
use super::shim::{ALL, block_on, models, preemptions, spawn};

models! {
    the_last_handle_that_goes_while_the_loop_parks_is_heard: ALL, kills ["loop-registers-late"];
    a_call_that_comes_while_the_loop_parks_is_heard: preemptions(4), kills ["loop-registers-late"];
    an_answer_wakes_its_caller: ALL, kills ["wake-no-caller"];
    an_answer_and_a_cancellation_of_a_call_have_one_end: preemptions(2), kills ["wake-no-caller"];
}

const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

/// The loop as a future. It ends when nobody uses the client any more.
struct Loop(Driver<Still>);

impl Future for Loop {
    type Output = Turn;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn> {
        self.0.poll(cx)
    }
}

fn client(still: &Still) -> (Loop, Caller) {
    let config = ClientConfig { probe: None, ..ClientConfig::new(Transport::Stdio) };
    let (mut driver, caller) =
        Driver::new(config, still.ports().timer, Jitter::seeded(ClientId::new(1), 0)).expect("fine settings");
    driver.attach(still.clone());
    (Loop(driver), caller)
}

fn request() -> Request {
    Request::raw("m", "{}")
}

/// What the server reads: how many requests, how many cancellations.
fn heard(still: &Still) -> (usize, usize) {
    let lines = still.written();
    let cancelled = lines.iter().filter(|line| line.contains("notifications/cancelled")).count();
    (lines.len() - cancelled, cancelled)
}

/// A loop that has sent the one request and has its answer in hand.
fn answered(still: &Still, driver: &mut Loop) {
    let polled = Pin::new(&mut *driver).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "there is a call");
    assert_eq!(heard(still), (1, 0));
    still.send(ANSWER);
}

fn the_last_handle_that_goes_while_the_loop_parks_is_heard() {
    let still = Still::default();
    let (driver, caller) = client(&still);
    let user = spawn(move || drop(caller));
    let turn = block_on(driver);
    assert!(matches!(turn, Turn::Done), "{turn:?}");
    user.join().expect("no panic");
}

fn a_call_that_comes_while_the_loop_parks_is_heard() {
    let still = Still::default();
    let (driver, caller) = client(&still);
    let user = spawn(move || {
        drop(caller.call(request()));
        drop(caller);
    });
    let turn = block_on(driver);
    assert!(matches!(turn, Turn::Done), "{turn:?}");
    user.join().expect("no panic");
    let heard = heard(&still);
    assert!(matches!(heard, (0, 0) | (1, 1)), "CALL-5: {heard:?}");
}

fn an_answer_wakes_its_caller() {
    let still = Still::default();
    let (mut driver, caller) = client(&still);
    let pending = caller.call(request());
    answered(&still, &mut driver);
    let looped = spawn(move || block_on(driver));
    let end = block_on(pending);
    assert!(end.is_ok(), "{end:?}");
    drop(caller);
    looped.join().expect("no panic");
    assert_eq!(heard(&still), (0, 0));
}

fn an_answer_and_a_cancellation_of_a_call_have_one_end() {
    let still = Still::default();
    let (mut driver, caller) = client(&still);
    let pending = caller.call(request());
    let canceller = pending.canceller();
    answered(&still, &mut driver);
    let looped = spawn(move || block_on(driver));
    let cancelled = spawn(move || canceller.cancel("enough"));
    let end = block_on(pending);
    cancelled.join().expect("no panic");
    let stats = caller.stats();
    assert_eq!(stats.answered + stats.cancelled, 1, "CALL-1: {stats:?}");
    let gave_up = matches!(end, Err(CallError::Cancelled { .. }));
    assert_eq!((end.is_ok(), gave_up), (stats.answered == 1, stats.cancelled == 1), "{end:?} {stats:?}");
    drop(caller);
    looped.join().expect("no panic");
    assert_eq!(heard(&still), (0, usize::from(gave_up)), "CALL-5");
}
