//! Where a served request lives, as far as the coordinator needs to know.

use super::served::{Effect, Event, ServedRequest};
use crate::request::Terminal;
use crate::time::Instant;

/// An answer that says whether the event ended the request.
pub trait Ended {
    /// How the request ended, if this event ended it.
    fn ended(&self) -> Option<Terminal>;
}

impl Ended for Effect {
    fn ended(&self) -> Option<Terminal> {
        Self::ended(self)
    }
}

/// A place that holds one [`ServedRequest`] and hands events to it.
pub trait Seat {
    /// What is left for the caller to do after an event.
    type Effect: Ended;

    /// Hands the event to the request.
    fn handle(&mut self, now: Instant, event: Event) -> Self::Effect;

    /// When the request wants its next tick.
    fn wake_at(&self) -> Option<Instant>;

    /// How the request ended, if it has.
    fn terminal(&self) -> Option<Terminal>;
}

impl Seat for ServedRequest {
    type Effect = Effect;

    fn handle(&mut self, now: Instant, event: Event) -> Effect {
        Self::handle(self, now, event)
    }

    fn wake_at(&self) -> Option<Instant> {
        Self::wake_at(self)
    }

    fn terminal(&self) -> Option<Terminal> {
        Self::terminal(self)
    }
}
