//! The client behind a forward proxy on real sockets. `tests/tls.rs` has what goes through a tunnel.

use std::process::Command;
use std::time::Duration;

use steady_http::client::{CallError, Client, Config, Proxy};
use steady_http::steady_core::idempotency::Key;
use steady_http::steady_core::retry::Verdict;
use steady_http::{ServeConfig, Tools};

use super::forward_proxy::{ForwardProxy, Manner};
use super::support::{Raw, run, serve, tool, unasked};

/// A name that no resolver knows: only the proxy can.
const URL: &str = "http://origin.test:8080/mcp?tenant=a";

async fn through(proxy: &ForwardProxy, credentials: &str) -> Client {
    let proxy = Proxy::through(&proxy.url(credentials)).expect("an address");
    let mut config = Config { proxy, ..unasked() };
    config.calls.calls.backoff.base = Duration::ZERO;
    config.calls.calls.backoff.cap = Duration::ZERO;
    Client::connect(URL, config).await.expect("nobody is asked")
}

fn header<'a>(lines: &'a [String], name: &str) -> Option<&'a str> {
    lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn it_is_asked_in_absolute_form_with_its_own_credentials() {
    run(async {
        let raw = Raw::start();
        let mut proxy = ForwardProxy::start(raw.address(), Manner::Pass).await;
        let client = through(&proxy, "user:p%40ss@").await;
        for text in ["one", "two"] {
            let call = client.call(tool("a", "{}"));
            let lines = proxy.asked().await;
            assert_eq!(lines[0], "POST http://origin.test:8080/mcp?tenant=a HTTP/1.1");
            assert_eq!(header(&lines, "host"), Some("origin.test:8080"));
            assert_eq!(header(&lines, "proxy-authorization"), Some("Basic dXNlcjpwQHNz"));
            let mut asked = raw.asked();
            assert_eq!((&*asked.start, asked.header("authorization")), ("POST /mcp?tenant=a HTTP/1.1", None));
            asked.text(text);
            assert_eq!(call.tool_result().await.expect("an answer").text(), text);
        }
        assert!(!format!("{client:?}").contains("dXNlcjpwQHNz"));
        let anonymous = through(&proxy, "").await;
        let call = anonymous.call(tool("a", "{}"));
        assert_eq!(header(&proxy.asked().await, "proxy-authorization"), None);
        raw.asked().text("three");
        assert!(call.await.is_ok());
    });
}

#[test]
fn statement_02_a_cancellation_reaches_the_handler_behind_it_and_nothing_is_posted() {
    run(async {
        let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let tools = Tools::new("fixture", "0.0.0");
        let tools = tools.tool("wait", "Waits.", r#"{"type":"object"}"#, move |_, cx| {
            let said = said.clone();
            async move {
                cx.report(1.0, None, "waiting");
                let _test_is_over = said.send("started".to_owned());
                let cancelled = cx.cancelled().await;
                let _test_is_over = said.send(format!("{:?}", cancelled.reason));
                Err(cancelled.into())
            }
        });
        let url = serve(tools, ServeConfig::default()).await;
        let address = url.trim_start_matches("http://").trim_end_matches("/mcp").parse().expect("an address");
        let mut proxy = ForwardProxy::start(address, Manner::Pass).await;
        let config = Config { proxy: Proxy::through(&proxy.url("")).expect("an address"), ..unasked() };
        let client = Client::connect(&url, config).await.expect("nobody is asked");
        for reads in [false, true] {
            let mut call = client.call(tool("wait", "{}"));
            if reads {
                assert_eq!(call.progress().await.expect("it runs").progress, 1.0);
            }
            assert_eq!(heard.recv().await.as_deref(), Some("started"));
            drop(call);
            assert_eq!(heard.recv().await.as_deref(), Some("Disconnected"));
            // Loopback, and asked of the proxy: it was named for this client.
            assert!(proxy.asked().await[0].starts_with("POST http://127.0.0.1:"));
        }
        assert!(proxy.is_quiet());
    });
}

