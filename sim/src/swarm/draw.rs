//! From a seed to a script. Nothing else in the swarm is random.
//!
//! Each seed draws a world, which of the tools its applications call and how often, and which classes of faults there are at
//! all: a fault that is always there hides those that it keeps from happening.

use steady_core::backoff::{Entropy, SmallRng};

use super::mutant::Mutant;
use super::script::{Event, Form, Script, Server, Shape, Tool, Way, World};

/// One seed of so many has the real ledger.
const REAL_LEDGER: u64 = 16;
/// Fewest and most calls of a script, about.
const CALLS: (u64, u64) = (60, 420);

/// A source of choices.
struct Draw(SmallRng);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.0.next_u64() % end }
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap_or(0)
    }

    fn small(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(end.into())).unwrap_or(0)
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T], otherwise: T) -> T {
        all.get(self.index(all.len())).copied().unwrap_or(otherwise)
    }

    /// Which of the weights a pick falls on.
    fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut at = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if at < *weight {
                return index;
            }
            at -= weight;
        }
        0
    }
}

/// Which faults there are.
#[derive(Clone, Copy)]
struct Faults {
    cancels: bool,
    delays: bool,
    proxies: bool,
    cuts: bool,
    slow_readers: bool,
    freezes: bool,
    crashes: bool,
    commits: bool,
    clients: bool,
    drains: bool,
    clocks: bool,
    doubles: bool,
    disks: bool,
}

/// What a script is drawn with.
struct Plan {
    world: World,
    faults: Faults,
    /// How often each tool is called.
    tools: [u64; 10],
    keys: u32,
    next_call: u32,
    /// Whether there are subscriptions. They take places of a server's requests.
    listens: bool,
    /// Calls that become tasks.
    jobs: Vec<(usize, u32)>,
    events: Vec<Event>,
}

/// The script of a seed.
#[must_use]
pub fn draw(seed: u64, mutant: Option<Mutant>) -> Script {
    let mut draw = Draw(SmallRng::from_u64(seed));
    let world = world(&mut draw, mutant);
    let on = |draw: &mut Draw| draw.one_in(2);
    let faults = Faults {
        cancels: on(&mut draw),
        delays: on(&mut draw),
        proxies: on(&mut draw),
        cuts: on(&mut draw),
        slow_readers: on(&mut draw),
        freezes: on(&mut draw),
        crashes: on(&mut draw),
        commits: on(&mut draw),
        clients: on(&mut draw),
        drains: on(&mut draw),
        clocks: on(&mut draw),
        doubles: on(&mut draw),
        disks: on(&mut draw),
    };
    let mut tools = [0; 10];
    for weight in &mut tools {
        *weight = if draw.one_in(3) { 0 } else { 1 + draw.below(10) };
    }
    // Those that never end, or end badly, are seldom.
    tools[5] = tools[5].min(1);
    tools[8] = tools[8].min(1);
    tools[9] = tools[9].min(2);
    if tools.iter().sum::<u64>() == 0 {
        tools[0] = 1;
    }
    let keys = draw.of(&[1, 3, 10, 100], 10);
    let listens = world.server_in_flight > 2 && draw.one_in(2);
    let mut plan = Plan { world, faults, tools, keys, next_call: 1, listens, jobs: Vec::new(), events: Vec::new() };
    let calls = CALLS.0 + draw.below(CALLS.1 - CALLS.0);
    let burst = draw.of(&[1, 2, 6, 20], 2);
    while u64::from(plan.next_call) <= calls {
        plan.step(&mut draw, burst);
    }
    plan.late(&mut draw);
    Script { world: plan.world, events: plan.events }
}

