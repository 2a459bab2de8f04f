//! Subscriptions: what servers send for them, and what their readers know.

use steady_core::rpc::{self, method};

use super::super::script::Server;
use super::wire::{integer, number_after};
use super::{Check, Journal};

/// Where a notification of a subscription names its request (rule L2).
const STAMP: &str = "\"io.modelcontextprotocol/subscriptionId\":";

impl Journal {
    /// A notification left a server that is no progress.
    pub(super) fn listen_wrote(&mut self, link: usize, mark: u64, method: &str, params: &str) {
        let id = if method == method::CANCELLED {
            rpc::read_cancellation(params).and_then(|cancellation| integer(&cancellation.id))
        } else {
            number_after(params, STAMP).and_then(|id| i64::try_from(id).ok())
        };
        let served = id.and_then(|id| self.conns[link].served.get_mut(&id));
        let Some((served, id)) = served.filter(|served| served.listen.is_some()).zip(id) else {
            return self
                .broken(Check::ListenOrder, format!("link {link}: {method} for {id:?}, which is no subscription"));
        };
        let acknowledged = served.listen == Some(true);
        let (finals, cancelled) = (served.finals, served.cancelled);
        if method == method::CANCELLED {
            // After the result, which says the same (rule C5).
            self.demand(finals == 1, Check::ListenOrder, || {
                format!("link {link}: the server cancelled the subscription {id} before its result")
            });
            return self.count("listen: ended by the server");
        }
        if method == method::ACKNOWLEDGED {
            served.listen = Some(true);
            self.count("listen: acknowledged");
        }
        let right = (method == method::ACKNOWLEDGED) != acknowledged && finals == 0;
        self.demand(right, Check::ListenOrder, || {
            format!("link {link}: {method} for {id}, acknowledged {acknowledged}, with {finals} results before")
        });
        self.check_silence(link, mark, id, cancelled);
    }

    /// The client cancels a subscription; whether this is one. It is accepted if it is open and its server goes on.
    pub(super) fn listen_cancelled(&mut self, link: usize, id: i64) -> bool {
        let moment = self.moment();
        let draining = self.draining.contains(&self.conns[link].server);
        let Some(served) = self.conns[link].served.get_mut(&id) else { return false };
        let Some(acknowledged) = served.listen else { return false };
        if acknowledged && served.finals == 0 && !draining {
            served.cancelled.get_or_insert(moment);
            self.count("listen: cancellation accepted");
        }
        true
    }

    /// A server was asked to end: its subscriptions get their result.
    pub(in super::super) fn drains(&mut self, server: Server) {
        self.draining.insert(server);
    }

    /// A server starts anew.
    pub(in super::super) fn starts_anew(&mut self, server: Server) {
        self.draining.remove(&server);
    }

    /// A reader begins.
    pub(in super::super) fn listens(&mut self, name: (usize, u32)) {
        self.listeners.insert(name, 0);
    }

    /// A reader knows this state of the list.
    pub(in super::super) fn heard(&mut self, name: (usize, u32), version: u64, how: &'static str) {
        self.count(how);
        if let Some(known) = self.listeners.get_mut(&name) {
            *known = version;
        }
    }

    /// A reader is gone.
    pub(in super::super) fn hears_no_more(&mut self, name: (usize, u32)) {
        self.listeners.remove(&name);
    }

    /// Readers that there are.
    pub(in super::super) fn listeners(&self) -> usize {
        self.listeners.len()
    }

    /// All is well, and this is the list: every reader knows.
    pub(in super::super) fn all_heard(&mut self, version: u64) {
        // A server with few places has none for subscriptions while calls take them.
        if self.world.server_in_flight <= self.listeners.len() + 1 {
            return;
        }
        let deaf: Vec<String> = self
            .listeners
            .iter()
            .filter(|(_, known)| **known != version)
            .map(|(name, known)| format!("{name:?}: {known}"))
            .collect();
        self.demand(deaf.is_empty(), Check::NothingMissed, || {
            format!("readers that do not know version {version}, but an older one: {deaf:?}")
        });
    }
}
