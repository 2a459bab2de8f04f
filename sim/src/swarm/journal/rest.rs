//! Whether the world came to rest, and what it counted on its way.

use steady_core::kernel::ServerCounters;
use steady_core::kernel::client::ClientStats;

use super::{Check, Journal};

impl Journal {
    /// All is healed, every call had its time, and the clients are closed.
    pub(in super::super) fn at_rest(&mut self, tasks: usize, waiting: usize) {
        let open: Vec<String> = self.orders.iter().filter(|order| order.ended.is_none()).map(super::name).collect();
        self.demand(open.is_empty(), Check::ComesToRest, || format!("calls without an end: {open:?}"));
        let handlers = self.handlers;
        self.demand(handlers == 0, Check::ComesToRest, || format!("{handlers} handlers still run"));
        self.demand(tasks == 0, Check::ComesToRest, || format!("{tasks} tasks still wait"));
        self.demand(waiting == 0, Check::ComesToRest, || format!("{waiting} bytes still wait in links"));
    }

    /// What a client counted, at its end.
    pub(in super::super) fn client_stats(&mut self, stats: &ClientStats, at_rest: bool) {
        let calls = stats.calls;
        for (name, count) in [
            ("client: late answer ignored", calls.late_answers),
            ("client: progress that did not increase", calls.refused_progress),
            ("client: attempt after the first", calls.retries),
            ("client: progress dropped, unread", stats.progress_dropped),
            ("client: link lost", stats.restarts),
        ] {
            self.count_more(name, count);
        }
        let in_flight = stats.in_flight;
        self.demand(!at_rest || in_flight == 0, Check::ComesToRest, || {
            format!("a client has {in_flight} calls in flight")
        });
        // A request, a cancellation, a later attempt: a few for each call.
        let (high, most) = (stats.queue_high, 4 * self.world.client_in_flight as u64);
        self.demand(high <= most, Check::BufferBound, || format!("{high} messages waited in a client, {most} may"));
    }

    /// What a server process counted, at its end.
    pub(in super::super) fn server_stats(&mut self, stats: &ServerCounters) {
        let requests = stats.requests;
        for (name, count) in [
            ("server: completed", requests.completed),
            ("server: cancelled", requests.cancelled),
            ("server: client lost", requests.lost),
            ("server: idle timeout", requests.idle_timeouts),
            ("server: maximum timeout", requests.max_timeouts),
            ("server: refused, full", requests.refused),
            ("server: refused, closing", requests.refused_closing),
            ("server: answered at its shutdown", stats.shut_down),
            ("server: cancellation too late", requests.cancelled_late),
            ("server: cancellation of nothing", requests.cancelled_unknown),
            ("progress: coalesced", stats.progress_coalesced),
            ("progress: dropped", stats.progress_dropped),
            ("progress: refused", stats.progress_refused),
        ] {
            self.count_more(name, count);
        }
        let world = &self.world;
        // Progress, finals, lossless progress and refusals have their own places.
        let most = (world.server_buffer + world.server_in_flight + LOSSLESS + REFUSALS) as u64;
        let high = stats.queue_high;
        self.demand(high <= most, Check::BufferBound, || format!("{high} messages waited in a server, {most} may"));
    }
}

/// Places for lossless progress, and for refusals, of a simulated server.
pub(in super::super) const LOSSLESS: usize = 8;
pub(in super::super) const REFUSALS: usize = 8;
