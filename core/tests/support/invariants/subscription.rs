//! A client's subscription and its recovery.

use std::fmt::Debug;
use std::time::Duration;

use steady_core::id::WireId;
use steady_core::subscription::State;
use steady_core::time::Instant;

use super::At;

/// `SUB-1` a message is delivered only on an acknowledged stream.
#[track_caller]
pub(crate) fn sub_1_only_an_acknowledged_stream_delivers(state: State, at: At<'_>) {
    assert!(matches!(state, State::Open { .. }), "SUB-1: delivered in {state:?} at {at:?}");
}

/// `SUB-2` every recovery is a new listen request with a new wire id, the same filter and no Last-Event-ID.
#[track_caller]
pub(crate) fn sub_2_a_recovery_is_a_new_request(
    wires: (WireId, WireId),
    filters: (&str, &str),
    last_event_id: bool,
    at: At<'_>,
) {
    assert!(wires.0 != wires.1, "SUB-2: {} again at {at:?}", wires.1);
    assert_eq!(filters.0, filters.1, "SUB-2: the filter at {at:?}");
    assert!(!last_event_id, "SUB-2: Last-Event-ID at {at:?}");
}

/// `SUB-3` once a stream is acknowledged, the first one too, everything the filter covers is read afresh.
#[track_caller]
pub(crate) fn sub_3_a_stream_that_opens_is_read_afresh(opened: bool, refetch: bool, at: At<'_>) {
    assert_eq!(opened, refetch, "SUB-3: at {at:?}");
}

/// `SUB-4` Ended is never left, and a graceful end starts no recovery unless the caller asked for it.
#[track_caller]
pub(crate) fn sub_4_an_end_is_an_end(before: State, after: State, graceful: bool, at: At<'_>) {
    let ended = matches!(before, State::Ended(_));
    assert!(!ended || before == after, "SUB-4: {before:?} became {after:?} at {at:?}");
    assert!(!graceful || matches!(after, State::Ended(_)), "SUB-4: a graceful end became {after:?} at {at:?}");
}

/// `SUB-5` every deadline lies after the `now` that set it, so that after the clock was handled none at or before remains.
#[track_caller]
pub(crate) fn sub_5_no_due_deadline_remains(now: Instant, wake_at: Option<Instant>, at: At<'_>) {
    assert!(wake_at.is_none_or(|wake_at| wake_at > now), "SUB-5: {wake_at:?} at {at:?}");
}

/// `SUB-6` a pause never exceeds the backoff's ceiling for the failures so far, or one nanosecond if that is less.
#[track_caller]
pub(crate) fn sub_6_a_pause_is_within_its_ceiling(pause: Duration, ceiling: Duration, at: At<'_>) {
    assert!(pause <= ceiling.max(Duration::from_nanos(1)), "SUB-6: {pause:?} over {ceiling:?} at {at:?}");
}

/// `SUB-7` after a loss one listen request of a client goes out at a time, until the server has answered one.
#[track_caller]
pub(crate) fn sub_7_one_question_at_a_time(in_doubt: bool, unanswered: usize, at: At<'_>) {
    assert!(!in_doubt || unanswered <= 1, "SUB-7: {unanswered} listen requests are out at {at:?}");
}

/// `SUB-8` an open stream is given up for its silence at the end of its liveness and not before, and never without one.
#[track_caller]
pub(crate) fn sub_8_only_silence_ends_an_open_stream(
    silent: Duration,
    liveness: Option<Duration>,
    ended: bool,
    at: At<'_>,
) {
    assert_eq!(ended, liveness.is_some_and(|liveness| silent >= liveness), "SUB-8: {silent:?} at {at:?}");
}
