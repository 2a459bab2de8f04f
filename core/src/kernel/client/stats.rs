//! What a client counted.

use alloc::boxed::Box;

use super::shared::State;
use crate::client::Counters;
use crate::kernel::stats::{emit_mark, emit_sum};

/// A snapshot of a client's counters. Numbers only grow, but for the two that say how it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// What the machine counted: late answers, unknown ids, refused progress, stray cancellations, retries.
    pub calls: Counters,
    /// Calls in flight now.
    pub in_flight: usize,
    /// Which link is or was the last: 1 is the first.
    pub generation: u64,
    /// Calls that were started.
    pub started: u64,
    /// Calls that were refused before anything was sent: cap, size, parameters, closed client.
    pub refused: u64,
    /// Calls that ended with a result.
    pub answered: u64,
    /// Calls that the server answered with an error.
    pub peer_errors: u64,
    /// Calls that were refused after they were handed to the link, by no message of the protocol.
    pub refused_elsewhere: u64,
    /// Calls whose answer was too long to read.
    pub too_long: u64,
    /// Calls that were cancelled here. No failures.
    pub cancelled: u64,
    /// Calls that ran into their idle limit.
    pub idle_timeouts: u64,
    /// Calls that ran into their maximum.
    pub max_timeouts: u64,
    /// Calls that ended without having been sent.
    pub never_sent: u64,
    /// Calls whose outcome is unknown.
    pub unknown: u64,
    /// Progress values that made room for newer ones, unread.
    pub progress_dropped: u64,
    /// Messages that the link took whole, the question to each new server among them, and bytes that it took.
    pub sent: Traffic,
    /// Messages and bytes that were read, without framing.
    pub received: Traffic,
    /// Lines that were no message of a server, the server's requests among them (rule M1).
    pub bad_messages: u64,
    /// The start of the last of them.
    pub last_bad: Option<Box<str>>,
    /// Links after the first, as of a server that was started again.
    pub restarts: u64,
    /// Most messages that waited for the link at once: requests, cancellations, listens.
    pub queue_high: u64,
}

/// Each counter that adds up, with its metric and the one label of that.
macro_rules! each_sum {
    ($each:ident) => {
        $each!("mcp_steady_client_calls_started", "kind", "call", started);
        $each!("mcp_steady_client_calls_refused", "kind", "call", refused);
        $each!("mcp_steady_client_calls_ended", "state", "answered", answered);
        $each!("mcp_steady_client_calls_ended", "state", "peer_error", peer_errors);
        $each!("mcp_steady_client_calls_ended", "state", "refused_elsewhere", refused_elsewhere);
        $each!("mcp_steady_client_calls_ended", "state", "too_long", too_long);
        $each!("mcp_steady_client_calls_ended", "state", "cancelled", cancelled);
        $each!("mcp_steady_client_calls_ended", "state", "idle_timeout", idle_timeouts);
        $each!("mcp_steady_client_calls_ended", "state", "max_timeout", max_timeouts);
        $each!("mcp_steady_client_calls_ended", "state", "never_sent", never_sent);
        $each!("mcp_steady_client_calls_ended", "state", "unknown", unknown);
        $each!("mcp_steady_client_retries", "kind", "call", calls.retries);
        $each!("mcp_steady_client_restarts", "kind", "link", restarts);
        $each!("mcp_steady_client_answers_ignored", "reason", "late", calls.late_answers);
        $each!("mcp_steady_client_answers_ignored", "reason", "unknown", calls.unknown_ids);
        $each!("mcp_steady_client_cancellations_ignored", "reason", "stray", calls.stray_cancellations);
        $each!("mcp_steady_client_progress", "fate", "dropped", progress_dropped);
        $each!("mcp_steady_client_progress", "fate", "refused", calls.refused_progress);
        $each!("mcp_steady_client_messages", "direction", "out", sent.messages);
        $each!("mcp_steady_client_messages", "direction", "in", received.messages);
        $each!("mcp_steady_client_bytes", "direction", "out", sent.bytes);
        $each!("mcp_steady_client_bytes", "direction", "in", received.bytes);
        $each!("mcp_steady_client_messages_bad", "direction", "in", bad_messages);
    };
}

impl ClientStats {
    /// Tells the `metrics` facade what is new since it was `before`.
    pub(super) fn publish(&self, before: &Self) {
        macro_rules! tell {
            ($metric:literal, $label:literal, $value:literal, $($field:ident).+) => {
                emit_sum($metric, $label, $value, self.$($field).+.saturating_sub(before.$($field).+));
            };
        }
        each_sum!(tell);
        emit_mark("mcp_steady_client_calls_in_flight", self.in_flight as u64);
        emit_mark("mcp_steady_client_queue_high_messages", self.queue_high);
    }
}

impl State {
    /// What was counted, with what is known elsewhere.
    pub(super) fn counted(&self) -> ClientStats {
        let (calls, in_flight) = (self.machine.counters(), self.machine.in_flight());
        let restarts = self.stats.generation.saturating_sub(1);
        ClientStats { calls, in_flight, restarts, ..self.stats.clone() }
    }

    /// Tells the `metrics` facade what is new.
    pub(super) fn publish(&mut self) {
        if cfg!(feature = "metrics") {
            let now = self.counted();
            now.publish(&self.published);
            self.published = now;
        }
    }
}

/// How much went one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Messages.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_counter_is_forgotten_by_the_facade() {
        let mut told = ClientStats::default();
        macro_rules! count {
            ($metric:literal, $label:literal, $value:literal, $($field:ident).+) => {
                assert_eq!(told.$($field).+, 0, concat!("twice: ", $metric, " ", $label, " ", $value));
                told.$($field).+ = 1;
            };
        }
        each_sum!(count);
        // A field that is new has to be named here: as one that is told, as a gauge, or as a text.
        let ClientStats {
            started,
            refused,
            answered,
            peer_errors,
            refused_elsewhere,
            too_long,
            cancelled,
            idle_timeouts,
            max_timeouts,
            never_sent,
            unknown,
            progress_dropped,
            bad_messages,
            restarts,
            calls: Counters { late_answers, unknown_ids, refused_progress, stray_cancellations, retries },
            in_flight: _,
            generation: _,
            queue_high: _,
            last_bad: _,
            sent,
            received,
        } = told;
        assert_eq!([late_answers, unknown_ids, refused_progress, stray_cancellations, retries], [1; 5]);
        for Traffic { messages, bytes } in [sent, received] {
            assert_eq!([messages, bytes], [1; 2]);
        }
        let ended = [
            answered,
            peer_errors,
            refused_elsewhere,
            too_long,
            cancelled,
            idle_timeouts,
            max_timeouts,
            never_sent,
            unknown,
        ];
        assert_eq!((ended, started, refused), ([1; 9], 1, 1));
        assert_eq!([progress_dropped, bad_messages, restarts], [1; 3]);
    }
}
