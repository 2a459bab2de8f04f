//! Where a client's requests go, and what all of them share.

use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{HOST, PROXY_AUTHORIZATION};
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Uri};

use super::config::Config;
use super::pool::{Pool, Target};
use super::schemas::Schemas;

/// An address that a client cannot use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address {url:?} cannot be used: {why}")]
#[non_exhaustive]
pub struct BadUrl {
    /// The address.
    pub url: Box<str>,
    /// What is wrong with it.
    pub why: Box<str>,
}

/// What went over the network. Numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Connections that were made.
    pub connections: u64,
    /// Requests that were put on one: more than messages, where one is sent again after a 401, -32020 or -32022.
    pub posts: u64,
}

/// One endpoint: its address, its connections, what is known about its tools.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) config: Config,
    /// What is asked for: a path, or the whole address where a proxy is asked.
    pub(super) uri: Uri,
    pub(super) host: HeaderValue,
    /// The credentials that a proxy wants with each request.
    pub(super) proxy_credentials: Option<HeaderValue>,
    pub(super) pool: Pool,
    pub(super) schemas: Schemas,
    /// Held by who reads them afresh.
    pub(super) refreshing: tokio::sync::Mutex<()>,
    /// For the ids of requests of its own.
    own: AtomicU64,
}

impl Endpoint {
    pub(super) fn new(url: &str, config: Config) -> Result<Self, BadUrl> {
        let bad = |why: &str| BadUrl { url: redacted(url), why: why.into() };
        let uri: Uri = url.parse().map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(_) | None => return Err(bad("it must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| bad("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("it holds credentials: use the hook for headers"));
        }
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad("its host is no header value"))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let target = Target::of(authority, if secure { 443 } else { 80 }).ok_or_else(|| bad("its port is none"))?;
        let proxy = config.proxy.choose(&target, secure, |name| std::env::var(name).ok())?;
        // The proxy of a tunnel is asked for that alone.
        let asked = proxy.as_ref().filter(|_| !secure);
        let uri = if asked.is_some() { format!("http://{authority}{path}") } else { path.to_owned() };
        let uri: Uri = uri.parse().map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
        let proxy_credentials = asked.and_then(|proxy| proxy.credentials.clone());
        let pool = Pool::new(target, secure, proxy, &config).map_err(|why| bad(&why))?;
        let (schemas, refreshing, own) = (Schemas::default(), tokio::sync::Mutex::default(), AtomicU64::new(1));
        Ok(Self { config, uri, host, proxy_credentials, pool, schemas, refreshing, own })
    }

    /// A number for the id of a request that is none of the machine's.
    pub(super) fn own_number(&self) -> u64 {
        self.own.fetch_add(1, Ordering::Relaxed)
    }

    /// The headers that every request carries, whatever it says.
    pub(super) fn add_lines(&self, lines: &mut HeaderMap) {
        lines.insert(HOST, self.host.clone());
        if let Some(credentials) = &self.proxy_credentials {
            lines.insert(PROXY_AUTHORIZATION, credentials.clone());
        }
    }

    pub(super) fn traffic(&self) -> Traffic {
        let (connections, posts) = self.pool.counts();
        Traffic { connections, posts }
    }
}

/// An address without the credentials that it may hold.
pub(super) fn redacted(url: &str) -> Box<str> {
    let Some((before, rest)) = url.rsplit_once('@') else { return url.into() };
    // `//` may stand in a password as well, and what is before it is then no scheme.
    let scheme = before.split_once("://").map(|(scheme, _)| scheme);
    let scheme = scheme.filter(|scheme| !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    scheme.map_or_else(|| format!("***@{rest}"), |scheme| format!("{scheme}://***@{rest}")).into()
}
