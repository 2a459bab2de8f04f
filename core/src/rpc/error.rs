//! Errors as they travel, and their codes.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::encode;

/// The error codes that the protocol defines (rules M5 to M7).
pub mod code {
    /// The text is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The JSON is not a message of this protocol.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters do not fit.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The handler failed.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// An HTTP header and the body disagree.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client did not declare a capability that the request needs.
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The server does not speak the requested revision.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// Ours, outside the reserved range (rule M7): the server is at its cap of requests in flight.
    pub const OVERLOADED: i64 = -31001;
    /// Ours: the server's own deadline for the request ran out (rule C8).
    pub const DEADLINE: i64 = -31002;
}

/// An error answer: a code, a text for people, and data for machines as raw JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
#[non_exhaustive]
pub struct RpcError {
    /// The code. Application codes lie outside -32768..=-32000.
    pub code: i64,
    /// What is wrong and what to do about it, in a sentence.
    pub message: Box<str>,
    /// More, as JSON text.
    pub data: Option<Box<str>>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<Box<str>>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The parameters do not fit: say where and why.
    pub fn invalid_params(message: impl Into<Box<str>>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// The handler failed.
    pub fn internal(message: impl Into<Box<str>>) -> Self {
        Self::new(code::INTERNAL_ERROR, message)
    }

    /// No such method.
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        Self::new(code::METHOD_NOT_FOUND, alloc::format!("method {method:?} is not offered by this server"))
    }

    /// The client did not declare capabilities that the request needs; `required` is their JSON text (rule M5).
    #[must_use]
    pub fn missing_capability(required: &str) -> Self {
        let data = alloc::format!("{{\"requiredCapabilities\":{required}}}");
        Self::new(code::MISSING_CAPABILITY, "the request needs a capability that the client did not declare; see data")
            .with_data(&data)
    }

    /// The revision `requested` is not among `supported` (rule M5).
    #[must_use]
    pub fn unsupported_version(requested: &str, supported: &[&str]) -> Self {
        let mut data = Vec::new();
        data.extend_from_slice(b"{\"supported\":[");
        for (nth, version) in supported.iter().enumerate() {
            if nth > 0 {
                data.push(b',');
            }
            encode::string(&mut data, version);
        }
        data.extend_from_slice(b"],\"requested\":");
        encode::string(&mut data, requested);
        data.push(b'}');
        Self {
            code: code::UNSUPPORTED_VERSION,
            // Most clients show their user the message only.
            message: alloc::format!(
                "this server speaks {}, and not the requested protocol version",
                supported.join(", ")
            )
            .into(),
            data: String::from_utf8(data).ok().map(Into::into),
        }
    }

    /// The same error with data, which must be JSON text; other text is left out.
    #[must_use]
    pub fn with_data(mut self, data: &str) -> Self {
        self.data = serde_json::from_str::<&serde_json::value::RawValue>(data).is_ok().then(|| data.into());
        self
    }
}
