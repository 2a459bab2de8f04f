//! One durable task of the Tasks extension, server side (rules K1 to K6).
//!
//! Decides the task's status, keeps the wish to cancel apart from it, and holds everything back until the store has it:
//! the creation result, every status notification, the answer to `tasks/get`, and the acknowledgement of `tasks/cancel`.
//!
//! ```text
//!                       InputRequired
//!          ┌─────────┐ ───────────────► ┌────────────────┐
//!  create─►│ working │                  │ input_required │
//!          └─────────┘ ◄─────────────── └────────────────┘
//!            │  │  │     InputProvided      │   │   │
//!   Complete │  │  │ ObservedCancel         │   │   │      the same three ends
//!            │  │  │ (intent was recorded)  │   │   │
//!            ▼  │  └────────► cancelled ◄───┘   │   │
//!     completed │ Fail                          │   │
//!               └───────────► failed            ▼   ▼
//!
//!  CancelRequested: sets the intent, never the status. A terminal status is left by nothing.
//!
//!  the store, one write at a time:
//!     idle ──change──► Persist(record) ──Persisted──► Announce(record), next write if there were more changes
//!                          ▲    │
//!                          └────┴──PersistFailed: the newest state is asked for again
//! ```
//!
//! The machine holds no payload. A result, an error or an input request belongs to the shell, which writes it in the same
//! transaction as the [`Record`]. It holds no time either: a task's lifetime is wall time and the store's business.
//!
//! | tie | rule |
//! |---|---|
//! | two terminal events | the first one handled wins; the later one is [`Effect::TooLate`] and changes nothing |
//! | a cancel request and a completion | whichever way round: both are accepted, and the task is completed |
//! | changes while a write is in flight | they are folded into one next write, in their final state |
//! | input provided before the request for it was announced | ignored: nobody was asked yet |
//!
//! Invariants:
//! - `TASK-1` a terminal status never changes;
//! - `TASK-2` a cancel request never changes the status: its acknowledgement leaves a non-terminal task non-terminal;
//! - `TASK-3` nothing is announced or acknowledged that the store has not confirmed;
//! - `TASK-4` the first terminal event wins, every later one is too late;
//! - `TASK-5` `cancelled` is reached only by a worker that observed a recorded intent;
//! - `TASK-6` at most one write is in flight, and its revision is higher than that of every write before it;
//! - `TASK-7` an accepted change is in flight or will be in the next write: none is forgotten.
//!
//! ```
//! use steady_core::task::{Effect, Event, Status, Task};
//!
//! let (mut task, first) = Task::create();
//! // Only now may the client hear of it (K1).
//! let effect = task.handle(Event::Persisted(first.revision));
//! assert!(matches!(effect, Effect::Announce { .. }));
//!
//! // tasks/cancel: recorded first, acknowledged once durable, and the task works on.
//! let Effect::Persist(record) = task.handle(Event::CancelRequested) else { panic!() };
//! assert_eq!((record.status, record.cancel_requested), (Status::Working, true));
//! let effect = task.handle(Event::Persisted(record.revision));
//! assert!(matches!(effect, Effect::Announce { acknowledge_cancel: true, .. }));
//! assert!(!task.status().is_terminal());
//!
//! // The worker learns of it at its next checkpoint, and decides.
//! assert_eq!(task.handle(Event::Checkpoint), Effect::ObserveCancel);
//! let Effect::Persist(record) = task.handle(Event::ObservedCancel) else { panic!() };
//! assert_eq!(record.status, Status::Cancelled);
//! ```

use core::fmt;

/// The name of the extension, as both sides declare it.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The status of a task (rule K2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// A worker is on it.
    Working,
    /// It waits for the client's input.
    InputRequired,
    /// Ended with a tool result, also one with `isError`. Terminal.
    Completed,
    /// Ended with a JSON-RPC error. Terminal.
    Failed,
    /// Ended because a worker observed the intent to cancel. Terminal.
    Cancelled,
}

