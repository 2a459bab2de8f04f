//! Subscriptions on real sockets: rules L1 to L6, a client that stops reading, and rows of the public reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use steady_http::ServeConfig;

use super::support::{GUARD, Lab, Peer, post, post_with, request};

const ID: &str = "io.modelcontextprotocol/subscriptionId";

fn listen(id: &Value, notifications: &Value) -> String {
    request(&id.to_string(), "subscriptions/listen", &format!("\"notifications\":{notifications},"))
}

fn tools() -> Value {
    json!({"toolsListChanged": true})
}

/// A stream of a listen, read event by event.
struct Stream {
    peer: Peer,
    text: String,
}

impl Stream {
    fn open(lab: &Lab, id: &Value, notifications: &Value) -> Self {
        Self::open_with(lab, id, notifications, "")
    }

    fn open_with(lab: &Lab, id: &Value, notifications: &Value, headers: &str) -> Self {
        let mut peer = lab.connect();
        peer.send(post_with(&listen(id, notifications), headers).as_bytes());
        let head = peer.head();
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
        assert_eq!(head.header("mcp-session-id"), None, "rule H7");
        Self { peer, text: String::new() }
    }

    /// The next message; `None` at the proper end of the stream.
    fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let data = event.strip_prefix("data: ").map(|data| serde_json::from_str(data).expect("JSON"));
                assert!(data.is_some() || event.starts_with(':'), "an event or a comment: {event}");
                self.text = rest.to_owned();
                if data.is_some() {
                    return data;
                }
                continue;
            }
            let chunk = self.peer.chunk()?;
            self.text.push_str(&chunk);
        }
    }

    /// The next notification: its method and the id of its subscription.
    fn told(&mut self) -> (String, Value) {
        let message = self.next().expect("a message");
        let method = message["method"].as_str().unwrap_or_else(|| panic!("a notification: {message}"));
        (method.replace("notifications/", ""), message["params"]["_meta"][ID].clone())
    }

    /// Open and acknowledged.
    fn acknowledged(lab: &Lab, id: &Value, notifications: &Value) -> Self {
        let mut stream = Self::open(lab, id, notifications);
        assert_eq!(stream.told(), ("subscriptions/acknowledged".to_owned(), id.clone()));
        stream
    }
}

/// An answer in one JSON object.
fn ask(lab: &Lab, method: &str, params: &str) -> Value {
    let mut peer = lab.connect();
    peer.post(&request("9", method, params));
    serde_json::from_str(&peer.answer().text()).expect("JSON")
}

/// Publishes until it is told to stop.
fn publishing(lab: &Lab) -> (Arc<AtomicBool>, std::thread::JoinHandle<()>) {
    let (hub, stop) = (lab.hub.clone(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let publisher = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            hub.tools_changed();
            hub.resource_updated("x:a");
            std::thread::yield_now();
        }
    });
    (stop, publisher)
}

/// Waits until the hub holds nothing, under the hang guard.
fn until_nothing_is_left(lab: &Lab) {
    let start = std::time::Instant::now();
    loop {
        let left = lab.hub.counters();
        if (left.open, left.topics, left.name_bytes) == (0, 0, 0) {
            return;
        }
        assert!(start.elapsed() < GUARD, "{left:?}");
        std::thread::yield_now();
    }
}

#[test]
fn l1_the_acknowledgement_is_first_while_changes_race() {
    let lab = Lab::start();
    let (stop, publisher) = publishing(&lab);
    for round in 0..100 {
        let mut stream = Stream::acknowledged(&lab, &json!(round), &tools());
        assert_eq!(stream.told().0, "tools/list_changed", "and changes follow");
    }
    stop.store(true, Ordering::Relaxed);
    publisher.join().expect("no panic");
    until_nothing_is_left(&lab);
}

#[test]
fn l2_every_message_carries_the_id_with_its_json_type() {
    let lab = Lab::start();
    for id in [json!(7), json!("7"), json!("a \"b\"")] {
        let mut stream = Stream::acknowledged(&lab, &id, &json!({"resourceSubscriptions": ["x:a"]}));
        lab.hub.resource_updated("x:a");
        assert_eq!(stream.told(), ("resources/updated".to_owned(), id));
    }
}

