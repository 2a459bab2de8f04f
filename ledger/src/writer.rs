//! Decides who does the work that writes: a thread of the ledger's own, which gathers what waits into one transaction,
//! or the caller itself.

mod batch;
mod current;
pub(crate) mod queue;
pub(crate) mod reply;
pub(crate) mod unit;
mod upkeep;

use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::LedgerError;
use crate::guard::Inside;
use crate::lane::Lane;
use crate::options::Executor;
use crate::stats::SharedMeters;
use crate::sync::{Arc, Mutex};
use current::Current;
use queue::{Queue, Refused};
use unit::{Answering, Unit, Work};
use upkeep::{IDLE, Upkeep};

/// How many units may wait. Each is some hundred bytes, and what its effect captured.
const CAPACITY: usize = 4096;
/// How many units share a commit.
const MAX_BATCH: usize = 256;

/// Does the ledger's writes, one transaction after another.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<Result<(), LedgerError>>>>,
    inline: bool,
}

struct Shared {
    queue: Queue<Box<dyn Work>>,
    lane: Lane,
    current: Current,
    meters: SharedMeters,
    upkeep: Upkeep,
    /// How long a unit may run before those that come later are refused.
    patience: Duration,
}

impl Writer {
    pub(crate) fn start(
        lane: Lane,
        executor: Executor,
        patience: Duration,
        wal_limit: u64,
        meters: SharedMeters,
    ) -> Result<Self, LedgerError> {
        let upkeep = Upkeep::new(meters.clone(), wal_limit);
        let (queue, current) = (Queue::new(CAPACITY), Current::default());
        let shared = Arc::new(Shared { queue, lane, current, meters, upkeep, patience });
        let inline = matches!(executor, Executor::Inline);
        let thread = if inline { None } else { Some(Shared::spawn(Arc::clone(&shared))?) };
        Ok(Self { shared, thread: Mutex::new(thread), inline })
    }

    /// Takes in a unit. It is done whatever becomes of the answering end.
    pub(crate) fn submit<R: Send + 'static>(
        &self,
        (unit, answering): (Unit<R>, Answering<R>),
    ) -> Result<Answering<R>, LedgerError> {
        if Inside::is_here() {
            return Err(LedgerError::Reentrant);
        }
        let Shared { queue, current, patience, .. } = &*self.shared;
        if self.inline {
            self.shared.run(vec![Box::new(unit)]);
            return Ok(answering);
        }
        if let Some(operation) = current.longer_than(*patience) {
            self.shared.meters.turned_away.add();
            return Err(LedgerError::Busy { operation: Some(operation) });
        }
        match queue.push(Box::new(unit)) {
            Ok(()) => Ok(answering),
            Err(Refused::Full) => {
                self.shared.meters.turned_away.add();
                Err(LedgerError::Busy { operation: current.operation() })
            }
            Err(Refused::Closed) => Err(LedgerError::Closed),
        }
    }

    /// Takes in a unit and waits for its answer.
    pub(crate) fn wait<R: Send + 'static>(&self, unit: (Unit<R>, Answering<R>)) -> Result<R, LedgerError> {
        self.submit(unit)?.wait().unwrap_or(Err(LedgerError::Closed))
    }

    /// How many units wait, and the most that have waited at once.
    pub(crate) fn depth(&self) -> (usize, usize) {
        self.shared.queue.depth()
    }

    /// Does what was taken in, and closes the connection.
    pub(crate) fn close(&self) -> Result<(), LedgerError> {
        if Inside::is_here() {
            return Err(LedgerError::Reentrant);
        }
        self.shared.queue.close();
        // Held until the thread has ended: whoever closes too has to wait as well, and not take the connection away.
        let mut thread = self.thread.lock();
        match thread.take().map(JoinHandle::join) {
            Some(Ok(closed)) => closed,
            // It panicked, or there was none: its connection is closed here.
            Some(Err(_)) | None => self.shared.lane.close(),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.queue.close();
        // Whoever is inside of an effect, of this ledger or another, does not wait: the thread goes on to the end of its
        // queue, and closes the connection, by itself.
        if !Inside::is_here() {
            drop(self.close());
        }
    }
}

impl Shared {
    fn run(&self, units: Vec<Box<dyn Work>>) {
        match self.upkeep.make_room(&self.lane) {
            Ok(()) => batch::run(self, units),
            Err(error) => batch::refuse(self, units, &error),
        }
        self.upkeep.after_batch(&self.lane);
    }

    /// What waits, once something does. Until then it looks after the log, as long as that has something to be moved.
    fn take(&self) -> Option<Vec<Box<dyn Work>>> {
        while self.upkeep.is_wanted() {
            let units = self.queue.take_within(MAX_BATCH, IDLE)?;
            if !units.is_empty() {
                return Some(units);
            }
            self.upkeep.checkpoint(&self.lane);
        }
        self.queue.take(MAX_BATCH)
    }

    /// Not a method: the locks that stand in under loom have no such receiver.
    fn spawn(shared: Arc<Self>) -> Result<JoinHandle<Result<(), LedgerError>>, LedgerError> {
        let body = move || {
            let _rest = Rest(&shared.queue);
            while let Some(units) = shared.take() {
                shared.run(units);
            }
            shared.lane.close()
        };
        thread::Builder::new()
            .name("steady-ledger".into())
            .spawn(body)
            .map_err(|error| LedgerError::Storage(error.into()))
    }
}

/// Whatever ends the thread, nobody is left waiting for it.
struct Rest<'a>(&'a Queue<Box<dyn Work>>);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.close();
        while let Some(units) = self.0.take(MAX_BATCH) {
            for mut unit in units {
                unit.fail(LedgerError::Closed);
                unit.answer();
            }
        }
    }
}
