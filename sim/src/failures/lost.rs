//! The reply is lost after the commit, and somebody calls again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde::Deserialize;
use steady_core::client::Transport;
use steady_core::idempotency::Key;
use steady_core::kernel::Tools;
use steady_core::retry::Contract;
use steady_core::time::{Instant, WallTime};
use steady_ledger::{Begun, Clock, External, LedgerError, Options, Request};

use super::naive::{self, Compared, Mark, NaiveShop};
use super::rig::{AT_REST, REPLY_UNDER_WAY, Shop, Till, answer, break_newest, call, keyed, network, order};
use super::{FailureError, Shown, judge};
use crate::wire::Answer;
use crate::world::Network;

const TOOL: &str = "reserve_inventory";

fn naive_shop(mark: Mark, compared: Compared) -> (NaiveShop, Network<Tools>) {
    let shop = NaiveShop::default();
    let network = network(shop.server(mark, compared), Transport::Http);
    (shop, network)
}

/// Calls, and loses the reply when the effect is committed. What the client machine does then is its own.
fn lose_a_reply(network: &mut Network<Tools>, arguments: &str, contract: Contract) -> Result<bool, FailureError> {
    let call = call(network, TOOL, arguments, contract)?;
    network.run_until(network.now() + REPLY_UNDER_WAY.saturating_since(Instant::ZERO));
    break_newest(network);
    network.run_until(network.now() + AT_REST.saturating_since(Instant::ZERO));
    Ok(answer(network, call).is_some())
}

/// Calls, and waits.
fn plainly(network: &mut Network<Tools>, arguments: &str) -> Result<Option<Answer>, FailureError> {
    let call = call(network, TOOL, arguments, Contract::Unsafe)?;
    network.run_until(network.now() + AT_REST.saturating_since(Instant::ZERO));
    Ok(answer(network, call).cloned())
}

/// One order, and what came of it.
struct Story {
    effects: u64,
    sent: usize,
}

fn once(wrong: &Story, ours: &Story) -> Shown {
    judge(
        wrong,
        ours,
        |story| story.effects > 1,
        |story| format!("one order; attempts: {}, reservations: {}", story.sent, story.effects),
    )
}

pub(super) fn same_key(dir: &Path) -> Result<Shown, FailureError> {
    let (naive, mut wrong) = naive_shop(naive::nothing, naive::anything);
    let mut ours = Shop::open(dir)?;
    for network in [&mut wrong, &mut ours.network] {
        lose_a_reply(network, &order(1, Some("order-7")), keyed()?)?;
    }
    let wrong = Story { effects: naive.effects(), sent: wrong.attempts.len() };
    Ok(once(&wrong, &Story { effects: ours.effects()?, sent: ours.network.attempts.len() }))
}

pub(super) fn no_key(dir: &Path) -> Result<Shown, FailureError> {
    let (wrong_dir, ours_dir) = (dir.join("wrong"), dir.join("ours"));
    let mut wrong = in_dir(&wrong_dir)?;
    // "Not answered, so try again": the loop of half of all clients.
    if !lose_a_reply(&mut wrong.network, &order(1, None), Contract::Unsafe)? {
        plainly(&mut wrong.network, &order(1, None))?;
    }
    let mut ours = in_dir(&ours_dir)?;
    // Ours is told that the outcome is unknown; what it may do is to look.
    lose_a_reply(&mut ours.network, &order(1, None), Contract::Unsafe)?;
    let story =
        |shop: &Shop| Ok::<_, FailureError>(Story { effects: shop.effects()?, sent: shop.network.attempts.len() });
    Ok(once(&story(&wrong)?, &story(&ours)?))
}

fn in_dir(dir: &Path) -> Result<Shop, FailureError> {
    std::fs::create_dir_all(dir).map_err(|_| FailureError::Setup("no directory for a ledger"))?;
    Shop::open(dir)
}

