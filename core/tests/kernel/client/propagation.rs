//! The trace context that a client's requests carry.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use steady_core::kernel::client::{ClientConfig, Propagator, Request, TraceContext};

use super::{Client, answer, call, config};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// A client whose calls each have a context of their own.
fn client() -> Client {
    let next = Arc::new(AtomicU32::new(0));
    let current = move || {
        let parent = format!("00-{TRACE}-{:016x}-01", next.fetch_add(1, Ordering::SeqCst));
        TraceContext::new(&parent, Some("vendor=\"1\""))
    };
    Client::new(ClientConfig { trace: Some(Propagator::new(current)), ..config() })
}

fn metas(client: &mut Client) -> Vec<Value> {
    client.run();
    let read = |line: &String| serde_json::from_str::<Value>(line).expect("JSON")["params"]["_meta"].clone();
    client.world.lines().iter().map(read).collect()
}

fn parent(n: u32) -> Value {
    format!("00-{TRACE}-{n:016x}-01").into()
}

#[test]
fn each_call_carries_its_context_in_every_attempt() {
    let mut client = client();
    let (_read, _other) = (client.caller.call(call().safe()), client.caller.call(call()));
    let metas_seen = metas(&mut client);
    assert_eq!((&metas_seen[0]["traceparent"], &metas_seen[1]["traceparent"]), (&parent(0), &parent(1)));
    assert_eq!(metas_seen[0]["tracestate"], "vendor=\"1\"");
    assert_eq!(metas_seen[0]["progressToken"], 1);
    client.lose(true);
    let again = metas(&mut client);
    assert_eq!((again.len(), &again[0]["traceparent"]), (1, &parent(0)), "the same call");
}

#[test]
fn a_context_of_the_callers_own_goes_before() {
    let mut client = client();
    let own = |name: &str| Request::new("m", &json!({"_meta": {name: "mine", "other": 1}}));
    let _calls = [client.caller.call(own("traceparent")), client.caller.call(own("tracestate"))];
    let metas = metas(&mut client);
    assert_eq!((&metas[0]["traceparent"], &metas[0]["tracestate"]), (&json!("mine"), &Value::Null));
    assert_eq!((&metas[1]["traceparent"], &metas[1]["tracestate"]), (&Value::Null, &json!("mine")));
    assert_eq!(metas[0]["other"], 1);
}

#[test]
fn without_a_context_there_is_no_member_and_what_is_none_is_refused() {
    let none = ClientConfig { trace: Some(Propagator::new(|| TraceContext::new("00-zz", None))), ..config() };
    for mut client in [Client::new(none), Client::new(config())] {
        let _pending = client.caller.call(call());
        let metas = metas(&mut client);
        assert_eq!((metas.len(), metas[0].get("traceparent")), (1, None));
        client.say(&answer(1));
    }
    let long = "x".repeat(513);
    for state in ["line\nend", "é", &long] {
        let parent = format!("00-{TRACE}-{:016x}-01", 1);
        let without = TraceContext::new(&parent, None);
        assert!(without.is_some());
        assert_eq!(TraceContext::new(&parent, Some(state)), without, "{state:?}");
    }
}

#[test]
fn the_application_may_use_the_client_while_it_is_asked() {
    // Nothing is locked, or this would never end.
    let handle: Arc<std::sync::OnceLock<steady_core::kernel::client::Caller>> = Arc::default();
    let asked = Arc::clone(&handle);
    let current = move || {
        let stats = asked.get().map(steady_core::kernel::client::Caller::stats);
        stats.and_then(|stats| TraceContext::new(&format!("00-{TRACE}-{:016x}-01", stats.started), None))
    };
    let mut client = Client::new(ClientConfig { trace: Some(Propagator::new(current)), ..config() });
    assert!(handle.set(client.caller.clone()).is_ok());
    let _pending = client.caller.call(call());
    assert_eq!(metas(&mut client)[0]["traceparent"], parent(0));
}
