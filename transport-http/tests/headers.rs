//! The header rules, table by table, and the properties of their codecs.

use proptest::prelude::*;
use serde_json::{Value, json};
use steady_http::headers::{
    self, Access, Authority, BadAuthority, BadEncoding, CHECK_ORDER, HeaderError, Host, ParamHeader, ParamKind,
    SchemaFault,
};

type Line<'a> = (&'a str, &'a [u8]);

/// Status and code of an outcome; 200 for a pass.
fn answer(outcome: Result<(), HeaderError>) -> (u16, Option<i32>) {
    outcome.map_or_else(|error| (error.status(), error.code()), |()| (200, None))
}

const PASS: (u16, Option<i32>) = (200, None);
const MISMATCH: (u16, Option<i32>) = (400, Some(-32020));
const FORBIDDEN: (u16, Option<i32>) = (403, None);

#[test]
fn the_order_of_checks_is_the_one_that_passes_the_suite() {
    let answers: Vec<_> = CHECK_ORDER.iter().map(|check| (check.status(), check.code())).collect();
    let expected = [
        (403, None),
        (400, Some(-32700)),
        (400, Some(-32602)),
        (400, Some(-32020)),
        (400, Some(-32022)),
        (400, Some(-32020)),
        (404, Some(-32601)),
        (400, Some(-32021)),
    ];
    assert_eq!(answers, expected);
    assert!(CHECK_ORDER.is_sorted(), "the variants are declared in this order");
}

