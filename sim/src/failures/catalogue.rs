//! The list: 14 production failure modes, 15 scenarios from public bug reports.

use std::path::Path;

use super::{FailureError, Fixture, Shown, Source, cancel, ends, keys, late, lost, pressure, reconnect};

type Show = fn(&Path) -> Result<Shown, FailureError>;
type Line = (&'static str, &'static str, &'static [&'static str], Show);

const PRODUCTION: [Line; 14] = [
    (
        "cancel-by-post",
        "over HTTP the client POSTs notifications/cancelled and leaves its stream open",
        &["C1", "H8"],
        cancel::by_post,
    ),
    (
        "answer-after-cancel",
        "the server answers a cancelled request, once with an error and once when the work is done",
        &["C3", "REQ-2"],
        cancel::answer_after,
    ),
    (
        "progress-extends-everything",
        "one deadline, which each progress notification moves",
        &["T2", "T5", "DEADLINE-1"],
        cancel::endless_progress,
    ),
    ("request-id-as-key", "the server recognises a retry by its JSON-RPC id", &["H7", "CALL-2"], keys::request_id),
    (
        "key-check-apart",
        "the key is looked up, the effect run and the key written in three steps",
        &["RETRY-2"],
        keys::check_apart,
    ),
    ("in-memory-ledger", "keys are in a HashMap of the process", &["RETRY-2"], keys::in_memory),
    ("mutable-result", "the stored result itself is handed out, as a shared value", &["RETRY-2"], keys::mutable_result),
    (
        "key-with-other-arguments",
        "a key finds its result whatever the arguments are",
        &["RETRY-2"],
        keys::other_arguments,
    ),
    ("unbounded-progress", "progress waits in a queue without a limit", &["P4", "OUT-1"], pressure::unbounded),
    (
        "final-dropped",
        "a bounded queue drops its oldest message, whatever that is",
        &["OUT-2"],
        pressure::final_dropped,
    ),
    (
        "proxy-buffers-sse",
        "the stream has no X-Accel-Buffering header, and a proxy collects it",
        &["H6", "T2"],
        pressure::buffered_stream,
    ),
    (
        "last-event-id",
        "after a lost stream the client sends Last-Event-ID and waits for a replay",
        &["H7", "L5"],
        reconnect::last_event_id,
    ),
    ("reconnect-herd", "every client asks again after exactly one second", &["L5", "S4", "BACKOFF-1"], reconnect::herd),
    (
        "task-ack-as-final",
        "the acknowledgement of tasks/cancel is taken for the end of the task",
        &["K3", "TASK-2"],
        reconnect::task_ack,
    ),
];

const REPORTS: [Line; 15] = [
    (
        "lost-reply-same-key",
        "the reply is lost after the commit; the server ignores the key of the retry",
        &["H7", "RETRY-2"],
        lost::same_key,
    ),
    (
        "lost-reply-no-key",
        "the reply is lost after the commit; the application's loop calls again without a key",
        &["L5", "RETRY-1", "CALL-4"],
        lost::no_key,
    ),
    (
        "lost-reply-other-arguments",
        "the reply is lost; the retry has the same key and another quantity, and gets the old receipt",
        &["RETRY-2"],
        lost::other_arguments,
    ),
    (
        "lost-reply-reordered-arguments",
        "the reply is lost; the retry's JSON has its members in another order, and texts are compared",
        &["RETRY-2"],
        lost::reordered,
    ),
    (
        "lease-expiry",
        "a claim on a key expires with its lease, and the next call sends the effect again",
        &["S4", "RETRY-1"],
        lost::lease_expiry,
    ),
    (
        "retry-below-the-guard",
        "a gateway checks the key once; the HTTP layer below it sends the POST again",
        &["H7", "CALL-4"],
        lost::below_the_guard,
    ),
    (
        "hint-as-policy",
        "a tool says idempotentHint, and the client retries because of it",
        &["RETRY-1"],
        lost::hint_as_policy,
    ),
    (
        "cancel-before-start",
        "a cancellation of a request that still waits in the server's queue is ignored as unknown",
        &["C3", "C4"],
        late::before_start,
    ),
    (
        "cancel-while-running",
        "the handler has no way to learn that it is cancelled",
        &["C2", "C3"],
        late::while_running,
    ),
    (
        "cancel-after-commit",
        "a cancelled call is taken for one that did not happen, and its key freed",
        &["C4", "RETRY-2"],
        late::after_commit,
    ),
    (
        "cancel-after-response",
        "an answer to a cancelled id is taken for a protocol error, and the connection closed",
        &["C4", "C6"],
        late::after_response,
    ),
    ("neighbour-survives", "to cancel one call the host kills the server", &["C6"], late::neighbour),
    ("era-difference", "one code path for both eras: a hang-up always cancels", &["C1", "M9"], ends::era),
    (
        "child-killed",
        "the child dies with five calls in flight, and nobody settles them",
        &["S4", "CALL-1"],
        ends::child_killed,
    ),
    (
        "error-storm",
        "each side answers a line that it cannot read, the other's answer too",
        &["S2", "M6"],
        ends::error_storm,
    ),
];

/// All fixtures, in their order.
#[must_use]
pub fn all() -> Vec<Fixture> {
    let fixture = |source| move |(name, wrong, rules, show): Line| Fixture { name, source, wrong, rules, show };
    let production = PRODUCTION.into_iter().map(fixture(Source::Production));
    production.chain(REPORTS.into_iter().map(fixture(Source::Report))).collect()
}
