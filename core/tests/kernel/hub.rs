//! The subscription hub under a connection and under an exchange: what a client is told, in which order, and what is left.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};
use steady_core::kernel::{
    Answer, Exchange, Hub, HubConfig, HubCounters, Kinds, Reply, ServerConfig, Shutdown, SubscribeError, Subscription,
    Tools, Update,
};
use steady_core::listener::End;
use steady_core::rpc::method;
use steady_core::subscription::Refetch;

use super::support::{Driven, World};
use super::{Fun, Server, brief, cancel, ms, ok, request};

const ID: &str = "io.modelcontextprotocol/subscriptionId";

/// A listen request for this filter. It asks for progress too, which it must not get.
pub(super) fn listen(id: impl Into<Value>, notifications: &Value) -> String {
    let mut request: Value = serde_json::from_str(&request(id, method::LISTEN)).expect("JSON");
    request["params"]["notifications"] = notifications.clone();
    request.to_string()
}

pub(super) fn serve(hub: &Hub, config: ServerConfig) -> Server {
    let hub = hub.clone();
    Server::new(config, move |call, cx| match &*call.method {
        method::LISTEN => hub.listen(&call, &cx),
        _ => Answer::Ready(ok()),
    })
}

/// What was received, in short: `1 ack {…}`, `1 tools/list_changed`, `1 resources/updated a`, or as others are.
pub(super) fn told(server: &mut Server) -> Vec<String> {
    server.run();
    server.world.lines().iter().map(|line| tell(line)).collect()
}

pub(super) fn tell(line: &str) -> String {
    let message: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let params = &message["params"];
    let id = &params["_meta"][ID];
    match message["method"].as_str() {
        Some(method::ACKNOWLEDGED) => format!("{id} ack {}", params["notifications"]),
        Some(method::CANCELLED) => format!("cancelled {}", params["requestId"]),
        Some(method::TASKS_NOTICE) => format!("{id} task {} {}", params["taskId"], params["status"]),
        Some(name) => {
            let name = name.strip_prefix("notifications/").expect("a notification");
            format!("{id} {name} {}", params["uri"].as_str().unwrap_or_default()).trim_end().to_owned()
        }
        None => brief(line),
    }
}

fn asked() -> Value {
    json!({"toolsListChanged": true, "resourceSubscriptions": ["x:a", "x:b"]})
}

/// Nothing of any subscription is left.
fn left(hub: &Hub) -> (usize, usize, usize) {
    let HubCounters { open, topics, name_bytes, .. } = hub.counters();
    (open, topics, name_bytes)
}

#[test]
fn one_publication_reaches_every_stream_that_asked_for_it() {
    let hub = Hub::new();
    let mut server = serve(&hub, ServerConfig::default());
    server.send(listen(1, &json!({"toolsListChanged": true})));
    server.send(listen("1", &json!({"toolsListChanged": true, "promptsListChanged": true})));
    server.send(listen(3, &json!({"resourceSubscriptions": ["x:a"]})));
    assert_eq!(
        told(&mut server),
        [
            r#"1 ack {"toolsListChanged":true}"#,
            r#""1" ack {"promptsListChanged":true,"toolsListChanged":true}"#,
            r#"3 ack {"resourceSubscriptions":["x:a"]}"#
        ],
        "rules L1 and L2: the id keeps its JSON type"
    );
    hub.tools_changed();
    assert_eq!(told(&mut server), ["1 tools/list_changed", "\"1\" tools/list_changed"], "rule L3");
    hub.prompts_changed();
    hub.resources_changed();
    hub.resource_updated("x:a");
    hub.resource_updated("x:b");
    assert_eq!(told(&mut server), ["\"1\" prompts/list_changed", "3 resources/updated x:a"], "rule L3");
    assert_eq!(hub.counters().published, 5);
}

