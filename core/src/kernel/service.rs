//! What a server does with a request that was admitted.

use alloc::boxed::Box;
use alloc::string::String;
use core::ops::Range;

use serde::de::DeserializeOwned;

use super::context::Context;
use super::hub::Subscription;
use super::port::BoxFuture;
use crate::rpc::RpcError;
use crate::rpc::scan::Found;

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
}

impl Call {
    /// `found` are members of `params`, lent from it.
    pub(super) fn new(method: &str, params: &str, found: &Found<'_, 2>) -> Self {
        let place = |value: &str| {
            let start = value.as_ptr().addr().wrapping_sub(params.as_ptr().addr());
            start..start.wrapping_add(value.len())
        };
        let members = if found.twice { None } else { Some(found.values.map(|value| value.map(place))) };
        Self { method: method.into(), params: params.into(), members }
    }

    /// The name of a tool and its arguments, as JSON text; `None` if one of them stands twice.
    pub(super) fn members(&self) -> Option<[Option<&str>; 2]> {
        self.members.as_ref().map(|places| places.each_ref().map(|place| self.params.get(place.clone()?)))
    }

    /// Reads the parameters as a value of the caller's type.
    ///
    /// # Errors
    /// -32602 with the place that does not fit.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        read_json(&self.params, "params")
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
