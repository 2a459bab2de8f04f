//! One connection between its loop, a handler, and a task of the handler's own: complete, cancel and timeout have one
//! winner, and the loop ends when its handlers have.

use std::sync::Arc as Shared;
use std::task::{Context, Poll, Waker};

use steady_core::kernel::{
    BoxFuture, CancelReason, Connection, Context as Request, ServerConfig, ServerCounters, Shutdown,
};
use steady_core::request::Terminal;
use steady_core::time::Instant;

use super::invariants::{req_2_one_right_to_answer, srv_1_a_deadline_answers_one_error};
use super::ports::{CANCEL, Once, REQUEST, Still, Then, config};
use super::shim::{ALL, block_on, models, preemptions, spawn};

models! {
    an_answer_and_a_cancellation_have_one_winner: ALL, kills ["decide-on-a-copy"];
    an_answer_a_cancellation_and_a_deadline_have_one_winner: preemptions(2), kills ["decide-on-a-copy"];
    a_closed_connection_ends_with_the_handler_that_answers: ALL, kills ["waker-before-push", "park-outside-lock"];
    a_closed_connection_ends_with_the_handler_that_waits: ALL, kills ["wake-no-waiter", "waker-before-push"];
    an_order_to_end_is_never_slept_through: ALL, kills ["stage-then-register"];
}

type Served = Connection<Once, Still>;

/// A connection that has read its one request.
fn connection(then: Then) -> (Still, Served, BoxFuture<()>, Request) {
    let (still, service) = (Still::default(), Once::new(then));
    let mut connection = Connection::new(Shared::clone(&service), still.clone(), still.ports(), config());
    still.send(REQUEST);
    turn(&mut connection);
    let (task, context) = (still.task(), service.context());
    (still, connection, task, context)
}

/// A turn that nobody is woken for.
fn turn(connection: &mut Served) -> ServerCounters {
    let mut cx = Context::from_waker(Waker::noop());
    let polled = std::pin::Pin::new(&mut *connection).poll(&mut cx);
    assert!(matches!(polled, Poll::Pending), "the link is open");
    connection.counters()
}

/// How the request ended, told from outside: by what was written, what was counted, and what its handler hears.
fn check_the_end(written: &[String], counters: ServerCounters, reason: Option<CancelReason>) {
    let answers: Vec<&String> = written.iter().filter(|line| line.contains("\"id\":1")).collect();
    let context = format!("{written:?} {counters:?} {reason:?}");
    let ended = match &reason {
        None => Terminal::Completed,
        Some(CancelReason::Deadline(clock)) => (*clock).into(),
        Some(_) => Terminal::Cancelled,
    };
    assert_eq!(counters.requests.cancelled, u64::from(ended == Terminal::Cancelled), "C3: {context}");
    srv_1_a_deadline_answers_one_error(ended, !answers.is_empty(), &context);
    req_2_one_right_to_answer(None, Some(ended), !answers.is_empty(), &context);
    let second = answers.len() > 1;
    req_2_one_right_to_answer(second.then_some(ended), Some(ended), second, &context);
    let result = answers.iter().any(|line| line.contains("\"result\""));
    assert_eq!(result, ended == Terminal::Completed, "REQ-1: {context}");
}

fn an_answer_and_a_cancellation_have_one_winner() {
    let (still, mut connection, task, context) = connection(Then::Answers);
    let handler = spawn(move || block_on(task));
    still.send(CANCEL);
    turn(&mut connection);
    handler.join().expect("no panic");
    let counters = turn(&mut connection);
    check_the_end(&still.written(), counters, context.is_cancelled().map(|cancelled| cancelled.reason));
}

fn an_answer_a_cancellation_and_a_deadline_have_one_winner() {
    let (still, mut connection, task, context) = connection(Then::Answers);
    still.set_clock(context.deadline().expect("a maximum"));
    let handler = spawn(move || block_on(task));
    let reporter = {
        let context = context.clone();
        // At the maximum a report ends the request (rule T5), on the thread of whoever reports.
        spawn(move || context.report(1.0, None, ""))
    };
    still.send(CANCEL);
    turn(&mut connection);
    handler.join().expect("no panic");
    assert!(!reporter.join().expect("no panic"), "rule T5");
    let counters = turn(&mut connection);
    check_the_end(&still.written(), counters, context.is_cancelled().map(|cancelled| cancelled.reason));
}

fn ends(then: Then) -> Vec<String> {
    let (still, connection, task, context) = connection(then);
    assert_eq!(context.now(), Instant::ZERO, "the drain time never runs out");
    let handler = spawn(move || block_on(task));
    still.close();
    let counters = block_on(connection).expect("the peer left in order");
    handler.join().expect("no panic");
    let written = still.written();
    assert!(written.len() <= 1, "REQ-2: {written:?}");
    assert_eq!(written.is_empty(), context.is_cancelled().is_some(), "C3: {written:?} {counters:?}");
    written
}

fn a_closed_connection_ends_with_the_handler_that_answers() {
    let _answered_or_lost: Vec<String> = ends(Then::Answers);
}

fn a_closed_connection_ends_with_the_handler_that_waits() {
    assert_eq!(ends(Then::WaitsForItsCancellation), [""; 0], "it waited for its loss");
}

fn an_order_to_end_is_never_slept_through() {
    let (still, shutdown) = (Still::default(), Shutdown::new());
    let config = ServerConfig { shutdown: shutdown.clone(), ..config() };
    let connection: Served = Connection::new(Once::new(Then::Answers), still.clone(), still.ports(), config);
    let asks = spawn(move || shutdown.drain());
    let _counters: ServerCounters = block_on(connection).expect("an end in order");
    asks.join().expect("no panic");
}
