//! A client's counters through the `metrics` facade.

use super::super::metrics::Kept;
use super::{Client, Request, answer, call, config, json, progress};
use steady_core::kernel::client::ClientConfig;

#[test]
fn the_facade_hears_of_a_client_what_is_new_each_turn() {
    let kept = Kept::default();
    metrics::with_local_recorder(&kept, || {
        let mut client = Client::new(ClientConfig { max_request: 1000, ..config() });
        let _calls: Vec<_> = (0..3).map(|_| client.caller.call(call())).collect();
        client.run();
        assert_eq!(f64::from_bits(kept.get("mcp_steady_client_calls_in_flight{}")).to_bits(), 3f64.to_bits());
        client.say(&answer(1));
        client.say(&answer(1));
        client.say(&progress(2, 2.0, ""));
        client.say(&progress(2, 1.0, ""));
        client.say(&json!({"jsonrpc": "2.0", "id": 2, "error": {"code": 7, "message": ""}}));
        let too_long = Request::raw("m", format!("{{\"a\":\"{}\"}}", "x".repeat(1000)));
        drop(client.caller.call(too_long));
        drop(client.caller.call(call()));
        client.lose(true);
        client.lose(false);
    });
    for (metric, value) in [
        ("calls_started{kind=call}", 4),
        ("calls_refused{kind=call}", 1),
        ("calls_ended{state=answered}", 1),
        ("calls_ended{state=peer_error}", 1),
        ("calls_ended{state=cancelled}", 1),
        ("calls_ended{state=unknown}", 1),
        ("restarts{kind=link}", 1),
        ("answers_ignored{reason=late}", 1),
        ("progress{fate=refused}", 1),
        ("messages{direction=in}", 5),
        ("messages{direction=out}", 3),
    ] {
        assert_eq!(kept.get(&format!("mcp_steady_client_{metric}")), value, "{metric}");
    }
    assert_eq!(f64::from_bits(kept.get("mcp_steady_client_calls_in_flight{}")).to_bits(), 0f64.to_bits());
    assert_eq!(f64::from_bits(kept.get("mcp_steady_client_queue_high_messages{}")).to_bits(), 3f64.to_bits());
}