fn world(draw: &mut Draw, mutant: Option<Mutant>) -> World {
    let clients = 1 + draw.index(4);
    let mix = draw.below(3);
    let shape = |draw: &mut Draw| match mix {
        0 => Shape::Stdio,
        1 => Shape::Http,
        _ => draw.of(&[Shape::Stdio, Shape::Http], Shape::Stdio),
    };
    let clients: Vec<Shape> = (0..clients).map(|_| shape(draw)).collect();
    let real = draw.one_in(REAL_LEDGER) && !mutant.is_some_and(Mutant::is_of_ledger);
    let real = real || mutant.is_some_and(Mutant::is_of_tasks);
    let (workers, lease_ms) = if real { (2 + draw.index(2), draw.of(&[1500, 3000, 20_000], 3000)) } else { (0, 0) };
    // An hour and less is over soon where clocks jump.
    let horizon_ms = if real { draw.of(&[0, 100_000, 3_600_000], 0) } else { 0 };
    World {
        horizon_ms,
        workers,
        lease_ms,
        clients,
        replicas: 1 + draw.index(3),
        ledger: if real { Form::Sqlite } else { Form::Memory },
        delay_ms: draw.of(&[0, 1, 5, 20, 100], 1),
        pipe_bytes: draw.of(&[200, 4096, 65536, 65536], 4096),
        server_in_flight: draw.of(&[2, 8, 64, 256], 8),
        server_buffer: draw.of(&[1, 4, 64], 4),
        server_max_ms: draw.of(&[1000, 5000, 30_000, 600_000], 5000),
        server_idle_ms: draw.of(&[0, 0, 800, 5000], 0),
        grace_ms: draw.of(&[0, 10, 500, 3000], 500),
        client_in_flight: draw.of(&[4, 32, 256], 32),
        idle_ms: draw.of(&[500, 2000, 10_000], 2000),
        max_ms: draw.of(&[1000, 5000, 20_000], 5000),
        attempts: 1 + u16::try_from(draw.below(4)).unwrap_or(0),
        write_stall_ms: draw.of(&[300, 2000, 60_000], 2000),
        probe: draw.one_in(2),
        retention_ms: draw.of(&[60_000, 7 * 24 * 3_600_000], 60_000),
        mutant,
    }
}

impl Plan {
    fn step(&mut self, draw: &mut Draw, burst: u64) {
        match draw.weighted(&[40, 25, 12, 14]) {
            0 => {
                for _ in 0..=draw.below(burst) {
                    self.call(draw);
                }
            }
            1 => {
                let World { idle_ms, max_ms, delay_ms, .. } = self.world;
                // Also exactly as long as a clock runs, and a moment less.
                let ms = draw.of(&[1, 2, 5, 20, 20, 100, 100, 400, 1500, delay_ms, idle_ms, idle_ms - 1, max_ms], 5);
                self.events.push(Event::Wait { ms });
            }
            2 => self.events.push(Event::Step { polls: 1 + draw.small(12) }),
            3 if self.listens && draw.one_in(3) => self.listen(draw),
            _ => self.fault(draw),
        }
    }

    fn listen(&mut self, draw: &mut Draw) {
        let (client, listen) = (draw.index(self.world.clients.len()), draw.small(2));
        self.events.push(match draw.below(4) {
            0 => Event::Unlisten { client, listen },
            1 => Event::Listen { client, listen },
            _ => Event::Change,
        });
    }

