//! The fake ledger: verdicts of the shipped table over maps. The same calls give the same verdicts as in the real one.
//!
//! What is committed is in the disk that all handles share; a handle has nothing that a crash could lose, but for the
//! mutants, and the latest time that it has seen.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steady_core::idempotency::{Record, State, Verdict as Table, canonical_arguments, decide};
use steady_core::time::WallTime;

use super::super::journal::mix_bytes;
use super::super::mutant::Mutant;
use super::{Death, Effect, Entry, MOST_AMOUNT, ORDER, Receipt, Store, Vault, Verdict, WallClock, Wrote};

/// How far a clock may have moved since the latest sure time, when a jump is confirmed, and the steps in which the sure time
/// is stored: those of the real ledger, in milliseconds.
const JUMP: i64 = 3_600_000;
const CONFIRMATION: i64 = 60_000;
const STEP: i64 = 1000;

#[derive(Clone, Debug)]
struct Row {
    record: Record,
    receipt: Receipt,
}

#[derive(Clone, Debug, Default)]
struct Disk {
    keys: BTreeMap<Box<str>, Row>,
    effects: Vec<Effect>,
    balance: i64,
    latest: i64,
    ahead: Option<i64>,
}

/// The fake ledger's disk.
pub(super) struct MemoryVault {
    disk: Arc<Mutex<Disk>>,
    clock: WallClock,
    retention_ms: i64,
    mutant: Option<Mutant>,
}

/// A process's handle on the fake ledger.
pub struct Memory {
    disk: Arc<Mutex<Disk>>,
    clock: WallClock,
    retention_ms: i64,
    mutant: Option<Mutant>,
    latest: AtomicI64,
    /// Of the mutants: what is gone with the process.
    volatile: Mutex<Disk>,
}

impl MemoryVault {
    pub(super) fn new(clock: WallClock, retention_ms: i64, mutant: Option<Mutant>) -> Self {
        let disk = Disk { latest: clock.ms(), ..Disk::default() };
        Self { disk: Arc::new(Mutex::new(disk)), clock, retention_ms, mutant }
    }
}

impl Vault for MemoryVault {
    fn open(&self) -> Result<Arc<dyn Store>, String> {
        Ok(Arc::new(Memory {
            disk: Arc::clone(&self.disk),
            clock: self.clock.clone(),
            retention_ms: self.retention_ms,
            mutant: self.mutant,
            latest: AtomicI64::new(lock(&self.disk).tick(self.clock.ms())),
            volatile: Mutex::default(),
        }))
    }

