//! A client between its loop and its callers: the loop sleeps through no call, a caller through no end; an answer, a timeout
//! and a cancellation have one winner; and a call that starts while its client ends has an end too.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use steady_core::backoff::Jitter;
use steady_core::client::Transport;
use steady_core::id::ClientId;
use steady_core::kernel::client::{CallError, Caller, ClientConfig, Driver, LinkEnd, Request, Turn};
use steady_core::time::Instant;

use super::ports::Still;
use super::shim::{ALL, block_on, models, preemptions, spawn};

models! {
    the_last_handle_that_goes_while_the_loop_parks_is_heard: ALL, kills ["loop-registers-late"];
    a_call_that_comes_while_the_loop_parks_is_heard: preemptions(4), kills ["loop-registers-late"];
    an_answer_wakes_its_caller: ALL, kills ["wake-no-caller"];
    an_answer_and_a_cancellation_of_a_call_have_one_end: preemptions(2), kills ["wake-no-caller"];
    a_timeout_and_a_cancellation_of_a_call_have_one_end: preemptions(2), kills ["wake-no-caller"];
    a_call_that_starts_while_the_link_is_lost_has_an_end: ALL, kills ["start-checks-early"];
    a_call_that_starts_while_the_link_is_replaced_goes_to_the_next: preemptions(4), kills ["loop-registers-late"];
    a_call_that_starts_while_the_client_closes_has_an_end: preemptions(2), kills ["start-checks-early"];
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

fn poll(driver: &mut Loop) -> Poll<Turn> {
    Pin::new(driver).poll(&mut Context::from_waker(Waker::noop()))
}

/// A loop that has sent the one request.
fn sent(still: &Still, driver: &mut Loop) {
    assert!(poll(driver).is_pending(), "there is a call");
    assert_eq!(heard(still), (1, 0));
}

/// A loop that has sent the one request and has its answer in hand.
fn answered(still: &Still, driver: &mut Loop) {
    sent(still, driver);
    still.send(ANSWER);
}

/// A loop whose link has ended.
fn lost(driver: &mut Loop, again: bool) {
    let turn = poll(driver);
    assert!(matches!(turn, Poll::Ready(Turn::Lost(LinkEnd::Closed))), "{turn:?}");
    driver.0.detach("gone".to_owned(), String::new(), again);
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

fn a_timeout_and_a_cancellation_of_a_call_have_one_end() {
    let still = Still::default();
    let (mut driver, caller) = client(&still);
    let pending = caller.call(request());
    let canceller = pending.canceller();
    sent(&still, &mut driver);
    still.set_clock(Instant::from_millis(30_000));
    let looped = spawn(move || block_on(driver));
    let cancelled = spawn(move || canceller.cancel("enough"));
    let end = block_on(pending);
    cancelled.join().expect("no panic");
    let stats = caller.stats();
    assert_eq!(stats.idle_timeouts + stats.cancelled, 1, "CALL-1: {stats:?}");
    let gave_up = matches!(end, Err(CallError::Cancelled { .. }));
    let late = matches!(end, Err(CallError::IdleTimeout { .. }));
    assert_eq!((late, gave_up), (stats.idle_timeouts == 1, stats.cancelled == 1), "{end:?} {stats:?}");
    drop(caller);
    looped.join().expect("no panic");
    assert_eq!(heard(&still), (0, 1), "CALL-5: told once, whoever decided it");
}

fn a_call_that_starts_while_the_link_is_lost_has_an_end() {
    let still = Still::default();
    let (mut driver, caller) = client(&still);
    still.close();
    let losing = spawn(move || lost(&mut driver, false));
    let end = block_on(caller.call(request()));
    losing.join().expect("no panic");
    let closed = matches!(end, Err(CallError::Closed(_)));
    let stats = caller.stats();
    assert_eq!((closed, !closed), (stats.refused == 1, stats.never_sent == 1), "{end:?} {stats:?}");
    assert!(closed || matches!(end, Err(CallError::NeverSent { .. })), "{end:?}");
    assert_eq!((heard(&still), stats.in_flight), ((0, 0), 0));
}

fn a_call_that_starts_while_the_link_is_replaced_goes_to_the_next() {
    let (first, next) = (Still::default(), Still::default());
    let (mut driver, caller) = client(&first);
    first.close();
    let link = next.clone();
    let looped = spawn(move || {
        lost(&mut driver, true);
        driver.0.attach(link);
        block_on(driver)
    });
    drop(caller.call(request()));
    drop(caller);
    let turn = looped.join().expect("no panic");
    assert!(matches!(turn, Turn::Done), "{turn:?}");
    let heard = (heard(&first), heard(&next));
    assert!(matches!(heard, ((0, 0), (0, 0) | (1, 1))), "CALL-5: {heard:?}");
}

fn a_call_that_starts_while_the_client_closes_has_an_end() {
    let still = Still::default();
    let (driver, caller) = client(&still);
    let closer = caller.clone();
    let closing = spawn(move || closer.close());
    let looped = spawn(move || block_on(driver));
    let end = block_on(caller.call(request()));
    let ended = matches!(end, Err(CallError::Closed(_) | CallError::Cancelled { .. } | CallError::NeverSent { .. }));
    assert!(ended, "{end:?}");
    closing.join().expect("no panic");
    let turn = looped.join().expect("no panic");
    assert!(matches!(turn, Turn::Done), "{turn:?}");
    let heard = heard(&still);
    assert!(matches!(heard, (0, 0) | (1, 1)), "CALL-5: {heard:?}");
}
