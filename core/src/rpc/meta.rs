//! What the protocol keeps in `params._meta` of a request (rules M3 and M5).

use alloc::borrow::Cow;
use alloc::string::String;

use serde_json::value::RawValue;

use super::message::request_id;
use super::scan::{Fault, Found, MAX_NESTING, Scanner, text};
use super::{Level, PROTOCOL_VERSION, RpcError, method};
use crate::id::ProgressToken;

/// The protocol's own members of `params._meta`. Others stay where they are, in the raw parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestMeta<'a> {
    /// The revision that the request is written in.
    pub protocol_version: Cow<'a, str>,
    /// The client's capabilities for this request, as JSON text.
    pub client_capabilities: &'a str,
    /// The token under which the client asks for progress.
    pub progress_token: Option<ProgressToken>,
    /// From which level on the client wants log messages for this request; what is no level counts as none (rule M11).
    pub log_level: Option<Level>,
}

/// Why a request is refused before its method is looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    /// `params` is not an object, or `_meta` is missing a member or has one of the wrong kind (-32602).
    #[error("{0}")]
    Invalid(&'static str),
    /// The revision is not the one spoken here (-32022).
    #[error("protocol version {0:?} is not supported")]
    Version(String),
}

impl From<MetaError> for RpcError {
    fn from(error: MetaError) -> Self {
        match error {
            MetaError::Invalid(what) => Self::invalid_params(what),
            MetaError::Version(requested) => Self::unsupported_version(&requested, &[PROTOCOL_VERSION]),
        }
    }
}

const META: [&str; 4] = [
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    "progressToken",
    "io.modelcontextprotocol/logLevel",
];

const CALL: [&str; 2] = ["name", "arguments"];

/// What one pass over the parameters of a request finds.
#[derive(Clone, Debug, Default)]
pub struct Params<'a> {
    /// The members of `_meta`, where that is an object.
    meta: Option<Found<'a, 4>>,
    /// How often `_meta` stands.
    metas: usize,
    /// The version of `initialize`, the handshake of older revisions.
    version: Option<&'a str>,
    /// The members that name a tool and its arguments.
    pub(crate) call: Found<'a, 2>,
}

impl<'a> Params<'a> {
    /// Reads parameters that are an object, apart from their message.
    pub(crate) fn read(json: &'a str) -> Result<Self, Fault> {
        let mut params = Self::default();
        params.pass(&mut Scanner::new(json, MAX_NESTING))?;
        Ok(params)
    }

    /// Passes the object that the parameters must be.
    pub(super) fn pass(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Fault> {
        scanner.object(|name, scanner| {
            if name.is("_meta") {
                self.metas += 1;
                if scanner.peek() == Some(b'{') {
                    let meta = self.meta.insert(Found::NONE);
                    return scanner.object(|name, scanner| {
                        meta.put(name.among(&META), scanner.value()?);
                        Ok(())
                    });
                }
            }
            let value = scanner.value()?;
            if name.is("protocolVersion") {
                self.version = Some(value);
            }
            self.call.put(name.among(&CALL), value);
            Ok(())
        })
    }
}

/// Reads and checks the metadata of a request for `request_method`.
///
/// # Errors
/// [`MetaError`], which turns into the error to answer. `initialize`, which has no such metadata, is refused with the
/// supported versions named (rule M8).
pub fn request_meta<'a>(request_method: &str, params: Option<&'a RawValue>) -> Result<RequestMeta<'a>, MetaError> {
    let raw = params.map_or("{}", RawValue::get);
    if !raw.starts_with('{') {
        return Err(NO_OBJECT);
    }
    check(request_method, &Params::read(raw).map_err(|_| UNREADABLE)?)
}

/// Checks the metadata of a request whose parameters were passed before; like [`request_meta`].
///
/// # Errors
/// As [`request_meta`].
pub fn checked_meta<'a>(
    request_method: &str,
    raw: Option<&RawValue>,
    params: &Params<'a>,
) -> Result<RequestMeta<'a>, MetaError> {
    match raw.map(RawValue::get) {
        Some(json) if !json.starts_with('{') => Err(NO_OBJECT),
        Some(_) | None => check(request_method, params),
    }
}