#[test]
fn what_is_not_offered_is_left_out_and_never_told() {
    let hub = Hub::with_config(HubConfig { offers: Kinds::TOOLS, ..HubConfig::default() });
    let mut server = serve(&hub, ServerConfig::default());
    let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
                     "resourceSubscriptions": ["x:a"], "taskIds": ["t"], "com.example/other": true});
    server.send(listen(1, &all));
    assert_eq!(told(&mut server), [r#"1 ack {"toolsListChanged":true}"#]);
    hub.prompts_changed();
    hub.resources_changed();
    hub.resource_updated("x:a");
    hub.task_changed(None, "t", r#"{"taskId":"t"}"#).expect("a state");
    assert_eq!(told(&mut server), [""; 0]);
    assert_eq!(hub.counters().topics, 1);
}

#[test]
fn every_kind_asked_for_is_acknowledged_in_one_object() {
    let hub = Hub::with_config(HubConfig { offers: Kinds::CORE | Kinds::TASKS, ..HubConfig::default() });
    let mut server = serve(&hub, ServerConfig::default());
    let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
                     "resourceSubscriptions": ["x:\"b\"", "x:a", "x:a"], "taskIds": ["t", "s"]});
    let mut request: Value = serde_json::from_str(&listen(1, &all)).expect("JSON");
    request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    server.send(request.to_string());
    let line = server.world.lines().remove(0);
    let message: Value = serde_json::from_str(&line).expect("JSON");
    let mut honoured = all;
    honoured["resourceSubscriptions"] = json!(["x:\"b\"", "x:a"]);
    honoured["taskIds"] = json!(["s", "t"]);
    assert_eq!(message["params"]["notifications"], honoured);
}

#[test]
fn a_stalled_client_costs_a_mark_for_each_thing_and_every_mark_reaches_it() {
    let hub = Hub::new();
    let mut server = serve(&hub, ServerConfig::default());
    server.send(listen(1, &asked()));
    assert_eq!(told(&mut server).len(), 1);
    server.world.allow(Some(0));
    for _ in 0..10_000 {
        hub.tools_changed();
        hub.resource_updated("x:b");
        hub.resource_updated("x:a");
        server.run();
    }
    let HubCounters { marked, coalesced, .. } = hub.counters();
    assert!(marked <= 6 && marked + coalesced == 30_000, "{marked} {coalesced}");
    server.world.allow(None);
    let told = told(&mut server);
    // What was on its way when the client stalled, and then each thing once: nothing was lost.
    for thing in ["1 tools/list_changed", "1 resources/updated x:a", "1 resources/updated x:b"] {
        assert!((1..=2).contains(&told.iter().filter(|line| *line == thing).count()), "{told:?}");
    }
}

