//! A slow reader, too many requests, floods: what is bounded, and who waits.

use std::future::pending;
use std::time::Duration;

use steady_core::coordinator;
use steady_core::deadline::Limits;
use steady_core::kernel::{Answer, ConnectionError, ServerConfig};
use steady_core::outbound;

use super::support::Frame;
use super::{Door, Server, cancel, give_up, ms, ok, request};

fn requests(requests: coordinator::Config) -> ServerConfig {
    ServerConfig { requests, ..ServerConfig::default() }
}

#[test]
fn the_last_progress_value_arrives_before_the_final_under_the_rate_limit() {
    let mut server = Server::new(ServerConfig::default(), |_, cx| {
        Answer::later(async move {
            for value in 1..=1000 {
                assert!(cx.report(f64::from(value), Some(1000.0), "busy"));
                assert!(!cx.report(f64::from(value), None, "again"), "rule P2");
            }
            ok()
        })
    });
    server.send(request(1, "busy"));
    assert_eq!(server.received(), ["1 progress 1000", "1 ok"], "coalesced, the last one kept (PROG-2)");
}

#[test]
fn a_held_value_leaves_when_the_rate_allows_it() {
    let mut server = Server::new(ServerConfig::default(), |_, cx| {
        Answer::later(async move {
            for value in 1..=3 {
                cx.report(f64::from(value), None, "");
                cx.checkpoint().await?;
            }
            pending().await
        })
    });
    server.send(request(1, "slow"));
    assert_eq!(server.received(), ["1 progress 1"]);
    server.at(ms(49));
    assert_eq!(server.received(), Vec::<String>::new());
    server.at(ms(50));
    assert_eq!(server.received(), ["1 progress 3"]);
}

#[test]
fn ten_thousand_lossless_values_arrive_in_order_and_none_after_the_result() {
    let mut server = Server::new(ServerConfig::default(), |_, cx| {
        Answer::later(async move {
            for value in 1..=10_000 {
                // A total that JSON cannot carry is left out, not written as null.
                cx.report_all(f64::from(value), Some(f64::NAN), "line").await?;
            }
            ok()
        })
    });
    server.world.allow(Some(0));
    server.send(request(1, "all"));
    let mut lines = Vec::new();
    // A consumer that takes about ten lines at a time.
    for _ in 0..100_000 {
        server.world.allow(Some(1000));
        server.run();
        lines.extend(server.world.lines());
        if lines.last().is_some_and(|line| line.contains("result")) {
            break;
        }
    }
    assert!(lines.iter().all(|line| !line.contains("total")));
    let received: Vec<String> = lines.iter().map(|line| super::brief(line)).collect();
    let expected: Vec<String> =
        (1..=10_000).map(|value| format!("1 progress {value}")).chain(["1 ok".to_owned()]).collect();
    assert_eq!(received.len(), expected.len());
    assert!(received == expected, "in order, each once");
    assert_eq!(server.received(), Vec::<String>::new());
}

#[test]
fn a_cancellation_reaches_a_producer_that_waits_for_room() {
    let mut server = Server::new(ServerConfig::default(), |call, cx| match &*call.method {
        "all" => Answer::later(async move {
            for value in 1..=10_000 {
                cx.report_all(f64::from(value), None, "line").await.map_err(|_| give_up())?;
            }
            ok()
        }),
        _ => Answer::Ready(ok()),
    });
    server.world.allow(Some(0));
    server.send(request(1, "all"));
    assert_eq!(server.world.running(), 1, "it waits");
    server.send(cancel(1));
    assert_eq!(server.world.running(), 0, "it is told at once, although the link is stuck");
    server.send(request(2, "echo"));
    server.world.allow(None);
    assert_eq!(server.received(), ["2 ok"]);
}

#[test]
fn a_request_over_the_cap_is_refused_and_those_in_flight_are_answered() {
    let door = Door::default();
    let passed = door.clone();
    let config = requests(coordinator::Config { in_flight: 2, ..coordinator::Config::default() });
    let mut server = Server::new(config, move |_, _| {
        let passed = passed.passed();
        Answer::later(async move {
            passed.await;
            ok()
        })
    });
    for id in 1..=4 {
        server.send(request(id, "wait"));
    }
    assert_eq!(server.received(), ["3 error -31001", "4 error -31001"]);
    // A cancellation makes room at once, for the cap and for the next one.
    server.send(cancel(1));
    server.send(request(5, "wait"));
    door.open();
    let mut received = server.received();
    received.sort();
    assert_eq!(received, ["2 ok", "5 ok"]);
}

#[test]
fn refusals_are_bounded_and_reading_stops_until_they_have_left() {
    let mut server = Server::new(ServerConfig::default(), |_, _| Answer::Ready(ok()));
    server.world.allow(Some(0));
    // An endless flood of bad requests at a client that reads nothing.
    server.world.lock().endless = Some(r#"{"jsonrpc":"2.0","id":9,"method":"bad"}"#.to_owned());
    server.run();
    let reads = server.world.lock().reads;
    // Sixteen are staged for the link, sixteen wait in their places.
    assert!(reads <= 2 * outbound::Config::default().refusals + 1, "{reads} were read");
    server.run();
    assert_eq!(server.world.lock().reads, reads, "reading has stopped");
    server.world.lock().endless = None;
    server.world.send(request(1, "echo"));
    server.world.allow(None);
    let received = server.received();
    assert_eq!(received.last().map(String::as_str), Some("1 ok"), "and goes on when they have left");
    assert_eq!(received.len(), reads + 1, "every refusal arrived");
}

#[test]
fn a_flood_of_bad_requests_in_one_read_is_answered_to_its_end() {
    let mut server = Server::new(ServerConfig::default(), |_, _| Answer::Ready(ok()));
    for id in 0..1000 {
        server.world.send(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"bad"}}"#));
    }
    server.world.send(request("last", "echo"));
    let received = server.received();
    assert_eq!(received.len(), 1001, "reading stopped with {} answered and nobody woke it", received.len());
}

