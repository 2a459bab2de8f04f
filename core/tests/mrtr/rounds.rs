//! From the demand for input to the retry, and what is refused on the way.

use steady_core::id::RequestId;
use steady_core::mrtr::{
    AskError, Input, InputRequired, Kind, MAX_INPUTS, MAX_STATE_BYTES, NoRetry, Outcome, ResultError, Retry,
    RetryError, Wrong, is_final, read_result,
};
use steady_core::rpc::{Message, RpcError, encode, parse};

const ALL: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}"#;
const FORM: &str = r#"{"message":"Which size?","requestedSchema":{"type":"object","properties":{}}}"#;
const URL: &str = r#"{"mode":"url","message":"Pay","url":"https://example.com/pay"}"#;
const SAMPLE: &str = r#"{"messages":[],"maxTokens":10}"#;
const TOOLS: &str = r#"{"messages":[],"maxTokens":10,"tools":[]}"#;

fn input<'a>(result: &'a str) -> Input<'a> {
    match read_result("tools/call", ALL, result) {
        Ok(Outcome::Input(input)) => input,
        other => panic!("{result}: {other:?}"),
    }
}

#[test]
fn a_demand_is_read_answered_and_read_again() {
    let mut demand = InputRequired::new("tools/call", ALL).expect("may ask");
    demand.ask("si\"ze", Kind::Form, FORM).expect("declared");
    demand.ask("pay", Kind::Url, URL).expect("declared");
    demand.ask("roots", Kind::Roots, "{}").expect("declared");
    demand.state("a\"\\b\n").expect("short");
    let result = demand.build().expect("has inputs");
    assert!(!is_final(&result), "I5");

    let input = input(&result);
    let asked: Vec<_> = input.requests.iter().map(|request| (&*request.key, request.kind, request.params)).collect();
    assert_eq!(asked, [("si\"ze", Kind::Form, FORM), ("pay", Kind::Url, URL), ("roots", Kind::Roots, "{}")]);

    let params = r#"{ "name":"order", "inputResponses":{"old":{}}, "x-new":[1, 2], "requestState":"old" }"#;
    let answers = [
        ("roots", r#"{"roots":[]}"#),
        ("si\"ze", r#"{"action":"accept","content":{"size":"L"}}"#),
        ("pay", r#"{"action":"decline"}"#),
    ];
    let mut out = Vec::new();
    input.retry(&mut out, (&1.into(), &2.into()), "tools/call", params, &answers).expect("answered");
    let text = String::from_utf8(out).expect("UTF-8");
    let Ok(Message::Request { id, method, params: Some(params) }) = parse(&text) else { panic!("{text}") };
    assert_eq!((id, &*method), (RequestId::Integer(2), "tools/call"));
    assert!(params.get().starts_with(r#"{"name":"order","x-new":[1, 2],"inputResponses":{"roots":"#), "M10: {text}");

    let retry = Retry::read(params.get()).expect("well made");
    assert_eq!(retry.state(), Some("a\"\\b\n"), "I2: exactly as it was");
    assert_eq!(retry.response("si\"ze", Kind::Form).as_deref(), Ok(answers[1].1));
    assert_eq!(retry.response("roots", Kind::Roots), Ok(answers[0].1));
    assert!(!retry.is_first());
}

#[test]
fn the_state_alone_makes_a_demand_and_a_demand_without_one_drops_the_old() {
    let mut demand = InputRequired::new("resources/read", "{}").expect("may ask");
    demand.state("s").expect("short");
    let result = demand.build().expect("has a state");
    assert_eq!(result, r#"{"resultType":"input_required","requestState":"s"}"#);
    let retry = |result: &str, params: &str| {
        let mut out = Vec::new();
        let done = input(result).retry(&mut out, (&"a".into(), &"b".into()), "tools/call", params, &[]);
        done.map(|()| String::from_utf8(out).expect("UTF-8"))
    };
    let head = r#"{"jsonrpc":"2.0","id":"b","method":"tools/call","params":"#;
    assert_eq!(retry(&result, "{}"), Ok(format!(r#"{head}{{"requestState":"s"}}}}"#)));
    let empty = r#"{"resultType":"input_required","inputRequests":{}}"#;
    assert_eq!(retry(empty, r#"{"requestState":"old"}"#), Ok(format!("{head}{{}}}}")));
    for params in ["[]", "{", r#"{}{}"#, "1"] {
        assert_eq!(retry(&result, params), Err(NoRetry::NotAnObject("params".into())), "{params}");
    }
}

#[test]
fn a_retry_answers_each_input_once_under_a_new_id() {
    let result = format!(
        r#"{{"resultType":"input_required","inputRequests":{{"a":{{"method":"roots/list"}},"b":{{"method":"elicitation/create","params":{FORM}}}}}}}"#
    );
    let retry = |ids: (&RequestId, &RequestId), answers: &[(&str, &str)]| {
        let mut out = Vec::new();
        let done = input(&result).retry(&mut out, ids, "tools/call", "{}", answers);
        assert_eq!(done.is_err(), out.is_empty());
        done
    };
    let (one, two) = (RequestId::Integer(1), RequestId::Integer(2));
    let (a, b) = (("a", "{}"), ("b", "{}"));
    assert_eq!(retry((&one, &one), &[a, b]), Err(NoRetry::SameId));
    assert_eq!(retry((&one, &"1".into()), &[a, b]), Ok(()));
    assert_eq!(retry((&one, &two), &[a]), Err(NoRetry::Missing("b".into())));
    assert_eq!(retry((&one, &two), &[a, b, ("c", "{}")]), Err(NoRetry::Unknown("c".into())));
    assert_eq!(retry((&one, &two), &[a, b, a]), Err(NoRetry::Unknown("a".into())));
    assert_eq!(retry((&one, &two), &[a, ("b", "1")]), Err(NoRetry::NotAnObject("b".into())));
}

#[test]
fn only_what_the_client_declared_is_asked_for() {
    use Kind::{Form, Roots, Sampling, SamplingWithTools, Url};
    let cases: [(&str, &[Kind]); 11] = [
        ("{}", &[]),
        ("[]", &[]),
        (r#"{"elicitation":{}}"#, &[Form]),
        (r#"{"elicitation":{"form":{}}}"#, &[Form]),
        (r#"{"elicitation":{"url":{}}}"#, &[Url]),
        (r#"{"elicitation":{"url":true}}"#, &[]),
        (r#"{"elicitation":true,"roots":null,"sampling":1}"#, &[]),
        (r#"{"sampling":{}}"#, &[Sampling]),
        (r#"{"sampling":{"context":{},"tools":{}}}"#, &[Sampling, SamplingWithTools]),
        (r#"{"roots":{},"extensions":{}}"#, &[Roots]),
        (ALL, &[Form, Url, Sampling, SamplingWithTools, Roots]),
    ];
    for (capabilities, declared) in cases {
        for (kind, params) in [(Form, FORM), (Url, URL), (Sampling, SAMPLE), (SamplingWithTools, TOOLS), (Roots, "{}")]
        {
            assert_eq!(kind.is_declared(capabilities), declared.contains(&kind), "{kind:?} {capabilities}");
            let mut demand = InputRequired::new("prompts/get", capabilities).expect("may ask");
            let asked = demand.ask("k", kind, params);
            assert_eq!(asked, if declared.contains(&kind) { Ok(()) } else { Err(AskError::Undeclared(kind)) });
            assert!(kind.is_declared(kind.required()), "{kind:?}");
        }
    }
    let error = RpcError::from(AskError::Undeclared(Url));
    assert_eq!(
        (error.code, error.data.as_deref()),
        (-32021, Some(r#"{"requiredCapabilities":{"elicitation":{"url":{}}}}"#))
    );
    assert_eq!(RpcError::from(AskError::Empty).code, -32603);
}

#[test]
fn a_form_may_say_that_it_is_one() {
    let kind = |params| Kind::of("elicitation/create", Some(params));
    assert_eq!(kind(r#"{"mode":"form"}"#), Some(Kind::Form));
    assert_eq!(kind("{}"), Some(Kind::Form));
    assert_eq!(kind(r#"{"mode":"url"}"#), Some(Kind::Url));
    assert_eq!(kind(r#"{"mode":"voice"}"#), None);
}

#[test]
fn a_demand_that_makes_no_sense_is_not_built() {
    assert_eq!(InputRequired::new("tools/list", ALL).err(), Some(AskError::Method), "I1");
    let mut demand = InputRequired::new("tools/call", ALL).expect("may ask");
    assert_eq!(demand.clone().build(), Err(AskError::Empty));
    assert_eq!(demand.state(&"x".repeat(MAX_STATE_BYTES + 1)), Err(AskError::StateTooLong));
    assert_eq!(demand.ask("a", Kind::Roots, "{}"), Ok(()));
    assert_eq!(demand.ask("a", Kind::Form, FORM), Err(AskError::Duplicate("a".into())));
    // With the message, its result, the map and the request around them, 124 levels are the last that a client reads.
    let nested = |levels: usize| format!(r#"{{"x":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1));
    let mut deepest = demand.clone();
    assert_eq!(deepest.ask("deep", Kind::Roots, &nested(124)), Ok(()));
    let mut line = Vec::new();
    encode::result(&mut line, &1.into(), &deepest.build().expect("built"));
    assert!(parse(std::str::from_utf8(&line).expect("text")).is_ok(), "the whole message is read");
    let deep = nested(125);
    for (kind, params) in [
        (Kind::Form, URL),
        (Kind::Url, FORM),
        (Kind::Form, r#"{"mode":"voice"}"#),
        (Kind::Url, r#"{"mode":"voice"}"#),
        (Kind::Form, r#"{"mode":1}"#),
        (Kind::Sampling, TOOLS),
        (Kind::SamplingWithTools, SAMPLE),
        (Kind::Roots, "[]"),
        (Kind::Roots, "{"),
        (Kind::Roots, "{} "),
        (Kind::Roots, "{}}"),
        (Kind::Roots, &deep),
    ] {
        let expected = if params == "{} " { Ok(()) } else { Err(AskError::Params("b".into())) };
        assert_eq!(demand.clone().ask("b", kind, params), expected, "{params}");
    }
    for nth in 1..MAX_INPUTS {
        assert_eq!(demand.ask(&nth.to_string(), Kind::Roots, "{}"), Ok(()));
    }
    assert_eq!(demand.ask("more", Kind::Roots, "{}"), Err(AskError::TooMany));
    let result = demand.build().expect("has inputs");
    assert_eq!(input(&result).requests.len(), MAX_INPUTS);
}

#[test]
fn the_longest_state_goes_there_and_back() {
    let state = "x".repeat(MAX_STATE_BYTES);
    let mut demand = InputRequired::new("tools/call", ALL).expect("may ask");
    assert_eq!(demand.state(&state), Ok(()));
    let result = demand.build().expect("has a state");
    let mut out = Vec::new();
    input(&result).retry(&mut out, (&1.into(), &2.into()), "tools/call", "{}", &[]).expect("nothing to answer");
    let text = String::from_utf8(out).expect("UTF-8");
    let Ok(Message::Request { params: Some(params), .. }) = parse(&text) else { panic!("a request") };
    assert_eq!(Retry::read(params.get()).expect("short enough").state(), Some(&*state));
}

#[test]
fn answers_are_checked_by_kind_and_the_rest_is_ignored() {
    let read = |responses: &str, kind| {
        let params = format!(r#"{{"inputResponses":{responses}}}"#);
        let retry = Retry::read(&params).expect("well made");
        retry.response("k", kind).map(|_| ()).map_err(|unanswered| unanswered.wrong)
    };
    for (kind, good) in [
        (Kind::Form, r#"{"action":"accept","content":{"a":1},"x":1}"#),
        (Kind::Form, r#"{"action":"cancel"}"#),
        (Kind::Url, r#"{"action":"decline"}"#),
        (Kind::Sampling, r#"{"role":"assistant","model":"m","content":{"type":"text"}}"#),
        (Kind::SamplingWithTools, r#"{"role":"assistant","model":"m","content":[]}"#),
        (Kind::Sampling, r#"{"role":"user","model":"m","content":[]}"#),
        (Kind::Roots, r#"{"roots":[]}"#),
    ] {
        assert_eq!(read(&format!(r#"{{"other":7,"k":{good},"more":[]}}"#), kind), Ok(()), "{good}");
        assert_eq!(read(&format!(r#"{{"k":{good},"k":{good}}}"#), kind), Err(Wrong::Twice));
    }
    for (kind, bad) in [
        (Kind::Form, "1"),
        (Kind::Form, "{}"),
        (Kind::Form, r#"{"action":"maybe"}"#),
        (Kind::Form, r#"{"action":1}"#),
        (Kind::Url, r#"{"action":"accept","content":[]}"#),
        (Kind::Form, r#"{"action":"accept","action":"cancel"}"#),
        (Kind::Sampling, r#"{"role":"system","model":"m","content":{}}"#),
        (Kind::Sampling, r#"{"role":"user","model":1,"content":{}}"#),
        (Kind::Sampling, r#"{"role":"user","content":{}}"#),
        (Kind::Sampling, r#"{"role":"user","model":"m","content":"x"}"#),
        (Kind::Sampling, r#"{"role":"user","model":"m"}"#),
        (Kind::Roots, r#"{"roots":{}}"#),
        (Kind::Roots, "{}"),
    ] {
        assert_eq!(read(&format!(r#"{{"k":{bad}}}"#), kind), Err(Wrong::Kind(kind)), "{bad}");
    }
    assert_eq!(read("{}", Kind::Form), Err(Wrong::Missing));
    let first = Retry::read(r#"{"name":"x"}"#).expect("well made");
    assert!(first.is_first());
    let error = RpcError::from(first.response("k", Kind::Form).expect_err("nothing there"));
    assert_eq!(error.code, -32602);
    assert!(error.message.contains("params.inputResponses[\"k\"] is missing"), "{error}");
}

#[test]
fn a_malformed_retry_is_named() {
    let long = format!(r#"{{"requestState":"{}"}}"#, "x".repeat(MAX_STATE_BYTES + 1));
    for (params, expected) in [
        ("[]", RetryError::Params),
        (r#"{"requestState":"a","requestState":"a"}"#, RetryError::Params),
        (r#"{"inputResponses":{},"inputResponses":{}}"#, RetryError::Params),
        (r#"{"inputResponses":[]}"#, RetryError::Responses),
        (r#"{"inputResponses":null}"#, RetryError::Responses),
        (r#"{"requestState":1}"#, RetryError::State),
        (r#"{"requestState":null}"#, RetryError::State),
        (r#"{"requestState":"\ud800"}"#, RetryError::State),
        (&long, RetryError::State),
    ] {
        assert_eq!(Retry::read(params), Err(expected), "{params}");
        assert_eq!(RpcError::from(expected).code, -32602);
    }
    assert!(!Retry::read(r#"{"inputResponses":{}}"#).expect("well made").is_first());
    assert!(!Retry::read(r#"{"requestState":""}"#).expect("well made").is_first());
}

#[test]
fn a_result_is_final_asks_or_is_refused() {
    let request = |body: &str| format!(r#"{{"resultType":"input_required","inputRequests":{{"k":{body}}}}}"#);
    let read = |method, capabilities, result: &str| {
        read_result(method, capabilities, result).map(|outcome| outcome == Outcome::Final)
    };
    for (result, stored) in [
        ("{}", true),
        (r#"{"resultType":"complete","inputRequests":1}"#, true),
        (r#"{"resultType":"compl\u0065te"}"#, true),
        (r#"{"resultType":"task","taskId":"t"}"#, true),
    ] {
        assert_eq!(read("tools/list", "{}", result), Ok(true), "{result}");
        assert_eq!(is_final(result), stored, "{result}");
    }
    let roots = request(r#"{"method":"roots/list"}"#);
    let many: Vec<String> = (0..=MAX_INPUTS).map(|nth| format!(r#""{nth}":{{"method":"roots/list"}}"#)).collect();
    let many = format!(r#"{{"resultType":"input_required","inputRequests":{{{}}}}}"#, many.join(","));
    let twice =
        r#"{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"},"k":{"method":"roots/list"}}}"#;
    for (method, capabilities, result, expected) in [
        ("tools/call", ALL, "[]", ResultError::Malformed),
        ("tools/call", ALL, r#"{"resultType":"complete","resultType":"input_required"}"#, ResultError::Malformed),
        ("tools/call", ALL, r#"{"resultType":null}"#, ResultError::Malformed),
        ("tools/call", ALL, r#"{"resultType":"later"}"#, ResultError::Unknown("later".into())),
        ("tools/list", ALL, &roots, ResultError::Method),
        ("tools/call", ALL, r#"{"resultType":"input_required"}"#, ResultError::Empty),
        ("tools/call", ALL, r#"{"resultType":"input_required","requestState":1}"#, ResultError::Empty),
        ("tools/call", ALL, r#"{"resultType":"input_required","inputRequests":[]}"#, ResultError::Empty),
        ("tools/call", ALL, &many, ResultError::TooMany),
        ("tools/call", "{}", &roots, ResultError::Undeclared(Kind::Roots)),
        ("tools/call", ALL, &request("1"), ResultError::Request("k".into())),
        ("tools/call", ALL, &request("{}"), ResultError::Request("k".into())),
        ("tools/call", ALL, &request(r#"{"method":"tools/call"}"#), ResultError::Request("k".into())),
        ("tools/call", ALL, &request(r#"{"method":"roots/list","params":[]}"#), ResultError::Request("k".into())),
        ("tools/call", ALL, twice, ResultError::Request("k".into())),
        ("tools/call", ALL, &request(r#"1,"second":1"#), ResultError::Request("k".into())),
    ] {
        assert_eq!(read(method, capabilities, result), Err(expected), "{result}");
        assert!(!is_final(result), "{result}");
    }
}
