//! The client machine: a readable script for each rule, and every sequence of one or two calls.

mod attempts;
mod counts;
#[path = "../support/invariants/mod.rs"]
mod invariants;
#[path = "../support/key.rs"]
mod key;
mod listens;
mod scripts;
mod search;
#[path = "../support/searched.rs"]
mod searched;

use std::time::Duration;

use steady_core::backoff::{Backoff, Jitter};
use steady_core::client::{CallOptions, Client, Config, Finished, Input, Output, Transport};
use steady_core::deadline::Limits;
use steady_core::id::{CallId, ClientId, WireId};
use steady_core::idempotency::Key;
use steady_core::progress::Progress;
use steady_core::retry::{BudgetConfig, Contract};
use steady_core::time::Instant;

pub(crate) type Calls = Client<&'static str, u32>;
pub(crate) type Out = Output<&'static str, u32>;

pub(crate) fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

pub(crate) fn limits(idle: u64, maximum: u64) -> Limits {
    Limits { idle: Some(Duration::from_millis(idle)), maximum: Some(Duration::from_millis(maximum)) }
}

/// No pauses, no rate limit, no shared budget to speak of.
pub(crate) fn config(transport: Transport) -> Config {
    Config {
        progress_interval: Duration::ZERO,
        backoff: Backoff { base: Duration::ZERO, cap: Duration::ZERO },
        budget: BudgetConfig { capacity: 1000, ..BudgetConfig::default() },
        ..Config::new(transport)
    }
}

pub(crate) fn client(config: Config) -> Calls {
    Client::new(Instant::ZERO, config, Jitter::seeded(ClientId::new(1), 0))
}

pub(crate) fn stdio() -> Calls {
    client(config(Transport::Stdio))
}

pub(crate) fn options(contract: Contract) -> CallOptions {
    CallOptions { limits: limits(500, 2000), contract, attempts: 3, ..CallOptions::default() }
}

pub(crate) fn keyed() -> Contract {
    Contract::Conditional(Key::parse("order-7").expect("a key"))
}

/// All that is to be done now.
pub(crate) fn drain(client: &mut Calls) -> Vec<Out> {
    let mut outputs = Vec::new();
    loop {
        let output = client.poll_output();
        if matches!(output, Output::Idle { .. }) {
            return outputs;
        }
        outputs.push(output);
    }
}

pub(crate) fn wake_at(client: &mut Calls) -> Option<Instant> {
    loop {
        if let Output::Idle { wake_at } = client.poll_output() {
            return wake_at;
        }
    }
}

/// Starts a call and takes its first `Send`.
pub(crate) fn start(client: &mut Calls, now: Instant, options: CallOptions) -> (CallId, WireId) {
    let call = client.call(now, "payload", options).expect("below the cap");
    let sent = drain(client);
    let [Output::Send { wire, payload: "payload", .. }] = sent[..] else { panic!("{sent:?}") };
    (call, wire)
}

pub(crate) fn progress(wire: WireId, value: f64) -> Input<u32> {
    Input::Progress { wire, value: Progress::new(value).expect("finite") }
}

pub(crate) fn answer(wire: WireId) -> Input<u32> {
    Input::Response { wire, answer: 42 }
}

/// The one end among these outputs.
pub(crate) fn end(outputs: &[Out]) -> Finished<u32> {
    let mut ends = Vec::new();
    for output in outputs {
        if let Output::Finished { finished, .. } = output {
            ends.push(finished.clone());
        }
    }
    let [finished] = &ends[..] else { panic!("one end: {outputs:?}") };
    finished.clone()
}
