//! What is counted, and that it can be read while the server runs.

use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use steady_core::coordinator;
use steady_core::deadline::Limits;
use steady_core::kernel::{Answer, BadFrame, ServerConfig, ServerCounters, Stats};
use steady_core::outbound;

use super::support::{Frame, World};
use super::{Server, cancel, ms, ok, request};

/// Idle after 500 ms, over after 2000 ms, and its statistics.
fn config() -> (Stats, ServerConfig) {
    let stats = Stats::new();
    let limits = Limits { idle: Some(Duration::from_millis(500)), maximum: Some(Duration::from_millis(2000)) };
    let requests = coordinator::Config { limits, in_flight: 4, ..coordinator::Config::default() };
    (stats.clone(), ServerConfig { stats, requests, ..ServerConfig::default() })
}

/// `echo` answers at once, anything else never.
fn server(config: ServerConfig) -> Server {
    Server::new(config, |call, _| match &*call.method {
        "echo" => Answer::Ready(ok()),
        _ => Answer::later(pending()),
    })
}

#[test]
fn requests_by_their_end_and_cancellations_by_what_they_did() {
    let (stats, config) = config();
    let mut server = server(config);
    // The answer waits for the link: too late to cancel.
    server.world.allow(Some(0));
    server.send(request(1, "echo"));
    server.send(request(8, "echo"));
    server.send(cancel(8));
    server.world.allow(None);
    server.send(request(7, "echo"));
    for id in 2..=4 {
        server.send(request(id, "never"));
    }
    server.send(request(3, "never"));
    server.send(request(5, "never"));
    server.send(request(6, "never"));
    assert_eq!(stats.snapshot().in_flight(), 4, "read while they run");
    server.send(cancel(2));
    for notification in [cancel(2), cancel(99), cancel("3"), cancel(()), r#"{"jsonrpc":"2.0","method":"n"}"#.into()] {
        server.send(notification);
    }
    server.at(ms(500));
    server.send(request(9, "never"));
    server.world.feed(Frame::Bad(BadFrame::TooLong));
    server.send("{");
    server.world.feed(Frame::Closed);
    server.run();
    let ServerCounters { requests, bad_messages, cancelled_malformed, ignored, .. } = stats.snapshot();
    let coordinator::Counters { started, completed, cancelled, lost, idle_timeouts, max_timeouts, .. } = requests;
    assert_eq!((started, completed, cancelled, lost, idle_timeouts, max_timeouts), (8, 3, 1, 1, 3, 0), "{requests:?}");
    assert_eq!((requests.duplicates, requests.refused), (1, 1));
    assert_eq!((requests.cancelled_late, requests.cancelled_unknown, cancelled_malformed), (1, 3, 1));
    assert_eq!((bad_messages, ignored), (2, 1));
    assert_eq!(stats.snapshot().in_flight(), 0);
    assert_eq!(stats.snapshot(), server.counters(), "one connection is all of them");
}

#[test]
fn an_end_by_a_late_report_is_counted_once() {
    for (inline, maximum) in [(false, true), (true, true), (false, false)] {
        let (stats, config) = config();
        let clock: Arc<OnceLock<World>> = Arc::default();
        let theirs = Arc::clone(&clock);
        let mut server = Server::new(config, move |_, cx| {
            let clock = Arc::clone(&theirs);
            Answer::later(async move {
                if inline {
                    // A first poll that takes as long as the request may.
                    clock.get().expect("set").advance(ms(2000));
                } else {
                    for step in 1..=5u32 {
                        if maximum {
                            cx.report(step.into(), None, "");
                        }
                        cx.sleep_until(cx.now() + Duration::from_millis(400)).await?;
                    }
                }
                assert!(!cx.report(f64::MAX, None, "late"), "rule T5");
                assert!(!cx.report(f64::MAX, None, "later"), "rule T5");
                ok()
            })
        });
        assert!(clock.set(server.world.clone()).is_ok());
        server.send(request(1, "work"));
        for at in [400, 800, 1200, 1600, 2000] {
            server.at(ms(at));
        }
        assert_eq!(server.received().last().map(String::as_str), Some("1 error -31002"));
        let counters = stats.snapshot();
        assert_eq!(counters.requests.max_timeouts, u64::from(maximum), "{counters:?}");
        assert_eq!(counters.requests.idle_timeouts, u64::from(!maximum), "{counters:?}");
        assert_eq!(counters.requests.completed, 0);
        assert_eq!(counters.in_flight(), 0);
    }
}

