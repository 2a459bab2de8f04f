//! A tunnel through a forward proxy: `CONNECT`, and then the bytes are the endpoint's.

use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::pool::{Full, Target};
use super::proxy::ProxyServer;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Asks `server`, at the other end of `stream`, for a tunnel to `target`.
pub(super) async fn open(stream: TcpStream, target: &Target, server: &ProxyServer) -> Result<TcpStream, Error> {
    let authority = target.to_string();
    let mut request = Request::new(Full(None));
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = authority.parse::<Uri>()?;
    request.headers_mut().insert(HOST, HeaderValue::from_str(&authority)?);
    if let Some(credentials) = &server.credentials {
        request.headers_mut().insert(PROXY_AUTHORIZATION, credentials.clone());
    }
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    drop(tokio::spawn(async move {
        let _told_to_who_waits = connection.with_upgrades().await;
    }));
    let response = sender.send_request(request).await?;
    match response.status() {
        status if status.is_success() => {}
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            return Err("it wants other credentials (HTTP 407): name them as http://USER:PASSWORD@HOST:PORT".into());
        }
        status => return Err(format!("it refused the tunnel: HTTP {status}").into()),
    }
    let parts = hyper::upgrade::on(response).await?;
    let parts = parts.downcast::<TokioIo<TcpStream>>().map_err(|_| "it is another stream")?;
    // The endpoint speaks second: what came early is not its own.
    if parts.read_buf.is_empty() { Ok(parts.io.into_inner()) } else { Err("it says more than its answer".into()) }
}
