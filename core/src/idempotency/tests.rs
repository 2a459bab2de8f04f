//! Golden vectors, tables and properties of the idempotency decisions.

extern crate std;

use core::time::Duration;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::time::WallTime;

fn bytes(json: &str) -> Vec<u8> {
    canonical_arguments(json, &[]).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn problem(json: &str) -> (String, Problem) {
    let error = canonical_arguments(json, &[]).expect_err(json);
    (error.place.to_string(), error.problem)
}

fn same(a: &str, b: &str) -> bool {
    bytes(&format!("{{\"x\":{a}}}")) == bytes(&format!("{{\"x\":{b}}}"))
}

/// Frozen: a changed byte here means that keys in existing databases no longer match.
#[test]
fn golden_vectors_of_fp1() {
    assert_eq!(bytes("{}"), b"fp1oe");
    assert_eq!(
        bytes(r#" {"b":[null,true,false,"\u00e9"],"a":-1} "#),
        b"fp1os\0\0\0\0\0\0\0\x01ai\xff\xff\xff\xff\xff\xff\xff\xff\
          s\0\0\0\0\0\0\0\x01bantfs\0\0\0\0\0\0\0\x02\xc3\xa9ee"
    );
    assert_eq!(
        bytes(r#"{"n":[18446744073709551615,1.5,9223372036854775807,-0.0]}"#),
        b"fp1os\0\0\0\0\0\0\0\x01nau\xff\xff\xff\xff\xff\xff\xff\xffd\x3f\xf8\0\0\0\0\0\0\
          i\x7f\xff\xff\xff\xff\xff\xff\xffi\0\0\0\0\0\0\0\0ee"
    );
}

#[test]
fn spellings_of_one_number_are_equal() {
    for spelling in ["1.0", "1e0", "1E+0", "10e-1", "0.1e1", "1.000", "100e-2", "0.001e3"] {
        assert!(same("1", spelling), "{spelling}");
    }
    for zero in ["-0", "0.0", "-0.0", "0e9", "0e-99999999999999999999", "0.000e5"] {
        assert!(same("0", zero), "{zero}");
    }
    assert!(same("100", "1e2"));
    assert!(same("-9007199254740992", "-9007199254740992.0"));
    assert!(same("0.1", "1e-1"));
    assert!(same("1.5", "15e-1"));
}

#[test]
fn different_integers_differ() {
    assert!(!same("9007199254740992", "9007199254740993"));
    assert!(!same("9223372036854775807", "9223372036854775808"));
    assert!(!same("18446744073709551614", "18446744073709551615"));
    assert!(!same("-9223372036854775808", "-9223372036854775807"));
    assert!(!same("1", "\"1\""));
}

#[test]
fn numbers_that_would_be_rounded_are_refused() {
    let refused = |number: &str| problem(&format!("{{\"x\":{number}}}")).1;
    for number in ["18446744073709551616", "-9223372036854775809"] {
        assert_eq!(refused(number), Problem::IntegerRange, "{number}");
    }
    for number in ["9007199254740993.0", "1e16", "1e400", "-1e16", "1e99999999999999999999"] {
        assert_eq!(refused(number), Problem::DecimalRange, "{number}");
    }
    let rounded =
        ["1e-400", "9007199254740991.9", "0.99999999999999999999", "9007199254740993.5", "-1e-99999999999999999999"];
    for number in rounded {
        assert_eq!(refused(number), Problem::Rounded, "{number}");
    }
}

#[test]
fn absent_null_and_unnormalised_text_differ() {
    assert_ne!(bytes("{}"), bytes(r#"{"x":null}"#));
    assert!(!same(r#""\u00e9""#, r#""e\u0301""#));
    assert!(!same("[]", "{}"));
    assert!(!same(r#"["a","b"]"#, r#"["b","a"]"#));
    assert!(!same(r#"["ab",""]"#, r#"["a","b"]"#));
}

#[test]
fn spellings_of_one_text_are_equal() {
    assert!(same(
        r#""\u0041\/\ud83d\ude00\b\f\n\r\t\"\\""#,
        "\"A/😀\\u0008\\u000c\\u000A\\u000d\\u0009\\u0022\\u005c\""
    ));
}

#[test]
fn names_that_stand_twice_are_refused_where_they_stand() {
    assert_eq!(problem(r#"{"items":[1,{"a":1,"b":2,"\u0061":1}]}"#), ("/items/1/a".into(), Problem::Duplicate));
    assert_eq!(problem(r#"{"a":1,"a":1}"#), ("/a".into(), Problem::Duplicate));
}

#[test]
fn errors_name_the_place_and_hold_no_value() {
    let error = canonical_arguments(r#"{"items":[0,1,2,{"amount":18446744073709551616}]}"#, &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "argument /items/3/amount: the integer fits neither a signed nor an unsigned 64-bit integer: send it as a string"
    );
    assert_eq!(problem(r#"{"a/b":{"~":"\ud800"}}"#), ("/a~1b/~0".into(), Problem::Surrogate));
    assert_eq!(problem(r#"{"x":"\ud800\u0041"}"#).1, Problem::Surrogate);
    assert_eq!(problem(r#"{"x":"\udc00"}"#).1, Problem::Surrogate);
    let long = format!("{{\"{}\":1e400}}", "é".repeat(500));
    assert_eq!(problem(&long).0, format!("/{}…", "é".repeat(64)));
}

#[test]
fn text_that_is_not_json_is_refused() {
    let broken = [
        "",
        " ",
        "{",
        "{]",
        "{}x",
        "{} {}",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{,"a":1}"#,
        r#"{"a":[1,]}"#,
        r#"{"a":[1 2]}"#,
        r#"{"a":[1}}"#,
        r#"{"a":01}"#,
        r#"{"a":-}"#,
        r#"{"a":1.}"#,
        r#"{"a":.5}"#,
        r#"{"a":1e}"#,
        r#"{"a":+1}"#,
        r#"{"a":nul}"#,
        r#"{"a":NaN}"#,
        r#"{"a":"}"#,
        r#"{"a":"\x"}"#,
        r#"{"a":"\u00g0"}"#,
        "{\"a\":\"\n\"}",
        "{a:1}",
        "{\"a\":1}\0",
        "\u{feff}{}",
        r#"{"a":truefalse}"#,
        r#"{"a":1-2}"#,
        "{\"a\" 1}",
    ];
    for json in broken {
        assert!(matches!(problem(json).1, Problem::Syntax { .. }), "{json:?}");
        assert!(serde_json::from_str::<serde_json::Value>(json).is_err(), "{json:?} is JSON to serde_json");
    }
    assert_eq!(problem(r#"{"a":[0,1x]}"#), ("/a/1".into(), Problem::Syntax { offset: 9 }));
    assert_eq!(problem(r#"{"a":00}"#).1, Problem::Syntax { offset: 5 });
    for json in ["[]", "1", "null", "\"a\"", "true"] {
        assert_eq!(problem(json), (String::new(), Problem::NotAnObject), "{json}");
    }
}

#[test]
fn nesting_has_a_limit() {
    let nested = |arrays: usize| format!("{{\"x\":{}{}}}", "[".repeat(arrays), "]".repeat(arrays));
    assert!(canonical_arguments(&nested(MAX_DEPTH - 1), &[]).is_ok());
    assert_eq!(problem(&nested(MAX_DEPTH)).1, Problem::TooDeep);
    assert_eq!(problem(&nested(1_000_000)).1, Problem::TooDeep);
}

#[test]
fn only_top_level_members_are_excluded() {
    let excluded = |json| canonical_arguments(json, &["key", "_meta"]).unwrap();
    assert_eq!(excluded(r#"{"key":"k","a":{"key":1},"_meta":{"t":[1]}}"#), bytes(r#"{"a":{"key":1}}"#));
    assert_ne!(excluded(r#"{"a":{"key":1}}"#), excluded(r#"{"a":{"key":2}}"#));
    assert!(canonical_arguments(r#"{"key":1e400}"#, &["key"]).is_err(), "an excluded member is still checked");
}

#[test]
fn keys_are_visible_ascii_of_bounded_length() {
    assert!(Key::parse(&"k".repeat(255)).is_ok());
    assert_eq!(Key::parse(&"k".repeat(256)), Err(KeyError::TooLong { len: 256 }));
    assert_eq!(Key::parse(""), Err(KeyError::Empty));
    for (text, at) in [("a b", 1), ("\u{7f}", 0), ("aé", 1), ("k\n", 1), ("\0", 0)] {
        assert_eq!(Key::parse(text), Err(KeyError::Character { at }), "{text:?}");
    }
    assert!(Key::parse("!~").is_ok());
}

#[test]
fn a_key_and_each_place_are_named_in_errors_as_the_caller_wrote_them() {
    assert_eq!(Key::parse("order-7").unwrap().to_string(), "order-7");
    let names = [Source::Params, Source::Meta, Source::Header, Source::Argument].map(|place| place.to_string());
    assert!(names[0].ends_with(PARAM_NAME), "{names:?}");
    assert!(names[1].contains(META_NAME), "{names:?}");
    assert!(names[2].to_lowercase().contains(HEADER_NAME), "{names:?}");
    assert!(names[3].contains("argument"), "{names:?}");
}

#[test]
fn every_place_can_carry_the_key_and_every_pair_must_agree() {
    let build = |values: [Option<&'static str>; 4]| KeySources {
        params: values[0],
        meta: values[1],
        header: values[2],
        argument: values[3],
    };
    let places = [Source::Params, Source::Meta, Source::Header, Source::Argument];
    assert_eq!(find_key(&KeySources::default()), Ok(None));
    for first in 0..4 {
        let mut values = [None; 4];
        values[first] = Some("k");
        assert_eq!(find_key(&build(values)), Key::parse("k").map(Some));
        for second in first + 1..4 {
            values[second] = Some("k");
            assert_eq!(find_key(&build(values)), Key::parse("k").map(Some));
            values[second] = Some("other");
            let disagreement = KeyError::Disagree { first: places[first], second: places[second] };
            assert_eq!(find_key(&build(values)), Err(disagreement));
            values[second] = Some("");
            assert_eq!(find_key(&build(values)), Err(KeyError::Empty));
            values[second] = None;
        }
    }
}

#[test]
fn a_header_may_be_a_quoted_string() {
    let header = |value| find_key(&KeySources { header: Some(value), ..KeySources::default() });
    assert_eq!(header("\"a\\\"\\\\b\"").unwrap().unwrap().as_str(), "a\"\\b");
    for broken in ["\"", "\"a", "\"a\"b\"", "\"a\\\"", "\"a\\n\""] {
        assert_eq!(header(broken), Err(KeyError::Quoting), "{broken}");
    }
    assert_eq!(header("\"\""), Err(KeyError::Empty));
}

#[test]
fn the_table_of_verdicts() {
    let at = WallTime::from_unix_millis;
    let now = at(1_000);
    let record = |state, expires| Record { fingerprint: [1; 32], state, expires_at: at(expires) };
    let started = |until| State::Started { lease_until: at(until) };
    let in_flight = |millis| Verdict::InFlight { retry_after: Duration::from_millis(millis) };
    let table = [
        (record(State::Committed, 1_001), Verdict::Replay),
        (record(State::Committed, 1_000), Verdict::Expired),
        (record(State::Committed, i64::MIN), Verdict::Expired),
        (record(State::Rejected, 1_001), Verdict::Replay),
        (record(State::Rejected, 1_000), Verdict::Expired),
        (record(State::Expired, i64::MAX), Verdict::Expired),
        (record(State::InDoubt, i64::MAX), Verdict::InDoubt),
        (record(State::InDoubt, 0), Verdict::InDoubt),
        (record(started(1_001), 0), in_flight(1)),
        (record(started(i64::MAX), 0), in_flight(i64::MAX.unsigned_abs() - 1_000)),
        (record(started(1_000), i64::MAX), Verdict::InDoubt),
        (record(started(i64::MIN), i64::MAX), Verdict::InDoubt),
    ];
    assert_eq!(decide(None, &[1; 32], now), Verdict::Execute);
    for (stored, verdict) in table {
        assert_eq!(decide(Some(&stored), &[1; 32], now), verdict, "{stored:?}");
        assert_eq!(decide(Some(&stored), &[2; 32], now), Verdict::Mismatch, "{stored:?}");
    }
}

/// A JSON value without two members of one name.
#[derive(Clone, Debug, PartialEq)]
enum Json {
    Null,
    Bool(bool),
    Integer(i64),
    Half(i32),
    Text(String),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
    fn write(&self, reverse: bool) -> String {
        let quoted = |text: &str| serde_json::to_string(text).unwrap();
        match self {
            Self::Null => "null".into(),
            Self::Bool(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Half(value) => format!("{value}.5"),
            Self::Text(text) => quoted(text),
            Self::Array(items) => {
                let items: Vec<_> = items.iter().map(|item| item.write(reverse)).collect();
                format!("[{}]", items.join(" ,\n"))
            }
            Self::Object(members) => {
                let member = |(name, value): &(String, Self)| format!("{}: {}", quoted(name), value.write(reverse));
                let mut members: Vec<_> = members.iter().map(member).collect();
                if reverse {
                    members.reverse();
                    let by = usize::from(members.len() > 2);
                    members.rotate_left(by);
                }
                format!("{{{}}}", members.join(","))
            }
        }
    }

    fn leaves(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) | Self::Integer(_) | Self::Half(_) | Self::Text(_) => 1,
            Self::Array(items) => items.iter().map(Self::leaves).sum(),
            Self::Object(members) => members.iter().map(|(_, value)| value.leaves()).sum(),
        }
    }

    /// Changes the leaf with this number into another value.
    fn change(&mut self, leaf: &mut usize) {
        let other = match self {
            Self::Array(items) => return items.iter_mut().for_each(|item| item.change(leaf)),
            Self::Object(members) => return members.iter_mut().for_each(|(_, value)| value.change(leaf)),
            Self::Null => Self::Bool(false),
            Self::Bool(value) => Self::Bool(!*value),
            Self::Integer(value) => Self::Integer(value.wrapping_add(1)),
            Self::Half(value) => Self::Half(value.wrapping_add(1)),
            Self::Text(text) => Self::Text(format!("{text}\u{0}")),
        };
        if *leaf == 0 {
            *self = other;
        }
        *leaf = leaf.wrapping_sub(1);
    }
}

fn object(value: impl Strategy<Value = Json>) -> impl Strategy<Value = Json> {
    proptest::collection::btree_map("[a-c\u{e9}\"\\\\]{0,2}", value, 0..5)
        .prop_map(|members| Json::Object(members.into_iter().collect()))
}

fn arguments() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        any::<i64>().prop_map(Json::Integer),
        (0..1_000_000).prop_map(Json::Half),
        any::<String>().prop_map(Json::Text),
    ];
    let value = leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![proptest::collection::vec(inner.clone(), 0..5).prop_map(Json::Array), object(inner)]
    });
    object(value)
}

proptest! {
    #[test]
    fn the_order_of_members_never_counts(arguments in arguments()) {
        prop_assert_eq!(bytes(&arguments.write(false)), bytes(&arguments.write(true)));
    }

    #[test]
    fn every_leaf_counts(arguments in arguments(), pick in any::<prop::sample::Index>()) {
        prop_assume!(arguments.leaves() > 0);
        let mut changed = arguments.clone();
        changed.change(&mut pick.index(arguments.leaves()));
        prop_assert_ne!(bytes(&arguments.write(false)), bytes(&changed.write(false)));
    }

    #[test]
    fn an_integer_equals_its_own_decimal_and_no_other(a in any::<u64>(), b in any::<u64>()) {
        prop_assert_eq!(same(&a.to_string(), &b.to_string()), a == b);
        let small = a % (1 << 53);
        let decimal = format!("{small}.000e0");
        prop_assert!(same(&small.to_string(), &decimal));
    }

    #[test]
    fn no_text_panics_and_what_is_accepted_is_json(text in "[\\[\\]{}\",:0-9.eE+\\-tfn\\\\ua ]{0,24}") {
        let json = ["{\"x\":", &text, "}"].concat();
        if canonical_arguments(&json, &[]).is_ok() {
            prop_assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
        }
    }
}
