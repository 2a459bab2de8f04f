//! What was counted, readable from anywhere while it is served.
//!
//! A connection counts in plain numbers of its own and adds what is new to the shared ones once a turn, under one lock:
//! a message costs no lock and no atomic for it. Any number of connections and exchanges can add to the same [`Stats`].

use super::sync::{Arc, Mutex};
use crate::coordinator;

/// What was counted. Numbers only grow; [`Stats::snapshot`] adds up over all that share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerCounters {
    /// What the coordinator counted: admission, terminal states, cancellations.
    pub requests: coordinator::Counters,
    /// Requests answered with an error because the server's time to finish them was over; they count as completed, too.
    pub shut_down: u64,
    /// Frames and messages that could not be read.
    pub bad_messages: u64,
    /// Cancellations without a readable `requestId`.
    pub cancelled_malformed: u64,
    /// Notifications other than cancellations, and answers: a server asks for neither (rule M1).
    pub ignored: u64,
    /// Progress values that a newer one of the same request replaced, before the rate limit or in the buffer.
    pub progress_coalesced: u64,
    /// Progress values and notices that left the full buffer for newer ones.
    pub progress_dropped: u64,
    /// Progress values that did not increase, or came after the end of their request (rules P2 and P3).
    pub progress_refused: u64,
    /// Messages read, and the bytes of their text.
    pub messages_in: u64,
    /// See [`messages_in`](Self::messages_in).
    pub bytes_in: u64,
    /// Messages that left the buffer, and the bytes that the link took.
    pub messages_out: u64,
    /// See [`messages_out`](Self::messages_out).
    pub bytes_out: u64,
    /// Most messages that waited in the buffer at once.
    pub queue_high: u64,
    /// Most text bytes that waited in the buffer at once.
    pub queue_high_bytes: u64,
}

/// Each counter that adds up, with its metric and the one label of that. The two marks are no sums.
macro_rules! each_sum {
    ($each:ident) => {
        $each!("mcp_steady_requests_started", "kind", "request", requests.started);
        $each!("mcp_steady_requests_ended", "state", "completed", requests.completed);
        $each!("mcp_steady_requests_ended", "state", "cancelled", requests.cancelled);
        $each!("mcp_steady_requests_ended", "state", "lost", requests.lost);
        $each!("mcp_steady_requests_ended", "state", "idle_timeout", requests.idle_timeouts);
        $each!("mcp_steady_requests_ended", "state", "max_timeout", requests.max_timeouts);
        $each!("mcp_steady_requests_shut_down", "kind", "request", shut_down);
        $each!("mcp_steady_requests_refused", "reason", "duplicate", requests.duplicates);
        $each!("mcp_steady_requests_refused", "reason", "full", requests.refused);
        $each!("mcp_steady_requests_refused", "reason", "closing", requests.refused_closing);
        $each!("mcp_steady_cancellations_ignored", "reason", "late", requests.cancelled_late);
        $each!("mcp_steady_cancellations_ignored", "reason", "unknown", requests.cancelled_unknown);
        $each!("mcp_steady_cancellations_ignored", "reason", "malformed", cancelled_malformed);
        $each!("mcp_steady_progress", "fate", "coalesced", progress_coalesced);
        $each!("mcp_steady_progress", "fate", "dropped", progress_dropped);
        $each!("mcp_steady_progress", "fate", "refused", progress_refused);
        $each!("mcp_steady_messages", "direction", "in", messages_in);
        $each!("mcp_steady_messages", "direction", "out", messages_out);
        $each!("mcp_steady_bytes", "direction", "in", bytes_in);
        $each!("mcp_steady_bytes", "direction", "out", bytes_out);
        $each!("mcp_steady_messages_bad", "direction", "in", bad_messages);
        $each!("mcp_steady_messages_ignored", "direction", "in", ignored);
    };
}

