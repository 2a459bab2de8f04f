//! The table of requests in flight: ids, tokens, places, deadlines.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::seat::{Ended, Seat};
use super::served::{Event, ServedRequest};
use super::timers::Timers;
use super::{Config, Counters};
use crate::id::{ProgressToken, RequestId};
use crate::outbound::Handle;
use crate::request::Terminal;
use crate::time::Instant;
use crate::transport::ListenCancellation;

/// A request to admit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "what the coordinator needs to know of a request")]
pub struct Start {
    /// Its id.
    pub id: RequestId,
    /// Its progress token, if it gave one.
    pub token: Option<ProgressToken>,
    /// Whether it is a `subscriptions/listen`, the only kind that the server may end by itself.
    pub listen: bool,
}

/// Why a request was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A request with this id is in flight. An error under the id would settle that one (rule C10).
    #[error("a request with this id is already in flight")]
    DuplicateId,
    /// A request with this progress token is in flight (rule P1).
    #[error("params._meta.progressToken is in use by another request in flight")]
    DuplicateToken,
    /// The cap of requests in flight is reached, or that of handlers that outlive their request.
    #[error("this server is at its limit of {0} requests; retry later")]
    Full(usize),
    /// The cap of open listens is reached.
    #[error("this connection has {0} open listens, its limit; end one, or ask for more in one")]
    TooManyListens(usize),
    /// The connection is closing.
    #[error("this server is shutting down")]
    Closed,
}

/// What a cancellation did.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "the three outcomes of a cancellation")]
pub enum Cancelled<S> {
    /// The request ended; here is its seat. Purge the handle's messages.
    Ended(Handle, S),
    /// It had ended in this way; nothing changes (rule C4).
    TooLate(Handle),
    /// Nothing in flight has this id.
    Unknown,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "the last answer is Idle; callers loop until then")]
pub enum Polled<E> {
    /// A request answered its tick with this.
    Acted(Handle, E),
    /// Nothing more at this time; poll again at `wake_at`, or after the next event.
    Idle {
        /// The next deadline, if there is one.
        wake_at: Option<Instant>,
    },
}

/// The server ended this listen. What travels is the transport's affair: on stdio the result, then the notification.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct ListenEnd<E> {
    /// The notification that follows the result on stdio.
    pub cancellation: ListenCancellation,
    /// What the request answered to its completion: the permit for the final result.
    pub effect: E,
}

/// The request is no open listen: a server must not end it (rule C5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("only an open subscriptions/listen can be ended by the server")]
#[non_exhaustive]
pub struct NotAListen;

#[derive(Clone, Debug)]
struct Entry<S> {
    start: Box<Start>,
    seat: S,
    armed_at: Option<Instant>,
    running: bool,
    /// Whether its end is counted.
    counted: bool,
}

#[derive(Clone, Debug)]
struct Place<S> {
    generation: u32,
    entry: Option<Entry<S>>,
}

/// The server's requests in flight. See the [module](super).
#[derive(Clone, Debug)]
pub struct RequestCoordinator<S = ServedRequest> {
    config: Config,
    places: Vec<Place<S>>,
    free: Vec<u32>,
    ids: BTreeMap<RequestId, u32>,
    tokens: BTreeSet<ProgressToken>,
    timers: Timers,
    stragglers: usize,
    listens: usize,
    closed: bool,
    counters: Counters,
}

