//! The client over TLS. `tests/tls` holds the certificate of a server called localhost, and its key: they are worth
//! nothing elsewhere.

#[path = "forward_proxy/mod.rs"]
mod forward_proxy;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use forward_proxy::{ForwardProxy, Manner};
use steady_http::client::{CallError, Client, Config, ConnectError, Proxy, Request};
use steady_http::steady_core::retry::Verdict;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

const CERTIFICATE: &[u8] = include_bytes!("tls/localhost.cert.der");
const KEY: &[u8] = include_bytes!("tls/localhost.key.der");
const GUARD: Duration = Duration::from_secs(60);

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async { tokio::time::timeout(GUARD, test).await.expect("it hangs") });
}

fn acceptor() -> TlsAcceptor {
    let settings = ServerConfig::builder_with_provider(ring::default_provider().into());
    let settings = settings.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let key = PrivatePkcs8KeyDer::from(KEY.to_vec()).into();
    let settings = settings.with_single_cert(vec![CertificateDer::from(CERTIFICATE)], key).expect("a pair");
    Arc::new(settings).into()
}

/// Answers every request with one result, whatever it is; the port.
async fn serve() -> u16 {
    let acceptor = acceptor();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut buffer = vec![0; 64 << 10];
                while let Ok(1..) = stream.read(&mut buffer).await {
                    let body = r#"{"jsonrpc":"2.0","id":1,"result":{"said":"over TLS"}}"#;
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    );
                    let _gone = stream.write_all(format!("{head}{body}").as_bytes()).await;
                }
            });
        }
    });
    port
}

fn config(trusted: bool) -> Config {
    let mut roots = RootCertStore::empty();
    if trusted {
        roots.add(CertificateDer::from(CERTIFICATE)).expect("a certificate");
    }
    let settings = ClientConfig::builder_with_provider(ring::default_provider().into());
    let settings = settings.with_safe_default_protocol_versions().expect("versions");
    let settings = settings.with_root_certificates(roots).with_no_client_auth();
    let mut config = Config { tls: Some(Arc::new(settings)), ..Config::default() };
    config.calls.probe = None;
    config
}

async fn call(url: &str, trusted: bool) -> Result<String, CallError> {
    let client = Client::connect(url, config(trusted)).await.expect("nobody is asked");
    client.call(Request::raw("x/y", "{}").attempts(1)).await.map(|result| result.get().to_owned())
}

#[test]
fn a_trusted_server_answers_and_no_other_is_sent_anything() {
    run(async {
        let port = serve().await;
        let said = call(&format!("https://localhost:{port}/mcp"), true).await.expect("an answer");
        assert_eq!(said, r#"{"said":"over TLS"}"#);
        // Signed by nobody that is trusted; another name than its own; no TLS at all.
        for (url, trusted) in
            [(format!("https://localhost:{port}/mcp"), false), (format!("https://127.0.0.1:{port}/mcp"), true)]
        {
            let refused = call(&url, trusted).await;
            let Err(CallError::NeverSent { loss, .. }) = refused else { panic!("{url}: {refused:?}") };
            assert!(loss.what.contains("certificate"), "{loss}");
        }
        let plain = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("https://localhost:{}/mcp", plain.local_addr().expect("bound").port());
        tokio::spawn(async move {
            let (mut stream, _) = plain.accept().await.expect("a client");
            let _gone = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        });
        assert!(matches!(call(&url, true).await, Err(CallError::NeverSent { .. })));
    });
}

#[test]
fn a_name_that_is_none_is_refused() {
    run(async {
        let refused = Client::connect("https://-bad-/mcp", config(true)).await;
        assert!(matches!(refused, Err(ConnectError::Url(_))), "{refused:?}");
    });
}

/// Begins a stream for the first request of each connection, reports once, and waits for the end of the input, which it
/// says.
async fn serve_and_hold() -> (SocketAddr, mpsc::UnboundedReceiver<&'static str>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (says, said) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let says = says.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor().accept(stream).await else { return };
                let mut buffer = vec![0; 64 << 10];
                let size = stream.read(&mut buffer).await.expect("a request");
                let request = String::from_utf8_lossy(&buffer[..size]).into_owned();
                let (_, body) = request.split_once("\r\n\r\n").expect("a body in the same record or the next");
                let body = match body {
                    "" => {
                        let size = stream.read(&mut buffer).await.expect("a body");
                        String::from_utf8_lossy(&buffer[..size]).into_owned()
                    }
                    body => body.to_owned(),
                };
                let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
                let params = serde_json::json!({"progressToken": body["id"], "progress": 1});
                let event = serde_json::json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
                stream.write_all(format!("{head}data: {event}\n\n").as_bytes()).await.expect("it reads");
                let ended = stream.read(&mut buffer).await;
                let _test_is_over = says.send(if matches!(ended, Ok(1..)) { "more" } else { "gone" });
            });
        }
    });
    (address, said)
}

