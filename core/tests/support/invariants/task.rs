//! A durable task on the server, and a client that follows one.

use std::fmt::Debug;

use steady_core::follow;
use steady_core::task::{Effect, Record, Revision, Status};
use steady_core::time::Instant;

use super::At;

/// `TASK-1` a terminal status never changes; nor does the intent beside it.
#[track_caller]
pub(crate) fn task_1_a_terminal_status_stays(before: (Status, bool), after: (Status, bool), at: At<'_>) {
    assert!(!before.0.is_terminal() || before == after, "TASK-1: {before:?} became {after:?} at {at:?}");
}

/// `TASK-2` a cancel request never changes the status. The status before and after one.
#[track_caller]
pub(crate) fn task_2_a_cancel_request_keeps_the_status(before: Status, after: Status, at: At<'_>) {
    assert_eq!(before, after, "TASK-2: at {at:?}");
}

/// `TASK-3` nothing is announced or acknowledged that the store has not confirmed.
#[track_caller]
pub(crate) fn task_3_only_what_the_store_has(announced: Record, stored: Option<Record>, at: At<'_>) {
    assert_eq!(Some(announced), stored, "TASK-3: at {at:?}");
}

/// `TASK-4` the first terminal event wins, every later one is too late. The answer to a terminal event, and the status before.
#[track_caller]
pub(crate) fn task_4_the_first_end_wins(before: Status, effect: Effect, at: At<'_>) {
    assert!(!before.is_terminal() || effect == Effect::TooLate(before), "TASK-4: {effect:?} in {before:?} at {at:?}");
}

/// `TASK-5` `cancelled` is reached only by a worker that observed a recorded intent.
#[track_caller]
pub(crate) fn task_5_cancelled_needs_an_observed_intent(
    (before, after): (Status, Status),
    intent: bool,
    observed: bool,
    at: At<'_>,
) {
    let became = before != Status::Cancelled && after == Status::Cancelled;
    assert!(!became || (intent && observed), "TASK-5: intent {intent}, observed {observed}, at {at:?}");
}

/// `TASK-6` at most one write is in flight, and its revision is higher than that of every write before it.
#[track_caller]
pub(crate) fn task_6_one_write_at_a_time(
    in_flight: Option<Record>,
    newest: Option<Revision>,
    issued: Record,
    at: At<'_>,
) {
    assert_eq!(in_flight, None, "TASK-6: a second write {issued:?} at {at:?}");
    assert!(newest.is_none_or(|newest| newest < issued.revision), "TASK-6: {issued:?} after {newest:?} at {at:?}");
}

/// `TASK-7` an accepted change is in flight or will be in the next write: what was `decided` is what the store has at last.
#[track_caller]
pub(crate) fn task_7_no_change_is_forgotten(decided: (Status, bool), stored: Option<Record>, at: At<'_>) {
    let stored = stored.map(|record| (record.status, record.cancel_requested));
    assert_eq!(Some(decided), stored, "TASK-7: at {at:?}");
}

/// `FOLLOW-1` Over is never left.
#[track_caller]
pub(crate) fn follow_1_over_is_never_left(before: follow::State, after: follow::State, at: At<'_>) {
    let over = matches!(before, follow::State::Over(_));
    assert!(!over || before == after, "FOLLOW-1: {before:?} became {after:?} at {at:?}");
}

/// `FOLLOW-2` one question is out at a time. The state before, and the answer to an event.
#[track_caller]
pub(crate) fn follow_2_one_question_at_a_time(before: follow::State, effect: follow::Effect, at: At<'_>) {
    assert!(effect != follow::Effect::Ask || before != follow::State::Asking, "FOLLOW-2: at {at:?}");
}

/// `FOLLOW-3` every deadline lies after the `now` that set it.
#[track_caller]
pub(crate) fn follow_3_deadlines_lie_ahead(now: Instant, wake_at: Option<Instant>, at: At<'_>) {
    assert!(wake_at.is_none_or(|wake_at| wake_at > now), "FOLLOW-3: {wake_at:?} at {at:?}");
}