#[test]
fn one_that_is_too_far_behind_with_states_is_told_to_listen_anew() {
    let config = HubConfig { offers: Kinds::TASKS, state_bytes: 100, ..HubConfig::default() };
    let hub = Hub::with_config(config);
    let mut server = serve(&hub, ServerConfig::default());
    let mut request: Value = serde_json::from_str(&listen(1, &json!({"taskIds": ["s", "t"]}))).expect("JSON");
    assert_eq!(
        {
            server.send(request.to_string());
            told(&mut server)
        },
        ["1 error -32021"],
        "rule K5"
    );
    request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    server.send(request.to_string());
    let state = |id: &str, status: &str| json!({"taskId": id, "status": status, "note": "x".repeat(30)}).to_string();
    let publish = |id: &str, status: &str| hub.task_changed(None, id, &state(id, status)).expect("a state");
    publish("t", "working");
    publish("t", "completed");
    hub.task_changed(Some("somebody"), "t", &state("t", "failed")).expect("a state");
    assert_eq!(told(&mut server), [r#"1 ack {"taskIds":["s","t"]}"#, r#"1 task "t" "completed""#], "rule K5, K6");
    server.world.allow(Some(0));
    publish("t", "working");
    server.run();
    publish("t", "working");
    publish("s", "working");
    server.run();
    assert_eq!(hub.counters().behind, 1);
    server.world.allow(None);
    assert_eq!(told(&mut server), [r#"1 task "t" "working""#, "1 error -31001"], "the mark reaches it");
    assert_eq!(left(&hub), (0, 0, 0));
    for bad in ["[]", "{", r#"{"_meta":{}}"#, "7"] {
        assert!(hub.task_changed(None, "t", bad).is_err(), "{bad}");
    }
}

#[test]
fn an_open_listen_has_no_deadline() {
    let hub = Hub::new();
    let mut server = serve(&hub, ServerConfig::default());
    server.send(listen(1, &asked()));
    assert_eq!(told(&mut server).len(), 1);
    server.at(ms(365 * 24 * 3600 * 1000));
    assert_eq!(told(&mut server), [""; 0], "rule T1");
    hub.tools_changed();
    assert_eq!(told(&mut server), ["1 tools/list_changed"]);
}

#[test]
fn a_cancelled_listen_is_silent_and_forgotten_and_its_id_is_free() {
    let hub = Hub::new();
    let mut server = serve(&hub, ServerConfig::default());
    server.send(listen(1, &asked()));
    server.send(listen(2, &asked()));
    assert_eq!(told(&mut server).len(), 2);
    server.world.allow(Some(0));
    hub.tools_changed();
    server.run();
    server.send(cancel(1));
    server.send(listen(1, &json!({"promptsListChanged": true})));
    server.world.allow(None);
    let told = told(&mut server);
    // A line that was half written may still be finished; then nothing but what the new one asked for.
    let of_the_old = told.iter().filter(|line| *line == "1 tools/list_changed").count();
    assert!(of_the_old <= 1, "{told:?}");
    assert!(told.contains(&"2 tools/list_changed".to_owned()), "{told:?}");
    assert_eq!(told.last().map(String::as_str), Some(r#"1 ack {"promptsListChanged":true}"#));
    server.send(cancel(1));
    server.send(cancel(2));
    assert_eq!(left(&hub), (0, 0, 0));
    assert_eq!(server.counters().requests.cancelled, 3);
}

#[test]
fn the_limits_refuse_and_say_why() {
    let hub = Hub::with_config(HubConfig { subscriptions: 3, name_bytes: 1500, ..HubConfig::default() });
    let mut config = ServerConfig::default();
    config.requests.listens = 2;
    let (mut one, mut other) = (serve(&hub, config.clone()), serve(&hub, config));
    let refused = |server: &mut Server, request: String| {
        server.send(request);
        let lines = server.world.lines();
        let message: Value = serde_json::from_str(lines.last().expect("an answer")).expect("JSON");
        (message["error"]["code"].as_i64(), message["error"]["message"].as_str().unwrap_or_default().to_owned())
    };
    let tools = json!({"toolsListChanged": true});
    assert_eq!(refused(&mut one, listen(1, &tools)).0, None);
    assert_eq!(refused(&mut one, listen(2, &tools)).0, None);
    let (code, why) = refused(&mut one, listen(3, &tools));
    assert_eq!(code, Some(-31001));
    assert!(why.contains("this connection has 2 open listens"), "{why}");
    assert_eq!(refused(&mut other, listen(1, &tools)).0, None);
    let (code, why) = refused(&mut other, listen(2, &tools));
    assert_eq!(code, Some(-31001));
    assert!(why.contains("3 open subscriptions"), "{why}");
    one.send(cancel(1));
    let (code, why) = refused(&mut other, listen(2, &json!({"resourceSubscriptions": ["x".repeat(100)]})));
    assert_eq!(code, Some(-31001));
    assert!(why.contains("name"), "{why}");
    let HubCounters { open, refused: count, name_bytes, .. } = hub.counters();
    assert_eq!((open, count, name_bytes), (2, 2, 515 + 2 * 64), "a refusal leaves nothing");
    let names: Vec<String> = (0..1025).map(|n| n.to_string()).collect();
    for wrong in [json!([]), json!({"toolsListChanged": 1}), json!({"resourceSubscriptions": names}), Value::Null] {
        assert_eq!(refused(&mut other, listen(2, &wrong)).0, Some(-32602), "{wrong}");
    }
    assert_eq!(refused(&mut other, request(2, method::LISTEN)).0, Some(-32602));
}

#[test]
fn short_names_are_charged_for_what_they_cost() {
    // One thing costs 512 bytes and three times its key, each stream that watches it 64.
    let hub = Hub::with_config(HubConfig { name_bytes: 1200, ..HubConfig::default() });
    let resource = |uri: &str| Refetch::Resource { uri: uri.into() };
    let one = hub.subscribe(None, [resource("a")]).expect("room");
    assert_eq!(hub.counters().name_bytes, 512 + 6 + 64);
    let other = hub.subscribe(None, [resource("a")]).expect("it is there already");
    assert_eq!(hub.counters().name_bytes, 512 + 6 + 2 * 64);
    let refused = hub.subscribe(None, [resource("b")]).expect_err("a second thing is too much");
    assert_eq!(refused, SubscribeError::TooManyNames);
    assert_eq!(hub.counters().name_bytes, 512 + 6 + 2 * 64);
    drop(one);
    assert_eq!(hub.counters().name_bytes, 512 + 6 + 64);
    other.watch(resource("a")).expect("no news");
    other.unwatch(resource("a"));
    assert_eq!(left(&hub), (1, 0, 0));
    drop(other);
    assert_eq!(left(&hub), (0, 0, 0));
}

#[test]
fn a_shutdown_ends_a_listen_after_what_it_owes() {
    let hub = Hub::new();
    let shutdown = Shutdown::new();
    let mut server = serve(&hub, ServerConfig { shutdown: shutdown.clone(), ..ServerConfig::default() });
    server.send(listen(7, &asked()));
    assert_eq!(told(&mut server).len(), 1);
    server.world.allow(Some(0));
    hub.tools_changed();
    server.run();
    hub.resource_updated("x:a");
    shutdown.drain();
    server.run();
    hub.resource_updated("x:b");
    server.world.allow(None);
    assert_eq!(
        told(&mut server),
        ["7 tools/list_changed", "7 resources/updated x:a", "7 ok", "cancelled 7"],
        "rules L4 and C5: the result, then the notification"
    );
    assert!(matches!(server.ended, Some(Ok(()))), "{:?}", server.ended);
    assert_eq!(left(&hub), (0, 0, 0));
}

#[test]
fn a_client_that_is_gone_leaves_nothing() {
    let hub = Hub::new();
    let mut server = serve(&hub, ServerConfig::default());
    server.send(listen(1, &asked()));
    server.world.allow(Some(0));
    hub.tools_changed();
    server.run();
    assert_eq!(hub.counters().open, 1);
    drop(server);
    assert_eq!(left(&hub), (0, 0, 0));
    hub.tools_changed();
}

#[test]
fn nothing_but_changes_travels_on_a_listen() {
    let hub = Hub::new();
    let served = hub.clone();
    let mut server = Server::new(ServerConfig::default(), move |call, cx| {
        let (hub, aside) = (served.clone(), cx.clone());
        assert!(!cx.wants_progress());
        cx.report(1.0, None, "");
        let mut said = Box::pin(async move {
            let _never_sent = aside.report_all(2.0, None, "").await;
            let _never_sent = aside.notify(method::MESSAGE, r#"{"level":"info","data":1}"#).await;
            let _never_sent = aside.notify(method::PROGRESS, "{}").await;
        });
        while said.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
        hub.listen(&call, &cx)
    });
    server.send(listen(1, &json!({"toolsListChanged": true})));
    hub.tools_changed();
    assert_eq!(told(&mut server), [r#"1 ack {"toolsListChanged":true}"#, "1 tools/list_changed"], "rule L6");
}

#[test]
fn another_request_is_not_answered_by_a_subscription() {
    let hub = Hub::new();
    let served = hub.clone();
    let mut server = Server::new(ServerConfig::default(), move |_, _| {
        Answer::Listen(served.subscribe(None, [Refetch::Tools]).expect("room"))
    });
    server.send(request(1, "echo"));
    assert_eq!(told(&mut server), ["1 error -32603"]);
    assert_eq!(left(&hub), (0, 0, 0));
}

/// The messages of an exchange until it has nothing to say.
fn said(exchange: &mut Exchange<Fun>) -> Vec<String> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut said = Vec::new();
    loop {
        let mut out = Vec::new();
        match exchange.poll_message(&mut cx, &mut out) {
            Poll::Pending => return said,
            Poll::Ready(None) => {
                said.push("end".to_owned());
                return said;
            }
            Poll::Ready(Some(_)) => said.push(tell(std::str::from_utf8(&out).expect("UTF-8"))),
        }
    }
}

#[test]
fn an_exchange_is_a_stream_of_changes_with_an_end() {
    let (hub, world) = (Hub::new(), World::default());
    let served = hub.clone();
    let service = Arc::new(Fun::new(move |call, cx| served.listen(&call, &cx)));
    let config = ServerConfig::default();
    let start = || Exchange::start(Arc::clone(&service), world.ports(), config.clone(), &listen("s", &asked()));
    let (mut one, two) = (start(), start());
    assert_eq!(said(&mut one), [r#""s" ack {"resourceSubscriptions":["x:a","x:b"],"toolsListChanged":true}"#]);
    hub.resource_updated("x:b");
    hub.tools_changed();
    hub.resource_updated("x:b");
    assert_eq!(said(&mut one), ["\"s\" resources/updated x:b", "\"s\" tools/list_changed"]);
    drop(two);
    assert_eq!(hub.counters().open, 1, "rule C1");
    hub.tools_changed();
    config.shutdown.drain();
    assert_eq!(said(&mut one), ["\"s\" tools/list_changed", "\"s\" ok", "end"], "rule L4: the result is the last");
    assert_eq!(left(&hub), (0, 0, 0));
    assert_eq!(world.running(), 0, "no handler ran for it");
}

#[test]
fn a_publication_wakes_an_exchange_that_waits() {
    let (hub, world) = (Hub::new(), World::default());
    let served = hub.clone();
    let service = Arc::new(Fun::new(move |call, cx| served.listen(&call, &cx)));
    let mut exchange = Exchange::start(service, world.ports(), ServerConfig::default(), &listen(1, &asked()));
    let mut body = Driven::new(async move {
        let mut out = Vec::new();
        for _ in 0..3 {
            out.push(b' ');
            poll_fn(|cx| exchange.poll_message(cx, &mut out)).await;
        }
        out
    });
    assert_eq!(body.turn(), Some(Poll::Pending));
    assert_eq!(body.turn(), None, "nobody woke it");
    hub.tools_changed();
    assert_eq!(body.turn(), Some(Poll::Pending));
    hub.tools_changed();
    assert!(matches!(body.turn(), Some(Poll::Ready(_))));
}

#[test]
fn a_subscription_can_be_polled_and_changed_by_hand() {
    let hub = Hub::new();
    let subscription: Subscription = hub.subscribe(None, [Refetch::Tools]).expect("room");
    let mut cx = Context::from_waker(Waker::noop());
    let changed = |expected: Refetch, polled: Poll<Update>, method: &str| {
        let Poll::Ready(Update::Changed(change)) = polled else { panic!("{polled:?}") };
        assert_eq!((change.refetch, change.method, change.state), (expected, method, None));
    };
    let resource = |uri: &str| Refetch::Resource { uri: uri.into() };
    hub.resource_updated("x:a");
    assert_eq!(subscription.poll_next(&mut cx), Poll::Ready(Update::Acknowledged));
    subscription.watch(resource("x:a")).expect("room");
    subscription.watch(resource("x:a")).expect("it does already");
    hub.tools_changed();
    hub.resource_updated("x:a");
    changed(Refetch::Tools, subscription.poll_next(&mut cx), method::TOOLS_LIST_CHANGED);
    assert_eq!(hub.watched_resources(), ["x:a".into()]);
    subscription.unwatch(resource("x:a"));
    assert_eq!(subscription.poll_next(&mut cx), Poll::Pending);
    assert_eq!(hub.watched_resources(), []);
    subscription.watch(resource("x:b")).expect("room");
    hub.resources_updated(|uri| uri.ends_with(":b"));
    changed(resource("x:b"), subscription.poll_next(&mut cx), method::RESOURCES_UPDATED);
    subscription.drain();
    assert_eq!(subscription.poll_next(&mut cx), Poll::Ready(Update::Ended(End::Drained)));
    assert_eq!(subscription.poll_next(&mut cx), Poll::Ready(Update::Ended(End::Drained)));
    drop(subscription);
    assert_eq!(left(&hub), (0, 0, 0));
}

/// What tools answer to a request, as JSON.
fn ask(tools: &Arc<Tools>, method: &str, params: &Value) -> Value {
    let world = World::default();
    let mut message: Value = serde_json::from_str(&request(1, method)).expect("JSON");
    for (name, value) in params.as_object().expect("an object") {
        message["params"][name] = value.clone();
    }
    let mut exchange = Exchange::start(Arc::clone(tools), world.ports(), ServerConfig::default(), &message.to_string());
    world.run_tasks();
    world.run_jobs();
    let mut out = Vec::new();
    let _message: Poll<Option<bool>> = exchange.poll_message(&mut Context::from_waker(Waker::noop()), &mut out);
    serde_json::from_slice(&out).expect("JSON")
}

#[test]
fn tools_without_a_hub_have_no_listen_and_with_one_say_what_they_offer() {
    let tools =
        || Tools::new("shop", "1").tool("echo", "", r#"{"type":"object"}"#, |_, _| async { Ok(Reply::text("")) });
    let capabilities = |tools: &Arc<Tools>| ask(tools, method::DISCOVER, &json!({}))["result"]["capabilities"].clone();
    let plain = Arc::new(tools());
    assert_eq!(capabilities(&plain), json!({"tools": {}}));
    let params = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true,
                                          "resourcesListChanged": true}});
    assert_eq!(ask(&plain, method::LISTEN, &params)["error"]["code"], -32601);
    let hub = Hub::new();
    let listening = Arc::new(tools().subscriptions(&hub));
    assert_eq!(capabilities(&listening), json!({"tools": {"listChanged": true}}));
    let acknowledged = ask(&listening, method::LISTEN, &params);
    assert_eq!(acknowledged["params"]["notifications"], json!({"toolsListChanged": true}));
}

#[test]
fn a_caller_without_a_name_is_nobody_in_particular() {
    let hub = Hub::with_config(HubConfig { offers: Kinds::TASKS, ..HubConfig::default() });
    // An empty name is none: it would own the tasks of all unnamed callers, and hear of none of them.
    let mut server = serve(&hub, ServerConfig { principal: Some("".into()), ..ServerConfig::default() });
    let mut request: Value = serde_json::from_str(&listen(1, &json!({"taskIds": ["t"]}))).expect("JSON");
    request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    server.send(request.to_string());
    assert_eq!(told(&mut server), [r#"1 ack {"taskIds":["t"]}"#]);
    hub.task_changed(None, "t", r#"{"taskId":"t","status":"working"}"#).expect("a state");
    assert_eq!(told(&mut server), [r#"1 task "t" "working""#]);
}
