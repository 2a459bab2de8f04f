//! Lines of a client: what it sends for an attempt, and what it reads.

use steady_core::client::Input;
use steady_core::id::{RequestId, WireId};
use steady_core::rpc::{self, Body, Message, encode, method};

/// An answer, as JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "JSON-RPC has exactly these two")]
pub enum Answer {
    /// A result.
    Result(String),
    /// An error object.
    Error(String),
}

impl Answer {
    /// The JSON text, whichever it is.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Result(text) | Self::Error(text) => text,
        }
    }
}

/// A call of a tool, before it has an id. Every attempt sends the same bytes but for id and token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRequest {
    /// The members of the parameters beside `_meta`.
    params: String,
}

impl ToolRequest {
    /// A call of `tool`; `arguments` is a JSON object.
    #[must_use]
    pub fn new(tool: &str, arguments: &str) -> Self {
        let mut params = b"\"name\":".to_vec();
        encode::string(&mut params, tool);
        params.extend_from_slice(b",\"arguments\":");
        params.extend_from_slice(arguments.as_bytes());
        Self { params: String::from_utf8_lossy(&params).into_owned() }
    }

    /// The line of the attempt with this id, which is also its progress token.
    #[must_use]
    pub fn line(&self, wire: WireId) -> String {
        let params = format!(
            "{{{},\"_meta\":{{\"io.modelcontextprotocol/protocolVersion\":\"{}\",\
             \"io.modelcontextprotocol/clientCapabilities\":{{}},\"progressToken\":{}}}}}",
            self.params,
            rpc::PROTOCOL_VERSION,
            wire.number(),
        );
        text(|line| encode::request(line, &request_id(wire), method::TOOLS_CALL, &params))
    }
}

/// The line that cancels this attempt on stdio.
#[must_use]
pub fn cancellation(wire: WireId) -> String {
    text(|line| encode::cancelled(line, &request_id(wire), Some("no longer needed")))
}

/// What a line of the server means to the client machine; `None` if it means nothing to it.
#[must_use]
pub fn read(line: &str) -> Option<Input<Answer>> {
    match rpc::parse(line).ok()? {
        Message::Response { id, body } => {
            let answer = match body {
                Body::Result(result) => Answer::Result(result.get().to_owned()),
                Body::Error(error) => Answer::Error(error.get().to_owned()),
            };
            Some(Input::Response { wire: wire_id(&id?)?, answer })
        }
        Message::Notification { method, params } if method == method::PROGRESS => {
            let (token, value) = rpc::read_progress(params?.get())?;
            Some(Input::Progress { wire: wire_id(&token.0)?, value })
        }
        Message::Notification { method, params } if method == method::CANCELLED => {
            let cancellation = rpc::read_cancellation(params?.get())?;
            Some(Input::Cancelled { wire: wire_id(&cancellation.id)? })
        }
        Message::Request { .. } | Message::Notification { .. } => None,
    }
}

fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut line = Vec::new();
    write(&mut line);
    String::from_utf8_lossy(&line).into_owned()
}

fn request_id(wire: WireId) -> RequestId {
    RequestId::Integer(i64::try_from(wire.number()).unwrap_or(i64::MAX))
}

fn wire_id(id: &RequestId) -> Option<WireId> {
    match id {
        RequestId::Integer(id) => u64::try_from(*id).ok().map(WireId::new),
        RequestId::String(_) => None,
    }
}