#[test]
fn one_that_dies_during_an_answer_leaves_the_outcome_unknown_and_a_key_is_sent_again() {
    run(async {
        let raw = Raw::start();
        let proxy = ForwardProxy::start(raw.address(), Manner::Pass).await;
        let client = through(&proxy, "").await;
        for key in [None, Some("order-7")] {
            let request = tool("order", r#"{"n":1.10}"#).idle(None).max(None);
            let request = match key {
                Some(key) => request.key(Key::parse(key).expect("a key")),
                None => request,
            };
            let mut call = client.call(request);
            let mut asked = raw.asked();
            asked.events();
            asked.progress(1.0);
            assert_eq!(call.progress().await.expect("it runs").progress, 1.0);
            proxy.cut();
            if key.is_none() {
                let ended = call.await;
                assert!(matches!(ended, Err(CallError::Unknown { verdict: Verdict::ReconcileFirst, .. })), "{ended:?}");
                continue;
            }
            let mut again = raw.asked();
            assert_ne!(again.body["id"], asked.body["id"]);
            assert_eq!(again.body["params"]["arguments"], asked.body["params"]["arguments"]);
            assert_eq!(again.body["params"]["_meta"]["mcp-steady.dev/idempotencyKey"], "order-7");
            again.text("once");
            assert_eq!(call.tool_result().await.expect("an answer").text(), "once");
        }
        assert!(raw.is_quiet());
    });
}

#[test]
fn what_it_says_itself_refuses_or_leaves_the_outcome_unknown() {
    run(async {
        let raw = Raw::start();
        for (answer, refuses) in [
            (
                "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
                true,
            ),
            ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", true),
            // It may have passed the request on.
            ("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", false),
            ("HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n", false),
            ("", false),
        ] {
            let proxy = ForwardProxy::start(raw.address(), Manner::Say(answer)).await;
            let client = through(&proxy, "user:hush@").await;
            let error = client.call(tool("order", "{}")).await.expect_err("no origin");
            let refused = matches!(error, CallError::Refused(_));
            let unknown = matches!(error, CallError::Unknown { verdict: Verdict::ReconcileFirst, .. });
            assert_eq!((refused, unknown), (refuses, !refuses), "{answer}: {error:?}");
            assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
        }
        assert!(raw.is_quiet());
    });
}

#[test]
fn one_that_is_not_there_was_told_nothing() {
    run(async {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = gone.local_addr().expect("bound");
        drop(gone);
        let proxy = Proxy::through(&format!("http://user:hush@{at}")).expect("an address");
        let client = Client::connect(URL, Config { proxy, ..unasked() }).await.expect("nobody is asked");
        let ended = client.call(tool("order", "{}").attempts(1)).await;
        let Err(CallError::NeverSent { loss, .. }) = ended else { panic!("{ended:?}") };
        let said = format!("no connection to origin.test:8080 through the proxy {at}: ");
        assert!(loss.what.starts_with(&said) && !loss.what.contains("hush"), "{loss}");
    });
}

/// Set in the process that is the client of the test below.
const CHILD: &str = "STEADY_TEST_CLIENT_OF_THE_ENVIRONMENT";

/// Only a new process has an environment of its own. It runs this test alone, as a client.
#[test]
fn the_environment_names_it_and_never_for_loopback() {
    let Ok(url) = std::env::var(CHILD) else { return of_the_environment() };
    run(async {
        let client = Client::connect(&url, unasked()).await.expect("nobody is asked");
        let said = client.call(tool("a", "{}")).tool_result().await.expect("an answer");
        assert_eq!(said.text(), "served");
    });
}

fn of_the_environment() {
    run(async {
        let raw = Raw::start();
        let mut proxy = ForwardProxy::start(raw.address(), Manner::Pass).await;
        for (url, asks) in [(URL.to_owned(), true), (raw.url(), false)] {
            let program = std::env::current_exe().expect("this program");
            let test = "proxies::the_environment_names_it_and_never_for_loopback";
            let mut child = Command::new(program)
                .args(["--exact", test])
                .env(CHILD, &url)
                .env("HTTP_PROXY", proxy.url("user:p%40ss@"))
                .env("NO_PROXY", "other.test")
                .env_remove("http_proxy")
                .env_remove("no_proxy")
                .env_remove("REQUEST_METHOD")
                .stdout(std::process::Stdio::null())
                .spawn()
                .expect("it starts");
            raw.asked().text("served");
            assert!(child.wait().expect("it ends").success(), "{url}");
            assert_eq!(!proxy.is_quiet(), asks, "{url}");
        }
    });
}
