//! What is read as a message, against serde_json as the judge of what is JSON.

use proptest::prelude::*;
use serde_json::value::RawValue;
use steady_core::id::{ProgressToken, RequestId};
use steady_core::rpc::{
    BadMessage, Body, MAX_NESTING, Message, MetaError, RpcError, code, encode, parse, parse_within, read_progress,
    request_meta,
};

fn with_params(params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#)
}

fn bad(text: &str) -> Option<BadMessage> {
    parse(text).err()
}

/// Arrays and objects in turn, `levels` of them.
fn nested(levels: usize, inner: &str) -> String {
    let open: String = (0..levels).map(|level| if level % 2 == 0 { "[" } else { "{\"a\":" }).collect();
    let close: String = (0..levels).rev().map(|level| if level % 2 == 0 { "]" } else { "}" }).collect();
    format!("{open}{inner}{close}")
}

#[test]
fn nesting_is_allowed_up_to_the_limit_and_not_beyond() {
    // The message is the first level.
    for inner in ["1", "[]", "{}"] {
        let levels = MAX_NESTING - 1 - usize::from(inner != "1");
        assert_eq!(bad(&with_params(&nested(levels, inner))), None, "{inner}");
        let deep = with_params(&nested(levels + 1, inner));
        assert_eq!(bad(&deep), Some(BadMessage::TooDeep { id: Some(1.into()) }), "{inner}");
    }
    assert!(parse_within(&with_params("[[]]"), 3).is_ok());
    assert!(matches!(parse_within(&with_params("[[]]"), 2), Err(BadMessage::TooDeep { .. })));
    assert!(parse_within(&with_params(&nested(MAX_NESTING, "1")), usize::MAX).is_err());
    assert!(parse_within("{}", 0).is_err());
}