impl<S: Seat> RequestCoordinator<S> {
    /// Nothing in flight.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            places: Vec::new(),
            free: Vec::new(),
            ids: BTreeMap::new(),
            tokens: BTreeSet::new(),
            timers: Timers::default(),
            stragglers: 0,
            listens: 0,
            closed: false,
            counters: Counters::default(),
        }
    }

    /// Admits a request. `seat` puts the new machine into its seat.
    ///
    /// # Errors
    /// [`Refusal`]: it does not run.
    pub fn start(
        &mut self,
        now: Instant,
        start: Start,
        seat: impl FnOnce(ServedRequest) -> S,
    ) -> Result<Handle, Refusal> {
        self.admit(&start)?;
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, entry: None });
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let place = &mut self.places[index as usize];
        // Generation 0 stands for "no handle" in the outbound buffer.
        place.generation = place.generation.checked_add(1).unwrap_or(1);
        let handle = Handle::new(index, place.generation);
        let request = ServedRequest::start(
            now,
            handle,
            if start.listen { Default::default() } else { self.config.limits },
            // Progress never travels on a listen stream (rule L6).
            start.token.is_some() && !start.listen,
            self.config.progress_interval,
        );
        self.listens += usize::from(start.listen);
        self.ids.insert(start.id.clone(), index);
        if let Some(token) = &start.token {
            self.tokens.insert(token.clone());
        }
        place.entry =
            Some(Entry { start: Box::new(start), seat: seat(request), armed_at: None, running: true, counted: false });
        self.counters.started += 1;
        Ok(handle)
    }

    fn admit(&mut self, start: &Start) -> Result<(), Refusal> {
        let full = self.ids.len() >= self.config.in_flight || self.stragglers >= self.config.stragglers;
        // First of all: what is answered under this id would settle the request in flight (rule C10).
        let refusal = if self.is_duplicate(&start.id) {
            Refusal::DuplicateId
        } else if self.closed {
            self.counters.refused_closing += 1;
            Refusal::Closed
        } else if start.token.as_ref().is_some_and(|token| self.tokens.contains(token)) {
            self.counters.duplicates += 1;
            Refusal::DuplicateToken
        } else if full {
            self.counters.refused += 1;
            Refusal::Full(self.config.in_flight)
        } else if start.listen && self.listens >= self.config.listens {
            self.counters.refused += 1;
            Refusal::TooManyListens(self.config.listens)
        } else {
            return Ok(());
        };
        Err(refusal)
    }

    /// The peer cancels the request with this id.
    pub fn cancel(&mut self, now: Instant, id: &RequestId) -> Cancelled<S> {
        let Some(&index) = self.ids.get(id) else {
            self.counters.cancelled_unknown += 1;
            return Cancelled::Unknown;
        };
        let handle = Handle::new(index, self.places[index as usize].generation);
        let Some(entry) = self.entry(handle) else { return Cancelled::Unknown };
        if entry.seat.handle(now, Event::Cancel).ended().is_none() {
            self.counters.cancelled_late += 1;
            return Cancelled::TooLate(handle);
        }
        self.remove(handle).map_or(Cancelled::Unknown, |seat| Cancelled::Ended(handle, seat))
    }

    /// The final response of this request has left the buffer: its id is free.
    pub fn release(&mut self, handle: Handle) -> Option<S> {
        self.remove(handle)
    }

    /// The handler of this request, or of one that was removed, has ended.
    pub fn handler_ended(&mut self, handle: Handle) {
        match self.entry(handle) {
            Some(entry) => entry.running = false,
            None => self.stragglers = self.stragglers.saturating_sub(1),
        }
    }

    /// Asks for a tick at `at`, where the seat learned of an earlier deadline than it had when it was last armed.
    pub fn arm(&mut self, handle: Handle, at: Instant) {
        let Some(entry) = self.entry(handle) else { return };
        if entry.armed_at.is_some_and(|armed| armed <= at) {
            return;
        }
        let before = entry.armed_at.replace(at);
        self.timers.arm(at, handle, before);
    }

    /// Arms the deadline of a request whose handler did not end at once.
    pub fn arm_deadline(&mut self, handle: Handle) {
        if let Some(at) = self.entry(handle).and_then(|entry| entry.seat.wake_at()) {
            self.arm(handle, at);
        }
    }

    /// What to do at `now`. Call until [`Polled::Idle`].
    pub fn poll(&mut self, now: Instant) -> Polled<S::Effect> {
        while let Some((at, handle)) = self.timers.next() {
            if at > now {
                return Polled::Idle { wake_at: Some(at) };
            }
            // Disarmed before it acts, so that a due deadline cannot come back for ever.
            self.timers.disarm(Some(at), handle);
            let Some(entry) = self.entry(handle) else { continue };
            entry.armed_at = None;
            let effect = entry.seat.handle(now, Event::Tick);
            match entry.seat.wake_at() {
                Some(next) => self.arm(handle, next),
                // A clock ended it: this tick, or a report that came first, on the thread of its handler.
                None => self.count_end(handle),
            }
            return Polled::Acted(handle, effect);
        }
        Polled::Idle { wake_at: None }
    }

    /// The peer is gone: every request in flight ends in silence, and no other is admitted. Returns the seats that ended
    /// now; answers that already wait keep theirs until [`release`](Self::release).
    pub fn close(&mut self, now: Instant, reason: Event) -> Vec<(Handle, S)> {
        self.closed = true;
        let handles: Vec<Handle> = self.handles().collect();
        let mut ended = Vec::new();
        for handle in handles {
            let over = self.entry(handle).and_then(|entry| entry.seat.handle(now, reason).ended());
            if let Some(Terminal::Cancelled | Terminal::Lost) = over {
                ended.extend(self.remove(handle).map(|seat| (handle, seat)));
            }
        }
        ended
    }

    /// Admits nothing more; what runs may finish.
    pub const fn drain(&mut self) {
        self.closed = true;
    }

    /// The server ends a listen of its own.
    ///
    /// # Errors
    /// [`NotAListen`] for anything but an open listen (`COORD-5`).
    pub fn end_listen(&mut self, now: Instant, handle: Handle) -> Result<ListenEnd<S::Effect>, NotAListen> {
        let entry = self.entry(handle).filter(|entry| entry.start.listen).ok_or(NotAListen)?;
        let effect = entry.seat.handle(now, Event::Complete);
        if effect.ended().is_none() {
            return Err(NotAListen);
        }
        Ok(ListenEnd { cancellation: ListenCancellation::new(entry.start.id.clone()), effect })
    }

    /// The seat of this request.
    pub fn seat(&mut self, handle: Handle) -> Option<&mut S> {
        self.entry(handle).map(|entry| &mut entry.seat)
    }

    /// The id of this request.
    #[must_use]
    pub fn id(&self, handle: Handle) -> Option<&RequestId> {
        self.look(handle).map(|entry| &entry.start.id)
    }

    fn look(&self, handle: Handle) -> Option<&Entry<S>> {
        let place = self.places.get(handle.index as usize).filter(|place| place.generation == handle.generation)?;
        place.entry.as_ref()
    }

    /// Whether a request with this id is in flight.
    #[must_use]
    pub fn knows(&self, id: &RequestId) -> bool {
        self.ids.contains_key(id)
    }

    /// Whether a request that comes under this id is a duplicate, which is counted then (rule C10).
    pub fn is_duplicate(&mut self, id: &RequestId) -> bool {
        let duplicate = self.knows(id);
        self.counters.duplicates += u64::from(duplicate);
        duplicate
    }

    /// The handles of all requests in flight.
    pub fn handles(&self) -> impl Iterator<Item = Handle> + '_ {
        self.ids.values().map(|&index| Handle::new(index, self.places[index as usize].generation))
    }

    /// Requests in flight: running, or answered and not yet sent.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ids.len()
    }

    /// Those of them that are listens.
    #[must_use]
    pub const fn listens(&self) -> usize {
        self.listens
    }

    /// Whether this request in flight is a listen.
    #[must_use]
    pub fn is_listen(&self, handle: Handle) -> bool {
        self.look(handle).is_some_and(|entry| entry.start.listen)
    }

    /// Whether nothing more is admitted.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Handlers that outlive their request.
    #[must_use]
    pub const fn stragglers(&self) -> usize {
        self.stragglers
    }

    /// Requests with a deadline that is watched: no more than are in flight.
    #[must_use]
    pub fn armed(&self) -> usize {
        self.timers.len()
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    fn entry(&mut self, handle: Handle) -> Option<&mut Entry<S>> {
        let place = self.places.get_mut(handle.index as usize)?;
        if place.generation == handle.generation { place.entry.as_mut() } else { None }
    }

    /// Counts how the request ended, once.
    fn count_end(&mut self, handle: Handle) {
        let Some(entry) = self.entry(handle).filter(|entry| !entry.counted) else { return };
        if let Some(terminal) = entry.seat.terminal() {
            entry.counted = true;
            self.counters.count(terminal);
        }
    }

    fn remove(&mut self, handle: Handle) -> Option<S> {
        self.count_end(handle);
        let place = self.places.get_mut(handle.index as usize).filter(|place| place.generation == handle.generation)?;
        let entry = place.entry.take()?;
        self.timers.disarm(entry.armed_at, handle);
        self.free.push(handle.index);
        self.listens -= usize::from(entry.start.listen);
        self.ids.remove(&entry.start.id);
        if let Some(token) = &entry.start.token {
            self.tokens.remove(token);
        }
        self.stragglers += usize::from(entry.running);
        Some(entry.seat)
    }
}
