//! Spans and events of a client's calls, under the attribute names of OpenTelemetry's conventions for MCP. Without the
//! feature `tracing` all of it is nothing.
//!
//! One span `mcp.request` for each call, a child of the span that its caller is in:
//!
//! | field | value |
//! |---|---|
//! | `otel.name`, `otel.kind` | method and tool; `client` |
//! | `mcp.method.name`, `gen_ai.tool.name` | as they are, cut at 128 bytes |
//! | `jsonrpc.request.id` | of the attempt that was sent last |
//! | `network.transport` | `pipe` or `tcp` |
//! | `error.type` | the server's error code; `tool_error`, `answer_too_long`, `answer_unusable`, `timeout`, `outcome_unknown`, |
//! | | `never_sent`, `refused` |
//!
//! Arguments, results, texts of errors, progress and reasons are never recorded. A cancellation is no failure: it sets no
//! `error.type`. A subscriber is called under the client's lock and must not use the client.

#[cfg(feature = "tracing")]
pub(super) use on::CallSpan;

#[cfg(not(feature = "tracing"))]
pub(super) use off::CallSpan;

/// The link is gone; whether there will be another.
pub(super) fn link_lost(generation: u64, again: bool) {
    #[cfg(feature = "tracing")]
    tracing::info!(generation, again, "link to the server lost");
    #[cfg(not(feature = "tracing"))]
    let _: (u64, bool) = (generation, again);
}

/// A line was no message of a server.
pub(super) fn bad_message() {
    #[cfg(feature = "tracing")]
    tracing::debug!("a server's message could not be read");
}

#[cfg(not(feature = "tracing"))]
mod off {
    use crate::id::WireId;
    use crate::kernel::client::error::CallError;
    use crate::kernel::client::tools::Raw;
    use crate::transport::Transport;

    /// Nothing.
    #[derive(Clone, Debug)]
    pub(in crate::kernel::client) struct CallSpan;

    #[expect(clippy::unused_self, reason = "the shape of the other one")]
    impl CallSpan {
        pub(in crate::kernel::client) const fn start(_: &str, _: Option<&str>, _: Transport) -> Self {
            Self
        }

        pub(in crate::kernel::client) fn inside<T>(&self, step: impl FnOnce() -> T) -> T {
            step()
        }

        pub(in crate::kernel::client) const fn sent(&self, _: WireId) {}

        pub(in crate::kernel::client) const fn refused(&self) {}

        pub(in crate::kernel::client) const fn ended(&self, _: &Result<Raw, CallError>) {}
    }
}

#[cfg(feature = "tracing")]
mod on {
    use alloc::format;

    use tracing::field::Empty;
    use tracing::{Level, Span};

    use crate::id::WireId;
    use crate::kernel::client::error::CallError;
    use crate::kernel::client::tools::Raw;
    use crate::kernel::trace::{LONGEST, cut, is_tool_error, name_tool_in};
    use crate::transport::Transport;

    /// The span of one call.
    #[derive(Clone, Debug)]
    pub(in crate::kernel::client) struct CallSpan(Span);

    impl CallSpan {
        pub(in crate::kernel::client) fn start(method: &str, params: Option<&str>, transport: Transport) -> Self {
            if !tracing::enabled!(Level::INFO) {
                return Self(Span::none());
            }
            let name = cut(method, LONGEST);
            let span = tracing::info_span!(
                "mcp.request",
                otel.name = name,
                otel.kind = "client",
                mcp.method.name = name,
                gen_ai.tool.name = Empty,
                jsonrpc.request.id = Empty,
                network.transport = match transport {
                    Transport::Stdio => "pipe",
                    Transport::Http => "tcp",
                },
                error.type = Empty,
            );
            name_tool_in(&span, method, params.unwrap_or_default());
            Self(span)
        }

        pub(in crate::kernel::client) fn inside<T>(&self, step: impl FnOnce() -> T) -> T {
            self.0.in_scope(step)
        }

        /// An attempt was handed to the link.
        pub(in crate::kernel::client) fn sent(&self, wire: WireId) {
            self.0.record("jsonrpc.request.id", wire.number());
            self.0.in_scope(|| tracing::debug!("request sent"));
        }

        /// Nothing of it was sent, for a reason of this side.
        pub(in crate::kernel::client) fn refused(&self) {
            self.0.record("error.type", "refused");
            self.0.in_scope(|| tracing::debug!("request refused"));
        }

        /// It has its end.
        pub(in crate::kernel::client) fn ended(&self, outcome: &Result<Raw, CallError>) {
            if self.0.is_disabled() {
                return;
            }
            let failed = |kind: &str| {
                self.0.record("error.type", kind);
            };
            match outcome {
                Ok(result) => {
                    if is_tool_error(result.get()) {
                        failed("tool_error");
                    }
                    self.0.in_scope(|| tracing::debug!("request answered"));
                }
                Err(CallError::Cancelled { .. }) => self.0.in_scope(|| tracing::debug!("request cancelled")),
                Err(CallError::Peer(error)) => {
                    failed(&format!("{}", error.code));
                    self.0.in_scope(|| tracing::debug!("request answered with an error"));
                }
                Err(CallError::AnswerTooLong) => {
                    failed("answer_too_long");
                    self.0.in_scope(|| tracing::warn!("answer too long"));
                }
                Err(CallError::Answer(_)) => failed("answer_unusable"),
                Err(CallError::Refused(_)) => {
                    failed("refused_elsewhere");
                    self.0.in_scope(|| tracing::debug!("request refused by other than the server"));
                }
                Err(CallError::NoInput(_)) => {
                    failed("no_input");
                    self.0.in_scope(|| tracing::debug!("input was asked for and not given"));
                }
                Err(CallError::IdleTimeout { .. }) => self.timed_out("idle"),
                Err(CallError::MaxTimeout { .. }) => self.timed_out("maximum"),
                Err(CallError::Unknown { .. }) => {
                    failed("outcome_unknown");
                    self.0.in_scope(|| tracing::warn!("outcome unknown"));
                }
                Err(
                    CallError::NeverSent { .. }
                    | CallError::Closed { .. }
                    | CallError::Full { .. }
                    | CallError::FullBytes { .. }
                    | CallError::NoBudget
                    | CallError::RequestTooLong { .. }
                    | CallError::Params { .. },
                ) => {
                    failed("never_sent");
                    self.0.in_scope(|| tracing::debug!("request never sent"));
                }
            }
        }

        fn timed_out(&self, clock: &str) {
            self.0.record("error.type", "timeout");
            self.0.in_scope(|| tracing::warn!(clock, "request timed out"));
        }
    }
}
