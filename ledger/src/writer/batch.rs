//! Decides how a batch becomes one transaction: a savepoint for each unit, one commit for all, and answers only after it.
//!
//! ```text
//!              ┌─ unit fails ──► its savepoint is rolled back, the others go on
//! BEGIN ─ units┼─ unit ends the transaction ──► it is refused, the others run again, each alone
//!              └─ all done ─ COMMIT ┬─ done ──► answers
//!                                   ├─ refused, still open ──► all run again, each alone
//!                                   └─ outcome unknown ──► a new connection looks each one up
//! ```

use std::iter;
use std::time::{Duration, Instant};

use crate::error::LedgerError;
use crate::file::Db;
use crate::transaction::{CommitFailure, Savepoint, Transaction};
use crate::writer::Shared;
use crate::writer::current::Current;
use crate::writer::unit::Work;

/// After this time a batch commits, and what is left of it makes the next one: nobody waits for all 256 slow effects.
const SLICE: Duration = Duration::from_millis(20);

type Units = Vec<Box<dyn Work>>;

/// How far a batch came.
enum Ran {
    /// All units ran, or those before this place.
    Until(usize),
    /// The unit at this place ended the transaction.
    LostAt(usize),
}

/// How a batch ended.
enum End {
    /// All units are decided.
    Decided,
    /// The first units are decided, as many as this; the others wait for the next transaction.
    Split(usize),
    /// The transaction is gone; the unit at this place, if any, is to blame and decided.
    Lost(Option<usize>),
    /// The commit failed, and the first units, as many as this, have to be looked up; the others did not run.
    Unknown(CommitFailure, usize),
}

/// Does all units, and answers them.
pub(super) fn run(shared: &Shared, mut units: Units) {
    while !units.is_empty() {
        match transact(shared, &mut units) {
            Ok(End::Decided) => answer(shared, units.drain(..)),
            Ok(End::Split(count)) => answer(shared, units.drain(..count)),
            Ok(End::Lost(blamed)) => {
                if let Some(place) = blamed {
                    answer(shared, iter::once(units.remove(place)));
                }
                for unit in units.drain(..) {
                    alone(shared, unit);
                }
            }
            Ok(End::Unknown(failure, count)) => look_up(shared, &failure, units.drain(..count)),
            Err(error) => refuse(shared, units.split_off(0), &error),
        }
    }
}

/// Answers all units with an error that is the fault of none of them.
pub(super) fn refuse(shared: &Shared, mut units: Units, error: &LedgerError) {
    units.iter_mut().for_each(|unit| unit.fail(error.again()));
    answer(shared, units.drain(..));
}

/// Does one unit in a transaction of its own.
fn alone(shared: &Shared, unit: Box<dyn Work>) {
    let mut units = vec![unit];
    match transact(shared, &mut units) {
        Ok(End::Decided | End::Split(_) | End::Lost(_)) => {}
        Ok(End::Unknown(failure, _)) => return look_up(shared, &failure, units.drain(..)),
        Err(error) => units.iter_mut().for_each(|unit| unit.fail(error.again())),
    }
    answer(shared, units.drain(..));
}

/// One transaction. An error is the fault of none of the units, and nothing of them is kept.
fn transact(shared: &Shared, units: &mut [Box<dyn Work>]) -> Result<End, LedgerError> {
    shared.lane.with(|db| {
        let transaction = Transaction::begin_known(db)?;
        let count = match run_units(db, &shared.current, units) {
            Ran::Until(count) => count,
            Ran::LostAt(place) => return Ok(End::Lost(Some(place))),
        };
        Ok(match transaction.commit() {
            Ok(()) => {
                shared.meters.batches.add();
                if count == units.len() { End::Decided } else { End::Split(count) }
            }
            // A check that SQLite defers to the commit: which unit is to blame shows when each runs alone.
            Err(failure) if failure.is_certain() && count > 1 => End::Lost(None),
            // A certain failure of one unit is looked up too: to ask the file costs little, and the file is what counts.
            Err(failure) => End::Unknown(failure, count),
        })
    })
}

fn run_units(db: &Db, current: &Current, units: &mut [Box<dyn Work>]) -> Ran {
    let start = Instant::now();
    let count = units.len();
    for (place, unit) in units.iter_mut().enumerate() {
        let _current = current.enter(unit.operation());
        let savepoint = match Savepoint::set(db) {
            Ok(savepoint) => savepoint,
            Err(error) => {
                unit.fail(error);
                return Ran::LostAt(place);
            }
        };
        let keep = unit.run(db);
        if let Err(error) = savepoint.end(keep) {
            if keep {
                unit.fail(error);
            }
            return Ran::LostAt(place);
        }
        if start.elapsed() > SLICE && place + 1 < count {
            return Ran::Until(place + 1);
        }
    }
    Ran::Until(count)
}

/// Nothing that the failed connection says counts any more: a new one has to find the keys, or find them missing.
fn look_up(shared: &Shared, failure: &CommitFailure, units: impl Iterator<Item = Box<dyn Work>>) {
    shared.meters.looked_up.add();
    shared.lane.renew();
    for mut unit in units {
        if unit.has_failed() {
            answer(shared, iter::once(unit));
            continue;
        }
        let looked = shared.lane.with(|db| {
            unit.recover(failure, db);
            Ok(())
        });
        if let Err(error) = looked {
            unit.fail(LedgerError::CommitUnknown(error.into()));
        }
        answer(shared, iter::once(unit));
    }
}

fn answer(shared: &Shared, units: impl Iterator<Item = Box<dyn Work>>) {
    for unit in units {
        let meter = if unit.is_done() { &shared.meters.committed } else { &shared.meters.failed };
        meter.add();
        unit.answer();
    }
}
