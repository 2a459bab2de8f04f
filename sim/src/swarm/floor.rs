//! What has to happen in a run of many seeds, for it to mean something: every way in which things can end.

use super::journal::Coverage;
use super::script::Event;

/// From so many seeds on.
pub const FROM: u64 = 200;

/// What has to happen at least once.
pub const FLOOR: &[&str] = &[
    "answered",
    "answered: error",
    "cancellation: accepted",
    "cancellation: too late",
    "cancelled",
    "client: attempt after the first",
    "client: late answer ignored",
    "client: progress dropped, unread",
    "client: progress read",
    "client: sent again after a loss",
    "client: sent again, never sent before",
    "disconnect: accepted",
    "dropped",
    "gone with its client",
    "handler: answered",
    "handler: dropped",
    "idle timeout",
    "ledger: collected",
    "ledger: died in the transaction",
    "ledger: expired",
    "ledger: fresh",
    "ledger: key too old",
    "ledger: mismatch",
    "ledger: refused by the business",
    "ledger: replayed",
    "link: closed by the server",
    "listen: acknowledged",
    "listen: cancellation accepted",
    "listen: ended by the server",
    "listen: gap",
    "listen: notice",
    "link: connection refused",
    "link: failed",
    "link: no answer to server/discover",
    "link: stalled",
    "maximum timeout",
    "never sent",
    "progress: coalesced",
    "progress: dropped",
    "progress: sent",
    "proxy: POST sent twice",
    "refused: full",
    "server: answered at its shutdown",
    "server: cancelled",
    "server: client lost",
    "server: completed",
    "server: idle timeout",
    "server: maximum timeout",
    "server: refused, closing",
    "server: refused, full",
    "signal: notifications/cancelled",
    "signal: response stream closed",
    "task: cancellation asked for",
    "task: claimed",
    "task: claimed after a worker was lost",
    "task: created",
    "task: ended cancelled",
    "task: ended completed",
    "task: found by its key",
    "task: lease refused, another has it",
    "task: step stored",
    "told of a task: cancelled",
    "told of a task: completed",
    "unknown",
    "verdict: conditional",
    "verdict: safe",
    "verdict: unsafe, never sent",
    "verdict: unsafe, reconcile first",
];

/// What did not happen, of what had to in so many seeds.
pub(super) fn missing(coverage: &Coverage, seeds: u64) -> Vec<&'static str> {
    if seeds < FROM {
        return Vec::new();
    }
    FLOOR.iter().filter(|name| !coverage.contains_key(**name)).copied().collect()
}

/// The kind of an event, for the coverage.
pub(super) const fn name(event: &Event) -> &'static str {
    match event {
        Event::Call { .. } => "event: call",
        Event::Cancel { .. } => "event: cancel",
        Event::CancelTask { .. } => "event: cancel-task",
        Event::Drop { .. } => "event: drop",
        Event::Listen { .. } => "event: listen",
        Event::Unlisten { .. } => "event: unlisten",
        Event::Change => "event: change",
        Event::Wait { .. } => "event: wait",
        Event::Step { .. } => "event: step",
        Event::Delay { .. } => "event: delay",
        Event::Hold { .. } => "event: hold",
        Event::Release { .. } => "event: release",
        Event::Cut { .. } => "event: cut",
        Event::StopReading { .. } => "event: stop-reading",
        Event::Read { .. } => "event: read",
        Event::Freeze(_) => "event: freeze",
        Event::Thaw(_) => "event: thaw",
        Event::Crash(_) => "event: crash",
        Event::DieInCommit { .. } => "event: die-in-commit",
        Event::Drain(_) => "event: drain",
        Event::Restart(_) => "event: restart",
        Event::Collect(_) => "event: collect",
        Event::CrashClient { .. } => "event: crash-client",
        Event::RestartClient { .. } => "event: restart-client",
        Event::Close { .. } => "event: close",
        Event::Clock { .. } => "event: clock",
        Event::Double { .. } => "event: double",
        Event::Disk { .. } => "event: disk",
    }
}
