//! Rounds of input on real sockets (rules I1 to I5): our server asks, our client answers, the ledger keeps what is final.
#![cfg(feature = "live")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use hmac::{Hmac, KeyInit, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use steady_core::idempotency::{Key, Scope};
use steady_core::mrtr::{Binding, InputRequired, Kind, Mac, Retry, Sealer, Spent, Stamp};
use steady_core::rpc::{code, members};
use steady_core::time::WallTime;
use steady_http::client::{CallError, Client, Config, InputAsked, Proxy, Raw, Request};
use steady_http::{Answer, Call, Context, Outcome, RpcError, ServeConfig, Server, Service};
use steady_ledger::{EffectTx, Ledger, Options};

/// A hang guard, not a measure.
const GUARD: Duration = Duration::from_secs(60);
const FORMS: &str = r#"{"elicitation":{"form":{}}}"#;
const FORM: &str = r#"{"mode":"form","message":"How many?","requestedSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}"#;
const THREE: &str = r#"{"action":"accept","content":{"n":3}}"#;
const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS orders(n INTEGER NOT NULL) STRICT;";

struct Secret(Hmac<Sha256>);

impl Mac for Secret {
    fn mac(&self, message: &[u8]) -> [u8; 32] {
        self.0.clone().chain_update(message).finalize().into_bytes().into()
    }
}

#[derive(Default)]
struct Used(BTreeSet<[u8; 32]>);

impl Spent for Used {
    fn spend(&mut self, state: &[u8; 32], _until: WallTime) -> bool {
        self.0.insert(*state)
    }
}

/// Whatever is ordered, it asks how many; a state is good for one order.
struct Shop {
    ledger: Ledger,
    sealer: Sealer<Secret>,
    used: Mutex<Used>,
    nonce: AtomicU64,
    /// The id and the parameters of each request.
    seen: Mutex<Vec<(String, Value)>>,
    _dir: tempfile::TempDir,
}

fn now() -> WallTime {
    let millis = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis();
    WallTime::from_unix_millis(i64::try_from(millis).expect("before the year 292 million"))
}

fn internal(error: impl std::fmt::Display) -> RpcError {
    RpcError::internal(error.to_string())
}

fn scope() -> Scope {
    Scope::new("local", "order")
}

fn order(tx: &mut EffectTx<'_>, n: i64) -> steady_ledger::rusqlite::Result<usize> {
    tx.execute("INSERT INTO orders VALUES (?1)", [n])
}

