//! A coordinator with its outbound buffer and its handlers, as a value: what a shell does, without a shell.

use std::collections::{BTreeMap, BTreeSet};

use steady_core::coordinator::{
    Cancelled, Config, Effect, Event, Polled, Refusal, RequestCoordinator, ServedRequest, Start,
};
use steady_core::id::{ProgressToken, RequestId};
use steady_core::outbound::{self, Handle, Item, Outbound, Popped, Pushed};
use steady_core::progress::Progress;
use steady_core::request::Terminal;
use steady_core::time::Instant;

use super::invariants::{
    coord_4_no_due_deadline_remains, out_3_nothing_follows_the_end, prog_1_values_increase,
    prog_3_nothing_passes_after_the_end, req_1_one_terminal_state, req_2_one_right_to_answer,
};

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) coordinator: RequestCoordinator<ServedRequest>,
    pub(crate) outbound: Outbound,
    /// Handlers that run, with the last value each reported.
    pub(crate) handlers: BTreeMap<Handle, u32>,
    /// Progress that the rate limit holds back.
    held: BTreeMap<Handle, u32>,
    permits: BTreeSet<Handle>,
    /// Requests of which nothing may leave any more.
    gone: BTreeSet<Handle>,
    newest: BTreeMap<Handle, u32>,
}

/// What left the buffer: the request's id, and its text.
pub(crate) type Line = (RequestId, String);

impl World {
    pub(crate) fn new(config: Config) -> Self {
        let outbound = outbound::Config { capacity: 2, finals: config.in_flight, ..outbound::Config::default() };
        Self {
            now: Instant::ZERO,
            coordinator: RequestCoordinator::new(config),
            outbound: Outbound::new(outbound),
            handlers: BTreeMap::new(),
            held: BTreeMap::new(),
            permits: BTreeSet::new(),
            gone: BTreeSet::new(),
            newest: BTreeMap::new(),
        }
    }

    /// A request with a progress token of its own, whose handler does not end at once.
    pub(crate) fn start(&mut self, id: &str, listen: bool) -> Result<Handle, Refusal> {
        let start = Start { id: id.into(), token: Some(ProgressToken(id.into())), listen };
        self.start_with(start)
    }

    pub(crate) fn start_with(&mut self, start: Start) -> Result<Handle, Refusal> {
        let handle = self.coordinator.start(self.now, start, |request| request)?;
        self.outbound.open(handle, "p");
        self.coordinator.arm_deadline(handle);
        self.handlers.insert(handle, 0);
        Ok(handle)
    }

    /// The handler reports its next value, or its last one again.
    pub(crate) fn report(&mut self, handle: Handle, again: bool) -> Option<bool> {
        let value = self.handlers.get_mut(&handle)?;
        *value += u32::from(!again);
        let value = *value;
        let progress = Progress::new(f64::from(value)).expect("finite");
        let effect = self.coordinator.seat(handle)?.handle(self.now, Event::Report(progress));
        match &effect {
            Effect::Forward => self.push(handle, value),
            Effect::Hold { until } => {
                self.coordinator.arm(handle, *until);
                self.held.insert(handle, value);
            }
            Effect::Nothing
            | Effect::Release
            | Effect::Quiet
            | Effect::Refused
            | Effect::Respond { .. }
            | Effect::Expired { .. }
            | Effect::Silent(_)
            | Effect::TooLate(_) => {}
        }
        let accepted = matches!(effect, Effect::Forward | Effect::Hold { .. } | Effect::Quiet);
        self.act(handle, effect);
        Some(accepted)
    }

    /// The handler answers and ends.
    pub(crate) fn complete(&mut self, handle: Handle) {
        if let Some(seat) = self.coordinator.seat(handle) {
            let effect = seat.handle(self.now, Event::Complete);
            self.act(handle, effect);
        }
        self.end_handler(handle);
    }

    pub(crate) fn end_handler(&mut self, handle: Handle) {
        if self.handlers.remove(&handle).is_some() {
            self.coordinator.handler_ended(handle);
        }
    }

    /// `Some(true)` if it ended a request, `Some(false)` if that was too late, `None` if it named nothing.
    pub(crate) fn cancel(&mut self, id: &RequestId) -> Option<bool> {
        match self.coordinator.cancel(self.now, id) {
            Cancelled::Ended(handle, mut seat) => {
                self.outbound.purge(handle);
                self.silence(handle, &mut seat);
                Some(true)
            }
            Cancelled::TooLate(_) => Some(false),
            Cancelled::Unknown => None,
        }
    }

    /// The peer is gone.
    pub(crate) fn close(&mut self) {
        for (handle, mut seat) in self.coordinator.close(self.now, Event::Lost) {
            self.outbound.purge(handle);
            self.silence(handle, &mut seat);
        }
    }

