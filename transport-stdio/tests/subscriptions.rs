//! Subscriptions over real pipes: rules L1 to L6 and C5, a client that stops reading, and rows of the public reports.
#![cfg(unix)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};
use support::{GUARD, Peer, call, cancel, request};

const ID: &str = "io.modelcontextprotocol/subscriptionId";
/// Bytes in a pipe of a server that is on its way to fill it: batches do not share its pages, so it is full long before its
/// 64 KiB.
const PIPE_FILLS: u64 = 24 << 10;

fn listen(id: &str, notifications: &Value) -> String {
    request(id, "subscriptions/listen", &format!("\"notifications\":{notifications},"))
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The method of a notification and the id of its subscription.
fn of(line: &str) -> (String, Value) {
    let message = json(line);
    let method = message["method"].as_str().unwrap_or_else(|| panic!("a notification: {line}"));
    (method.replace("notifications/", ""), message["params"]["_meta"][ID].clone())
}

fn tools() -> Value {
    json!({"toolsListChanged": true})
}

/// Publishes once, and what came up to the answer and a further one: notifications only.
fn publish(peer: &mut Peer, id: u32, text: &str) -> Vec<String> {
    peer.send(&call(id, "publish", &json!({"to": 1, "text": text}).to_string()));
    let mut lines = peer.until_answer(&id.to_string());
    assert!(lines.pop().is_some_and(|answer| answer.contains("published: ")), "{lines:?}");
    lines.extend(peer.ping(id + 1));
    lines.pop();
    lines
}

#[test]
fn l1_the_acknowledgement_is_first_while_changes_race() {
    let mut peer = Peer::spawn();
    for round in 0..50_u32 {
        let id = (round * 10).to_string();
        // In one write, so that they meet in the server.
        let racing: Vec<String> = (1..4).map(|n| call(round * 10 + n, "publish", r#"{"to":3}"#)).collect();
        peer.send(&format!("{}\n{}\n{}", racing[0], listen(&id, &tools()), racing[1..].join("\n")));
        let mut of_it = Vec::new();
        let mut answers = 0;
        while answers < 3 || !of_it.iter().any(|method: &String| method == "tools/list_changed") {
            let line = peer.line();
            if line.contains("\"result\"") {
                answers += 1;
            } else {
                let (method, own) = of(&line);
                if own == json!(round * 10) {
                    of_it.push(method);
                }
            }
        }
        assert_eq!(of_it[0], "subscriptions/acknowledged", "{of_it:?}");
        peer.send(&cancel(&id));
    }
}

#[test]
fn l2_every_message_carries_the_id_with_its_json_type() {
    let mut peer = Peer::spawn();
    for (id, value) in [("7", json!(7)), ("\"7\"", json!("7"))] {
        peer.send(&listen(id, &tools()));
        assert_eq!(of(&peer.line()), ("subscriptions/acknowledged".to_owned(), value.clone()));
    }
    let told: Vec<_> = publish(&mut peer, 100, "").iter().map(|line| of(line)).collect();
    let changed = "tools/list_changed".to_owned();
    assert_eq!(told, [(changed.clone(), json!(7)), (changed, json!("7"))]);
}

#[test]
fn l3_nothing_that_was_not_asked_for_and_nothing_that_is_not_offered() {
    let mut peer = Peer::spawn();
    let asked = json!({"promptsListChanged": true, "resourceSubscriptions": ["x:b"], "taskIds": ["t"]});
    peer.send(&listen("1", &asked));
    assert_eq!(json(&peer.line())["params"]["notifications"], json!({"resourceSubscriptions": ["x:b"]}));
    assert_eq!(publish(&mut peer, 100, ""), [""; 0]);
    let told = publish(&mut peer, 200, "x:b");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(json(&told[0])["params"]["uri"], "x:b");
}

#[test]
fn l4_a_shutdown_answers_the_listen_and_then_says_that_it_is_cancelled() {
    let mut peer = Peer::spawn();
    peer.send(&listen("\"s\"", &tools()));
    peer.line();
    peer.signal(Signal::TERM);
    assert_eq!(peer.exit().code(), Some(0));
    let rest: Vec<Value> = peer.rest().iter().map(|line| json(line)).collect();
    assert_eq!(rest.len(), 2, "{rest:?}");
    assert_eq!(rest[0], json!({"jsonrpc": "2.0", "id": "s", "result": {"resultType": "complete", "_meta": {ID: "s"}}}));
    assert_eq!((&rest[1]["method"], &rest[1]["params"]["requestId"]), (&json!("notifications/cancelled"), &json!("s")));
}

#[test]
fn l5_after_a_loss_a_new_listen_needs_nothing_of_the_old_one() {
    let mut lost = Peer::spawn();
    lost.send(&listen("1", &tools()));
    lost.line();
    drop(lost);
    let mut peer = Peer::spawn();
    peer.send(&listen("2", &json!({"resourceSubscriptions": ["x:a"]})));
    assert_eq!(of(&peer.line()), ("subscriptions/acknowledged".to_owned(), json!(2)));
    peer.send(&request("3", "resources/read", r#""uri":"x:a","#));
    assert_eq!(json(&peer.line())["result"]["contents"][0]["text"], "a", "what the filter covers is read afresh");
    assert_eq!(publish(&mut peer, 10, "").len(), 1, "and then changes come");
}

#[test]
fn l6_neither_progress_nor_log_messages_travel_on_a_listen() {
    let mut peer = Peer::spawn();
    let with_level =
        listen("1", &tools()).replace("\"_meta\":{", r#""_meta":{"io.modelcontextprotocol/logLevel":"debug","#);
    peer.send(&with_level);
    let mut lines = vec![peer.line()];
    peer.send(&call(2, "count", r#"{"to":20}"#));
    lines.extend(peer.until_answer("2"));
    lines.extend(publish(&mut peer, 10, ""));
    let own = |line: &&String| json(line)["params"]["_meta"][ID] == json!(1);
    let methods: Vec<String> = lines.iter().filter(own).map(|line| of(line).0).collect();
    assert_eq!(methods, ["subscriptions/acknowledged", "tools/list_changed"]);
    let progress = lines.iter().filter(|line| line.contains("notifications/progress"));
    assert!(
        progress.into_iter().all(|line| json(line)["params"]["progressToken"] == json!(2)),
        "rule P1: its own token"
    );
}

#[test]
fn a_client_that_stops_reading_hears_of_every_change_later_and_reads_anew() {
    let mut child = support::fixture().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let (mut input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    const CALLS: u32 = 3000;
    let writer = std::thread::spawn(move || {
        let mut send = |line: String| writeln!(input, "{line}").expect("the server reads on once its client does");
        send(listen("1", &json!({"toolsListChanged": true, "resourceSubscriptions": ["x:a", "x:b"]})));
        for id in 0..CALLS {
            send(call(id + 10, "publish", r#"{"to":100,"text":"x:b"}"#));
        }
        send(request("2", "resources/read", r#""uri":"x:b","#));
        input
    });
    let start = Instant::now();
    while rustix::io::ioctl_fionread(&output).expect("a pipe") < PIPE_FILLS {
        assert!(start.elapsed() < GUARD, "the pipe does not fill");
        std::thread::yield_now();
    }
    // Nothing is read until then: far more is published than the pipe takes, and waits in the server.
    let mut notified = std::collections::BTreeMap::<String, u32>::new();
    let (mut answered, mut last, mut first) = (0, String::new(), None);
    let mut after_the_last_but_one = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line.expect("UTF-8");
        let message = json(&line);
        if message["id"] == json!(2) {
            assert_eq!(message["result"]["contents"][0]["text"], "b", "it reads anew");
            last = line;
        } else if message.get("result").is_some() {
            answered += 1;
        } else {
            let (method, id) = of(&line);
            assert_eq!(id, json!(1));
            first.get_or_insert_with(|| method.clone());
            let thing = format!("{method} {}", message["params"]["uri"]);
            *notified.entry(thing.clone()).or_default() += 1;
            if answered + 1 >= CALLS {
                after_the_last_but_one.push(thing);
            }
        }
        let all = ["tools/list_changed null", "resources/updated \"x:a\"", "resources/updated \"x:b\""];
        let told = all.iter().all(|thing| after_the_last_but_one.iter().any(|told| told == thing));
        if answered == CALLS && !last.is_empty() && told {
            break;
        }
    }
    assert_eq!((answered, first.as_deref()), (CALLS, Some("subscriptions/acknowledged")));
    assert!(!last.is_empty(), "the input was read to its end");
    for (thing, count) in &notified {
        assert!(*count <= CALLS, "{thing}: {count} for {} publications", CALLS * 100);
    }
    drop(writer.join().expect("no panic"));
    assert!(child.wait().expect("a child of ours").success());
}

#[test]
fn racing_listens_cancellations_and_publications_leave_nothing() {
    let mut peer = Peer::spawn();
    for round in 0..200_u32 {
        let id = (1000 + round).to_string();
        let publish = call(10_000 + round, "publish", r#"{"to":2,"text":"x:b"}"#);
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["x:a", "x:b"]});
        peer.send(&format!("{}\n{publish}\n{}", listen(&id, &filter), cancel(&id)));
        peer.until_answer(&(10_000 + round).to_string());
    }
    peer.send(&call(1, "publish", r#"{"to":1}"#));
    let counted = peer.until_answer("1").pop().expect("an answer");
    assert!(counted.contains("open: 0, topics: 0, name_bytes: 0, opened: 200"), "{counted}");
}

#[test]
fn the_limit_of_a_connection_is_a_clear_refusal() {
    let mut peer = Peer::spawn_with(&["two-listens"]);
    for id in ["1", "2"] {
        peer.send(&listen(id, &tools()));
        assert_eq!(of(&peer.line()).0, "subscriptions/acknowledged");
    }
    peer.send(&listen("3", &tools()));
    let refused = json(&peer.line());
    assert_eq!(refused["error"]["code"], -31001);
    assert!(refused["error"]["message"].as_str().is_some_and(|why| why.contains("2 open listens")), "{refused}");
    peer.send(&cancel("1"));
    peer.send(&listen("4", &tools()));
    assert_eq!(of(&peer.line()).0, "subscriptions/acknowledged");
    peer.ping(50);
}

#[test]
fn row_81_a_listen_to_a_restarted_server_needs_no_handshake() {
    drop(Peer::spawn());
    let mut peer = Peer::spawn();
    peer.send(&listen("1", &tools()));
    assert_eq!(of(&peer.line()).0, "subscriptions/acknowledged", "no -32602: nothing has to be said first");
}

#[test]
fn row_82_what_changed_while_nobody_listened_is_found_by_a_read_and_not_replayed() {
    let mut peer = Peer::spawn();
    peer.send(&listen("1", &tools()));
    peer.line();
    peer.send(&cancel("1"));
    assert_eq!(publish(&mut peer, 10, ""), [""; 0]);
    peer.send(&listen("2", &json!({"resourceSubscriptions": ["x:a"]})));
    assert_eq!(of(&peer.line()).0, "subscriptions/acknowledged");
    let lines = peer.ping(20);
    assert_eq!(lines.len(), 1, "nothing of before: {lines:?}");
    peer.send(&request("3", "resources/read", r#""uri":"x:a","#));
    assert!(peer.line().contains("\"contents\""));
}

#[test]
fn a_resource_that_is_none_is_invalid_params_with_its_uri() {
    let mut peer = Peer::spawn();
    for uri in ["x:long", "y:a"] {
        peer.send(&request("1", "resources/read", &format!("\"uri\":\"{uri}\",")));
        let error = json(&peer.line())["error"].clone();
        assert_eq!((&error["code"], &error["data"]["uri"]), (&json!(-32602), &json!(uri)));
    }
}
