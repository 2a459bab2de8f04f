//! What is checked before a handler sees a request, in the order of rule H4: the first check that fails decides.
//!
//! What cannot be checked here, whether the method exists and whether the client declared what it needs, is the
//! handler's answer; its status follows from its code.

use std::borrow::Cow;

use http::header::{self, ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use serde_json::Value;
use serde_json::value::RawValue;
use steady_core::idempotency;
use steady_core::kernel::{Request, Service};
use steady_core::rpc::{
    self, BadMessage, Message, MetaError, PROTOCOL_VERSION, Params, RequestMeta, RpcError, code, method,
};

use super::config::{HttpConfig, Principal};
use super::refuse::Refused;
use crate::headers::{self, HeaderError, Headers, check_method, check_name, check_params, check_version};

impl Headers for HeaderMap {
    fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let known = KNOWN.iter().find(|(known, _)| *known == name);
        let lines = known.map_or_else(|| self.get_all(name), |(_, known)| self.get_all(known));
        lines.into_iter().map(http::HeaderValue::as_bytes)
    }
}

/// The headers that every request is looked through for, as names that need no parsing.
static KNOWN: [(&str, HeaderName); 5] = [
    ("Host", header::HOST),
    ("Origin", header::ORIGIN),
    (headers::PROTOCOL_VERSION, HeaderName::from_static("mcp-protocol-version")),
    (headers::METHOD, HeaderName::from_static("mcp-method")),
    (headers::NAME, HeaderName::from_static("mcp-name")),
];

static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static(idempotency::HEADER_NAME);

/// The media types that a client takes as an answer (rule H2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) json: bool,
    pub(super) events: bool,
}

/// Whether this host and origin may call.
fn access(config: &HttpConfig, parts: &Parts) -> Result<(), Refused> {
    let authority = parts.uri.authority().map(http::uri::Authority::as_str);
    config.access.check(&parts.headers, authority).map_err(|error| Refused::headers(None, &error))
}

/// Who calls.
pub(super) fn principal(config: &HttpConfig, parts: &Parts) -> Result<Principal, Refused> {
    match &config.authenticate {
        Some(authenticate) => authenticate.authenticate(parts).map_err(Refused::unauthorized),
        None => Ok(None),
    }
}

/// Who sends a request that is no POST.
pub(super) fn caller(config: &HttpConfig, parts: &Parts) -> Result<Principal, Refused> {
    access(config, parts)?;
    principal(config, parts)
}

/// Checks what the head of a request says.
pub(super) fn head(config: &HttpConfig, parts: &Parts) -> Result<Accepts, Refused> {
    access(config, parts)?;
    if parts.method != Method::POST {
        return Err(Refused::method());
    }
    // Two lengths, of which readers on the way could each believe another one. hyper takes one away before it comes here, and
    // closes the connection after the answer; another server that this is mounted into may not.
    if parts.headers.contains_key(TRANSFER_ENCODING) && parts.headers.contains_key(CONTENT_LENGTH) {
        return Err(Refused::bad_request("Content-Length and Transfer-Encoding exclude each other").closing());
    }
    if !is_json(&parts.headers) {
        return Err(Refused::media_type());
    }
    let accepts = accepts(&parts.headers);
    if accepts.json || accepts.events { Ok(accepts) } else { Err(Refused::not_acceptable()) }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_none_or(|value| {
        let kind = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
    })
}

pub(super) fn accepts(headers: &HeaderMap) -> Accepts {
    if !headers.contains_key(ACCEPT) {
        return Accepts { json: true, events: true };
    }
    let mut accepts = Accepts { json: false, events: false };
    for range in headers.get_all(ACCEPT).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b',')) {
        let kind = range.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let is = |name: &[u8]| kind.eq_ignore_ascii_case(name);
        accepts.json |= is(b"application/json") || is(b"application/*") || is(b"*/*");
        accepts.events |= is(b"text/event-stream") || is(b"text/*") || is(b"*/*");
    }
    accepts
}

/// A message that passed every check.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "moved once; a box would be an allocation for each request")]
pub(super) enum Checked<'a> {
    Request(Request<'a>),
    Notification { cancels: bool },
}

/// Checks the message of a POST against its headers.
pub(super) fn message<'a, S: Service>(service: &S, headers: &HeaderMap, text: &'a str) -> Result<Checked<'a>, Refused> {
    match rpc::parse_with_params(text) {
        Ok((Message::Request { id, method, params }, read)) => {
            let meta = match checked_meta(service, headers, &method, params, &read) {
                Ok(meta) => meta,
                Err(Fault::Header(error)) => return Err(Refused::headers(Some(id), &error)),
                Err(Fault::Rpc(error)) => return Err(Refused::new(StatusCode::BAD_REQUEST, Some(id), error)),
                Err(Fault::Own(error)) => return Err(Refused::new(StatusCode::OK, Some(id), error)),
            };
            Ok(Checked::Request(Request { id, method, params, meta, read, key_header: key_header(headers) }))
        }
        Ok((Message::Notification { method, .. }, _)) => {
            notification(headers, &method).map_err(|error| Refused::headers(None, &error))?;
            Ok(Checked::Notification { cancels: method == method::CANCELLED })
        }
        // Rule M1.
        Ok((Message::Response { .. }, _)) => {
            Err(Refused::bad_request("a client sends requests and notifications only"))
        }
        Err(bad) => Err(unreadable(&bad, text)),
    }
}

