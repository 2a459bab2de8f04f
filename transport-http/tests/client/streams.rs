//! What comes on a response stream, in whatever pieces, and how it ends.

use serde_json::json;
use steady_http::client::{CallError, Client, Config};
use steady_http::steady_core::retry::Verdict;

use super::support::{Asked, Raw, run, tool, unasked};

async fn fast(raw: &Raw) -> Client {
    let mut config = unasked();
    config.calls.calls.progress_interval = std::time::Duration::ZERO;
    raw.client(config).await
}

/// A stream with all that may stand in one: a byte order mark, comments, unknown fields, data over several lines.
fn stream(id: &serde_json::Value, end: &str) -> Vec<u8> {
    let lines = [
        "\u{feff}: hello",
        "retry: 1",
        "",
        "id: 7",
        "event: message",
        "unknown",
        &format!(
            "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{id},"
        ),
        "data:\"progress\":1,",
        "data: \"message\":\"gr\u{fc}n \u{1F600}\"}}",
        "",
        ":",
        "",
        "data: no message at all",
        "",
        &format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"resultType\":\"complete\","),
        "data: \"content\":[{\"type\":\"text\",\"text\":\"\u{1F600}\"}]}}",
        "",
        "",
    ];
    lines.join(end).into_bytes()
}

#[test]
fn events_are_read_whatever_their_line_ends_and_pieces() {
    run(async {
        let raw = Raw::start();
        let client = fast(&raw).await;
        for end in ["\n", "\r", "\r\n"] {
            for piece in (1..8).chain([1000]) {
                let mut call = client.call(tool("a", "{}"));
                let mut next = raw.asked();
                next.events();
                let bytes = stream(&next.body["id"], end);
                bytes.chunks(piece).for_each(|piece| next.chunk(piece));
                next.end();
                let report = call.progress().await.expect("one value");
                assert_eq!((report.progress, &*report.message), (1.0, "gr\u{fc}n \u{1F600}"), "{end:?} {piece}");
                assert_eq!(call.progress().await, None);
                assert_eq!(call.tool_result().await.expect("an answer").text(), "\u{1F600}");
            }
        }
        let made = client.traffic().connections;
        assert!(made <= 12, "a stream that was read to its end leaves its connection: {made} for 24 requests");
        assert_eq!(client.stats().bad_messages, 24, "the event that is no message costs itself only");
    });
}

#[test]
fn what_names_another_request_goes_nowhere() {
    run(async {
        let raw = Raw::start();
        let client = fast(&raw).await;
        let victim = client.call(tool("victim", "{}"));
        let mut victims = raw.asked();
        let mut call = client.call(tool("a", "{}"));
        let mut asked = raw.asked();
        let other = &victims.body["id"];
        asked.events();
        asked.event(&json!({"jsonrpc": "2.0", "id": other, "result": {"content": []}}));
        let progress = json!({"progressToken": other, "progress": 5});
        asked.event(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}));
        asked.event(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": other}}));
        let stamped = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": other}});
        asked.event(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": stamped}));
        asked.event(&json!({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}}));
        asked.progress(1.0);
        asked.answer("mine");
        assert_eq!(call.progress().await.expect("its own").progress, 1.0);
        assert_eq!(call.tool_result().await.expect("an answer").text(), "mine");
        assert_eq!(client.stats().bad_messages, 5);
        victims.text("unharmed");
        assert_eq!(victim.tool_result().await.expect("an answer").text(), "unharmed");
        assert_eq!(client.stats().calls.unknown_ids, 0);
    });
}

#[test]
fn an_object_with_the_id_of_another_request_is_no_answer() {
    run(async {
        let raw = Raw::start();
        let client = fast(&raw).await;
        let call = client.call(tool("a", "{}"));
        let mut asked = raw.asked();
        let message = json!({"jsonrpc": "2.0", "id": 999, "result": {}}).to_string();
        asked.respond("200 OK", "application/json", &message);
        assert!(matches!(call.await, Err(CallError::Unknown { verdict: Verdict::ReconcileFirst, .. })));
    });
}

#[test]
fn an_error_without_an_id_ends_the_request_whose_stream_it_is_on() {
    run(async {
        let raw = Raw::start();
        let client = fast(&raw).await;
        let call = client.call(tool("a", "{}"));
        let error = json!({"jsonrpc": "2.0", "error": {"code": -32700, "message": "what?", "data": [1]}}).to_string();
        raw.asked().respond("400 Bad Request", "application/json", &error);
        let Err(CallError::Peer(error)) = call.await else { panic!("refused") };
        assert_eq!((error.code, &*error.message, error.data.as_deref()), (-32700, "what?", Some("[1]")));
    });
}

#[test]
fn a_stream_that_ends_without_an_answer_is_an_unknown_outcome_at_once() {
    run(async {
        let raw = Raw::start();
        let client = fast(&raw).await;
        // At its end, in the middle of an event, in the middle of a chunk, before its head, after half of an object.
        let endings: [fn(Asked); 5] = [
            |mut asked| {
                asked.events();
                asked.end();
            },
            |mut asked| {
                asked.events();
                asked.chunk("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n");
                asked.end();
            },
            |mut asked| {
                asked.events();
                asked.send("ff\r\ndata: {");
                asked.cut();
            },
            Asked::cut,
            |mut asked| {
                asked.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{");
                asked.cut();
            },
        ];
        for (nth, end) in endings.into_iter().enumerate() {
            let call = client.call(tool("order", "{}").idle(None).max(None));
            end(raw.asked());
            let ended = call.await;
            let Err(CallError::Unknown { loss, verdict: Verdict::ReconcileFirst }) = ended else {
                panic!("{nth}: {ended:?}")
            };
            assert!(!loss.what.is_empty(), "{nth}");
        }
        assert_eq!((client.traffic().posts, client.stats().unknown), (5, 5), "none was sent again");
    });
}

#[test]
fn an_answer_that_is_too_long_fails_its_own_call_only() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(Config { max_answer: 300, ..unasked() }).await;
        let long = "x".repeat(400);
        for streams in [false, true] {
            let call = client.call(tool("big", "{}"));
            let mut asked = raw.asked();
            if streams {
                asked.events();
                asked.chunk(format!(": {long}\n\n"));
                asked.progress(1.0);
                asked.answer(&long);
            } else {
                asked.text(&long);
            }
            let error = call.await.expect_err("it is too long");
            assert!(matches!(error, CallError::AnswerTooLong), "{error}");
        }
        let call = client.call(tool("small", "{}"));
        raw.asked().text("fine");
        assert_eq!(call.tool_result().await.expect("an answer").text(), "fine");
        assert_eq!(client.stats().too_long, 2);
    });
}
