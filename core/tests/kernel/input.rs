//! Cancellations of nothing, duplicates, and lines that are no messages.

use steady_core::kernel::{Answer, BadFrame, ServerConfig};

use super::support::Frame;
use super::{Door, Log, Server, cancel, ok, request};

fn server(door: &Door, log: &Log) -> Server {
    let (door, log) = (door.clone(), log.clone());
    Server::new(ServerConfig::default(), move |call, _| {
        log.note(&*call.method);
        match &*call.method {
            "wait" => {
                let door = door.clone();
                Answer::later(async move {
                    door.passed().await;
                    ok()
                })
            }
            _ => Answer::Ready(ok()),
        }
    })
}

#[test]
fn cancellations_of_nothing_are_ignored_at_any_time() {
    let (door, log) = (Door::default(), Log::default());
    let mut server = server(&door, &log);
    let malformed = [
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":"x"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}"#,
    ];
    server.send(cancel(1));
    malformed.iter().for_each(|text| server.send(*text));
    assert_eq!(server.received(), Vec::<String>::new(), "before the first request");
    server.send(request(0, "server/discover"));
    server.send(cancel(1));
    server.send(cancel(0));
    malformed.iter().for_each(|text| server.send(*text));
    server.send(request(1, "wait"));
    server.send(cancel("1"));
    server.send(cancel("x"));
    server.send(cancel(2));
    door.open();
    assert_eq!(server.received(), ["0 ok", "1 ok"]);
    let counters = server.counters();
    assert_eq!((counters.cancelled_malformed, counters.requests.cancelled_unknown), (10, 6));
    assert_eq!((counters.requests.cancelled, counters.requests.cancelled_late), (0, 0));
    assert!(server.ended.is_none());
}

#[test]
fn a_cancellation_with_an_id_is_a_request_for_an_unknown_method() {
    let log = Log::default();
    let mut server = server(&Door::default(), &log);
    server.send(request(1, "wait"));
    server.send(r#"{"jsonrpc":"2.0","id":2,"method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(server.received(), ["2 error -32602"], "rule C7: it is checked as a request, and lacks _meta");
    assert_eq!(server.counters().requests.cancelled, 0);
}

#[test]
fn a_duplicate_of_an_id_in_flight_is_not_executed_and_the_first_is_answered() {
    let (door, log) = (Door::default(), Log::default());
    let mut server = server(&door, &log);
    server.send(request(1, "wait"));
    server.send(request(1, "echo"));
    // Also one that would be refused for its metadata: no error may go out under this id.
    server.send(r#"{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}"#);
    assert_eq!(server.received(), ["error -32600", "error -32600"], "id-less (rule C10)");
    assert_eq!(log.take(), ["wait"]);
    server.send(request("1", "echo"));
    assert_eq!(server.received(), ["\"1\" ok"], "the other JSON type is another id");
    door.open();
    assert_eq!(server.received(), ["1 ok"]);
    server.send(request(1, "echo"));
    assert_eq!(server.received(), ["1 ok"], "free after its answer");
}

#[test]
fn a_bad_line_costs_itself_only() {
    let mut server = server(&Door::default(), &Log::default());
    let good = request(1, "echo");
    let replies: [(&str, &[&str]); 9] = [
        (&good[..good.len() - 1], &["error -32700"]),
        (&good[..30], &["error -32700"]),
        (&format!("[{good}]"), &["error -32600"]),
        (r#"{"id":1,"method":"echo"}"#, &["error -32600"]),
        (r#"{"jsonrpc":"2.0","id":null,"method":"echo"}"#, &["error -32600"]),
        // A log line, and answers that cannot be read: two peers would echo errors for ever.
        ("Listening on stdio ...", &[]),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"#, &[]),
        (r#"{"jsonrpc":"2.0","id":{},"result":1}"#, &[]),
        (r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"?"}}"#, &[]),
    ];
    for (id, (line, expected)) in replies.iter().enumerate() {
        server.send(*line);
        assert_eq!(server.received(), *expected, "{line}");
        server.send(request(id, "echo"));
        assert_eq!(server.received(), [format!("{id} ok")], "after {line}");
    }
    server.world.feed(Frame::Bad(BadFrame::TooLong));
    assert_eq!(server.received(), ["error -32700"]);
    // As like a line of a log as a message.
    server.world.feed(Frame::Bad(BadFrame::NotUtf8));
    assert_eq!(server.received(), Vec::<String>::new());
    // A byte order mark in front: that line is lost, and no other.
    server.send(format!("\u{feff}{good}"));
    let after_mark = server.received();
    assert!(after_mark.iter().all(|line| line == "error -32700"), "{after_mark:?}");
    server.send(good);
    assert_eq!(server.received(), ["1 ok"]);
    assert!(server.counters().bad_messages >= 10);
}

#[test]
fn requests_are_checked_before_they_run() {
    let log = Log::default();
    let mut server = server(&Door::default(), &log);
    server.send(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":7}}"#);
    server.send(r#"{"jsonrpc":"2.0","id":2,"method":"echo"}"#);
    server.send(request(3, "echo").replace("2026-07-28", "1999-01-01"));
    assert_eq!(server.received(), ["1 error -32602", "2 error -32602", "3 error -32022"]);
    server.send(request(4, "wait"));
    server.send(request(5, "echo").replace(r#""progressToken":5"#, r#""progressToken":4"#));
    assert_eq!(server.received(), ["5 error -32602"], "rule P1");
    assert_eq!(log.take(), ["wait"], "nothing of it ran");
}
