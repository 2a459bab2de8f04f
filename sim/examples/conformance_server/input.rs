//! Tools and a prompt that need several rounds, through the library's helper (rules I1 to I4).

use std::time::{Duration, SystemTime};

use hmac::{Hmac, KeyInit, Mac as _};
use serde_json::json;
use sha2::Sha256;
use steady_http::steady_core::mrtr::{Binding, InputRequired, Kind, Mac, Retry, Sealer, Stamp};
use steady_http::steady_core::rpc::members;
use steady_http::steady_core::time::WallTime;
use steady_http::{Call, Context, Outcome, RpcError};

use crate::complete;

/// What the names of these tools start with.
pub(crate) const PREFIX: &str = "test_input_required_result_";

pub(crate) const TOOLS: [&str; 8] = [
    "elicitation",
    "sampling",
    "list_roots",
    "request_state",
    "multiple_inputs",
    "multi_round",
    "tampered_state",
    "capabilities",
];

const LIFETIME: Duration = Duration::from_secs(600);

type Ask = (&'static str, Kind, &'static str);

const NAME: Ask = (
    "user_name",
    Kind::Form,
    r#"{"mode":"form","message":"What is your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}"#,
);
const COLOUR: Ask = (
    "colour",
    Kind::Form,
    r#"{"mode":"form","message":"Which colour?","requestedSchema":{"type":"object","properties":{"colour":{"type":"string"}},"required":["colour"]}}"#,
);
const CONFIRM: Ask = (
    "confirm",
    Kind::Form,
    r#"{"mode":"form","message":"Go on?","requestedSchema":{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}}"#,
);
const SAMPLE: Ask = (
    "capital",
    Kind::Sampling,
    r#"{"messages":[{"role":"user","content":{"type":"text","text":"What is the capital of France?"}}],"maxTokens":100}"#,
);
const ROOTS: Ask = ("roots", Kind::Roots, "{}");

/// What a tool asks for, round by round, and whether a sealed state says which round it is.
struct Plan {
    rounds: &'static [&'static [Ask]],
    state: bool,
    /// Asks for what the client can be asked, and leaves out the rest.
    lenient: bool,
}

const fn plan(rounds: &'static [&'static [Ask]], state: bool) -> Plan {
    Plan { rounds, state, lenient: false }
}

fn plan_of(suffix: &str) -> Option<Plan> {
    Some(match suffix {
        "elicitation" => plan(&[&[NAME]], false),
        "sampling" => plan(&[&[SAMPLE]], false),
        "list_roots" => plan(&[&[ROOTS]], false),
        "request_state" | "tampered_state" => plan(&[&[CONFIRM]], true),
        "multiple_inputs" => plan(&[&[NAME, SAMPLE, ROOTS]], true),
        "multi_round" => plan(&[&[NAME], &[COLOUR]], true),
        "capabilities" => Plan { lenient: true, ..plan(&[&[NAME, SAMPLE, ROOTS]], false) },
        _ => return None,
    })
}

/// The capabilities that came with this request, and with no other (rule M9).
pub(crate) fn capabilities(call: &Call) -> &str {
    let meta = members(&call.params, &["_meta"]).and_then(|[meta]| meta).unwrap_or("{}");
    let found = members(meta, &["io.modelcontextprotocol/clientCapabilities"]);
    found.and_then(|[found]| found).unwrap_or("{}")
}

struct Key(Hmac<Sha256>);

impl Mac for Key {
    fn mac(&self, message: &[u8]) -> [u8; 32] {
        self.0.clone().chain_update(message).finalize().into_bytes().into()
    }
}

/// Seals the states of rounds, under a key of this process.
pub(crate) struct States(Sealer<Key>);

impl States {
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        let mac = Hmac::new_from_slice(&key).map_err(|_| getrandom::Error::UNEXPECTED)?;
        Ok(Self(Sealer::new(Key(mac))))
    }

    pub(crate) fn tool(&self, suffix: &str, call: &Call, cx: &Context) -> Outcome {
        let plan = plan_of(suffix).ok_or_else(|| RpcError::invalid_params("there is no such tool"))?;
        match self.next_round(&plan, call, cx)? {
            Some(asked) => Ok(asked),
            None => complete(json!({"content": [{"type": "text", "text": said(call)}]})),
        }
    }

    pub(crate) fn streaming_elicitation(&self, call: &Call, cx: &Context) -> Outcome {
        self.tool("elicitation", call, cx)
    }

    pub(crate) fn prompt(&self, call: &Call, cx: &Context) -> Outcome {
        match self.next_round(&plan(&[&[NAME]], false), call, cx)? {
            Some(asked) => Ok(asked),
            None => complete(json!({
                "messages": [{"role": "user", "content": {"type": "text", "text": said(call)}}],
            })),
        }
    }

    /// The name that the client gives, or the result that asks for it.
    pub(crate) fn name(&self, call: &Call, cx: &Context) -> Result<Result<String, String>, RpcError> {
        match self.next_round(&plan(&[&[NAME]], false), call, cx)? {
            Some(asked) => Ok(Err(asked)),
            None => Ok(Ok(said(call))),
        }
    }

    /// The demand of the round that this request is in, or `None` once everything is answered.
    fn next_round(&self, plan: &Plan, call: &Call, cx: &Context) -> Result<Option<String>, RpcError> {
        let retry = Retry::read(&call.params)?;
        let binding = Binding::of(cx.principal().unwrap_or_default(), &call.method, &call.params)?;
        let mut round = 0;
        if let Some(state) = retry.state().filter(|_| plan.state) {
            let opened = self.0.open(now(), &binding, state)?;
            round = opened.value.first().copied().unwrap_or_default().into();
        }
        let asks = |round: usize| plan.rounds.get(round).copied().unwrap_or_default();
        let answered = |(key, kind, _): &Ask| retry.response(key, *kind).is_ok();
        // A state that should be there and is not: from the start.
        let in_round = !plan.state || retry.state().is_some();
        let declared = |(_, kind, _): &&Ask| !plan.lenient || kind.is_declared(capabilities(call));
        if in_round && !retry.is_first() && asks(round).iter().filter(declared).all(answered) {
            round += 1;
        }
        if asks(round).iter().filter(declared).count() == 0 {
            return Ok(None);
        }
        let mut demand = InputRequired::new(&call.method, capabilities(call))?;
        for (key, kind, params) in asks(round).iter().filter(declared) {
            demand.ask(key, *kind, params)?;
        }
        if plan.state {
            let mut nonce = [0; 16];
            getrandom::fill(&mut nonce).map_err(|error| RpcError::internal(error.to_string()))?;
            let stamp = Stamp { issued: now(), lifetime: LIFETIME, nonce: u128::from_ne_bytes(nonce) };
            let round = u8::try_from(round).unwrap_or(u8::MAX);
            demand.state(&self.0.seal(stamp, &binding, &[round]))?;
        }
        Ok(Some(demand.build()?))
    }
}

/// What the answers of the client come to.
fn said(call: &Call) -> String {
    let params: serde_json::Value = serde_json::from_str(&call.params).unwrap_or_default();
    let answers = &params["inputResponses"];
    match answers["user_name"]["content"]["name"].as_str() {
        Some(name) => format!("Hello, {name}!"),
        None => format!("state-ok: {answers}"),
    }
}

fn now() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::from_unix_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
