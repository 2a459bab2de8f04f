//! Clients of the older revisions on a link that carries all of their messages.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};
use steady_core::kernel::{Answer, Call, Eras, Hub, HubConfig, ServerConfig};
use steady_core::legacy::ask::MAX_ASKED;
use steady_core::legacy::batch::MAX_BATCH;
use steady_core::mrtr::Retry;
use steady_core::rpc::RpcError;

use super::support::Frame;
use super::{Door, Log, Server, cancel, ms, ok, request};

const DISCOVERED: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"instructions":"use it","ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}"#;

/// A request without metadata.
fn plain(id: impl Into<Value>, method: &str, params: Value) -> String {
    json!({"jsonrpc":"2.0","id":id.into(),"method":method,"params":params}).to_string()
}

fn initialize(id: impl Into<Value>, revision: &str, capabilities: Value) -> String {
    let info = json!({"name":"c","version":"2"});
    plain(id, "initialize", json!({"protocolVersion":revision,"capabilities":capabilities,"clientInfo":info}))
}

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A server that describes itself, and answers other calls so.
fn server(
    config: ServerConfig,
    call: impl Fn(Call, steady_core::kernel::Context) -> Answer + Send + Sync + 'static,
) -> Server {
    Server::new(config, move |asked, cx| match &*asked.method {
        "server/discover" => Answer::Ready(Ok(DISCOVERED.into())),
        _ => call(asked, cx),
    })
}

fn lines(server: &mut Server) -> Vec<Value> {
    server.run();
    server.world.lines().iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A session of this revision, opened.
fn open(
    revision: &str,
    capabilities: Value,
    call: impl Fn(Call, steady_core::kernel::Context) -> Answer + Send + Sync + 'static,
) -> Server {
    let mut server = server(ServerConfig::default(), call);
    server.send(initialize(0, revision, capabilities));
    server.send(INITIALIZED);
    assert_eq!(lines(&mut server)[0]["result"]["protocolVersion"], revision);
    server
}

#[test]
fn a_handshake_agrees_on_the_revision_asked_for_or_on_the_newest() {
    for (asked, agreed) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ] {
        let mut server = server(ServerConfig::default(), |_, _| Answer::Ready(ok()));
        server.send(initialize("first", asked, json!({})));
        let result = json!({
            "protocolVersion":agreed,"capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"},"instructions":"use it"
        });
        assert_eq!(lines(&mut server), [json!({"jsonrpc":"2.0","id":"first","result":result})]);
    }
}

