//! The second phase of a world: all is healed, what is open has to end, and what the ledger has is held against what was said.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::journal::Check;
use super::script::{Server, Tool};
use super::system::System;
use crate::world::Group;

/// Names of the calls that are made when all is healed.
const IN_CALM: u32 = 1_000_000_000;

impl System {
    /// The second phase: no faults any more. All that is open ends, whoever asks is answered, and nothing is left.
    pub(super) fn come_to_rest(&mut self) {
        self.heal();
        self.settle();
        self.hear_of_a_change();
        self.ask_again();
        self.end_tasks();
        for client in 0..self.clients.len() {
            self.close_client(client);
        }
        // What runs on whatever happens has its time, and then its grace.
        let longest = Duration::from_secs(2 * 3600) + Duration::from_millis(self.world.grace_ms);
        self.run_until(self.executor.now() + longest);
        if self.stuck {
            return;
        }
        let tasks = self.executor.tasks_beside(&BTreeSet::new());
        let (waiting, effects) = {
            let switch = self.switch.lock();
            (switch.waiting(), switch.vault.effects())
        };
        for replica in 0..self.world.replicas {
            self.crash(Server::Replica(replica));
        }
        let mut log = self.log.lock();
        log.at_rest(tasks, waiting);
        match effects {
            Ok(effects) => log.audit(&effects),
            Err(why) => log.broken(Check::DurableAnswer, format!("the ledger cannot be read: {why}")),
        }
    }

    /// Every call has its time, and what is on its way or under way on servers has its own: up to an hour, after which it
    /// counts as what never comes to rest.
    fn settle(&mut self) {
        let deadline = self.log.lock().last_deadline();
        // Links that broke last are there again.
        self.run_until(deadline.max(self.executor.now()) + Duration::from_secs(5));
        for _ in 0..3600 {
            if self.stuck || (self.log.lock().running() == 0 && self.switch.lock().waiting() == 0) {
                return;
            }
            self.run_until(self.executor.now() + Duration::from_secs(1));
        }
    }

    /// Workers work, so every task ends, and who follows it is told: each has some seconds for its steps, once the leases
    /// that a lost worker left are over, and who asks for it does so every half minute at least.
    fn end_tasks(&mut self) {
        let open = |system: &Self| {
            let log = system.log.lock();
            log.open_tasks() + log.followed_tasks()
        };
        // After a clock that went back by less than an hour the ledger waits until it has caught up.
        let leases = Duration::from_millis(2 * self.world.lease_ms + self.back_ms.min(3_600_000));
        let end = self.executor.now() + Duration::from_secs(60 + 10 * open(self) as u64) + leases;
        while self.world.workers > 0 && open(self) > 0 && self.executor.now() < end && !self.stuck {
            self.run_until(self.executor.now() + Duration::from_secs(5));
        }
        self.log.lock().tasks_at_rest();
        for worker in 0..self.world.workers {
            self.crash(Server::Worker(worker));
        }
    }

    /// Every subscription is open again by now, and hears of what changes.
    fn hear_of_a_change(&mut self) {
        if self.log.lock().listeners() == 0 || self.stuck {
            return;
        }
        // The longest pause between two requests to listen, and then some.
        self.run_until(self.executor.now() + Duration::from_secs(20));
        // What changed before, nobody tells any more: who has missed it without being told so never knows.
        let version = self.switch.lock().yard.version.load(Ordering::Relaxed);
        self.log.lock().all_heard(version);
        self.change();
        self.run_until(self.executor.now() + Duration::from_millis(8 * self.world.delay_ms + 500));
        let version = self.switch.lock().yard.version.load(Ordering::Relaxed);
        self.log.lock().all_heard(version);
    }

    fn heal(&mut self) {
        let servers = (0..self.world.clients.len()).map(Server::Child);
        let workers = (0..self.world.workers).map(Server::Worker);
        for server in servers.chain((0..self.world.replicas).map(Server::Replica)).chain(workers) {
            self.freeze(server, false);
        }
        self.switch.lock().heal();
        let orphans: Vec<Group> = self.switch.lock().orphans.iter().map(|host| host.group).collect();
        orphans.into_iter().for_each(|group| self.executor.go_on(group));
        let workers = (0..self.world.workers).map(Server::Worker);
        for server in (0..self.world.replicas).map(Server::Replica).chain(workers) {
            let draining = self.switch.lock().host(server).is_some_and(|host| host.config.shutdown.is_draining());
            if draining {
                self.crash(server);
            }
            self.restart(server);
        }
        for client in 0..self.clients.len() {
            self.start_client(client);
        }
    }

    /// The applications ask again for what they have no answer to, one after the other; and each client reads once.
    fn ask_again(&mut self) {
        let reads = (0..self.clients.len()).map(|client| (client, Tool::Read { bytes: 8 }));
        let open = self.log.lock().open_keys();
        let keys = open.into_iter().map(|(client, key, amount)| (client, Tool::AddOnce { key, amount }));
        let all: Vec<(usize, Tool)> = reads.chain(keys).collect();
        for (at, (client, tool)) in (IN_CALM..).zip(all) {
            if self.stuck || self.call(client, at, tool, true).is_none() {
                continue;
            }
            // As long as it takes, which is a round trip where all is well.
            let trip = Duration::from_millis(4 * self.world.delay_ms + 1);
            self.run_until(self.executor.now() + trip);
        }
        let deadline = self.log.lock().last_deadline();
        self.run_until(deadline.max(self.executor.now()));
    }
}
