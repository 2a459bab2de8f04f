//! The settings of a client, and the hook for its authorisation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use steady_core::client::Transport;
use steady_core::kernel::BoxFuture;
use steady_core::kernel::client::ClientConfig;

use super::proxy::Proxy;
use crate::clock::Clock;
use crate::warn::Warn;

/// Settings of a [`Client`](super::Client).
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct Config {
    /// The kernel's limits: clocks, cap of calls, retries, what every request carries.
    pub calls: ClientConfig,
    /// Longest message that is read, in bytes; an answer beyond it fails its call. Default 16 MiB.
    pub max_answer: usize,
    /// Requests on the network at once, listens among them; each more waits, unsent. Default 128.
    pub max_connections: usize,
    /// Connections kept for the next request, a few KiB each. Default 128: with fewer than there are requests at once, many
    /// are made anew all the time.
    pub idle_connections: usize,
    /// How long each of them is kept; it is closed then. Default 30 s.
    pub idle_timeout: Duration,
    /// How long a connection may take to be made, whichever of the host's addresses answers. Default 10 s.
    pub connect_timeout: Duration,
    /// How long an open listen may be silent, comments included, before it counts as lost (rule T1); `None`: for ever.
    /// Default 90 s, six times the usual keep-alive. The same holds for the stream of notifications of a server of an older
    /// revision; one that sends no comments is asked for it anew so often, and listeners read what they watch again.
    pub listen_silence: Option<Duration>,
    /// Headers of authorisation. Default: none.
    pub authorize: Option<Arc<dyn Authorize>>,
    /// Whether a forward proxy is used. Default: as the environment says.
    pub proxy: Proxy,
    /// Where warnings about the server's tools go. Default: a line on standard error.
    pub warn: Warn,
    /// What all durations here are measured by. Default: tokio's clock.
    pub clock: Clock,
    /// TLS settings for `https`. Default: the system's roots.
    #[cfg(feature = "tls")]
    pub tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            calls: ClientConfig::new(Transport::Http),
            max_answer: 16 << 20,
            max_connections: 128,
            idle_connections: 128,
            idle_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            listen_silence: Some(Duration::from_secs(90)),
            authorize: None,
            proxy: Proxy::default(),
            warn: Warn::default(),
            clock: Clock::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

/// Header lines to send.
pub type HeaderLines = Vec<(HeaderName, HeaderValue)>;

/// The 401 that a request got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejected {
    /// Its `WWW-Authenticate`, the first if there are several.
    pub challenge: Option<HeaderValue>,
}

/// Gives each request its headers of authorisation.
///
/// Many requests ask at once, and after an expiry many are told of a 401 at once: it is here that one renewal serves all.
pub trait Authorize: Send + Sync + 'static {
    /// The headers of the next request. After a 401 it is asked once more, with what the server said; the second 401 ends
    /// the call. Headers of the protocol cannot be replaced.
    ///
    /// An error refuses the call, which is then not sent: why.
    fn headers(&self, rejected: Option<Rejected>) -> BoxFuture<Result<HeaderLines, Box<str>>>;
}

impl<F> Authorize for F
where
    F: Fn(Option<Rejected>) -> BoxFuture<Result<HeaderLines, Box<str>>> + Send + Sync + 'static,
{
    fn headers(&self, rejected: Option<Rejected>) -> BoxFuture<Result<HeaderLines, Box<str>>> {
        self(rejected)
    }
}

impl fmt::Debug for dyn Authorize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorize")
    }
}
