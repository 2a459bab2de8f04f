//! The tower service: what every server in front of it calls.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use steady_core::kernel::{Eras, Ports, ServerConfig, Service};
use steady_core::{coordinator, outbound};

use super::body::Body;
use super::config::HttpConfig;
use super::limits::{HttpCounters, Limits};
use super::ports::tokio_ports;
use super::respond::respond;
use super::sessions::Sessions;

/// An MCP server as a tower service over `http` types: mount it at the path of your choice in axum, hyper, or anything
/// else that takes one. Clones share the limits. It needs a tokio runtime with time enabled.
///
/// [`ServerConfig::shutdown`](steady_core::kernel::ServerConfig::shutdown) ends what it serves: open listens get their result
/// (rule L4), new requests 503, pending ones their time and then one error (rule C8).
///
/// The server that it is mounted in owns the socket: it must set `TCP_NODELAY`, bound the time of heads and of stuck
/// writes, and drop the response when the client is gone. [`Server`](super::Server) does all of it.
pub struct HttpService<S> {
    pub(super) shared: Arc<Shared<S>>,
}

/// What the clones of a service share.
pub(super) struct Shared<S> {
    pub(super) service: Arc<S>,
    pub(super) config: HttpConfig,
    /// The kernel's limits of one exchange.
    pub(super) exchange: ServerConfig,
    pub(super) ports: Ports,
    pub(super) limits: Arc<Limits>,
    /// Sessions of the older revisions; none if those are not served.
    pub(super) sessions: Option<Sessions>,
}

impl<S: Service> HttpService<S> {
    /// Serves `service` under these settings.
    pub fn new(service: impl Into<Arc<S>>, config: HttpConfig) -> Self {
        let requests = config.server.requests;
        let limits = Limits::new(&config);
        let exchange = ServerConfig {
            requests: coordinator::Config { in_flight: 1, stragglers: 1, ..requests },
            // One token and its newest value; what else an exchange sends is kept, not evicted.
            outbound: outbound::Config { capacity: 1, ..config.server.outbound },
            ..config.server.clone()
        };
        let sessions = (config.server.eras != Eras::Modern).then(|| Sessions::new(&config));
        let ports = tokio_ports(Arc::clone(&limits));
        let shared = Shared { service: service.into(), exchange, ports, limits, sessions, config };
        Self { shared: Arc::new(shared) }
    }

    /// What was counted, and what is in progress.
    #[must_use]
    pub fn counters(&self) -> HttpCounters {
        let sessions = self.shared.sessions.as_ref().map_or(0, Sessions::len);
        HttpCounters { sessions, ..self.shared.limits.counters() }
    }
}

impl<S> Clone for HttpService<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S> fmt::Debug for HttpService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

/// A response that is on its way. Dropping it is the client's disconnect (rule C1).
pub(super) type Responding = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<S, B> tower_service::Service<Request<B>> for HttpService<S>
where
    S: Service,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Responding;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // A request over the cap is told so: waiting here would let a queue grow elsewhere.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Responding {
        respond(Arc::clone(&self.shared), request, None)
    }
}