    fn effects(&self) -> Result<Vec<Effect>, String> {
        Ok(lock(&self.disk).effects.clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    fn run(&mut self, entry: &Entry<'_>) -> Receipt {
        if entry.amount > MOST_AMOUNT {
            return Receipt::REFUSED;
        }
        self.balance += i64::from(entry.amount);
        let number = i64::try_from(self.effects.len()).unwrap_or(i64::MAX).saturating_add(1);
        self.effects.push(Effect { number, key: entry.key, amount: entry.amount });
        Receipt { number, balance: self.balance, refused: false }
    }

    /// What the real ledger does with a clock that may jump: the latest time that is sure, of which the file has the steps.
    fn tick(&mut self, shown: i64) -> i64 {
        let (latest, ahead) = match self.ahead {
            _ if shown.saturating_sub(self.latest) <= JUMP => (self.latest.max(shown), None),
            Some(ahead) if shown.saturating_sub(ahead) >= CONFIRMATION => (shown, None),
            Some(ahead) => (self.latest, Some(ahead.min(shown))),
            None => (self.latest, Some(shown)),
        };
        if ahead != self.ahead || latest.saturating_sub(self.latest) >= STEP {
            (self.latest, self.ahead) = (latest, ahead);
        }
        latest
    }
}

impl Memory {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn now(&self) -> i64 {
        self.clock.ms().max(self.latest.load(Ordering::Relaxed))
    }

    fn fingerprint(&self, entry: &Entry<'_>) -> [u8; 32] {
        let canonical = canonical_arguments(entry.arguments, &[ORDER]).unwrap_or_default();
        let compared = if self.is(Mutant::ComparesText) { entry.arguments.as_bytes() } else { &*canonical };
        let hash = mix_bytes(0, compared);
        let mut fingerprint = [0; 32];
        for (bytes, word) in fingerprint.chunks_exact_mut(8).zip([hash, !hash, hash ^ 1, hash ^ 2]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        fingerprint
    }

    /// What follows from what is stored under the key; none if the effect has to run.
    fn settle(&self, row: Option<&Row>, entry: &Entry<'_>, balance: i64) -> Option<Verdict> {
        let row = row?;
        let fingerprint =
            if self.is(Mutant::IgnoresArguments) { row.record.fingerprint } else { self.fingerprint(entry) };
        match decide(Some(&row.record), &fingerprint, WallTime::from_unix_millis(self.now())) {
            Table::Replay if self.is(Mutant::MutableResult) => {
                Some(Verdict::Replayed(Receipt { balance, ..row.receipt }))
            }
            Table::Replay => Some(Verdict::Replayed(row.receipt)),
            Table::Mismatch => Some(Verdict::Mismatch),
            Table::Expired if self.is(Mutant::ForgetsKeys) => None,
            Table::Expired => Some(Verdict::Expired),
            Table::Execute | Table::InFlight { .. } | Table::InDoubt => None,
        }
    }

    fn row(&self, entry: &Entry<'_>, receipt: Receipt) -> Row {
        let state = if receipt.refused { State::Rejected } else { State::Committed };
        let expires_at = WallTime::from_unix_millis(self.now().saturating_add(self.retention_ms));
        Row { record: Record { fingerprint: self.fingerprint(entry), state, expires_at }, receipt }
    }

    fn commit(&self, disk: &mut Disk, volatile: &mut Disk, entry: &Entry<'_>) -> (Verdict, Wrote) {
        let receipt = disk.run(entry);
        if entry.key.is_some() {
            if self.clock.ms().saturating_sub(self.latest.load(Ordering::Relaxed)) >= STEP {
                self.latest.store(disk.tick(self.clock.ms()), Ordering::Relaxed);
            }
            let row = self.row(entry, receipt);
            let keys = if self.is(Mutant::VolatileKeys) { volatile } else { disk };
            keys.keys.insert(entry.key_text.into(), row);
        }
        (Verdict::Fresh(receipt), receipt.wrote())
    }
}

impl Store for Memory {
    fn execute(&self, entry: &Entry<'_>, death: Option<Death>) -> (Verdict, Wrote) {
        let (mut disk, mut volatile) = (lock(&self.disk), lock(&self.volatile));
        if entry.key.is_some() {
            let stored = disk.keys.get(entry.key_text).or_else(|| volatile.keys.get(entry.key_text));
            if let Some(verdict) = self.settle(stored, entry, disk.balance) {
                return (if death.is_some() { Verdict::Died } else { verdict }, Wrote::Nothing);
            }
        }
        if self.is(Mutant::AnswersBeforeCommit) && death.is_none() && entry.key.is_some() {
            // All of it is in this process, until it is flushed.
            let mut staged = Disk { effects: disk.effects.clone(), balance: disk.balance, ..Disk::default() };
            let receipt = staged.run(entry);
            volatile.effects.extend(staged.effects.pop().filter(|_| !receipt.refused));
            let row = self.row(entry, receipt);
            volatile.keys.insert(entry.key_text.into(), row);
            return (Verdict::Fresh(receipt), Wrote::Nothing);
        }
        match death {
            None => self.commit(&mut disk, &mut volatile, entry),
            Some(Death::AfterCommit) => {
                let (_, wrote) = self.commit(&mut disk, &mut volatile, entry);
                (Verdict::Died, wrote)
            }
            // Written to a copy, which is dropped: as a write-ahead log without its commit record.
            Some(Death::BeforeCommit) => {
                let mut copy = disk.clone();
                let (_, _lost) = self.commit(&mut copy, &mut volatile, entry);
                (Verdict::Died, Wrote::Nothing)
            }
        }
    }

    fn collect(&self) -> Result<usize, String> {
        let mut disk = lock(&self.disk);
        let now = disk.tick(self.clock.ms());
        self.latest.store(now, Ordering::Relaxed);
        // What jumped ahead is not believed yet: `now` stands still until it is.
        let over = |row: &Row| row.record.expires_at.unix_millis() <= now;
        let before = disk.keys.values().filter(|row| over(row)).count();
        if self.is(Mutant::CollectsTombstones) {
            disk.keys.retain(|_, row| !over(row));
        }
        let expired = disk.keys.values_mut().filter(|row| row.record.state != State::Expired && over(row));
        let results = expired.map(|row| (row.record.state, row.receipt) = (State::Expired, Receipt::REFUSED)).count();
        Ok(if self.is(Mutant::CollectsTombstones) { before } else { results })
    }

    fn is_free(&self, entry: &Entry<'_>) -> bool {
        let disk = lock(&self.disk);
        self.settle(disk.keys.get(entry.key_text), entry, disk.balance).is_none()
    }

    fn force(&self, entry: &Entry<'_>) -> (Verdict, Wrote) {
        let (mut disk, mut volatile) = (lock(&self.disk), lock(&self.volatile));
        self.commit(&mut disk, &mut volatile, entry)
    }

    fn flush(&self) {
        let (mut disk, mut volatile) = (lock(&self.disk), lock(&self.volatile));
        for effect in std::mem::take(&mut volatile.effects) {
            disk.balance += i64::from(effect.amount);
            disk.effects.push(effect);
        }
        disk.keys.append(&mut volatile.keys);
    }
}
