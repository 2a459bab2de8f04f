//! What one listen stream of a server owes.

use std::fmt::Debug;

use super::At;

/// `HUB-1` the acknowledgement comes first, and once: what was taken, from a stream that was `acknowledged` before or not.
#[track_caller]
pub(crate) fn hub_1_the_acknowledgement_comes_first(
    acknowledged: bool,
    acknowledges: bool,
    notifies: bool,
    at: At<'_>,
) {
    assert!(!(acknowledged && acknowledges), "HUB-1: a second acknowledgement at {at:?}");
    assert!(acknowledged || !notifies, "HUB-1: a notification before the acknowledgement at {at:?}");
}

/// `HUB-2` only what is watched is notified.
#[track_caller]
pub(crate) fn hub_2_only_what_is_watched(watched: bool, notified: bool, at: At<'_>) {
    assert!(watched || !notified, "HUB-2: at {at:?}");
}

/// `HUB-3` nothing that was published is lost: what is owed next, and what was taken.
#[track_caller]
pub(crate) fn hub_3_nothing_is_lost<T: Debug + PartialEq>(owed: Option<T>, taken: Option<T>, at: At<'_>) {
    assert_eq!(taken, owed, "HUB-3: at {at:?}");
}

/// `HUB-4` no more marks than things watched, no more bytes than allowed.
#[track_caller]
pub(crate) fn hub_4_what_waits_is_bounded((marks, watched): (usize, usize), (bytes, most): (usize, usize), at: At<'_>) {
    assert!(marks <= watched, "HUB-4: {marks} marks for {watched} at {at:?}");
    assert!(bytes <= most, "HUB-4: {bytes} bytes of {most} at {at:?}");
}

/// `HUB-5` it finishes once, and nothing comes after that: whether it had `ended` before it `said` something.
#[track_caller]
pub(crate) fn hub_5_an_end_is_an_end(ended: bool, said: bool, at: At<'_>) {
    assert!(!ended || !said, "HUB-5: at {at:?}");
}

/// `HUB-6` whoever waits is woken once by what is `new`.
#[track_caller]
pub(crate) fn hub_6_a_waiter_is_woken_once(waits: bool, new: bool, wake: bool, at: At<'_>) {
    assert_eq!(wake, waits && new, "HUB-6: at {at:?}");
}
