//! Calls, their progress, their cancellation, and their limits.

use std::time::Duration;

use steady_stdio::client::Eras;
use steady_stdio::client::{CallError, Client, ClientConfig, LinkLoss, Request, StartError, config};
use steady_stdio::steady_core::client::Config;
use steady_stdio::steady_core::idempotency::Key;
use steady_stdio::steady_core::retry::Verdict;

use super::raw::Raw;
use super::{fixture, peer, ping, run, seen, spawn, tool, unasked};

#[test]
fn discover_list_call_and_shut_down() {
    run(async {
        let client = spawn(fixture()).await;
        assert_eq!(client.server().expect("it was asked").supported_versions, ["2026-07-28"]);
        assert_eq!(client.discover().await.expect("an answer").supported_versions, ["2026-07-28"]);
        let tools = client.list_tools().await.expect("an answer");
        assert!(tools.iter().any(|tool| tool.name == "echo"), "{tools:?}");
        ping(&client).await;
        let Err(CallError::Peer(error)) = client.call(tool("no such tool", "{}")).await else { panic!("refused") };
        assert_eq!(error.code, -32602);
        let status = client.shutdown().await;
        assert_eq!((status.ended, status.pid), (true, None));
        assert_eq!(status.last_exit.as_deref(), Some("ended with exit status: 0"));
        assert!(matches!(client.call(tool("echo", "{}")).await, Err(CallError::Closed(_))));
        let stats = client.stats();
        assert_eq!((stats.started, stats.answered, stats.peer_errors, stats.refused), (4, 3, 1, 1));
    });
}

