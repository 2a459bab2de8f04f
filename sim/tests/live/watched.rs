//! The shop's tasks are heard of on a listen, to their end.

use serde_json::{Value, json};
use steady_core::kernel::client::{Change, Changes, Fresh, Request};
use steady_core::task::Status;

use crate::support::{Shop, Transport, filter, run, task};

/// A task's state, whichever message it came in.
fn state(raw: &steady_core::kernel::client::Raw) -> Value {
    let mut state: Value = raw.parse().expect("JSON");
    state.as_object_mut().expect("an object").retain(|name, _| name != "_meta" && name != "resultType");
    state
}

/// The next state that is told, or read at the start of the listen.
async fn told(changes: &mut Changes) -> Value {
    loop {
        match changes.next().await {
            Change::Notice(notice) => return state(&notice.params),
            Change::Fresh { state: Fresh::One(raw), .. } => return state(&raw),
            Change::Gap { .. } => {}
            other @ (Change::Fresh { .. } | Change::Unreadable { .. } | Change::Ended(_)) => {
                panic!("unexpected: {other:?}")
            }
        }
    }
}

async fn is_heard_of(transport: Transport) {
    let shop = Shop::open(transport).await;
    // It goes on until it is cancelled.
    let endless = json!({"sku": "gizmo", "batches": 1000, "perBatch": 1, "pauseMs": 200});
    let delivery = task(shop.client(), Request::tool("restock", &endless)).await;
    let mut changes = shop.client().changes(filter(&json!({"taskIds": [delivery.id()]}))).expect("room for it");
    let mut batches = Vec::new();
    while batches.len() < 2 {
        let told = told(&mut changes).await;
        assert_eq!((&told["taskId"], &told["status"]), (&delivery.id().into(), &"working".into()));
        batches.extend(told["statusMessage"].as_str().filter(|text| text.starts_with("batch ")).map(str::to_owned));
        batches.dedup();
    }
    delivery.cancel().await.expect("it is recorded");
    let last = loop {
        let told = told(&mut changes).await;
        if told["status"] != "working" {
            break told;
        }
    };
    let ended = delivery.get().await.expect("a task");
    assert_eq!((ended.status, state(&ended.raw)), (Status::Cancelled, last), "what tasks/get answers (rule K6)");
    drop(changes);
    shop.close().await;
}

#[test]
fn a_delivery_is_heard_of_to_its_end_over_stdio() {
    run(is_heard_of(Transport::Stdio));
}

#[test]
fn a_delivery_is_heard_of_to_its_end_over_http() {
    run(is_heard_of(Transport::Http));
}
