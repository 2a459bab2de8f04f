//! Requests over several round trips: a server that needs input answers with what it needs, and the client asks again.
//!
//! ```text
//!   client                                   server
//!     tools/call, id 1            ────►      InputRequired: what to ask for, and a sealed state
//!     read_result: Outcome::Input ◄────      resultType "input_required"
//!     Input::retry, id 2          ────►      Retry::read, Retry::response, Sealer::open
//!     read_result: Outcome::Final ◄────      the result
//! ```
//!
//! Nothing is remembered between the two on the server (rule M9): what it must know again travels in `requestState`, which
//! a [`Sealer`] protects, since it comes back from the peer.
//!
//! | part | side | decides |
//! |---|---|---|
//! | [`InputRequired`] | server | whether this request may be answered so, and whether the client can be asked this (I1) |
//! | [`Retry`] | server | what came back for a key: an answer of the right kind, a wrong one, none (I4) |
//! | [`Sealer`] | server | whether a state is ours, this caller's, this request's, fresh, and unspent (I3) |
//! | [`read_result`], [`Input`] | client | what a result is, and the request that follows it, under a new id (I2) |
//! | [`is_final`] | both | whether a result may be stored as the outcome of a key (I5) |

mod answer;
mod ask;
pub(crate) mod base64;
mod client;
mod seal;

pub use answer::{Retry, RetryError, Unanswered, Wrong};
pub use ask::{AskError, InputRequired};
pub use client::{Input, InputRequest, NoRetry, Outcome, ResultError, read_requests, read_result};
pub use seal::{Binding, BindingError, Mac, Opened, Sealer, Spent, Stamp, StateError};

use crate::rpc::scan::{members, text};

/// The methods that may be answered by a demand for input (rule I1).
pub const METHODS: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];

/// Inputs that one result may ask for. More are refused when it is built, and when it is read.
pub const MAX_INPUTS: usize = 64;

/// Longest `requestState` that is read, in bytes.
pub const MAX_STATE_BYTES: usize = 64 << 10;

/// What a server may ask a client for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the kinds that the revision defines; what is asked must be checked as one"
)]
pub enum Kind {
    /// `elicitation/create` with a form for the user.
    Form,
    /// `elicitation/create` with an address for the user to visit.
    Url,
    /// `sampling/createMessage`.
    Sampling,
    /// `sampling/createMessage` with tools.
    SamplingWithTools,
    /// `roots/list`.
    Roots,
}

impl Kind {
    /// The method of the request inside of the result.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Form | Self::Url => "elicitation/create",
            Self::Sampling | Self::SamplingWithTools => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }

    /// The capabilities that a client must declare for it, as JSON.
    #[must_use]
    pub const fn required(self) -> &'static str {
        match self {
            Self::Form => r#"{"elicitation":{"form":{}}}"#,
            Self::Url => r#"{"elicitation":{"url":{}}}"#,
            Self::Sampling => r#"{"sampling":{}}"#,
            Self::SamplingWithTools => r#"{"sampling":{"tools":{}}}"#,
            Self::Roots => r#"{"roots":{}}"#,
        }
    }

    /// Whether `capabilities`, the JSON that came with the request, declare it. An `elicitation` that names no mode stands
    /// for forms.
    #[must_use]
    pub fn is_declared(self, capabilities: &str) -> bool {
        let object = |json: Option<&str>| json.is_some_and(|json| json.starts_with('{'));
        let Some([elicitation, sampling, roots]) = members(capabilities, &["elicitation", "sampling", "roots"]) else {
            return false;
        };
        match self {
            Self::Form | Self::Url => {
                let Some([form, url]) = elicitation.and_then(|json| members(json, &["form", "url"])) else {
                    return false;
                };
                object(if self == Self::Url { url } else { form })
                    || (self == Self::Form && url.is_none() && form.is_none())
            }
            Self::Sampling => object(sampling),
            Self::SamplingWithTools => {
                sampling.and_then(|json| members(json, &["tools"])).is_some_and(|[tools]| object(tools))
            }
            Self::Roots => object(roots),
        }
    }

    /// The kind of a request with this method and these parameters; `None` if a server must not make it.
    #[must_use]
    pub fn of(method: &str, params: Option<&str>) -> Option<Self> {
        let params = params.unwrap_or("{}");
        match method {
            "elicitation/create" => {
                let [mode] = members(params, &["mode"])?;
                match mode.map(text) {
                    None => Some(Self::Form),
                    Some(Some(mode)) if mode == "form" => Some(Self::Form),
                    Some(Some(mode)) if mode == "url" => Some(Self::Url),
                    Some(_) => None,
                }
            }
            "sampling/createMessage" => {
                let with_tools = members(params, &["tools", "toolChoice"])?.iter().any(Option::is_some);
                Some(if with_tools { Self::SamplingWithTools } else { Self::Sampling })
            }
            "roots/list" => members(params, &[]).map(|[]| Self::Roots),
            _ => None,
        }
    }
}

/// Whether this result ends its request: the only kind that may be stored as the outcome of an idempotency key (rule I5).
///
/// A result without a `resultType` is complete (rule M4), and the handle of a task is an outcome of its call. One that asks
/// for input is none, and neither is one of an unknown type or one that cannot be read.
///
/// ```
/// use steady_core::mrtr::is_final;
///
/// assert!(is_final(r#"{"content":[]}"#) && is_final(r#"{"resultType":"complete"}"#));
/// assert!(!is_final(r#"{"resultType":"input_required","requestState":"x"}"#));
/// ```
#[must_use]
pub fn is_final(result: &str) -> bool {
    match members(result, &["resultType"]) {
        None => false,
        Some([None]) => true,
        Some([Some(kind)]) => text(kind).is_some_and(|kind| kind == "complete" || kind == "task"),
    }
}
