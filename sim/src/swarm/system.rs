//! A world while it runs: it does what the script says, lets time pass, heals, and looks whether all comes to rest.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use steady_core::backoff::Jitter;
use steady_core::id::ClientId;
use steady_core::kernel::client::{Caller, Canceller};
use steady_core::time::Instant;

use super::client::{self, Told};
use super::floor::name;
use super::jobs;
use super::journal::{Check, Coverage, Log, Violation};
use super::mutant::Mutant;
use super::script::{Event, Form, Script, Server, Tool, Way, World};
use super::server::Host;
use super::store::{self, Death, EPOCH, WallClock};
use super::switch::Shared;
use crate::world::{Executor, Group, TaskId};

/// Polls at one instant, after which a world counts as one that never comes to rest.
const MOST_POLLS: u64 = 2_000_000;

/// Runs of this process, for the world that is broken on purpose.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// How a run ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run {
    /// What was broken, in order.
    pub violations: Vec<Violation>,
    /// The hash of all that was seen.
    pub hash: u64,
    /// Requests that servers read.
    pub requests: u64,
    /// Calls that were made.
    pub calls: u64,
    /// How long it took, in nanoseconds of virtual time.
    pub virtual_time: u64,
    /// What happened how often.
    pub coverage: Coverage,
    /// All that was seen, if it was to be recorded.
    pub trace: Vec<String>,
}

/// A client process.
pub(super) struct Client {
    group: Group,
    caller: Caller,
    gone: Arc<AtomicBool>,
    calls: BTreeMap<u32, (TaskId, Canceller)>,
    listens: BTreeMap<u32, TaskId>,
}

pub(super) struct System {
    pub(super) executor: Executor,
    pub(super) switch: Shared,
    pub(super) log: Log,
    pub(super) world: World,
    wall: WallClock,
    /// What was added to the wall clock.
    jumped: i64,
    /// How far it went back, in all, in milliseconds.
    pub(super) back_ms: u64,
    pub(super) clients: Vec<Option<Client>>,
    incarnations: Vec<u32>,
    pub(super) stuck: bool,
}

/// Runs a script. A real ledger's file is made in `dir`. `record`: whether all that is seen is kept as text.
#[must_use]
pub fn run(script: &Script, dir: &Path, record: bool) -> Run {
    let log = Log::new(script.world.clone(), record);
    if script.world.mutant == Some(Mutant::Unsteady) {
        log.lock().event(0, &RUNS.fetch_add(1, Ordering::Relaxed).to_string());
    }
    let ran = catch_unwind(AssertUnwindSafe(|| play(script, dir, &log)));
    let virtual_time = log.lock().now().as_nanos();
    let mut journal = log.lock();
    if let Err(panic) = ran {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        journal.broken(Check::NoPanic, format!("a panic: {}", text.unwrap_or("(no text)")));
    }
    Run {
        violations: std::mem::take(&mut journal.violations),
        hash: journal.trace.hash(),
        requests: journal.requests,
        calls: journal.calls(),
        virtual_time,
        coverage: std::mem::take(&mut journal.coverage),
        trace: journal.trace.lines().to_vec(),
    }
}

fn play(script: &Script, dir: &Path, log: &Log) {
    let mut system = System::new(&script.world, dir, log.clone());
    for (at, event) in script.events.iter().enumerate() {
        if system.stuck {
            return;
        }
        let text = serde_json::to_string(event).unwrap_or_default();
        let mut journal = log.lock();
        journal.event(at + 1, &text);
        journal.count(name(event));
        drop(journal);
        system.apply(*event);
    }
    system.come_to_rest();
}