fn check<'a>(request_method: &str, params: &Params<'a>) -> Result<RequestMeta<'a>, MetaError> {
    if params.metas > 1 {
        return Err(TWO_METAS);
    }
    if request_method == method::INITIALIZE {
        let requested = params.version.and_then(text);
        return Err(MetaError::Version(shortened(requested.as_deref().unwrap_or_default())));
    }
    let meta = params.meta.ok_or(MISSING_META)?;
    if meta.twice {
        return Err(MALFORMED_META);
    }
    let [version, client_capabilities, progress_token, log_level] = meta.values;
    let version = text(version.ok_or(MISSING_VERSION)?).ok_or(MALFORMED_META)?;
    let client_capabilities = client_capabilities.filter(|json| json.starts_with('{')).ok_or(MISSING_CAPABILITIES)?;
    if version != PROTOCOL_VERSION {
        return Err(MetaError::Version(shortened(&version)));
    }
    let progress_token = match progress_token {
        None => None,
        Some(token) => Some(ProgressToken(request_id(token).ok_or(BAD_TOKEN)?)),
    };
    let log_level = log_level.and_then(text).and_then(|name| Level::of(&name));
    Ok(RequestMeta { protocol_version: version, client_capabilities, progress_token, log_level })
}

/// A version as it is echoed: a refusal must stay small, whatever it refuses.
fn shortened(version: &str) -> String {
    const LONGEST: usize = 64;
    version.char_indices().take_while(|(at, c)| at + c.len_utf8() <= LONGEST).map(|(_, c)| c).collect()
}

const NO_OBJECT: MetaError = MetaError::Invalid("params must be an object");
const UNREADABLE: MetaError = MetaError::Invalid("params must be JSON nested at most 128 levels deep");
const TWO_METAS: MetaError = MetaError::Invalid("params must not name _meta twice");
const MALFORMED_META: MetaError = MetaError::Invalid("params._meta is malformed");
const MISSING_META: MetaError = MetaError::Invalid("params._meta must be an object");
const MISSING_VERSION: MetaError =
    MetaError::Invalid("params._meta must carry io.modelcontextprotocol/protocolVersion");
const MISSING_CAPABILITIES: MetaError =
    MetaError::Invalid("params._meta must carry io.modelcontextprotocol/clientCapabilities, an object");
const BAD_TOKEN: MetaError = MetaError::Invalid("params._meta.progressToken must be a string or an integer");

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(params: &str) -> Result<RequestMeta<'_>, MetaError> {
        request_meta("tools/call", Some(serde_json::from_str(params).expect("JSON")))
    }

    #[test]
    fn what_a_request_must_carry() {
        let good = meta(
            r#"{"a":1,"_meta":{"x.y/z":[],"io.modelcontextprotocol/protocolVersion":"2026-07-28",
               "io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"progressToken":"t"}}"#,
        );
        let good = good.expect("complete metadata");
        assert_eq!(good.client_capabilities, r#"{"elicitation":{}}"#);
        assert_eq!(good.progress_token, Some(ProgressToken("t".into())));
        for (params, expected) in [
            ("[]", MetaError::Invalid("params must be an object")),
            ("{}", MISSING_META),
            (r#"{"_meta":7}"#, MISSING_META),
            (r#"{"_meta":{}}"#, MISSING_VERSION),
            (r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#, MISSING_CAPABILITIES),
            (
                r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01","io.modelcontextprotocol/clientCapabilities":{}}}"#,
                MetaError::Version("1900-01-01".into()),
            ),
            (
                r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":1.5}}"#,
                BAD_TOKEN,
            ),
        ] {
            assert_eq!(meta(params), Err(expected), "{params}");
        }
    }

    #[test]
    fn what_a_refusal_echoes_is_short() {
        let long = "é".repeat(1 << 20);
        let params = alloc::format!(
            r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{long}","io.modelcontextprotocol/clientCapabilities":{{}}}}}}"#
        );
        assert_eq!(meta(&params), Err(MetaError::Version("é".repeat(32))));
    }

    #[test]
    fn initialize_is_told_the_versions() {
        let params = serde_json::from_str(r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#).expect("JSON");
        let error: RpcError = request_meta(method::INITIALIZE, Some(params)).expect_err("refused").into();
        assert_eq!(error.code, -32022);
        assert_eq!(error.data.as_deref(), Some(r#"{"supported":["2026-07-28"],"requested":"2025-11-25"}"#));
    }
}
