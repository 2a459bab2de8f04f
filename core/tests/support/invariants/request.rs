//! One request: its end, its clocks, its progress.

use std::fmt::Debug;

use steady_core::request::Terminal;
use steady_core::time::Instant;

use super::At;

/// `REQ-1` exactly one terminal state, for ever. `before` and `after` an event; any value that tells the end will do.
#[track_caller]
pub(crate) fn req_1_one_terminal_state<T: PartialEq + Debug>(before: Option<T>, after: Option<T>, at: At<'_>) {
    assert!(before.is_none() || before == after, "REQ-1: {before:?} became {after:?} at {at:?}");
}

/// `REQ-2` the right to answer is given at most once, and never after a cancellation or a loss. `before` and `after` an
/// event that gave the right, or did not.
#[track_caller]
pub(crate) fn req_2_one_right_to_answer(before: Option<Terminal>, after: Option<Terminal>, given: bool, at: At<'_>) {
    assert!(!given || before.is_none(), "REQ-2: given after {before:?} at {at:?}");
    let silent = matches!(after, None | Some(Terminal::Cancelled | Terminal::Lost));
    assert!(!given || !silent, "REQ-2: given with {after:?} at {at:?}");
}

/// `REQ-3` only accepted progress moves the idle clock. The deadlines `before` and `after` an event that left the request
/// in flight.
#[track_caller]
pub(crate) fn req_3_only_accepted_progress_moves_the_clock(
    accepted: bool,
    (before, after): (Option<Instant>, Option<Instant>),
    at: At<'_>,
) {
    assert!(accepted || before == after, "REQ-3: {before:?} became {after:?} at {at:?}");
}

/// `SRV-1` a server's own deadline answers one error, silence belongs to cancellation alone.
#[track_caller]
pub(crate) fn srv_1_a_deadline_answers_one_error(ended: Terminal, answered: bool, at: At<'_>) {
    let silent = matches!(ended, Terminal::Cancelled | Terminal::Lost);
    assert_eq!(answered, !silent, "SRV-1: {ended:?} at {at:?}");
}

/// `DEADLINE-1` the maximum is written once, at the start.
#[track_caller]
pub(crate) fn deadline_1_the_maximum_is_written_once(before: Option<Instant>, after: Option<Instant>, at: At<'_>) {
    assert_eq!(before, after, "DEADLINE-1: at {at:?}");
}

/// `DEADLINE-2` no activity at or after the maximum changes anything.
#[track_caller]
pub(crate) fn deadline_2_nothing_saves_after_the_maximum<M: PartialEq + Debug>(
    (now, max_at): (Instant, Option<Instant>),
    (before, after): (&M, &M),
    at: At<'_>,
) {
    assert!(max_at.is_none_or(|max| now < max) || before == after, "DEADLINE-2: {before:?} became {after:?} at {at:?}");
}

/// `PROG-1` forwarded values strictly increase.
#[track_caller]
pub(crate) fn prog_1_values_increase(before: Option<f64>, value: f64, at: At<'_>) {
    assert!(before.is_none_or(|before| before < value), "PROG-1: {value} after {before:?} at {at:?}");
}

/// `PROG-2` the last accepted value is forwarded or released before the end, unless the request was cancelled: what was
/// `held` before an event still is, or it was passed on, or a greater value was, or it was discarded.
#[track_caller]
pub(crate) fn prog_2_what_is_held_is_passed_on(held: (bool, bool), passed: bool, discarded: bool, at: At<'_>) {
    let (before, after) = held;
    assert!(!before || after || passed || discarded, "PROG-2: a value is forgotten at {at:?}");
}

/// `PROG-3` nothing passes after the end.
#[track_caller]
pub(crate) fn prog_3_nothing_passes_after_the_end(over: bool, passed: bool, at: At<'_>) {
    assert!(!over || !passed, "PROG-3: at {at:?}");
}
