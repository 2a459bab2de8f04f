//! How much of the processors a call takes, on both sides: where client and server share them, that is what limits the rate.

use std::fs;
use std::path::Path;

/// Microseconds in one tick of the kernel's accounts, which count hundredths of a second.
const TICK: f64 = 10_000.0;

/// Processor time since a start, in microseconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cpu {
    /// Of the server with all its processes.
    pub(crate) server: f64,
    /// Of this process, and of those that it has started and that have ended: pgbench.
    pub(crate) client: f64,
}

impl Cpu {
    pub(crate) fn now(folder: &Path) -> Self {
        let server = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
        let server = server.lines().next().unwrap_or("none");
        let backends = fs::read_to_string(format!("/proc/{server}/task/{server}/children")).unwrap_or_default();
        let backends: f64 = backends.split_whitespace().map(|process| used(process).0).sum();
        let ((own, gone), (client, ended)) = (used(server), used("self"));
        Self { server: own + gone + backends, client: client + ended }
    }

    /// What a call took since then, of so many.
    pub(crate) fn per_call(self, since: Self, calls: f64) -> Self {
        let each = |now: f64, then: f64| (now - then) / calls.max(1.0);
        Self { server: each(self.server, since.server), client: each(self.client, since.client) }
    }
}

/// What a process has used, and what its children had when they ended.
fn used(process: &str) -> (f64, f64) {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<f64> =
        after_name.split_whitespace().skip(11).take(4).filter_map(|text| text.parse().ok()).collect();
    match fields[..] {
        [user, system, waited_user, waited_system] => ((user + system) * TICK, (waited_user + waited_system) * TICK),
        _ => (0.0, 0.0),
    }
}
