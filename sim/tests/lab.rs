//! The lab's server on the shipped kernel, in virtual time, over a real ledger file.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use steady_core::client::{CallOptions, Outcome, Transport};
use steady_core::idempotency::Key;
use steady_core::kernel::Tools;
use steady_core::time::Instant;
use steady_sim::demo;
use steady_sim::lab::{Inventory, inventory_server};
use steady_sim::wire::Answer;
use steady_sim::world::{Network, NetworkOptions};

struct Shop {
    network: Network<Tools>,
    inventory: Inventory,
}

impl Shop {
    fn open(file: &Path, transport: Transport) -> Self {
        let inventory = Inventory::open(file, "tester").expect("a ledger");
        let latency = Duration::from_millis(1);
        let options =
            NetworkOptions { transport, to_server: latency, to_client: latency, held_by_proxy: Duration::ZERO };
        Self { network: Network::new(inventory_server(inventory.clone()), options), inventory }
    }

    /// Calls a tool and waits for its answer.
    fn call(&mut self, tool: &str, arguments: &str) -> Answer {
        let call = self.network.call(tool, arguments, CallOptions::default()).expect("room");
        self.network.run_until(self.network.now() + Duration::from_secs(20));
        match self.network.finished.get(&call).map(|(_, finished)| finished.outcome.clone()) {
            Some(Outcome::Answered(answer)) => answer,
            other => panic!("{tool} was not answered: {other:?}"),
        }
    }

    fn data(&mut self, tool: &str, arguments: &str) -> Value {
        let Answer::Result(text) = self.call(tool, arguments) else { panic!("{tool} was refused") };
        let result: Value = serde_json::from_str(&text).expect("JSON");
        result["structuredContent"].clone()
    }
}

fn shop(transport: Transport) -> (tempfile::TempDir, Shop) {
    let dir = tempfile::tempdir().expect("a directory");
    let shop = Shop::open(&dir.path().join("shop.db"), transport);
    (dir, shop)
}

const ORDER: &str = r#"{"sku":"gadget","quantity":2,"tenant":"acme","idempotencyKey":"order-7"}"#;
const KEYLESS: &str = r#"{"sku":"gadget","quantity":2,"tenant":"acme"}"#;

#[test]
fn statement_06_a_new_json_rpc_id_alone_executes_a_mutation_again() {
    for transport in [Transport::Stdio, Transport::Http] {
        let (_dir, mut shop) = shop(transport);
        let first = shop.data("reserve_inventory", KEYLESS);
        let second = shop.data("reserve_inventory", KEYLESS);
        assert_ne!(first["reservationId"], second["reservationId"]);
        assert_eq!(shop.inventory.count("gadget").expect("read"), (6, 2));
        assert!(first["automaticRetry"].as_str().expect("a text").starts_with("off"));
    }
}

#[test]
fn one_key_under_new_ids_reserves_once_and_gives_the_first_reservation_back() {
    for transport in [Transport::Stdio, Transport::Http] {
        let (_dir, mut shop) = shop(transport);
        let first = shop.data("reserve_inventory", ORDER);
        let second = shop.data("reserve_inventory", ORDER);
        assert_eq!((&first["replayed"], &second["replayed"]), (&Value::Bool(false), &Value::Bool(true)));
        assert_eq!(first["reservationId"], second["reservationId"]);
        assert_eq!(shop.inventory.count("gadget").expect("read"), (8, 1));
        let key = Key::parse("order-7").expect("a key");
        let known = shop.inventory.reconcile(&key).expect("read").expect("known");
        assert_eq!(known.executions, 1);
    }
}

#[test]
fn one_key_with_another_sku_quantity_or_tenant_is_refused_without_an_effect() {
    let (_dir, mut shop) = shop(Transport::Stdio);
    shop.data("reserve_inventory", ORDER);
    for other in [ORDER.replace("gadget", "widget"), ORDER.replace(":2", ":3"), ORDER.replace("acme", "umbrella")] {
        let Answer::Error(error) = shop.call("reserve_inventory", &other) else { panic!("{other} was accepted") };
        assert!(error.contains("-32602") && error.contains("idempotency_key_conflict"), "{error}");
    }
    assert_eq!(shop.inventory.count("gadget").expect("read"), (8, 1));
    assert_eq!(shop.inventory.count("widget").expect("read"), (1000, 0));
}

#[test]
fn an_empty_key_is_refused_before_anything_happens() {
    let (_dir, mut shop) = shop(Transport::Stdio);
    let empty = r#"{"sku":"gadget","quantity":2,"tenant":"acme","idempotencyKey":""}"#;
    assert!(matches!(shop.call("reserve_inventory", empty), Answer::Error(_)));
    assert_eq!(shop.inventory.count("gadget").expect("read"), (10, 0));
}

#[test]
fn a_refusal_of_the_shop_is_a_result_and_is_final_for_its_key() {
    let (_dir, mut shop) = shop(Transport::Stdio);
    let too_much = r#"{"sku":"gizmo","quantity":5,"tenant":"acme","idempotencyKey":"order-8"}"#;
    for _ in 0..2 {
        let Answer::Result(text) = shop.call("reserve_inventory", too_much) else { panic!("a protocol error") };
        assert!(text.contains("\"isError\":true") && text.contains("only 1 of"), "{text}");
    }
    for wrong in [r#"{"sku":"gizmo"}"#, r#"{"sku":"gizmo","quantity":0,"tenant":"a"}"#, r#"{"quantity":"1"}"#] {
        let Answer::Error(error) = shop.call("reserve_inventory", wrong) else { panic!("{wrong} was accepted") };
        assert!(error.contains("-32602") && error.contains("arguments"), "{error}");
    }
}