#[test]
fn progress_by_its_fate_and_how_full_the_buffer_was() {
    let (stats, mut config) = config();
    config.outbound = outbound::Config { capacity: 2, ..config.outbound };
    let mut server = Server::new(config, |_, cx| {
        Answer::later(async move {
            // Nine in one interval: the first goes, the last is held, seven gave way; one does not increase.
            for value in 1..=9 {
                assert!(cx.report(f64::from(value), None, "text"));
            }
            assert!(!cx.report(9.0, None, "again"));
            cx.sleep_until(ms(60)).await?;
            // The held one, which the stuck link kept from leaving, gives way; the next one finds this one in the buffer.
            assert!(cx.report(10.0, None, "text"));
            cx.sleep_until(ms(120)).await?;
            assert!(cx.report(11.0, None, "text"));
            ok()
        })
    });
    server.world.allow(Some(0));
    server.send(request(1, "work"));
    for at in [60, 120, 1000] {
        server.at(ms(at));
    }
    let counters = stats.snapshot();
    assert_eq!((counters.progress_refused, counters.progress_coalesced, counters.progress_dropped), (1, 9, 0));
    assert_eq!(counters.queue_high, 2, "the newest value, and the final");
    assert!(counters.queue_high_bytes > 0);
    server.world.allow(None);
    assert_eq!(server.received(), ["1 progress 1", "1 progress 11", "1 ok"]);
}

#[test]
fn progress_that_does_not_increase_is_counted_as_refused_also_where_none_is_lost() {
    let (stats, config) = config();
    let mut server = Server::new(config, |_, cx| {
        Answer::later(async move {
            for value in [1.0, 3.0, 2.0, 3.0, 4.0] {
                cx.report_all(value, None, "").await?;
            }
            ok()
        })
    });
    server.send(request(1, "work"));
    assert_eq!(server.received(), ["1 progress 1", "1 progress 3", "1 progress 4", "1 ok"]);
    assert_eq!(stats.snapshot().progress_refused, 2);
}

#[test]
fn progress_that_left_a_full_buffer_is_counted() {
    let (stats, mut config) = config();
    config.outbound = outbound::Config { capacity: 2, ..config.outbound };
    let mut server = Server::new(config, |_, cx| {
        cx.report(1.0, None, "text");
        Answer::later(pending())
    });
    server.world.allow(Some(0));
    // The first is on its way to the link; of the other three the buffer holds two.
    for id in 1..=4 {
        server.send(request(id, "work"));
    }
    server.at(ms(1));
    let counters = stats.snapshot();
    assert_eq!((counters.progress_dropped, counters.progress_coalesced), (1, 0));
    server.world.allow(None);
    assert_eq!(server.received(), ["1 progress 1", "3 progress 1", "4 progress 1"]);
}

#[test]
fn messages_and_bytes_both_ways() {
    let (stats, config) = config();
    let mut server = server(config);
    let text = request(1, "echo");
    server.send(text.clone());
    let counters = stats.snapshot();
    assert_eq!((counters.messages_in, counters.bytes_in), (1, text.len() as u64));
    let written = server.world.lock().written.len() as u64;
    assert_eq!((counters.messages_out, counters.bytes_out), (1, written));
}

#[test]
fn connections_that_share_statistics_add_up() {
    let (stats, config) = config();
    for round in 1..=3 {
        let mut server = server(config.clone());
        server.send(request(1, "echo"));
        assert_eq!(stats.snapshot().requests.completed, round);
        assert_eq!(server.counters().requests.completed, 1, "its own");
    }
}
