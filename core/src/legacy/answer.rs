//! Results and errors of the modern revision, as the older ones have them.

use alloc::string::String;
use alloc::vec::Vec;

use serde_json::value::RawValue;

use super::RESOURCE_NOT_FOUND;
use super::request::without;
use crate::rpc::scan::{MAX_NESTING, Name, Scanner};
use crate::rpc::{RpcError, code, members};

/// Members of a result that only the modern revision has (rule M4).
const MODERN: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];
/// Members of its `_meta` that only the modern revision has.
const MODERN_META: [&str; 2] = ["io.modelcontextprotocol/serverInfo", "io.modelcontextprotocol/subscriptionId"];

/// A final result without what the older revisions do not know. Everything else stays as it is.
#[must_use]
pub fn result(method: &str, json: String) -> String {
    let mut out = String::with_capacity(json.len());
    out.push('{');
    let mut scanner = Scanner::new(&json, MAX_NESTING);
    let copied = scanner.object(|name, scanner| {
        let value = scanner.value()?;
        member(&mut out, method, name, value);
        Ok(())
    });
    out.push('}');
    // A result that is no object, or nests too deep to be looked at, is the handler's own affair.
    if copied.is_ok() { out } else { json }
}

fn member(out: &mut String, method: &str, name: Name<'_>, value: &str) {
    if name.among(&MODERN) < MODERN.len() {
        return;
    }
    let mut write = |value: &str| {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(name.quoted());
        out.push(':');
        out.push_str(value);
    };
    if name.is("_meta") {
        match without(value, |name| name.among(&MODERN_META) < MODERN_META.len()) {
            Some(meta) if meta == "{}" => {}
            Some(meta) => write(&meta),
            None => write(value),
        }
    } else if method == "tools/call" && name.is("structuredContent") {
        // It may be any value in the modern revision, and an object only in the older ones. Its text stands in `content`.
        if value.starts_with('{') {
            write(value);
        }
    } else if method == "tools/list" && name.is("tools") && value.contains("\"outputSchema\"") {
        write(tools(value).as_deref().unwrap_or(value));
    } else {
        write(value);
    }
}

/// Tools without the output schemas that are none of an object, which the older revisions refuse.
fn tools(json: &str) -> Option<String> {
    let tools: Vec<&RawValue> = serde_json::from_str(json).ok()?;
    let mut out = String::with_capacity(json.len());
    out.push('[');
    for tool in tools {
        let tool = tool.get();
        let [schema] = members(tool, &["outputSchema"])?;
        let fits =
            schema.is_none_or(|schema| members(schema, &["type"]).is_some_and(|[kind]| kind == Some("\"object\"")));
        if out.len() > 1 {
            out.push(',');
        }
        if fits { out.push_str(tool) } else { out.push_str(&without(tool, |name| name.is("outputSchema"))?) }
    }
    out.push(']');
    Some(out)
}

/// An error of a handler, as the older revisions number it: a resource that does not exist has a code of its own there.
/// `params` are those of the request: one that names no resource is a bad request in every revision.
#[must_use]
pub fn error(method: &str, params: &str, error: RpcError) -> RpcError {
    let names_one = || members(params, &["uri"]).is_some_and(|[uri]| uri.is_some_and(|uri| uri.starts_with('"')));
    if method == "resources/read" && error.code == code::INVALID_PARAMS && names_one() {
        return RpcError { code: RESOURCE_NOT_FOUND, ..error };
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_loses_what_only_the_modern_revision_has() {
        let cases = [
            (
                "tools/call",
                r#"{"resultType":"complete","content":[{"ttlMs":1}],"structuredContent":{"a":1},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#,
                r#"{"content":[{"ttlMs":1}],"structuredContent":{"a":1}}"#,
            ),
            (
                "tools/call",
                r#"{"content":[],"structuredContent":[1],"_meta":{"x":1}}"#,
                r#"{"content":[],"_meta":{"x":1}}"#,
            ),
            (
                "resources/list",
                r#"{ "resources" : [] , "ttlMs":5,"cacheScope":"public","nextCursor":"c"}"#,
                r#"{"resources":[],"nextCursor":"c"}"#,
            ),
            (
                "tools/list",
                r#"{"tools":[{"name":"a","outputSchema":{"type":"array"}},{"name":"b","outputSchema":{"type":"object"}},{"name":"c"}]}"#,
                r#"{"tools":[{"name":"a"},{"name":"b","outputSchema":{"type":"object"}},{"name":"c"}]}"#,
            ),
            ("tools/list", r#"{"resultType":"complete"}"#, "{}"),
            ("x", "[1]", "[1]"),
        ];
        for (method, modern, legacy) in cases {
            assert_eq!(result(method, modern.into()), legacy);
        }
    }

    #[test]
    fn a_resource_that_does_not_exist_has_a_code_of_its_own() {
        let missing = RpcError::invalid_params("no such resource").with_data(r#"{"uri":"x:y"}"#);
        let told = error("resources/read", r#"{"uri":"x:y"}"#, missing.clone());
        assert_eq!((told.code, told.data), (-32002, missing.data.clone()));
        assert_eq!(error("tools/call", r#"{"uri":"x:y"}"#, missing.clone()), missing);
        assert_eq!(error("resources/read", "{}", missing.clone()), missing, "it names none");
    }
}
