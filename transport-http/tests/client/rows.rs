//! Field reports as tests: the number is the row's in the collection that the project keeps.

use std::time::Duration;

use serde_json::json;
use steady_http::client::{CallError, Config, Request};
use steady_http::steady_core::idempotency::Key;
use steady_http::steady_core::retry::Verdict;

use super::support::{Raw, by_hand, run, tool, unasked};

/// A client whose retries do not pause.
fn eager() -> Config {
    let mut config = unasked();
    config.calls.calls.backoff.base = Duration::ZERO;
    config.calls.calls.backoff.cap = Duration::ZERO;
    config
}

#[test]
fn row_03_04_07_14_a_write_whose_reply_is_lost_is_not_sent_again_and_a_list_is() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(eager()).await;
        let write = client.call(tool("send_mail", "{}"));
        raw.asked().cut();
        assert!(matches!(write.await, Err(CallError::Unknown { verdict: Verdict::ReconcileFirst, .. })));
        assert!(raw.is_quiet());

        let list = client.call(Request::raw("tools/list", "{}").safe());
        let first = raw.asked();
        let lost = first.body["id"].clone();
        first.cut();
        let mut second = raw.asked();
        assert_ne!(second.body["id"], lost, "a new request has a new id");
        second.result(&json!({"tools": []}));
        assert!(list.await.is_ok());
        assert_eq!(client.traffic().posts, 3);
    });
}

#[test]
fn row_01_02_with_a_key_the_same_bytes_go_out_under_a_new_id() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(eager()).await;
        let key = Key::parse("order-7").expect("a key");
        let order = client.call(tool("order", r#"{"n":1.10}"#).key(key));
        let mut first = raw.asked();
        first.events();
        first.end();
        let mut second = raw.asked();
        assert_ne!(second.body["id"], first.body["id"]);
        assert_eq!(second.body["params"]["arguments"], first.body["params"]["arguments"]);
        assert_eq!(second.body["params"]["_meta"]["mcp-steady.dev/idempotencyKey"], "order-7");
        second.text("once");
        assert_eq!(order.tool_result().await.expect("an answer").text(), "once");
    });
}

#[test]
fn row_10_never_sent_and_reply_lost_are_two_outcomes() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(eager()).await;
        let lost = client.call(tool("create", "{}"));
        raw.asked().cut();
        assert!(matches!(lost.await, Err(CallError::Unknown { .. })));
        // Nobody listens on this port.
        let client =
            steady_http::client::Client::connect("http://127.0.0.1:1/mcp", unasked()).await.expect("not asked");
        assert!(matches!(client.call(tool("create", "{}").attempts(1)).await, Err(CallError::NeverSent { .. })));
    });
}

#[test]
fn row_42_45_47_a_long_tool_that_reports_outlives_its_idle_limit() {
    run(async {
        let raw = Raw::start();
        let (config, clock) = by_hand();
        let client = raw.client(config).await;
        let mut call = client.call(tool("slow", "{}"));
        let mut asked = raw.asked();
        asked.events();
        for nth in 1..=10_u8 {
            asked.progress(nth.into());
            assert_eq!(call.progress().await.expect("it runs").progress, f64::from(nth));
            clock.advance(Duration::from_secs(29));
        }
        asked.answer("done at last");
        assert_eq!(call.tool_result().await.expect("an answer").text(), "done at last");
    });
}

#[test]
fn row_46_both_clocks_run_without_being_asked_for() {
    run(async {
        let limits = Config::default().calls.limits;
        assert_eq!((limits.idle, limits.maximum), (Some(Duration::from_secs(30)), Some(Duration::from_secs(300))));
        let raw = Raw::start();
        let (config, clock) = by_hand();
        let client = raw.client(config).await;
        let call = client.call(tool("never", "{}"));
        let asked = raw.asked();
        clock.advance(Duration::from_secs(30));
        assert!(matches!(call.await, Err(CallError::IdleTimeout { .. })));
        asked.hears_the_end();
        let call = client.call(tool("never", "{}").idle(None));
        let asked = raw.asked();
        clock.advance(Duration::from_secs(300));
        assert!(matches!(call.await, Err(CallError::MaxTimeout { .. })));
        asked.hears_the_end();
    });
}

#[test]
fn row_37_a_cancelled_call_ends_here_although_the_server_says_nothing() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let call = client.call(tool("stuck", "{}").idle(None).max(None));
        let connection = raw.asked();
        call.cancel("enough");
        assert!(matches!(call.await, Err(CallError::Cancelled { .. })));
        assert_eq!(client.stats().in_flight, 0);
        drop(connection);
    });
}

#[test]
fn row_51_58_a_server_that_goes_in_the_middle_settles_every_call_at_once_and_the_next_one_is_served() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let calls: Vec<_> = (0..3).map(|_| client.call(tool("slow", "{}").idle(None).max(None))).collect();
        let streams: Vec<_> = calls.iter().map(|_| raw.asked()).collect();
        for mut asked in streams {
            asked.events();
            asked.progress(1.0);
            asked.cut();
        }
        for call in calls {
            let ended = call.await;
            assert!(matches!(ended, Err(CallError::Unknown { .. })), "no timeout was needed: {ended:?}");
        }
        let next = client.call(tool("slow", "{}"));
        raw.asked().text("back");
        assert_eq!(next.tool_result().await.expect("an answer").text(), "back");
    });
}

#[test]
fn row_57_a_half_open_stream_ends_by_the_idle_clock() {
    run(async {
        let raw = Raw::start();
        let (config, clock) = by_hand();
        let client = raw.client(config).await;
        let mut call = client.call(tool("read", "{}"));
        let mut asked = raw.asked();
        asked.events();
        asked.progress(1.0);
        assert_eq!(call.progress().await.expect("it runs").progress, 1.0);
        clock.advance(Duration::from_secs(30));
        assert!(matches!(call.await, Err(CallError::IdleTimeout { .. })));
        asked.hears_the_end();
    });
}

#[test]
fn row_71_a_405_is_final() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(eager()).await;
        let call = client.call(Request::raw("tools/list", "{}").safe());
        raw.asked().respond("405 Method Not Allowed", "text/plain", "POST only");
        assert!(matches!(call.await, Err(CallError::Refused(_))));
        assert!(raw.is_quiet());
        assert_eq!(client.traffic().posts, 1, "a request that may be repeated is not, since it was refused");
    });
}

#[test]
fn row_74_a_stream_without_an_end_of_line_holds_no_more_than_the_limit() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(Config { max_answer: 64 << 10, ..unasked() }).await;
        let call = client.call(tool("big", "{}").idle(None).max(None));
        let mut asked = raw.asked();
        asked.events();
        let part = vec![b'x'; 1 << 20];
        asked.chunk(b"data: ");
        for _ in 0..64 {
            asked.chunk(&part);
        }
        asked.chunk(b"\n\n");
        asked.end();
        assert!(matches!(call.await, Err(CallError::AnswerTooLong)));
    });
}

#[test]
fn row_82_nothing_resumes_a_call_whose_socket_was_cut() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(eager()).await;
        let call = client.call(Request::raw("tools/list", "{}").safe());
        let mut asked = raw.asked();
        asked.events();
        asked.chunk("id: 5\nretry: 1\ndata: {}\n\n");
        asked.cut();
        let mut again = raw.asked();
        assert_eq!(again.header("last-event-id"), None);
        assert!(again.start.starts_with("POST "));
        again.result(&json!({"tools": []}));
        assert!(call.await.is_ok());
    });
}
