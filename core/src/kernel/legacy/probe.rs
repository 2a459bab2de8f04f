//! What the first messages on a link say of its server: the probe, its answer, the answer to a handshake.

use alloc::string::String;

use crate::id::RequestId;
use crate::legacy::Revision;
use crate::rpc::{self, Body, Message, PROTOCOL_VERSION, code, members, method, text};

/// The loop's own first request.
#[derive(Clone)]
pub(super) struct Probe {
    pub(super) id: RequestId,
    /// What the client says of itself, JSON texts.
    pub(super) capabilities: String,
    pub(super) info: String,
}

/// What an initialize result is as an answer to `server/discover`; or the version that is not spoken here.
pub(super) fn discovered(result: &str) -> Result<(Revision, String), String> {
    let names = ["protocolVersion", "capabilities", "serverInfo", "instructions"];
    let [version, capabilities, info, instructions] = members(result, &names).unwrap_or_default();
    let version = version.and_then(text).unwrap_or_default();
    let revision = Revision::of(&version).ok_or_else(|| String::from(&*version))?;
    let mut out = alloc::format!(
        "{{\"resultType\":\"complete\",\"supportedVersions\":[\"{PROTOCOL_VERSION}\"],\"capabilities\":{},\"ttlMs\":0,\"cacheScope\":\"private\"",
        capabilities.unwrap_or("{}")
    );
    if let Some(instructions) = instructions {
        out.push_str(",\"instructions\":");
        out.push_str(instructions);
    }
    if let Some(info) = info {
        out.push_str(",\"_meta\":{\"io.modelcontextprotocol/serverInfo\":");
        out.push_str(info);
        out.push('}');
    }
    out.push('}');
    Ok((revision, out))
}

/// Whether only a modern server answers the probe so.
pub(super) fn is_modern(body: &Body<'_>) -> bool {
    match body {
        Body::Result(result) => members(result.get(), &["supportedVersions"]).is_some_and(|[named]| named.is_some()),
        Body::Error(error) => {
            let [number, data] = members(error.get(), &["code", "data"]).unwrap_or_default();
            let supported = data.and_then(|data| members(data, &["supported"])).and_then(|[supported]| supported);
            match number.and_then(|number| number.parse().ok()) {
                Some(code::HEADER_MISMATCH | code::MISSING_CAPABILITY) => true,
                // One that names older revisions only can be spoken to by a handshake only.
                Some(code::UNSUPPORTED_VERSION) => !supported.is_some_and(|supported| {
                    !supported.contains(PROTOCOL_VERSION)
                        && Revision::NAMES.iter().any(|name| supported.contains(&alloc::format!("\"{name}\"")))
                }),
                Some(_) | None => false,
            }
        }
    }
}

/// Reads the loop's probe.
pub(super) fn probe(message: &str) -> Option<Probe> {
    let Ok(Message::Request { id, method, params }) = rpc::parse(message) else { return None };
    if method != method::DISCOVER {
        return None;
    }
    let [meta] = members(params?.get(), &["_meta"])?;
    let names = ["io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/clientInfo"];
    let [capabilities, info] = members(meta?, &names)?;
    Some(Probe { id, capabilities: capabilities?.into(), info: info?.into() })
}