#[derive(Deserialize)]
struct Receipt {
    quantity: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolAnswer {
    structured_content: Receipt,
}

/// The quantity of a receipt; none if the call was refused.
fn quantity(answer: Option<&Answer>) -> Result<Option<i64>, FailureError> {
    match answer {
        Some(Answer::Result(text)) => {
            let read: Result<ToolAnswer, _> = serde_json::from_str(text);
            read.map(|answer| Some(answer.structured_content.quantity)).map_err(|_| FailureError::Setup("no receipt"))
        }
        Some(Answer::Error(_)) => Ok(None),
        None => Err(FailureError::Setup("the second call was not answered")),
    }
}

/// The first order's reply never comes; then a call with these arguments.
fn then(network: &mut Network<Tools>, arguments: &str) -> Result<Option<i64>, FailureError> {
    lose_a_reply(network, &order(1, Some("order-7")), Contract::Unsafe)?;
    quantity(plainly(network, arguments)?.as_ref())
}

pub(super) fn other_arguments(dir: &Path) -> Result<Shown, FailureError> {
    let (_, mut wrong) = naive_shop(naive::key, naive::anything);
    let mut ours = Shop::open(dir)?;
    let retry = order(5, Some("order-7"));
    let (wrong, ours) = (then(&mut wrong, &retry)?, then(&mut ours.network, &retry)?);
    Ok(judge(
        &wrong,
        &ours,
        |told| told.is_some_and(|quantity| quantity != 5),
        |told| match told {
            Some(quantity) => format!("the retry asks for 5 and is told that {quantity} is reserved"),
            None => "the retry asks for 5 and is refused".to_owned(),
        },
    ))
}

pub(super) fn reordered(dir: &Path) -> Result<Shown, FailureError> {
    let (_, mut wrong) = naive_shop(naive::key, |call| call.raw_arguments().to_owned());
    let mut ours = Shop::open(dir)?;
    let retry = r#"{"idempotencyKey":"order-7","tenant":"acme","quantity":1,"sku":"widget"}"#;
    let (wrong, ours) = (then(&mut wrong, retry)?, then(&mut ours.network, retry)?);
    Ok(judge(&wrong, &ours, Option::is_none, |told| match told {
        Some(quantity) => format!("the same order again: the receipt of {quantity}"),
        None => "the same order again: refused, as if it were another".to_owned(),
    }))
}

/// Claims on keys that end by themselves.
#[derive(Default)]
struct Leases(BTreeMap<&'static str, u64>);

impl Leases {
    fn claim(&mut self, key: &'static str, now: u64) -> bool {
        let free = self.0.get(key).is_none_or(|until| now >= *until);
        if free {
            self.0.insert(key, now + LEASE.as_secs());
        }
        free
    }
}

const LEASE: Duration = Duration::from_secs(30);

/// A worker takes the key, pays in another system, and dies before it writes that down. A minute later the call comes again.
pub(super) fn lease_expiry(dir: &Path) -> Result<Shown, FailureError> {
    let mut leases = Leases::default();
    let mut paid = |now| u64::from(leases.claim("invoice-7", now));
    let wrong = paid(0) + paid(60);

    let wall = Arc::new(AtomicI64::new(1_790_000_000_000));
    let shown = Arc::clone(&wall);
    let clock = Clock::new(move || WallTime::from_unix_millis(shown.load(Ordering::Relaxed)));
    let till = Till::open(&dir.join("till.db"), Options { clock, ..Options::default() })?;
    let (scope, key) = (Till::scope(), Key::parse("invoice-7")?);
    let pay = || match till.0.begin::<String>(&Request::new(&scope, &key, "{}"), &External::new(LEASE)) {
        // It pays; what it would have written down is lost with it.
        Ok(Begun::Send(_attempt)) => Ok(1),
        Ok(Begun::Replayed(_)) | Err(LedgerError::InDoubt) => Ok(0),
        Err(other) => Err(other),
    };
    let first = pay()?;
    wall.fetch_add(60_000, Ordering::Relaxed);
    let ours = first + pay()?;
    Ok(judge(
        &wrong,
        &ours,
        |paid| *paid > 1,
        |paid| format!("one invoice, a crash, a lease that ends; payments: {paid}"),
    ))
}

/// A gateway that looks at the key and a layer below that sends again by itself.
pub(super) fn below_the_guard(dir: &Path) -> Result<Shown, FailureError> {
    let (naive, mut wrong) = naive_shop(naive::nothing, naive::anything);
    let mut guard = BTreeSet::new();
    if guard.insert("order-7") {
        // One call for the gateway. Below it: a POST whose connection was reset is sent again.
        if !lose_a_reply(&mut wrong, &order(1, Some("order-7")), Contract::Unsafe)? {
            plainly(&mut wrong, &order(1, Some("order-7")))?;
        }
    }
    let wrong = Story { effects: naive.effects(), sent: wrong.attempts.len() };
    // Ours: nothing below the machine sends again, and the key is looked at where the effect is.
    let mut ours = Shop::open(dir)?;
    lose_a_reply(&mut ours.network, &order(1, Some("order-7")), keyed()?)?;
    Ok(once(&wrong, &Story { effects: ours.effects()?, sent: ours.network.attempts.len() }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Annotations {
    idempotent_hint: bool,
}

/// A tool that reserves each time, and says the opposite.
pub(super) fn hint_as_policy(_: &Path) -> Result<Shown, FailureError> {
    let hint: Annotations = serde_json::from_str(r#"{"idempotentHint":true}"#)
        .map_err(|_| FailureError::Setup("the annotations cannot be read"))?;
    let mut stories = Vec::new();
    for trusts in [true, false] {
        let (naive, mut network) = naive_shop(naive::nothing, naive::anything);
        let answered = lose_a_reply(&mut network, &order(1, None), Contract::Unsafe)?;
        if trusts && hint.idempotent_hint && !answered {
            plainly(&mut network, &order(1, None))?;
        }
        stories.push(Story { effects: naive.effects(), sent: network.attempts.len() });
    }
    let [wrong, ours] = stories.as_slice() else { return Err(FailureError::Setup("two stories")) };
    Ok(once(wrong, ours))
}