    /// Nothing that its handler or the clock still does to it may yield a permit or a message (REQ-1, REQ-2, rule C3).
    fn silence(&mut self, handle: Handle, seat: &mut ServedRequest) {
        self.gone.insert(handle);
        self.held.remove(&handle);
        let terminal = seat.terminal().expect("it ended");
        assert!(matches!(terminal, Terminal::Cancelled | Terminal::Lost));
        let more = Progress::new(1e9).expect("finite");
        for at in [self.now, Instant::MAX] {
            let refused = seat.handle(at, Event::Report(more)) == Effect::Refused;
            prog_3_nothing_passes_after_the_end(true, !refused, &handle);
            for event in [Event::Complete, Event::Tick, Event::Cancel, Event::Lost] {
                let effect = seat.handle(at, event);
                req_1_one_terminal_state(Some(terminal), seat.terminal(), &event);
                let given = effect != Effect::TooLate(terminal);
                req_2_one_right_to_answer(Some(terminal), seat.terminal(), given, &event);
            }
        }
    }

    /// What a shell does at this time; the next deadline.
    pub(crate) fn poll(&mut self) -> Option<Instant> {
        for _ in 0..100 {
            match self.coordinator.poll(self.now) {
                Polled::Acted(handle, effect) => self.act(handle, effect),
                Polled::Idle { wake_at } => {
                    coord_4_no_due_deadline_remains(self.now, wake_at, &"idle");
                    return wake_at;
                }
            }
        }
        panic!("COORD-4: it does not come to rest");
    }

    /// Goes to `at`, stopping at every deadline on the way.
    pub(crate) fn go_to(&mut self, at: Instant) {
        while let Some(next) = self.poll().filter(|next| *next <= at) {
            self.now = next;
        }
        self.now = at;
        self.poll();
    }

    pub(crate) fn act(&mut self, handle: Handle, effect: Effect) {
        match effect {
            Effect::Release => self.release(handle),
            Effect::Respond { permit, release } => {
                if release {
                    self.release(handle);
                }
                self.answer(permit, "result");
            }
            Effect::Expired { permit, clock } => {
                self.held.remove(&handle);
                self.answer(permit, &format!("{clock:?} ran out"));
            }
            Effect::Silent(_) => unreachable!("a cancellation hands its seat out"),
            Effect::Nothing
            | Effect::Forward
            | Effect::Hold { .. }
            | Effect::Quiet
            | Effect::Refused
            | Effect::TooLate(_) => {}
        }
    }

    fn release(&mut self, handle: Handle) {
        let value = self.held.remove(&handle).expect("something is held");
        self.push(handle, value);
    }

    fn push(&mut self, handle: Handle, value: u32) {
        self.held.remove(&handle);
        let pushed = self.outbound.progress(handle, f64::from(value), None, "");
        assert!(matches!(pushed, Pushed::Queued | Pushed::Coalesced | Pushed::Evicted(_)), "{pushed:?}");
    }

    fn answer(&mut self, permit: outbound::SendPermit, text: &str) {
        let handle = permit.handle();
        let ended = self.coordinator.seat(handle).and_then(|seat| seat.terminal());
        let first = self.permits.insert(handle);
        let over = self.gone.contains(&handle) || !first;
        let before = if over { ended } else { None };
        req_2_one_right_to_answer(before, ended, true, &text);
        self.outbound.finish(permit, text.as_bytes().to_vec()).expect("a place for each in flight");
    }

    pub(crate) fn pop(&mut self) -> Option<Line> {
        let (Popped { handle, last }, text) = self.outbound.pop(show)?;
        let handle = handle.expect("no refusals here");
        out_3_nothing_follows_the_end(self.gone.contains(&handle), &(handle, &text));
        let id = self.coordinator.id(handle).expect("its id is in use until now").clone();
        if last {
            self.gone.insert(handle);
            self.coordinator.release(handle).expect("in flight until now");
        } else {
            let value: u32 = text.parse().expect("progress");
            let newest = self.newest.insert(handle, value);
            prog_1_values_increase(newest.map(f64::from), f64::from(value), &handle);
        }
        Some((id, text))
    }

    pub(crate) fn lines(&mut self) -> Vec<(String, String)> {
        std::iter::from_fn(|| self.pop()).map(|(id, text)| (id.to_string(), text)).collect()
    }
}

fn show(item: Item<'_>) -> String {
    match item {
        Item::Progress { progress, .. } => format!("{progress}"),
        Item::Text(text) => String::from_utf8(text.to_vec()).expect("UTF-8"),
    }
}
