//! `initialize`: what the client said of itself, and what it is answered.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use super::Revision;
use super::request;
use crate::rpc::scan::{MAX_NESTING, Scanner};
use crate::rpc::{RpcError, encode, members, text};
use crate::task;

/// What a client said in its handshake, and holds for all requests of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// What was agreed on.
    pub revision: Revision,
    /// The client's capabilities, a JSON object.
    pub capabilities: Box<str>,
    /// The client's name and version, a JSON object, if it gave one.
    pub info: Option<Box<str>>,
}

/// Longest capabilities and description of a client that a session keeps, in bytes.
pub const MAX_KEPT: usize = 4 << 10;

impl Handshake {
    /// Reads the parameters of `initialize` and agrees on a revision.
    ///
    /// # Errors
    /// -32602 with the member that is missing or does not fit.
    pub fn read(params: Option<&str>) -> Result<Self, RpcError> {
        let names = ["protocolVersion", "capabilities", "clientInfo"];
        let Some([version, capabilities, info]) = members(params.unwrap_or("{}"), &names) else {
            return Err(RpcError::invalid_params("params of initialize must be an object that names nothing twice"));
        };
        let Some(requested) = version.and_then(text) else {
            return Err(RpcError::invalid_params("params.protocolVersion must be a string, such as \"2025-11-25\""));
        };
        let Some(capabilities) = capabilities.filter(|json| json.starts_with('{')) else {
            return Err(RpcError::invalid_params("params.capabilities must be an object"));
        };
        let info = info.filter(|json| json.starts_with('{'));
        if capabilities.len() + info.map_or(0, str::len) > MAX_KEPT {
            let what = format!("params.capabilities and clientInfo are longer than {MAX_KEPT} bytes");
            return Err(RpcError::invalid_params(what));
        }
        Ok(Self {
            revision: Revision::negotiate(&requested),
            capabilities: without_tasks(capabilities).into(),
            info: info.map(Into::into),
        })
    }

    /// A client that has said nothing yet.
    #[must_use]
    pub fn none() -> Self {
        Self { revision: Revision::LATEST, capabilities: "{}".into(), info: None }
    }

    /// The result of `initialize`, made of what the server answers to `server/discover`.
    ///
    /// # Errors
    /// -32603 if that is no such answer.
    pub fn result(&self, discovered: &str) -> Result<String, RpcError> {
        let unreadable = || RpcError::internal("the server's own answer to server/discover is no DiscoverResult");
        let names = ["capabilities", "instructions", "_meta"];
        let [capabilities, instructions, meta] = members(discovered, &names).ok_or_else(unreadable)?;
        let capabilities = capabilities.filter(|json| json.starts_with('{')).ok_or_else(unreadable)?;
        let info = meta.and_then(|meta| members(meta, &["io.modelcontextprotocol/serverInfo"])).and_then(|[info]| info);
        let mut out = format!(
            "{{\"protocolVersion\":\"{}\",\"capabilities\":{},\"serverInfo\":{}",
            self.revision,
            without_tasks(capabilities),
            info.unwrap_or(UNNAMED)
        );
        if let Some(instructions) = instructions.and_then(text) {
            let mut json = alloc::vec::Vec::new();
            encode::string(&mut json, &instructions);
            out.push_str(",\"instructions\":");
            out.push_str(core::str::from_utf8(&json).unwrap_or("\"\""));
        }
        out.push('}');
        Ok(out)
    }
}

/// The older revisions demand a name, which the modern one only recommends.
const UNNAMED: &str = r#"{"name":"unnamed","version":"0"}"#;

/// Capabilities without the tasks extension: its messages are of the modern revision only.
fn without_tasks(capabilities: &str) -> Cow<'_, str> {
    if !capabilities.contains(task::EXTENSION) {
        return Cow::Borrowed(capabilities);
    }
    let inner = |json| request::without(json, |name| name.is(task::EXTENSION)).unwrap_or_else(|| "{}".into());
    let mut out = String::from("{");
    let mut scanner = Scanner::new(capabilities, MAX_NESTING);
    let copied = scanner.object(|name, scanner| {
        let value = scanner.value()?;
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(name.quoted());
        out.push(':');
        if name.is("extensions") {
            out.push_str(&inner(value))
        } else {
            out.push_str(value)
        }
        Ok(())
    });
    out.push('}');
    if copied.is_ok() { Cow::Owned(out) } else { Cow::Borrowed("{}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_handshake_must_say() {
        let good = Handshake::read(Some(
            r#"{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"c"}}"#,
        ));
        let good = good.expect("complete");
        assert_eq!((good.revision, &*good.capabilities), (Revision::V2025_06_18, r#"{"roots":{}}"#));
        assert_eq!(good.info.as_deref(), Some(r#"{"name":"c"}"#));
        for bad in ["{}", "[]", r#"{"protocolVersion":7,"capabilities":{}}"#, r#"{"protocolVersion":"2025-06-18"}"#] {
            assert_eq!(Handshake::read(Some(bad)).map_err(|error| error.code), Err(-32602), "{bad}");
        }
        let long = format!(r#"{{"protocolVersion":"x","capabilities":{{"a":"{}"}}}}"#, "x".repeat(MAX_KEPT));
        assert!(Handshake::read(Some(&long)).is_err());
    }

    #[test]
    fn the_result_is_made_of_the_servers_own_description() {
        let read = |capabilities: &str| {
            let params = format!(r#"{{"protocolVersion":"2025-03-26","capabilities":{capabilities}}}"#);
            Handshake::read(Some(&params)).expect("complete")
        };
        let discovered = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{},"x":{}}},"instructions":"a\"b","ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}"#;
        assert_eq!(
            read("{}").result(discovered).expect("a result"),
            r#"{"protocolVersion":"2025-03-26","capabilities":{"tools":{},"extensions":{"x":{}}},"serverInfo":{"name":"s","version":"1"},"instructions":"a\"b"}"#
        );
        assert_eq!(
            &*read(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}},"roots":{}}"#).capabilities,
            r#"{"extensions":{},"roots":{}}"#
        );
        assert!(read("{}").result("{}").is_err());
    }
}
