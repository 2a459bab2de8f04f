//! Open listens beside everything else on one link: they are heard under load, and end in order however full the link is.

use serde_json::{Value, json};
use steady_core::kernel::{Answer, Hub, HubConfig, Kinds, ServerConfig};
use steady_core::outbound;
use steady_core::rpc::method;

use super::hub::{listen, serve, told};
use super::shutdown;
use super::{Door, Server, ok, request};

/// `bulk` answers with 10 KiB, `wait` does so once the door is open, `by hand` is a listen without a hub.
fn server(hub: &Hub, door: &Door, config: ServerConfig) -> Server {
    let (hub, door) = (hub.clone(), door.clone());
    let bulk = || Ok(format!(r#"{{"text":"{}"}}"#, "x".repeat(10 << 10)));
    Server::new(config, move |call, cx| match &*call.method {
        method::LISTEN if call.params.contains("by hand") => Answer::later(async move {
            let _told = cx.cancelled().await;
            ok()
        }),
        method::LISTEN => hub.listen(&call, &cx),
        "wait" => {
            let passed = door.passed();
            Answer::later(async move {
                passed.await;
                bulk()
            })
        }
        _ => Answer::Ready(bulk()),
    })
}

fn by_hand(id: impl Into<Value>) -> String {
    listen(id, &json!({"by hand": true}))
}

fn tools(id: impl Into<Value>) -> String {
    listen(id, &json!({"toolsListChanged": true}))
}

#[test]
fn a_listen_is_heard_beside_answers_that_fill_every_write() {
    let hub = Hub::new();
    let mut server = server(&hub, &Door::default(), ServerConfig::default());
    server.world.allow(Some(0));
    for id in 0..100 {
        server.send(request(id, "bulk"));
    }
    server.send(tools("l"));
    let mut next = 100;
    // The client takes what is one write to the server, and asks for as much again.
    let mut turns = |expected: &str| {
        for turn in 1..=50 {
            server.world.allow(Some(64 << 10));
            let told = told(&mut server);
            if told.iter().any(|line| line == expected) {
                return turn;
            }
            for _ in told {
                server.send(request(next, "bulk"));
                next += 1;
            }
        }
        panic!("{expected} is never said, after {next} calls");
    };
    let acknowledged = turns(r#""l" ack {"toolsListChanged":true}"#);
    hub.tools_changed();
    let changed = turns(r#""l" tools/list_changed"#);
    assert!(acknowledged <= 4 && changed <= 4, "{acknowledged} {changed}");
}

/// Every listen has its result and then its notification, or for a reason of `left_out` its result alone.
fn ends(lines: &[String], listens: impl Iterator<Item = usize>) -> usize {
    let mut left_out = 0;
    for id in listens {
        let place = |what: String| lines.iter().position(|line| *line == what);
        let result = place(format!("{id} ok")).unwrap_or_else(|| panic!("{id} has no result: {lines:?}"));
        match place(format!("cancelled {id}")) {
            Some(cancelled) => assert!(result < cancelled, "rule C5: {id} in {lines:?}"),
            None => left_out += 1,
        }
    }
    left_out
}

#[test]
fn a_drain_ends_every_listen_with_its_result_and_then_its_notification() {
    let (shutdown, config) = shutdown::config();
    let hub = Hub::new();
    let mut server = server(&hub, &Door::default(), config);
    for id in 0..40 {
        server.send(tools(id));
        server.send(by_hand(40 + id));
    }
    assert_eq!(told(&mut server).len(), 40, "acknowledged by the hub");
    hub.tools_changed();
    shutdown.drain();
    let lines = told(&mut server);
    assert_eq!(ends(&lines, 0..80), 0, "{lines:?}");
    assert_eq!(lines.len(), 40 + 2 * 80);
    assert!(matches!(server.ended, Some(Ok(()))), "{:?}", server.ended);
}

#[test]
fn a_listen_that_ends_on_a_full_link_has_its_result_first() {
    // Answers of 10 KiB of which two, or exactly one, have room; the others wait for it.
    for (kept_bytes, calls) in [(20_000, 6), (10 << 10, 1)] {
        for listen in [tools("l"), by_hand("l")] {
            let (shutdown, config) = shutdown::config();
            let outbound = outbound::Config { kept_bytes, ..config.outbound };
            let (hub, door) = (Hub::new(), Door::default());
            let mut server = server(&hub, &door, ServerConfig { outbound, ..config });
            server.send(listen.replace("\"l\"", "7"));
            for id in 10..10 + calls {
                server.send(request(id, "wait"));
            }
            let _acknowledged = told(&mut server);
            server.world.allow(Some(0));
            // It is taken for the next write, and what comes later waits.
            server.send(request(1, "bulk"));
            door.open();
            server.run();
            shutdown.drain();
            server.run();
            server.world.allow(None);
            let lines = told(&mut server);
            let left_out = ends(&lines, [7].into_iter());
            assert!(left_out == 0 || calls == 1, "{lines:?}");
            assert_eq!(lines.len(), 1 + calls + 2 - left_out, "{lines:?}");
            assert!(matches!(server.ended, Some(Ok(()))), "{:?}", server.ended);
        }
    }
}

#[test]
fn the_state_of_a_task_may_stand_behind_blanks() {
    let hub = Hub::with_config(HubConfig { offers: Kinds::TASKS, ..HubConfig::default() });
    let mut server = serve(&hub, ServerConfig::default());
    let mut request: Value = serde_json::from_str(&listen(1, &json!({"taskIds": ["t"]}))).expect("JSON");
    request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    server.send(request.to_string());
    assert_eq!(told(&mut server), [r#"1 ack {"taskIds":["t"]}"#]);
    for state in ["\n\t {\"taskId\":\"t\",\"status\":\"working\"}", " { \"taskId\":\"t\",\"status\":\"working\" } \n"] {
        hub.task_changed(None, "t", state).expect("a state");
        assert_eq!(told(&mut server), [r#"1 task "t" "working""#], "rule K6: {state}");
    }
    hub.task_changed(None, "t", " {} ").expect("a state");
    assert_eq!(told(&mut server), ["1 task null null"]);
}
