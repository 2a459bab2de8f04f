//! Spans and events of a request, under the attribute names of OpenTelemetry's conventions for MCP. Without the feature
//! `tracing` all of it is nothing.
//!
//! One span `mcp.request` for each admitted request, entered whenever its handler is polled:
//!
//! | field | value |
//! |---|---|
//! | `otel.name`, `otel.kind` | method and tool; `server` |
//! | `mcp.method.name`, `gen_ai.tool.name`, `jsonrpc.request.id`, `network.transport` | as they are, cut at 128 bytes |
//! | `traceparent`, `tracestate` | the client's trace context from `_meta`, if it has the form of one |
//! | `error.type` | the error's code; `tool_error` for a result that says `isError` |
//!
//! Arguments, results, texts of errors, progress and cancellations are never recorded. A cancellation is no failure: it
//! sets no `error.type`.

#[cfg(feature = "tracing")]
pub(super) use on::{LONGEST, RequestSpan, cut, is_tool_error, name_tool_in};

#[cfg(not(feature = "tracing"))]
pub(super) use off::RequestSpan;

/// A message could not be read.
pub(super) fn bad_message() {
    #[cfg(feature = "tracing")]
    tracing::debug!("a message could not be read");
}

/// A request was refused before it ran.
pub(super) fn refused(code: i64) {
    #[cfg(feature = "tracing")]
    tracing::debug!(error.type = code, "request refused");
    #[cfg(not(feature = "tracing"))]
    let _: i64 = code;
}

#[cfg(not(feature = "tracing"))]
mod off {
    use crate::deadline::Clock;
    use crate::id::RequestId;
    use crate::kernel::service::Outcome;
    use crate::kernel::slot::CancelReason;

    /// Nothing.
    #[derive(Debug)]
    pub(in crate::kernel) struct RequestSpan;

    #[expect(clippy::unused_self, reason = "the shape of the other one")]
    impl RequestSpan {
        pub(in crate::kernel) const fn start(_: &RequestId, _: &str, _: &str, _: &str) -> Self {
            Self
        }

        pub(in crate::kernel) fn inside<T>(&self, step: impl FnOnce() -> T) -> T {
            step()
        }

        pub(in crate::kernel) const fn answered(&self, _: &Outcome) {}

        pub(in crate::kernel) const fn failed(&self, _: i64) {}

        pub(in crate::kernel) const fn cancelled(&self, _: &CancelReason) {}

        pub(in crate::kernel) const fn expired(&self, _: Clock) {}
    }
}

#[cfg(feature = "tracing")]
mod on {
    use alloc::borrow::Cow;
    use alloc::format;

    use serde::Deserialize;
    use tracing::field::Empty;
    use tracing::{Level, Span};

    use crate::deadline::Clock;
    use crate::id::RequestId;
    use crate::kernel::propagation::{is_traceparent, is_tracestate};
    use crate::kernel::service::Outcome;
    use crate::kernel::slot::CancelReason;
    use crate::rpc::{code, method};

    /// Longest name or id that is recorded, in bytes: a client chooses them.
    pub(in crate::kernel) const LONGEST: usize = 128;

    /// The span of one request.
    #[derive(Debug)]
    pub(in crate::kernel) struct RequestSpan(Span);

