//! What is taken for an idempotency key, and where it is kept.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use steady_core::client::Transport;
use steady_core::idempotency::Key;
use steady_ledger::{LedgerError, Options};

use super::naive::{NaiveShop, anything};
use super::rig::{AT_REST, REPLY_UNDER_WAY, Shop, Till, break_newest, call, keyed, network, order};
use super::{FailureError, Shown, judge};

fn twice(effects: &u64) -> bool {
    *effects > 1
}

fn told(effects: &u64) -> String {
    format!("one order, a lost reply; reservations: {effects}")
}

/// The reply is lost, and the shipped client sends the call again: under a new id, as it must.
pub(super) fn request_id(dir: &Path) -> Result<Shown, FailureError> {
    let naive = NaiveShop::default();
    let server = naive.server(|_, cx| Some(cx.request_id().to_string()), anything);
    let mut wrong = network(server, Transport::Http);
    let mut ours = Shop::open(dir)?;
    for network in [&mut wrong, &mut ours.network] {
        call(network, "reserve_inventory", &order(1, Some("order-7")), keyed()?)?;
        network.run_until(REPLY_UNDER_WAY);
        break_newest(network);
        network.run_until(AT_REST);
    }
    Ok(judge(&naive.effects(), &ours.effects()?, twice, told))
}

/// Keys and effects as two things.
#[derive(Default)]
struct Apart {
    keys: BTreeMap<&'static str, u64>,
    effects: u64,
}

/// A worker of three steps; `step` is what it has done.
#[derive(Default)]
struct Worker {
    step: u8,
    free: bool,
}

impl Worker {
    fn next(&mut self, shop: &mut Apart) {
        match self.step {
            0 => self.free = !shop.keys.contains_key("order-7"),
            1 if self.free => shop.effects += 1,
            2 if self.free => drop(shop.keys.insert("order-7", shop.effects)),
            _ => {}
        }
        self.step += 1;
    }
}

/// Of how many orders of the steps, how many run the effect twice.
struct Interleaved {
    orders: usize,
    twice: usize,
}

/// Two workers have one key, in every order of their steps.
pub(super) fn check_apart(dir: &Path) -> Result<Shown, FailureError> {
    // Bit n says whose turn the nth step is; each worker has three.
    let turns = (0_u8..64).filter(|turns| turns.count_ones() == 3);
    let mut wrong = Interleaved { orders: 0, twice: 0 };
    for turns in turns {
        let (mut shop, mut workers) = (Apart::default(), [Worker::default(), Worker::default()]);
        for turn in 0..6 {
            let [first, second] = &mut workers;
            if turns >> turn & 1 == 0 { first.next(&mut shop) } else { second.next(&mut shop) }
        }
        wrong.orders += 1;
        wrong.twice += usize::from(shop.effects > 1);
    }
    // Ours has one step: check, effect, result and key are one transaction of one file.
    let mut ours = Interleaved { orders: 0, twice: 0 };
    let key = Key::parse("order-7")?;
    for second_first in [false, true] {
        let file = dir.join(format!("apart-{second_first}.db"));
        let mut workers = [Till::open(&file, Options::default())?, Till::open(&file, Options::default())?];
        if second_first {
            workers.reverse();
        }
        for worker in &workers {
            let _receipt = worker.sell(&key, 1)?;
        }
        let [worker, _] = &workers;
        ours.orders += 1;
        ours.twice += usize::from(worker.sales()? > 1);
    }
    Ok(judge(
        &wrong,
        &ours,
        |found| found.twice > 0,
        |found| format!("in {} of {} orders of two workers the effect ran twice", found.twice, found.orders),
    ))
}

/// The ledger that a process has as long as it lives.
#[derive(Default)]
struct MemoryLedger(BTreeMap<String, u64>);

impl MemoryLedger {
    fn sell(&mut self, key: &str, sales: &mut u64) -> u64 {
        *self.0.entry(key.to_owned()).or_insert_with(|| {
            *sales += 1;
            *sales
        })
    }
}

/// Sales for one key.
struct Kept {
    restart: u64,
    second: u64,
}

/// The process starts anew between the call and its retry; or the retry comes to another worker.
pub(super) fn in_memory(dir: &Path) -> Result<Shown, FailureError> {
    let (mut restart, mut second) = (0, 0);
    MemoryLedger::default().sell("order-7", &mut restart);
    MemoryLedger::default().sell("order-7", &mut restart);
    for mut worker in [MemoryLedger::default(), MemoryLedger::default()] {
        worker.sell("order-7", &mut second);
    }
    let wrong = Kept { restart, second };

    let key = Key::parse("order-7")?;
    let (file, shared) = (dir.join("restart.db"), dir.join("workers.db"));
    let before = Till::open(&file, Options::default())?;
    let _receipt = before.sell(&key, 1)?;
    before.0.close()?;
    let after = Till::open(&file, Options::default())?;
    let _receipt = after.sell(&key, 1)?;
    let (one, two) = (Till::open(&shared, Options::default())?, Till::open(&shared, Options::default())?);
    let _receipts = (one.sell(&key, 1)?, two.sell(&key, 1)?);
    let ours = Kept { restart: after.sales()?, second: one.sales()? };
    Ok(judge(
        &wrong,
        &ours,
        |kept| kept.restart > 1 || kept.second > 1,
        |kept| format!("sales for one key: {} after a restart, {} with a second worker", kept.restart, kept.second),
    ))
}

/// The first caller changes what it got, and the retry gets the stored result.
pub(super) fn mutable_result(dir: &Path) -> Result<Shown, FailureError> {
    let stored = Arc::new(Mutex::new(vec![1, 100]));
    let first = Arc::clone(&stored);
    let was = first.lock().unwrap_or_else(PoisonError::into_inner).clone();
    first.lock().unwrap_or_else(PoisonError::into_inner).push(-5);
    let replayed = stored.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let wrong = (was, replayed);

    let till = Till::open(&dir.join("till.db"), Options::default())?;
    let key = Key::parse("order-7")?;
    let mut first = till.sell(&key, 100)?.into_inner();
    let was = first.clone();
    first.push(-5);
    let ours = (was, till.sell(&key, 100)?.into_inner());
    Ok(judge(
        &wrong,
        &ours,
        |(was, replayed)| was != replayed,
        |(was, replayed)| format!("answered {was:?}, replayed {replayed:?}"),
    ))
}

/// The same key, for 100 and then for 900.
pub(super) fn other_arguments(dir: &Path) -> Result<Shown, FailureError> {
    let mut results: BTreeMap<&str, i64> = BTreeMap::new();
    let mut sell = |key, amount| *results.entry(key).or_insert(amount);
    sell("order-7", 100);
    let wrong = Some(sell("order-7", 900));

    let till = Till::open(&dir.join("till.db"), Options::default())?;
    let key = Key::parse("order-7")?;
    let _receipt = till.sell(&key, 100)?;
    let ours = match till.sell(&key, 900) {
        Ok(receipt) => receipt.into_inner().get(1).copied(),
        Err(LedgerError::Mismatch) => None,
        Err(other) => return Err(other.into()),
    };
    Ok(judge(
        &wrong,
        &ours,
        |receipt| receipt.is_some_and(|amount| amount != 900),
        |receipt| match receipt {
            Some(amount) => format!("asked for 900 under a used key: a receipt for {amount}"),
            None => "asked for 900 under a used key: refused".to_owned(),
        },
    ))
}