async fn through(proxy: &ForwardProxy, credentials: &str, port: u16) -> Client {
    let proxy = Proxy::through(&proxy.url(credentials)).expect("an address");
    let url = format!("https://localhost:{port}/mcp");
    Client::connect(&url, Config { proxy, ..config(true) }).await.expect("nobody is asked")
}

#[test]
fn through_a_tunnel_tls_ends_at_the_server_and_the_proxy_alone_gets_its_credentials() {
    run(async {
        let port = serve().await;
        let mut proxy = ForwardProxy::start(([127, 0, 0, 1], port).into(), Manner::Pass).await;
        let client = through(&proxy, "user:p%40ss@", port).await;
        let said = client.call(Request::raw("x/y", "{}")).await.expect("an answer");
        assert_eq!(said.get(), r#"{"said":"over TLS"}"#);
        let lines = proxy.asked().await;
        assert_eq!(lines[0], format!("CONNECT localhost:{port} HTTP/1.1"));
        let rest: std::collections::BTreeSet<String> = lines[1..].iter().map(|line| line.to_lowercase()).collect();
        let expected = [format!("host: localhost:{port}"), "proxy-authorization: basic dxnlcjpwqhnz".to_owned()];
        assert_eq!(rest, expected.into_iter().collect());
    });
}

#[test]
fn a_proxy_that_refuses_the_tunnel_was_sent_nothing_for_the_server() {
    run(async {
        let port = serve().await;
        for (answer, why) in [
            ("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "USER:PASSWORD@HOST"),
            ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "403"),
            ("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "502"),
            ("HTTP/1.1 200 OK\r\n\r\nand more", "more than its answer"),
            ("no HTTP at all\r\n\r\n", "HTTP version"),
            ("", "closed"),
        ] {
            let proxy = ForwardProxy::start(([127, 0, 0, 1], port).into(), Manner::Say(answer)).await;
            let client = through(&proxy, "user:hush@", port).await;
            let ended = client.call(Request::raw("x/y", "{}").attempts(1)).await;
            let Err(CallError::NeverSent { loss, .. }) = ended else { panic!("{answer}: {ended:?}") };
            let said = format!("no connection to localhost:{port} through the proxy 127.0.0.1:");
            assert!(loss.what.starts_with(&said) && loss.what.contains(why), "{loss}");
            assert!(!loss.what.contains("hush"), "{loss}");
        }
    });
}

#[test]
fn statement_02_through_a_tunnel_a_cancellation_reaches_the_server_and_a_dead_proxy_leaves_the_outcome_unknown() {
    run(async {
        let (address, mut said) = serve_and_hold().await;
        let mut proxy = ForwardProxy::start(address, Manner::Pass).await;
        let client = through(&proxy, "", address.port()).await;
        let request = || Request::raw("x/y", "{}").idle(None).max(None);
        let mut call = client.call(request());
        assert_eq!(call.progress().await.expect("it runs").progress, 1.0);
        drop(call);
        assert_eq!(said.recv().await, Some("gone"));
        let mut call = client.call(request());
        assert_eq!(call.progress().await.expect("it runs").progress, 1.0);
        proxy.cut();
        let ended = call.await;
        assert!(matches!(ended, Err(CallError::Unknown { verdict: Verdict::ReconcileFirst, .. })), "{ended:?}");
        assert_eq!(client.traffic().posts, 2);
        for _ in 0..2 {
            assert!(proxy.asked().await[0].starts_with("CONNECT "));
        }
        assert!(proxy.is_quiet());
    });
}
