//! What a sealed state opens for, and what it does not.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use steady_core::mrtr::{Binding, BindingError, MAX_STATE_BYTES, Sealer, Spent, Stamp, StateError};
use steady_core::rpc::RpcError;
use steady_core::time::WallTime;

use crate::TestMac;
use crate::invariants::{
    seal_1_it_opens_for_its_own_alone, seal_2_no_changed_text_opens, seal_3_a_failure_spends_nothing,
};

const PARAMS: &str = r#"{"name":"order","arguments":{"sku":"a-1","quantity":2},"_meta":{}}"#;
const STAMP: Stamp =
    Stamp { issued: WallTime::from_unix_millis(1_000), lifetime: Duration::from_millis(500), nonce: 7 };

fn at(millis: i64) -> WallTime {
    WallTime::from_unix_millis(millis)
}

fn binding<'a>(principal: &'a str, method: &'a str, params: &'a str) -> Binding<'a> {
    Binding::of(principal, method, params).expect("a request that can be bound")
}

fn sealed(value: &[u8]) -> String {
    Sealer::new(TestMac(1)).seal(STAMP, &binding("ann", "tools/call", PARAMS), value)
}

#[derive(Default)]
struct Ledger(BTreeMap<[u8; 32], WallTime>);

impl Spent for Ledger {
    fn spend(&mut self, state: &[u8; 32], until: WallTime) -> bool {
        self.0.insert(*state, until).is_none()
    }
}

#[test]
fn it_opens_for_its_caller_and_request_within_its_lifetime() {
    let sealer = Sealer::new(TestMac(1));
    let retry = r#"{"_meta":{"x":1},"inputResponses":{},"requestState":"s",
        "arguments":{"quantity":2.0,"sku":"a\u002d1"},"name":"order"}"#;
    let opened = sealer.open(at(1_499), &binding("ann", "tools/call", retry), &sealed(b"step 2")).expect("opens");
    assert_eq!((opened.value.as_slice(), opened.issued, opened.expires), (&b"step 2"[..], at(1_000), at(1_500)));
    let early = sealer.open(at(-5), &binding("ann", "tools/call", PARAMS), &sealed(b""));
    assert!(early.is_ok(), "another server's clock may be ahead: the end counts");
}

