//! The lab's step: the subscription is lost, the record is read afresh, and only then something is decided.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use serde_json::json;
use steady_core::kernel::client::{Change, Changes, Fresh};
use steady_core::subscription::Refetch;
use steady_sim::lab::Inventory;

use crate::support::{Shop, Transport, available, filter, ledger_in, notice, reserve, run};

const RECORD: &str = "inventory://acme/gadget";

/// Reads up to the loss, and what is read after it before anything else.
async fn after_the_loss(changes: &mut Changes) -> Fresh {
    let record = Refetch::Resource { uri: RECORD.into() };
    loop {
        match changes.next().await {
            // Of the sale before: the look at the ledger may tell it a second time.
            Change::Notice(told) => assert_eq!(told.about(), Some(record.clone())),
            Change::Gap { refetch } => {
                assert_eq!(&*refetch, std::slice::from_ref(&record));
                break;
            }
            other @ (Change::Fresh { .. } | Change::Unreadable { .. } | Change::Ended(_)) => {
                panic!("before the loss: {other:?}")
            }
        }
    }
    let first = changes.next().await;
    let Change::Fresh { what, state } = first else { panic!("the record comes before anything else: {first:?}") };
    assert_eq!(what, record);
    state
}

/// Takes notice that all is read; nothing follows yet.
async fn open(changes: &mut Changes) {
    let mut next = pin!(changes.next());
    assert!(poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await, "nothing has changed");
}

async fn lost_refetched_decided(transport: Transport) {
    let mut shop = Shop::open(transport).await;
    let other = shop.another().await;
    let record = Refetch::Resource { uri: RECORD.into() };
    let mut changes = shop.client().changes(filter(&json!({"resourceSubscriptions": [RECORD]}))).expect("room for it");
    shop.is_listening().await;
    assert!(matches!(changes.next().await, Change::Gap { .. }), "it begins with a read");
    let Change::Fresh { state, .. } = changes.next().await else { panic!("the record") };
    assert_eq!(available(&state), 10);
    open(&mut changes).await;
    reserve(shop.client(), 1, "ours-1").await;
    assert_eq!(notice(changes.next().await).about(), Some(record.clone()), "the listen is open");
    let known = available(&shop.client().read_afresh(&record).await.expect("a record"));
    assert_eq!(known, 9);
    // Another process sells while the listen is cut: nobody tells it.
    let sale = async {
        reserve(&other, 8, "theirs").await;
    };
    shop.cut_while(sale).await;
    let left = available(&after_the_loss(&mut changes).await);
    assert_eq!(left, 1, "not what was known before");
    // Two were wanted, and nine would have been enough. What is left is ordered, and heard of on the new listen.
    let wanted = left.min(2);
    reserve(shop.client(), wanted, "ours-2").await;
    let mut left = left;
    while left > 0 {
        left = match changes.next().await {
            Change::Notice(_) => available(&shop.client().read_afresh(&record).await.expect("a record")),
            // The look at the ledger told the other's sale while the gap was open: the record is read once more.
            Change::Fresh { state, .. } => available(&state),
            Change::Gap { .. } => left,
            other @ (Change::Unreadable { .. } | Change::Ended(_)) => panic!("unexpected: {other:?}"),
        };
    }
    drop(changes);
    other.shutdown().await;
    let folder = shop.close().await;
    let inventory = Inventory::open(ledger_in(folder.path()), "local").expect("a ledger");
    assert_eq!(inventory.count("gadget").expect("read"), (0, 3), "nothing is oversold, and no order made twice");
}

#[test]
fn subscription_lost_refetch_the_record_then_decide_over_stdio() {
    run(lost_refetched_decided(Transport::Stdio));
}

#[test]
fn subscription_lost_refetch_the_record_then_decide_over_http() {
    run(lost_refetched_decided(Transport::Http));
}
