//! A subscription that reads by itself: fresh state before anything after a gap, whatever fails on the way.

use std::time::Duration;

use serde_json::{Value, json};
use steady_core::backoff::Backoff;
use steady_core::kernel::client::{Change, Changes, Fresh};
use steady_core::retry::BudgetConfig;
use steady_core::subscription::{Config, End, Filter, Refetch};

use super::listens::stamped;
use super::{Client, config, now};

const ACK: &str = "notifications/subscriptions/acknowledged";
const TOOLS: &str = "notifications/tools/list_changed";

fn changes(client: &Client, filter: &str) -> Changes {
    let no_pause = Backoff { base: Duration::ZERO, cap: Duration::ZERO };
    let config = Config { backoff: no_pause, ..Config::default() };
    client.caller.changes_with(Filter::parse(filter).expect("a filter"), config).expect("room")
}

/// All that is there to read, in short.
fn told(client: &mut Client, changes: &mut Changes) -> Vec<String> {
    let mut all = Vec::new();
    client.run();
    while let Some(change) = now(changes.next()) {
        all.push(match &change {
            Change::Notice(notice) => format!("notice {}", notice.method),
            Change::Gap { refetch } => format!("gap of {}", refetch.len()),
            Change::Fresh { what, state: Fresh::List(items) } => {
                let ids: Vec<&str> = items.iter().map(|item| &*item.id).collect();
                format!("{}: {}", what.method(), ids.join(" "))
            }
            Change::Fresh { what, state: Fresh::One(raw) } => format!("{}: {}", what.method(), raw.get()),
            Change::Unreadable { what, error } => format!("{} failed: {error}", what.method()),
            Change::Ended(end) => format!("{end:?}"),
        });
        if matches!(change, Change::Ended(_)) {
            break;
        }
    }
    all
}

fn result(id: u64, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn error(id: u64, code: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}})
}

/// A client whose subscription was lost before it was acknowledged, and is acknowledged under the id 2.
fn recovered(filter: &str) -> (Client, Changes) {
    let mut client = Client::new(config());
    let changes = changes(&client, filter);
    client.run();
    client.lose(true);
    client.at(1);
    assert_eq!(client.heard(), ["2 subscriptions/listen"]);
    client.say(&stamped(ACK, 2));
    (client, changes)
}