impl ServerCounters {
    /// Requests in flight: running, or answered and not yet sent.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        let ended = self.requests.completed + self.requests.cancelled + self.requests.lost + self.requests.timed_out();
        self.requests.started.saturating_sub(ended)
    }

    /// Adds what `now` counted since it was `before`.
    fn add(&mut self, now: &Self, before: &mut Self) {
        macro_rules! add {
            ($metric:literal, $label:literal, $value:literal, $($field:ident).+) => {
                let more = now.$($field).+ - before.$($field).+;
                self.$($field).+ += more;
                emit_sum($metric, $label, $value, more);
            };
        }
        each_sum!(add);
        *before = *now;
        self.queue_high = self.queue_high.max(now.queue_high);
        self.queue_high_bytes = self.queue_high_bytes.max(now.queue_high_bytes);
        emit_marks(self);
    }
}

/// Adds to a counter of the `metrics` facade.
#[cfg(feature = "metrics")]
pub(super) fn emit_sum(metric: &'static str, label: &'static str, value: &'static str, more: u64) {
    if more > 0 {
        metrics::counter!(metric, label => value).increment(more);
    }
}

#[cfg(not(feature = "metrics"))]
pub(super) const fn emit_sum(_: &str, _: &str, _: &str, _: u64) {}

/// Sets a gauge of the `metrics` facade.
#[cfg(feature = "metrics")]
pub(super) fn emit_mark(metric: &'static str, value: u64) {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    metrics::gauge!(metric).set(value as f64);
}

#[cfg(not(feature = "metrics"))]
pub(super) const fn emit_mark(_: &str, _: u64) {}

fn emit_marks(counters: &ServerCounters) {
    emit_mark("mcp_steady_requests_in_flight", counters.in_flight());
    emit_mark("mcp_steady_queue_high_messages", counters.queue_high);
    emit_mark("mcp_steady_queue_high_bytes", counters.queue_high_bytes);
}

/// A handle on what is counted: clones share it. With the feature `metrics` the recorder is told under the lock of this
/// handle, and must not look at it. Put one into [`ServerConfig::stats`](super::ServerConfig::stats) and keep
/// a clone.
#[derive(Clone, Debug, Default)]
pub struct Stats(Arc<Mutex<ServerCounters>>);

impl Stats {
    /// Nothing counted yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was counted up to the last turn of each connection. One whose client does not read takes a turn each second.
    #[must_use]
    pub fn snapshot(&self) -> ServerCounters {
        *self.0.lock()
    }

    /// Whether somebody can read it: a turn that nobody looks at need not publish.
    pub(super) fn is_read(&self) -> bool {
        cfg!(feature = "metrics") || Arc::strong_count(&self.0) > 1
    }

    /// Adds what is new in `now`; `published` is what was added before.
    pub(super) fn publish(&self, now: &ServerCounters, published: &mut ServerCounters) {
        self.0.lock().add(now, published);
    }
}

#[cfg(test)]
mod tests {
    use super::{ServerCounters, Stats};
    use alloc::collections::BTreeSet;

    #[test]
    fn what_is_new_adds_up_over_connections() {
        let stats = Stats::new();
        let mut connections = [ServerCounters::default(); 2];
        for round in 1..4 {
            for published in &mut connections {
                let mut now = *published;
                macro_rules! count {
                    ($metric:literal, $label:literal, $value:literal, $($field:ident).+) => {
                        now.$($field).+ += round;
                    };
                }
                each_sum!(count);
                now.queue_high = now.queue_high.max(round);
                stats.publish(&now, published);
            }
        }
        let all = stats.snapshot();
        macro_rules! check {
            ($metric:literal, $label:literal, $value:literal, $($field:ident).+) => {
                assert_eq!(all.$($field).+, 12, concat!($metric, $value));
            };
        }
        each_sum!(check);
        assert_eq!(all.queue_high, 3, "a mark is no sum");
    }

    #[test]
    fn each_counter_is_told_apart_and_none_is_forgotten() {
        let mut names = BTreeSet::new();
        macro_rules! name {
            ($metric:literal, $label:literal, $value:literal, $($field:ident).+) => {
                assert!(names.insert(($metric, $value)), concat!($metric, $label, $value));
            };
        }
        each_sum!(name);
        assert_eq!(size_of::<ServerCounters>(), (names.len() + 2) * size_of::<u64>(), "two marks, else sums");
    }
}