    /// What is read of the parameters; everything else is passed over.
    #[derive(Default, Deserialize)]
    struct Params<'a> {
        #[serde(borrow, default)]
        name: Option<Cow<'a, str>>,
        #[serde(borrow, default)]
        _meta: Meta<'a>,
    }

    #[derive(Default, Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, default)]
        traceparent: Option<Cow<'a, str>>,
        #[serde(borrow, default)]
        tracestate: Option<Cow<'a, str>>,
    }

    /// What is read of a result.
    #[derive(Deserialize)]
    struct Result {
        #[serde(rename = "isError", default)]
        is_error: bool,
    }

    /// Whether a result is a tool's error.
    pub(in crate::kernel) fn is_tool_error(result: &str) -> bool {
        serde_json::from_str::<Result>(result).is_ok_and(|result| result.is_error)
    }

    /// Records which tool a request calls, if it calls one.
    fn name_tool(span: &Span, method: &str, name: Option<&str>) {
        if let (method::TOOLS_CALL, Some(name)) = (method, name) {
            let name = cut(name, LONGEST);
            span.record("gen_ai.tool.name", name);
            span.record("otel.name", format!("{method} {name}"));
        }
    }

    /// The same, read from its parameters.
    pub(in crate::kernel) fn name_tool_in(span: &Span, method: &str, params: &str) {
        if method == method::TOOLS_CALL {
            let Params { name, .. } = serde_json::from_str(params).unwrap_or_default();
            name_tool(span, method, name.as_deref());
        }
    }

    impl RequestSpan {
        pub(in crate::kernel) fn start(id: &RequestId, method: &str, params: &str, transport: &str) -> Self {
            if !tracing::enabled!(Level::INFO) {
                return Self(Span::none());
            }
            let method = cut(method, LONGEST);
            let id = match id {
                RequestId::Integer(number) => Cow::Owned(format!("{number}")),
                RequestId::String(text) => Cow::Borrowed(cut(text, LONGEST)),
            };
            let span = tracing::info_span!(
                "mcp.request",
                otel.name = method,
                otel.kind = "server",
                mcp.method.name = method,
                gen_ai.tool.name = Empty,
                jsonrpc.request.id = &*id,
                network.transport = transport,
                traceparent = Empty,
                tracestate = Empty,
                error.type = Empty,
            );
            // Parameters of another shape are the handler's affair.
            let Params { name, _meta: meta } = serde_json::from_str(params).unwrap_or_default();
            name_tool(&span, method, name.as_deref());
            if let Some(parent) = meta.traceparent.filter(|parent| is_traceparent(parent)) {
                span.record("traceparent", &*parent);
                if let Some(state) = meta.tracestate.filter(|state| is_tracestate(state)) {
                    span.record("tracestate", &*state);
                }
            }
            Self(span)
        }

        pub(in crate::kernel) fn inside<T>(&self, step: impl FnOnce() -> T) -> T {
            self.0.in_scope(step)
        }

        /// Its answer was accepted.
        pub(in crate::kernel) fn answered(&self, outcome: &Outcome) {
            if self.0.is_disabled() {
                return;
            }
            match outcome {
                Err(error) => return self.failed(error.code),
                Ok(result) if is_tool_error(result) => {
                    self.0.record("error.type", "tool_error");
                }
                Ok(_) => {}
            }
            self.0.in_scope(|| tracing::debug!("request answered"));
        }

        /// It was answered with this error.
        pub(in crate::kernel) fn failed(&self, code: i64) {
            self.0.record("error.type", &*format!("{code}"));
            self.0.in_scope(|| tracing::debug!("request answered with an error"));
        }

        pub(in crate::kernel) fn cancelled(&self, reason: &CancelReason) {
            let what = match reason {
                CancelReason::Cancelled(_) => "request cancelled",
                CancelReason::Disconnected => "request lost: its client is gone",
                CancelReason::Deadline(_) | CancelReason::Ended | CancelReason::Shutdown => "request ended",
            };
            self.0.in_scope(|| tracing::debug!("{what}"));
        }

        pub(in crate::kernel) fn expired(&self, clock: Clock) {
            self.0.record("error.type", &*format!("{}", code::DEADLINE));
            self.0.in_scope(|| tracing::warn!(?clock, "request timed out"));
        }
    }

    /// The start of a text, at most this many bytes of it.
    pub(in crate::kernel) fn cut(text: &str, longest: usize) -> &str {
        if text.len() <= longest {
            return text;
        }
        let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= longest).last();
        &text[..end.unwrap_or(0)]
    }
}
