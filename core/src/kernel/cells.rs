//! Cells beside the lock of the outbound queue, so that reporters of different requests need not wait for each other.
//!
//! A cell is *armed* for a request whose progress waits in the queue, once two threads have met at the queue's lock. It then
//! takes the newer values of that request, under a lock of its own. Whoever takes the waiting message out of its place, or
//! changes what may come after it, *settles* the cell first: the newest value moves into the place, and the cell takes no
//! more. So a value in a cell is in the place of a message that waits, and the order, the bounds and the wake-up of the queue
//! are its own. Arming and settling happen under the queue's lock; lock order is queue, then cell.

use alloc::boxed::Box;
use alloc::string::String;

use super::mutant;
use super::sync::{AtomicU64, Counter, Mutex, OnceLock, Ordering};
use crate::outbound::{Handle, RETAINED, Slot};

/// As many cells as places in the queue, made when the first is armed.
#[derive(Debug)]
pub(super) struct Cells {
    count: usize,
    cells: OnceLock<Box<[Cell]>>,
    /// Values that were replaced in a cell that was settled since. Apart from what every reporter reads.
    overwritten: Box<Counter>,
}

/// Two cache lines, which processors fetch in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Cell {
    /// The request that it was armed for, or [`FREE`]. It changes under the queue's lock. A hint: without that lock only
    /// what `newest` says counts.
    armed: AtomicU64,
    newest: Mutex<Newest>,
}

#[derive(Debug, Default)]
struct Newest {
    /// The request that it is armed for, or [`FREE`].
    armed: u64,
    /// Whether it holds a value.
    fresh: bool,
    /// The longest text that it takes, in bytes: that of the waiting message, so that the queue's account holds.
    room: usize,
    /// Values that it took, each in the place of an older one.
    taken: u64,
    progress: f64,
    total: Option<f64>,
    text: String,
}

/// No request: generations count from 1. A handle of generation 0 has no cell.
const FREE: u64 = 0;

fn key(handle: Handle) -> u64 {
    u64::from(handle.index) << 32 | u64::from(handle.generation)
}

impl Cells {
    /// For a queue of this capacity.
    pub(super) fn new(capacity: usize) -> Self {
        let cells =
            Self { count: capacity.max(1).next_power_of_two(), cells: OnceLock::new(), overwritten: Box::default() };
        if cfg!(steady_loom) {
            // A model does not see that a `OnceLock` hands over what another thread made.
            cells.get();
        }
        cells
    }

    /// Puts a newer value in the place of one that waits, if the request has an armed cell.
    #[inline]
    pub(super) fn overwrite(&self, handle: Handle, progress: f64, total: Option<f64>, message: &str) -> bool {
        let Some(cell) = self.cells.get().and_then(|cells| of(cells, handle)) else { return false };
        let armed = cell.armed.load(Ordering::Relaxed);
        armed != FREE && armed == key(handle) && cell.overwrite(handle, progress, total, message)
    }

    /// Arms a cell for the message that waits in `slot`; `false`: another request has it, or the text needs more memory than
    /// a cell may keep once they are exchanged.
    pub(super) fn arm(&self, slot: &Slot) -> bool {
        if slot.text.capacity() > RETAINED {
            return false;
        }
        let Some(cell) = of(self.get(), slot.handle).filter(|cell| cell.armed.load(Ordering::Relaxed) == FREE) else {
            return false;
        };
        let mut newest = cell.newest.lock();
        newest.armed = key(slot.handle);
        newest.fresh = false;
        newest.room = slot.text.len();
        cell.armed.store(newest.armed, Ordering::Relaxed);
        true
    }

    pub(super) fn overwritten(&self) -> u64 {
        self.overwritten.get()
    }

    fn get(&self) -> &[Cell] {
        self.cells.get_or_init(|| (0..self.count).map(|_| Cell::default()).collect())
    }

    /// Moves the newest value of the armed message in `slot` there. Its cell takes no more.
    pub(super) fn settle(&self, slot: &mut Slot) {
        let Some(cell) = self.cells.get().and_then(|cells| of(cells, slot.handle)) else { return };
        let mut newest = cell.newest.lock();
        debug_assert_eq!(newest.armed, key(slot.handle), "an armed message has its cell");
        cell.armed.store(FREE, Ordering::Relaxed);
        if !mutant::is("settled-cell-takes-more") {
            newest.armed = FREE;
        }
        if core::mem::take(&mut newest.fresh) {
            self.overwritten.add(core::mem::take(&mut newest.taken));
            slot.progress = newest.progress;
            slot.total = newest.total;
            core::mem::swap(&mut slot.text, &mut newest.text);
        }
    }
}

fn of(cells: &[Cell], handle: Handle) -> Option<&Cell> {
    // Their number is a power of two.
    cells.get(handle.index as usize & cells.len().wrapping_sub(1))
}

impl Cell {
    fn overwrite(&self, handle: Handle, progress: f64, total: Option<f64>, message: &str) -> bool {
        let mut newest = self.newest.lock();
        let armed = newest.armed == key(handle) || mutant::is("cell-trusts-its-hint");
        if !armed || message.len() > newest.room {
            return false;
        }
        newest.fresh = true;
        newest.taken += 1;
        newest.progress = progress;
        newest.total = total;
        newest.text.clear();
        newest.text.push_str(message);
        true
    }
}
