//! One HTTP exchange: its messages, its last one, and what its drop means.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use steady_core::coordinator;
use steady_core::deadline::Limits;
use steady_core::kernel::{Answer, Exchange, ServerConfig, Shutdown};

use super::support::{Driven, Drops, World};
use super::{Door, Fun, Log, brief, cancel, give_up, ms, ok, request};

/// Every message of an exchange, each in short with whether it was the last.
async fn body(mut exchange: Exchange<Fun>) -> Vec<(String, bool)> {
    let mut messages = Vec::new();
    loop {
        let mut out = Vec::new();
        match poll_fn(|cx| exchange.poll_message(cx, &mut out)).await {
            None => return messages,
            Some(last) => messages.push((brief(std::str::from_utf8(&out).expect("UTF-8")), last)),
        }
    }
}

fn start(world: &World, service: Fun, text: &str) -> Exchange<Fun> {
    Exchange::start(Arc::new(service), world.ports(), ServerConfig::default(), text)
}

/// The same with a handle that ends it.
fn endable(world: &World, service: Fun, text: &str) -> (Shutdown, Exchange<Fun>) {
    let config = ServerConfig::default();
    (config.shutdown.clone(), Exchange::start(Arc::new(service), world.ports(), config, text))
}

fn run<F: Future>(world: &World, driven: &mut Driven<F>) -> Option<F::Output> {
    loop {
        let turned = match driven.turn() {
            Some(Poll::Ready(output)) => return Some(output),
            Some(Poll::Pending) => true,
            None => false,
        };
        if !world.run_tasks() && !turned {
            return None;
        }
    }
}

#[test]
fn an_exchange_is_its_progress_and_then_its_answer() {
    let (world, door) = (World::default(), Door::default());
    let passed = door.clone();
    let service = Fun::new(move |_, cx| {
        let passed = passed.passed();
        Answer::later(async move {
            cx.report(1.0, None, "");
            passed.await;
            cx.report(2.0, None, "");
            ok()
        })
    });
    let mut body = Driven::new(body(start(&world, service, &request(1, "work"))));
    assert_eq!(run(&world, &mut body), None);
    door.open();
    let messages = run(&world, &mut body).expect("over");
    assert_eq!(
        messages,
        [("1 progress 1".to_owned(), false), ("1 progress 2".to_owned(), false), ("1 ok".to_owned(), true)]
    );
}

