//! The header rules of Streamable HTTP, as pure checks (rules H3, H4, H5, H9).
//!
//! Intermediaries route by headers and the server acts by the body, so the two must agree. Each check compares one of
//! them with the value from the body and answers with a [`HeaderError`] that knows its HTTP status and JSON-RPC code.
//! [`CHECK_ORDER`] is the order in which a server runs its checks.
//!
//! Common to all checks: header names compare without case and values with case (white space around a value is not part
//! of it); a header that occurs twice is refused, since two readers could pick different ones; bytes outside visible
//! ASCII, space and tab are refused.
//!
//! ```
//! use steady_http::headers::{self, HeaderError};
//!
//! let request = [
//!     ("mcp-protocol-version", "2026-07-28"),
//!     ("Mcp-Method", "tools/call"),
//!     ("Mcp-Name", "=?base64?0YLQtdGB0YI=?="),
//! ];
//! assert_eq!(headers::check_version(&request, "2026-07-28"), Ok(()));
//! assert_eq!(headers::check_method(&request, "tools/call"), Ok(()));
//! assert_eq!(headers::check_name(&request, "tools/call", Some("тест")), Ok(()));
//!
//! let error = headers::check_method(&request, "tools/list").unwrap_err();
//! assert_eq!((error.status(), error.code()), (400, Some(-32020)));
//! ```

mod access;
mod param;
mod value;

pub use access::{Access, Authority, BadAuthority, Host, Origin};
pub use param::{
    HeaderLines, ParamHeader, ParamKind, SchemaFault, Unmirrorable, check_params, mirror_params, param_headers,
};
pub use value::{BadEncoding, decode_value, encode_value};

/// The protocol revision of a request; equals `_meta["io.modelcontextprotocol/protocolVersion"]`.
pub const PROTOCOL_VERSION: &str = "MCP-Protocol-Version";
/// The JSON-RPC method of a request.
pub const METHOD: &str = "Mcp-Method";
/// What the request is about; see [`name_param`].
pub const NAME: &str = "Mcp-Name";
/// What precedes the name of a mirrored tool parameter.
pub const PARAM_PREFIX: &str = "Mcp-Param-";

/// Code of a header that contradicts the body, is missing or is malformed (rule M5).
pub const HEADER_MISMATCH: i32 = -32020;
/// Code of a protocol revision that the server does not speak (rule M5).
pub const UNSUPPORTED_VERSION: i32 = -32022;

/// The headers of one request, by name.
pub trait Headers {
    /// The values of all lines with this name, compared without case, in order.
    fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]>;
}

impl<N: AsRef<str>, V: AsRef<[u8]>> Headers for [(N, V)] {
    fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(key, _)| key.as_ref().eq_ignore_ascii_case(name)).map(|(_, value)| value.as_ref())
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>, const COUNT: usize> Headers for [(N, V); COUNT] {
    fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.as_slice().lines(name)
    }
}

/// Why a request is refused for its headers. The peer's fault.
///
/// The text names the header and never repeats its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// A required header is not there (rule H3).
    #[error("header {header} is missing")]
    Missing {
        /// Its name.
        header: Box<str>,
    },
    /// A header occurs more than once.
    #[error("header {header} occurs more than once")]
    Repeated {
        /// Its name.
        header: Box<str>,
    },
    /// A value holds bytes outside visible ASCII, space and tab (rule H3).
    #[error("header {header} has invalid characters")]
    InvalidCharacters {
        /// Its name.
        header: Box<str>,
    },
    /// A value has the form `=?base64?...?=` and is not Base64 of UTF-8 (rule H3).
    #[error("header {header} is not valid Base64")]
    BadEncoding {
        /// Its name.
        header: Box<str>,
    },
    /// A value differs from the body's (rules H3, H9).
    #[error("header {header} does not match the request body")]
    Mismatch {
        /// Its name.
        header: Box<str>,
    },
    /// Header and body agree on a revision that the server does not speak (rule M5).
    #[error("unsupported protocol version")]
    UnsupportedVersion,
    /// There is no usable `Host`, or it is not an allowed one (rule H5).
    #[error("host is not allowed")]
    HostRefused,
    /// The `Origin` is not an allowed one: `null`, malformed, or from elsewhere (rule H5).
    #[error("origin is not allowed")]
    OriginRefused,
}

impl HeaderError {
    /// The HTTP status of the answer.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Missing { .. }
            | Self::Repeated { .. }
            | Self::InvalidCharacters { .. }
            | Self::BadEncoding { .. }
            | Self::Mismatch { .. }
            | Self::UnsupportedVersion => 400,
            Self::HostRefused | Self::OriginRefused => 403,
        }
    }

    /// The JSON-RPC code of the answer. None: the body is not read yet, the status says it all.
    #[must_use]
    pub const fn code(&self) -> Option<i32> {
        match self {
            Self::Missing { .. }
            | Self::Repeated { .. }
            | Self::InvalidCharacters { .. }
            | Self::BadEncoding { .. }
            | Self::Mismatch { .. } => Some(HEADER_MISMATCH),
            Self::UnsupportedVersion => Some(UNSUPPORTED_VERSION),
            Self::HostRefused | Self::OriginRefused => None,
        }
    }
}