#[test]
fn a_link_that_takes_nothing_is_given_up_after_the_write_stall_limit() {
    let config = ServerConfig { write_stall: Duration::from_millis(1000), ..ServerConfig::default() };
    let mut server = Server::new(config, |_, _| Answer::Ready(ok()));
    server.world.allow(Some(0));
    server.send(request(1, "echo"));
    server.at(ms(900));
    server.world.allow(Some(5));
    server.run();
    server.at(ms(1899));
    assert!(server.ended.is_none(), "five bytes at 900: it is alive");
    server.at(ms(1900));
    assert!(matches!(server.ended, Some(Err(ConnectionError::Stalled(_)))), "{:?}", server.ended);
}

#[test]
fn a_client_that_paused_before_it_closed_its_end_still_gets_the_flush_limit() {
    for read_ahead in [false, true] {
        let outbound = outbound::Config { kept_bytes: if read_ahead { 1 } else { 1 << 20 }, ..Default::default() };
        let config = ServerConfig { outbound, ..ServerConfig::default() };
        let mut server = Server::new(config, |_, _| Answer::Ready(ok()));
        server.world.allow(Some(0));
        for id in 1..=40 {
            server.world.send(request(id, "echo"));
        }
        server.run();
        server.at(ms(2_000));
        server.world.feed(Frame::Closed);
        server.run();
        server.at(ms(2_999));
        assert!(server.ended.is_none(), "it had the flush limit from the end on: {:?}", server.ended);
        server.world.allow(None);
        assert!(server.received().contains(&"1 ok".to_owned()));
        assert!(matches!(server.ended, Some(Ok(()))), "{:?}", server.ended);
    }
}

#[test]
fn a_flood_of_input_does_not_postpone_the_deadline() {
    let limits = Limits { idle: None, maximum: Some(Duration::from_millis(100)) };
    let config = requests(coordinator::Config { limits, ..coordinator::Config::default() });
    let mut server = Server::new(config, |call, _| match &*call.method {
        "never" => Answer::later(pending()),
        _ => Answer::Ready(ok()),
    });
    server.send(request("slow", "never"));
    // Input without end, a millisecond each: nothing but the budget ends a turn.
    {
        let mut world = server.world.lock();
        world.endless = Some(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#.to_owned());
        world.step = 1_000_000;
    }
    server.world.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let mut lines = Vec::new();
    for _ in 0..4 {
        assert!(server.turn(), "it wakes itself");
        lines.extend(server.world.lines());
    }
    let reads = server.world.lock().reads;
    assert_eq!(lines.iter().map(|line| super::brief(line)).collect::<Vec<_>>(), ["\"slow\" error -31002"]);
    assert!(reads <= 4 * ServerConfig::default().turn_budget + 1, "{reads}");
}

#[test]
fn handlers_that_never_stop_reporting_do_not_keep_a_cancellation_from_being_read() {
    let mut server = Server::new(ServerConfig::default(), |call, cx| match &*call.method {
        "endless" => Answer::later(async move {
            for value in 1..u32::MAX {
                cx.report_all(f64::from(value), None, "line").await.map_err(|_| give_up())?;
            }
            ok()
        }),
        _ => Answer::Ready(ok()),
    });
    // The handler runs while the connection writes, as on another thread; the link takes all that comes.
    server.world.lock().busy_threads = true;
    server.world.send(request(1, "endless"));
    for _ in 0..10 {
        server.turn();
    }
    server.world.send(cancel(1));
    server.world.send(request(2, "echo"));
    for _ in 0..10 {
        server.turn();
    }
    let received: Vec<String> = server.world.lines().iter().map(|line| super::brief(line)).collect();
    assert!(received.len() > 100);
    assert_eq!(received.last().map(String::as_str), Some("2 ok"));
}

#[test]
fn a_huge_answer_waits_for_its_bytes_and_no_request_is_read_meanwhile() {
    let outbound = outbound::Config { kept_bytes: 1000, ..outbound::Config::default() };
    let config = ServerConfig { outbound, ..ServerConfig::default() };
    let mut server = Server::new(config, |_, _| Answer::Ready(Ok(format!("\"{}\"", "x".repeat(700)))));
    server.world.allow(Some(0));
    for id in 1..=20 {
        server.world.send(request(id, "big"));
    }
    server.run();
    let started = server.counters().requests.started;
    assert!(started < 8, "{started}: reading stopped while a final waited for room");
    server.world.allow(None);
    let expected: Vec<String> = (1..=20).map(|id| format!("{id} ok")).collect();
    assert_eq!(server.received(), expected, "each leaves in the end");
}
