//! Where a client's requests go, and what all of them share.

use std::sync::atomic::{AtomicU64, Ordering};

use http::uri::Scheme;
use http::{HeaderValue, Uri};

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
    pub(super) path: Uri,
    pub(super) host: HeaderValue,
    pub(super) pool: Pool,
    pub(super) schemas: Schemas,
    /// For the ids of requests of its own.
    own: AtomicU64,
}

impl Endpoint {
    pub(super) fn new(url: &str, config: Config) -> Result<Self, BadUrl> {
        let bad = |why: &str| BadUrl { url: url.into(), why: why.into() };
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
        let path: Uri = path.parse().map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
        let target = Target {
            host: authority.host().trim_matches(['[', ']']).into(),
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
        };
        let pool = Pool::new(target, secure, &config).map_err(|why| bad(&why))?;
        Ok(Self { config, path, host, pool, schemas: Schemas::default(), own: AtomicU64::new(1) })
    }

    /// A number for the id of a request that is none of the machine's.
    pub(super) fn own_number(&self) -> u64 {
        self.own.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn traffic(&self) -> Traffic {
        let (connections, posts) = self.pool.counts();
        Traffic { connections, posts }
    }
}
