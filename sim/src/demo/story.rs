//! The opening story: the client times out, the server finishes one millisecond later, the client retries under a new id.

use std::path::Path;
use std::time::Duration;

use steady_core::client::{CallOptions, Transport};
use steady_core::deadline::Limits;
use steady_core::idempotency::Key;
use steady_core::kernel::{Answer, Call, Context, Service, Tools};
use steady_core::retry::Contract;
use steady_core::time::Instant;

use super::{DemoError, Section, outcome};
use crate::lab::{Inventory, inventory_server};
use crate::world::{Network, NetworkOptions};

const LATENCY: Duration = Duration::from_millis(5);
/// A proxy that buffers tells the server of the closed stream this much later.
const HELD_BY_PROXY: Duration = Duration::from_millis(50);
const CLIENT_MAXIMUM: Duration = Duration::from_millis(1000);
/// The first request arrives at 5 ms, so its work is done at 1001: one millisecond after the client gave up.
const WORK: Duration = Duration::from_millis(996);

/// The inventory server, busy for a while before each call.
struct Busy(Tools);

impl Service for Busy {
    fn call(&self, call: Call, cx: Context) -> Answer {
        let answer = self.0.call(call, cx.clone());
        if matches!(answer, Answer::Listen(_)) {
            return answer;
        }
        Answer::later(async move {
            // The work does not look at its cancellation: it is of the kind that cannot be stopped half-way.
            let done = cx.now() + WORK;
            while cx.now() < done {
                if cx.sleep_until(done).await.is_err() {
                    break;
                }
            }
            match answer {
                Answer::Ready(outcome) => outcome,
                Answer::Later(future) => future.await,
                Answer::Blocking(job) => job(),
                Answer::Listen(_) | _ => Err(steady_core::rpc::RpcError::internal("an answer of another kind")),
            }
        })
    }
}

pub(super) fn run(dir: &Path, key: Option<&str>) -> Result<Section, DemoError> {
    let file = if key.is_some() { "keyed.db" } else { "keyless.db" };
    let inventory = Inventory::open(dir.join(file), "demo")?;
    let options = NetworkOptions {
        transport: Transport::Http,
        to_server: LATENCY,
        to_client: LATENCY,
        held_by_proxy: HELD_BY_PROXY,
    };
    let mut network = Network::new(Busy(inventory_server(inventory.clone())), options);
    let argument = key.map(|key| format!(r#","idempotencyKey":"{key}""#)).unwrap_or_default();
    let arguments = format!(r#"{{"sku":"widget","quantity":1,"tenant":"acme"{argument}}}"#);
    let contract = match key.map(Key::parse) {
        Some(Ok(key)) => Contract::Conditional(key),
        Some(Err(_)) | None => Contract::Unsafe,
    };
    let limits = Limits { idle: None, maximum: Some(CLIENT_MAXIMUM) };
    let options = CallOptions { limits, contract: contract.clone(), ..CallOptions::default() };

    let first = network.call("reserve_inventory", &arguments, options).ok_or(DemoError::NotTaken)?;
    network.run_until(Instant::from_millis(1100));
    let retry = CallOptions { contract, ..CallOptions::default() };
    let second = network.call("reserve_inventory", &arguments, retry).ok_or(DemoError::NotTaken)?;
    network.run_until(Instant::from_millis(5000));

    let title = if key.is_some() { "with an idempotency key" } else { "without a key" };
    let mut section = Section::new(format!("the opening story, {title}"));
    for wire in &network.wires {
        let arrow = if wire.from_client { "client ->" } else { "       <- server" };
        section.event(format!("{:>10} {arrow} {}", wire.at.to_string(), wire.text));
    }
    let end = |call| network.finished.get(&call).map(|(_, finished)| (outcome(&finished.outcome), finished.verdict));
    let verdict = if key.is_some() { "RetrySameKey" } else { "ReconcileFirst" };
    let gave_up = end(first).map(|(outcome, verdict)| (outcome, verdict.map(|verdict| format!("{verdict:?}"))));
    section.claim(
        "the first call times out, and the client knows what it may do next",
        gave_up,
        Some(("maximum timeout", Some(verdict.to_owned()))),
    );
    let answered = end(second).map(|(outcome, _)| outcome);
    section.claim("the retry, under a new id, is answered", answered, Some("answered"));
    let (_, reservations) = inventory.count("widget")?;
    let (text, expected) = match key {
        Some(_) => ("the stock was reserved once: the retry got the first reservation back", 1),
        None => ("a new JSON-RPC id alone is no protection: the stock was reserved twice", 2),
    };
    section.claim(text, reservations, expected);
    Ok(section)
}
