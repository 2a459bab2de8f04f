//! What changes, and a client of an older revision: when its session costs the hub something, and what it is told.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::legacy::{Client, plain};
use super::support::Lab;

/// Opens the stream of a session; what is said on it, one after the other.
fn stream(client: &Client<'_>) -> impl FnMut() -> Value + use<> {
    let mut stream = client.bare("GET");
    assert_eq!(stream.head().status, 200);
    let mut waiting = VecDeque::new();
    move || loop {
        if let Some(message) = waiting.pop_front() {
            return message;
        }
        let chunk = stream.chunk().expect("the stream goes on");
        let messages = chunk.lines().filter_map(|line| line.strip_prefix("data: "));
        waiting.extend(messages.map(|data| serde_json::from_str(data).expect("JSON")));
    }
}

#[test]
fn changes_reach_the_stream_of_a_session_that_a_get_opened() {
    let lab = Lab::start();
    let client = Client::open(&lab, "2025-11-25");
    let mut told = stream(&client);
    lab.hub.tools_changed();
    assert_eq!(told()["method"], "notifications/tools/list_changed");
    lab.hub.resource_updated("x:a");
    assert_eq!(client.answer(&plain(1, "resources/subscribe", &json!({"uri":"x:a"}))).status, 200);
    lab.hub.resource_updated("x:a");
    let updated = json!({"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:a"}});
    assert_eq!(told(), updated);
    lab.hub.tools_changed();
    assert_eq!(told()["method"], "notifications/tools/list_changed");
}

#[test]
fn a_session_costs_the_hub_nothing_before_it_needs_changes() {
    let lab = Lab::start();
    let open = || lab.hub.counters().open;
    let [reader, watcher, other] = [(); 3].map(|()| Client::open(&lab, "2025-11-25"));
    assert_eq!(other.answer(&plain(1, "tools/list", &json!({}))).status, 200);
    assert_eq!(open(), 0, "nobody listens");
    let _told = stream(&reader);
    assert_eq!(open(), 1);
    let watch = |id, method: &str| watcher.answer(&plain(id, method, &json!({"uri":"x:a"}))).status;
    assert_eq!((watch(1, "resources/unsubscribe"), open()), (200, 1), "nothing was watched");
    assert_eq!((watch(2, "resources/subscribe"), open()), (200, 2));
    let mut told = stream(&watcher);
    assert_eq!(open(), 2, "one for all that a session hears");
    lab.hub.resource_updated("x:a");
    assert_eq!(told()["params"]["uri"], "x:a");
    for session in [&reader, &watcher, &other] {
        assert_eq!(session.delete(), 204);
    }
    assert_eq!(open(), 0, "nothing stays behind");
}

#[test]
fn what_was_read_before_the_first_stream_may_have_changed_and_is_said_to() {
    let lab = Lab::start();
    let client = Client::open(&lab, "2025-11-25");
    assert_eq!(client.answer(&plain(1, "tools/list", &json!({}))).status, 200);
    lab.hub.tools_changed();
    let mut told = stream(&client);
    let mut said = Vec::new();
    while !said.contains(&json!("notifications/tools/list_changed")) {
        said.push(told()["method"].clone());
    }
}

#[test]
fn a_stream_for_which_the_hub_has_no_place_is_refused_and_opens_once_it_has() {
    let lab = Lab::start();
    let client = Client::open(&lab, "2025-11-25");
    let mut all = Vec::new();
    while let Ok(place) = lab.hub.subscribe(None, []) {
        all.push(place);
    }
    let refused = client.bare("GET").answer();
    assert_eq!((refused.status, refused.code()), (503, -31001));
    assert!(refused.header("retry-after").is_some());
    let subscribed = client.answer(&plain(1, "resources/subscribe", &json!({"uri":"x:a"})));
    assert_eq!((subscribed.status, subscribed.code()), (200, -31001));
    drop(all);
    let mut told = stream(&client);
    lab.hub.tools_changed();
    assert_eq!(told()["method"], "notifications/tools/list_changed");
}
