//! TLS for a client: rustls over ring.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::pool::Target;

/// Makes a connection to one host secure.
pub(super) struct Connector {
    connector: TlsConnector,
    host: ServerName<'static>,
}

impl Connector {
    /// With the given settings, or the system's roots.
    pub(super) fn new(target: &Target, settings: Option<Arc<ClientConfig>>) -> Result<Self, Box<str>> {
        let host = ServerName::try_from(target.host.to_string()).map_err(|_| "its host is no name of a server")?;
        let settings = settings.map_or_else(system, Ok)?;
        Ok(Self { connector: settings.into(), host })
    }

    pub(super) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.host.clone(), stream).await
    }
}

fn system() -> Result<Arc<ClientConfig>, Box<str>> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _unusable) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err("the system has no root certificates: give Config::tls".into());
    }
    let settings = ClientConfig::builder_with_provider(ring::default_provider().into());
    let settings = settings.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(settings.with_root_certificates(roots).with_no_client_auth().into())
}
