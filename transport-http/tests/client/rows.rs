//! Field reports as tests: the number is the row's in the collection that the project keeps.

use std::time::Duration;

use serde_json::json;
use steady_http::client::{CallError, Client, Config, ConnectError, Filter, ListenEvent, Request};
use steady_http::steady_core::idempotency::Key;
use steady_http::steady_core::retry::Verdict;

use super::process::{Process, is_server};
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
        // A port that is taken, so that nobody else can listen on it, and on which nobody listens.
        let taken = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        taken.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
        let address = taken.local_addr().expect("an address").as_socket().expect("an IP address");
        let client = Client::connect(&format!("http://{address}/mcp"), unasked()).await.expect("not asked");
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
fn row_52_a_killed_server_leaves_no_caller_waiting() {
    if is_server() {
        return;
    }
    run(async {
        let mut server = Process::start("rows::row_52_a_killed_server_leaves_no_caller_waiting", "127.0.0.1:0");
        let (config, _stands_still) = by_hand();
        let client = Client::connect(&server.url, config).await.expect("nobody is asked");
        let mut call = client.call(tool("wait", "{}").idle(None).max(None));
        assert_eq!(call.progress().await.expect("it runs").progress, 1.0);
        server.kill();
        let ended = call.await;
        assert!(matches!(ended, Err(CallError::Unknown { verdict: Verdict::ReconcileFirst, .. })), "{ended:?}");
    });
}

#[test]
fn row_54_a_server_that_dies_in_start_up_is_told_at_once_with_what_it_said() {
    run(async {
        // What stands in front of it speaks for it.
        for (answer, said) in [
            ("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 26\r\n\r\nImportError: no module fun", "no module fun"),
            ("", "closed before"),
        ] {
            let raw = Raw::start();
            let (config, _stands_still) = by_hand();
            let config = Config { calls: Config::default().calls, ..config };
            let client = tokio::spawn({
                let url = raw.url();
                async move { Client::connect(&url, config).await }
            });
            let mut asked = tokio::task::block_in_place(|| raw.asked());
            assert_eq!(asked.method(), "server/discover");
            asked.send(answer);
            asked.cut();
            let Err(ConnectError::Lost(loss)) = client.await.expect("no panic") else { panic!("it is dead") };
            assert!(loss.what.contains(said), "{loss}");
        }
    });
}

#[test]
fn row_55_a_dead_server_is_not_taken_for_one_that_is_there() {
    if is_server() {
        return;
    }
    run(async {
        let test = "rows::row_55_a_dead_server_is_not_taken_for_one_that_is_there";
        let mut server = Process::start(test, "127.0.0.1:0");
        let (config, _stands_still) = by_hand();
        let client = Client::connect(&server.url, config).await.expect("nobody is asked");
        let mut calls = [(); 2].map(|()| client.call(tool("wait", "{}").idle(None).max(None)));
        for call in &mut calls {
            assert_eq!(call.progress().await.expect("it runs").progress, 1.0);
        }
        server.kill();
        for call in calls {
            assert!(matches!(call.await, Err(CallError::Unknown { .. })));
        }
        // A kept connection does not hide it, and nothing has to time out.
        for _ in 0..3 {
            let ended = client.call(tool("echo", "{}").attempts(1)).await;
            let Err(CallError::NeverSent { loss, .. }) = ended else { panic!("{ended:?}") };
            assert!(loss.what.starts_with("no connection to 127.0.0.1:"), "{loss}");
        }
        let at = server.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        let _next = Process::start(test, &at);
        assert_eq!(client.call(tool("echo", "{}")).tool_result().await.expect("an answer").text(), "here");
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
fn row_73_after_a_sleep_of_the_machine_no_stream_is_left_open() {
    run(async {
        let raw = Raw::start();
        let (config, clock) = by_hand();
        let client = raw.client(config).await;
        let mut call = client.call(tool("slow", "{}"));
        let mut calls = raw.asked();
        calls.events();
        calls.progress(1.0);
        assert_eq!(call.progress().await.expect("it runs").progress, 1.0);
        let filter = Filter::parse(r#"{"toolsListChanged":true}"#).expect("a filter");
        let mut listener = client.listen(filter).expect("a place");
        let mut listens = raw.asked();
        listens.events();
        let stamp = json!({"io.modelcontextprotocol/subscriptionId": listens.body["id"]});
        let params = json!({"_meta": stamp, "notifications": {"toolsListChanged": true}});
        let method = "notifications/subscriptions/acknowledged";
        listens.event(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
        // All that was sent has been read then: the silence of the stream is what is measured from here on.
        assert!(matches!(listener.next().await, ListenEvent::Gap { .. }), "it is open");
        clock.is_armed_for(Duration::from_secs(90)).await;
        clock.advance(Duration::from_secs(8 * 3600));
        let ended = call.await;
        assert!(matches!(ended, Err(CallError::IdleTimeout { .. } | CallError::MaxTimeout { .. })), "{ended:?}");
        calls.hears_the_end();
        listens.hears_the_end();
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
fn row_79_a_hiccup_of_the_server_is_no_storm_of_requests() {
    run(async {
        let raw = Raw::start();
        let (config, clock) = by_hand();
        let saved_up = u64::from(config.calls.calls.budget.capacity);
        assert_eq!(saved_up, 100);
        let client = raw.client(config).await;
        raw.answer_each(|asked| asked.respond("503 Busy", "text/plain", "later"));
        let _calls: Vec<_> = (0..300).map(|_| client.call(Request::raw("tools/list", "{}").safe())).collect();
        let ended = async |count: u64| {
            while client.stats().unknown < count {
                tokio::task::yield_now().await;
            }
        };
        // Retries of all calls together are bounded, and none goes out without a pause.
        ended(300 - saved_up).await;
        assert_eq!((client.traffic().posts, client.stats().in_flight), (300, 100));
        // The longest first pause. Meanwhile two more retries were earned, and a third attempt is the last.
        clock.advance(Duration::from_millis(250));
        ended(298).await;
        assert_eq!((client.traffic().posts, client.stats().in_flight), (400, 2));
        clock.advance(Duration::from_millis(500));
        ended(300).await;
        assert_eq!((client.traffic().posts, client.stats().in_flight), (402, 0));
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
