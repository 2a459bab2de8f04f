//! What is taken for an idempotency key, and where it is kept.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use steady_core::client::Transport;
use steady_core::idempotency::Key;
use steady_ledger::{EffectError, LedgerError, Options, Request};

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

/// When, while one worker runs a call, the other begins it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Before,
    /// The key was looked up, and nothing has happened yet.
    Checked,
    /// The effect has happened, and the key is not yet written, or nothing is committed.
    Done,
    After,
}

/// What a worker lets happen on its way; handed the moment.
type Meanwhile = Box<dyn FnMut(Moment) + Send>;

/// A store with two workers on it.
trait Worker: Clone + Send + 'static {
    /// Sells once for the key; a worker that is turned away, because the other holds the key, has not.
    fn sell(&self, meanwhile: Meanwhile) -> Result<(), FailureError>;
    fn effects(&self) -> Result<u64, FailureError>;
}

/// Key and effect as two things.
#[derive(Clone, Default)]
struct Apart(Arc<Mutex<(BTreeMap<&'static str, u64>, u64)>>);

impl Apart {
    fn books(&self) -> MutexGuard<'_, (BTreeMap<&'static str, u64>, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker for Apart {
    fn sell(&self, mut meanwhile: Meanwhile) -> Result<(), FailureError> {
        if self.books().0.contains_key("order-7") {
            return Ok(());
        }
        meanwhile(Moment::Checked);
        self.books().1 += 1;
        meanwhile(Moment::Done);
        let sale = self.books().1;
        self.books().0.insert("order-7", sale);
        Ok(())
    }

    fn effects(&self) -> Result<u64, FailureError> {
        Ok(self.books().1)
    }
}

/// The shipped ledger: each worker has a connection of its own to one file.
#[derive(Clone)]
struct Shipped(Arc<Till>);

impl Shipped {
    fn open(file: &Path) -> Result<Self, FailureError> {
        // Both are on one thread: waiting for the other would be in vain.
        let options = Options { busy_timeout: Duration::from_millis(1), ..Options::default() };
        Ok(Self(Arc::new(Till::open(file, options)?)))
    }
}

impl Worker for Shipped {
    fn sell(&self, mut meanwhile: Meanwhile) -> Result<(), FailureError> {
        let key = Key::parse("order-7")?;
        let _receipt = self.0.0.execute(&Request::new(&Till::scope(), &key, r#"{"amount":1}"#), move |tx| {
            meanwhile(Moment::Checked);
            tx.execute("INSERT INTO sale(amount) VALUES (1)", [])?;
            meanwhile(Moment::Done);
            Ok::<_, EffectError<_>>(tx.last_insert_rowid())
        })?;
        Ok(())
    }

    fn effects(&self) -> Result<u64, FailureError> {
        Ok(self.0.sales()?)
    }
}

/// Of how many orders of two workers, how many run the effect twice.
struct Interleaved {
    orders: usize,
    twice: usize,
}

/// One worker runs a call of one key; the other runs it, too, at each moment in turn, and comes back if it was turned away.
fn interleave<W: Worker>(open: impl Fn(Moment) -> Result<[W; 2], FailureError>) -> Result<Interleaved, FailureError> {
    let mut found = Interleaved { orders: 0, twice: 0 };
    for moment in [Moment::Before, Moment::Checked, Moment::Done, Moment::After] {
        let [one, other] = open(moment)?;
        let nothing = || -> Meanwhile { Box::new(|_| {}) };
        if moment == Moment::Before {
            other.sell(nothing())?;
        }
        let meanwhile = other.clone();
        one.sell(Box::new(move |at| {
            if at == moment {
                // Whether it was turned away shows in the effects.
                let _sold_or_turned_away = meanwhile.sell(Box::new(|_| {}));
            }
        }))?;
        other.sell(nothing())?;
        found.orders += 1;
        found.twice += usize::from(one.effects()? > 1);
    }
    Ok(found)
}

/// Two workers have one key, and the second comes at every moment of the first.
pub(super) fn check_apart(dir: &Path) -> Result<Shown, FailureError> {
    let wrong = interleave(|_| {
        let one = Apart::default();
        Ok([one.clone(), one])
    })?;
    let ours = interleave(|moment| {
        let file = dir.join(format!("apart-{moment:?}.db"));
        Ok([Shipped::open(&file)?, Shipped::open(&file)?])
    })?;
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

/// A receipt that its owners share: whoever has a clone of it can change it for all.
#[derive(Clone)]
struct Receipt(Arc<Mutex<Vec<i64>>>);

impl Receipt {
    fn new(lines: Vec<i64>) -> Self {
        Self(Arc::new(Mutex::new(lines)))
    }

    fn lines(&self) -> MutexGuard<'_, Vec<i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Serialize for Receipt {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        self.lines().serialize(into)
    }
}

impl<'de> Deserialize<'de> for Receipt {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::deserialize(from).map(Self::new)
    }
}

/// The first caller changes what it got, and the retry gets the stored result.
fn changed(mut sell: impl FnMut() -> Result<Receipt, FailureError>) -> Result<(Vec<i64>, Vec<i64>), FailureError> {
    let first = sell()?;
    let was = first.lines().clone();
    first.lines().push(-5);
    let replayed = sell()?.lines().clone();
    Ok((was, replayed))
}

/// Both hand out a value of the type that can be shared.
pub(super) fn mutable_result(dir: &Path) -> Result<Shown, FailureError> {
    let stored = Receipt::new(vec![1, 100]);
    let wrong = changed(|| Ok(stored.clone()))?;

    let till = Till::open(&dir.join("till.db"), Options::default())?;
    let key = Key::parse("order-7")?;
    // What the effect returns is shared with the application that made it.
    let made = Receipt::new(vec![1, 100]);
    let ours = changed(|| {
        let made = made.clone();
        let scope = Till::scope();
        let sold = till.0.execute(&Request::new(&scope, &key, r#"{"amount":100}"#), move |_| Ok(made.clone()))?;
        Ok(sold.into_inner())
    })?;
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
