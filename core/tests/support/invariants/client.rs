//! A client's calls and their attempts.

use steady_core::id::WireId;
use steady_core::retry::Safety;
use steady_core::time::Instant;

use super::At;

/// `CALL-1` one outcome a call: `outcomes` that it has had when one more comes, or another attempt of it.
#[track_caller]
pub(crate) fn call_1_one_outcome(outcomes: usize, at: At<'_>) {
    assert_eq!(outcomes, 0, "CALL-1: over already at {at:?}");
}

/// `CALL-2` every attempt has a wire id of its own: greater than all that were used.
#[track_caller]
pub(crate) fn call_2_a_fresh_wire_id(used: impl IntoIterator<Item = WireId>, fresh: WireId, at: At<'_>) {
    let newest = used.into_iter().max();
    assert!(newest.is_none_or(|newest| newest < fresh), "CALL-2: {fresh} after {newest:?} at {at:?}");
}

/// `CALL-3` one deadline over all attempts and pauses: once the clock was handled, nothing is sent at the maximum or later.
#[track_caller]
pub(crate) fn call_3_one_deadline_over_all_attempts(max_at: Instant, sent_at: Instant, at: At<'_>) {
    assert!(sent_at < max_at, "CALL-3: sent at {sent_at}, over at {max_at}: {at:?}");
}

/// `CALL-4` an unsafe call that may have been sent is never sent again.
#[track_caller]
pub(crate) fn call_4_unsafe_is_never_sent_again(safety: Safety, maybe_sent: bool, at: At<'_>) {
    assert!(safety != Safety::Unsafe || !maybe_sent, "CALL-4: sent again at {at:?}");
}

/// `CALL-5` a cancel signal goes out for a call that is given up while an attempt of it may run, once, and for nothing else.
#[track_caller]
pub(crate) fn call_5_one_signal_for_a_running_attempt(given_up: bool, runs: bool, signals: usize, at: At<'_>) {
    assert_eq!(signals, usize::from(given_up && runs), "CALL-5: given up {given_up}, runs {runs}, at {at:?}");
}