#[test]
fn a_request_carries_what_every_request_carries_and_the_callers_own() {
    run(async {
        let (client, mut raw) = Raw::attach(unasked(), 1 << 20).await;
        let _call = client.call(Request::raw("x/y", "{\"a\":1,\n\"_meta\":{\"k\":[\"v\"]},\"b\":2}"));
        let heard = raw.heard();
        assert_eq!(
            (&heard["method"], &heard["params"]["a"], &heard["params"]["b"]),
            (&"x/y".into(), &1.into(), &2.into())
        );
        let meta = &heard["params"]["_meta"];
        assert_eq!((&meta["k"][0], &meta["progressToken"]), (&"v".into(), &heard["id"]));
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert!(
            meta["io.modelcontextprotocol/clientCapabilities"].is_object()
                && meta["io.modelcontextprotocol/clientInfo"]["name"].is_string()
        );
        let _quiet = client.call(Request::raw("x/y", "{}").without_progress());
        assert!(raw.heard()["params"]["_meta"].get("progressToken").is_none());
        for bad in ["[]", "{", "{}x", r#"{"_meta":{"progressToken":1}}"#, r#"{"_meta":{},"_meta":{}}"#] {
            let refused = client.call(Request::raw("x/y", bad)).await;
            assert!(matches!(refused, Err(CallError::Params(_))), "{bad}: {refused:?}");
        }
        let key = Key::parse("order-7").expect("a key");
        let _keyed = client.call(Request::raw("x/y", r#"{"_meta":{"k":1}}"#).key(key.clone()));
        let meta = raw.heard()["params"]["_meta"].clone();
        assert_eq!((&meta["mcp-steady.dev/idempotencyKey"], &meta["k"]), (&"order-7".into(), &1.into()));
        let twice = r#"{"_meta":{"mcp-steady.dev/idempotencyKey":"order-8"}}"#;
        let refused = client.call(Request::raw("x/y", twice).key(key)).await;
        assert!(matches!(refused, Err(CallError::Params(_))), "{refused:?}");
        // They are published at the end of the turn that wrote them.
        while client.stats().sent.messages < 3 {
            tokio::task::yield_now().await;
        }
        assert_eq!(client.stats().sent.messages, 3);
        let wrong = ClientConfig { capabilities: "[]".into(), ..unasked() };
        let (reader, writer) = Raw::pair().1.into_split();
        let refused = Client::attach(reader, writer, wrong.clone(), 1 << 20).await.expect_err("the settings are wrong");
        assert!(matches!(&refused, StartError::Settings(why) if why.to_string().contains("capabilities")), "{refused}");
        let refused = Client::spawn(fixture().config(wrong)).await.expect_err("nothing is started");
        assert!(matches!(refused, StartError::Settings(_)), "{refused}");
    });
}

#[test]
fn a_timeout_of_300_ms_returns_although_the_pipe_is_stuck() {
    run(async {
        // It never reads.
        let client = spawn(super::script("exec sleep 1000")).await;
        let fill = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
        let limit = Some(Duration::from_millis(300));
        let half_out = client.call(tool("echo", &fill).idle(limit));
        while client.stats().sent.bytes == 0 {
            tokio::task::yield_now().await;
        }
        let behind = client.call(tool("echo", "{}").max(limit));
        let half_out = half_out.await;
        assert!(
            matches!(half_out, Err(CallError::IdleTimeout { verdict: Verdict::ReconcileFirst, .. })),
            "{half_out:?}"
        );
        let behind = behind.await;
        assert!(matches!(behind, Err(CallError::MaxTimeout { verdict: Verdict::Retry, .. })), "{behind:?}");
        // A cancellation is as local as a timeout.
        let given_up = client.call(tool("echo", "{}"));
        given_up.cancel("enough");
        assert!(matches!(given_up.await, Err(CallError::Cancelled { verdict: Verdict::Retry })));
        assert_eq!((client.stats().in_flight, client.stats().sent.messages), (0, 0), "the pipe has not moved");
    });
}

#[test]
fn progress_after_the_answer_and_after_a_cancellation_never_surfaces() {
    run(async {
        let (client, mut raw) = Raw::attach(lossless(), 1 << 20).await;
        let mut answered = client.call(tool("a", "{}"));
        let id = raw.request();
        raw.progress(id, 1.0);
        raw.answer(id, "done");
        raw.progress(id, 2.0);
        raw.round_trip(&client).await;
        // What came before the answer is still read, and nothing after it.
        assert_eq!(answered.progress().await.expect("one value").progress, 1.0);
        assert_eq!(answered.progress().await, None);
        assert_eq!(answered.tool_result().await.expect("an answer").text(), "done");

        let mut given_up = client.call(tool("b", "{}"));
        let id = raw.request();
        raw.progress(id, 1.0);
        raw.round_trip(&client).await;
        given_up.cancel("enough");
        raw.progress(id, 2.0);
        raw.answer(id, "too late");
        let heard = raw.heard();
        assert_eq!(heard["params"], serde_json::json!({"requestId": id, "reason": "enough"}), "{heard}");
        raw.round_trip(&client).await;
        assert_eq!(given_up.progress().await, None);
        assert!(matches!(given_up.await, Err(CallError::Cancelled { verdict: Verdict::ReconcileFirst })));
        let counted = client.stats().calls;
        assert_eq!((counted.late_answers, counted.unknown_ids), (1, 2));
    });
}

#[test]
fn a_cancellation_right_after_discover_is_heard_after_its_request_or_not_at_all() {
    run(async {
        let (mut raw, stream) = Raw::pair();
        let (reader, writer) = stream.into_split();
        let attaching = tokio::spawn(Client::attach(reader, writer, config(), 1 << 20));
        let asked = raw.heard();
        assert_eq!(asked["method"], "server/discover");
        // The link carries no calls yet; nobody has a handle but who attaches, so it answers first.
        let id = &asked["id"];
        raw.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{{}}}}}}"#
        ));
        let client = attaching.await.expect("no panic").expect("attached");
        let call = client.call(tool("echo", "{}"));
        call.cancel("at once");
        assert!(matches!(call.await, Err(CallError::Cancelled { .. })));
        // Whether the loop was faster or not: a cancellation comes only after its request.
        let next = client.call(tool("next", "{}"));
        let mut heard = raw.heard();
        if heard["params"]["name"] == "echo" {
            let cancelled = raw.heard();
            assert_eq!(cancelled["params"]["requestId"], heard["id"], "{cancelled}");
            heard = raw.heard();
        }
        assert_eq!(heard["params"]["name"], "next", "{heard}");
        raw.answer(heard["id"].as_i64().expect("an integer"), "served");
        assert_eq!(next.tool_result().await.expect("an answer").text(), "served");
    });
}

#[test]
fn dropping_a_pending_call_cancels_it_and_the_server_hears_it() {
    run(async {
        let client = spawn(peer()).await;
        for round in 1..=20 {
            let mut call = client.call(tool("wait", "{}"));
            assert_eq!(&*call.progress().await.expect("it runs").message, "waiting");
            drop(call);
            // The handler wakes in its own time; a cancellation that is not sent never wakes it.
            let cancelled = format!("{round} started, {round} cancelled");
            while !seen(&client).await.starts_with(&cancelled) {}
        }
        // Also one that was never polled, and one behind options.
        drop(client.call(tool("wait", "{}").max(None).idle(None)));
        ping(&client).await;
        assert_eq!((client.stats().in_flight, client.stats().cancelled), (0, 21));
    });
}

