//! A request of a session, as one of the modern revision: what the session knows goes into its metadata (rule M3).

use alloc::string::String;

use super::Handshake;
pub use crate::rpc::Level;
use crate::rpc::PROTOCOL_VERSION;
use crate::rpc::scan::{MAX_NESTING, Name, Scanner};

/// What the modern revision keeps in a request's metadata, and a session says once.
const OURS: [&str; 4] = [
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/logLevel",
];

/// The parameters of a request of this session with the metadata of the modern revision. Members of the client's own stay
/// as they came (rule M10); those that only the session may say are replaced. `None` if they are no object.
#[must_use]
pub fn params(handshake: &Handshake, level: Option<Level>, params: Option<&str>) -> Option<String> {
    let params = params.unwrap_or("{}");
    let Handshake { capabilities, info, .. } = handshake;
    let info_len = info.as_ref().map_or(0, |info| info.len());
    let mut out = String::with_capacity(params.len() + capabilities.len() + info_len + 256);
    out.push_str("{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"");
    out.push_str(PROTOCOL_VERSION);
    out.push_str("\",\"io.modelcontextprotocol/clientCapabilities\":");
    out.push_str(capabilities);
    if let Some(info) = info {
        out.push_str(",\"io.modelcontextprotocol/clientInfo\":");
        out.push_str(info);
    }
    if let Some(level) = level {
        out.push_str(",\"io.modelcontextprotocol/logLevel\":\"");
        out.push_str(level.name());
        out.push('"');
    }
    let mut metas = 0;
    let mut meta = None;
    let mut rest = String::new();
    let mut scanner = Scanner::new(params, MAX_NESTING);
    let read = scanner.object(|name, scanner| {
        let value = scanner.value()?;
        if name.is("_meta") {
            metas += 1;
            meta = Some(value);
        } else {
            rest.push(',');
            rest.push_str(name.quoted());
            rest.push(':');
            rest.push_str(value);
        }
        Ok(())
    });
    read.and_then(|()| scanner.end()).ok().filter(|()| metas <= 1)?;
    if let Some(meta) = meta {
        let mut scanner = Scanner::new(meta, MAX_NESTING);
        let read = scanner.object(|name, scanner| {
            let value = scanner.value()?;
            if name.among(&OURS) == OURS.len() {
                out.push(',');
                out.push_str(name.quoted());
                out.push(':');
                out.push_str(value);
            }
            Ok(())
        });
        read.ok()?;
    }
    out.push('}');
    out.push_str(&rest);
    out.push('}');
    Some(out)
}

/// An object without the members that `drop` names; `None` if `json` is none.
pub(super) fn without(json: &str, drop: impl Fn(Name<'_>) -> bool) -> Option<String> {
    let mut out = String::with_capacity(json.len());
    out.push('{');
    let mut scanner = Scanner::new(json, MAX_NESTING);
    let copied = scanner.object(|name, scanner| {
        let value = scanner.value()?;
        if !drop(name) {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(name.quoted());
            out.push(':');
            out.push_str(value);
        }
        Ok(())
    });
    out.push('}');
    copied.is_ok().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legacy::Revision;
    use crate::rpc::request_meta;

    fn handshake() -> Handshake {
        Handshake {
            revision: Revision::LATEST,
            capabilities: r#"{"sampling":{}}"#.into(),
            info: Some(r#"{"name":"c","version":"1"}"#.into()),
        }
    }

    #[test]
    fn a_request_gets_what_its_session_knows_and_keeps_what_it_said() {
        let came = r#"{"name":"t","_meta":{"progressToken":7,"x/y":[1],"io.modelcontextprotocol/protocolVersion":"1"},"arguments":{"a":1}}"#;
        let params = params(&handshake(), Some(Level::Warning), Some(came)).expect("an object");
        assert_eq!(
            params,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/logLevel":"warning","progressToken":7,"x/y":[1]},"name":"t","arguments":{"a":1}}"#
        );
        let raw = serde_json::from_str(&params).expect("JSON");
        let meta = request_meta("tools/call", Some(raw)).expect("what the modern revision wants");
        assert_eq!(meta.client_capabilities, r#"{"sampling":{}}"#);
        assert!(meta.progress_token.is_some());
    }

    #[test]
    fn parameters_that_are_no_object_are_refused() {
        assert!(params(&handshake(), None, None).is_some(), "none is an empty object");
        for bad in ["[]", "7", r#"{"_meta":7}"#, r#"{"_meta":{},"_meta":{}}"#] {
            assert_eq!(params(&handshake(), None, Some(bad)), None, "{bad}");
        }
    }
}
