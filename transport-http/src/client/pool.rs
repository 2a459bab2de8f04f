//! Connections to one host: made when needed, kept for a while, and exact about what was never sent.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::Config;
use super::dial::dial;
use super::idle::Idle;
use super::proxy::ProxyServer;
use crate::clock::{Clock, within};

/// What is left of an answer's body is read for this long and so many bytes, so that its connection can be used again.
const DRAIN_TIME: Duration = Duration::from_secs(1);
const DRAIN_BYTES: usize = 64 << 10;

/// A host.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) host: Box<str>,
    pub(super) port: u16,
}

impl Target {
    /// What an authority names; `None` if its port is none.
    pub(super) fn of(authority: &Authority, usual_port: u16) -> Option<Self> {
        let (host, text) = (authority.host(), authority.as_str());
        let after = text.rsplit_once('@').map_or(text, |(_, after)| after);
        let port = match after.strip_prefix(host)?.strip_prefix(':') {
            None | Some("") => usual_port,
            Some(port) => port.parse().ok()?,
        };
        Some(Self { host: host.trim_matches(['[', ']']).into(), port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The connections of one client.
pub(super) struct Pool {
    target: Target,
    proxy: Option<ProxyServer>,
    clock: Clock,
    connect_timeout: Duration,
    idle: Arc<Idle>,
    places: Arc<Semaphore>,
    made: AtomicU64,
    posts: AtomicU64,
    #[cfg(feature = "tls")]
    tls: Option<super::tls::Connector>,
}

/// A connection that carries one request. Dropping it closes it, and that request's stream.
pub(super) struct Connection {
    sender: SendRequest<Full>,
    _place: Option<OwnedSemaphorePermit>,
}

/// Why a request has no response.
pub(super) enum SendError {
    /// No byte of it left.
    NotSent(Box<str>),
    /// It may have been read.
    Lost(Box<str>),
}

impl Pool {
    pub(super) fn new(
        target: Target,
        secure: bool,
        proxy: Option<ProxyServer>,
        config: &Config,
    ) -> Result<Self, Box<str>> {
        #[cfg(not(feature = "tls"))]
        if secure {
            return Err("https needs the feature `tls`".into());
        }
        Ok(Self {
            #[cfg(feature = "tls")]
            tls: secure.then(|| super::tls::Connector::new(&target, config.tls.clone())).transpose()?,
            target,
            proxy,
            clock: config.clock.clone(),
            connect_timeout: config.connect_timeout,
            idle: Idle::new(config),
            places: Arc::new(Semaphore::new(config.max_connections.clamp(1, Semaphore::MAX_PERMITS))),
            made: AtomicU64::new(0),
            posts: AtomicU64::new(0),
        })
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        (self.made.load(Ordering::Relaxed), self.posts.load(Ordering::Relaxed))
    }

    /// Sends a request and waits for the head of its response. A kept connection that turns out to be closed before
    /// anything was written is replaced.
    pub(super) async fn send(&self, request: Request<Full>) -> Result<(Response<Incoming>, Connection), SendError> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| SendError::NotSent("the client is closed".into()))?;
        self.send_in(request, Some(place)).await
    }

    /// The same beside the limit: for what must not wait until a call has ended, since it is what ends it.
    pub(super) async fn send_beside(
        &self,
        request: Request<Full>,
    ) -> Result<(Response<Incoming>, Connection), SendError> {
        self.send_in(request, None).await
    }

    async fn send_in(
        &self,
        mut request: Request<Full>,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<(Response<Incoming>, Connection), SendError> {
        loop {
            let kept = self.idle.take();
            let reused = kept.is_some();
            let mut sender = match kept {
                Some(sender) => sender,
                // Seldom, and large: every exchange would be moved about with it.
                None => Box::pin(self.connect()).await.map_err(SendError::NotSent)?,
            };
            self.posts.fetch_add(1, Ordering::Relaxed);
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, Connection { sender, _place: place })),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if reused => {
                        self.posts.fetch_sub(1, Ordering::Relaxed);
                        request = unsent;
                    }
                    Some(_) => return Err(SendError::NotSent(in_words(&error.into_error()))),
                    None => return Err(SendError::Lost(in_words(&error.into_error()))),
                },
            }
        }
    }

    /// Keeps the connection if nothing is left of the body, without waiting; else both are given back.
    pub(super) fn keep_if_over(&self, connection: Connection, mut body: Incoming) -> Option<(Connection, Incoming)> {
        let mut cx = Context::from_waker(Waker::noop());
        let is_over = matches!(Pin::new(&mut body).poll_frame(&mut cx), Poll::Ready(None));
        if !is_over || !connection.sender.is_ready() {
            return Some((connection, body));
        }
        let Connection { sender, _place: place } = connection;
        self.idle.keep(sender);
        drop(place);
        None
    }

    /// Reads what is left of a body, and keeps the connection if that ends soon.
    pub(super) async fn drain(&self, connection: Connection, mut body: Incoming) {
        let mut room = DRAIN_BYTES;
        let ended = async {
            while let Some(frame) = next_frame(&mut body).await {
                let size = frame.map_or(usize::MAX, |frame| frame.data_ref().map_or(0, Bytes::len));
                match room.checked_sub(size) {
                    Some(left) => room = left,
                    None => return None,
                }
            }
            let Connection { mut sender, _place: place } = connection;
            sender.ready().await.ok().map(|()| (sender, place))
        };
        if let Some(Some((sender, _place))) = within(&self.clock, DRAIN_TIME, ended).await {
            self.idle.keep(sender);
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full>, Box<str>> {
        let failed = |why: &dyn fmt::Display| match &self.proxy {
            None => format!("no connection to {}: {why}", self.target).into(),
            Some(proxy) => format!("no connection to {} through the proxy {}: {why}", self.target, proxy.at).into(),
        };
        match within(&self.clock, self.connect_timeout, self.make()).await {
            Some(Ok(sender)) => {
                self.made.fetch_add(1, Ordering::Relaxed);
                Ok(sender)
            }
            Some(Err(error)) => Err(failed(&error)),
            None => Err(failed(&format!("none within {:?}", self.connect_timeout))),
        }
    }

    async fn make(&self) -> Result<SendRequest<Full>, Box<dyn std::error::Error + Send + Sync>> {
        let Target { host, port } = self.proxy.as_ref().map_or(&self.target, |proxy| &proxy.at);
        let stream = dial(&self.clock, host, *port).await?;
        // A request must not wait for the acknowledgement of another. A stream that refuses is gone already.
        let _gone = stream.set_nodelay(true);
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let stream = match &self.proxy {
                Some(proxy) => super::tunnel::open(stream, &self.target, proxy).await?,
                None => stream,
            };
            return Ok(handshake(tls.connect(stream).await?).await?);
        }
        Ok(handshake(stream).await?)
    }
}

async fn handshake<S>(stream: S) -> hyper::Result<SendRequest<Full>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with its sender, and its errors are told to who waits for a response.
    drop(tokio::spawn(async move {
        let _told_elsewhere = connection.await;
    }));
    Ok(sender)
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("target", &self.target).finish_non_exhaustive()
    }
}

/// The next part of a body.
pub(super) async fn next_frame(body: &mut Incoming) -> Option<hyper::Result<Frame<Bytes>>> {
    std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

/// An error and what lies behind it.
pub(super) fn in_words(error: &dyn std::error::Error) -> Box<str> {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text.into()
}

/// The body of a request.
#[derive(Debug)]
pub(super) struct Full(pub(super) Option<Bytes>);

impl http_body::Body for Full {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
