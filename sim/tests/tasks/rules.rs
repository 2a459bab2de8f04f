//! The rules of tasks, each over both transports.

use serde_json::{Value, json};

use crate::support::{BOTH, Declares, Server, Shop, Transport, post_as, status};

const REQUIRED: &str = r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;

fn required() -> Value {
    serde_json::from_str(REQUIRED).expect("JSON")
}

#[test]
fn rule_k1_a_client_that_declared_the_extension_on_the_call_gets_a_flat_durable_task() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.server(transport, &[]);
        let discovered = server.ask("server/discover", json!({}));
        let capabilities = &discovered["capabilities"];
        assert_eq!(capabilities["extensions"], json!({"io.modelcontextprotocol/tasks": {}}));
        assert!(capabilities.get("tasks").is_none());
        let created = server.call("double", json!({"number": 4}));
        let members: Vec<&str> = created.as_object().expect("an object").keys().map(String::as_str).collect();
        let flat = ["_meta", "createdAt", "lastUpdatedAt", "pollIntervalMs", "resultType", "status", "taskId", "ttlMs"];
        assert_eq!(members, flat, "{transport:?}");
        assert_eq!((&created["resultType"], status(&created)), (&"task".into(), "working"));
        assert_eq!(created["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "task-server");
        let id = created["taskId"].as_str().expect("an id");
        // Durable: another process has it.
        assert_eq!(status(&shop.server(transport, &[]).get(id)), "working");
        // The same connection, and nothing is inferred from what an earlier request declared (rule M9).
        let inline = server.call_plainly("double", json!({"number": 4}));
        assert_eq!(inline["result"]["content"][0]["text"], "8");
        assert_eq!(inline["result"]["resultType"], "complete");
        let error = server.call_plainly("pack", json!({"parcels": 1}))["error"].clone();
        assert_eq!((&error["code"], &error["data"]), (&(-32021).into(), &required()));
    }
}

#[test]
fn rule_k1_a_key_is_one_task_for_every_call_and_every_process() {
    for transport in BOTH {
        let shop = Shop::new();
        let order = || json!({"parcels": 2, "idempotencyKey": "order-7"});
        let (mut first, mut second) = (shop.server(transport, &[]), shop.server(transport, &[]));
        let id = first.task("pack", order());
        assert_eq!((first.task("pack", order()), second.task("pack", order())), (id.clone(), id.clone()));
        let params = json!({"name": "pack", "arguments": {"parcels": 2}, "idempotencyKey": "order-7"});
        assert_eq!(second.ask("tools/call", params)["taskId"], id.as_str(), "wherever the key stands");
        let other = json!({"name": "pack", "arguments": {"parcels": 3, "idempotencyKey": "order-7"}});
        let error = second.refusal("tools/call", other, Declares::Tasks);
        assert_eq!((&error["code"], &error["data"]["type"]), (&(-32602).into(), &"idempotency_key_conflict".into()));
        let _worker = shop.worker("elsewhere", &[]);
        assert_eq!(status(&first.end(&id)), "completed");
        assert_eq!(second.task("pack", order()), id, "also once it is over");
        assert_ne!(first.task("pack", json!({"parcels": 1})), first.task("pack", json!({"parcels": 1})));
    }
}

#[test]
fn rule_k2_a_tool_that_failed_is_completed_and_only_an_error_of_the_protocol_is_failed() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.at_work(transport);
        let mut end = |how: &str| {
            let id = server.task("end", json!({"how": how}));
            server.end(&id)
        };
        let good = end("good");
        assert_eq!((status(&good), &good["result"]["content"][0]["text"]), ("completed", &"good".into()));
        let sorry = end("sorry");
        assert_eq!((status(&sorry), &sorry["result"]["isError"]), ("completed", &true.into()));
        assert!(sorry.get("error").is_none());
        let wrong = end("wrong");
        assert_eq!((status(&wrong), &wrong["error"]), ("failed", &json!({"code": -7, "message": "no"})));
        assert!(wrong.get("result").is_none());
    }
}

#[test]
fn rule_k3_a_cancellation_is_an_intent_until_a_worker_observes_it() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.server(transport, &[]);
        let id = server.task("pack", json!({"parcels": 1_000_000, "pauseMs": 5}));
        server.cancel(&id);
        server.cancel(&id);
        assert_eq!(status(&server.get(&id)), "working", "acknowledged, and nobody has stopped");
        let _worker = shop.worker("elsewhere", &[]);
        let ended = server.end(&id);
        assert_eq!(status(&ended), "cancelled");
        server.cancel(&id);
        assert_eq!(server.get(&id), ended, "a cancellation of what is over is acknowledged and changes nothing");
        let done = server.task("end", json!({"how": "good"}));
        let ended = server.end(&done);
        server.cancel(&done);
        assert_eq!((status(&ended), &server.get(&done)), ("completed", &ended));
    }
}