#[test]
fn l3_one_publication_reaches_all_that_asked_and_nobody_else() {
    let lab = Lab::start();
    let asked = json!({"promptsListChanged": true, "resourcesListChanged": true, "taskIds": ["t"]});
    let mut other = Stream::open(&lab, &json!(0), &asked);
    let honoured = other.next().expect("a message")["params"]["notifications"].clone();
    assert_eq!(honoured, json!({"resourcesListChanged": true}), "what the server has");
    let mut streams: Vec<_> = (1..20).map(|id| Stream::acknowledged(&lab, &json!(id), &tools())).collect();
    lab.hub.tools_changed();
    for (id, stream) in (1..20).zip(&mut streams) {
        assert_eq!(stream.told(), ("tools/list_changed".to_owned(), json!(id)));
    }
    lab.hub.prompts_changed();
    lab.hub.resources_changed();
    assert_eq!(other.told().0, "resources/list_changed");
}

#[test]
fn l4_a_shutdown_answers_the_listen_after_what_it_owes_and_ends_the_stream() {
    let mut lab = Lab::start();
    let mut stream = Stream::acknowledged(&lab, &json!("s"), &tools());
    lab.hub.tools_changed();
    lab.stop();
    assert_eq!(stream.told().0, "tools/list_changed");
    let result = json!({"jsonrpc": "2.0", "id": "s", "result": {"resultType": "complete", "_meta": {ID: "s"}}});
    assert_eq!(stream.next(), Some(result));
    assert_eq!(stream.next(), None, "the proper end, and no notification on this transport");
    lab.has_ended();
    until_nothing_is_left(&lab);
}