#[test]
fn a_handler_sees_a_request_of_the_modern_revision_and_the_client_a_result_of_its_own() {
    let log = Log::default();
    let noted = log.clone();
    let mut server = open("2025-11-25", json!({"roots":{}}), move |call, cx| {
        noted.note(&*call.params);
        assert!(cx.wants_progress());
        Answer::Ready(Ok(r#"{"resultType":"complete","tools":[],"ttlMs":1,"cacheScope":"public"}"#.into()))
    });
    server.send(plain(7, "logging/setLevel", json!({"level":"warning"})));
    server.send(plain(8, "tools/list", json!({"cursor":"x","_meta":{"progressToken":8,"a/b":1}})));
    assert_eq!(
        lines(&mut server),
        [json!({"jsonrpc":"2.0","id":7,"result":{}}), json!({"jsonrpc":"2.0","id":8,"result":{"tools":[]}}),]
    );
    let seen: Value = serde_json::from_str(&log.take()[0]).expect("JSON");
    assert_eq!(
        seen,
        json!({"cursor":"x","_meta":{
            "progressToken":8,"a/b":1,
            "io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":{"roots":{}},
            "io.modelcontextprotocol/clientInfo":{"name":"c","version":"2"},
            "io.modelcontextprotocol/logLevel":"warning",
        }})
    );
    server.send(plain(9, "logging/setLevel", json!({"level":"loud"})));
    assert_eq!(lines(&mut server)[0]["error"]["code"], -32602);
}

#[test]
fn before_a_handshake_only_pings_are_answered() {
    let mut server = server(ServerConfig::default(), |_, _| panic!("no handler is reached"));
    server.send(plain(1, "tools/list", json!({})));
    server.send(plain(2, "ping", json!({})));
    server.send(INITIALIZED);
    server.send(plain(3, "tools/list", json!({})));
    assert_eq!(server.received(), ["1 error -32602", "2 ok", "3 error -32602"]);
}

#[test]
fn both_eras_are_served_on_one_link_and_share_its_ids() {
    let door = Door::default();
    let passed = door.clone();
    let mut server = open("2025-06-18", json!({}), move |_, _| {
        let passed = passed.passed();
        Answer::later(async move {
            passed.await;
            Ok(r#"{"resultType":"complete","ttlMs":1}"#.into())
        })
    });
    server.send(request(1, "tools/list"));
    server.send(plain(2, "tools/list", json!({})));
    server.send(plain(1, "tools/list", json!({})));
    assert_eq!(server.received(), ["error -32600"], "rule C10 over both");
    door.open();
    let answers = lines(&mut server);
    assert_eq!(answers[0], json!({"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":1}}));
    assert_eq!(answers[1], json!({"jsonrpc":"2.0","id":2,"result":{}}));
}

#[test]
fn methods_of_the_modern_revision_do_not_exist_in_a_session() {
    let mut server = open("2025-11-25", json!({}), |_, _| panic!("no handler is reached"));
    for method in ["server/discover", "subscriptions/listen", "tasks/get", "tasks/list"] {
        server.send(plain(1, method, json!({})));
        assert_eq!(server.received(), ["1 error -32601"], "{method}");
    }
    let version = request(2, "tools/list").replace("2026-07-28", "2025-11-25");
    server.send(version);
    assert_eq!(server.received(), ["2 error -32022"], "metadata of another revision is judged as metadata");
}

#[test]
fn a_batch_is_read_under_the_revision_that_has_them() {
    let batch = json!([
        {"jsonrpc":"2.0","id":1,"method":"ping"},
        {"jsonrpc":"2.0","method":"notifications/initialized"},
        {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}},
        serde_json::from_str::<Value>(&request(3, "server/discover")).expect("JSON"),
    ])
    .to_string();
    for (revision, expected) in [
        ("2025-03-26", &["1 ok", "2 ok", "3 error -32601"][..]),
        ("2025-06-18", &["error -32600"]),
        ("2025-11-25", &["error -32600"]),
    ] {
        let mut server = open(revision, json!({}), |_, _| Answer::Ready(ok()));
        server.send(batch.clone());
        assert_eq!(server.received(), expected, "{revision}");
        server.send("[]");
        assert_eq!(server.received(), ["error -32600"], "an empty one is none, {revision}");
    }
}

#[test]
fn a_batch_with_a_message_that_must_not_be_in_it_is_refused_whole() {
    let mut server = open("2025-03-26", json!({}), |_, _| panic!("no handler is reached"));
    let call = json!({"jsonrpc":"2.0","id":1,"method":"tools/list"});
    let handshake: Value = serde_json::from_str(&initialize(3, "2025-03-26", json!({}))).expect("JSON");
    let many = Value::from(vec![call.clone(); MAX_BATCH + 1]);
    for bad in [json!([call, 7]), json!([call, [call]]), json!([call, handshake]), many] {
        server.send(bad.to_string());
        assert_eq!(server.received(), ["error -32600"]);
    }
    server.send(json!([{"jsonrpc":"2.0","id":1,"result":{},"error":{}}]).to_string());
    assert_eq!(server.received(), [] as [&str; 0], "what looks like an answer is never answered (rule S2)");
}

#[test]
fn a_batch_larger_than_what_may_be_refused_at_once_is_read_as_its_refusals_leave() {
    let mut server = open("2025-03-26", json!({}), |_, _| Answer::Ready(ok()));
    let one = |id: usize| json!({"jsonrpc":"2.0","id":id,"method":"server/discover"});
    server.send(Value::from((0..MAX_BATCH).map(one).collect::<Vec<_>>()).to_string());
    let answers = server.received();
    assert_eq!(answers.len(), MAX_BATCH);
    assert!(answers.iter().all(|answer| answer.ends_with("error -32601")), "{answers:?}");
}

/// A tool that asks for a name, and says it.
fn asks(call: &Call) -> Answer {
    let retry = Retry::read(&call.params).expect("well-formed");
    if retry.is_first() {
        return Answer::Ready(Ok(r#"{"resultType":"input_required","requestState":"s","inputRequests":{"who":{"method":"elicitation/create","params":{"mode":"form","message":"who?","requestedSchema":{"type":"object","properties":{}}}},"where":{"method":"roots/list"}}}"#.into()));
    }
    assert_eq!(retry.state(), Some("s"));
    let params: Value = serde_json::from_str(&call.params).expect("JSON");
    Answer::Ready(Ok(
        json!({"resultType":"complete","content":[],"got":params["inputResponses"],"kept":params["name"]}).to_string(),
    ))
}

#[test]
fn what_a_handler_needs_is_asked_of_the_client_on_the_way_of_its_answer() {
    for (revision, mode) in [("2025-11-25", Some("form")), ("2025-06-18", None)] {
        let mut server = open(revision, json!({"elicitation":{},"roots":{}}), |call, _| asks(&call));
        server.send(plain(5, "tools/call", json!({"name":"t"})));
        let asked = lines(&mut server);
        assert_eq!(asked.len(), 2, "{asked:?}");
        assert_eq!((&asked[0]["method"], &asked[1]["method"]), (&json!("elicitation/create"), &json!("roots/list")));
        assert_eq!(asked[0]["params"].get("mode").and_then(Value::as_str), mode);
        // In another order, and one of them twice.
        let answer =
            |asked: &Value, result: Value| json!({"jsonrpc":"2.0","id":asked["id"],"result":result}).to_string();
        server.send(answer(&asked[1], json!({"roots":[]})));
        server.send(answer(&asked[1], json!({"roots":["late"]})));
        server.send(json!({"jsonrpc":"2.0","id":99,"result":{}}).to_string());
        assert_eq!(lines(&mut server), [] as [Value; 0]);
        server.send(answer(&asked[0], json!({"action":"accept","content":{"a":1}})));
        let got = json!({"who":{"action":"accept","content":{"a":1}},"where":{"roots":[]}});
        let result = json!({"content":[],"got":got,"kept":"t"});
        assert_eq!(lines(&mut server), [json!({"jsonrpc":"2.0","id":5,"result":result})]);
    }
}

#[test]
fn a_client_that_cannot_be_asked_is_told_what_is_missing() {
    for (revision, capabilities) in
        [("2025-11-25", json!({"roots":{}})), ("2025-03-26", json!({"elicitation":{},"roots":{}}))]
    {
        let mut server = open(revision, capabilities, |call, _| asks(&call));
        server.send(plain(5, "tools/call", json!({"name":"t"})));
        let told = lines(&mut server);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0]["error"]["code"], -32021);
        assert_eq!(told[0]["error"]["data"], json!({"requiredCapabilities":{"elicitation":{"form":{}}}}), "{revision}");
    }
}

#[test]
fn a_client_that_refuses_to_answer_ends_the_request_with_its_reason() {
    let mut server = open("2025-11-25", json!({"elicitation":{},"roots":{}}), |call, _| asks(&call));
    server.send(plain(5, "tools/call", json!({"name":"t"})));
    let asked = lines(&mut server);
    let refusal = json!({"jsonrpc":"2.0","id":asked[0]["id"],"error":{"code":-1,"message":"user said no"}});
    server.send(refusal.to_string());
    let told = lines(&mut server);
    assert_eq!(told[0]["error"]["code"], -32603);
    assert!(told[0]["error"]["message"].as_str().expect("a text").contains("user said no (-1)"), "{told:?}");
}

#[test]
fn a_cancelled_request_asks_nothing_more_and_is_not_answered() {
    let mut server = open("2025-11-25", json!({"elicitation":{},"roots":{}}), |call, _| asks(&call));
    server.send(plain(5, "tools/call", json!({"name":"t"})));
    let asked = lines(&mut server);
    server.send(cancel(5));
    server.at(ms(10_000));
    server.send(json!({"jsonrpc":"2.0","id":asked[0]["id"],"result":{"action":"cancel"}}).to_string());
    server.send(plain(6, "ping", json!({})));
    assert_eq!(server.received(), ["6 ok"]);
    assert_eq!(server.counters().requests.cancelled, 1);
}

#[test]
fn questions_that_nobody_answers_are_bounded() {
    let mut server = open("2025-11-25", json!({"roots":{}}), |call, _| {
        let retry = Retry::read(&call.params).expect("well-formed");
        let asks = r#"{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}"#;
        Answer::Ready(if retry.is_first() { Ok(asks.into()) } else { ok() })
    });
    for id in 0..=MAX_ASKED {
        server.send(plain(id, "tools/call", json!({"name":"t"})));
    }
    let said = lines(&mut server);
    assert_eq!(said.len(), MAX_ASKED + 1);
    assert_eq!(said[MAX_ASKED]["error"]["code"], -31001);
    server.send(json!({"jsonrpc":"2.0","id":said[0]["id"],"result":{"roots":[]}}).to_string());
    assert_eq!(server.received(), ["0 ok"]);
    server.send(plain("next", "tools/call", json!({"name":"t"})));
    assert_eq!(lines(&mut server)[0]["method"], "roots/list", "there is room again");
}

#[test]
fn a_handler_that_waits_for_its_client_hears_that_the_link_is_over() {
    let mut server = open("2025-11-25", json!({"elicitation":{},"roots":{}}), |call, _| asks(&call));
    server.send(plain(5, "tools/call", json!({"name":"t"})));
    assert_eq!(lines(&mut server).len(), 2);
    server.world.feed(Frame::Closed);
    server.run();
    assert!(matches!(server.ended, Some(Ok(()))), "nothing holds the connection");
}

#[test]
fn a_missing_resource_has_the_code_of_the_older_revisions() {
    let mut server =
        open("2025-11-25", json!({}), |_, _| Answer::Ready(Err(RpcError::invalid_params("no such resource"))));
    server.send(plain(1, "resources/read", json!({"uri":"x:y"})));
    server.send(plain(2, "resources/read", json!({})));
    server.send(plain(3, "tools/call", json!({"uri":"x:y"})));
    server.send(request(4, "resources/read").replace("\"params\":{", "\"params\":{\"uri\":\"x:y\","));
    assert_eq!(server.received(), ["1 error -32002", "2 error -32602", "3 error -32602", "4 error -32602"]);
}

#[test]
fn blocking_handlers_and_those_that_panic_answer_as_ever() {
    let mut server = open("2025-11-25", json!({}), |call, _| match &*call.params {
        params if params.contains("panics") => Answer::blocking(|| panic!("oh")),
        _ => Answer::blocking(|| Ok(r#"{"resultType":"complete","content":[]}"#.into())),
    });
    server.send(plain(1, "tools/call", json!({"name":"works"})));
    server.world.run_jobs();
    assert_eq!(lines(&mut server), [json!({"jsonrpc":"2.0","id":1,"result":{"content":[]}})]);
    server.send(plain(2, "tools/call", json!({"name":"panics"})));
    let panic = catch_unwind(AssertUnwindSafe(|| server.world.run_jobs()));
    assert!(panic.is_err(), "it is the executor's affair");
    assert_eq!(server.received(), ["2 error -32603"]);
    server.send(plain(3, "tools/call", json!({"name":"panics"})));
    server.send(cancel(3));
    server.world.run_jobs();
    assert_eq!(server.received(), [] as [&str; 0], "nobody waits for it: it does not run");
}

#[test]
fn what_only_the_modern_revision_can_carry_is_an_error_in_a_session() {
    let mut server =
        open("2025-11-25", json!({}), |_, _| Answer::Ready(Ok(r#"{"resultType":"task","taskId":"t"}"#.into())));
    server.send(plain(1, "tools/call", json!({"name":"t"})));
    assert_eq!(server.received(), ["1 error -32603"]);
}

#[test]
fn a_second_handshake_begins_the_session_anew() {
    let log = Log::default();
    let noted = log.clone();
    let mut server = open("2025-03-26", json!({"roots":{}}), move |call, _| {
        noted.note(&*call.params);
        Answer::Ready(ok())
    });
    server.send(plain(1, "logging/setLevel", json!({"level":"debug"})));
    server.send(initialize(2, "2025-11-25", json!({})));
    server.send(plain(3, "tools/list", json!({})));
    server.send("[]");
    assert_eq!(server.received(), ["1 ok", "2 ok", "3 ok", "error -32600"]);
    assert!(!log.take()[0].contains("logLevel"), "the level of the first is void");
}

#[test]
fn a_server_of_one_era_says_which() {
    let eras = |eras| ServerConfig { eras, ..ServerConfig::default() };
    let mut modern = server(eras(Eras::Modern), |_, _| Answer::Ready(ok()));
    modern.send(initialize(1, "2025-11-25", json!({})));
    modern.send(plain(2, "ping", json!({})));
    let said = lines(&mut modern);
    assert_eq!(said[0]["error"]["code"], -32022);
    assert_eq!(said[0]["error"]["data"]["supported"], json!(["2026-07-28"]));
    let told = |said: &Value| said["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(told(&said[0]).contains("2026-07-28"), "most clients show the message only");
    assert_eq!(said[1]["error"]["code"], -32602);

    let mut legacy = server(eras(Eras::Legacy), |_, _| Answer::Ready(ok()));
    legacy.send(request(1, "server/discover"));
    let said = lines(&mut legacy);
    assert_eq!(said[0]["error"]["code"], -32600, "no error of the modern revision: {said:?}");
    let text = told(&said[0]);
    assert!(text.contains("up to 2025-11-25 only") && !text.contains("2026-07-28"), "{text}");
    legacy.send(initialize(2, "2025-11-25", json!({})));
    legacy.send(plain(3, "tools/list", json!({})));
    legacy.send(cancel(3));
    assert_eq!(legacy.received(), ["2 ok", "3 ok"]);
}

/// A server with a hub: what it hears of, it says in its own terms.
fn with_hub(hub: &Hub) -> Server {
    let (hub, resources) = (hub.clone(), r#"{"tools":{"listChanged":true},"resources":{"subscribe":true}}"#);
    Server::new(ServerConfig::default(), move |call, cx| match &*call.method {
        "server/discover" => Answer::Ready(Ok(DISCOVERED.replace(r#"{"tools":{}}"#, resources))),
        "subscriptions/listen" => hub.listen(&call, &cx),
        _ => Answer::Ready(ok()),
    })
}

#[test]
fn changes_reach_a_session_without_a_listen_once_its_client_is_ready() {
    let hub = Hub::new();
    let mut server = with_hub(&hub);
    hub.tools_changed();
    server.send(initialize(0, "2025-11-25", json!({})));
    assert_eq!(server.received(), ["0 ok"]);
    hub.tools_changed();
    server.run();
    assert_eq!(server.received(), [] as [&str; 0], "kept back: the client is not ready");
    server.send(INITIALIZED);
    let list = json!({"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}});
    assert_eq!(lines(&mut server), [list], "without the stamp of a modern subscription");
    hub.resource_updated("x:y");
    assert_eq!(lines(&mut server), [] as [Value; 0], "nobody subscribed to it");
    server.send(plain(1, "resources/subscribe", json!({"uri":"x:y"})));
    assert_eq!(server.received(), ["1 ok"]);
    hub.resource_updated("x:y");
    hub.resource_updated("x:z");
    let updated = json!({"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y"}});
    assert_eq!(lines(&mut server), [updated]);
    server.send(plain(2, "resources/unsubscribe", json!({"uri":"x:y"})));
    hub.resource_updated("x:y");
    assert_eq!(server.received(), ["2 ok"]);
    server.send(plain(3, "resources/subscribe", json!({})));
    assert_eq!(server.received(), ["3 error -32602"]);
    assert_eq!(hub.counters().open, 1);
    server.send(initialize(4, "2025-11-25", json!({})));
    assert_eq!(
        (server.received(), hub.counters().open),
        (vec!["4 ok".to_owned()], 1),
        "a new session, a new subscription"
    );
    server.world.feed(Frame::Closed);
    server.run();
    assert_eq!(hub.counters().open, 0, "nothing stays behind");
}

#[test]
fn a_client_that_reads_nothing_costs_a_mark_for_each_thing_that_changes() {
    let hub = Hub::new();
    let mut server = with_hub(&hub);
    server.send(initialize(0, "2025-11-25", json!({})));
    server.send(INITIALIZED);
    server.world.lines();
    server.world.allow(Some(0));
    for _ in 0..1000 {
        hub.tools_changed();
        server.run();
    }
    server.world.allow(None);
    let told = lines(&mut server);
    assert!(!told.is_empty() && told.len() < 50, "{} notifications for a client that reads nothing", told.len());
}

#[test]
fn more_changes_at_once_than_there_is_room_for_all_reach_a_client_that_says_nothing_more() {
    let hub = Hub::new();
    let mut server = with_hub(&hub);
    server.send(initialize(0, "2025-11-25", json!({})));
    server.send(INITIALIZED);
    for id in 1..=40 {
        server.send(plain(id, "resources/subscribe", json!({"uri":format!("x:{id}")})));
    }
    assert_eq!(server.received().len(), 41);
    hub.resources_updated(|_| true);
    assert_eq!(lines(&mut server).len(), 40);
    hub.resources_updated(|_| true);
    assert_eq!(lines(&mut server).len(), 40, "and each of them is told of what comes later");
}

#[test]
fn a_hub_that_is_full_is_no_server_without_subscriptions() {
    let hub = Hub::with_config(HubConfig { subscriptions: 1, ..HubConfig::default() });
    let _first = hub.subscribe(None, []).expect("room");
    let mut server = with_hub(&hub);
    server.send(initialize(0, "2025-11-25", json!({})));
    server.send(plain(1, "resources/subscribe", json!({"uri":"x:y"})));
    assert_eq!(server.received(), ["0 ok", "1 error -31001"]);
}

#[test]
fn without_a_hub_there_is_nothing_to_subscribe_to() {
    let mut server = open("2025-11-25", json!({}), |_, _| Answer::Ready(ok()));
    server.send(plain(1, "resources/subscribe", json!({"uri":"x:y"})));
    assert_eq!(server.received(), ["1 error -32601"]);
}
