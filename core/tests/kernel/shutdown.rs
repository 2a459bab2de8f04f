//! A server that is asked to end: what runs may finish, what comes is refused, and its end has a limit.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use steady_core::kernel::{Answer, ConnectionError, Exchange, ServerConfig, Shutdown};
use steady_core::rpc::method;

use super::support::{Driven, Frame, World};
use super::{Door, Fun, Log, Server, brief, cancel, ms, ok, request};

/// 1000 ms to finish, 100 ms for handlers after that, 500 ms for the output.
pub(crate) fn config() -> (Shutdown, ServerConfig) {
    let shutdown = Shutdown::new();
    let config = ServerConfig {
        shutdown: shutdown.clone(),
        shutdown_limit: Duration::from_millis(1000),
        drain: Duration::from_millis(100),
        flush: Duration::from_millis(500),
        ..ServerConfig::default()
    };
    (shutdown, config)
}

/// `wait` passes the door, `polite` stops when it is told to, `never` does not stop, anything else answers at once.
fn server(config: ServerConfig, door: &Door, log: &Log) -> Server {
    let (door, log) = (door.clone(), log.clone());
    Server::new(config, move |call, cx| {
        let (door, log) = (door.clone(), log.clone());
        match &*call.method {
            "wait" => Answer::later(async move {
                door.passed().await;
                ok()
            }),
            "polite" | method::LISTEN => Answer::later(async move {
                log.note(format!("{:?}", cx.cancelled().await.reason));
                ok()
            }),
            "never" => Answer::later(pending()),
            _ => Answer::Ready(ok()),
        }
    })
}

fn quiet(config: ServerConfig) -> Server {
    server(config, &Door::default(), &Log::default())
}

#[test]
fn an_idle_server_ends_at_once() {
    let (shutdown, config) = config();
    let mut server = quiet(config);
    server.run();
    assert!(!shutdown.is_draining());
    shutdown.drain();
    server.run();
    assert!(shutdown.is_draining());
    assert!(matches!(server.ended, Some(Ok(()))), "{:?}", server.ended);
}

#[test]
fn what_runs_finishes_and_what_comes_is_refused() {
    let (shutdown, config) = config();
    let door = Door::default();
    let mut server = server(config, &door, &Log::default());
    server.send(request(1, "wait"));
    server.send(request(2, "never"));
    shutdown.drain();
    server.send(request(3, "echo"));
    server.send(cancel(2));
    assert_eq!(server.received(), ["3 error -31001"], "a cancellation is still silence");
    assert!(server.ended.is_none(), "one runs");
    assert_eq!(server.counters().requests.refused_closing, 1);
    server.at(ms(999));
    door.open();
    assert_eq!(server.received(), ["1 ok"]);
    // The handler of the cancelled request ignores that, as long as handlers may.
    server.at(ms(1098));
    assert!(server.ended.is_none());
    server.at(ms(1099));
    assert!(matches!(server.ended, Some(Ok(()))), "{:?}", server.ended);
}

#[test]
fn at_the_limit_what_is_left_is_answered_with_an_error_and_told_why() {
    let (shutdown, config) = config();
    let log = Log::default();
    let mut server = server(config, &Door::default(), &log);
    server.send(request(1, "polite"));
    server.send(request(2, "never"));
    shutdown.drain();
    server.run();
    server.at(ms(999));
    assert_eq!(server.received(), Vec::<String>::new());
    server.at(ms(1000));
    assert_eq!(server.received(), ["1 error -31001", "2 error -31001"], "rule C8");
    assert_eq!(log.take(), ["Shutdown"]);
    assert!(server.ended.is_none(), "handlers have their time");
    server.at(ms(1100));
    assert!(matches!(server.ended, Some(Ok(()))), "{:?}", server.ended);
}

#[test]
fn a_second_order_cuts_the_time_to_finish() {
    let (shutdown, config) = config();
    let mut server = quiet(config);
    server.send(request(1, "never"));
    shutdown.drain();
    server.run();
    shutdown.drain();
    server.run();
    assert_eq!(server.received(), Vec::<String>::new(), "asking twice changes nothing");
    shutdown.cut();
    assert_eq!(server.received(), ["1 error -31001"]);
    server.at(ms(100));
    assert!(matches!(server.ended, Some(Ok(()))), "{:?}", server.ended);
}