#[test]
fn the_version_header_equals_the_body() {
    let name = "mcp-protocol-VERSION";
    let table: [(&[Line<'_>], _); 9] = [
        (&[(name, b"2026-07-28")], PASS),
        (&[(name, b" \t2026-07-28  ")], PASS),
        (&[("Other", b"2026-07-28")], MISMATCH),
        (&[], MISMATCH),
        (&[(name, b"2025-11-25")], MISMATCH),
        (&[(name, b"")], MISMATCH),
        (&[(name, b"2026-07-28"), ("MCP-Protocol-Version", b"2026-07-28")], MISMATCH),
        (&[(name, b"2026-07-28\x7f")], MISMATCH),
        (&[(name, "2026-07-28\u{e9}".as_bytes())], MISMATCH),
    ];
    for (lines, expected) in table {
        assert_eq!(answer(headers::check_version(lines, "2026-07-28")), expected, "{lines:?}");
    }
    let supported = ["2026-07-28"];
    assert_eq!(answer(headers::check_supported("2026-07-28", &supported)), PASS);
    assert_eq!(answer(headers::check_supported("v999.0.0", &supported)), (400, Some(-32022)));
}

#[test]
fn the_method_header_equals_the_body_with_case() {
    let line = [("MCP-METHOD", "tools/list")];
    assert_eq!(answer(headers::check_method(&line, "tools/list")), PASS);
    assert_eq!(answer(headers::check_method(&line, "tools/call")), MISMATCH);
    assert_eq!(answer(headers::check_method(&line, "Tools/List")), MISMATCH);
    let encoded = [("Mcp-Method", "=?base64?dG9vbHMvbGlzdA==?=")];
    assert_eq!(answer(headers::check_method(&encoded, "tools/list")), MISMATCH, "no encoded form");
}

#[test]
fn which_methods_need_a_name_and_from_where() {
    let table = [
        ("tools/call", Some("name")),
        ("prompts/get", Some("name")),
        ("resources/read", Some("uri")),
        ("tasks/get", Some("taskId")),
        ("tasks/update", Some("taskId")),
        ("tasks/cancel", Some("taskId")),
        ("tasks/list", None),
        ("tools/list", None),
        ("subscriptions/listen", None),
        ("server/discover", None),
    ];
    for (method, param) in table {
        assert_eq!(headers::name_param(method), param, "{method}");
    }
}

#[test]
fn the_name_header_is_decoded_and_compared() {
    let encoded = headers::encode_value("naïve");
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<&'a str>, (u16, Option<i32>));
    let table: [Case<'_>; 12] = [
        ("tools/call", &[("mcp-name", "add")], Some("add"), PASS),
        ("tools/call", &[("mcp-name", "Add")], Some("add"), MISMATCH),
        ("tools/call", &[], Some("add"), MISMATCH),
        ("tools/call", &[("mcp-name", "add")], None, MISMATCH),
        ("tools/call", &[("mcp-name", &encoded)], Some("naïve"), PASS),
        ("tools/call", &[("mcp-name", &encoded)], Some(&encoded), MISMATCH),
        ("tools/call", &[("mcp-name", "=?base64?YWRk?=")], Some("add"), PASS),
        ("tools/call", &[("mcp-name", "=?base64?YWRk")], Some("=?base64?YWRk"), PASS),
        ("tools/call", &[("mcp-name", "=?base64?YQ=?=")], Some("a"), MISMATCH),
        ("resources/read", &[("mcp-name", "file:///a%20b?id=1")], Some("file:///a%20b?id=1"), PASS),
        ("tasks/get", &[("mcp-name", "t1")], Some("t2"), MISMATCH),
        ("tools/list", &[("mcp-name", "whatever")], None, PASS),
    ];
    for (method, lines, value, expected) in table {
        assert_eq!(answer(headers::check_name(lines, method, value)), expected, "{method} {lines:?} {value:?}");
    }
}

#[test]
fn values_are_encoded_when_they_are_not_plain() {
    let table = [
        ("us-west1", "us-west1"),
        ("Seattle, WA", "Seattle, WA"),
        ("", ""),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("a\tb", "=?base64?YQli?="),
        ("=?BASE64?YQ==?=", "=?BASE64?YQ==?="),
    ];
    for (value, expected) in table {
        assert_eq!(headers::encode_value(value), expected, "{value:?}");
    }
    assert_eq!(headers::decode_value("=?base64??=").as_deref(), Ok(""));
    assert_eq!(headers::decode_value("=?BASE64?YQ==?=").as_deref(), Ok("=?BASE64?YQ==?="));
    for bad in ["=?base64?YQ?=", "=?base64?YQ===?=", "=?base64?Y-__?=", "=?base64?/w==?=", "=?base64? YQ==?="] {
        assert_eq!(headers::decode_value(bad), Err(BadEncoding), "{bad:?}");
    }
}

#[test]
fn authorities_are_read_strictly() {
    let name = |name: &str| Host::Name(name.into());
    let good = [
        ("localhost", name("localhost"), None),
        ("LocalHost.:80", name("localhost"), Some(80)),
        ("127.0.0.1:8080", Host::V4([127, 0, 0, 1].into()), Some(8080)),
        ("[::1]", Host::V6(1.into()), None),
        ("[::1]:65535", Host::V6(1.into()), Some(65535)),
        ("[0:0:0:0:0:0:0:1]:", Host::V6(1.into()), None),
        ("xn--bcher-kva.example", name("xn--bcher-kva.example"), None),
        ("1a.example1", name("1a.example1"), None),
    ];
    for (text, host, port) in good {
        assert_eq!(Authority::parse(text), Ok(Authority { host, port }), "{text}");
    }
    let bad = [
        "",
        ".",
        ":80",
        "::1",
        "[::1",
        "::1]",
        "[::1]80",
        "[::1%25lo]",
        "[localhost]",
        "[127.0.0.1]",
        "localhost:65536",
        "localhost:+80",
        "localhost:80:80",
        "user@localhost",
        "localhost/",
        "local host",
        "a..b",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0x7f000001",
        "127.0.0.0x1",
        "0177.0.0.1",
        "127.0.0.1.",
        "localhost, evil",
        "*",
    ];
    for text in bad {
        assert_eq!(Authority::parse(text), Err(BadAuthority), "{text:?}");
    }
}

#[test]
fn only_loopback_passes_by_default() {
    let access = Access::default();
    let host = |host: &str| answer(access.check(&[("host", host)], None));
    for good in ["localhost", "localhost:1", "127.0.0.1:8080", "127.9.9.9", "[::1]:3000", "LOCALHOST"] {
        assert_eq!(host(good), PASS, "{good}");
    }
    for bad in [
        "evil.example.com",
        "localhost.evil.com",
        "evil.localhost.com",
        "0.0.0.0",
        "[::]",
        "10.0.0.1",
        "",
        "[::ffff:10.0.0.1]",
    ] {
        assert_eq!(host(bad), FORBIDDEN, "{bad}");
    }
    let origin = |origin: &str| answer(access.check(&[("Host", "localhost"), ("Origin", origin)], None));
    for good in ["http://localhost", "https://localhost:8443", "http://127.0.0.1:3000", "http://[::1]:80"] {
        assert_eq!(origin(good), PASS, "{good}");
    }
    let bad = [
        "null",
        "",
        "http://evil.example.com",
        "http://localhost.evil.com",
        "http://localhost@evil.com",
        "localhost",
        "file://",
        "ftp://localhost",
        "http://localhost/",
        "http://localhost http://evil.com",
        "http://localhost, null",
        "//localhost",
        "://localhost",
        "http:/localhost",
        "http://localhost:99999",
    ];
    for bad in bad {
        assert_eq!(origin(bad), FORBIDDEN, "{bad}");
    }
}

#[test]
fn every_given_host_must_pass_and_one_must_be_there() {
    let access = Access::loopback();
    let none: [(&str, &str); 0] = [];
    assert_eq!(answer(access.check(&none, None)), FORBIDDEN);
    assert_eq!(answer(access.check(&none, Some("localhost:1"))), PASS);
    assert_eq!(answer(access.check(&none, Some("evil.com"))), FORBIDDEN);
    assert_eq!(answer(access.check(&[("Host", "localhost")], Some("evil.com"))), FORBIDDEN);
    assert_eq!(answer(access.check(&[("Host", "evil.com")], Some("localhost"))), FORBIDDEN);
    let twice = [("Host", "localhost"), ("Host", "localhost")];
    assert_eq!(answer(access.check(&twice, None)), FORBIDDEN);
    let twice = [("Host", "localhost"), ("Origin", "http://localhost"), ("Origin", "http://localhost")];
    assert_eq!(answer(access.check(&twice, None)), FORBIDDEN);
}

#[test]
fn what_is_allowed_passes_and_nothing_else() {
    let access = Access::nothing()
        .allow_host("mcp.example.com")
        .and_then(|access| access.allow_host("[2001:db8::1]:8080"))
        .and_then(|access| access.allow_origin("https://app.example.com:443"))
        .and_then(|access| access.allow_origin("vscode-webview://abc-1"))
        .unwrap();
    let check = |host: &str, origin: &str| answer(access.check(&[("Host", host), ("Origin", origin)], None));
    assert_eq!(check("MCP.example.com:444", "https://APP.example.com"), PASS);
    assert_eq!(check("[2001:db8:0::1]:8080", "vscode-webview://abc-1"), PASS);
    assert_eq!(check("[2001:db8::1]:8081", "https://app.example.com"), FORBIDDEN);
    assert_eq!(check("mcp.example.com", "http://app.example.com"), FORBIDDEN);
    assert_eq!(check("mcp.example.com", "https://app.example.com:444"), FORBIDDEN);
    assert_eq!(check("localhost", "https://app.example.com"), FORBIDDEN);
    assert_eq!(check("mcp.example.com", "http://localhost"), FORBIDDEN);
    assert_eq!(Access::nothing().allow_origin("null"), Err(BadAuthority));
    assert_eq!(Access::nothing().allow_host("*"), Err(BadAuthority));
    let proxied = Access::nothing().allow_any_host();
    assert_eq!(answer(proxied.check(&[("Host", "anything.example")], None)), PASS);
    assert_eq!(answer(proxied.check(&[("Origin", "http://localhost")], None)), FORBIDDEN);
}

fn property(annotation: &Value, schema_type: &Value) -> Value {
    json!({"type": "object", "properties": {"p": {"type": schema_type, "x-mcp-header": annotation}}})
}

fn declared() -> Vec<ParamHeader> {
    let schema = json!({
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "nested": {"type": "object", "properties": {"count": {"type": ["integer", "null"], "x-mcp-header": "Count"}}},
            "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
            "x-mcp-header": {"type": "string"},
            "free": {"type": "number", "default": {"x-mcp-header": "not a schema"}},
        },
    });
    headers::param_headers(&schema).expect("a valid schema")
}

#[test]
fn annotations_are_read_from_the_schema() {
    let mut found: Vec<_> =
        declared().iter().map(|param| (param.header().to_owned(), param.path().join("."), param.kind())).collect();
    found.sort();
    let expected = [
        ("Mcp-Param-Count", "nested.count", ParamKind::Integer),
        ("Mcp-Param-Dry-Run", "dry", ParamKind::Boolean),
        ("Mcp-Param-Region", "region", ParamKind::String),
    ];
    assert_eq!(found, expected.map(|(header, path, kind)| (header.to_owned(), path.to_owned(), kind)));
}

#[test]
fn invalid_annotations_make_the_tool_unusable() {
    let string = json!("string");
    for name in [json!(""), json!("a b"), json!("a:b"), json!("a\r\nb"), json!("é"), json!(7), json!(null)] {
        assert_eq!(headers::param_headers(&property(&name, &string)), Err(SchemaFault::BadName), "{name}");
    }
    for kind in
        [json!("number"), json!("object"), json!("array"), json!("null"), json!(["string", "integer"]), json!([])]
    {
        let fault = headers::param_headers(&property(&json!("A"), &kind));
        assert_eq!(fault, Err(SchemaFault::BadType { name: "A".into() }), "{kind}");
    }
    let marked = json!({"type": "string", "x-mcp-header": "A"});
    let unreachable = [
        marked.clone(),
        json!({"properties": {"list": {"type": "array", "items": marked}}}),
        json!({"properties": {"list": {"type": "array", "items": {"properties": {"p": marked}}}}}),
        json!({"anyOf": [{"properties": {"p": marked}}]}),
        json!({"if": {"properties": {"p": marked}}}),
        json!({"not": marked}),
        json!({"$defs": {"d": marked}}),
        json!({"patternProperties": {".*": marked}}),
        json!({"additionalProperties": marked}),
    ];
    for schema in unreachable {
        assert_eq!(headers::param_headers(&schema), Err(SchemaFault::Unreachable), "{schema}");
    }
    let twice = json!({"properties": {"a": {"type": "string", "x-mcp-header": "Id"}, "b": {"type": "string", "x-mcp-header": "ID"}}});
    assert_eq!(headers::param_headers(&twice), Err(SchemaFault::Repeated { name: "ID".into() }));
    let deep = (0..200).fold(json!({}), |inner, _| json!({"properties": {"p": inner}}));
    assert_eq!(headers::param_headers(&deep), Err(SchemaFault::TooDeep));
}

#[test]
fn a_client_mirrors_its_arguments() {
    let arguments = json!({"region": " eu ", "nested": {"count": 42.0}, "dry": null, "free": 1.5});
    let mut lines = headers::mirror_params(&declared(), &arguments).unwrap();
    lines.sort();
    let lines: Vec<_> = lines.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(lines, [("Mcp-Param-Count", "42"), ("Mcp-Param-Region", "=?base64?IGV1IA==?=")]);
    for count in [json!(9_007_199_254_740_992_i64), json!(1.5), json!([1]), json!({})] {
        let arguments = json!({"nested": {"count": count}});
        let error = headers::mirror_params(&declared(), &arguments).unwrap_err();
        assert_eq!(&*error.header, "Mcp-Param-Count", "{count}");
    }
}

#[test]
fn a_server_compares_mirrored_parameters_with_the_body() {
    let region = |value: &str| vec![("mcp-param-region".to_owned(), value.to_owned())];
    let count = |value: &str| vec![("Mcp-Param-Count".to_owned(), value.to_owned())];
    let dry = |value: &str| vec![("Mcp-Param-Dry-Run".to_owned(), value.to_owned())];
    let number = |value: Value| json!({"nested": {"count": value}});
    let table = [
        (vec![], json!({}), PASS),
        (vec![], json!({"region": null, "dry": null}), PASS),
        (vec![], Value::Null, PASS),
        (region("eu"), json!({"region": "eu"}), PASS),
        (region("=?base64?ZXU=?="), json!({"region": "eu"}), PASS),
        (region("=?base64?ZXU?="), json!({"region": "eu"}), MISMATCH),
        (region("EU"), json!({"region": "eu"}), MISMATCH),
        (region("eu"), json!({"region": null}), MISMATCH),
        (region("eu"), json!({}), MISMATCH),
        (vec![], json!({"region": "eu"}), MISMATCH),
        (region("e\u{7f}u"), json!({"region": "e\u{7f}u"}), MISMATCH),
        (region(""), json!({"region": ""}), PASS),
        (count("42"), number(json!(42)), PASS),
        (count("42.0"), number(json!(42)), PASS),
        (count("42"), number(json!(42.0)), PASS),
        (count("4.2e1"), number(json!(42)), PASS),
        (count("420e-1"), number(json!(42)), PASS),
        (count("-7"), number(json!(-7)), PASS),
        (count("-0"), number(json!(0)), PASS),
        (count("9007199254740991"), number(json!(9_007_199_254_740_991_i64)), PASS),
        (count("9007199254740993"), number(json!(9_007_199_254_740_992_i64)), MISMATCH),
        (count("42.5"), number(json!(42)), MISMATCH),
        (count("042"), number(json!(42)), MISMATCH),
        (count("+42"), number(json!(42)), MISMATCH),
        (count("42."), number(json!(42)), MISMATCH),
        (count("0x2a"), number(json!(42)), MISMATCH),
        (count("1e999999999"), number(json!(1)), MISMATCH),
        (count("1e99999999999"), number(json!(1)), MISMATCH),
        (count("42"), number(json!("42")), PASS),
        (dry("true"), json!({"dry": true}), PASS),
        (dry("True"), json!({"dry": true}), MISMATCH),
        (dry("false"), json!({"dry": true}), MISMATCH),
        (vec![("Mcp-Param-Unknown".to_owned(), "x".to_owned())], json!({}), PASS),
    ];
    for (lines, arguments, expected) in table {
        let outcome = headers::check_params(lines.as_slice(), &declared(), &arguments);
        assert_eq!(answer(outcome), expected, "{lines:?} {arguments}");
    }
    let twice = [region("eu"), region("eu")].concat();
    let outcome = headers::check_params(twice.as_slice(), &declared(), &json!({"region": "eu"}));
    assert_eq!(answer(outcome), MISMATCH);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn encode_then_decode_is_the_identity(value in "\\PC{0,12}|(=\\?base64\\?)?[\\x00-\\x7f]{0,8}(\\?=)?|[ \\t]{0,3}é?") {
        let encoded = headers::encode_value(&value);
        prop_assert!(encoded.bytes().all(|byte| matches!(byte, b' '..=b'~')));
        prop_assert_eq!(encoded.trim(), &*encoded);
        let decoded = headers::decode_value(&encoded).map(String::from);
        prop_assert_eq!(decoded, Ok(value));
    }

    #[test]
    fn what_a_client_mirrors_passes_the_server(
        region in prop::option::of("\\PC{0,8}"),
        count in prop::option::of(-9_007_199_254_740_991_i64..=9_007_199_254_740_991),
        dry in prop::option::of(any::<bool>()),
    ) {
        let arguments = json!({"region": region, "nested": {"count": count}, "dry": dry});
        let lines = headers::mirror_params(&declared(), &arguments).unwrap();
        let lines: Vec<(&str, &str)> = lines.iter().map(|(name, value)| (&**name, &**value)).collect();
        prop_assert_eq!(headers::check_params(lines.as_slice(), &declared(), &arguments), Ok(()));
    }

    #[test]
    fn arbitrary_values_never_panic(value in prop::collection::vec(any::<u8>(), 0..24), text in "[\\[\\]:.0-9a-fx/@ -]{0,16}") {
        let lines = [("Host", value.as_slice()), ("Origin", &value), ("Mcp-Name", &value), ("Mcp-Param-Count", &value)];
        let _ = Access::loopback().check(&lines, Some(&text));
        let _ = headers::check_name(&lines, "tools/call", Some("x"));
        let _ = headers::check_params(&lines, &declared(), &json!({"nested": {"count": 1}}));
        let _ = Authority::parse(&text);
    }

    #[test]
    fn numbers_compare_by_value(number in -1_000_000_i64..1_000_000, zeros in 0_usize..6) {
        let arguments = json!({"nested": {"count": number}});
        for text in [format!("{number}.{:0<1$}", 0, zeros + 1), format!("{number}{}e-{zeros}", "0".repeat(zeros))] {
            // `0` followed by zeros is no JSON number.
            if number != 0 {
                let lines = [("Mcp-Param-Count", text.as_str())];
                prop_assert_eq!(headers::check_params(&lines, &declared(), &arguments), Ok(()), "{}", text);
            }
        }
    }
}
