//! A lost subscription: the plan with its authoritative reads, and ten thousand clients that lose one server at once.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use steady_core::backoff::{Backoff, Jitter};
use steady_core::client::{Client, Config, Input, Output, Transport};
use steady_core::id::{ClientId, WireId};
use steady_core::subscription::{self, Filter, RecoveryPlan, Refetch};
use steady_core::time::Instant;

use super::{Failure, Record};
use crate::demo::Section;
use crate::herd::{self, Herd, Retry};

/// One of everything that a client can listen for.
const FILTER: &str = r#"{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["file:///stock.csv"],"taskIds":["task-1"]}"#;
const READS: [&str; 5] = ["tools/list", "prompts/list", "resources/list", "resources/read", "tasks/get"];
const CLIENTS: u32 = 10_000;

pub(super) fn record(_: &Path) -> Result<Record, Failure> {
    let mut section = Section::new("reconnecting: the plan of one client, and a fleet that loses its server");
    let plans = plans()?;
    let [first, again] = plans.as_slice() else { return Err("a lost stream must lead to one new request".into()) };
    section.event(format!("the stream of listen request {} is lost", first.wire().number()));
    section.event(format!("listen request {} goes out; then what may be old is read", again.wire().number()));
    section.claim("the new request has an id that was never used", again.wire() > first.wire(), true);
    section.claim("it asks for the same, to the byte", again.filter().as_str(), FILTER);
    section.claim("it sends a Last-Event-ID", again.send_last_event_id(), false);
    section.claim("a first request reads nothing", first.refetch().len(), 0);
    let methods: Vec<&str> = again.refetch().iter().map(Refetch::method).collect();
    section.claim("the authoritative reads after it", methods, READS.to_vec());

    let fleet = |backoff, retry| Herd { clients: CLIENTS, backoff, retry, ..Herd::default() };
    let client = herd::run(&fleet(Backoff::default(), Retry::Jittered));
    let large = herd::run(&fleet(Backoff::FLEET, Retry::Jittered));
    let fixed = herd::run(&fleet(Backoff::default(), Retry::Fixed(Duration::from_secs(1))));
    section.claim("clients that are back", (client.back, large.back), (CLIENTS, CLIENTS));
    section.claim("the default pauses keep every attempt to its share", client.holds(), true);
    section.claim("the pauses for fleets do so too", large.holds(), true);
    section.claim("pauses without jitter do", fixed.holds(), false);
    let data = json!({
        "plans": plans.iter().map(told).collect::<Vec<_>>(),
        "herd": {"default": client, "fleet": large, "without_jitter": fixed},
    });
    Ok(Record { section, data })
}

fn told(plan: &RecoveryPlan) -> Value {
    let reads = plan.refetch().iter().map(|refetch| {
        let argument = refetch.argument().map(|(name, value)| json!({ name: value }));
        json!({"method": refetch.method(), "params": argument, "identified_by": refetch.stable_identifier()})
    });
    json!({
        "listen_request": plan.wire().number(),
        "replaces": plan.replaces().map(WireId::number),
        "filter": plan.filter().as_str(),
        "send_last_event_id": plan.send_last_event_id(),
        "refetch": reads.collect::<Vec<_>>(),
    })
}

/// The plans of one client, from its first request to the one after the loss.
fn plans() -> Result<Vec<RecoveryPlan>, Failure> {
    let jitter = |stream| Jitter::seeded(ClientId::new(1), stream);
    let mut client: Client<Refetch, ()> = Client::new(Instant::ZERO, Config::new(Transport::Http), jitter(0));
    let filter = Filter::parse(FILTER)?;
    let listens = client.listen(Instant::ZERO, filter, subscription::Config::default(), jitter(1));
    listens.map_err(|refused| format!("{refused:?}"))?;
    let mut plans = Vec::new();
    let mut now = Instant::ZERO;
    // A request, its acknowledgement, the loss, and the pause: a few turns, and never more than these.
    for _ in 0..8 {
        let mut wake_at = None;
        while plans.len() < 2 {
            match client.poll_output() {
                Output::Idle { wake_at: at } => {
                    wake_at = at;
                    break;
                }
                Output::Listen { plan, .. } => {
                    let (wire, first) = (plan.wire(), plans.is_empty());
                    plans.push(plan);
                    if first {
                        client.handle_input(now, Input::Acknowledged { wire });
                        client.handle_input(now, Input::StreamLost { wire });
                    }
                }
                Output::Gap { .. }
                | Output::Send { .. }
                | Output::Finished { .. }
                | Output::Notice { .. }
                | Output::Signal { .. }
                | Output::Progress { .. }
                | Output::Unsubscribed { .. } => {}
            }
        }
        let Some(at) = wake_at else { break };
        now = at;
        client.handle_timeout(now);
    }
    Ok(plans)
}
