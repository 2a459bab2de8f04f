//! What the protocol keeps in `params._meta` of a request (rules M3 and M5).

use alloc::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::message::{Text, request_id};
use super::{PROTOCOL_VERSION, RpcError, method};
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
    Version(alloc::string::String),
}

impl From<MetaError> for RpcError {
    fn from(error: MetaError) -> Self {
        match error {
            MetaError::Invalid(what) => Self::invalid_params(what),
            MetaError::Version(requested) => Self::unsupported_version(&requested, &[PROTOCOL_VERSION]),
        }
    }
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(rename = "_meta", borrow)]
    meta: Option<&'a RawValue>,
    // Of `initialize`, the handshake of older revisions.
    #[serde(rename = "protocolVersion", borrow)]
    version: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion", borrow)]
    protocol_version: Option<Text<'a>>,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities", borrow)]
    client_capabilities: Option<&'a RawValue>,
    #[serde(rename = "progressToken", borrow)]
    progress_token: Option<&'a RawValue>,
}

/// Reads and checks the metadata of a request for `request_method`.
///
/// # Errors
/// [`MetaError`], which turns into the error to answer. `initialize`, which has no such metadata, is refused with the
/// supported versions named (rule M8).
pub fn request_meta<'a>(request_method: &str, params: Option<&'a RawValue>) -> Result<RequestMeta<'a>, MetaError> {
    let raw = params.map_or("{}", RawValue::get);
    if !raw.starts_with('{') {
        return Err(MetaError::Invalid("params must be an object"));
    }
    let params: Params<'_> =
        serde_json::from_str(raw).map_err(|_| MetaError::Invalid("params must not name _meta twice"))?;
    if request_method == method::INITIALIZE {
        let requested = params.version.and_then(|text| serde_json::from_str::<Text<'_>>(text.get()).ok());
        return Err(MetaError::Version(requested.map_or_else(Default::default, |text| text.0.into_owned())));
    }
    let meta: Meta<'_> = params.meta.filter(|meta| meta.get().starts_with('{')).map_or(Err(MISSING_META), |meta| {
        serde_json::from_str(meta.get()).map_err(|_| MetaError::Invalid("params._meta is malformed"))
    })?;
    let version = meta.protocol_version.ok_or(MISSING_VERSION)?.0;
    let client_capabilities = meta.client_capabilities.filter(|raw| raw.get().starts_with('{'));
    let client_capabilities = client_capabilities.ok_or(MISSING_CAPABILITIES)?.get();
    if version != PROTOCOL_VERSION {
        return Err(MetaError::Version(version.into_owned()));
    }
    let progress_token = match meta.progress_token {
        None => None,
        Some(token) => Some(ProgressToken(request_id(token.get()).ok_or(BAD_TOKEN)?)),
    };
    Ok(RequestMeta { protocol_version: version, client_capabilities, progress_token })
}

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
    fn initialize_is_told_the_versions() {
        let params = serde_json::from_str(r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#).expect("JSON");
        let error: RpcError = request_meta(method::INITIALIZE, Some(params)).expect_err("refused").into();
        assert_eq!(error.code, -32022);
        assert_eq!(error.data.as_deref(), Some(r#"{"supported":["2026-07-28"],"requested":"2025-11-25"}"#));
    }
}
