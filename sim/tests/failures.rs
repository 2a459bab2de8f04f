//! The failure catalogue: the wrong code shows its symptom, ours does not, and nothing is missing.

use std::collections::BTreeSet;

use steady_sim::failures::{Outcome, Source, all};

fn run(name: &str) -> Outcome {
    let fixture = all().into_iter().find(|fixture| fixture.name == name).expect("a fixture of this name");
    let dir = tempfile::tempdir().expect("a directory");
    fixture.run(dir.path()).expect("it runs")
}

macro_rules! fixtures {
    ($source:expr, $list:ident: $($test:ident = $name:literal),+ $(,)?) => {
        const $list: &[&str] = &[$($name),+];
        $(#[test]
        fn $test() {
            let outcome = run($name);
            assert_eq!(outcome.source, $source);
            assert!(outcome.wrong_fails, "the wrong code shows no symptom: {}", outcome.symptom);
            assert!(!outcome.ours_fails, "ours shows it: {}", outcome.ours);
            assert_eq!(run($name).ours, outcome.ours, "the same each time");
        })+
    };
}

fixtures! { Source::Production, PRODUCTION:
    cancel_by_post = "cancel-by-post",
    answer_after_cancel = "answer-after-cancel",
    progress_extends_everything = "progress-extends-everything",
    request_id_as_key = "request-id-as-key",
    key_check_apart = "key-check-apart",
    in_memory_ledger = "in-memory-ledger",
    mutable_result = "mutable-result",
    key_with_other_arguments = "key-with-other-arguments",
    unbounded_progress = "unbounded-progress",
    final_dropped = "final-dropped",
    proxy_buffers_sse = "proxy-buffers-sse",
    last_event_id = "last-event-id",
    reconnect_herd = "reconnect-herd",
    task_ack_as_final = "task-ack-as-final",
}

fixtures! { Source::Report, REPORTS:
    lost_reply_same_key = "lost-reply-same-key",
    lost_reply_no_key = "lost-reply-no-key",
    lost_reply_other_arguments = "lost-reply-other-arguments",
    lost_reply_reordered_arguments = "lost-reply-reordered-arguments",
    lease_expiry = "lease-expiry",
    retry_below_the_guard = "retry-below-the-guard",
    hint_as_policy = "hint-as-policy",
    cancel_before_start = "cancel-before-start",
    cancel_while_running = "cancel-while-running",
    cancel_after_commit = "cancel-after-commit",
    cancel_after_response = "cancel-after-response",
    neighbour_survives = "neighbour-survives",
    era_difference = "era-difference",
    child_killed = "child-killed",
    error_storm = "error-storm",
}

#[test]
fn the_catalogue_is_complete() {
    assert_eq!((PRODUCTION.len(), REPORTS.len()), (14, 15));
    let names: Vec<&str> = all().iter().map(|fixture| fixture.name).collect();
    assert_eq!(names, [PRODUCTION, REPORTS].concat(), "each has its test");
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 29);
    assert!(all().iter().all(|fixture| !fixture.rules.is_empty() && !fixture.wrong.is_empty()));
}

#[test]
fn the_in_memory_ledger_fails_after_a_restart_and_with_a_second_worker() {
    let outcome = run("in-memory-ledger");
    assert_eq!(outcome.symptom, "sales for one key: 2 after a restart, 2 with a second worker");
    assert_eq!(outcome.ours, "sales for one key: 1 after a restart, 1 with a second worker");
}