    fn call(&mut self, draw: &mut Draw) {
        let tool = match draw.weighted(&self.tools) {
            // Where there are workers, every second call is work for them.
            _ if self.world.workers > 0 && draw.one_in(2) => job(draw),
            0 => Tool::Read { bytes: draw.of(&[0, 10, 300, 3000], 10) },
            1 => Tool::Add { amount: amount(draw) },
            2 => {
                let key = draw.small(self.keys);
                // Each key has its amount, but for the callers that use one again for something else.
                let amount = if draw.one_in(20) { 7 } else { 1 + (key * 13) % 110 };
                Tool::AddOnce { key, amount }
            }
            3 => Tool::Work { steps: draw.small(20), step_ms: draw.of(&[0, 1, 20, 300], 20) },
            4 => Tool::Flood { steps: 1 + draw.small(40), bytes: draw.of(&[10, 200], 10) },
            5 => Tool::Hang,
            6 => Tool::Deaf { ms: draw.of(&[1, 50, 1000, 20_000], 50) },
            7 => Tool::Fail,
            8 => Tool::Panic,
            _ => Tool::Stubborn { ms: draw.of(&[1, 300, 4000], 300) },
        };
        let client = draw.index(self.world.clients.len());
        if matches!(tool, Tool::Job { .. }) {
            self.jobs.push((client, self.next_call));
        }
        self.events.push(Event::Call { client, call: self.next_call, tool });
        if self.faults.cancels && draw.one_in(6) {
            self.cancel_later(draw, client);
        }
        self.next_call += 1;
    }

    /// Gives up the newest call: at once, in the middle of a few steps, or when some time has passed.
    fn cancel_later(&mut self, draw: &mut Draw, client: usize) {
        let call = self.next_call;
        match draw.below(3) {
            0 => {}
            1 => self.events.push(Event::Step { polls: 1 + draw.small(8) }),
            _ => self.events.push(Event::Wait { ms: draw.of(&[self.world.delay_ms, 2 * self.world.delay_ms, 7], 1) }),
        }
        let event = if draw.one_in(4) { Event::Drop { client, call } } else { Event::Cancel { client, call } };
        self.events.push(event);
    }

    fn server(&self, draw: &mut Draw) -> Server {
        let client = draw.index(self.world.clients.len());
        match self.world.clients.get(client) {
            Some(Shape::Stdio) => Server::Child(client),
            Some(Shape::Http) | None => Server::Replica(draw.index(self.world.replicas)),
        }
    }

    /// What hinders a task, or its worker.
    fn worker_fault(&mut self, draw: &mut Draw) {
        let server = Server::Worker(draw.index(self.world.workers));
        let recent = self.jobs.len().saturating_sub(1 + draw.index(4));
        let event = match draw.below(9) {
            0..=2 => match self.jobs.get(recent) {
                Some((client, call)) => Event::CancelTask { client: *client, call: *call },
                None => return,
            },
            3 | 4 => {
                self.work(draw);
                Event::Crash(server)
            }
            5 | 6 => {
                self.work(draw);
                return self.lose_lease(server);
            }
            7 => Event::Restart(server),
            _ => Event::Collect(server),
        };
        self.events.push(event);
    }

    /// A server is asked to end while it serves: a subscription, or a call that outlasts its time to finish.
    fn drain(&mut self, draw: &mut Draw, client: usize) {
        // The load balancer goes round: as many requests as there are replicas come to each of them.
        let (server, requests) = match self.world.clients.get(client) {
            Some(Shape::Http) => (Server::Replica(draw.index(self.world.replicas)), self.world.replicas),
            Some(Shape::Stdio) | None => (Server::Child(client), 1),
        };
        let (listens, busy) = (self.listens && draw.one_in(2), draw.one_in(2));
        for listen in (0..).take(requests).filter(|_| listens) {
            self.events.push(Event::Listen { client, listen });
        }
        for _ in (0..requests).filter(|_| busy) {
            let tool = Tool::Stubborn { ms: 60_000 };
            self.events.push(Event::Call { client, call: self.next_call, tool });
            self.next_call += 1;
        }
        if listens || busy {
            self.events.push(Event::Wait { ms: 2 * self.world.delay_ms + 1 });
        }
        self.events.push(Event::Drain(server));
        if busy && draw.one_in(2) {
            self.events.push(Event::Wait { ms: self.world.grace_ms + 1 });
        }
    }

