//! What a server does with a request that was admitted.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use core::ops::Range;

use serde::de::DeserializeOwned;

use super::context::Context;
use super::hub::Subscription;
use super::port::BoxFuture;
use crate::idempotency::{Key, KeySources, META_NAME, PARAM_NAME, find_key};
use crate::rpc::scan::Found;
use crate::rpc::{Params, RpcError, members, text};

/// What a request is answered with: a result as JSON text, or an error.
pub type Outcome = Result<String, RpcError>;

/// An admitted request: its method and its parameters, raw and owned, so that a spawned handler can keep them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The method.
    pub method: Box<str>,
    /// The parameters, a JSON object as it came, `_meta` and unknown members included (rule M10).
    pub params: Box<str>,
    /// Where the members that name a tool and its arguments stand in the parameters, unless one of them stands twice.
    members: Option<[Option<Range<usize>>; 2]>,
    /// The `Idempotency-Key` header, as it came.
    key_header: Option<Box<str>>,
}

impl Call {
    /// `found` are members of `params`, lent from it.
    pub(super) fn new(method: &str, params: &str, found: &Found<'_, 2>, key_header: Option<Box<str>>) -> Self {
        let place = |value: &str| {
            let start = value.as_ptr().addr().wrapping_sub(params.as_ptr().addr());
            start..start.wrapping_add(value.len())
        };
        let members = if found.twice { None } else { Some(found.values.map(|value| value.map(place))) };
        Self { method: method.into(), params: params.into(), members, key_header }
    }

    /// A call that no client sent, of a method that names no tool.
    pub(super) fn plain(method: &str, params: &str) -> Self {
        Self::new(method, params, &Found::NONE, None)
    }

    /// The same call with other parameters, a JSON object; `None` if they nest too deep.
    pub(super) fn again(&self, params: &str) -> Option<Self> {
        let read = Params::read(params).ok()?;
        Some(Self::new(&self.method, params, &read.call, self.key_header.clone()))
    }

    /// The name of a tool and its arguments, as JSON text; `None` if one of them stands twice.
    pub(super) fn members(&self) -> Option<[Option<&str>; 2]> {
        self.members.as_ref().map(|places| places.each_ref().map(|place| self.params.get(place.clone()?)))
    }

    /// The idempotency key of this request, from every place where a client may put it: its parameters, their `_meta`, the
    /// HTTP header, and `argument`, the text of the argument that the tool names as its key.
    ///
    /// # Errors
    /// -32602 if a key is malformed, or two places carry different ones.
    pub fn idempotency_key(&self, argument: Option<&str>) -> Result<Option<Key>, RpcError> {
        let twice = || RpcError::invalid_params("params must not name idempotencyKey or _meta twice");
        let [params, meta] = members(&self.params, &[PARAM_NAME, "_meta"]).ok_or_else(twice)?;
        let [meta] = meta.map_or(Some([None]), |meta| members(meta, &[META_NAME])).ok_or_else(twice)?;
        let (params, meta) = (key_text(params)?, key_text(meta)?);
        let sources = KeySources {
            params: params.as_deref(),
            meta: meta.as_deref(),
            header: self.key_header.as_deref(),
            argument,
        };
        find_key(&sources).map_err(|error| RpcError::invalid_params(alloc::format!("{error}")))
    }

    /// Reads the parameters as a value of the caller's type.
    ///
    /// # Errors
    /// -32602 with the place that does not fit.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        read_json(&self.params, "params")
    }
}

/// The text of a key that stands in JSON; `null` is none.
pub(super) fn key_text(json: Option<&str>) -> Result<Option<Cow<'_, str>>, RpcError> {
    match json {
        None | Some("null") => Ok(None),
        Some(json) => match text(json) {
            Some(text) => Ok(Some(text)),
            None => Err(RpcError::invalid_params("an idempotency key must be a string")),
        },
    }
}

/// Reads JSON text as a `T`; an error names `what` and the place in it.
pub(super) fn read_json<T: DeserializeOwned>(json: &str, what: &str) -> Result<T, RpcError> {
    serde_json::from_str(json).map_err(|error| RpcError::invalid_params(alloc::format!("{what}: {error}")))
}

/// How a request is answered.
#[non_exhaustive]
pub enum Answer {
    /// At once.
    Ready(Outcome),
    /// Later. The future is polled once where it is; if it is not done then, it is spawned.
    Later(BoxFuture<Outcome>),
    /// By a job that blocks its thread; it runs where that does no harm.
    Blocking(Box<dyn FnOnce() -> Outcome + Send>),
    /// By the changes of this subscription, until it ends: only a `subscriptions/listen` is answered so. No handler runs for
    /// it; see [`Hub::listen`](super::Hub::listen).
    Listen(Subscription),
}

impl Answer {
    /// An answer that a future gives.
    pub fn later(future: impl Future<Output = Outcome> + Send + 'static) -> Self {
        Self::Later(Box::pin(future))
    }

    /// An answer that a blocking job gives.
    pub fn blocking(job: impl FnOnce() -> Outcome + Send + 'static) -> Self {
        Self::Blocking(Box::new(job))
    }
}

/// A server: it answers requests. The same value serves every transport.
pub trait Service: Send + Sync + 'static {
    /// Answers a request. It returns at once; work that takes time goes into the [`Answer`].
    fn call(&self, call: Call, cx: Context) -> Answer;

    /// The JSON schema of a tool's arguments, for transports that mirror some of them outside of the message (rule H3).
    /// `None`: there is no such tool, or nothing is mirrored.
    fn input_schema(&self, _tool: &str) -> Option<&str> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(params: &str, header: Option<&str>, argument: Option<&str>) -> Result<Option<String>, String> {
        let call = Call::new("tools/call", params, &Found::NONE, header.map(Into::into));
        let key = call.idempotency_key(argument).map_err(|error| {
            assert_eq!(error.code, -32602);
            String::from(&*error.message)
        });
        Ok(key?.map(|key| key.as_str().into()))
    }

    #[test]
    fn a_key_is_found_wherever_it_stands_and_only_one() {
        let meta = r#"{"name":"t","_meta":{"mcp-steady.dev/idempotencyKey":"a\u002d1"}}"#;
        let params = r#"{"idempotencyKey":"a-1"}"#;
        let found = Ok(Some("a-1".into()));
        assert_eq!(key("{}", None, None), Ok(None));
        assert_eq!(key(r#"{"idempotencyKey":null,"_meta":{}}"#, None, None), Ok(None));
        for (params, header, argument) in [
            (meta, None, None),
            (params, None, None),
            ("{}", Some("a-1"), None),
            ("{}", Some("\"a-1\""), None),
            ("{}", None, Some("a-1")),
            (meta, Some("a-1"), Some("a-1")),
        ] {
            assert_eq!(key(params, header, argument), found, "{params} {header:?} {argument:?}");
        }
        for (params, header, argument, why) in [
            (meta, Some("a-2"), None, "carry different"),
            (params, None, Some("a-2"), "carry different"),
            ("{}", Some("a-1, a-1"), None, "not visible ASCII"),
            (r#"{"idempotencyKey":1}"#, None, None, "must be a string"),
            (r#"{"idempotencyKey":"a","idempotencyKey":"b"}"#, None, None, "twice"),
        ] {
            let error = key(params, header, argument).expect_err(params);
            assert!(error.contains(why), "{params} {header:?}: {error}");
        }
    }
}