impl Status {
    /// Whether the status is one that never changes (`TASK-1`).
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Working | Self::InputRequired => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }

    /// Reads a status as it is written on the wire.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Working, Self::InputRequired, Self::Completed, Self::Failed, Self::Cancelled];
        all.into_iter().find(|status| status.as_str() == text)
    }

    /// As it is written on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The number of one write of a task, counted from 1 at its creation. A higher one replaces a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// The revision with this number, as read from a store.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// What the store keeps of a task's state. The shell adds id, times and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Which write this is.
    pub revision: Revision,
    /// The status.
    pub status: Status,
    /// Whether a client asked for the task to be cancelled. Kept on terminal tasks as it was.
    pub cancel_requested: bool,
}

/// What happened to the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A `tasks/cancel` request of an authorised client (rule K3). Every request is acknowledged once.
    CancelRequested,
    /// The worker asks whether to go on. No progress is implied.
    Checkpoint,
    /// The worker has a result.
    Complete,
    /// The worker failed with a JSON-RPC error.
    Fail,
    /// The worker stopped because a checkpoint told it to.
    ObservedCancel,
    /// The worker needs input that the client has to give.
    InputRequired,
    /// The last open input was provided by `tasks/update` (rule K4).
    InputProvided,
    /// The store confirmed this write.
    Persisted(Revision),
    /// The store refused this write, or its fate is not known.
    PersistFailed(Revision),
}

/// What the shell must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Effect {
    /// Write this record (with its payload) and report [`Event::Persisted`] or [`Event::PersistFailed`] for it. After a
    /// failure the shell chooses the pause. A cancel request answered by this waits for the acknowledgement in
    /// [`Effect::Announce`].
    Persist(Record),
    /// Recorded; it will be in the next write, which [`Effect::Announce`] or a failure brings. A cancel request answered
    /// by this waits likewise.
    Deferred,
    /// The store has this record: the creation result or a `notifications/tasks` may go out (rules K1, K6), and
    /// `tasks/get` may answer it.
    Announce {
        /// What is now durable.
        record: Record,
        /// Whether every cancel request that waits is to be acknowledged now. It says "intent recorded", not "stopped".
        acknowledge_cancel: bool,
        /// What must be written next, as for [`Effect::Persist`].
        next: Option<Record>,
    },
    /// Acknowledge this cancel request at once: the intent, or the end of the task, is already durable.
    Acknowledged,
    /// To the worker at a checkpoint: go on.
    Continue,
    /// To the worker at a checkpoint: a client wants the task to end. Stop when you can and report
    /// [`Event::ObservedCancel`], or finish.
    ObserveCancel,
    /// To the worker: the task already ended with this status; nothing was changed (`TASK-4`).
    TooLate(Status),
    /// To the worker: nobody asked for a cancellation; nothing was changed (`TASK-5`). A worker that gives up fails.
    NotRequested,
    /// Nothing: an input nobody was asked for, or news of a write that is not in flight.
    Ignored,
}

/// One task. A small value without payload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    status: Status,
    cancel_requested: bool,
    /// The write in flight.
    writing: Option<Record>,
    /// The last write that the store confirmed. None only before the first confirmation.
    durable: Option<Record>,
    /// Whether something changed since `writing` was issued, or since `durable` if nothing is in flight.
    dirty: bool,
    /// Whether cancel requests wait for their acknowledgement.
    ack_due: bool,
    last: Revision,
}

impl Task {
    /// A new task in status working, and the first record to write. Nobody may hear of the task before it is durable
    /// (rule K1).
    #[must_use]
    pub const fn create() -> (Self, Record) {
        let record = Record { revision: Revision(1), status: Status::Working, cancel_requested: false };
        let task = Self {
            status: record.status,
            cancel_requested: false,
            writing: Some(record),
            durable: None,
            dirty: false,
            ack_due: false,
            last: record.revision,
        };
        (task, record)
    }

    /// The task as a store has it, after a restart. Nothing is in flight.
    #[must_use]
    pub const fn restore(record: Record) -> Self {
        Self {
            status: record.status,
            cancel_requested: record.cancel_requested,
            writing: None,
            durable: Some(record),
            dirty: false,
            ack_due: false,
            last: record.revision,
        }
    }