impl Shop {
    fn new() -> Arc<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        let options = Options { schema: SCHEMA.into(), ..Options::default() };
        Arc::new(Self {
            ledger: Ledger::open(dir.path().join("shop.db"), options).expect("a ledger"),
            sealer: Sealer::new(Secret(Hmac::new_from_slice(&[7; 32]).expect("a key"))),
            used: Mutex::default(),
            nonce: AtomicU64::new(0),
            seen: Mutex::default(),
            _dir: dir,
        })
    }

    /// All orders, and how many there were.
    fn orders(&self) -> (i64, i64) {
        let sum = "SELECT coalesce(sum(n), 0), count(*) FROM orders";
        self.ledger.read(|tx| tx.query_row(sum, [], |row| Ok((row.get(0)?, row.get(1)?)))).expect("read")
    }

    fn demand(&self, call: &Call, binding: &Binding<'_>, lifetime: Duration) -> Outcome {
        let meta = members(&call.params, &["_meta"]).and_then(|[meta]| meta).unwrap_or("{}");
        let declared = members(meta, &["io.modelcontextprotocol/clientCapabilities"]).and_then(|[declared]| declared);
        let mut demand = InputRequired::new(&call.method, declared.unwrap_or("{}"))?;
        demand.ask("n", Kind::Form, FORM)?;
        let nonce = self.nonce.fetch_add(1, Ordering::Relaxed).into();
        demand.state(&self.sealer.seal(Stamp { issued: now(), lifetime, nonce }, binding, b"asked"))?;
        Ok(demand.build()?)
    }

    fn answer(&self, call: &Call, cx: &Context) -> Outcome {
        let params: Value = serde_json::from_str(&call.params).map_err(internal)?;
        if call.method.ends_with("/list") && params["raw"] == true {
            return Ok(r#"{"resultType":"input_required","requestState":"x"}"#.into());
        }
        if call.method.ends_with("/list") {
            return Ok(InputRequired::new(&call.method, FORMS)?.build()?);
        }
        if params["name"] == "careless" {
            return self.careless(call, &params["arguments"].to_string());
        }
        let lifetime = Duration::from_millis(params["arguments"]["lifetime_ms"].as_u64().unwrap_or(600_000));
        let retry = Retry::read(&call.params)?;
        let binding = Binding::of(cx.principal().unwrap_or_default(), &call.method, &call.params)?;
        let Some(state) = retry.state() else { return self.demand(call, &binding, lifetime) };
        let Ok(given) = retry.response("n", Kind::Form) else {
            self.sealer.open(now(), &binding, state)?;
            return self.demand(call, &binding, lifetime);
        };
        self.sealer.open_once(now(), &binding, state, &mut *self.used.lock().expect("no panic"))?;
        let given: Value = serde_json::from_str(given).map_err(internal)?;
        let n = given["content"]["n"].as_i64().ok_or_else(|| RpcError::invalid_params("n must be a whole number"))?;
        self.complete(call, &params["arguments"].to_string(), n)
    }

    fn complete(&self, call: &Call, arguments: &str, n: i64) -> Outcome {
        let result = json!({"resultType": "complete", "content": [{"type": "text", "text": format!("ordered {n}")}]});
        let Some(key) = call.idempotency_key(None)? else { return Ok(result.to_string()) };
        let executed = self.ledger.execute(&steady_ledger::Request::new(&scope(), &key, arguments), move |tx| {
            order(tx, n)?;
            Ok(result.clone())
        });
        Ok(executed.map_err(internal)?.into_inner().to_string())
    }

    /// Orders, and makes a demand for input the outcome of the key.
    fn careless(&self, call: &Call, arguments: &str) -> Outcome {
        let key = call.idempotency_key(None)?.ok_or_else(|| RpcError::invalid_params("a key"))?;
        let executed = self.ledger.execute(&steady_ledger::Request::new(&scope(), &key, arguments), |tx| {
            order(tx, 1000)?;
            Ok(json!({"resultType": "input_required", "requestState": "more"}))
        });
        Ok(executed.map_err(internal)?.into_inner().to_string())
    }
}

impl Service for Shop {
    fn call(&self, call: Call, cx: Context) -> Answer {
        let params = serde_json::from_str(&call.params).expect("JSON");
        self.seen.lock().expect("no panic").push((format!("{:?}", cx.request_id()), params));
        Answer::Ready(self.answer(&call, &cx))
    }
}

/// Serves the shop to this caller.
async fn serve(shop: &Arc<Shop>, principal: &str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let mut config = ServeConfig::default();
    config.http.server.principal = Some(principal.into());
    tokio::spawn(Server::<Shop>::new(Arc::clone(shop), config).serve(listener));
    format!("http://{address}/mcp")
}

async fn client(url: &str, capabilities: &str) -> Client {
    let mut config = Config { proxy: Proxy::Direct, ..Config::default() };
    config.calls.probe = None;
    config.calls.capabilities = capabilities.into();
    Client::connect(url, config).await.expect("connected")
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(GUARD, test).await.expect("it hangs") });
}

fn value(raw: &Raw) -> Value {
    serde_json::from_str(raw.get()).expect("JSON")
}

/// What a call comes to: its result, or the code and text of the server's error.
async fn said(client: &Client, request: Request) -> Result<Value, (i64, String)> {
    match client.call(request).await {
        Ok(raw) => Ok(value(&raw)),
        Err(CallError::Peer(error)) => Err((error.code, error.message.to_string())),
        Err(error) => panic!("neither a result nor an error of the server: {error}"),
    }
}

