//! Mirrored parameters, what is sent again after an error of the protocol, and demands for input.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use steady_http::client::{CallError, Client, Config, InputAsked, Kind, Request};
use steady_http::{ServeConfig, Tools, Warn};

use super::support::{Asked, Raw, run, serve, tool, unasked};

const MIRRORED: &str = r#"{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"},"plain":{"type":"string"}}}"#;

fn listed(name: &str, schema: &str) -> Value {
    json!({"name": name, "inputSchema": serde_json::from_str::<Value>(schema).expect("JSON")})
}

/// Answers `tools/list` with these tools.
fn list(asked: &mut Asked, tools: &[Value]) {
    assert_eq!(asked.method(), "tools/list");
    asked.result(&json!({"resultType": "complete", "ttlMs": 1, "cacheScope": "public", "tools": tools, "x": [1]}));
}

#[test]
fn annotated_parameters_travel_in_headers_too() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let listing = client.call(Request::raw("tools/list", "{}"));
        let mut asked = raw.asked();
        list(&mut asked, &[listed("place", MIRRORED)]);
        assert_eq!(listing.await.expect("an answer").parse::<Value>().expect("JSON")["x"], json!([1]));
        for (arguments, region, n) in [
            (r#"{"region":"eu","n":3.0,"plain":"p"}"#, Some("eu"), Some("3")),
            (r#"{"region":"Zürich\r\nEvil: 1"}"#, Some("=?base64?WsO8cmljaA0KRXZpbDogMQ==?="), None),
            (r#"{"region":null,"n":-1}"#, None, Some("-1")),
        ] {
            let call = client.call(tool("place", arguments));
            asked = raw.asked();
            assert_eq!((asked.header("mcp-param-region"), asked.header("mcp-param-n")), (region, n));
            assert_eq!((asked.header("mcp-param-plain"), asked.header("evil")), (None, None));
            asked.text("ok");
            assert_eq!(call.tool_result().await.expect("an answer").text(), "ok");
        }
        let Err(CallError::Refused(why)) = client.call(tool("place", r#"{"n":1.5}"#)).await else { panic!("refused") };
        assert!(why.contains("Mcp-Param-N"), "{why}");
        assert_eq!(client.traffic().posts, 4);
    });
}

#[test]
fn tools_with_invalid_annotations_are_left_out_with_a_warning_and_never_called() {
    run(async {
        let raw = Raw::start();
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&warnings);
        let warn = Warn::to(move |warning| sink.lock().expect("no panic").push(warning.to_owned()));
        let client = raw.client(Config { warn, ..unasked() }).await;
        let served = tokio::task::spawn_blocking(move || {
            // An annotation may be spelled with escapes.
            let bad = r#"{"name":"bad","inputSchema":{"properties":{"a":{"type":"object","x\u002dmcp-header":"A"}}}}"#;
            let mut asked = raw.asked();
            let (id, good) = (&asked.body["id"], listed("good", MIRRORED));
            let tools = format!(r#"[{good},{bad},{{"name":"bare","inputSchema":{{}}}}]"#);
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":{tools}}}}}"#);
            asked.respond("200 OK", "application/json", &answer);
            raw
        });
        let tools = client.list_tools().await.expect("an answer");
        assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["good", "bare"]);
        let Err(CallError::Refused(why)) = client.call(tool("bad", r#"{"a":{}}"#)).await else { panic!("refused") };
        assert!(why.contains("\"bad\""), "{why}");
        let warnings = warnings.lock().expect("no panic").clone();
        assert!(warnings.len() == 1 && warnings[0].contains("\"bad\""), "{warnings:?}");
        assert!(served.await.expect("no panic").is_quiet());
        assert_eq!(client.traffic().posts, 1);
    });
}

#[test]
fn a_header_mismatch_refreshes_the_schema_and_sends_once_more() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let call = client.call(tool("place", r#"{"region":"eu"}"#));
        let mut asked = raw.asked();
        assert_eq!(asked.header("mcp-param-region"), None, "the schema is not known yet");
        let first = asked.body.clone();
        asked.error("400 Bad Request", -32020, &Value::Null);
        let mut asked = raw.asked();
        assert_eq!(asked.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert!(asked.body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].is_object());
        assert!(asked.body["id"].is_string(), "an id that is none of the calls'");
        asked.result(&json!({"tools": [listed("other", MIRRORED)], "nextCursor": "p2"}));
        let mut asked = raw.asked();
        assert_eq!(asked.body["params"]["cursor"], "p2");
        list(&mut asked, &[listed("place", MIRRORED)]);
        let mut asked = raw.asked();
        assert_eq!((asked.header("mcp-param-region"), &asked.body), (Some("eu"), &first));
        asked.text("placed");
        assert_eq!(call.tool_result().await.expect("an answer").text(), "placed");
        // Twice is enough: the second mismatch is the answer.
        let call = client.call(tool("place", r#"{"region":"eu"}"#));
        let mut asked = raw.asked();
        asked.error("400 Bad Request", -32020, &Value::Null);
        let mut asked = raw.asked();
        list(&mut asked, &[]);
        let mut asked = raw.asked();
        asked.error("400 Bad Request", -32020, &Value::Null);
        let Err(CallError::Peer(error)) = call.await else { panic!("refused") };
        assert_eq!(error.code, -32020);
        // For another method there is no schema to refresh.
        let call = client.call(Request::raw("prompts/get", r#"{"name":"p"}"#));
        raw.asked().error("400 Bad Request", -32020, &Value::Null);
        assert!(matches!(call.await, Err(CallError::Peer(_))));
    });
}

#[test]
fn many_calls_that_miss_their_headers_share_one_refresh_also_on_one_connection() {
    run(async {
        for most in [1, 128] {
            let raw = Raw::start();
            let client = raw.client(Config { max_connections: most, ..unasked() }).await;
            let lists = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&lists);
            raw.answer_each(move |asked| match (asked.method(), asked.header("mcp-param-region")) {
                ("tools/list", _) => {
                    counted.fetch_add(1, Ordering::SeqCst);
                    list(asked, &[listed("place", MIRRORED)]);
                }
                (_, None) => asked.error("400 Bad Request", -32020, &Value::Null),
                (_, Some(region)) => {
                    let region = region.to_owned();
                    asked.text(&region);
                }
            });
            let calls: Vec<_> =
                (0..20).map(|n| client.call(tool("place", &format!(r#"{{"region":"r{n}"}}"#)))).collect();
            for (n, call) in calls.into_iter().enumerate() {
                assert_eq!(call.tool_result().await.expect("an answer").text(), format!("r{n}"));
            }
            assert_eq!(lists.load(Ordering::SeqCst), 1);
        }
    });
}

#[test]
fn a_real_server_that_wants_headers_gets_them_without_being_asked_for_its_tools_first() {
    run(async {
        let tools = Tools::new("fixture", "0.0.0").tool("place", "Says where.", MIRRORED, |call, _| async move {
            let arguments: Value = call.arguments()?;
            Ok(steady_http::Reply::text(arguments["region"].as_str().unwrap_or_default()))
        });
        let url = serve(tools, ServeConfig::default()).await;
        let client = Client::connect(&url, Config::default()).await.expect("connected");
        for _ in 0..2 {
            let placed = client.call_tool("place", &json!({"region": "Zürich", "n": 7})).await.expect("an answer");
            assert_eq!(placed.text(), "Zürich");
        }
        assert_eq!(client.traffic().posts, 1 + 3 + 1, "discover; the call, its list, the call; the call");
    });
}

#[test]
fn what_may_have_run_is_not_sent_again_whatever_code_it_ends_with() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        for (code, data) in [(-32020, Value::Null), (-32022, json!({"supported": ["2026-07-28"]}))] {
            for reported in [false, true] {
                // A second attempt would wait for its answer.
                let call = client.call(tool("a", "{}").max(Some(Duration::from_secs(10))));
                let mut asked = raw.asked();
                if reported {
                    // A gateway that hands on what its upstream said after it had begun.
                    asked.events();
                    asked.progress(1.0);
                    let error = json!({"code": code, "message": "no", "data": data});
                    asked.event(&json!({"jsonrpc": "2.0", "id": asked.body["id"], "error": error}));
                    asked.end();
                } else {
                    asked.error("200 OK", code, &data);
                }
                let Err(CallError::Peer(error)) = call.await else { panic!("it is told") };
                assert_eq!(error.code, i64::from(code));
            }
        }
        assert!(raw.is_quiet());
        assert_eq!(client.traffic().posts, 4);
    });
}

#[test]
fn another_revision_is_tried_once_more_only_if_the_server_names_ours() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let call = client.call(tool("a", "{}"));
        let mut asked = raw.asked();
        asked.error("400 Bad Request", -32022, &json!({"supported": ["2025-11-25", "2026-07-28"], "requested": "x"}));
        let mut asked = raw.asked();
        asked.text("served");
        assert_eq!(call.tool_result().await.expect("an answer").text(), "served");
        let call = client.call(tool("a", "{}"));
        let mut asked = raw.asked();
        asked.error("400 Bad Request", -32022, &json!({"supported": ["2025-11-25"]}));
        let Err(CallError::Peer(error)) = call.await else { panic!("refused") };
        assert_eq!(error.code, -32022);
        let call = client.call(tool("a", "{}"));
        for _ in 0..2 {
            asked = raw.asked();
            asked.error("400 Bad Request", -32022, &json!({"supported": ["2026-07-28"]}));
        }
        assert!(matches!(call.await, Err(CallError::Peer(_))));
        assert_eq!(client.traffic().posts, 5);
    });
}

/// Declares forms, so that a server may ask for them.
fn with_forms() -> Config {
    let mut config = unasked();
    config.calls.capabilities = r#"{"elicitation":{"form":{}}}"#.into();
    config
}

#[test]
fn demands_for_input_are_answered_under_a_new_id_with_the_exact_state() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(with_forms()).await;
        let served = tokio::task::spawn_blocking(move || {
            let mut asked = raw.asked();
            let first = asked.body.clone();
            let form = json!({"method": "elicitation/create", "params": {"message": "who?"}});
            asked.result(
                &json!({"resultType": "input_required", "inputRequests": {"name": form}, "requestState": "s\"1"}),
            );
            let mut asked = raw.asked();
            let second = asked.body.clone();
            asked.result(&json!({"resultType": "input_required", "requestState": "s2"}));
            let mut asked = raw.asked();
            let third = asked.body.clone();
            asked.text("hello Ada");
            [first, second, third]
        });
        let answer = async |asked: InputAsked| {
            assert_eq!((&*asked.key, asked.kind, asked.params.get()), ("name", Kind::Form, r#"{"message":"who?"}"#));
            Some(r#"{"action":"accept","content":{"name":"Ada"}}"#.to_owned())
        };
        let said = client.call_tool_with_input(tool("greet", r#"{"a":1}"#), answer).await.expect("an answer");
        assert_eq!(said.text(), "hello Ada");
        let [first, second, third] = served.await.expect("no panic");
        let ids = [&first["id"], &second["id"], &third["id"]];
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
        assert_eq!(second["params"]["requestState"], "s\"1");
        assert_eq!(second["params"]["inputResponses"]["name"]["content"]["name"], "Ada");
        assert_eq!(third["params"]["requestState"], "s2");
        assert_eq!(third["params"].get("inputResponses"), None);
        for retry in [&second, &third] {
            assert_eq!(retry["params"]["arguments"], first["params"]["arguments"]);
        }
    });
}

#[test]
fn demands_that_break_the_protocol_or_find_no_answer_end_the_call() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(with_forms()).await;
        let roots = json!({"resultType": "input_required", "inputRequests": {"r": {"method": "roots/list"}}});
        let form = json!({"method": "elicitation/create", "params": {"message": "?"}});
        let form = json!({"resultType": "input_required", "inputRequests": {"f": form}});
        let empty = json!({"resultType": "input_required"});
        let served = tokio::task::spawn_blocking(move || {
            let mut asked = raw.asked();
            for result in [roots, empty, form] {
                asked.result(&result);
                asked = raw.asked();
            }
            // And one that never has enough.
            loop {
                asked.result(&json!({"resultType": "input_required", "requestState": "again"}));
                if asked.header("mcp-name") == Some("end") {
                    return;
                }
                asked = raw.asked();
            }
        });
        let declines = async |_: InputAsked| None;
        for expected in ["roots/list although", "neither which nor"] {
            let error = client.call_with_input(tool("a", "{}"), declines).await.expect_err("a breach");
            assert!(matches!(error, CallError::Answer(_)) && error.to_string().contains(expected), "{error}");
        }
        let error = client.call_with_input(tool("a", "{}"), declines).await.expect_err("declined");
        assert!(matches!(&error, CallError::NoInput(key) if &**key == "f"), "{error}");
        let error = client.call_with_input(tool("a", "{}"), declines).await.expect_err("it has no end");
        assert!(error.to_string().contains("without an end"), "{error}");
        assert_eq!(client.traffic().posts, 3 + 32);
        let _asked_once_more = client.call(tool("end", "{}")).await;
        served.await.expect("no panic");
    });
}
