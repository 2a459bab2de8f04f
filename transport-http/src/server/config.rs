//! The settings of a server, and who calls it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::request::Parts;
use steady_core::kernel::ServerConfig;

use crate::headers::Access;
use crate::warn::Warn;

/// Default of `ServerConfig::max_result`, in bytes.
const MAX_RESULT: usize = 64 << 20;
/// Default of `ServerConfig::shutdown_limit`: services are usually given 30 s.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);

/// Settings of an [`HttpService`](super::HttpService), wherever it is mounted.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct HttpConfig {
    /// The kernel's limits. `requests.in_flight` is the cap of the whole service (429 above it): an answer of more than
    /// 32 KiB keeps its place until its client has taken it. At the cap, sessions of older revisions may still answer what
    /// they are asked, and cancel. `requests.stragglers` is of the whole service too; the other limits are those of each exchange. Its `principal` is used where
    /// [`authenticate`](Self::authenticate) names none. Its longest result is 64 MiB by default, more than on stdio: a long
    /// answer keeps no other one waiting here. Its `shutdown` ends what this service serves: keep a clone to throw it. What
    /// is pending then has `shutdown_limit` to be answered, 10 s by default, and is answered with one error after it.
    pub server: ServerConfig,
    /// Which hosts and origins may call (403 for others). Default: loopback.
    pub access: Access,
    /// Longest body that is read, in bytes (413 above it). Default 4 MiB.
    pub max_body: usize,
    /// How long a body may take to arrive (408 after it). Default 30 s.
    pub body_timeout: Duration,
    /// Bytes of all bodies together that are arriving, each counted with what is kept free for it to grow; short ones
    /// (32 KiB) are not. A body that finds no room is refused (429), and its connection closed. Default 256 MiB.
    pub max_bodies: usize,
    /// Open listens of the whole service (503 above it). Default 10,000.
    pub max_listens: usize,
    /// How long an answer may take before it becomes a stream, so that a proxy sees a first byte and a client that is
    /// gone is noticed. Default 2 s.
    pub stream_after: Duration,
    /// Answers every request that is served by a stream. Default false.
    pub always_stream: bool,
    /// How long a stream may be quiet before a comment is sent. Default 15 s.
    pub keep_alive: Duration,
    /// What a refused client is told in `Retry-After`. Default 1 s.
    pub retry_after: Duration,
    /// Who calls. Default: nobody is known, and idempotency keys of all callers share one scope.
    pub authenticate: Option<Arc<dyn Authenticate>>,
    /// Sessions of clients of the older revisions. At the cap, the one that was idle for longest makes room, and its client
    /// is told to begin anew (404); if none is idle, the new client is refused (503). Default 10,000.
    pub max_sessions: usize,
    /// How long such a session lives without a request in progress or an open stream. Most clients never end theirs.
    /// Default 30 minutes.
    pub session_idle: Duration,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            server: ServerConfig { max_result: MAX_RESULT, shutdown_limit: SHUTDOWN_LIMIT, ..ServerConfig::default() },
            access: Access::loopback(),
            max_body: 4 << 20,
            body_timeout: Duration::from_secs(30),
            max_bodies: 256 << 20,
            max_listens: 10_000,
            stream_after: Duration::from_secs(2),
            always_stream: false,
            keep_alive: Duration::from_secs(15),
            retry_after: Duration::from_secs(1),
            authenticate: None,
            max_sessions: 10_000,
            session_idle: Duration::from_secs(30 * 60),
        }
    }
}

/// Settings of a [`Server`](super::Server): of its service, and of its connections.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct ServeConfig {
    /// Settings of the service.
    pub http: HttpConfig,
    /// The one path of the endpoint (404 for others). Default `/mcp`.
    pub path: Box<str>,
    /// Connections at once. At the cap, the next one waits in the system's queue. Default 16,384.
    pub max_connections: usize,
    /// Requests at once on one connection of HTTP/2 (feature `http2`); a client that sends more has them refused. Default 128.
    pub max_streams: u32,
    /// Longest head of a request, in bytes (431 above it). Default 16 KiB.
    pub max_head: usize,
    /// How long the head of a request may take once it has begun. Default 10 s.
    pub head_timeout: Duration,
    /// How long a connection may wait for its next request. Default 75 s.
    pub idle_timeout: Duration,
    /// How long a client may take no byte while some wait, before it counts as gone. Default 1 minute.
    pub write_stall: Duration,
    /// How long a client's machine may acknowledge nothing, neither what was sent nor the system's probes while nothing is, before
    /// its connections are lost: one that vanished without a word (power, network) ends nothing by itself. Zero: as long as the
    /// system's own settings say, two hours and more. Linux only. Default 1 minute.
    pub unreachable_after: Duration,
    /// Whether [`run_http_with`](super::run_http_with) ends in order at SIGTERM and SIGINT: the first lets requests finish up
    /// to `http.server.shutdown_limit`, the second ends them at once. If a handler keeps the process busy beyond the limits,
    /// it exits with 1. Unix only. Default true.
    pub signals: bool,
    /// Where warnings about the settings go. Default: a line on standard error.
    pub warn: Warn,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            http: HttpConfig::default(),
            path: "/mcp".into(),
            max_connections: 16_384,
            max_streams: 128,
            max_head: 16 << 10,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            write_stall: Duration::from_secs(60),
            unreachable_after: Duration::from_secs(60),
            signals: true,
            warn: Warn::default(),
        }
    }
}

/// The authenticated caller: the scope of idempotency keys and of tasks. `None`: anonymous.
pub type Principal = Option<Box<str>>;

/// Turns a request into its caller, or refuses it.
///
/// It looks and does not wait: a check that asks another service belongs into a layer in front, which leaves what it found
/// in the request's extensions for this to read.
pub trait Authenticate: Send + Sync + 'static {
    /// Who sent this request.
    ///
    /// # Errors
    /// [`Unauthorized`]: what the client is told instead of an answer.
    fn authenticate(&self, request: &Parts) -> Result<Principal, Unauthorized>;
}

impl<F: Fn(&Parts) -> Result<Principal, Unauthorized> + Send + Sync + 'static> Authenticate for F {
    fn authenticate(&self, request: &Parts) -> Result<Principal, Unauthorized> {
        self(request)
    }
}

impl fmt::Debug for dyn Authenticate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authenticate")
    }
}

/// The caller is not known (401) or may not call (403).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the two answers of HTTP")]
pub enum Unauthorized {
    /// 401 with this `WWW-Authenticate`.
    Unknown(HeaderValue),
    /// 403.
    Forbidden,
}