#[test]
fn a_refusal_is_the_whole_exchange_and_a_notification_has_none() {
    let world = World::default();
    let messages = |text: &str| {
        let service = Fun::new(|_, _| Answer::Ready(ok()));
        run(&world, &mut Driven::new(body(start(&world, service, text)))).expect("over at once")
    };
    assert_eq!(messages(&request(1, "echo")), [("1 ok".to_owned(), true)]);
    assert_eq!(messages(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#), [("1 error -32602".to_owned(), true)]);
    assert_eq!(messages("["), [("error -32700".to_owned(), true)]);
    assert_eq!(messages(&cancel(1)), [], "rule H8: it cancels nothing");
}

#[test]
fn dropping_it_is_a_cancellation_and_the_handler_has_its_grace_period() {
    let (world, log, drops) = (World::default(), Log::default(), Drops::default());
    let (noted, held) = (log.clone(), drops.clone());
    let service = Fun::new(move |_, cx| {
        let (log, guard) = (noted.clone(), held.guard());
        Answer::later(async move {
            let _guard = guard;
            let cancelled = cx.cancelled().await;
            log.note(format!("{:?}, a report is accepted: {}", cancelled.reason, cx.report(1.0, None, "")));
            pending().await
        })
    });
    let mut exchange = start(&world, service, &request(1, "work"));
    let mut out = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(exchange.poll_message(&mut cx, &mut out), Poll::Pending);
    drop(exchange);
    world.run_tasks();
    assert_eq!(log.take(), ["Disconnected, a report is accepted: false"], "rule C1");
    let grace = ServerConfig::default().grace.as_millis() as u64;
    world.advance(ms(grace - 1));
    while world.run_tasks() {}
    assert_eq!(drops.count(), 0, "it survives its exchange");
    world.advance(ms(grace));
    while world.run_tasks() {}
    assert_eq!((drops.count(), world.running()), (1, 0));
}

#[test]
fn dropping_it_before_it_was_polled_is_a_cancellation_too() {
    let (world, log) = (World::default(), Log::default());
    let noted = log.clone();
    let service = Fun::new(move |_, cx| {
        let log = noted.clone();
        Answer::later(async move {
            log.note(format!("{:?}", cx.cancelled().await.reason));
            Err(give_up())
        })
    });
    drop(start(&world, service, &request(1, "work")));
    while world.run_tasks() {}
    assert_eq!((log.take(), world.running()), (vec!["Disconnected".to_owned()], 0));
}

#[test]
fn dropping_it_after_its_answer_is_nothing() {
    let (world, log) = (World::default(), Log::default());
    let noted = log.clone();
    let service = Fun::new(move |_, cx| {
        let log = noted.clone();
        Answer::later(async move {
            let watcher = cx.clone();
            log.note("started");
            watcher.report(1.0, None, "");
            assert!(cx.is_cancelled().is_none());
            ok()
        })
    });
    let mut exchange = start(&world, service, &request(1, "work"));
    let mut cx = Context::from_waker(Waker::noop());
    let mut out = Vec::new();
    assert_eq!(exchange.poll_message(&mut cx, &mut out), Poll::Ready(Some(false)));
    assert_eq!(exchange.poll_message(&mut cx, &mut out), Poll::Ready(Some(true)));
    assert_eq!(exchange.poll_message(&mut cx, &mut out), Poll::Ready(None));
    drop(exchange);
    assert_eq!((log.take(), world.running()), (vec!["started".to_owned()], 0));
}

#[test]
fn the_servers_deadline_is_the_answer_of_the_exchange() {
    let world = World::default();
    let limits = Limits { idle: None, maximum: Some(Duration::from_millis(100)) };
    let requests = coordinator::Config { limits, ..coordinator::Config::default() };
    let config = ServerConfig { requests, ..ServerConfig::default() };
    let service = Arc::new(Fun::new(|_, _| Answer::later(pending())));
    let exchange = Exchange::start(service, world.ports(), config, &request(1, "never"));
    let mut body = Driven::new(body(exchange));
    world.advance(ms(99));
    assert_eq!(run(&world, &mut body), None);
    world.advance(ms(100));
    assert_eq!(run(&world, &mut body), Some(vec![("1 error -31002".to_owned(), true)]), "rule C8");
}

#[test]
fn messages_that_wait_leave_in_one_batch() {
    let world = World::default();
    let service = Fun::new(|_, cx| {
        Answer::later(async move {
            for value in [1.0, 2.0] {
                let _never_over = cx.report_all(value, None, "").await;
            }
            ok()
        })
    });
    let mut exchange = start(&world, service, &request(1, "work"));
    while world.run_tasks() {}
    let mut cx = Context::from_waker(Waker::noop());
    let mut out = Vec::new();
    let batch = exchange.poll_batch(&mut cx, &mut out, 1 << 10, (b"<", b">"));
    assert_eq!(batch, Poll::Ready(Some(true)));
    let text = String::from_utf8(out).expect("UTF-8");
    let messages: Vec<String> =
        text.split_terminator('>').map(|message| brief(message.trim_start_matches('<'))).collect();
    assert_eq!(messages, ["1 progress 1", "1 progress 2", "1 ok"]);
    assert_eq!(exchange.poll_batch(&mut cx, &mut Vec::new(), 1 << 10, (b"", b"")), Poll::Ready(None));
}

#[test]
fn a_listen_sends_notifications_and_ends_with_its_result() {
    let (world, log) = (World::default(), Log::default());
    let noted = log.clone();
    let service = Fun::new(move |_, cx| {
        let log = noted.clone();
        Answer::later(async move {
            log.note(format!("{:?}", cx.notify("notifications/subscriptions/acknowledged", "{}").await.is_ok()));
            let cancelled = cx.cancelled().await;
            log.note(format!("{:?}", cancelled.reason));
            log.note(format!("{:?}", cx.notify("notifications/tools/list_changed", "{}").await.is_ok()));
            Err(give_up())
        })
    });
    let (shutdown, mut exchange) = endable(&world, service, &request(7, "subscriptions/listen"));
    while world.run_tasks() {}
    shutdown.drain();
    let (mut cx, mut out) = (Context::from_waker(Waker::noop()), Vec::new());
    assert_eq!(exchange.poll_message(&mut cx, &mut out), Poll::Ready(Some(false)));
    out.clear();
    assert_eq!(exchange.poll_message(&mut cx, &mut out), Poll::Ready(Some(true)));
    let result = String::from_utf8(out).expect("UTF-8");
    assert!(result.contains(r#""_meta":{"io.modelcontextprotocol/subscriptionId":7}"#), "rule L4: {result}");
    while world.run_tasks() {}
    assert_eq!(log.take(), ["true", "Ended", "false"], "nothing follows the result");
}

#[test]
fn only_a_listen_is_ended_by_the_server() {
    let world = World::default();
    let (shutdown, mut exchange) = endable(&world, Fun::new(|_, _| Answer::later(pending())), &request(1, "work"));
    shutdown.drain();
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(exchange.poll_message(&mut cx, &mut Vec::new()), Poll::Pending, "rule C5");
}