#[test]
fn statement_11_fresh_state_comes_before_anything_after_the_gap_without_the_readers_doing() {
    let mut client = Client::new(config());
    let mut changes = changes(&client, r#"{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}"#);
    client.run();
    client.say(&stamped(ACK, 1));
    assert_eq!(told(&mut client, &mut changes), ["gap of 2"], "what was read before the first stream is older than it");
    assert_eq!(client.heard(), ["1 subscriptions/listen", "2 tools/list", "3 resources/read"]);
    client.say(&result(2, &json!({"tools": []})));
    client.say(&result(3, &json!({"contents": []})));
    assert_eq!(told(&mut client, &mut changes).len(), 2);
    client.lose(true);
    client.at(1);
    assert_eq!(client.heard(), ["4 subscriptions/listen"]);
    client.say(&stamped(ACK, 4));
    assert_eq!(told(&mut client, &mut changes), ["gap of 2"]);
    assert_eq!(client.heard(), ["5 tools/list", "6 resources/read"]);
    client.say(&stamped(TOOLS, 4));
    client.say(&result(6, &json!({"contents": []})));
    // Two pages; a tool that stands on both counts once, as it was read last.
    let page = |tools: Value, next: Value| json!({"tools": tools, "nextCursor": next});
    client.say(&result(5, &page(json!([{"name": "a"}, {"name": "b", "old": 1}]), "p2".into())));
    assert_eq!(told(&mut client, &mut changes), [r#"resources/read: {"contents":[]}"#]);
    client.run();
    let line = client.world.lines().concat();
    assert!(line.contains(r#""id":7,"method":"tools/list""#) && line.contains(r#""cursor":"p2""#), "{line}");
    client.say(&result(7, &page(json!([{"name": "b"}, {"name": "c"}]), Value::Null)));
    let Some(Change::Fresh { what: Refetch::Tools, state: Fresh::List(items) }) = now(changes.next()) else {
        panic!("the list");
    };
    let items: Vec<(&str, &str)> = items.iter().map(|item| (&*item.id, item.value.get())).collect();
    assert_eq!(items, [("a", r#"{"name":"a"}"#), ("b", r#"{"name":"b"}"#), ("c", r#"{"name":"c"}"#)]);
    // The tools changed while they were read: they are read again, and nothing else.
    assert_eq!(told(&mut client, &mut changes), ["gap of 1"]);
    assert_eq!(client.heard(), ["8 tools/list"]);
    client.say(&result(8, &json!({"tools": []})));
    client.say(&stamped(TOOLS, 4));
    assert_eq!(told(&mut client, &mut changes), ["tools/list: ", "gap of 1"], "it came before that was taken");
    client.run();
    client.say(&result(9, &json!({"tools": [{"name": "d"}]})));
    assert_eq!(told(&mut client, &mut changes), ["tools/list: d"]);
    client.say(&stamped(TOOLS, 4));
    assert_eq!(told(&mut client, &mut changes), [format!("notice {TOOLS}")]);
}

#[test]
fn a_read_that_fails_in_passing_is_tried_again_and_one_that_is_refused_is_told() {
    let (mut client, mut changes) = recovered(r#"{"toolsListChanged":true,"promptsListChanged":true}"#);
    assert_eq!(told(&mut client, &mut changes), ["gap of 2"]);
    assert_eq!(client.heard(), ["3 tools/list", "4 prompts/list"]);
    client.say(&error(3, -31001));
    client.say(&error(4, -32601));
    assert_eq!(
        told(&mut client, &mut changes),
        ["prompts/list failed: the server answered with an error: no (-32601)"]
    );
    assert_eq!(client.heard(), ["5 tools/list"], "an overload passes");
    // The link goes in the middle of the gap: the same read again, and the gap comes again.
    client.lose(true);
    client.at(2);
    let mut heard = client.heard();
    heard.sort();
    assert_eq!(heard, ["6 tools/list", "7 subscriptions/listen"]);
    client.say(&stamped(ACK, 7));
    client.say(&result(6, &json!({"tools": [{"name": "a"}]})));
    assert_eq!(told(&mut client, &mut changes), ["tools/list: a", "gap of 2"], "it may be older than the second loss");
}

#[test]
fn eight_reads_are_under_way_at_most_and_a_circle_of_pages_is_told() {
    let uris: Vec<String> = (0..20).map(|nth| format!("file:///{nth}")).collect();
    let filter = json!({"resourceSubscriptions": uris, "resourcesListChanged": true}).to_string();
    let (mut client, mut changes) = recovered(&filter);
    assert_eq!(told(&mut client, &mut changes), ["gap of 21"]);
    assert_eq!(client.heard().len(), 8);
    client.say(&result(4, &json!({"contents": []})));
    assert_eq!(told(&mut client, &mut changes).len(), 1);
    assert_eq!(client.heard().len(), 1, "one for one");
    let circle = json!({"resources": [{"uri": "file:///x"}], "nextCursor": "again"});
    client.say(&result(3, &circle));
    assert_eq!(told(&mut client, &mut changes), [""; 0]);
    assert_eq!(client.heard(), ["12 resources/list"]);
    client.say(&result(12, &circle));
    let told = told(&mut client, &mut changes);
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("the pages of resources/list have no end"), "{told:?}");
    drop(changes);
    assert!(client.heard().contains(&"cancelled 2".to_owned()), "its reads and its listen end with it");
    assert_eq!(client.caller.stats().in_flight, 0);
}

#[test]
fn what_is_no_list_is_told_and_an_end_is_an_end() {
    let (mut client, mut changes) = recovered(r#"{"toolsListChanged":true}"#);
    assert_eq!(told(&mut client, &mut changes), ["gap of 1"]);
    client.run();
    client.say(&result(3, &json!({"tools": [{"title": "without a name"}]})));
    let told_now = told(&mut client, &mut changes);
    assert!(told_now[0].contains("no list of tools with a name"), "{told_now:?}");
    client.say(&result(2, &json!({"resultType": "complete"})));
    for _ in 0..2 {
        assert_eq!(told(&mut client, &mut changes), [format!("{:?}", End::Graceful)]);
    }
}

#[test]
fn a_read_that_the_server_fails_again_and_again_is_told_and_closes_the_gap() {
    let (mut client, mut changes) = recovered(r#"{"toolsListChanged":true}"#);
    assert_eq!(told(&mut client, &mut changes), ["gap of 1"]);
    assert_eq!(client.heard(), ["3 tools/list"]);
    for id in [3, 4] {
        client.say(&error(id, -32603));
        assert_eq!(told(&mut client, &mut changes), [""; 0], "it may pass");
        client.at(id);
        assert_eq!(told(&mut client, &mut changes), [""; 0]);
        assert_eq!(client.heard(), [format!("{} tools/list", id + 1)]);
    }
    client.say(&error(5, -32603));
    assert_eq!(told(&mut client, &mut changes), ["tools/list failed: the server answered with an error: no (-32603)"]);
    client.say(&stamped(TOOLS, 2));
    assert_eq!(told(&mut client, &mut changes), [format!("notice {TOOLS}")], "the rest goes on");
}

#[test]
fn repeated_reads_keep_to_the_retry_budget() {
    let mut settings = config();
    settings.calls.budget = BudgetConfig { earn_permille: 0, reserve_per_second: 1, capacity: 2 };
    let mut client = Client::new(settings);
    let mut changes = changes(&client, r#"{"toolsListChanged":true}"#);
    client.run();
    client.say(&stamped(ACK, 1));
    assert_eq!(told(&mut client, &mut changes), ["gap of 1"]);
    assert_eq!(client.heard(), ["1 subscriptions/listen", "2 tools/list"]);
    // An overloaded server says so each time: two repeats are there, and then one a second, however short the pauses.
    for id in [2, 3, 4] {
        client.say(&error(id, -31001));
        for at in 10 * id..10 * id + 10 {
            client.at(at);
            assert_eq!(told(&mut client, &mut changes), [""; 0]);
        }
        let next = if id < 4 { vec![format!("{} tools/list", id + 1)] } else { Vec::new() };
        assert_eq!(client.heard(), next);
    }
    for at in 50..2000 {
        client.at(at);
        assert_eq!(told(&mut client, &mut changes), [""; 0]);
    }
    assert_eq!(client.heard(), ["5 tools/list"]);
    client.say(&result(5, &json!({"tools": [{"name": "a"}]})));
    assert_eq!(told(&mut client, &mut changes), ["tools/list: a"]);
}

#[test]
fn a_subscription_that_is_over_says_so_however_long_its_reads_take() {
    let (mut client, mut changes) = recovered(r#"{"toolsListChanged":true,"promptsListChanged":true}"#);
    assert_eq!(told(&mut client, &mut changes), ["gap of 2"]);
    assert_eq!(client.heard(), ["3 tools/list", "4 prompts/list"]);
    client.say(&result(2, &json!({"resultType": "complete"})));
    for _ in 0..2 {
        assert_eq!(told(&mut client, &mut changes), [format!("{:?}", End::Graceful)]);
    }
    assert_eq!(client.heard(), ["cancelled 3", "cancelled 4"], "nobody waits for them any more");
}