#[test]
fn rule_k3_neither_a_cancelled_call_nor_a_closed_stream_reaches_a_task() {
    for transport in BOTH {
        let shop = Shop::new();
        let params = || json!({"name": "pack", "arguments": {"parcels": 1, "idempotencyKey": "order-7"}});
        let mut server = shop.server(transport, &["--hold-replies"]);
        let sent = server.send("tools/call", params(), Declares::Tasks);
        let id = server.process.hear("durable ");
        // Now the call is cancelled, in the transport's own way: stdio says so, and HTTP closes the stream.
        server.notify("notifications/cancelled", &json!({"requestId": 1}));
        drop(sent);
        // The server has observed it: the call is over.
        assert_eq!(server.process.hear("let go "), id);
        // Had that been an intent to end the task, it would be recorded by now, and a worker would stop at its first look.
        let _worker = shop.worker("elsewhere", &[]);
        assert_eq!(status(&server.end(&id)), "completed");
        drop(server);
        let mut server = shop.server(transport, &[]);
        assert_eq!(server.task("pack", params()["arguments"].clone()), id);
    }
}

#[test]
fn rule_k4_a_task_that_asks_shows_its_open_questions_and_takes_each_answer_once() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.at_work(transport);
        let id = server.task("confirm", json!({}));
        let asks = server.wait(&id, |task| status(task) == "input_required");
        let keys = |task: &Value| task["inputRequests"].as_object().expect("a map").keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&asks), ["one", "two"]);
        assert_eq!(asks["inputRequests"]["one"]["method"], "elicitation/create");
        let mut update = |responses: Value| {
            let answer = server.ask("tasks/update", json!({"taskId": id, "inputResponses": responses}));
            assert_eq!((&answer["resultType"], answer.get("taskId")), (&"complete".into(), None));
        };
        update(json!({"nobody-asked": {"x": 1}}));
        update(json!({"one": {"action": "accept", "content": {"ok": true}}}));
        update(json!({"one": {"action": "decline"}}));
        let half = server.get(&id);
        assert_eq!((status(&half), keys(&half)), ("input_required", vec!["two".to_owned()]));
        let two = json!({"taskId": id, "inputResponses": {"two": {"action": "cancel"}}});
        server.ask("tasks/update", two.clone());
        let done = server.end(&id);
        let text = r#"{"action":"accept","content":{"ok":true}} {"action":"cancel"}"#;
        assert_eq!((status(&done), &done["result"]["content"][0]["text"]), ("completed", &text.into()));
        server.ask("tasks/update", two);
        assert_eq!(server.get(&id), done, "answers to what is over are acknowledged and change nothing");
        for params in [json!({"taskId": id}), json!({"taskId": id, "inputResponses": []})] {
            assert_eq!(server.refusal("tasks/update", params, Declares::Tasks)["code"], -32602);
        }
    }
}

#[test]
fn rule_k4_an_unknown_task_is_invalid_params() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.server(transport, &[]);
        for id in ["nonsense", "00000000000000000000000000000000", "é"] {
            if transport == Transport::Http && !id.is_ascii() {
                continue;
            }
            for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
                let params = json!({"taskId": id, "inputResponses": {}});
                assert_eq!(server.refusal(method, params, Declares::Tasks)["code"], -32602, "{method} {id}");
            }
        }
    }
}

/// Refused with what is missing, and on HTTP with status 400 (rule M3).
fn needs_the_extension(server: &mut Server, method: &str, params: Value) {
    let sent = server.send(method, params, Declares::Nothing);
    let (status, response) = server.receive_with_status(sent);
    assert!(status.is_none_or(|status| status == 400), "{method}: {status:?}");
    let error = &response["error"];
    assert_eq!((&error["code"], &error["data"]), (&(-32021).into(), &required()), "{method}");
}

#[test]
fn rule_k5_without_the_extension_tasks_are_refused_with_what_is_missing() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.server(transport, &[]);
        let id = server.task("pack", json!({"parcels": 1}));
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let params = json!({"taskId": id, "inputResponses": {}});
            needs_the_extension(&mut server, method, params);
        }
        needs_the_extension(&mut server, "tools/call", json!({"name": "pack", "arguments": {"parcels": 1}}));
        needs_the_extension(&mut server, "subscriptions/listen", json!({"notifications": {"taskIds": [id]}}));
    }
}

#[test]
fn rule_k5_a_task_belongs_to_its_caller_and_its_id_cannot_be_guessed() {
    for transport in BOTH {
        let shop = Shop::new();
        let (mut ann, mut bob) = (shop.server(transport, &[]), shop.server(transport, &["--principal", "bob"]));
        let order = || json!({"parcels": 1, "idempotencyKey": "order-7"});
        let id = ann.task("pack", order());
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let foreign = bob.refusal(method, json!({"taskId": id, "inputResponses": {}}), Declares::Tasks);
            let absent = "ffffffffffffffffffffffffffffffff";
            let unknown = bob.refusal(method, json!({"taskId": absent, "inputResponses": {}}), Declares::Tasks);
            assert_eq!(foreign, unknown, "one answer for both, so that nobody can probe");
        }
        assert_ne!(bob.task("pack", order()), id, "nor does a key reach over");
        let ids: std::collections::BTreeSet<_> = (0..64).map(|_| ann.task("pack", json!({"parcels": 1}))).collect();
        assert_eq!(ids.len(), 64);
        // 128 bits as hexadecimal digits: none of them is the same in all, or ids would be shorter than they look.
        for digit in 0..32 {
            let values: std::collections::BTreeSet<_> = ids.iter().map(|id| id.as_bytes()[digit]).collect();
            assert!(values.len() > 4, "digit {digit} of {ids:?}");
        }
    }
}

