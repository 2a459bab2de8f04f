//! Which era a server is found to be of, and what one of the modern revision never hears.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use steady_http::client::{Client, Config, ConnectError, Request};
use steady_http::steady_core::kernel::Eras;

use super::clock::Manual;
use super::sessions::{answer_initialize, eager, is_named};
use super::support::{Raw, run, tool, unasked};

#[test]
fn an_error_of_the_modern_revision_is_no_reason_for_a_handshake_and_neither_is_a_locked_door() {
    run(async {
        let modern = json!({"supported": ["2027-01-01"], "requested": "2026-07-28"});
        for (status, body) in [
            ("400 Bad Request", json!({"code": -32022, "message": "no", "data": modern}).to_string()),
            ("400 Bad Request", json!({"code": -32020, "message": "no"}).to_string()),
            ("401 Unauthorized", String::new()),
            ("403 Forbidden", String::new()),
            ("503 Busy", String::new()),
        ] {
            let raw = Raw::start();
            let url = raw.url();
            let client = tokio::spawn(async move { Client::connect(&url, eager()).await });
            let mut probe = raw.asked();
            let id = probe.body["id"].clone();
            if body.is_empty() {
                probe.respond(status, "text/plain", "no");
            } else {
                probe.respond(status, "application/json", &format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{body}}}"#));
            }
            assert!(matches!(client.await.expect("no panic"), Err(ConnectError::Lost(_))), "{status}");
            assert!(raw.is_quiet(), "{status} {body}");
        }
    });
}

#[test]
fn a_client_of_one_era_tries_no_other_and_says_why() {
    run(async {
        let connect = |raw: &Raw, eras| {
            let (url, mut config) = (raw.url(), eager());
            config.calls.eras = eras;
            tokio::spawn(async move { Client::connect(&url, config).await })
        };
        let why = async |client: tokio::task::JoinHandle<Result<Client, ConnectError>>| {
            client.await.expect("no panic").expect_err("it cannot be used").to_string()
        };
        let raw = Raw::start();
        let modern = connect(&raw, Eras::Modern);
        raw.asked().respond("400 Bad Request", "text/plain", "no session");
        let told = why(modern).await;
        assert!(told.contains("older revision") && told.contains("`eras`"), "{told}");

        let legacy = connect(&raw, Eras::Legacy);
        let mut first = raw.asked();
        assert_eq!(first.method(), "initialize", "no probe");
        first.error("400 Bad Request", -32022, &json!({"supported": ["2026-07-28"]}));
        let told = why(legacy).await;
        assert!(told.contains("2026-07-28"), "{told}");

        let legacy = connect(&raw, Eras::Legacy);
        answer_initialize(&mut raw.asked(), "s-1", "2024-11-05");
        let told = why(legacy).await;
        assert!(told.contains("2024-11-05"), "{told}");
        // What the handshake had begun is ended.
        assert!(raw.asked().start.starts_with("DELETE "));

        let mut config = unasked();
        config.calls.eras = Eras::Legacy;
        let told = Client::connect(&raw.url(), config).await.expect_err("there is no handshake").to_string();
        assert!(told.contains("probe"), "{told}");
        assert!(raw.is_quiet());
    });
}

#[test]
fn a_modern_server_hears_no_handshake_and_no_cancellation() {
    run(async {
        let raw = Raw::start();
        let url = raw.url();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heard);
        raw.answer_each(move |asked| {
            let verb = asked.start.split(' ').next().unwrap_or_default();
            kept.lock().expect("no panic").push(format!("{verb} {}", asked.body["method"]));
            match asked.body["method"].as_str() {
                Some("server/discover") => asked.result(&json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {},
                    "ttlMs": 0, "cacheScope": "public",
                })),
                Some("tools/call") if is_named(asked, "fast") => asked.text("done"),
                // It never answers.
                _ => {}
            }
        });
        let clock = Manual::default();
        let config = Config { clock: clock.clock(), ..eager() };
        let client = Client::connect(&url, config).await.expect("it is there");
        let given_up = client.call(tool("slow", "{}"));
        let dropped = client.call(tool("slow", "{}"));
        let late = client.call(tool("slow", "{}"));
        while heard.lock().expect("no panic").len() < 4 {
            tokio::task::yield_now().await;
        }
        given_up.cancel("enough");
        assert!(given_up.await.is_err());
        drop(dropped);
        clock.advance(Duration::from_secs(30));
        assert!(late.await.is_err());
        for _ in 0..3 {
            assert!(client.call(tool("fast", "{}")).await.is_ok());
        }
        client.shutdown().await;
        let heard = heard.lock().expect("no panic").clone();
        let mut expected = vec!["POST \"server/discover\"".to_owned()];
        expected.resize(7, "POST \"tools/call\"".to_owned());
        assert_eq!(heard, expected);
    });
}

#[test]
fn a_handshake_that_the_application_calls_by_itself_changes_nothing() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let own = client.call(Request::raw("initialize", "{}"));
        let mut asked = raw.asked();
        assert_eq!((asked.header("mcp-method"), asked.header("mcp-session-id")), (Some("initialize"), None));
        asked.error("404 Not Found", -32601, &json!({}));
        assert!(own.await.is_err());
        let next = client.call(tool("a", "{}"));
        let mut asked = raw.asked();
        assert_eq!(asked.header("mcp-protocol-version"), Some("2026-07-28"));
        asked.text("done");
        assert!(next.await.is_ok());
        assert!(raw.is_quiet());
    });
}