#[test]
fn a_hundred_thousand_lossless_progress_arrive_in_order_and_none_after_the_result() {
    run(async {
        let client = spawn(peer().config(lossless())).await;
        let mut call = client.call(tool("count", r#"{"n":100000}"#).progress_buffer(100_000));
        let mut expected = 0.0;
        while let Some(report) = call.progress().await {
            expected += 1.0;
            assert_eq!((report.progress, report.total), (expected, Some(100_000.0)));
        }
        assert_eq!(expected, 100_000.0);
        assert_eq!(call.tool_result().await.expect("an answer").text(), "counted");
        assert_eq!((client.stats().progress_dropped, client.stats().calls.refused_progress), (0, 0));
    });
}

#[test]
fn progress_that_nobody_reads_keeps_the_newest_in_order() {
    run(async {
        let client = spawn(peer().config(lossless())).await;
        let mut call = client.call(tool("count", r#"{"n":10000}"#).progress_buffer(4));
        while client.stats().in_flight > 0 {
            tokio::task::yield_now().await;
        }
        let mut kept = Vec::new();
        while let Some(report) = call.progress().await {
            kept.push(report.progress);
        }
        assert_eq!(kept, [9997.0, 9998.0, 9999.0, 10000.0]);
        assert_eq!(client.stats().progress_dropped, 9996);
    });
}

#[test]
fn two_hundred_calls_at_once() {
    run(async {
        let client = spawn(peer()).await;
        let calls = (0..200).map(|n| (n, client.call(tool("echo", &format!(r#"{{"text":"{n}"}}"#)))));
        let calls: Vec<_> = calls.collect();
        for (n, call) in calls {
            assert_eq!(call.tool_result().await.expect("an answer").text(), n.to_string());
        }
        assert_eq!((client.stats().answered, client.stats().in_flight), (200, 0));
    });
}

#[test]
fn an_answer_that_is_too_long_fails_its_own_call_whatever_its_chunks() {
    run(async {
        let (client, mut raw) = Raw::attach(unasked(), 300).await;
        let long = "x".repeat(400);
        let first = |id: i64| super::raw::answer(id, &long);
        let last = |id: i64| format!(r#"{{"result":{{"content":[],"long":"{long}"}},"jsonrpc":"2.0","id":{id}}}"#);
        let mut failed = 0;
        for chunk in (1..40).chain([100, 299, 300, 301, 500]) {
            for line in [&first as &dyn Fn(i64) -> String, &last] {
                let (too_long, other) = (client.call(tool("big", "{}")), client.call(tool("echo", "{}")));
                let (id, other_id) = (raw.request(), raw.request());
                let text = format!("{}\n{}\n", line(id), super::raw::answer(other_id, "fine"));
                text.as_bytes().chunks(chunk).for_each(|piece| raw.say_bytes(piece));
                let error = too_long.await.expect_err("it is too long");
                assert!(matches!(error, CallError::AnswerTooLong), "{error}");
                assert_eq!(other.tool_result().await.expect("an answer").text(), "fine");
                failed += 1;
            }
        }
        assert_eq!(client.stats().too_long, failed);
    });
}

#[test]
fn a_request_that_is_too_long_is_refused_before_it_is_sent() {
    run(async {
        let (client, mut raw) = Raw::attach(ClientConfig { max_request: 1000, ..unasked() }, 1 << 20).await;
        let refused = client.call(tool("echo", &format!(r#"{{"text":"{}"}}"#, "x".repeat(1000)))).await;
        let Err(CallError::RequestTooLong { size, limit: 1000 }) = refused else { panic!("{refused:?}") };
        assert!(size > 1000);
        raw.round_trip(&client).await;
        assert_eq!(client.stats().sent.messages, 1);
    });
}

#[test]
fn the_caps_of_calls_and_of_bytes_refuse_and_say_so() {
    run(async {
        let calls = Config { in_flight: 2, ..unasked().calls };
        let config = ClientConfig { calls, max_in_flight_bytes: 2000, ..unasked() };
        let (client, mut raw) = Raw::attach(config, 1 << 20).await;
        let (first, second) = (client.call(tool("a", "{}")), client.call(tool("b", "{}")));
        let refused = client.call(tool("c", "{}")).await.expect_err("full");
        assert!(matches!(refused, CallError::Full { limit: 2 }), "{refused}");
        assert!(refused.to_string().contains("2 calls in flight"), "{refused}");
        drop(first);
        let long = tool("d", &format!(r#"{{"text":"{}"}}"#, "x".repeat(1900)));
        let refused = client.call(long).await.expect_err("too many bytes");
        assert!(matches!(refused, CallError::FullBytes { limit: 2000 }), "{refused}");
        drop(second);
        let next = client.call(tool("e", "{}"));
        loop {
            let heard = raw.heard();
            assert_ne!(heard["params"]["name"], "c", "{heard}");
            if heard["params"]["name"] == "e" {
                raw.answer(heard["id"].as_i64().expect("an integer"), "served");
                break;
            }
        }
        assert_eq!(next.tool_result().await.expect("an answer").text(), "served");
        assert_eq!(client.stats().refused, 2);
    });
}

#[test]
fn a_link_that_ends_before_it_carries_calls_says_so() {
    run(async {
        let (raw, stream) = Raw::pair();
        drop(raw);
        let (reader, writer) = stream.into_split();
        let error = Client::attach(reader, writer, config(), 1 << 20).await.expect_err("it is gone");
        assert!(error.to_string().contains("closed its output") || error.to_string().contains("failed"), "{error}");
    });
}

#[test]
fn a_server_of_another_revision_is_told_apart() {
    run(async {
        for (answer, expected) in [
            (r#""result":{"supportedVersions":["2025-11-25"]}"#, "2025-11-25"),
            (r#""result":[]"#, "cannot be used"),
            (r#""error":{"code":-32601,"message":"unknown method"}"#, "unknown method"),
        ] {
            let (mut raw, stream) = Raw::pair();
            let (reader, writer) = stream.into_split();
            let modern = ClientConfig { eras: Eras::Modern, ..config() };
            let attaching = tokio::spawn(Client::attach(reader, writer, modern, 1 << 20));
            let id = raw.heard()["id"].clone();
            raw.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},{answer}}}"#));
            let error = attaching.await.expect("no panic").expect_err("it does not fit").to_string();
            assert!(error.contains(expected), "{error}");
        }
    });
}

#[test]
fn a_server_of_an_older_revision_is_spoken_to_after_a_handshake() {
    run(async {
        let (mut raw, stream) = Raw::pair();
        let (reader, writer) = stream.into_split();
        let attaching = tokio::spawn(Client::attach(reader, writer, config(), 1 << 20));
        let id = raw.heard()["id"].clone();
        raw.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"unknown method"}}}}"#));
        let shakes = raw.heard();
        assert_eq!(
            (&shakes["method"], &shakes["params"]["protocolVersion"]),
            (&"initialize".into(), &"2025-11-25".into())
        );
        let result = r#"{"protocolVersion":"2025-03-26","capabilities":{},"serverInfo":{"name":"old","version":"1"}}"#;
        raw.say(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, shakes["id"]));
        assert_eq!(raw.heard()["method"], "notifications/initialized");
        let client = attaching.await.expect("no panic").expect("it is up");
        let call = client.call(tool("echo", "{}"));
        let sent = raw.heard();
        assert!(sent["params"]["_meta"].get("io.modelcontextprotocol/protocolVersion").is_none(), "{sent}");
        raw.say(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[]}}}}"#, sent["id"]));
        assert!(call.await.is_ok());
    });
}

#[test]
fn a_runtime_that_shuts_down_leaves_nobody_waiting() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let (client, _raw) = runtime.block_on(Raw::attach(unasked(), 1 << 20));
    let call = client.call(tool("a", "{}"));
    runtime.shutdown_background();
    let error = run(call).expect_err("its task is gone");
    assert!(error.loss().is_some_and(|loss: &LinkLoss| loss.what.contains("dropped")), "{error}");
    assert!(matches!(run(client.call(tool("b", "{}"))), Err(CallError::Closed(_))));
}

/// No rate limit on progress.
fn lossless() -> ClientConfig {
    let config = unasked();
    ClientConfig { calls: Config { progress_interval: Duration::ZERO, ..config.calls }, ..config }
}
