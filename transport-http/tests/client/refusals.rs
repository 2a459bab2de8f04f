//! Statuses without a message of the protocol, and authorisation.

use std::sync::{Arc, Mutex};

use http::{HeaderValue, header};
use serde_json::json;
use steady_http::client::{CallError, Config, Rejected, Request};
use steady_http::steady_core::kernel::BoxFuture;
use steady_http::steady_core::retry::Verdict;

use super::support::{Raw, run, tool, unasked};

#[test]
fn a_status_proves_a_refusal_or_leaves_the_outcome_unknown() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        for status in ["301 Moved", "400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found", "413 Big"]
        {
            let call = client.call(tool("order", "{}"));
            raw.asked().respond(status, "text/html", "<h1>no</h1>");
            let Err(CallError::Refused(why)) = call.await else { panic!("{status}") };
            assert!(why.contains(&status[..3]) && why.contains("<h1>no</h1>"), "{why}");
        }
        for status in ["202 Accepted", "200 OK", "429 Slow Down", "500 Oops", "502 Bad Gateway", "504 Timeout"] {
            let call = client.call(tool("order", "{}"));
            raw.asked().respond(status, "text/html", "<h1>no</h1>");
            let ended = call.await;
            let Err(CallError::Unknown { loss, verdict: Verdict::ReconcileFirst }) = ended else { panic!("{ended:?}") };
            assert!(loss.what.contains(&status[..3]), "{loss}");
        }
        assert_eq!(client.traffic().posts, 12, "nothing unsafe was sent again, nothing was sent elsewhere");
        assert_eq!((client.stats().refused_elsewhere, client.stats().unknown), (6, 6));
    });
}

#[test]
fn errors_of_the_protocol_are_the_servers_whatever_the_status() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        for (status, code) in
            [("400 Bad Request", -32602), ("404 Not Found", -32601), ("503 Full", -31001), ("200 OK", -1)]
        {
            let call = client.call(tool("a", "{}"));
            raw.asked().error(status, code, &json!(null));
            let Err(CallError::Peer(error)) = call.await else { panic!("{status}") };
            assert_eq!(error.code, i64::from(code));
        }
    });
}

/// Gives a token, a fresh one after each 401, and remembers what it was told.
fn tokens(told: Arc<Mutex<Vec<Option<String>>>>) -> Config {
    let authorize = move |rejected: Option<Rejected>| -> BoxFuture<_> {
        let mut told = told.lock().expect("no panic");
        let challenge = |rejected: Rejected| {
            let challenge = rejected.challenge.expect("a challenge");
            challenge.to_str().expect("text").to_owned()
        };
        told.push(rejected.map(challenge));
        let rejections = told.iter().flatten().count();
        Box::pin(async move {
            let token = HeaderValue::from_str(&format!("Bearer t{rejections}")).map_err(|error| error.to_string())?;
            // What is the protocol's cannot be replaced.
            let host = (header::HOST, HeaderValue::from_static("evil.example"));
            Ok(vec![(header::AUTHORIZATION, token), host])
        })
    };
    Config { authorize: Some(Arc::new(authorize)), ..unasked() }
}

const CHALLENGE: &str =
    "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"x\"\r\nContent-Length: 2\r\n\r\nno";

#[test]
fn after_a_401_the_hook_is_asked_again_once() {
    run(async {
        let raw = Raw::start();
        let told = Arc::default();
        let client = raw.client(tokens(Arc::clone(&told))).await;
        let call = client.call(tool("order", "{}"));
        let mut asked = raw.asked();
        assert_eq!(asked.header("authorization"), Some("Bearer t0"));
        assert_ne!(asked.header("host"), Some("evil.example"));
        asked.send(CHALLENGE);
        let mut asked = raw.asked();
        assert_eq!(asked.header("authorization"), Some("Bearer t1"));
        asked.text("let in");
        assert_eq!(call.tool_result().await.expect("an answer").text(), "let in");

        let call = client.call(tool("order", "{}"));
        let mut asked = raw.asked();
        asked.send(CHALLENGE);
        let mut asked = raw.asked();
        asked.send(CHALLENGE);
        let Err(CallError::Refused(why)) = call.await else { panic!("twice is enough") };
        assert!(why.contains("401") && !why.contains("Bearer t"), "{why}");
        let said = Some("Bearer realm=\"x\"".to_owned());
        assert_eq!(*told.lock().expect("no panic"), [None, said.clone(), None, said]);
    });
}

#[test]
fn a_hook_that_fails_or_panics_costs_its_own_call_only() {
    run(async {
        let raw = Raw::start();
        let authorize = |_: Option<Rejected>| -> BoxFuture<_> { Box::pin(async { Err("no token".into()) }) };
        let client = raw.client(Config { authorize: Some(Arc::new(authorize)), ..unasked() }).await;
        let Err(CallError::Refused(why)) = client.call(tool("a", "{}")).await else { panic!("refused") };
        assert_eq!(&*why, "no token");
        assert!(raw.is_quiet() && client.traffic().posts == 0);

        let authorize = |_: Option<Rejected>| -> BoxFuture<_> { Box::pin(async { panic!("a bug in the hook") }) };
        let client = raw.client(Config { authorize: Some(Arc::new(authorize)), ..unasked() }).await;
        let ended = client.call(tool("a", "{}")).await;
        assert!(matches!(ended, Err(CallError::Unknown { .. })), "{ended:?}");
        let ended = client.call(Request::raw("tools/list", "{}").safe().attempts(1)).await;
        assert!(matches!(ended, Err(CallError::Unknown { .. })), "{ended:?}");
    });
}