/// The second round of an order by hand.
fn retry(arguments: &Value, state: &str, responses: &Value) -> Request {
    let params = json!({"name": "order", "arguments": arguments, "requestState": state, "inputResponses": responses});
    Request::new("tools/call", &params)
}

async fn first_round(client: &Client, arguments: &Value) -> String {
    let asked = said(client, Request::tool("order", arguments)).await.expect("a demand");
    assert_eq!(asked["resultType"], "input_required");
    assert_eq!(asked["inputRequests"]["n"]["method"], "elicitation/create");
    asked["requestState"].as_str().expect("a state").to_owned()
}

fn three() -> Value {
    json!({"n": serde_json::from_str::<Value>(THREE).expect("JSON")})
}

#[test]
fn rule_i1_three_methods_may_ask_and_only_for_what_the_client_declared() {
    run(async {
        let shop = Shop::new();
        let url = serve(&shop, "ann").await;
        let declaring = client(&url, FORMS).await;
        for request in [
            Request::tool("order", &json!({})),
            Request::raw("prompts/get", r#"{"name":"order"}"#),
            Request::raw("resources/read", r#"{"uri":"shop:order"}"#),
        ] {
            let method = request.method().to_owned();
            let asked = said(&declaring, request).await.expect("a demand");
            assert!(asked["inputRequests"]["n"].is_object() && asked["requestState"].is_string(), "{method}: {asked}");
        }
        let (refused, why) =
            said(&declaring, Request::raw("prompts/list", "{}")).await.expect_err("the helper refuses");
        assert_eq!(refused, code::INTERNAL_ERROR, "{why}");
        // A handler that makes up such a result by itself: the client does not take it for one.
        let give = async |_: InputAsked| Some(THREE.to_owned());
        let raw = declaring.call_with_input(Request::raw("prompts/list", r#"{"raw":true}"#), give).await;
        assert!(matches!(raw, Err(CallError::Answer(_))), "{raw:?}");
        let bare = client(&url, r#"{"elicitation":{"url":{}}}"#).await;
        let (refused, why) = said(&bare, Request::tool("order", &json!({}))).await.expect_err("it declared no forms");
        assert_eq!(refused, code::MISSING_CAPABILITY, "{why}");
    });
}

#[test]
fn rule_i2_the_answer_is_the_same_request_under_a_new_id_with_the_exact_state() {
    run(async {
        let shop = Shop::new();
        let client = client(&serve(&shop, "ann").await, FORMS).await;
        let give = async |asked: InputAsked| {
            assert_eq!((&*asked.key, asked.kind), ("n", Kind::Form));
            Some(THREE.to_owned())
        };
        for request in [
            Request::tool("order", &json!({"sku": "a\u{e9}\"", "deep": [1, {"x": 2.0}]})),
            Request::raw("prompts/get", r#"{"name":"order","arguments":{"a":"b"}}"#),
            Request::raw("resources/read", r#"{"uri":"shop:order"}"#),
        ] {
            let done = value(&client.call_with_input(request, give).await.expect("an answer"));
            assert_eq!(done["content"][0]["text"], "ordered 3");
            let seen = std::mem::take(&mut *shop.seen.lock().expect("no panic"));
            let [(first_id, first), (second_id, second)] = &seen[..] else { panic!("two rounds: {seen:?}") };
            assert_ne!(first_id, second_id);
            assert_eq!(second["inputResponses"], three());
            // It opened, so it is the one that was given out, bit by bit.
            assert!(second["requestState"].is_string() && first.get("requestState").is_none());
            let bare = |params: &Value| {
                let mut params = params.as_object().expect("an object").clone();
                params.retain(|name, _| !["_meta", "requestState", "inputResponses"].contains(&&**name));
                params
            };
            assert_eq!(bare(first), bare(second));
        }
    });
}

#[test]
fn rule_i3_a_state_is_bound_to_its_caller_its_request_its_time_and_one_use() {
    run(async {
        let shop = Shop::new();
        let ann = client(&serve(&shop, "ann").await, FORMS).await;
        let bob = client(&serve(&shop, "bob").await, FORMS).await;
        let arguments = json!({"sku": "a"});
        let state = first_round(&ann, &arguments).await;
        let mut forged = state.clone().into_bytes();
        let middle = forged.len() / 2;
        forged[middle] = if forged[middle] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).expect("text");
        let short = json!({"lifetime_ms": 0});
        let expired = first_round(&ann, &short).await;
        for (client, request, why) in [
            (&ann, retry(&arguments, "made-up", &three()), "not one of this server's"),
            (&ann, retry(&arguments, &forged, &three()), "was changed"),
            (&bob, retry(&arguments, &state, &three()), "another caller"),
            (&ann, retry(&json!({"sku": "b"}), &state, &three()), "another request"),
            (&ann, retry(&short, &expired, &three()), "expired"),
        ] {
            let (refused, said) = said(client, request).await.expect_err(why);
            assert!(refused == code::INVALID_PARAMS && said.contains(why), "{why}: {refused} {said}");
        }
        let done = said(&ann, retry(&arguments, &state, &three())).await.expect("the failures have spent nothing");
        assert_eq!(done["resultType"], "complete");
        let (refused, why) = said(&ann, retry(&arguments, &state, &three())).await.expect_err("single use");
        assert!(refused == code::INVALID_PARAMS && why.contains("used before"), "{refused} {why}");
    });
}

#[test]
fn rule_i4_a_missing_or_wrong_response_is_asked_for_again_and_extra_keys_are_ignored() {
    run(async {
        let shop = Shop::new();
        let client = client(&serve(&shop, "ann").await, FORMS).await;
        let arguments = json!({"sku": "a"});
        let mut state = first_round(&client, &arguments).await;
        for wrong in [json!({}), json!({"other": three()["n"]}), json!({"n": 3}), json!({"n": {"action": "perhaps"}})] {
            let again = said(&client, retry(&arguments, &state, &wrong)).await.expect("asked again");
            assert_eq!(again["resultType"], "input_required", "{wrong}");
            state = again["requestState"].as_str().expect("a state").to_owned();
        }
        let mut more = three();
        more["nobody"] = json!({"asked": "for this"});
        let done = said(&client, retry(&arguments, &state, &more)).await.expect("done");
        assert_eq!(done["content"][0]["text"], "ordered 3");
        // What is no map of responses is refused.
        let state = first_round(&client, &arguments).await;
        let (refused, _) = said(&client, retry(&arguments, &state, &json!([]))).await.expect_err("no object");
        assert_eq!(refused, code::INVALID_PARAMS);
    });
}

#[test]
fn rule_i5_a_demand_for_input_is_never_the_outcome_of_a_key() {
    run(async {
        let shop = Shop::new();
        let client = client(&serve(&shop, "ann").await, FORMS).await;
        let key = Key::parse("an-order-with-a-key").expect("a key");
        let stored = |shop: &Shop| shop.ledger.reconcile(&scope(), &key).expect("read").map(|known| known.executions);
        let careless = Request::tool("careless", &json!({"sku": "a"})).key(key.clone());
        let (refused, why) = said(&client, careless).await.expect_err("the ledger refuses it");
        assert_eq!(refused, code::INTERNAL_ERROR, "{why}");
        assert_eq!((stored(&shop), shop.orders()), (None, (0, 0)), "neither the key nor the effect stays");
        for _ in 0..2 {
            let before = stored(&shop);
            let give = async |_: InputAsked| {
                assert_eq!(stored(&shop), before, "the first round leaves nothing");
                Some(THREE.to_owned())
            };
            let request = Request::tool("order", &json!({"sku": "a"})).key(key.clone());
            let done = value(&client.call_with_input(request, give).await.expect("an answer"));
            assert_eq!(done["content"][0]["text"], "ordered 3");
            assert_eq!((stored(&shop), shop.orders()), (Some(1), (3, 1)), "and the second call is a replay");
        }
    });
}