impl System {
    fn new(world: &World, dir: &Path, log: Log) -> Self {
        let executor = Executor::new();
        let wall = WallClock::new(EPOCH);
        let retention = i64::try_from(world.retention_ms).unwrap_or(i64::MAX);
        let vault = match world.ledger {
            Form::Memory => store::memory(wall.clone(), retention, world.mutant),
            Form::Sqlite => store::sqlite(&dir.join("world.db"), wall.clone(), retention, world.horizon_ms),
        };
        let switch = Shared::new(world.clone(), executor.spawner(), log.clone(), vault);
        log.lock().tick(executor.now(), wall.ms());
        let mut system = Self {
            executor,
            switch,
            log,
            world: world.clone(),
            wall,
            jumped: 0,
            back_ms: 0,
            clients: Vec::new(),
            incarnations: vec![0; world.clients.len()],
            stuck: false,
        };
        let replicas = (0..world.replicas).map(Server::Replica);
        replicas.chain((0..world.workers).map(Server::Worker)).for_each(|server| system.restart(server));
        for client in 0..world.clients.len() {
            system.clients.push(None);
            system.start_client(client);
        }
        system
    }

    pub(super) fn start_client(&mut self, client: usize) {
        if self.clients[client].is_some() {
            return;
        }
        self.incarnations[client] += 1;
        let spawner = self.executor.spawner();
        let group = spawner.group();
        let ports = spawner.ports(group);
        let Some(caller) = client::start(&self.switch, client, self.incarnations[client], &ports, &self.log) else {
            return client::refused(&self.log, client);
        };
        self.clients[client] =
            Some(Client { group, caller, gone: Arc::default(), calls: BTreeMap::new(), listens: BTreeMap::new() });
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Call { client, call, tool } => drop(self.call(client, call, tool, false)),
            Event::Cancel { client, call } => {
                if let Some((_, canceller)) = self.call_of(client, call) {
                    canceller.cancel("the application gives it up");
                }
            }
            Event::CancelTask { client, call } => self.cancel_task(client, call),
            Event::Drop { client, call } => {
                if let Some((task, _)) = self.call_of(client, call) {
                    self.executor.kill(task);
                }
            }
            Event::Listen { client, listen } => self.listen(client, listen),
            Event::Unlisten { client, listen } => {
                let state = self.clients.get_mut(client).and_then(Option::as_mut);
                if let Some(task) = state.and_then(|state| state.listens.remove(&listen)) {
                    self.executor.kill(task);
                }
            }
            Event::Change => self.change(),
            Event::Wait { ms } => self.run_until(self.executor.now() + Duration::from_millis(ms)),
            Event::Step { polls } => self.step(polls),
            Event::Delay { client, ms } => {
                let delay = Duration::from_millis(ms);
                for way in [Way::Up, Way::Down] {
                    self.switch.lock().change(client, way, |weather| weather.delay = delay);
                }
            }
            Event::Hold { client, way } => self.switch.lock().change(client, way, |weather| weather.held = true),
            Event::Release { client, way } => self.switch.lock().change(client, way, |weather| weather.held = false),
            Event::Cut { client } => self.switch.lock().cut(client),
            Event::StopReading { client } => {
                self.switch.lock().change(client, Way::Down, |weather| weather.unread = true);
            }
            Event::Read { client } => self.switch.lock().change(client, Way::Down, |weather| weather.unread = false),
            Event::Freeze(server) => self.freeze(server, true),
            Event::Thaw(server) => self.freeze(server, false),
            Event::Crash(server) => self.crash(server),
            Event::DieInCommit { server, committed } => {
                if let Some(host) = self.switch.lock().host(server) {
                    let death = if committed { Death::AfterCommit } else { Death::BeforeCommit };
                    *host.death.lock().unwrap_or_else(PoisonError::into_inner) = Some(death);
                }
            }
            Event::Drain(server) => self.drain(server),
            Event::Restart(server) => self.restart(server),
            Event::Collect(server) => self.collect(server),
            Event::CrashClient { client } => self.crash_client(client),
            Event::RestartClient { client } => self.start_client(client),
            Event::Close { client } => self.close_client(client),
            Event::Clock { ms } => {
                self.jumped = self.jumped.saturating_add(ms);
                self.back_ms = self.back_ms.saturating_add(ms.min(0).unsigned_abs());
                self.tick();
            }
            Event::Double { client } => self.switch.lock().double(client),
            Event::Disk { ms } => self.switch.lock().yard.disk_ms.store(ms, Ordering::Relaxed),
        }
    }

    /// Starts a call; its number in the journal.
    pub(super) fn call(&mut self, client: usize, call: u32, tool: Tool, in_calm: bool) -> Option<usize> {
        let state = self.clients.get_mut(client)?.as_mut()?;
        if state.calls.contains_key(&call) {
            return None;
        }
        let order = {
            let mut log = self.log.lock();
            let order = log.starts(client, call, tool, client::safety(tool));
            if in_calm {
                log.is_in_calm(order);
            }
            order
        };
        let pending = state.caller.call(client::request(&self.world, tool, order));
        let canceller = pending.canceller();
        let told = Told { log: self.log.clone(), gone: Arc::clone(&state.gone) };
        // Every second application does not look at progress.
        let watch = client::watch(pending, order, call.is_multiple_of(2), self.world.mutant, told);
        let (caller, log) = (state.caller.clone(), self.log.clone());
        let task = self.executor.spawner().spawn(state.group, async move {
            if let Some(task) = watch.await {
                jobs::follow(caller, order, task, log).await;
            }
        });
        state.calls.insert(call, (task, canceller));
        Some(order)
    }

    /// The application asks for the end of the task that a call became, if it knows of one.
    fn cancel_task(&mut self, client: usize, call: u32) {
        let Some(state) = self.clients.get(client).and_then(Option::as_ref) else { return };
        let named = self.log.lock().task_named(client, call);
        if let Some(id) = named {
            let asks = jobs::cancel(state.caller.clone(), id, self.log.clone());
            self.executor.spawner().spawn(state.group, asks);
        }
    }

    fn collect(&mut self, server: Server) {
        let Some(store) = self.switch.lock().host(server).map(|host| Arc::clone(&host.store)) else { return };
        let mut log = self.log.lock();
        match store.collect() {
            Ok(count) => log.count_more("ledger: collected", count as u64),
            Err(why) => log.broken(Check::DurableAnswer, format!("the ledger collects nothing: {why}")),
        }
    }

    fn call_of(&self, client: usize, call: u32) -> Option<(TaskId, Canceller)> {
        self.clients.get(client)?.as_ref()?.calls.get(&call).cloned()
    }

    fn listen(&mut self, client: usize, listen: u32) {
        let Some(state) = self.clients.get_mut(client).and_then(Option::as_mut) else { return };
        if state.listens.contains_key(&listen) {
            return;
        }
        let yard = Arc::clone(&self.switch.lock().yard);
        let jitter = Jitter::seeded(ClientId::new(client as u64), listen.into());
        if let Some(hears) =
            client::hears(&state.caller, jitter, (client, listen), yard, (&self.log, self.world.mutant))
        {
            let task = self.executor.spawner().spawn(state.group, hears);
            state.listens.insert(listen, task);
        }
    }

    /// The list changes. Each process that runs publishes that when it comes to it.
    pub(super) fn change(&mut self) {
        let switch = self.switch.lock();
        switch.yard.version.fetch_add(1, Ordering::Relaxed);
        if self.world.mutant == Some(Mutant::LosesChanges) {
            return;
        }
        for host in switch.replicas.iter().chain(&switch.children).flatten() {
            let hub = host.hub.clone();
            switch.spawner.spawn(host.group, async move { hub.tools_changed() });
        }
    }

    pub(super) fn freeze(&mut self, server: Server, frozen: bool) {
        let Some(group) = self.switch.lock().host(server).map(|host| host.group) else { return };
        self.log.lock().frozen(server, frozen);
        if frozen { self.executor.stop(group) } else { self.executor.go_on(group) }
    }

    pub(super) fn crash(&mut self, server: Server) {
        let host = self.switch.lock().take_host(server);
        if let Some(host) = host {
            self.end(&host);
        }
    }

    fn end(&mut self, host: &Host) {
        self.log.lock().process("a server process ends");
        host.gone.store(true, Ordering::Relaxed);
        self.executor.kill_group(host.group);
        self.log.lock().frozen(host.server, false);
        self.log.lock().server_stats(&host.config.stats.snapshot());
    }

    /// Asks a server to end. A child ends when its connection does; a replica is taken out of the load balancer, and has
    /// its time.
    fn drain(&mut self, server: Server) {
        let Some(host) = self.switch.lock().host(server).map(Arc::clone) else { return };
        host.config.shutdown.drain();
        self.log.lock().drains(server);
        if matches!(server, Server::Replica(_)) {
            let end = host.ports.timer.now() + host.config.shutdown_limit + host.config.grace;
            self.executor.spawner().spawn(host.group, async move {
                host.ports.timer.sleep_until(end).await;
                host.exit();
            });
        }
    }

    pub(super) fn restart(&mut self, server: Server) {
        let mut switch = self.switch.lock();
        let down = match server {
            Server::Child(_) => None,
            Server::Replica(at) => switch.replicas.get(at),
            Server::Worker(at) => switch.workers.get(at),
        };
        if !down.is_some_and(Option::is_none) {
            return;
        }
        let host = switch.start(server);
        match server {
            Server::Child(_) => {}
            Server::Replica(at) => switch.replicas[at] = Some(host),
            Server::Worker(at) => {
                let work = jobs::work(Arc::clone(&host), format!("worker-{at}"), self.world.clone());
                switch.spawner.spawn(host.group, work);
                switch.workers[at] = Some(host);
            }
        }
    }

    fn crash_client(&mut self, client: usize) {
        let Some(state) = self.clients.get_mut(client).and_then(Option::take) else { return };
        self.log.lock().process("a client process dies");
        state.gone.store(true, Ordering::Relaxed);
        self.log.lock().client_stats(&state.caller.stats(), false);
        self.executor.kill_group(state.group);
    }

    pub(super) fn close_client(&mut self, client: usize) {
        let Some(state) = self.clients.get_mut(client).and_then(Option::take) else { return };
        self.log.lock().process("a client is closed");
        state.caller.close();
        self.log.lock().client_stats(&state.caller.stats(), true);
    }

    fn tick(&mut self) {
        let now = self.executor.now();
        let ms = i64::try_from(now.as_nanos() / 1_000_000).unwrap_or(i64::MAX);
        self.wall.set(EPOCH.saturating_add(ms).saturating_add(self.jumped));
        self.log.lock().tick(now, self.wall.ms());
    }

    /// Ends the processes that have ended by themselves.
    fn bury(&mut self) {
        loop {
            let yard = Arc::clone(&self.switch.lock().yard);
            let Some(host) = yard.exits.lock().unwrap_or_else(PoisonError::into_inner).pop_front() else { return };
            let mut switch = self.switch.lock();
            if switch.host(host.server).is_some_and(|there| there.group == host.group) {
                drop(switch.take_host(host.server));
            }
            switch.orphans.retain(|orphan| orphan.group != host.group);
            drop(switch);
            // It may have been killed for two reasons at once.
            if !host.gone.load(Ordering::Relaxed) {
                self.end(&host);
            }
        }
    }

    fn step(&mut self, polls: u32) {
        for _ in 0..polls {
            if !self.executor.step() {
                return;
            }
            self.bury();
        }
    }

    fn run_ready(&mut self) {
        let mut polls = 0;
        while self.executor.step() {
            self.bury();
            polls += 1;
            if polls > MOST_POLLS {
                self.stuck = true;
                let what = format!("{MOST_POLLS} polls at {}, and still somebody is ready", self.executor.now());
                return self.log.lock().broken(Check::ComesToRest, what);
            }
        }
    }

    /// Lets everything happen up to `until`.
    pub(super) fn run_until(&mut self, until: Instant) {
        loop {
            self.run_ready();
            if self.stuck {
                return;
            }
            let next = self.executor.next_alarm().filter(|next| *next <= until);
            self.executor.advance_to(next.unwrap_or(until));
            self.tick();
            if next.is_none() {
                return self.run_ready();
            }
        }
    }
}
