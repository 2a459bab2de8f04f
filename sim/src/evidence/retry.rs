//! Retries: the table of every mutation that the inventory server exposes, and a response that is lost on its way.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use steady_core::client::{CallOptions, Outcome, Transport};
use steady_core::id::CallId;
use steady_core::idempotency::Key;
use steady_core::kernel::Tools;
use steady_core::retry::{Contract, SendPhase};
use steady_core::time::Instant;
use steady_ledger::Executor as Writer;

use super::shop::{self, Shop};
use super::{Failure, Record};
use crate::demo::Section;
use crate::lab::inventory_server;
use crate::wire::Answer;
use crate::world::{Network, NetworkOptions};

/// Tools that change nothing that outlives them. Every other tool of the server is a mutation, and must be in the table.
const READS: [&str; 2] = ["get_reservation", "slow_count"];

/// The mutations, with arguments.
fn mutations() -> [(&'static str, Value); 2] {
    [
        ("reserve_inventory", json!({"sku": "widget", "quantity": 1, "tenant": "acme"})),
        ("restock", json!({"sku": "widget", "batches": 1, "perBatch": 5})),
    ]
}

/// What two calls under two ids, with the same arguments, do: counted at the server, not taken from what it says.
pub(super) fn table(dir: &Path) -> Result<Record, Failure> {
    let mut section = Section::new("retry table of every exposed mutation");
    let listed = Shop::open(&dir.join("list.db"))?.ask("tools/list", json!({}))?;
    let tools = listed.get("tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let exposed: BTreeSet<&str> = tools.iter().filter_map(|tool| tool.get("name")?.as_str()).collect();
    let known: BTreeSet<&str> = mutations().iter().map(|(name, _)| *name).chain(READS).collect();
    section.claim("every exposed tool is a read or is in this table", &exposed, &known);
    let mut rows = Vec::new();
    for (tool, arguments) in mutations() {
        for key in [None, Some("order-7")] {
            let file = format!("{tool}-{}.db", key.unwrap_or("keyless"));
            let executions = executions(&dir.join(file), tool, &arguments, key)?;
            let contract = contract(key)?;
            let verdict = |phase| contract.verdict(phase).to_string();
            let keyed = if key.is_some() { "with one key" } else { "without a key" };
            let expected = if key.is_some() { 1 } else { 2 };
            section.claim(format!("{tool} {keyed}: two calls under two ids run"), executions, expected);
            rows.push(json!({
                "tool": tool,
                "key": key.is_some(),
                "contract": contract.safety().to_string(),
                "never_sent": verdict(SendPhase::NeverSent),
                "maybe_sent": verdict(SendPhase::MaybeSent),
                "executions_of_two_calls": executions,
            }));
        }
    }
    Ok(Record { section, data: json!({"reads": READS, "mutations": rows}) })
}

fn contract(key: Option<&str>) -> Result<Contract, Failure> {
    Ok(match key {
        Some(key) => Contract::Conditional(Key::parse(key)?),
        None => Contract::Unsafe,
    })
}

/// How often the effect of two equal calls happened: reservations in the stock's table, or tasks that a worker can claim.
fn executions(file: &Path, tool: &str, arguments: &Value, key: Option<&str>) -> Result<i64, Failure> {
    let mut shop = Shop::open(file)?;
    let mut arguments = arguments.clone();
    if let (Some(key), Value::Object(members)) = (key, &mut arguments) {
        members.insert("idempotencyKey".into(), key.into());
    }
    for _ in 0..2 {
        shop.call(tool, &arguments)?;
    }
    let tasks = i64::try_from(shop.inventory.tasks().live(None, 10)?.len())?;
    let (_, reservations) = shop.inventory.count("widget")?;
    Ok(tasks + reservations)
}

const LATENCY: Duration = Duration::from_millis(5);
/// The request arrives at 5 ms and is committed then; its answer would arrive at 10.
const LOST: Instant = Instant::from_millis(7);
const REST: Instant = Instant::from_millis(600_000);

/// The server has committed, and its answer is lost: with a key the client asks again, without one it does not.
pub(super) fn lost_response(dir: &Path) -> Result<Record, Failure> {
    let mut section = Section::new("a response is lost after the commit");
    let mut stories = Vec::new();
    for key in [Some("order-7"), None] {
        let story = lose(dir, key)?;
        let keyed = if key.is_some() { "with a key" } else { "without a key" };
        let expected =
            if key.is_some() { ("answered", 2, Value::Null) } else { ("unknown", 1, "reconcile first".into()) };
        let (outcome, attempts, next) = expected;
        section.claim(format!("{keyed}: the call ends as"), story.outcome, outcome);
        section.claim(format!("{keyed}: attempts on the wire"), story.attempts, attempts);
        section.claim(format!("{keyed}: what the client may do next"), &story.next, &next);
        section.claim(format!("{keyed}: the stock was reserved"), story.reservations, 1);
        if key.is_some() {
            section.claim("with a key: the answer is that of the first attempt", story.replayed, true);
            section.claim("with a key: the server names it committed, once", &story.known, &Some(("committed", 1)));
        }
        section.events.extend(story.wires.iter().map(|wire| format!("{keyed}: {wire}")));
        stories.push(json!({
            "key": key, "outcome": story.outcome, "attempts": story.attempts, "next": story.next,
            "reservations": story.reservations, "wires": story.wires,
        }));
    }
    Ok(Record { section, data: json!({"stories": stories}) })
}

struct Story {
    outcome: &'static str,
    attempts: usize,
    next: Value,
    reservations: i64,
    replayed: bool,
    known: Option<(&'static str, u64)>,
    wires: Vec<String>,
}

fn lose(dir: &Path, key: Option<&str>) -> Result<Story, Failure> {
    let file = dir.join(format!("lost-{}.db", key.unwrap_or("keyless")));
    let inventory = shop::inventory(&file, Writer::Inline)?;
    let (transport, held_by_proxy) = (Transport::Http, Duration::ZERO);
    let options = NetworkOptions { transport, to_server: LATENCY, to_client: LATENCY, held_by_proxy };
    let mut network = Network::new(inventory_server(inventory.clone()), options);
    let argument = key.map(|key| format!(r#","idempotencyKey":"{key}""#)).unwrap_or_default();
    let arguments = format!(r#"{{"sku":"widget","quantity":1,"tenant":"acme"{argument}}}"#);
    let options = CallOptions { contract: contract(key)?, ..CallOptions::default() };
    let call = network.call("reserve_inventory", &arguments, options).ok_or("the client takes no call")?;
    network.run_until(LOST);
    let wire = network.attempts.first().map(|(_, wire)| *wire).ok_or("nothing was sent")?;
    network.break_stream(wire);
    network.run_until(REST);
    let (outcome, next, replayed) = ended(&network, call)?;
    let known = match key {
        Some(key) => {
            inventory.reconcile(&Key::parse(key)?)?.map(|known| (super::key::state(known.state), known.executions))
        }
        None => None,
    };
    let arrow = |from_client| if from_client { "client ->" } else { "<- server" };
    let wires = network.wires.iter().map(|wire| format!("{} {} {}", wire.at, arrow(wire.from_client), wire.text));
    let (_, reservations) = inventory.count("widget")?;
    Ok(Story { outcome, attempts: network.attempts.len(), next, reservations, replayed, known, wires: wires.collect() })
}

fn ended(network: &Network<Tools>, call: CallId) -> Result<(&'static str, Value, bool), Failure> {
    let (_, finished) = network.finished.get(&call).ok_or("the call never ends")?;
    let next = finished.verdict.map_or(Value::Null, |verdict| verdict.to_string().into());
    let replayed = match &finished.outcome {
        Outcome::Answered(Answer::Result(text)) => {
            serde_json::from_str::<Value>(text)?.pointer("/structuredContent/replayed") == Some(&Value::Bool(true))
        }
        Outcome::Answered(Answer::Error(_))
        | Outcome::Cancelled
        | Outcome::IdleTimeout
        | Outcome::MaxTimeout
        | Outcome::NeverSent
        | Outcome::Unknown => false,
    };
    Ok((crate::demo::outcome(&finished.outcome), next, replayed))
}
