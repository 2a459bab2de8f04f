//! One HTTP exchange between its handler, a task of the handler's own, and a client that goes away.

use std::future::poll_fn;
use std::sync::Arc as Shared;

use steady_core::kernel::{BoxFuture, Context as Request, Exchange, ServerConfig, Shutdown};

use super::invariants::{
    out_3_nothing_follows_the_end, prog_1_values_increase, prog_3_nothing_passes_after_the_end,
    req_1_one_terminal_state,
};
use super::ports::{Once, REQUEST, Still, Then, config};
use super::shim::{ALL, block_on, models, spawn};

models! {
    an_exchange_hears_of_its_handlers_answer: ALL, kills ["park-outside-lock"];
    a_handler_that_waits_for_its_cancellation_hears_of_it: ALL, kills ["wake-no-waiter"];
    a_task_of_its_own_that_waits_for_the_cancellation_hears_of_it: ALL, kills ["wake-no-waiter", "look-then-register"];
    a_task_of_its_own_that_waits_for_room_hears_that_the_client_is_gone: ALL, kills ["wake-no-producer"];
    an_exchange_is_dropped_while_its_handler_answers: ALL, kills ["decide-on-a-copy"];
    an_exchange_hears_of_an_order_to_end: ALL, kills ["stage-then-register"];
    two_tasks_of_a_handler_report_in_order: ALL, kills ["push-outside-lock", "decide-on-a-copy"];
}

fn exchange(then: Then) -> (Exchange<Once>, BoxFuture<()>, Request) {
    let (still, service) = (Still::default(), Once::new(then));
    let exchange = Exchange::start(Shared::clone(&service), still.ports(), config(), REQUEST);
    let context = service.context();
    (exchange, still.task(), context)
}

/// The next message and whether it was the last; `None` if there is none.
fn next(exchange: &mut Exchange<Once>) -> Option<(String, bool)> {
    let mut out = Vec::new();
    let last = block_on(poll_fn(|cx| exchange.poll_message(cx, &mut out)))?;
    Some((String::from_utf8(out).expect("UTF-8"), last))
}

/// A request that is over accepts nothing more, whoever ended it.
fn stays_over(context: &Request) {
    let (ended, accepted) = (context.is_cancelled(), context.report(9.0, None, ""));
    prog_3_nothing_passes_after_the_end(true, accepted, &ended);
    req_1_one_terminal_state(ended.as_ref(), context.is_cancelled().as_ref(), &"a report after the end");
}

fn an_exchange_hears_of_its_handlers_answer() {
    let (mut exchange, task, _) = exchange(Then::ReportsAndAnswers);
    let handler = spawn(move || block_on(task));
    let (progress, last) = next(&mut exchange).expect("the progress");
    assert!(!last && progress.contains("\"progress\":1"), "{progress}");
    let (answer, last) = next(&mut exchange).expect("the answer");
    assert!(last && answer.contains("\"result\""), "{answer}");
    handler.join().expect("no panic");
    assert_eq!(next(&mut exchange), None);
}

fn a_handler_that_waits_for_its_cancellation_hears_of_it() {
    let (exchange, task, _) = exchange(Then::WaitsForItsCancellation);
    let handler = spawn(move || block_on(task));
    drop(exchange);
    handler.join().expect("no panic: it is not left waiting");
}

fn a_task_of_its_own_that_waits_for_the_cancellation_hears_of_it() {
    let (exchange, task, context) = exchange(Then::WaitsForItsCancellation);
    let helper = spawn(move || {
        let _reason = block_on(context.cancelled());
    });
    drop(exchange);
    helper.join().expect("no panic: nobody else wakes it");
    drop(task);
}

fn a_task_of_its_own_that_waits_for_room_hears_that_the_client_is_gone() {
    let (exchange, task, context) = exchange(Then::WaitsForItsCancellation);
    let helper = spawn(move || {
        for value in [1.0, 2.0] {
            // Whether it is told at this step or at the next: it goes on.
            let _told = block_on(context.report_all(value, None, ""));
        }
        stays_over(&context);
    });
    drop(exchange);
    helper.join().expect("no panic: nobody else wakes it");
    drop(task);
}

fn an_exchange_is_dropped_while_its_handler_answers() {
    let (exchange, task, context) = exchange(Then::ReportsAndAnswers);
    let handler = spawn(move || block_on(task));
    drop(exchange);
    // From now on it is over: by its answer, or because nobody waits for that.
    stays_over(&context);
    let ended = context.is_cancelled();
    handler.join().expect("no panic, whoever came first");
    req_1_one_terminal_state(ended.as_ref(), context.is_cancelled().as_ref(), &"the handler ended after the drop");
    stays_over(&context);
}

fn an_exchange_hears_of_an_order_to_end() {
    let (still, shutdown) = (Still::default(), Shutdown::new());
    let config = ServerConfig { shutdown: shutdown.clone(), ..config() };
    let service = Once::new(Then::WaitsForItsCancellation);
    let mut exchange = Exchange::start(Shared::clone(&service), still.ports(), config, REQUEST);
    let (task, context) = (still.task(), service.context());
    let asks = spawn(move || shutdown.cut());
    let (answer, last) = next(&mut exchange).expect("an error");
    assert!(last && answer.contains("shutting down"), "{answer}");
    asks.join().expect("no panic");
    drop(task);
    stays_over(&context);
}

fn two_tasks_of_a_handler_report_in_order() {
    let (mut exchange, task, context) = exchange(Then::Answers);
    let helper = {
        let context = context.clone();
        spawn(move || context.report(1.0, None, ""))
    };
    let second = context.report(2.0, None, "");
    helper.join().expect("no panic");
    assert!(second, "no greater value came before it");
    block_on(task);
    let (mut newest, mut over) = (None, false);
    while let Some((text, last)) = next(&mut exchange) {
        out_3_nothing_follows_the_end(over, &text);
        over = last;
        if !last {
            let value = if text.contains("\"progress\":2") { 2.0 } else { 1.0 };
            prog_1_values_increase(newest.replace(value), value, &text);
        }
    }
    assert!(over, "the answer came");
    assert_eq!(newest, Some(2.0), "PROG-1: the greatest value is the last");
}
