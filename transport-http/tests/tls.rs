//! The client over TLS. `tests/tls` holds the certificate of a server called localhost, and its key: they are worth
//! nothing elsewhere.

use std::sync::Arc;
use std::time::Duration;

use steady_http::client::{CallError, Client, Config, ConnectError, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
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

/// Answers every request with one result, whatever it is; the port.
async fn serve() -> u16 {
    let settings = ServerConfig::builder_with_provider(ring::default_provider().into());
    let settings = settings.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let key = PrivatePkcs8KeyDer::from(KEY.to_vec()).into();
    let settings = settings.with_single_cert(vec![CertificateDer::from(CERTIFICATE)], key).expect("a pair");
    let acceptor = TlsAcceptor::from(Arc::new(settings));
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
