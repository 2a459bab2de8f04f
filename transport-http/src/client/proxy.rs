//! Forward proxies: which one a client uses, and what it tells it.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::uri::Scheme;
use http::{HeaderValue, Uri};

use super::endpoint::{BadUrl, redacted};
use super::pool::Target;

/// How a client reaches its endpoint.
///
/// `http` endpoints are asked of the proxy in absolute form; to `https` ones it opens a tunnel (`CONNECT`), through which
/// TLS runs to the endpoint itself. The proxy resolves the endpoint's name. Only proxies over plain `http` are used:
/// neither SOCKS nor TLS to the proxy.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Proxy {
    /// What the environment says when the client is made, as curl reads it. The default.
    ///
    /// `https_proxy` for `https` and `http_proxy` for `http` endpoints, then `all_proxy`; `no_proxy` lists what is asked
    /// directly: `*`, hosts with all below them, addresses and their ranges (`10.0.0.0/8`), each with a port if it
    /// should be only that one. Lower case is asked first, then upper case; an empty value is none. `HTTP_PROXY` is not
    /// heeded in a CGI program, where a client's header can set it (`REQUEST_METHOD` is set there). **Loopback
    /// (`localhost`, all below it, `127.0.0.0/8`, `::1`) is always asked directly.**
    #[default]
    Environment,
    /// None, whatever the environment says.
    Direct,
    /// This one, whatever the host is, loopback too: see [`Proxy::through`].
    Through(ProxyServer),
}

/// A forward proxy. What it is asked for, but not the credentials, is printed by `Debug`.
#[derive(Clone)]
pub struct ProxyServer {
    pub(super) at: Target,
    /// The value of `Proxy-Authorization`.
    pub(super) credentials: Option<HeaderValue>,
}

impl Proxy {
    /// The proxy at `http://HOST:PORT` (80 if no port is named). Credentials, percent-encoded, may stand before the host:
    /// `http://USER:PASSWORD@HOST:PORT`. They are sent as `Basic` to the proxy alone, and stand in no error and no log.
    ///
    /// # Errors
    /// What is wrong with the address.
    pub fn through(url: &str) -> Result<Self, BadUrl> {
        ProxyServer::parse(url, "").map(Self::Through)
    }

    /// The proxy for this endpoint, if any; `lookup` reads the environment.
    pub(super) fn choose(
        &self,
        target: &Target,
        secure: bool,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<ProxyServer>, BadUrl> {
        match self {
            Self::Direct => Ok(None),
            Self::Through(server) => Ok(Some(server.clone())),
            Self::Environment if is_loopback(&target.host) => Ok(None),
            Self::Environment => from_environment(target, secure, lookup),
        }
    }
}

fn from_environment(
    target: &Target,
    secure: bool,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<Option<ProxyServer>, BadUrl> {
    let set = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
    let either = |lower: &'static str, upper: &'static str| {
        set(lower).map(|value| (lower, value)).or_else(|| set(upper).map(|value| (upper, value)))
    };
    let own = match secure {
        true => either("https_proxy", "HTTPS_PROXY"),
        // In a CGI program it is the header `Proxy` of whoever asks.
        false if set("REQUEST_METHOD").is_some() => set("http_proxy").map(|value| ("http_proxy", value)),
        false => either("http_proxy", "HTTP_PROXY"),
    };
    let Some((name, url)) = own.or_else(|| either("all_proxy", "ALL_PROXY")) else { return Ok(None) };
    if either("no_proxy", "NO_PROXY").is_some_and(|(_, list)| is_exempt(&list, target)) {
        return Ok(None);
    }
    ProxyServer::parse(url.trim(), &format!(" (from {name}; Proxy::Direct uses none)")).map(Some)
}

impl ProxyServer {
    fn parse(url: &str, from: &str) -> Result<Self, BadUrl> {
        let bad = |why: &str| BadUrl { url: redacted(url), why: format!("as a proxy: {why}{from}").into() };
        // The environment may name a host alone.
        let full = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = full.parse().map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(bad("only http:// proxies are supported"));
        }
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| bad("it names no host"))?;
        let credentials = match authority.as_str().rsplit_once('@') {
            None => None,
            Some((user, _)) => {
                let (user, password) = user.split_once(':').unwrap_or((user, ""));
                let plain = decoded(user).zip(decoded(password)).filter(|(user, _)| !user.contains(&b':'));
                let (user, password) = plain.ok_or_else(|| bad("its credentials are not percent-encoded"))?;
                let pair = [user, b":".to_vec(), password].concat();
                let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)));
                let mut value = value.map_err(|_| bad("its credentials are too long"))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let at = Target::of(authority, 80).ok_or_else(|| bad("its port is none"))?;
        Ok(Self { at, credentials })
    }
}

impl fmt::Debug for ProxyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyServer({})", self.at)
    }
}

/// Percent-encoded text.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        plain.push(if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            digit()? << 4 | digit()?
        } else {
            byte
        });
    }
    Some(plain)
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// Whether a list of `no_proxy` names this host.
fn is_exempt(list: &str, target: &Target) -> bool {
    let host = target.host.trim_end_matches('.').to_ascii_lowercase();
    let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    list.split([',', ' ', '\t']).filter(|entry| !entry.is_empty()).any(|entry| {
        if entry == "*" {
            return true;
        }
        let (name, port) = with_port(entry);
        if port.is_some_and(|port| port != target.port) {
            return false;
        }
        match address {
            Some(address) => is_in_range(name, address),
            None => {
                let name = name.trim_start_matches("*.").trim_matches('.').to_ascii_lowercase();
                let below = host.strip_suffix(&*name);
                !name.is_empty() && below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
            }
        }
    })
}

/// An entry and the port that it names. An address with colons has a port only behind brackets.
fn with_port(entry: &str) -> (&str, Option<u16>) {
    if let Some((name, rest)) = entry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (name, rest.strip_prefix(':').and_then(|port| port.parse().ok()));
    }
    match entry.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') => port.parse().map_or((entry, None), |port| (name, Some(port))),
        Some(_) | None => (entry, None),
    }
}

/// Whether `range`, an address or `ADDRESS/BITS`, holds this address.
fn is_in_range(range: &str, address: IpAddr) -> bool {
    let (first, bits) = range.split_once('/').map_or((range, None), |(first, bits)| (first, Some(bits)));
    let Ok(first) = first.parse::<IpAddr>() else { return false };
    let value = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let ((first, width), (address, its_width)) = (value(first), value(address));
    let Ok(bits) = bits.map_or(Ok(width), str::parse::<u32>) else { return false };
    width == its_width && bits <= width && (bits == 0 || (first ^ address) >> (128 - bits) == 0)
}

#[cfg(test)]
mod tests;