#[test]
fn a_reservation_is_found_by_its_key_and_by_its_id_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("shop.db");
    let first = Shop::open(&file, Transport::Stdio).data("reserve_inventory", ORDER);
    let mut shop = Shop::open(&file, Transport::Stdio);
    let by_key = shop.data("get_reservation", r#"{"idempotencyKey":"order-7"}"#);
    assert_eq!((&by_key["state"], &by_key["executions"]), (&"committed".into(), &1.into()));
    let id = first["reservationId"].as_str().expect("a text");
    let found = shop.data("get_reservation", &format!(r#"{{"reservationId":"{id}","tenant":"acme"}}"#));
    assert_eq!((&found["sku"], &found["quantity"]), (&first["sku"], &first["quantity"]));
    let absent = shop.data("get_reservation", r#"{"idempotencyKey":"order-9"}"#);
    assert_eq!(absent["state"], "absent");
    let other = shop.call("get_reservation", &format!(r#"{{"reservationId":"{id}","tenant":"umbrella"}}"#));
    assert!(other.text().contains("\"isError\":true"), "another tenant's reservation is not shown");
}

#[test]
fn statement_02_streamable_http_cancellation_closes_the_stream_and_sends_no_cancellation_post() {
    let (_dir, mut shop) = shop(Transport::Http);
    let call =
        shop.network.call("slow_count", r#"{"to":1000,"interval_ms":10}"#, CallOptions::default()).expect("room");
    shop.network.run_until(Instant::from_millis(100));
    let before = shop.network.wires.len();
    shop.network.cancel(call);
    shop.network.run_until(Instant::from_millis(60_000));
    let after: Vec<&str> = shop.network.wires[before..].iter().map(|wire| wire.text.as_str()).collect();
    assert_eq!(after, ["(closes the response stream of request 1)"], "one signal, no POST, and silence");
}

#[test]
fn the_demonstration_is_deterministic_and_every_claim_holds() {
    let run = || {
        let dir = tempfile::tempdir().expect("a directory");
        let report = demo::run(dir.path()).expect("it runs");
        assert!(report.holds(), "{report:#?}");
        serde_json::to_string(&report).expect("JSON")
    };
    assert_eq!(run(), run());
}

#[test]
fn a_claim_that_does_not_hold_fails_the_report() {
    let mut section = demo::Section::new("a mutant");
    section.claim("two is three", 2, 3);
    let mut report = demo::Report::default();
    report.sections.push(section);
    assert!(!report.holds());
}

#[test]
fn a_break_takes_the_request_that_is_under_way_and_says_so_when_there_is_nothing_to_break() {
    use steady_sim::experiment::{Lane, Script, run};
    let played = |steps: &str| {
        let script = Script::parse(&format!("transport http\nlatency 5ms\n{steps}")).expect("a script");
        run(&script).expect("it runs")
    };
    let found = played("call A\nwait 1ms\nbreak A\nwait 20ms\ncomplete A\n");
    assert_eq!((found.rows[0].client, found.rows[0].response), ("unknown", false));
    let lost: Vec<Lane> = found.moments.iter().filter(|moment| moment.lost).map(|moment| moment.lane).collect();
    assert_eq!(lost, [Lane::ToServer]);
    assert!(found.timeline.iter().any(|line| line.contains("tools/call") && line.ends_with("(lost)")));
    for over in
        ["call A\nwait 20ms\ncomplete A\nwait 20ms\nbreak A\n", "call A\nwait 20ms\ncancel A\nwait 20ms\nbreak A\n"]
    {
        let found = played(over);
        assert!(
            found.timeline.iter().any(|line| line.ends_with("nothing to break: A has no open stream")),
            "{found:?}"
        );
        assert!(!found.moments.iter().any(|moment| moment.lost));
    }
}

#[test]
fn what_arrives_on_a_stream_that_the_client_has_closed_is_ignored() {
    use steady_sim::experiment::{Script, run};
    let script = "transport http\nlatency 5ms\ncall A\nwait 20ms\nprogress A\ncomplete A\nwait 2ms\ncancel A\n";
    let found = run(&Script::parse(script).expect("a script")).expect("it runs");
    let ignored: Vec<String> = found.rows[0].ignored.iter().map(ToString::to_string).collect();
    let expected =
        ["late progress (by the client)", "the late response (by the client)", "the late cancellation (by the server)"];
    assert_eq!(ignored, expected);
}

#[test]
fn the_largest_experiment_comes_to_its_end() {
    use steady_sim::experiment::{Script, run};
    let mut script = String::from("transport http\n");
    for request in 0..1000 {
        script += &format!("call R{request}\nwait 5ms\ncancel R{request}\n");
    }
    let script = Script::parse(&script).expect("a script");
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(run(&script).expect("it runs").rows));
    // A guard against hanging: it takes a fraction of a second.
    let rows = receiver.recv_timeout(Duration::from_secs(60)).expect("it ends");
    assert_eq!(rows.len(), 1000);
    assert!(rows.iter().all(|row| row.client == "cancelled"));
}