/// One step of a server's checks (rule H4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// [`Access::check`].
    HostAndOrigin,
    /// The body is one JSON-RPC message.
    Json,
    /// `_meta` has what every request must carry (rule M3).
    Meta,
    /// [`check_version`].
    VersionHeader,
    /// [`check_supported`].
    VersionSupported,
    /// [`check_method`], [`check_name`], [`check_params`].
    McpHeaders,
    /// The method exists.
    Method,
    /// The client declared the capability that the method needs (rules M5, K5).
    Capability,
}

/// The order of a server's checks (rule H4): the first one that fails decides the answer.
pub const CHECK_ORDER: [Check; 8] = [
    Check::HostAndOrigin,
    Check::Json,
    Check::Meta,
    Check::VersionHeader,
    Check::VersionSupported,
    Check::McpHeaders,
    Check::Method,
    Check::Capability,
];

impl Check {
    /// The HTTP status of the answer when this check fails.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::HostAndOrigin => 403,
            Self::Json
            | Self::Meta
            | Self::VersionHeader
            | Self::VersionSupported
            | Self::McpHeaders
            | Self::Capability => 400,
            Self::Method => 404,
        }
    }

    /// The JSON-RPC code of the answer when this check fails, if it has one.
    #[must_use]
    pub const fn code(self) -> Option<i32> {
        match self {
            Self::HostAndOrigin => None,
            Self::Json => Some(-32700),
            Self::Meta => Some(-32602),
            Self::VersionHeader | Self::McpHeaders => Some(HEADER_MISMATCH),
            Self::VersionSupported => Some(UNSUPPORTED_VERSION),
            Self::Method => Some(-32601),
            Self::Capability => Some(-32021),
        }
    }
}

/// Checks `MCP-Protocol-Version` against the version in the body's `_meta` (rule H3).
///
/// # Errors
/// [`HeaderError`] with 400 / -32020 if it is missing, malformed or another one.
pub fn check_version<H: Headers + ?Sized>(headers: &H, meta_version: &str) -> Result<(), HeaderError> {
    check_plain(headers, PROTOCOL_VERSION, meta_version)
}

/// Checks that the server speaks the version that header and body agree on (rule M5).
///
/// # Errors
/// [`HeaderError::UnsupportedVersion`], 400 / -32022; the answer's data names `supported` and the one requested.
pub fn check_supported(version: &str, supported: &[&str]) -> Result<(), HeaderError> {
    if supported.contains(&version) { Ok(()) } else { Err(HeaderError::UnsupportedVersion) }
}

/// Checks `Mcp-Method` against the body's method (rule H3). It has no encoded form.
///
/// # Errors
/// [`HeaderError`] with 400 / -32020 if it is missing, malformed or another one.
pub fn check_method<H: Headers + ?Sized>(headers: &H, method: &str) -> Result<(), HeaderError> {
    check_plain(headers, METHOD, method)
}

/// The member of `params` that `Mcp-Name` mirrors for this method, if it needs one (rules H3, K6).
///
/// A method that does not exist, `tasks/list` say, needs none: its answer is "unknown method".
#[must_use]
pub fn name_param(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// Checks `Mcp-Name` against `value`: the string in the body at [`name_param`], if it is there (rule H3).
///
/// Passes for methods that need no name, whatever the header says.
///
/// # Errors
/// [`HeaderError`] with 400 / -32020 if it is missing, malformed, badly encoded, or differs once decoded.
pub fn check_name<H: Headers + ?Sized>(headers: &H, method: &str, value: Option<&str>) -> Result<(), HeaderError> {
    if name_param(method).is_none() {
        return Ok(());
    }
    let header = required(headers, NAME)?;
    let decoded = decode_value(header).map_err(|BadEncoding| HeaderError::BadEncoding { header: NAME.into() })?;
    if value == Some(&*decoded) { Ok(()) } else { Err(HeaderError::Mismatch { header: NAME.into() }) }
}

fn check_plain<H: Headers + ?Sized>(headers: &H, name: &str, expected: &str) -> Result<(), HeaderError> {
    if required(headers, name)? == expected { Ok(()) } else { Err(HeaderError::Mismatch { header: name.into() }) }
}

fn required<'a, H: Headers + ?Sized>(headers: &'a H, name: &'a str) -> Result<&'a str, HeaderError> {
    single(headers, name)?.ok_or_else(|| HeaderError::Missing { header: name.into() })
}

/// The one value of a header, trimmed, with its characters checked.
fn single<'a, H: Headers + ?Sized>(headers: &'a H, name: &'a str) -> Result<Option<&'a str>, HeaderError> {
    let mut lines = headers.lines(name);
    let Some(value) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(HeaderError::Repeated { header: name.into() });
    }
    let clean = |value: &'a [u8]| {
        let ok = value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        ok.then(|| core::str::from_utf8(value).ok()).flatten()
    };
    match clean(value) {
        Some(text) => Ok(Some(text.trim_matches([' ', '\t']))),
        None => Err(HeaderError::InvalidCharacters { header: name.into() }),
    }
}
