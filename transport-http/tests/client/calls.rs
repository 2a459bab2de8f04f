//! Calls against our server and a played one: both kinds of answers, clocks, connections, and the end of the client.

use std::time::Duration;

use serde_json::json;
use steady_http::client::{CallError, Client, Config, ConnectError};
use steady_http::steady_core::retry::Verdict;
use steady_http::{HttpConfig, Reply, ServeConfig, Tools};

use super::support::{Asked, Raw, by_hand, run, serve, tool, unasked};

const ANY: &str = r#"{"type":"object"}"#;

fn tools() -> Tools {
    let tools = Tools::new("fixture", "0.0.0");
    let tools = tools.tool("echo", "Says it again.", ANY, |call, _| async move {
        let arguments: serde_json::Value = call.arguments()?;
        Ok(Reply::text(arguments["text"].as_str().unwrap_or_default()))
    });
    tools.tool("count", "Counts.", ANY, |_, cx| async move {
        for n in 1..=100_u32 {
            cx.report_all(n.into(), Some(100.0), "counting").await?;
        }
        Ok(Reply::text("counted"))
    })
}

#[test]
fn discover_list_call_and_shut_down_with_both_kinds_of_answers() {
    run(async {
        for always_stream in [false, true] {
            let http = HttpConfig { always_stream, ..HttpConfig::default() };
            let url = serve(tools(), ServeConfig { http, ..ServeConfig::default() }).await;
            let client = Client::connect(&url, Config::default()).await.expect("connected");
            assert_eq!(client.server().expect("it was asked").supported_versions, ["2026-07-28"]);
            assert_eq!(client.discover().await.expect("an answer").supported_versions, ["2026-07-28"]);
            let listed = client.list_tools().await.expect("an answer");
            assert_eq!(listed.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["echo", "count"]);
            let said = client.call_tool("echo", &json!({"text": "häßlich \u{1F600}\n"})).await.expect("an answer");
            assert_eq!(said.text(), "häßlich \u{1F600}\n");
            let Err(CallError::Peer(error)) = client.call(tool("no such tool", "{}")).await else { panic!("refused") };
            assert_eq!(error.code, -32602);
            client.shutdown().await;
            assert!(matches!(client.call(tool("echo", "{}")).await, Err(CallError::Closed(_))));
            assert_eq!(client.traffic().posts, 5);
        }
    });
}

#[test]
fn progress_comes_in_order_and_then_the_answer() {
    run(async {
        let url = serve(tools(), ServeConfig::default()).await;
        let mut config = Config::default();
        config.calls.calls.progress_interval = Duration::ZERO;
        let client = Client::connect(&url, config).await.expect("connected");
        let mut call = client.call(tool("count", "{}").progress_buffer(100));
        let mut expected = 0.0;
        while let Some(report) = call.progress().await {
            expected += 1.0;
            assert_eq!((report.progress, report.total), (expected, Some(100.0)));
        }
        assert_eq!(expected, 100.0);
        assert_eq!(call.tool_result().await.expect("an answer").text(), "counted");
    });
}

#[test]
fn calls_one_after_the_other_share_connections() {
    run(async {
        let url = serve(tools(), ServeConfig::default()).await;
        let client = Client::connect(&url, Config::default()).await.expect("connected");
        for _ in 0..40 {
            client.call_tool("echo", &json!({})).await.expect("an answer");
        }
        // A call may start before the connection of the one before it is free again, but that one is then kept too.
        let made = client.traffic().connections;
        assert!(made <= 10, "{made} connections for 41 requests");
    });
}

