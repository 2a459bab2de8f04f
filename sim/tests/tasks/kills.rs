//! `kill -9` of the server between "the task is durable" and "the reply is sent".

use serde_json::json;
use steady_ledger::{Ledger, Options};

use crate::support::{BOTH, Declares, Shop, Transport};

/// How many servers are killed, over both transports.
const KILLS: usize = 100;

#[test]
fn a_server_killed_between_durable_and_reply_has_made_one_task_and_a_retry_finds_it() {
    let shops = BOTH.map(|transport| (transport, Shop::new()));
    for kill in 0..KILLS {
        let (transport, shop) = &shops[kill % shops.len()];
        kill_one(shop, *transport, kill);
    }
    for (transport, shop) in &shops {
        assert_eq!(live(shop), KILLS / shops.len(), "{transport:?}: one task each, never two");
    }
}

/// How many tasks there are.
fn live(shop: &Shop) -> usize {
    let tasks = Ledger::open(shop.ledger(), Options::default()).expect("a ledger").tasks();
    tasks.live(None, 1000).expect("a list").len()
}

/// A call whose reply is never sent, the kill, and the retry against a new process, whose own reply is lost too.
fn kill_one(shop: &Shop, transport: Transport, number: usize) {
    let arguments = || json!({"parcels": 1, "idempotencyKey": format!("order-{number}")});
    let mut server = shop.server(transport, &["--hold-replies"]);
    let lost = server.send("tools/call", json!({"name": "pack", "arguments": arguments()}), Declares::Tasks);
    let id = server.process.hear("durable ");
    server.process.kill();
    drop(lost);
    assert_eq!(shop.server(transport, &[]).task("pack", arguments()), id);
}

#[test]
fn without_a_key_the_retry_makes_a_second_task_and_the_count_shows_it() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.server(transport, &["--hold-replies"]);
        let params = json!({"name": "pack", "arguments": {"parcels": 1}});
        let lost = server.send("tools/call", params, Declares::Tasks);
        let id = server.process.hear("durable ");
        server.process.kill();
        drop(lost);
        assert_ne!(shop.server(transport, &[]).task("pack", json!({"parcels": 1})), id);
        assert_eq!(live(&shop), 2);
    }
}
