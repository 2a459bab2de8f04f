//! Connections over TLS, to a server with a certificate of its own.

use std::future::Future;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fs, io};

use steady_ledger::tokio_postgres::Socket;
use steady_ledger::tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use steady_ledger::{LedgerError, PgLedger};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::cluster::{Cluster, plain, skip};
use crate::runtime;
use crate::shop::{charge_on, number, options};

/// What a deployment brings: a connector of its TLS library.
#[derive(Clone)]
struct Rustls(Arc<ClientConfig>);

impl Rustls {
    /// Trusts this authority and no other.
    fn trusting(authority: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        Self(Arc::new(config.with_no_client_auth()))
    }
}

struct Connect(TlsConnector, ServerName<'static>);
struct Stream(RustlsStream<Socket>);

impl MakeTlsConnect<Socket> for Rustls {
    type Stream = Stream;
    type TlsConnect = Connect;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Connect> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Connect(TlsConnector::from(Arc::clone(&self.0)), name))
    }
}

impl TlsConnect<Socket> for Connect {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { self.0.connect(self.1, socket).await.map(Stream) })
    }
}

impl TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Runs openssl in the folder, as the user of the server; whether it is here.
fn openssl(folder: &Path, arguments: &str) -> bool {
    let done = plain("openssl", folder).args(arguments.split(' ')).stdin(Stdio::null()).output();
    let Ok(done) = done else { return false };
    assert!(done.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    true
}

/// An authority, another one that nobody asked, and a certificate of the first for `localhost`; whether they could be made.
fn certify(folder: &Path) -> bool {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    for name in ["ours", "others"] {
        if !openssl(folder, &format!("req -x509 {key} -keyout {name}.key -out {name}.crt -subj /CN={name}")) {
            return false;
        }
    }
    let key = key.replace(" -days 2", "");
    openssl(folder, &format!("req {key} -keyout server.key -out server.csr -subj /CN=localhost"));
    fs::write(folder.join("server.ext"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n").unwrap();
    let sign = "x509 -req -in server.csr -CA ours.crt -CAkey ours.key -CAcreateserial -days 2";
    openssl(folder, &format!("{sign} -extfile server.ext -out server.crt"))
}

#[test]
fn a_server_is_talked_to_over_tls_if_its_authority_is_trusted_and_not_at_all_otherwise() {
    let name = "a_server_is_talked_to_over_tls_if_its_authority_is_trusted_and_not_at_all_otherwise";
    let Some(cluster) = Cluster::start() else { return skip(name, "PostgreSQL with its server programs") };
    let folder = cluster.folder();
    if !certify(folder) {
        return skip(name, "openssl");
    }
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let settings = format!("-c listen_addresses=127.0.0.1 -c port={port}");
    let config = format!("host=localhost hostaddr=127.0.0.1 port={port} user=postgres dbname=postgres");
    let (ours, others) = (Rustls::trusting(&folder.join("ours.crt")), Rustls::trusting(&folder.join("others.crt")));
    runtime().block_on(async {
        let open = async |tls: &Rustls| PgLedger::open_tls(&config, tls.clone(), options()).await;
        // A server that has no TLS is there, and is not asked to do without.
        cluster.down();
        cluster.up_with(&settings);
        let refused = open(&ours).await;
        assert!(matches!(refused, Err(LedgerError::Storage(_))), "{refused:?}");
        assert_eq!(number(&config, "SELECT count(*) FROM pg_class WHERE relname = 'ledger_key'").await, 0);
        PgLedger::open_tls(&format!("{config} sslmode=disable"), ours.clone(), options()).await.unwrap().close();

        cluster.down();
        fs::write(folder.join("data/pg_hba.conf"), "local all all trust\nhostssl all all 127.0.0.1/32 trust\n")
            .unwrap();
        cluster.up_with(&format!("{settings} -c ssl=on -c ssl_cert_file=../server.crt -c ssl_key_file=../server.key"));
        let ledger = open(&ours).await.unwrap();
        assert!(!charge_on(&ledger, "order-1").await.unwrap().is_replay());
        assert!(charge_on(&ledger, "order-1").await.unwrap().is_replay());
        let wakes = ledger.wakes_tls(&config, ours.clone()).unwrap();
        wakes.messages().wait(Duration::from_secs(3600)).await;
        let local = format!("host={} port={port} user=postgres dbname=postgres", folder.display());
        let of_ledger = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                         WHERE application_name = 'mcp-steady-ledger' AND";
        assert!(number(&local, &format!("{of_ledger} ssl")).await > 0);
        assert_eq!(number(&local, &format!("{of_ledger} NOT ssl")).await, 0);

        let wrong = open(&others).await;
        assert!(matches!(wrong, Err(LedgerError::Storage(_))), "{wrong:?}");
        let bare = PgLedger::open(&config, options()).await;
        assert!(bare.is_err(), "the server takes none without TLS: {bare:?}");
    });
}
