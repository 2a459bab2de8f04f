//! The real ledger, on one thread: what it decides runs inside of the call, one after the other.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steady_ledger::{
    Clock, Durability, EffectError, EffectTx, Entropy, Executed, Executor, Key, Ledger, LedgerError, Options, Request,
    Scope, Secret, Tasks, WallTime,
};

use super::{Death, Effect, Entry, MOST_AMOUNT, ORDER, Receipt, Store, Vault, Verdict, WallClock, Wrote};

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS account(id INTEGER PRIMARY KEY CHECK(id = 1), balance INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS effect(number INTEGER PRIMARY KEY, key INTEGER, amount INTEGER NOT NULL) STRICT;
INSERT OR IGNORE INTO account VALUES (1, 0);";

/// The real ledger's file.
pub(super) struct SqliteVault {
    path: PathBuf,
    clock: WallClock,
    retention: Duration,
    horizon: Option<Duration>,
    /// How often random bytes were asked for, by all processes.
    drawn: Arc<AtomicU64>,
}

/// A process's handle on the real ledger.
pub struct Sqlite {
    ledger: Ledger,
    scope: Scope,
}

impl SqliteVault {
    pub(super) fn new(path: &Path, clock: WallClock, retention_ms: i64, horizon_ms: u64) -> Self {
        let retention = Duration::from_millis(retention_ms.unsigned_abs());
        let horizon = Some(horizon_ms).filter(|ms| *ms > 0).map(Duration::from_millis);
        Self { path: path.to_owned(), clock, retention, horizon, drawn: Arc::default() }
    }

    fn ledger(&self) -> Result<Ledger, LedgerError> {
        let (clock, drawn) = (self.clock.clone(), Arc::clone(&self.drawn));
        let options = Options {
            schema: SCHEMA.into(),
            retention: self.retention,
            key_horizon: self.horizon,
            secret: Some(Secret::new([7; 32])),
            clock: Clock::new(move || WallTime::from_unix_millis(clock.ms())),
            // Ids of tasks come from it: no two are the same, and each run has the same ones.
            entropy: Entropy::new(move |bytes| {
                let count = drawn.fetch_add(1, Ordering::Relaxed).to_le_bytes();
                bytes.iter_mut().zip(count.into_iter().chain(std::iter::repeat(7))).for_each(|(to, from)| *to = from);
                Ok(())
            }),
            // A process dies here, a machine does not: that is for the crash images of the ledger's own tests.
            durability: Durability::ProcessCrash,
            executor: Executor::Inline,
            ..Options::default()
        };
        Ledger::open(&self.path, options)
    }
}

impl Vault for SqliteVault {
    fn open(&self) -> Result<Arc<dyn Store>, String> {
        let ledger = self.ledger().map_err(|error| error.to_string())?;
        Ok(Arc::new(Sqlite { ledger, scope: Scope::new("world", "add") }))
    }

    fn effects(&self) -> Result<Vec<Effect>, String> {
        let read = self.ledger().and_then(|ledger| {
            ledger.read(|tx| {
                tx.query("SELECT number, key, amount FROM effect ORDER BY number", [], |row| {
                    Ok(Effect { number: row.get(0)?, key: row.get(1)?, amount: row.get(2)? })
                })
            })
        });
        read.map_err(|error| error.to_string())
    }
}

/// The effect. One that dies before its commit fails after all of its writes, so that they are rolled back.
fn add(
    tx: &mut EffectTx<'_>,
    key: Option<u32>,
    amount: u32,
    death: Option<Death>,
) -> Result<Receipt, EffectError<Receipt>> {
    let dies = || EffectError::Abort("the process dies here".into());
    if amount > MOST_AMOUNT {
        return Err(if death == Some(Death::BeforeCommit) { dies() } else { EffectError::Reject(Receipt::REFUSED) });
    }
    tx.execute("UPDATE account SET balance = balance + ?1 WHERE id = 1", [amount])?;
    tx.execute("INSERT INTO effect(key, amount) VALUES (?1, ?2)", (key, amount))?;
    let number = tx.last_insert_rowid();
    let balance = tx.query_row("SELECT balance FROM account WHERE id = 1", [], |row| row.get(0))?;
    match death {
        Some(Death::BeforeCommit) => Err(dies()),
        Some(Death::AfterCommit) | None => Ok(Receipt { number, balance, refused: false }),
    }
}

impl Store for Sqlite {
    fn execute(&self, entry: &Entry<'_>, death: Option<Death>) -> (Verdict, Wrote) {
        let &Entry { key, amount, arguments, key_text, .. } = entry;
        let done = match key {
            Some(key) => {
                let parsed = match Key::parse(key_text) {
                    Ok(parsed) => parsed,
                    Err(error) => return (Verdict::Failed(error.to_string()), Wrote::Nothing),
                };
                let request = Request::new(&self.scope, &parsed, arguments).exclude(&[ORDER]);
                self.ledger.execute(&request, move |tx| add(tx, Some(key), amount, death))
            }
            None => self
                .ledger
                .execute_keyless(&self.scope, move |tx| add(tx, None, amount, death))
                .map(|done| Executed::Fresh(done.into_inner())),
        };
        let (verdict, wrote) = match done {
            Ok(Executed::Fresh(receipt)) => (Verdict::Fresh(receipt), receipt.wrote()),
            Ok(Executed::Replayed(receipt)) => (Verdict::Replayed(receipt), Wrote::Nothing),
            Err(LedgerError::Mismatch) => (Verdict::Mismatch, Wrote::Nothing),
            Err(LedgerError::ResultExpired) => (Verdict::Expired, Wrote::Nothing),
            Err(LedgerError::KeyTooOld) => (Verdict::TooOld, Wrote::Nothing),
            Err(LedgerError::Aborted(_)) if death.is_some() => (Verdict::Died, Wrote::Nothing),
            Err(error) => (Verdict::Failed(error.to_string()), Wrote::Nothing),
        };
        (if death.is_some() { Verdict::Died } else { verdict }, wrote)
    }

    // The real ledger is not broken: its mutants are those of its own tests.
    fn collect(&self) -> Result<usize, String> {
        let results = self.ledger.collect(1000).map_err(|error| error.to_string())?.rows();
        let tasks = self.ledger.tasks().collect_expired(1000).map_err(|error| error.to_string())?;
        Ok(tasks.saturating_add(usize::try_from(results).unwrap_or(usize::MAX)))
    }

    fn tasks(&self) -> Option<Tasks> {
        Some(self.ledger.tasks())
    }

    // The real ledger is not broken: its mutants are those of its own tests.
    fn is_free(&self, _: &Entry<'_>) -> bool {
        true
    }

    fn force(&self, entry: &Entry<'_>) -> (Verdict, Wrote) {
        self.execute(entry, None)
    }

    fn flush(&self) {}
}