#[test]
fn brackets_in_strings_and_in_breadth_are_no_nesting() {
    let text = "[{".repeat(1000);
    assert_eq!(bad(&with_params(&format!(r#"["{text}","\"{text}\\"]"#))), None);
    assert_eq!(bad(&with_params(&format!("[{}]", vec!["[[]],{}"; 1000].join(",")))), None);
}

#[test]
fn a_level_too_deep_says_under_which_id_and_never_answers_an_answer() {
    let deep = "[".repeat(200);
    let cases = [
        (format!(r#"{{"jsonrpc":"2.0","id":"a","method":"m","params":{deep}"#), Some(Some(RequestId::from("a")))),
        (format!(r#"{{"jsonrpc":"2.0","method":"m","params":{deep}"#), Some(None)),
        (format!(r#"{{"params":{deep}"#), Some(None)),
        (format!(r#"{{"id":1,"x":{deep}"#), Some(Some(1.into()))),
        (format!(r#"{{"id":null,"method":"m","params":{deep}"#), Some(None)),
        (format!(r#"{{"id":1,"id":2,"method":"m","params":{deep}"#), Some(None)),
        (format!(r#"{{"jsonrpc":"2.0","id":1,"result":{deep}"#), None),
        (format!(r#"{{"error":{deep}"#), None),
        (format!(r#"{{"result":1,"x":{deep}"#), None),
        (format!(r#"{{"method":"m","result":1,"params":{deep}"#), None),
        (format!(r#"{{"method":"m","error":1,"params":{deep}"#), None),
        (format!(r#"{{"x":{deep}{},"result":1}}"#, "]".repeat(200)), None),
    ];
    for (text, id) in cases {
        let expected = id.map_or(BadMessage::Answer, |id| BadMessage::TooDeep { id });
        assert_eq!(bad(&text), Some(expected.clone()), "{text}");
        assert_eq!(expected.code().is_some(), expected != BadMessage::Answer);
        let id = if let BadMessage::TooDeep { id } = &expected { id.as_ref() } else { None };
        assert_eq!(expected.id(), id);
    }
    assert_eq!(bad(&deep), Some(BadMessage::Batch));
}

#[test]
fn a_bracket_closes_its_own_kind_alone() {
    for params in ["[1}", "[[1}]", "[{\"a\":1]]", "{\"a\":1]", "{\"a\":[1}}", "[1}}", "{\"a\":1]]"] {
        assert_eq!(bad(&with_params(params)), Some(BadMessage::NotJson), "{params}");
    }
}

#[test]
fn a_number_has_one_sign_one_point_and_one_exponent() {
    for params in ["--1", "1..5", "1.5.5", "1ee5", "1Ee5", "1e--5", "1e+-5", "1e5e5", "-", "01", "1.", ".5", "1e"] {
        assert_eq!(bad(&with_params(params)), Some(BadMessage::NotJson), "{params}");
    }
    for params in ["-0", "-1.5e-5", "1E+5", "0.0e0"] {
        assert_eq!(bad(&with_params(params)), None, "{params}");
    }
}

#[test]
fn an_error_names_its_request_or_none() {
    for (id, expected) in [("5", Some(5.into())), ("null", None)] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{}}}}"#);
        let Ok(Message::Response { id, body: Body::Error(_) }) = parse(&text) else { panic!("{text}") };
        assert_eq!(id, expected);
    }
}

#[test]
fn members_may_stand_in_any_order_with_any_spelling_and_unknown_ones_survive_in_params() {
    let text = " \r\n{ \"extra\" : [ 1 , { } ] , \"params\" : { \"x-y\" : 1e5 , \"z\" : \"\\u00e9\" } ,\t\
                \"m\\u0065thod\" : \"a\\/b\" , \"id\" : -7 , \"jsonrpc\" : \"2.0\" } ";
    let Ok(Message::Request { id, method, params }) = parse(text) else { panic!("a request") };
    assert_eq!((id, &*method), (RequestId::Integer(-7), "a/b"));
    assert_eq!(params.map(RawValue::get), Some("{ \"x-y\" : 1e5 , \"z\" : \"\\u00e9\" }"), "M10");
}

#[test]
fn a_member_that_stands_twice_makes_the_message_bad() {
    let cases = [
        (r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}"#, BadMessage::Envelope),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{},"p\u0061rams":{}}"#, BadMessage::Envelope),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"result":{}}"#, BadMessage::Answer),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"result":{}}"#, BadMessage::Answer),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, BadMessage::Answer),
    ];
    for (text, expected) in cases {
        assert_eq!(bad(text), Some(expected), "{text}");
    }
}

#[test]
fn what_is_no_json_is_told_apart_from_what_is_no_message() {
    let not_json = [
        "{",
        "{}x",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{a:1}"#,
        r#"{"a":[1,]}"#,
        r#"{"a":[1}"#,
        r#"{"a":{"b":1]}"#,
        r#"{"a":01}"#,
        r#"{"a":-}"#,
        r#"{"a":1.}"#,
        r#"{"a":1e}"#,
        r#"{"a":.5}"#,
        r#"{"a":+1}"#,
        r#"{"a":nul}"#,
        r#"{"a":"\x"}"#,
        r#"{"a":"\u12g4"}"#,
        r#"{"a":"\u12"#,
        "{\"a\":\"\n\"}",
        "{\"a\":\"unfinished\\\"}",
        "[1,",
        "{\u{a0}}",
    ];
    for text in not_json {
        assert_eq!(bad(text), Some(BadMessage::NotJson), "{text}");
        assert!(serde_json::from_str::<&RawValue>(text).is_err(), "{text}");
    }
    for text in ["{}", r#"{"jsonrpc":"2.0","method":"\ud800"}"#] {
        assert_eq!(bad(text), Some(BadMessage::Envelope), "{text}");
    }
    for text in ["[]", " [1]", "[{}]"] {
        assert_eq!(bad(text), Some(BadMessage::Batch), "{text}");
    }
    for text in ["", "1", "null", "\"text\"", "\u{feff}{}", "log [1]", r#"{"result":"#, r#"[{"error":"#] {
        assert_eq!(bad(text), Some(BadMessage::Answer), "{text}");
    }
}

#[test]
fn metadata_is_read_wherever_it_stands_and_once() {
    const VERSION: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    const CAPABILITIES: &str = r#""io.modelcontextprotocol/clientCapabilities":{"roots":{}}"#;
    let read = |params: &str| {
        let raw: Box<RawValue> = serde_json::from_str(params).expect("JSON");
        request_meta("tools/call", Some(&raw)).map(|meta| meta.client_capabilities.to_owned())
    };
    for params in [
        format!(r#"{{"_meta":{{{VERSION},{CAPABILITIES}}},"_metadata":{{"_meta":1}}}}"#),
        format!(r#"{{"arguments":{{"_meta":{{}}}},"_m\u0065ta" : {{ {CAPABILITIES} , "x":[{{}}], {VERSION} }} }}"#),
        format!(r#"{{"_meta":{{{VERSION},{CAPABILITIES}}},"deep":{}}}"#, nested(MAX_NESTING - 1, "1")),
    ] {
        assert_eq!(read(&params).as_deref(), Ok(r#"{"roots":{}}"#), "{params}");
    }
    for params in [
        format!(r#"{{"_meta":{{{VERSION},{CAPABILITIES}}},"_meta":{{{VERSION},{CAPABILITIES}}}}}"#),
        format!(r#"{{"_meta":1,"_meta":{{{VERSION},{CAPABILITIES}}}}}"#),
        format!(r#"{{"_meta":{{{VERSION},{VERSION},{CAPABILITIES}}}}}"#),
        format!(r#"{{"_meta":{{{CAPABILITIES},"io.modelcontextprotocol/protocolVersion":1}}}}"#),
        format!(r#"{{"_meta":[{{{VERSION},{CAPABILITIES}}}]}}"#),
    ] {
        assert!(matches!(read(&params), Err(MetaError::Invalid(_))), "{params}");
    }
}

#[test]
fn a_call_is_read_and_its_progress_written_without_memory() {
    let call = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"n","arguments":{{"a":[1,{{"b":"\u00e9"}}]}},
            "_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":{{"roots":{{}}}},"progressToken":7}}}}}}"#
        )
    };
    for (id, expected) in [("7", 0), ("\"seven\"", 1)] {
        let text = call(id);
        let info = allocation_counter::measure(|| {
            let Ok(Message::Request { method, params, .. }) = parse(&text) else { panic!("{text}") };
            assert!(request_meta(&method, params).is_ok());
        });
        assert_eq!(info.count_total, expected, "{text}");
    }
    let (mut prefix, mut out) = (String::new(), Vec::with_capacity(512));
    encode::progress_prefix(&mut prefix, &ProgressToken(7.into()));
    let info = allocation_counter::measure(|| encode::progress(&mut out, &prefix, 1.25, Some(2.0), "a \"half\"\n"));
    assert_eq!(info.count_total, 0);
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn requests_and_notifications_have_the_parts_they_were_given() {
    let request = written(|out| encode::request(out, &"a".into(), "tools/call", "{\"x\":\n1}"));
    assert_eq!(request, r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"x": 1}}"#);
    let notification = written(|out| encode::notification(out, "notifications/x", "{}"));
    assert_eq!(notification, r#"{"jsonrpc":"2.0","method":"notifications/x","params":{}}"#);
}

#[test]
fn control_characters_have_their_shortest_spelling() {
    let text = written(|out| encode::string(out, "\n\r\t\u{1}\u{1f}\"\\/"));
    assert_eq!(text, r#""\n\r\t\u0001\u001f\"\\/""#);
}

#[test]
fn errors_have_the_codes_of_the_protocol() {
    let of_json_rpc =
        [code::PARSE_ERROR, code::INVALID_REQUEST, code::METHOD_NOT_FOUND, code::INVALID_PARAMS, code::INTERNAL_ERROR];
    assert_eq!(of_json_rpc, [-32700, -32600, -32601, -32602, -32603]);
    assert_eq!([code::HEADER_MISMATCH, code::MISSING_CAPABILITY, code::UNSUPPORTED_VERSION], [-32020, -32021, -32022]);
    assert_eq!([code::OVERLOADED, code::DEADLINE], [-31001, -31002], "M7: outside of the reserved range");
}

#[test]
fn an_unsupported_version_is_told_all_that_are_supported() {
    let error = RpcError::unsupported_version("2024-11-05", &["2026-07-28", "2027-01-01"]);
    assert_eq!(error.code, code::UNSUPPORTED_VERSION);
    let data = r#"{"supported":["2026-07-28","2027-01-01"],"requested":"2024-11-05"}"#;
    assert_eq!(error.data.as_deref(), Some(data));
}

/// JSON values, some with the members that matter.
fn json() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(|number| format!("{number:e}")),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<String>().prop_map(|text| serde_json::to_string(&text).expect("JSON")),
        Just("null".to_owned()),
    ];
    scalar.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(|items| format!("[{}]", items.join(" , "))),
            prop::collection::vec((any::<String>(), inner), 0..6).prop_map(|members| {
                let member = |(name, value)| format!("{}:\n{value}", serde_json::to_string(&name).expect("JSON"));
                format!("{{{}}}", members.into_iter().map(member).collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn every_json_is_read_and_lent_as_it_came(params in json()) {
        let text = with_params(&params);
        let Ok(Message::Request { params: read, .. }) = parse(&text) else { panic!("{text}") };
        prop_assert_eq!(read.map(RawValue::get), Some(params.as_str()));
        let text = format!(r#"{{"id":"x","result":{params},"jsonrpc":"2.0"}}"#);
        let Ok(Message::Response { body: Body::Result(read), .. }) = parse(&text) else { panic!("{text}") };
        prop_assert_eq!(read.get(), params.as_str());
    }

    /// A changed character makes both readers say no, or neither.
    #[test]
    fn serde_json_agrees_on_what_is_json(
        params in json(),
        at in any::<prop::sample::Index>(),
        with in prop_oneof![Just(None), "[\\x00-\\x7f]".prop_map(Some), any::<char>().prop_map(|c| Some(c.to_string()))],
    ) {
        let mut text = with_params(&params);
        let starts: Vec<usize> = text.char_indices().map(|(start, _)| start).collect();
        let start = starts[at.index(starts.len())];
        let end = text[start..].chars().next().map_or(start, |c| start + c.len_utf8());
        text.replace_range(start..end, with.as_deref().unwrap_or_default());
        let judged = serde_json::from_str::<&RawValue>(&text).is_ok();
        let object = text.trim_start().starts_with(['{', '[']);
        let unreadable = match bad(&text) {
            Some(BadMessage::NotJson) => true,
            Some(BadMessage::Answer) => !object || text.contains("\"result\"") || text.contains("\"error\""),
            Some(_) | None => false,
        };
        prop_assert_eq!(judged, !unreadable, "{}", text);
    }

    #[test]
    fn what_is_written_is_read_again(token in any::<String>(), value in any::<f64>(), message in any::<String>()) {
        let token = ProgressToken(token.chars().take(60).collect::<String>().as_str().into());
        let (mut prefix, mut out) = (String::new(), Vec::new());
        encode::progress_prefix(&mut prefix, &token);
        encode::progress(&mut out, &prefix, value, None, &message);
        let text = String::from_utf8(out).expect("UTF-8");
        let Ok(Message::Notification { params: Some(params), .. }) = parse(&text) else { panic!("{text}") };
        let read = read_progress(params.get()).map(|(token, value)| (token, value.value()));
        prop_assert_eq!(read, value.is_finite().then_some((token, value + 0.0)));
    }
}
