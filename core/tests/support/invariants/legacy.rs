//! A session of a client of the older revisions.

use steady_core::legacy::{Effect, Revision};

use super::At;

/// `LEG-1` no request reaches a handler before a handshake or after the end: whether one holds, and what a request got.
#[track_caller]
pub(crate) fn leg_1_no_handler_without_a_handshake(agreed: bool, served: bool, at: At<'_>) {
    assert!(agreed || !served, "LEG-1: served at {at:?}");
}

/// `LEG-2` no change is announced before `notifications/initialized`.
#[track_caller]
pub(crate) fn leg_2_no_change_before_the_client_is_ready(ready: bool, told: Effect, at: At<'_>) {
    assert!(ready || told != Effect::Announce, "LEG-2: at {at:?}");
}

/// `LEG-3` a batch is read under 2025-03-26 alone.
#[track_caller]
pub(crate) fn leg_3_batches_of_one_revision(agreed: Option<Revision>, told: Effect, at: At<'_>) {
    let has = agreed == Some(Revision::V2025_03_26);
    assert_eq!(told == Effect::Unpack, has, "LEG-3: {told:?} under {agreed:?} at {at:?}");
}

/// `LEG-4` a closed session stays closed.
#[track_caller]
pub(crate) fn leg_4_the_end_stays(before: bool, after: bool, at: At<'_>) {
    assert!(!before || after, "LEG-4: at {at:?}");
}