#[test]
fn a_cut_without_a_drain_admits_nothing_either() {
    let (shutdown, config) = config();
    shutdown.cut();
    shutdown.drain();
    let mut server = quiet(config);
    server.world.send(request(1, "never"));
    server.run();
    assert_eq!(server.received(), ["1 error -31001"]);
}

#[test]
fn a_client_that_reads_nothing_does_not_hold_it_up() {
    // With nothing left to run the flush limit counts, otherwise the limit of what runs: nobody would hear of it anyway.
    for (methods, until) in [(vec!["echo"], 500), (vec!["echo", "never"], 1000)] {
        let (shutdown, config) = config();
        let mut server = quiet(config);
        server.world.allow(Some(0));
        for (id, method) in methods.into_iter().enumerate() {
            server.send(request(id, method));
        }
        shutdown.drain();
        server.run();
        server.at(ms(until - 1));
        assert!(server.ended.is_none(), "until then it may still read");
        server.at(ms(until));
        assert!(matches!(server.ended, Some(Err(ConnectionError::Stalled(_)))), "{:?}", server.ended);
    }
}

#[test]
fn an_open_listen_ends_with_its_result_and_then_the_notification() {
    let (shutdown, config) = config();
    let log = Log::default();
    let mut server = server(config, &Door::default(), &log);
    server.send(request(7, method::LISTEN));
    shutdown.drain();
    server.run();
    let lines = server.world.lines();
    assert_eq!(brief(&lines[0]), "7 ok", "rule L4");
    assert!(lines[1].contains(r#""method":"notifications/cancelled","params":{"requestId":7"#), "rule C5: {lines:?}");
    assert_eq!(log.take(), ["Ended"]);
    assert!(matches!(server.ended, Some(Ok(()))), "{:?}", server.ended);
}

#[test]
fn the_output_has_a_limit_of_its_own_after_the_end_of_input() {
    for (slow_flush, room) in [(true, None), (false, Some(0))] {
        for (at, leaves) in [(599, true), (600, false)] {
            let (_, config) = config();
            let mut server = quiet(config);
            server.world.lock().slow_flush = slow_flush;
            server.world.allow(room);
            server.send(request(1, "never"));
            server.world.send(request(2, "echo"));
            server.world.feed(Frame::Closed);
            server.run();
            server.at(ms(499));
            assert!(server.ended.is_none(), "much later than handlers may run, and it rests");
            // Some bytes are taken: the link is slow, not stuck.
            server.world.allow(Some(5));
            server.at(ms(if leaves { at } else { 599 }));
            assert!(server.ended.is_none());
            server.at(ms(at));
            server.world.lock().slow_flush = slow_flush && !leaves;
            server.world.allow(if leaves { None } else { room });
            server.run();
            match (leaves, &server.ended) {
                (true, Some(Ok(()))) => assert_eq!(server.received(), ["2 ok"]),
                (false, Some(Err(ConnectionError::Unsent(_)))) => {}
                (_, other) => panic!("{slow_flush} {at}: {other:?}"),
            }
        }
    }
}

#[test]
fn an_exchange_finishes_or_is_answered_at_the_limit_and_a_new_one_is_refused() {
    let (shutdown, config) = config();
    let world = World::default();
    let start = |config: &ServerConfig| {
        let service = Arc::new(Fun::new(|_, _| Answer::later(pending())));
        let mut exchange = Exchange::start(service, world.ports(), config.clone(), &request(1, "never"));
        Driven::new(async move {
            let mut out = Vec::new();
            let last = poll_fn(|cx| exchange.poll_message(cx, &mut out)).await;
            (brief(std::str::from_utf8(&out).expect("UTF-8")), last)
        })
    };
    let refused = Some(Poll::Ready(("1 error -31001".to_owned(), Some(true))));
    let mut old = start(&config);
    assert_eq!(old.turn(), Some(Poll::Pending));
    shutdown.drain();
    assert_eq!(old.turn(), Some(Poll::Pending), "it is told, and goes on");
    assert_eq!(start(&config).turn(), refused);
    world.advance(ms(999));
    assert_eq!(old.turn(), None);
    world.advance(ms(1000));
    assert_eq!(old.turn(), refused);
}