#[test]
fn l5_after_a_loss_a_new_listen_needs_nothing_of_the_old_one() {
    let lab = Lab::start();
    drop(Stream::acknowledged(&lab, &json!(1), &json!({"resourceSubscriptions": ["x:a"]})));
    until_nothing_is_left(&lab);
    lab.hub.resource_updated("x:a");
    let mut stream = Stream::acknowledged(&lab, &json!(2), &json!({"resourceSubscriptions": ["x:a"]}));
    let read = ask(&lab, "resources/read", r#""uri":"x:a","#);
    assert_eq!(read["result"]["contents"][0]["text"], "a", "what the filter covers is read afresh");
    lab.hub.resource_updated("x:a");
    assert_eq!(stream.told().0, "resources/updated", "and then changes come");
}

#[test]
fn l6_neither_progress_nor_log_messages_travel_on_a_listen() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    let request = listen(&json!("s"), &tools());
    let with_level = request.replace("\"_meta\":{", r#""_meta":{"io.modelcontextprotocol/logLevel":"debug","#);
    assert!(with_level.contains("progressToken") && with_level.contains("logLevel"));
    peer.send(post(&with_level).as_bytes());
    peer.head();
    let mut stream = Stream { peer, text: String::new() };
    assert_eq!(stream.told().0, "subscriptions/acknowledged");
    lab.ping();
    lab.hub.tools_changed();
    assert_eq!(stream.told().0, "tools/list_changed", "nothing came in between");
}

#[test]
fn a_client_that_stops_reading_delays_nobody_hears_of_every_change_later_and_reads_anew() {
    let lab = Lab::start();
    let asked = json!({"toolsListChanged": true, "resourceSubscriptions": ["x:a", "x:b"]});
    let mut stuck = Stream::acknowledged(&lab, &json!("stuck"), &asked);
    // Until its socket and what is in front of it are full: then its mark stays, and publications coalesce with it.
    let start = std::time::Instant::now();
    let mut stuck_for = 0;
    while stuck_for < 20_000 {
        let before = lab.hub.counters();
        lab.hub.tools_changed();
        let after = lab.hub.counters();
        stuck_for = if after.marked == before.marked { stuck_for + 1 } else { 0 };
        if stuck_for % 64 == 63 {
            // An answer comes from the same threads: they have had their turn.
            lab.ping();
        }
        assert!(start.elapsed() < GUARD, "it does not fill: {after:?}");
    }
    let mut other = Stream::acknowledged(&lab, &json!("other"), &tools());
    lab.hub.tools_changed();
    assert_eq!(other.told().0, "tools/list_changed", "nobody waits for the one that is stuck");
    for _ in 0..1000 {
        lab.hub.resource_updated("x:b");
        lab.hub.resource_updated("x:a");
    }
    let (mut changes, mut updated) = (0_u64, Vec::new());
    while updated.len() < 2 {
        let message = stuck.next().expect("a message");
        match message["params"]["uri"].as_str() {
            None => changes += 1,
            Some(uri) => updated.push(uri.to_owned()),
        }
    }
    assert_eq!(updated, ["x:b", "x:a"], "each once, in the order of their first publication");
    let counted = lab.hub.counters();
    assert!(changes < counted.published && counted.coalesced >= 20_000, "{counted:?}");
    for uri in updated {
        let read = ask(&lab, "resources/read", &format!("\"uri\":\"{uri}\","));
        assert_eq!(read["result"]["contents"][0]["uri"], uri);
    }
}

#[test]
fn racing_listens_hang_ups_and_publications_leave_nothing() {
    let lab = Lab::start();
    let (stop, publisher) = publishing(&lab);
    std::thread::scope(|scope| {
        for client in 0..4 {
            let lab = &lab;
            let address = lab.address;
            scope.spawn(move || {
                for round in 0..50 {
                    let mut peer = Peer::connect(address);
                    let filter =
                        json!({"toolsListChanged": true, "resourceSubscriptions": ["x:a", format!("x:{client}")]});
                    peer.post(&listen(&json!(round), &filter));
                    if round % 2 == 0 {
                        peer.head();
                    }
                }
            });
        }
    });
    stop.store(true, Ordering::Relaxed);
    publisher.join().expect("no panic");
    lab.until(|counters| (counters.listens, counters.handlers) == (0, 0));
    until_nothing_is_left(&lab);
}

#[test]
fn an_open_listen_is_no_handler_and_no_request_in_flight() {
    let lab = Lab::start();
    let _stream = Stream::acknowledged(&lab, &json!(1), &tools());
    let counters = lab.service.counters();
    assert_eq!((counters.listens, counters.in_flight, counters.handlers), (1, 0, 0));
}

#[test]
fn row_81_83_84_a_listen_needs_no_handshake_and_no_session_of_before() {
    let lab = Lab::start();
    let mut stream = Stream::open_with(&lab, &json!(1), &tools(), "Mcp-Session-Id: of-a-server-that-is-gone\r\n");
    assert_eq!(stream.told().0, "subscriptions/acknowledged", "neither -32602 nor 404");
}

#[test]
fn row_82_a_position_in_a_lost_stream_is_ignored_and_nothing_is_replayed() {
    let lab = Lab::start();
    let mut lost = Stream::acknowledged(&lab, &json!(1), &tools());
    lab.hub.tools_changed();
    assert_eq!(lost.told().0, "tools/list_changed");
    drop(lost);
    until_nothing_is_left(&lab);
    lab.hub.tools_changed();
    let mut stream = Stream::open_with(&lab, &json!(2), &json!({"toolsListChanged": true}), "Last-Event-ID: 1\r\n");
    assert_eq!(stream.told(), ("subscriptions/acknowledged".to_owned(), json!(2)));
    assert!(ask(&lab, "tools/list", "")["result"]["tools"].is_array(), "what was missed is read");
    lab.hub.tools_changed();
    assert_eq!(stream.told(), ("tools/list_changed".to_owned(), json!(2)));
    assert!(!stream.text.contains("id:"), "rule H7");
}

#[test]
fn row_87_a_listen_that_was_quiet_for_long_is_alive() {
    let mut config = ServeConfig::default();
    config.http.keep_alive = Duration::from_millis(5);
    config.http.server.requests.limits.idle = Some(Duration::from_millis(1));
    config.http.server.requests.limits.maximum = Some(Duration::from_millis(1));
    let lab = Lab::with(config);
    let mut stream = Stream::acknowledged(&lab, &json!(1), &tools());
    let mut comments = 0;
    while comments < 5 {
        comments += stream.peer.chunk().expect("it lives").matches(": ").count().max(1);
    }
    lab.hub.tools_changed();
    assert_eq!(stream.told().0, "tools/list_changed", "rule T1: no deadline but that of its acknowledgement");
}