    /// At the end, as they change the rest of a script: each worker loses a task to another, and a key comes that carries a
    /// time which the ledger has forgotten by now.
    fn late(&mut self, draw: &mut Draw) {
        for worker in 0..self.world.workers {
            self.work(draw);
            self.lose_lease(Server::Worker(worker));
        }
        if self.world.horizon_ms > 0 {
            // In steps that the ledger believes at once.
            self.events.extend([Event::Clock { ms: 3_000_000 }, Event::Clock { ms: 3_000_000 }]);
            let tool = Tool::AddOnce { key: self.keys, amount: 1 };
            self.events.push(Event::Call { client: 0, call: self.next_call, tool });
            self.next_call += 1;
        }
    }

    /// Another worker has the task by the time that this one goes on with it.
    fn lose_lease(&mut self, server: Server) {
        let ms = self.world.lease_ms + 2000;
        self.events.extend([Event::Freeze(server), Event::Wait { ms }, Event::Thaw(server)]);
    }

    /// A task that a worker is in the middle of.
    fn work(&mut self, draw: &mut Draw) {
        let (client, call) = (draw.index(self.world.clients.len()), self.next_call);
        let tool = Tool::Job { key: None, steps: 4, step_ms: 900 };
        self.jobs.push((client, call));
        self.events.extend([Event::Call { client, call, tool }, Event::Wait { ms: draw.of(&[300, 1000, 2000], 1000) }]);
        self.next_call += 1;
    }

    fn fault(&mut self, draw: &mut Draw) {
        let client = draw.index(self.world.clients.len());
        let server = self.server(draw);
        let way = draw.of(&[Way::Up, Way::Down], Way::Up);
        let call = self.next_call.saturating_sub(1 + draw.small(30)).max(1);
        let undo = draw.one_in(2);
        let faults = self.faults;
        if self.world.workers > 0 && draw.one_in(2) {
            return self.worker_fault(draw);
        }
        let event = match draw.below(13) {
            0 if faults.cancels => Event::Cancel { client, call },
            1 if faults.delays => Event::Delay { client, ms: draw.of(&[0, 1, 10, 200, 1500], 1) },
            2 if faults.proxies && undo => Event::Release { client, way },
            2 if faults.proxies => Event::Hold { client, way },
            3 if faults.cuts => Event::Cut { client },
            4 if faults.slow_readers && undo => Event::Read { client },
            4 if faults.slow_readers => Event::StopReading { client },
            5 if faults.freezes && undo => Event::Thaw(server),
            5 if faults.freezes => Event::Freeze(server),
            6 if faults.crashes && undo => Event::Restart(server),
            6 if faults.crashes => Event::Crash(server),
            7 if faults.commits => Event::DieInCommit { server, committed: draw.one_in(2) },
            8 if faults.clients && undo => Event::RestartClient { client },
            8 if faults.clients && draw.one_in(4) => Event::Close { client },
            8 if faults.clients => Event::CrashClient { client },
            9 if faults.drains && undo => Event::Restart(server),
            9 if faults.drains => return self.drain(draw, client),
            10 if faults.clocks => {
                let far = 9 * 24 * 3_600_000;
                self.events.push(Event::Clock { ms: draw.of(&[-3_000_000, -5000, 61_000, 200_000, far], 61_000) });
                Event::Collect(server)
            }
            11 if faults.doubles => Event::Double { client },
            12 if faults.disks => Event::Disk { ms: draw.of(&[0, 5, 40, 800], 5) },
            // Of a class that this seed does without.
            _ => return,
        };
        self.events.push(event);
    }
}

/// Work for a worker. A key has its steps, so that whoever uses it again means the same.
fn job(draw: &mut Draw) -> Tool {
    let key = draw.small(40);
    let (steps, step_ms) = match key % 4 {
        0 => (1, 0),
        1 => (2, 20),
        2 => (3, 300),
        _ => (4, 900),
    };
    Tool::Job { key: Some(key).filter(|key| *key < 30), steps, step_ms }
}

fn amount(draw: &mut Draw) -> u32 {
    if draw.one_in(20) { 101 } else { 1 + draw.small(100) }
}