#[test]
fn two_hundred_calls_at_once_share_few_connections() {
    run(async {
        let url = serve(tools(), ServeConfig::default()).await;
        let config = Config { max_connections: 8, ..Config::default() };
        let client = Client::connect(&url, config).await.expect("connected");
        let calls = (0..200).map(|n| (n, client.call(tool("echo", &format!(r#"{{"text":"{n}"}}"#)))));
        let calls: Vec<_> = calls.collect();
        for (n, call) in calls {
            assert_eq!(call.tool_result().await.expect("an answer").text(), n.to_string());
        }
        assert_eq!((client.stats().answered, client.stats().in_flight), (200, 0));
        let made = client.traffic().connections;
        assert!(made <= 8 + 16, "{made} connections for 200 calls");
    });
}

#[test]
fn what_every_request_carries_on_the_wire() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let call = client.call(tool("caf\u{e9}", "{}"));
        let mut asked = raw.asked();
        assert_eq!(asked.start, "POST /mcp HTTP/1.1");
        assert_eq!(asked.header("content-type"), Some("application/json"));
        assert_eq!(asked.header("accept"), Some("application/json, text/event-stream"));
        assert_eq!(asked.header("mcp-protocol-version"), Some("2026-07-28"));
        assert_eq!(asked.header("mcp-method"), Some("tools/call"));
        assert_eq!(asked.header("mcp-name"), Some("=?base64?Y2Fmw6k=?="));
        assert_eq!(
            Some(asked.header("host").expect("a host")),
            raw.url().get(7..).and_then(|at| at.strip_suffix("/mcp"))
        );
        for never in ["mcp-session-id", "last-event-id", "accept-encoding", "authorization"] {
            assert_eq!(asked.header(never), None);
        }
        let meta = &asked.body["params"]["_meta"];
        assert_eq!(meta["progressToken"], asked.body["id"]);
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        asked.text("done");
        assert_eq!(call.tool_result().await.expect("an answer").text(), "done");
    });
}

/// Until the client has read so many messages and so many events that are none.
async fn read(client: &Client, messages: u64, bad: u64) {
    let is_there = || {
        let stats = client.stats();
        (stats.received.messages, stats.bad_messages) == (messages, bad)
    };
    while !is_there() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn comments_and_progress_that_does_not_increase_reset_no_idle_clock() {
    run(async {
        let raw = Raw::start();
        let (config, clock) = by_hand();
        let client = raw.client(config).await;
        let mut call = client.call(tool("slow", "{}"));
        let mut asked = raw.asked();
        asked.events();
        clock.advance(Duration::from_secs(29));
        asked.progress(1.0);
        assert_eq!(call.progress().await.expect("it runs").progress, 1.0);
        for nth in 1..=29 {
            asked.chunk(": still here\n\n");
            asked.progress(1.0);
            // Comments leave no trace: what comes behind one was read after it.
            asked.chunk("data: no message\n\n");
            read(&client, nth + 1, nth).await;
            clock.advance(Duration::from_secs(1));
        }
        clock.is_armed_for(Duration::from_secs(1)).await;
        assert_eq!(client.stats().in_flight, 1);
        clock.advance(Duration::from_secs(1));
        let ended = call.await;
        assert!(matches!(ended, Err(CallError::IdleTimeout { verdict: Verdict::ReconcileFirst, .. })), "{ended:?}");
        asked.hears_the_end();
    });
}

#[test]
fn progress_resets_the_idle_clock_and_never_the_maximum() {
    run(async {
        let raw = Raw::start();
        let (config, clock) = by_hand();
        let client = raw.client(config).await;
        let mut call = client.call(tool("slow", "{}"));
        let mut asked = raw.asked();
        asked.events();
        // 15 steps of 20 s: each is within the idle limit of 30 s, all together are the maximum.
        for nth in 1..=15_u8 {
            asked.progress(nth.into());
            assert_eq!(call.progress().await.expect("it runs").progress, f64::from(nth));
            clock.advance(Duration::from_secs(20));
        }
        let ended = call.await;
        assert!(matches!(ended, Err(CallError::MaxTimeout { .. })), "{ended:?}");
        asked.hears_the_end();
    });
}

#[test]
fn a_server_that_is_not_there_was_sent_nothing() {
    run(async {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/mcp", gone.local_addr().expect("bound"));
        drop(gone);
        let client = Client::connect(&url, unasked()).await.expect("nobody is asked");
        let ended = client.call(tool("order", "{}").attempts(1)).await;
        let Err(CallError::NeverSent { loss, .. }) = ended else { panic!("{ended:?}") };
        assert!(loss.what.starts_with("no connection to 127.0.0.1:"), "{loss}");
        let Err(ConnectError::Lost(loss)) = Client::connect(&url, Config::default()).await else {
            panic!("it is gone")
        };
        assert!(loss.what.contains("no connection to 127.0.0.1:"), "{loss}");
    });
}

#[test]
fn addresses_that_cannot_be_used_say_why() {
    run(async {
        for (url, why) in [
            ("127.0.0.1:80", "http://"),
            ("ftp://host/", "http://"),
            ("http://user:secret@host/mcp", "credentials"),
            ("user:secret@host", "http://"),
            ("http://user:se/cret:secret@host/mcp", "port"),
            ("http://ho st/", "invalid"),
            ("http://host:70000/", "port"),
            ("", "empty"),
        ] {
            let Err(ConnectError::Url(error)) = Client::connect(url, Config::default()).await else { panic!("{url}") };
            assert!(error.to_string().contains(why), "{error}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
    });
}

#[test]
fn a_kept_connection_that_the_server_closed_is_replaced_and_nothing_is_lost() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let first = client.call(tool("a", "{}"));
        let mut asked = raw.asked();
        asked.text("1");
        assert_eq!(first.tool_result().await.expect("an answer").text(), "1");
        let second = client.call(tool("b", "{}"));
        let mut asked = raw.asked();
        asked.text("2");
        assert_eq!(second.tool_result().await.expect("an answer").text(), "2");
        asked.cut();
        // Whether the close is noticed before or after the next request is taken: an unsafe call is served, once, or its
        // outcome is unknown if bytes of it had left.
        let third = client.call(tool("c", "{}"));
        let replaced = tokio::task::spawn_blocking(move || {
            let mut asked = raw.asked();
            asked.text("3");
            raw
        });
        match third.tool_result().await {
            Ok(result) => assert_eq!(result.text(), "3"),
            Err(CallError::Unknown { verdict: Verdict::ReconcileFirst, .. }) => {
                assert_eq!(client.call(tool("c", "{}")).tool_result().await.expect("an answer").text(), "3");
            }
            Err(error) => panic!("{error}"),
        }
        let raw = replaced.await.expect("no panic");
        assert!(raw.is_quiet());
        assert!(client.traffic().connections <= 3);
    });
}

#[test]
fn a_kept_connection_is_closed_after_its_time_though_nobody_asks_again() {
    run(async {
        let raw = Raw::start();
        let (config, clock) = by_hand();
        let kept_for = config.idle_timeout;
        let client = raw.client(config).await;
        for _ in 0..2 {
            let call = client.call(tool("a", "{}"));
            let mut asked = raw.asked();
            asked.text("1");
            call.tool_result().await.expect("an answer");
            clock.is_armed_for(kept_for).await;
            clock.advance(kept_for);
            asked.closed_at_last();
        }
        // Several, of different ages.
        let calls = [(); 2].map(|()| client.call(tool("a", "{}")));
        let mut asked = [raw.asked(), raw.asked()];
        asked.iter_mut().for_each(|asked| asked.text("2"));
        for call in calls {
            call.tool_result().await.expect("an answer");
            clock.advance(kept_for / 2);
        }
        let passes = tokio::spawn(async move {
            loop {
                clock.advance(kept_for / 4);
                tokio::task::yield_now().await;
            }
        });
        asked.into_iter().for_each(Asked::closed_at_last);
        passes.abort();
        assert_eq!(client.traffic().connections, 4);
    });
}

#[test]
fn the_last_handle_closes_every_stream() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let call = client.call(tool("wait", "{}"));
        let mut asked = raw.asked();
        asked.events();
        client.shutdown().await;
        assert!(matches!(call.await, Err(CallError::Cancelled { .. })));
        asked.hears_the_end();
    });
}
