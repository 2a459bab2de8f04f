//! Whether and when something is sent again.

use std::fmt::Debug;
use std::time::Duration;

use steady_core::retry::{BudgetEffect, Safety, SendPhase, Verdict};

use super::At;

/// `RETRY-1` an unsafe call that may have been sent is never retried: it is reconciled.
#[track_caller]
pub(crate) fn retry_1_unsafe_is_reconciled(safety: Safety, phase: SendPhase, verdict: Verdict, at: At<'_>) {
    let binds = safety == Safety::Unsafe && phase == SendPhase::MaybeSent;
    assert!(!binds || verdict == Verdict::ReconcileFirst, "RETRY-1: {verdict:?} at {at:?}");
}

/// `RETRY-2` a conditional call is repeated only with the same key and the same stored argument bytes: the key and the
/// arguments that were sent `first`, and those sent `again`.
#[track_caller]
pub(crate) fn retry_2_conditional_is_repeated_to_the_byte<T: PartialEq + Debug>(
    (safety, verdict): (Safety, Verdict),
    (first, again): (&T, &T),
    at: At<'_>,
) {
    let binds = safety == Safety::Conditional;
    assert!(!binds || verdict == Verdict::RetrySameKey, "RETRY-2: {verdict:?} at {at:?}");
    assert!(!binds || first == again, "RETRY-2: {first:?} became {again:?} at {at:?}");
}

/// `RETRY-3` what was never sent may be retried whatever the contract says.
#[track_caller]
pub(crate) fn retry_3_never_sent_may_be_retried(phase: SendPhase, verdict: Verdict, at: At<'_>) {
    let binds = phase == SendPhase::NeverSent;
    assert!(!binds || verdict != Verdict::ReconcileFirst, "RETRY-3: {verdict:?} at {at:?}");
}

/// `RETRY-4` the budget's level stays within `0..=capacity`, and a denied retry costs nothing. The whole retries that were
/// `available` before and after an event without any time between.
#[track_caller]
pub(crate) fn retry_4_the_level_is_bounded(available: (u64, u64), capacity: u32, effect: BudgetEffect, at: At<'_>) {
    let (before, after) = available;
    assert!(after <= u64::from(capacity), "RETRY-4: {after} of {capacity} at {at:?}");
    match effect {
        BudgetEffect::Denied => assert_eq!((before, after), (0, 0), "RETRY-4: denied at {at:?}"),
        BudgetEffect::Granted => assert_eq!(before.checked_sub(1), Some(after), "RETRY-4: granted at {at:?}"),
        BudgetEffect::Earned => assert!(before <= after, "RETRY-4: a call costs {before} to {after} at {at:?}"),
    }
}

/// `BACKOFF-1` a pause never exceeds the ceiling of its attempt, and a ceiling never exceeds the cap.
#[track_caller]
pub(crate) fn backoff_1_a_pause_is_within_its_ceiling(pause: Duration, ceiling: Duration, cap: Duration, at: At<'_>) {
    assert!(pause <= ceiling, "BACKOFF-1: {pause:?} over {ceiling:?} at {at:?}");
    assert!(ceiling <= cap, "BACKOFF-1: {ceiling:?} over {cap:?} at {at:?}");
}

/// `BACKOFF-2` a ceiling never shrinks as attempts grow, and a huge attempt number saturates at the cap: the ceilings of an
/// attempt and of a later one, with the cap if that is a huge one.
#[track_caller]
pub(crate) fn backoff_2_ceilings_grow_to_the_cap(ceilings: (Duration, Duration), cap: Option<Duration>, at: At<'_>) {
    let (earlier, later) = ceilings;
    assert!(earlier <= later, "BACKOFF-2: {later:?} after {earlier:?} at {at:?}");
    assert!(cap.is_none_or(|cap| cap == later), "BACKOFF-2: {later:?}, not the cap, at {at:?}");
}

/// `BACKOFF-3` the seeded pause is a pure function of (client, stream, attempt): asking twice gives the same answer.
#[track_caller]
pub(crate) fn backoff_3_asking_twice_gives_the_same(first: Duration, second: Duration, at: At<'_>) {
    assert_eq!(first, second, "BACKOFF-3: at {at:?}");
}
