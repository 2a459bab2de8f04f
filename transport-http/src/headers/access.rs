//! Which hosts a server answers under, and which web pages may call it (rule H5).
//!
//! A page on the internet can make its own name resolve to 127.0.0.1 and then talk to a local server. What gives it away
//! is the `Host` (its name) and the `Origin` (its page). By default only loopback passes.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::{HeaderError, Headers, single};

/// Which `Host` and `Origin` values a server accepts. Checked before anything else (rule H4).
///
/// ```
/// use steady_http::headers::Access;
///
/// let access = Access::loopback();
/// let local = [("Host", "localhost:8080"), ("Origin", "http://127.0.0.1:3000")];
/// assert!(access.check(&local, None).is_ok());
/// let rebound = [("Host", "evil.example.com:8080"), ("Origin", "http://evil.example.com:8080")];
/// assert_eq!(access.check(&rebound, None).unwrap_err().status(), 403);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    loopback: bool,
    any_host: bool,
    hosts: Vec<Authority>,
    origins: Vec<Origin>,
}

impl Default for Access {
    fn default() -> Self {
        Self::loopback()
    }
}

impl Access {
    /// Loopback hosts (`localhost`, `127.0.0.0/8`, `::1`) on any port, and `http` and `https` origins on them. The
    /// default (rule H5).
    #[must_use]
    pub fn loopback() -> Self {
        Self { loopback: true, ..Self::nothing() }
    }

    /// Nothing passes until it is allowed.
    #[must_use]
    pub const fn nothing() -> Self {
        Self { loopback: false, any_host: false, hosts: Vec::new(), origins: Vec::new() }
    }

    /// Also allows this host: `name`, `name:port`, `[address]:port`. Without a port, every port.
    ///
    /// # Errors
    /// [`BadAuthority`] if the text is no host.
    pub fn allow_host(mut self, host: &str) -> Result<Self, BadAuthority> {
        self.hosts.push(Authority::parse(host)?);
        Ok(self)
    }

    /// Also allows this origin: scheme, host and port exactly, as a browser sends it (`https://app.example.com`).
    ///
    /// # Errors
    /// [`BadAuthority`] if the text is no origin; `null` is none.
    pub fn allow_origin(mut self, origin: &str) -> Result<Self, BadAuthority> {
        self.origins.push(Origin::parse(origin)?);
        Ok(self)
    }

    /// Accepts every host, for a server behind a proxy that checks it. **Never on loopback: it lets a rebound name in.**
    #[must_use]
    pub const fn allow_any_host(mut self) -> Self {
        self.any_host = true;
        self
    }

    /// Checks `Host` and `Origin`. `authority` is the authority of an HTTP/2 request's pseudo-header, if there is one;
    /// every value that is there must pass, and one must be there. A request without `Origin` comes from no page.
    ///
    /// # Errors
    /// [`HeaderError::HostRefused`] or [`HeaderError::OriginRefused`], both 403.
    pub fn check<H: Headers + ?Sized>(&self, headers: &H, authority: Option<&str>) -> Result<(), HeaderError> {
        let host = single(headers, "Host").map_err(|_| HeaderError::HostRefused)?;
        let mut hosts = host.into_iter().chain(authority).peekable();
        let given = hosts.peek().is_some();
        let allowed = self.any_host || given && hosts.all(|host| self.allows_host(host));
        if !allowed {
            return Err(HeaderError::HostRefused);
        }
        let origin = single(headers, "Origin").map_err(|_| HeaderError::OriginRefused)?;
        match origin {
            Some(origin) if !self.allows_origin(origin) => Err(HeaderError::OriginRefused),
            Some(_) | None => Ok(()),
        }
    }

    fn allows_host(&self, text: &str) -> bool {
        Authority::parse(text).is_ok_and(|given| {
            let listed = |rule: &Authority| rule.host == given.host && (rule.port.is_none() || rule.port == given.port);
            self.loopback && given.host.is_loopback() || self.hosts.iter().any(listed)
        })
    }

    fn allows_origin(&self, text: &str) -> bool {
        Origin::parse(text).is_ok_and(|given| {
            let local = matches!(&*given.scheme, "http" | "https") && given.authority.host.is_loopback();
            self.loopback && local || self.origins.contains(&given)
        })
    }
}

/// A text that is no host, host with port, or origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a host or an origin")]
pub struct BadAuthority;

/// A host: a name or an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A DNS name in lower case, without a final dot.
    Name(Box<str>),
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address, without a zone.
    V6(Ipv6Addr),
}

impl Host {
    /// Whether it is `localhost`, in `127.0.0.0/8`, or `::1`.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Name(name) => &**name == "localhost",
            Self::V4(address) => address.is_loopback(),
            Self::V6(address) => address.is_loopback(),
        }
    }

    /// A name or an IPv4 address. What a URL parser would read as a number in another notation (`127.1`, `0x7f.1`) is
    /// neither.
    fn parse_bare(text: &str) -> Result<Self, BadAuthority> {
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::V4(address));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let label_ok = |label: &str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            (1..=63).contains(&label.len()) && label.bytes().all(known)
        };
        let last = name.rsplit('.').next().unwrap_or_default();
        let numeric = last.starts_with(|first: char| first.is_ascii_digit())
            && (last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") || last.starts_with("0X"));
        if name.len() > 253 || numeric || !name.split('.').all(label_ok) {
            return Err(BadAuthority);
        }
        Ok(Self::Name(name.to_ascii_lowercase().into()))
    }
}

/// A host with an optional port, as in a `Host` header. Without user information.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Authority {
    /// The host.
    pub host: Host,
    /// The port, if it is given.
    pub port: Option<u16>,
}

impl Authority {
    /// Reads `name`, `name:port`, `1.2.3.4:port` or `[::1]:port`. An empty port counts as none.
    ///
    /// # Errors
    /// [`BadAuthority`] for everything else: user information, zones, bare IPv6, numbers in other notations.
    pub fn parse(text: &str) -> Result<Self, BadAuthority> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, tail) = rest.split_once(']').ok_or(BadAuthority)?;
                let host = address.parse().map(Host::V6).map_err(|_| BadAuthority)?;
                let port = match tail.strip_prefix(':') {
                    Some(port) => port,
                    None if tail.is_empty() => "",
                    None => return Err(BadAuthority),
                };
                (host, port)
            }
            None => {
                let (host, port) = text.split_once(':').unwrap_or((text, ""));
                (Host::parse_bare(host)?, port)
            }
        };
        let port = match port {
            "" => None,
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(digits.parse().map_err(|_| BadAuthority)?)
            }
            _ => return Err(BadAuthority),
        };
        Ok(Self { host, port })
    }
}

/// A web origin. A default port of `http` or `https` is left out, so that equal origins are equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The scheme in lower case.
    pub scheme: Box<str>,
    /// Host and port.
    pub authority: Authority,
}

impl Origin {
    /// Reads `scheme://host` or `scheme://host:port`.
    ///
    /// # Errors
    /// [`BadAuthority`] for everything else: `null`, a path, a list.
    pub fn parse(text: &str) -> Result<Self, BadAuthority> {
        let (scheme, rest) = text.split_once("://").ok_or(BadAuthority)?;
        let starts = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        if !starts || !scheme.bytes().all(known) {
            return Err(BadAuthority);
        }
        let scheme = scheme.to_ascii_lowercase();
        let mut authority = Authority::parse(rest)?;
        let default = match scheme.as_str() {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        if authority.port == default {
            authority.port = None;
        }
        Ok(Self { scheme: scheme.into(), authority })
    }
}
