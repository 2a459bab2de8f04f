//! The core race, in both orders: a cancellation and a completion of the same request.

use std::path::Path;
use std::time::Duration;

use steady_core::client::{CallOptions, Transport};
use steady_core::time::Instant;

use super::{DemoError, Section, name, outcome};
use crate::lab::{Inventory, inventory_server};
use crate::world::{Network, NetworkOptions};

/// Which of the two reaches the request first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    CancelFirst,
    CompleteFirst,
}

/// Both ways take 5 ms, so the handler, which takes 50 ms, completes at 55.
const LATENCY: Duration = Duration::from_millis(5);
const CANCEL_EARLY: Instant = Instant::from_millis(30);
/// Completed two milliseconds ago; the answer is on its way.
const CANCEL_LATE: Instant = Instant::from_millis(57);

pub(super) fn run(dir: &Path, transport: Transport, order: Order) -> Result<Section, DemoError> {
    let inventory = Inventory::open(dir.join("race.db"), "demo")?;
    let options = NetworkOptions { transport, to_server: LATENCY, to_client: LATENCY, held_by_proxy: Duration::ZERO };
    let mut network = Network::new(inventory_server(inventory), options);
    let count = network.call("slow_count", r#"{"to":1,"interval_ms":50}"#, CallOptions::default());
    let call = count.ok_or(DemoError::NotTaken)?;
    let (title, cancel_at) = match order {
        Order::CancelFirst => ("cancel, then complete", CANCEL_EARLY),
        Order::CompleteFirst => ("complete, then cancel", CANCEL_LATE),
    };
    network.run_until(cancel_at);
    network.cancel(call);
    network.run_until(Instant::from_millis(200));

    let mut section = Section::new(format!("{title}, {}", name(transport)));
    for wire in &network.wires {
        let arrow = if wire.from_client { "client ->" } else { "       <- server" };
        section.event(format!("{:>10} {arrow} {}", wire.at.to_string(), wire.text));
    }
    let ended = network.finished.get(&call).map(|(at, finished)| (*at, outcome(&finished.outcome)));
    section.claim("the caller is settled at once, as cancelled", ended, Some((cancel_at, "cancelled")));

    let notices = network.wires.iter().filter(|wire| wire.text.contains("notifications/cancelled")).count();
    let closes = network.wires.iter().filter(|wire| wire.text.starts_with("(closes")).count();
    let (text, expected) = match transport {
        Transport::Stdio => ("the signal is one notifications/cancelled message", (1, 0)),
        Transport::Http => ("the signal is the closed stream, and no message", (0, 1)),
    };
    section.claim(text, (notices, closes), expected);

    let answers = network.wires.iter().filter(|wire| !wire.from_client && wire.text.contains("\"result\"")).count();
    let ignored = network.ignored.iter().filter(|(_, _, what)| what == "a response").count();
    let counted = network.client().counters().late_answers;
    match order {
        Order::CancelFirst => {
            let after = network.wires.iter().filter(|wire| !wire.from_client && wire.at >= cancel_at + LATENCY).count();
            section.claim("nothing leaves the server for it after the cancellation", after, 0);
            section.claim("its completion is suppressed: no response exists", answers, 0);
        }
        Order::CompleteFirst => {
            section.claim("the response exists, once: the late cancellation is ignored", answers, 1);
            let (text, expected) = match transport {
                Transport::Stdio => ("the client ignores the late response, and counts it", (1, 1)),
                Transport::Http => ("the client ignores the late response: it has closed its stream", (1, 0)),
            };
            section.claim(text, (ignored, counted), expected);
        }
    }

    let again = network.call("slow_count", r#"{"to":1,"interval_ms":1}"#, CallOptions::default());
    let again = again.ok_or(DemoError::NotTaken)?;
    network.run_until(Instant::from_millis(400));
    let ended = network.finished.get(&again).map(|(_, finished)| outcome(&finished.outcome));
    section.claim("the next call is answered", ended, Some("answered"));
    Ok(section)
}
