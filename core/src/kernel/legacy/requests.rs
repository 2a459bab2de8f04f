//! The requests of a session that are in flight, each from before its handler runs until it ends or is cancelled.
//!
//! A handler can be cancelled while its first poll still runs, before its slot is known here: the reason is kept until the
//! slot is.

use alloc::collections::BTreeMap;
use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;

use crate::id::RequestId;
use crate::kernel::mutant;
use crate::kernel::slot::{CancelReason, Slot};
use crate::kernel::sync::{Arc, Mutex};
use crate::time::Instant;

/// Bounded by the requests in progress of the whole service.
#[derive(Debug, Default)]
pub(super) struct Requests(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    seats: BTreeMap<RequestId, StdArc<Seat>>,
    closed: bool,
}

/// Why requests of a session were not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(clippy::exhaustive_enums, reason = "a transport answers each")]
pub enum NotBegun {
    /// One with this id is in flight. An error under that id would settle the one that has it (rule C10).
    #[error("a request with the id {0} is already in flight in this session")]
    Duplicate(RequestId),
    /// The session has ended.
    #[error("this session has ended: start a new one with initialize")]
    Ended,
}

impl Requests {
    /// Takes all of these ids, or none.
    pub(super) fn register<'a>(
        &self,
        ids: impl Iterator<Item = &'a RequestId> + Clone,
    ) -> Result<Vec<StdArc<Seat>>, NotBegun> {
        let mut state = self.0.lock();
        if state.closed {
            return Err(NotBegun::Ended);
        }
        let twice = |nth: usize, id: &RequestId| ids.clone().take(nth).any(|earlier| earlier == id);
        let mut all = ids.clone().enumerate();
        if let Some((_, id)) = all.find(|(nth, id)| state.seats.contains_key(*id) || twice(*nth, id)) {
            return Err(NotBegun::Duplicate(id.clone()));
        }
        let seat = |id: &RequestId| {
            let seat = StdArc::new(Seat(Mutex::new(Place::Beginning(None))));
            state.seats.insert(id.clone(), StdArc::clone(&seat));
            seat
        };
        Ok(ids.map(seat).collect())
    }

    /// It has ended. Another one may have its id by now, which stays.
    pub(super) fn release(&self, id: &RequestId, seat: &StdArc<Seat>) {
        let mut state = self.0.lock();
        if state.seats.get(id).is_some_and(|held| StdArc::ptr_eq(held, seat)) {
            state.seats.remove(id);
        }
    }

    /// Cancels one, whose id is free then; whether it was in flight.
    pub(super) fn cancel(&self, now: Instant, id: &RequestId, reason: CancelReason) -> bool {
        let Some(seat) = self.0.lock().seats.get(id).cloned() else { return false };
        let cancelled = seat.cancel(now, reason);
        if cancelled {
            self.release(id, &seat);
        }
        cancelled
    }

    /// Cancels all; no other is begun.
    pub(super) fn close(&self, now: Instant) {
        let mut state = self.0.lock();
        state.closed = true;
        let seats = core::mem::take(&mut state.seats);
        drop(state);
        for seat in seats.values() {
            let _too_late = seat.cancel(now, CancelReason::Disconnected);
        }
    }
}

/// What a request is known by from beside its exchange.
#[derive(Debug)]
pub(super) struct Seat(Mutex<Place>);

#[derive(Debug)]
enum Place {
    /// Its handler's first poll may run; it was cancelled for this reason, if it was.
    Beginning(Option<CancelReason>),
    Running(Arc<Slot>),
}

impl Seat {
    /// Its slot is known. A cancellation that came before is carried out.
    pub(super) fn run(&self, now: Instant, slot: &Arc<Slot>) {
        let mut place = self.0.lock();
        let before = core::mem::replace(&mut *place, Place::Running(Arc::clone(slot)));
        drop(place);
        if let Place::Beginning(Some(reason)) = before
            && !mutant::is("seat-forgets-its-reason")
        {
            let _answered_already = slot.cancel(now, reason);
        }
    }

    fn cancel(&self, now: Instant, reason: CancelReason) -> bool {
        let mut place = self.0.lock();
        let slot = match &mut *place {
            Place::Beginning(Some(_)) => return false,
            Place::Beginning(none) => {
                *none = Some(reason);
                return true;
            }
            Place::Running(slot) => Arc::clone(slot),
        };
        drop(place);
        slot.cancel(now, reason)
    }
}
