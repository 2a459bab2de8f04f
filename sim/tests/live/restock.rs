//! The shop's durable task: its server is killed in the middle, it goes on, and each batch is counted once.

use serde_json::json;
use steady_core::idempotency::Key;
use steady_core::kernel::client::{Request, TaskOptions};
use steady_sim::lab::Inventory;

use crate::support::{Shop, Transport, ledger_in, run, task};

fn delivery() -> Request {
    let arguments = json!({"sku": "gizmo", "batches": 4, "perBatch": 10, "pauseMs": 300});
    Request::tool("restock", &arguments).key(Key::parse("d-1").expect("a key"))
}

async fn survives(transport: Transport) {
    let mut shop = Shop::open(transport).await;
    let delivered = task(shop.client(), delivery()).await;
    loop {
        let seen = delivered.get().await.expect("a task");
        if seen.message.as_deref().is_some_and(|text| text.starts_with("batch ")) {
            break;
        }
        tokio::time::sleep(seen.poll_interval.expect("an interval")).await;
    }
    // The server and its worker.
    shop.kill().await;
    assert_eq!(task(shop.client(), delivery()).await.id(), delivered.id(), "the same delivery");
    let result = delivered.finish(TaskOptions::default()).await.expect("a result");
    assert_eq!(result.text(), "4 batches of 10 gizmo are on the shelf");
    let folder = shop.close().await;
    let inventory = Inventory::open(ledger_in(folder.path()), "local").expect("a ledger");
    assert_eq!(inventory.count("gizmo").expect("read").0, 1 + 40);
}

#[test]
fn a_delivery_survives_the_server_and_each_batch_is_counted_once_over_stdio() {
    run(survives(Transport::Stdio));
}

#[test]
fn a_delivery_survives_the_server_and_each_batch_is_counted_once_over_http() {
    run(survives(Transport::Http));
}
