//! The counters through the `metrics` facade.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use steady_core::kernel::{Answer, ServerConfig};

use super::{Server, cancel, ok, request};

/// Keeps what it is told.
#[derive(Default)]
pub(crate) struct Kept(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Kept {
    fn of(&self, key: &Key) -> Arc<AtomicU64> {
        let labels: Vec<String> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Arc::clone(self.0.lock().expect("no panic").entry(name).or_default())
    }

    pub(crate) fn get(&self, name: &str) -> u64 {
        self.0.lock().expect("no panic").get(name).map_or(0, |value| value.load(Ordering::SeqCst))
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.of(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn the_facade_hears_what_is_new_each_turn() {
    let kept = Kept::default();
    metrics::with_local_recorder(&kept, || {
        let mut server = Server::new(ServerConfig::default(), |call, _| match &*call.method {
            "echo" => Answer::Ready(ok()),
            _ => Answer::later(std::future::pending()),
        });
        for id in 1..=3 {
            server.send(request(id, "echo"));
        }
        server.send(request(4, "never"));
        assert_eq!(f64::from_bits(kept.get("mcp_steady_requests_in_flight{}")).to_bits(), 1f64.to_bits());
        server.send(cancel(4));
        server.send(cancel(4));
    });
    assert_eq!(kept.get("mcp_steady_requests_ended{state=completed}"), 3);
    assert_eq!(kept.get("mcp_steady_requests_ended{state=cancelled}"), 1);
    assert_eq!(kept.get("mcp_steady_cancellations_ignored{reason=unknown}"), 1);
    assert_eq!(kept.get("mcp_steady_messages{direction=out}"), 3);
}