#[test]
fn arguments_that_are_null_are_none() {
    let sealer = Sealer::new(TestMac(1));
    let (none, null) = (r#"{"name":"order"}"#, r#"{"name":"order","arguments":null}"#);
    let state = sealer.seal(STAMP, &binding("ann", "tools/call", null), b"v");
    for params in [none, null, r#"{"name":"order","arguments":{}}"#] {
        assert!(sealer.open(at(1_100), &binding("ann", "tools/call", params), &state).is_ok(), "{params}");
    }
}

#[test]
fn each_check_has_its_own_error() {
    let state = sealed(b"v");
    let whole = sealed(b"v v");
    let other_key = Sealer::new(TestMac(2)).seal(STAMP, &binding("ann", "tools/call", PARAMS), b"v");
    let long = format!("s1.{}", "A".repeat(MAX_STATE_BYTES));
    let more = PARAMS.replace("2}", "3}");
    let cases = [
        ("", "ann", "tools/call", PARAMS, 1_000, StateError::Malformed),
        ("s1.", "ann", "tools/call", PARAMS, 1_000, StateError::Malformed),
        ("s1.AAAA", "ann", "tools/call", PARAMS, 1_000, StateError::Malformed),
        (&state[3..], "ann", "tools/call", PARAMS, 1_000, StateError::Malformed),
        (&state[..state.len() - 1], "ann", "tools/call", PARAMS, 1_000, StateError::Malformed),
        (&long, "ann", "tools/call", PARAMS, 1_000, StateError::Malformed),
        (&whole[..whole.len() - 4], "ann", "tools/call", PARAMS, 1_000, StateError::Forged),
        (&other_key, "ann", "tools/call", PARAMS, 1_000, StateError::Forged),
        (&state, "bob", "tools/call", PARAMS, 9_000, StateError::OtherCaller),
        (&state, "", "tools/call", PARAMS, 1_000, StateError::OtherCaller),
        (&state, "ann", "prompts/get", PARAMS, 9_000, StateError::OtherRequest),
        (&state, "ann", "tools/call", &more, 1_000, StateError::OtherRequest),
        (&state, "ann", "tools/call", r#"{"name":"order"}"#, 1_000, StateError::OtherRequest),
        (&state, "ann", "tools/call", PARAMS, 1_500, StateError::Expired),
    ];
    for (state, principal, method, params, now, expected) in cases {
        let result = Sealer::new(TestMac(1)).open(at(now), &binding(principal, method, params), state);
        assert_eq!(result, Err(expected), "{principal} {method} {params} {now}");
        let answer = RpcError::from(expected);
        assert_eq!((answer.code, &*answer.message), (-32602, &*expected.to_string()));
    }
    // Moving a boundary between the parts makes no other binding.
    let joined = binding("ann", "resources/read", r#"{"uri":"order"}"#);
    let state = Sealer::new(TestMac(1)).seal(STAMP, &joined, b"");
    let moved = Sealer::new(TestMac(1)).open(at(1_000), &binding("ann", "prompts/get", r#"{"name":"order"}"#), &state);
    assert_eq!(moved, Err(StateError::OtherRequest));
}

#[test]
fn single_use_is_spent_by_the_first_good_opening_alone() {
    let (sealer, state) = (Sealer::new(TestMac(1)), sealed(b"v"));
    let (ann, bob) = (binding("ann", "tools/call", PARAMS), binding("bob", "tools/call", PARAMS));
    let mut ledger = Ledger::default();
    assert_eq!(sealer.open_once(at(1_000), &bob, &state, &mut ledger), Err(StateError::OtherCaller));
    let late = sealer.open_once(at(2_000), &ann, &state, &mut ledger);
    assert_eq!(late, Err(StateError::Expired));
    seal_3_a_failure_spends_nothing(&late, ledger.0.len(), &"another caller, then too late");
    let good = sealer.open_once(at(1_000), &ann, &state, &mut ledger);
    assert!(good.is_ok());
    seal_3_a_failure_spends_nothing(&good, ledger.0.len(), &"the first good opening");
    assert_eq!(ledger.0.values().collect::<Vec<_>>(), [&at(1_500)]);
    assert_eq!(sealer.open_once(at(1_000), &ann, &state, &mut ledger), Err(StateError::Replayed));
    let twin = sealer.seal(Stamp { nonce: 8, ..STAMP }, &ann, b"v");
    assert!(sealer.open_once(at(1_000), &ann, &twin, &mut ledger).is_ok(), "another state of the same content");
}

/// `text` with the lowest bit of the six bits that the digit at `place` stands for the other way round.
fn flipped(text: &str, place: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bytes = text.as_bytes().to_vec();
    let six = ALPHABET.iter().position(|digit| *digit == bytes[place]).expect("a digit");
    bytes[place] = ALPHABET[six ^ 1];
    String::from_utf8(bytes).expect("ASCII")
}

#[test]
fn two_equal_changes_do_not_make_up_for_each_other() {
    let state = sealed(b"");
    // Three bytes are four digits: the same bit of two bytes of the tag.
    let place = state.len() - 12;
    let changed = flipped(&flipped(&state, place), place + 4);
    assert_ne!(changed, state);
    let result = Sealer::new(TestMac(1)).open(at(1_000), &binding("ann", "tools/call", PARAMS), &changed);
    assert_eq!(result, Err(StateError::Forged));
}

#[test]
fn lifetimes_saturate() {
    let (sealer, ann) = (Sealer::new(TestMac(1)), binding("ann", "tools/call", PARAMS));
    let stamp = |millis, lifetime| Stamp { issued: at(millis), lifetime, nonce: 0 };
    let endless = sealer.seal(stamp(1, Duration::MAX), &ann, b"");
    assert_eq!(sealer.open(at(1), &ann, &endless).map(|opened| opened.expires), Ok(at(i64::MAX)));
    let none = sealer.seal(stamp(1, Duration::from_micros(999)), &ann, b"");
    assert_eq!(sealer.open(at(1), &ann, &none), Err(StateError::Expired));
    let old = sealer.seal(stamp(i64::MIN, Duration::from_secs(1)), &ann, b"");
    assert_eq!(sealer.open(at(i64::MIN), &ann, &old).map(|opened| opened.issued), Ok(at(i64::MIN)));
}

#[test]
fn only_requests_with_a_name_and_clear_arguments_are_bound() {
    let of = |method, params| Binding::of("ann", method, params).err();
    assert_eq!(of("tools/list", "{}"), Some(BindingError::Method));
    for (method, params) in [
        ("tools/call", "{}"),
        ("tools/call", r#"{"name":1}"#),
        ("tools/call", r#"{"uri":"x"}"#),
        ("resources/read", r#"{"name":"x"}"#),
        ("tools/call", r#"{"name":"x","name":"x"}"#),
        ("tools/call", "[]"),
    ] {
        assert_eq!(of(method, params), Some(BindingError::Params), "{params}");
    }
    let Some(BindingError::Arguments(error)) = of("prompts/get", r#"{"name":"x","arguments":{"a":1,"a":1}}"#) else {
        panic!("a name that stands twice has no canonical form")
    };
    assert_eq!(&*error.place, "/a");
    assert_eq!(RpcError::from(BindingError::Method).code, -32602);
    let absent = binding("ann", "tools/call", r#"{"name":"x"}"#);
    assert_eq!(absent, binding("ann", "tools/call", r#"{"arguments":{},"name":"\u0078"}"#));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_sealed_is_opened(value: Vec<u8>, nonce: u128, principal: String) {
        let binding = binding(&principal, "tools/call", PARAMS);
        let state = Sealer::new(TestMac(1)).seal(Stamp { nonce, ..STAMP }, &binding, &value);
        prop_assert!(state.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\'));
        let opened = Sealer::new(TestMac(1)).open(at(1_200), &binding, &state);
        prop_assert_eq!(opened.map(|opened| opened.value), Ok(value));
    }

    /// Every bit of the text, and so every bit of the bytes.
    #[test]
    fn any_flipped_bit_is_refused(value in prop::collection::vec(any::<u8>(), 0..9), at_byte in any::<prop::sample::Index>(), bit in 0..7u8) {
        let state = sealed(&value);
        let mut bytes = state.clone().into_bytes();
        bytes[at_byte.index(state.len())] ^= 1 << bit;
        let changed = String::from_utf8(bytes).expect("ASCII");
        let result = Sealer::new(TestMac(1)).open(at(1_000), &binding("ann", "tools/call", PARAMS), &changed);
        seal_2_no_changed_text_opens(&result, &changed);
    }

    #[test]
    fn nobody_else_opens_it(principal: String, name: String, quantity: i64) {
        let name = serde_json::to_string(&name).expect("JSON");
        let params = format!(r#"{{"name":{name},"arguments":{{"sku":"a-1","quantity":{quantity}}}}}"#);
        let same_request = name == "\"order\"" && quantity == 2;
        let opened = Sealer::new(TestMac(1)).open(at(1_000), &binding(&principal, "tools/call", &params), &sealed(b"v"));
        let expected = if principal != "ann" { StateError::OtherCaller } else { StateError::OtherRequest };
        if principal != "ann" || !same_request {
            seal_1_it_opens_for_its_own_alone(&opened, &(&principal, &params));
        }
        prop_assert_eq!(opened.err(), (principal != "ann" || !same_request).then_some(expected));
        let opened = Sealer::new(TestMac(1)).open(at(1_000), &binding("ann", "tools/call", &params), &sealed(b"v"));
        prop_assert_eq!(opened.err(), (!same_request).then_some(StateError::OtherRequest));
    }

    #[test]
    fn no_text_is_trusted(text in ".{0,200}") {
        for state in [text.clone(), format!("s1.{text}")] {
            let result = Sealer::new(TestMac(1)).open(at(1_000), &binding("ann", "tools/call", PARAMS), &state);
            prop_assert!(result.is_err());
        }
    }
}
