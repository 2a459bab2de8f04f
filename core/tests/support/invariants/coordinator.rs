//! All requests of one connection.

use steady_core::time::Instant;

use super::At;

/// `COORD-1` no more than the cap is in flight.
#[track_caller]
pub(crate) fn coord_1_no_more_than_the_cap(in_flight: usize, cap: usize, at: At<'_>) {
    assert!(in_flight <= cap, "COORD-1: {in_flight} of {cap} at {at:?}");
}

/// `COORD-2` an id names at most one request: whether it was `known` when a request of this id was admitted, or not.
#[track_caller]
pub(crate) fn coord_2_an_id_names_one_request(known: bool, admitted: bool, at: At<'_>) {
    assert!(!known || !admitted, "COORD-2: at {at:?}");
}

/// `COORD-3` a cancelled request frees everything at once: nothing of it is `left`.
#[track_caller]
pub(crate) fn coord_3_a_cancelled_request_is_gone(cancelled: bool, left: bool, at: At<'_>) {
    assert!(!cancelled || !left, "COORD-3: at {at:?}");
}

/// `COORD-4` after the coordinator says that it is idle, no deadline at or before `now` remains.
#[track_caller]
pub(crate) fn coord_4_no_due_deadline_remains(now: Instant, wake_at: Option<Instant>, at: At<'_>) {
    assert!(wake_at.is_none_or(|wake_at| wake_at > now), "COORD-4: {wake_at:?} is due at {now}: {at:?}");
}

/// `COORD-5` only an open listen is ended by the server.
#[track_caller]
pub(crate) fn coord_5_only_an_open_listen_is_ended(open_listen: bool, ended: bool, at: At<'_>) {
    assert_eq!(open_listen, ended, "COORD-5: at {at:?}");
}
