//! How states and identifiers read in a log.

use steady_core::id::{Attempt, ProgressToken};
use steady_core::retry::{Safety, SendPhase, Verdict};
use steady_core::task::Status;
use steady_core::time::Instant;

fn words<T: ToString, const N: usize>(values: [T; N]) -> [String; N] {
    values.map(|value| value.to_string())
}

#[test]
fn what_a_log_shows_is_words() {
    assert_eq!(words([Safety::Safe, Safety::Conditional, Safety::Unsafe]), ["safe", "conditional", "unsafe"]);
    assert_eq!(words([SendPhase::NeverSent, SendPhase::MaybeSent]), ["never sent", "maybe sent"]);
    let verdicts = words([Verdict::Retry, Verdict::RetrySameKey, Verdict::ReconcileFirst]);
    assert_eq!(verdicts, ["retry", "retry with the same key", "reconcile first"]);
    assert_eq!(words([Status::Working, Status::InputRequired]), ["working", "input_required"]);
    assert_eq!(words([Attempt::FIRST, Attempt::FIRST.next()]), ["attempt 1", "attempt 2"]);
    assert_eq!(words([ProgressToken(7.into()), ProgressToken("7".into())]), ["7", "\"7\""], "the two stay apart");
}

#[test]
fn an_instant_reads_in_milliseconds() {
    let at = [0, 999, 1_000, 1_234_567_891].map(Instant::from_nanos);
    assert_eq!(words(at), ["0.000ms", "0.000ms", "0.001ms", "1234.567ms"]);
}