#[test]
fn rule_k6_a_listen_hears_the_whole_state_of_its_tasks_and_of_no_other_also_from_another_process() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.server(transport, &[]);
        let (id, other) = (server.task("end", json!({"how": "sorry"})), server.task("end", json!({"how": "good"})));
        let (honoured, mut listen) = server.listen(&[&id]);
        assert_eq!(honoured, json!({"taskIds": [id]}));
        let _worker = shop.worker("elsewhere", &[]);
        let states = listen.states_until(|task| status(task) == "completed");
        drop(listen);
        assert!(states.iter().all(|state| state["taskId"] == id.as_str()), "{states:?}");
        let mut got = server.get(&id);
        got.as_object_mut().expect("an object").retain(|name, _| name != "_meta" && name != "resultType");
        assert_eq!(states.last(), Some(&got), "what tasks/get answers");
        assert_eq!(status(&server.end(&other)), "completed");
    }
}

#[test]
fn rule_k6_a_listen_hears_of_a_question() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.server(transport, &[]);
        let id = server.task("confirm", json!({}));
        let (_, mut listen) = server.listen(&[&id]);
        let _worker = shop.worker("elsewhere", &[]);
        let asks = listen.states_until(|task| status(task) == "input_required").pop().expect("a state");
        assert_eq!(asks["inputRequests"].as_object().map(serde_json::Map::len), Some(2));
    }
}

#[test]
fn rule_k5_a_listen_for_tasks_needs_the_extension_and_hears_nothing_of_a_strangers_task() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut ann = shop.server(transport, &[]);
        let mut bob = shop.server(transport, &["--principal", "bob"]);
        let id = ann.task("end", json!({"how": "good"}));
        let listen = json!({"notifications": {"taskIds": [id]}});
        let error = bob.refusal("subscriptions/listen", listen, Declares::Nothing);
        assert_eq!((&error["code"], &error["data"]), (&(-32021).into(), &required()));
        let own = bob.task("end", json!({"how": "good"}));
        let (_, mut listen) = bob.listen(&[&id, &own]);
        let _worker = shop.worker("elsewhere", &[]);
        // Ann's task is older, so it has ended before.
        let states = listen.states_until(|task| status(task) == "completed");
        assert!(states.iter().all(|state| state["taskId"] == own.as_str()), "{states:?}");
        assert_eq!(status(&ann.end(&id)), "completed");
    }
}

#[test]
fn rule_k6_and_m5_on_http_the_name_header_is_the_task_and_refusals_have_status_400() {
    let shop = Shop::new();
    let mut server = shop.server(Transport::Http, &[]);
    let id = server.task("pack", json!({"parcels": 1}));
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let params = || json!({"taskId": id, "inputResponses": {}});
        for name in [None, Some("another")] {
            let (status, response) = post_as(&server, method, name, params());
            assert_eq!((status, &response["error"]["code"]), (400, &(-32020).into()), "{method} {name:?}");
        }
        let (status, response) = post_as(&server, method, Some(&id), params());
        assert_eq!((status, response.get("error")), (200, None), "{method}");
    }
}

#[test]
fn whoever_asks_for_a_task_without_pause_is_told_how_long_to_wait_and_no_other_task_is() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.server(transport, &[]);
        let (id, other) = (server.task("pack", json!({"parcels": 1})), server.task("pack", json!({"parcels": 1})));
        // All at once, more than the limit lets through in seconds.
        let sent: Vec<_> = (0..120).map(|_| server.send("tasks/get", json!({"taskId": id}), Declares::Tasks)).collect();
        let answers = server.receive_all(sent);
        let refused: Vec<&Value> = answers.iter().filter_map(|answer| answer.get("error")).collect();
        assert!(answers.len() - refused.len() >= 40, "{transport:?}: the first ones are answered");
        let error = refused.first().unwrap_or_else(|| panic!("{transport:?}: none of 120 was refused"));
        let pause = error["data"]["retryAfterMs"].as_u64().expect("a pause");
        assert_eq!(error["code"], -31001);
        assert!((1..=1000).contains(&pause), "the limit is 20 a second: {error}");
        assert_eq!(status(&server.get(&other)), "working");
        // Whoever waits as long as it is told is answered again.
        let again = (0..100).find_map(|_| {
            let sent = server.send("tasks/get", json!({"taskId": id}), Declares::Tasks);
            let answer = server.receive(sent);
            let told = answer["error"]["data"]["retryAfterMs"].as_u64();
            std::thread::sleep(std::time::Duration::from_millis(told.unwrap_or_default()));
            told.is_none().then_some(answer)
        });
        assert_eq!(status(&again.expect("an answer")["result"]), "working");
    }
}