    /// The one transition.
    pub fn handle(&mut self, event: Event) -> Effect {
        let before = self.status;
        let effect = match event {
            Event::CancelRequested => self.cancel(),
            Event::Checkpoint => self.checkpoint(),
            Event::Complete => self.finish(Status::Completed),
            Event::Fail => self.finish(Status::Failed),
            Event::ObservedCancel => self.observed_cancel(),
            Event::InputRequired => self.input_required(),
            Event::InputProvided => self.input_provided(),
            Event::Persisted(revision) => self.persisted(revision),
            Event::PersistFailed(revision) => self.persist_failed(revision),
        };
        debug_assert!(!before.is_terminal() || before == self.status, "TASK-1");
        debug_assert!(!self.dirty || self.writing.is_some(), "TASK-7");
        effect
    }

    /// The status as decided, perhaps not durable yet. For the worker's side; clients get [`durable`](Self::durable).
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Whether a cancellation was asked for, perhaps not durable yet.
    #[must_use]
    pub const fn cancel_requested(&self) -> bool {
        self.cancel_requested
    }

    /// What clients may know: the last confirmed record. None before the task exists for them.
    #[must_use]
    pub const fn durable(&self) -> Option<Record> {
        self.durable
    }

    /// The write in flight, if there is one.
    #[must_use]
    pub const fn writing(&self) -> Option<Record> {
        self.writing
    }

    /// The intent is recorded in any status but a terminal one; the status is not touched (`TASK-2`).
    fn cancel(&mut self) -> Effect {
        if self.cancel_is_durable() {
            return Effect::Acknowledged;
        }
        self.ack_due = true;
        if self.status.is_terminal() || self.cancel_requested {
            // What settles it is in flight or in the next write.
            return Effect::Deferred;
        }
        self.cancel_requested = true;
        self.changed()
    }

    /// A cancel request can be acknowledged once the store has the intent, or the end that made it pointless.
    fn cancel_is_durable(&self) -> bool {
        self.durable.is_some_and(|record| record.cancel_requested || record.status.is_terminal())
    }

    fn checkpoint(&self) -> Effect {
        match (self.status.is_terminal(), self.cancel_requested) {
            (true, _) => Effect::TooLate(self.status),
            (false, true) => Effect::ObserveCancel,
            (false, false) => Effect::Continue,
        }
    }

    fn finish(&mut self, status: Status) -> Effect {
        if self.status.is_terminal() {
            return Effect::TooLate(self.status);
        }
        self.status = status;
        self.changed()
    }

    fn observed_cancel(&mut self) -> Effect {
        if self.status.is_terminal() || self.cancel_requested {
            self.finish(Status::Cancelled)
        } else {
            Effect::NotRequested
        }
    }

    fn input_required(&mut self) -> Effect {
        if self.status.is_terminal() {
            return Effect::TooLate(self.status);
        }
        // A second round changes the payload, so it is a change even if the status stays.
        self.status = Status::InputRequired;
        self.changed()
    }

    fn input_provided(&mut self) -> Effect {
        let asked = self.durable.is_some_and(|record| record.status == Status::InputRequired);
        match self.status {
            Status::InputRequired if asked => {
                self.status = Status::Working;
                self.changed()
            }
            Status::InputRequired | Status::Working | Status::Completed | Status::Failed | Status::Cancelled => {
                Effect::Ignored
            }
        }
    }

    fn persisted(&mut self, revision: Revision) -> Effect {
        let Some(record) = self.take_write(revision) else {
            return Effect::Ignored;
        };
        self.durable = Some(record);
        let acknowledge_cancel = self.ack_due && self.cancel_is_durable();
        self.ack_due &= !acknowledge_cancel;
        let next = if self.dirty { Some(self.write()) } else { None };
        Effect::Announce { record, acknowledge_cancel, next }
    }

    fn persist_failed(&mut self, revision: Revision) -> Effect {
        match self.take_write(revision) {
            Some(_) => Effect::Persist(self.write()),
            None => Effect::Ignored,
        }
    }

    /// Ends the write in flight if it is this one.
    fn take_write(&mut self, revision: Revision) -> Option<Record> {
        self.writing.take_if(|record| record.revision == revision)
    }

    fn changed(&mut self) -> Effect {
        if self.writing.is_some() {
            self.dirty = true;
            Effect::Deferred
        } else {
            Effect::Persist(self.write())
        }
    }

    /// Issues a write of everything decided so far (`TASK-6`).
    fn write(&mut self) -> Record {
        self.last = self.last.next();
        let record = Record { revision: self.last, status: self.status, cancel_requested: self.cancel_requested };
        self.writing = Some(record);
        self.dirty = false;
        record
    }
}
