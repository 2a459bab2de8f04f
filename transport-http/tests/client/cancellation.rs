//! Giving a call up closes its response stream, and nothing else happens on the network (rule C1).

use serde_json::json;
use std::time::Duration;
use steady_http::client::{CallError, Client, Config, Request};
use steady_http::steady_core::retry::Verdict;
use steady_http::{Reply, ServeConfig, Tools};

use super::support::{Raw, by_hand, run, serve, tool, unasked};

#[test]
fn statement_02_cancelling_closes_the_response_stream_and_posts_nothing() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let (mut given_up, other) = (client.call(tool("a", "{}")), client.call(tool("b", "{}")));
        let (first, second) = (raw.asked(), raw.asked());
        let named = |asked: &super::support::Asked| asked.body["params"]["name"] == "a";
        let (mut first, mut second) = if named(&first) { (first, second) } else { (second, first) };
        first.events();
        second.events();
        first.progress(1.0);
        assert_eq!(given_up.progress().await.expect("it runs").progress, 1.0);
        given_up.cancel("enough");
        assert!(matches!(given_up.await, Err(CallError::Cancelled { verdict: Verdict::ReconcileFirst })));
        // It ends without a byte more, and the other one lives.
        first.hears_the_end();
        second.answer("done");
        assert_eq!(other.tool_result().await.expect("an answer").text(), "done");
        // The next request is a call, and the first thing to be heard on any connection.
        let next = client.call(tool("c", "{}"));
        let mut asked = raw.asked();
        assert_eq!(asked.body["params"]["name"], "c");
        asked.text("served");
        assert_eq!(next.tool_result().await.expect("an answer").text(), "served");
        assert!(raw.is_quiet(), "no other connection was made");
        assert_eq!((client.traffic().posts, client.stats().sent.messages), (3, 3));
    });
}

#[test]
fn statement_02_before_any_byte_of_the_response_too() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        for drops in [false, true] {
            let call = client.call(tool("wait", "{}"));
            let asked = raw.asked();
            if drops {
                drop(call);
            } else {
                call.cancel("enough");
                assert!(matches!(call.await, Err(CallError::Cancelled { .. })));
            }
            asked.hears_the_end();
        }
        // In the middle of the head.
        let call = client.call(tool("wait", "{}"));
        let mut asked = raw.asked();
        asked.send("HTTP/1.1 200 OK\r\nContent-Type: text/ev");
        drop(call);
        asked.hears_the_end();
        // And in the middle of a JSON object.
        let call = client.call(tool("wait", "{}"));
        let mut asked = raw.asked();
        asked.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"jsonrpc\"");
        drop(call);
        asked.hears_the_end();
        assert!(raw.is_quiet());
        assert_eq!((client.traffic().posts, client.stats().cancelled), (4, 4));
    });
}

#[test]
fn statement_02_a_timeout_closes_the_response_stream_and_posts_nothing() {
    run(async {
        let raw = Raw::start();
        let (config, clock) = by_hand();
        let client = raw.client(config).await;
        for (limit, is_idle) in [(Duration::from_secs(30), true), (Duration::from_secs(300), false)] {
            let request = tool("wait", "{}");
            let call = client.call(if is_idle { request } else { request.idle(None) });
            let asked = raw.asked();
            clock.advance(limit - Duration::from_nanos(1));
            clock.is_armed_for(Duration::from_nanos(1)).await;
            assert_eq!(client.stats().in_flight, 1);
            clock.advance(Duration::from_nanos(1));
            match call.await {
                Err(CallError::IdleTimeout { .. }) if is_idle => {}
                Err(CallError::MaxTimeout { .. }) if !is_idle => {}
                ended => panic!("{ended:?}"),
            }
            asked.hears_the_end();
        }
        assert!(raw.is_quiet());
        assert_eq!(client.traffic().posts, 2);
    });
}

#[test]
fn statement_02_the_handler_of_a_real_server_learns_of_it() {
    run(async {
        let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let tools = Tools::new("fixture", "0.0.0");
        let tools = tools.tool("wait", "Waits.", r#"{"type":"object"}"#, move |call, cx| {
            let said = said.clone();
            async move {
                let arguments: serde_json::Value = call.arguments()?;
                if arguments["report"] == true {
                    cx.report(1.0, None, "waiting");
                }
                let _test_is_over = said.send("started".to_owned());
                let cancelled = cx.cancelled().await;
                let _test_is_over = said.send(format!("{:?}", cancelled.reason));
                Err(cancelled.into())
            }
        });
        let tools = tools.tool("echo", "Answers.", r#"{"type":"object"}"#, |_, _| async { Ok(Reply::text("here")) });
        let url = serve(tools, ServeConfig::default()).await;
        let client = Client::connect(&url, Config::default()).await.expect("connected");
        for report in [false, true] {
            let call = client.call(Request::tool("wait", &json!({"report": report})));
            assert_eq!(heard.recv().await.as_deref(), Some("started"));
            drop(call);
            assert_eq!(heard.recv().await.as_deref(), Some("Disconnected"));
        }
        assert_eq!(client.call_tool("echo", &json!({})).await.expect("the server lives").text(), "here");
        // discover, two waits, one echo: no POST says that something is cancelled.
        assert_eq!(client.traffic().posts, 4);
    });
}

#[test]
fn a_call_that_waits_for_a_connection_leaves_no_trace() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(Config { max_connections: 1, ..unasked() }).await;
        let first = client.call(tool("a", "{}"));
        let mut asked = raw.asked();
        let waits = client.call(tool("b", "{}"));
        while client.stats().sent.messages < 2 {
            tokio::task::yield_now().await;
        }
        drop(waits);
        let third = client.call(tool("c", "{}"));
        // What is given up is given up before the next request is taken.
        while client.stats().sent.messages < 3 {
            tokio::task::yield_now().await;
        }
        asked.text("1");
        assert_eq!(first.tool_result().await.expect("an answer").text(), "1");
        let mut asked = raw.asked();
        assert_eq!(asked.body["params"]["name"], "c");
        asked.text("3");
        assert_eq!(third.tool_result().await.expect("an answer").text(), "3");
        assert_eq!(client.traffic().posts, 2);
    });
}

#[test]
fn a_late_answer_on_a_stream_that_is_given_up_reaches_nobody() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let given_up = client.call(tool("a", "{}"));
        let mut asked = raw.asked();
        given_up.cancel("enough");
        // It may already be closed, so that nobody takes this.
        let _taken_or_not = asked.try_send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n");
        assert!(matches!(given_up.await, Err(CallError::Cancelled { .. })));
        let next = client.call(tool("b", "{}"));
        let mut asked = raw.asked();
        asked.text("mine");
        assert_eq!(next.tool_result().await.expect("an answer").text(), "mine");
    });
}
