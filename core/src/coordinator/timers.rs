//! The deadlines of many requests: one node for each request that is armed, the earliest first.
//!
//! Progress moves a deadline later without telling. The node then comes up too early, the request says its real deadline,
//! and is armed again: a request that reports often costs nothing here.

use alloc::collections::BTreeSet;

use crate::outbound::Handle;
use crate::time::Instant;

#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    nodes: BTreeSet<(Instant, Handle)>,
}

impl Timers {
    /// Arms a request at `at`, in place of the time it was armed at before.
    pub(super) fn arm(&mut self, at: Instant, handle: Handle, before: Option<Instant>) {
        self.disarm(before, handle);
        self.nodes.insert((at, handle));
    }

    pub(super) fn disarm(&mut self, armed_at: Option<Instant>, handle: Handle) {
        if let Some(at) = armed_at {
            self.nodes.remove(&(at, handle));
        }
    }

    pub(super) fn next(&self) -> Option<(Instant, Handle)> {
        self.nodes.first().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}
