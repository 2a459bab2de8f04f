//! Sealed state that comes back from the peer.

use std::fmt::Debug;

use steady_core::mrtr::StateError;

use super::At;

/// `SEAL-1` a state opens for its caller and its request alone: what it opened to for a caller and a request of which one is
/// not its own.
#[track_caller]
pub(crate) fn seal_1_it_opens_for_its_own_alone<T: Debug>(opened: &Result<T, StateError>, at: At<'_>) {
    let refused = matches!(opened, Err(StateError::OtherCaller | StateError::OtherRequest));
    assert!(refused, "SEAL-1: {opened:?} at {at:?}");
}

/// `SEAL-2` one spelling: no changed text opens. What a changed text opened to.
#[track_caller]
pub(crate) fn seal_2_no_changed_text_opens<T: Debug>(opened: &Result<T, StateError>, at: At<'_>) {
    let refused = matches!(opened, Err(StateError::Malformed | StateError::Forged));
    assert!(refused, "SEAL-2: {opened:?} at {at:?}");
}

/// `SEAL-3` a state that fails a check is not spent. How many were spent by an opening.
#[track_caller]
pub(crate) fn seal_3_a_failure_spends_nothing<T: Debug>(opened: &Result<T, StateError>, spent: usize, at: At<'_>) {
    assert_eq!(spent, usize::from(opened.is_ok()), "SEAL-3: {opened:?} at {at:?}");
}