/// The `Idempotency-Key` header, for the handler to judge: most methods have no use for one. What is no key is handed on so
/// that it is refused as one, two lines of it included.
pub(super) fn key_header(headers: &HeaderMap) -> Option<Box<str>> {
    let mut lines = headers.get_all(&IDEMPOTENCY_KEY).iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
    let first = lines.next()?;
    let joined = lines.fold(first, |joined, line| Cow::Owned(format!("{joined}, {line}")));
    Some(joined.into())
}

/// The answer to a text that is no message. On this transport each POST is answered, whatever it holds: two peers cannot
/// answer each other's errors for ever.
pub(super) fn unreadable(bad: &BadMessage, text: &str) -> Refused {
    let no_json = || serde_json::from_str::<&RawValue>(text).is_err();
    let code = match bad.code() {
        Some(code) => code,
        None if no_json() => code::PARSE_ERROR,
        None => code::INVALID_REQUEST,
    };
    let what = if code == code::PARSE_ERROR { "the body is not JSON".into() } else { bad.to_string() };
    Refused::new(StatusCode::BAD_REQUEST, bad.id().cloned(), RpcError::new(code, what))
}

enum Fault {
    Header(HeaderError),
    Rpc(RpcError),
    /// An answer like a handler's, which is no refusal (rule H9).
    Own(RpcError),
}

impl From<HeaderError> for Fault {
    fn from(error: HeaderError) -> Self {
        Self::Header(error)
    }
}

fn checked_meta<'a, S: Service>(
    service: &S,
    headers: &HeaderMap,
    method: &str,
    params: Option<&'a RawValue>,
    read: &Params<'a>,
) -> Result<RequestMeta<'a>, Fault> {
    // With the metadata of this revision, `initialize` is a method like any other that does not exist; without it, it is
    // the handshake of an older one, and is told the versions (rule M8).
    let meta = match rpc::checked_meta("", params, read) {
        Err(MetaError::Invalid(_)) if method == method::INITIALIZE => rpc::checked_meta(method, params, read),
        meta => meta,
    };
    let meta = match meta {
        Ok(meta) => meta,
        Err(MetaError::Version(requested)) if method != method::INITIALIZE => {
            // Its echo is shortened: so is what it is compared with.
            check_shortened(headers, &requested)?;
            return Err(Fault::Rpc(MetaError::Version(requested).into()));
        }
        Err(error) => return Err(Fault::Rpc(error.into())),
    };
    check_version(headers, &meta.protocol_version)?;
    check_method(headers, method)?;
    let raw = params.map_or("{}", RawValue::get);
    let Some(member) = headers::name_param(method) else { return Ok(meta) };
    let name = rpc::members(raw, &[member]).and_then(|[name]| name).and_then(rpc::text);
    check_name(headers, method, name.as_deref())?;
    if method == method::TOOLS_CALL {
        parameters(service, headers, name.as_deref().unwrap_or_default(), raw)?;
    }
    Ok(meta)
}

/// Checks the version header against an unsupported version, of which the start is known.
fn check_shortened(headers: &HeaderMap, requested: &str) -> Result<(), HeaderError> {
    match check_version(headers, requested) {
        Err(HeaderError::Mismatch { .. })
            if headers.get(headers::PROTOCOL_VERSION).is_some_and(|header| {
                requested.len() >= 60 && header.as_bytes().trim_ascii().starts_with(requested.as_bytes())
            }) =>
        {
            Ok(())
        }
        checked => checked,
    }
}

/// The parameters that the tool mirrors into headers (rule H3).
fn parameters<S: Service>(service: &S, headers: &HeaderMap, tool: &str, params: &str) -> Result<(), Fault> {
    let Some(schema) = service.input_schema(tool).filter(|schema| schema.contains("\"x-mcp-header\"")) else {
        return Ok(());
    };
    let broken = |why: String| Fault::Own(RpcError::internal(format!("the schema of tool {tool:?}: {why}")));
    let schema: Value = serde_json::from_str(schema).map_err(|error| broken(error.to_string()))?;
    let declared = headers::param_headers(&schema).map_err(|fault| broken(fault.to_string()))?;
    let arguments = rpc::members(params, &["arguments"]).and_then(|[arguments]| arguments);
    let arguments: Value = serde_json::from_str(arguments.unwrap_or("{}"))
        .map_err(|error| Fault::Own(RpcError::invalid_params(format!("arguments: {error}"))))?;
    Ok(check_params(headers, &declared, &arguments)?)
}

/// A notification needs no headers; those that are there must be right.
fn notification(headers: &HeaderMap, method: &str) -> Result<(), HeaderError> {
    if headers.contains_key(headers::PROTOCOL_VERSION) {
        check_version(headers, PROTOCOL_VERSION)?;
    }
    if headers.contains_key(headers::METHOD) {
        check_method(headers, method)?;
    }
    Ok(())
}
