//! The outbound buffer: its bounds, its finals, its order, its losses.

use std::fmt::Debug;

use steady_core::outbound::Lost;

use super::At;

/// `OUT-1` no more than the capacity waits, in messages and in bytes.
#[track_caller]
pub(crate) fn out_1_within_the_capacity(waiting: usize, capacity: usize, at: At<'_>) {
    assert!(waiting <= capacity, "OUT-1: {waiting} of {capacity} at {at:?}");
}

/// `OUT-2` a final that was accepted is popped, exactly once. How often each was, of one request or of all.
#[track_caller]
pub(crate) fn out_2_a_final_is_popped_once<T: PartialEq + Debug>(accepted: &T, popped: &T, at: At<'_>) {
    assert_eq!(accepted, popped, "OUT-2: accepted and popped at {at:?}");
}

/// `OUT-3` nothing of a request follows its final, nothing of it is popped after a purge: `ended` when something left.
#[track_caller]
pub(crate) fn out_3_nothing_follows_the_end(ended: bool, at: At<'_>) {
    assert!(!ended, "OUT-3: {at:?}");
}

/// `OUT-4` progress of a token leaves in the order it came.
#[track_caller]
pub(crate) fn out_4_progress_keeps_its_order(before: Option<f64>, value: f64, at: At<'_>) {
    assert!(before.is_none_or(|before| before < value), "OUT-4: {value} after {before:?} at {at:?}");
}

/// `OUT-5` a loss is reported until it is taken: what was lost, what was `taken`, and what a second look gives.
#[track_caller]
pub(crate) fn out_5_a_loss_is_reported_once(
    lost: Option<Lost>,
    (taken, again): (Option<Lost>, Option<Lost>),
    at: At<'_>,
) {
    assert_eq!(lost, taken, "OUT-5: lost and taken at {at:?}");
    assert_ne!(taken, Some(Lost::default()), "OUT-5: a report of nothing at {at:?}");
    assert_eq!(again, None, "OUT-5: taken twice at {at:?}");
}
