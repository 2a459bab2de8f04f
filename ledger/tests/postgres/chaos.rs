//! Messages, tasks and effects outside of the database, while servers lose their power, connections are cut and replicas are
//! killed. What happens outside is a line in a file that nobody takes back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use steady_crash_vfs::Rng;
use steady_ledger::tokio_postgres::types::Type;
use steady_ledger::{
    Body, External, Message, PgBegun, PgLedger, PgOptions, Progress, Report, Request, Scope, Target, TaskSpec,
};

use crate::cluster::{Cluster, skip};
use crate::loss::{CONFIG, FIRST, HASTY, LOG, NAME, Trap, disturb, line, pause, spawn};
use crate::shop::{key, stranger};
use crate::{amount, runtime};

/// Where a replica is killed.
const POINTS: [&str; 7] = [
    "message claimed",
    "message sent",
    "outside begun",
    "outside sent",
    "task claimed",
    "task step",
    "about the commit",
];

/// Short, so that others find what a killed replica held.
const LEASE: Duration = Duration::from_secs(2);

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS effect(id bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL);";

fn options() -> PgOptions {
    PgOptions { schema: SCHEMA.into(), busy_timeout: Duration::from_secs(20), ..PgOptions::default() }
}

/// What a replica works with.
#[derive(Clone)]
struct Replica {
    ledger: PgLedger,
    name: String,
    log: &'static File,
    trap: &'static Trap,
    /// It tells before the commit.
    hasty: bool,
}

impl Replica {
    fn note(&self, text: &str) {
        line(self.log, text);
    }

    /// An effect that leaves a message.
    async fn leave(&self, number: usize, micros: u64) {
        let text = format!("order-{number}");
        let (scope, key) = (Scope::new("tenant-1", "order"), key(&text));
        let (name, trap) = (&*text, self.trap);
        let request = Request::new(&scope, &key, "{}");
        let done = self.ledger.execute(&request, |tx| {
            Box::pin(async move {
                tx.execute("INSERT INTO effect(key) VALUES ($1)", &[(&name, Type::TEXT)]).await?;
                let message = Message::new("bank", name);
                tx.enqueue(match number % 4 {
                    0 => message.ordering_key(format!("line-{}", number / 4 % 16)),
                    _ => message,
                })?;
                if self.hasty {
                    self.note(&format!("left heard {name}"));
                }
                trap.pass_soon(POINTS[6], micros);
                Ok(0)
            })
        });
        match done.await {
            Ok(_) if self.hasty => {}
            Ok(_) => self.note(&format!("left heard {text}")),
            Err(_) => pause().await,
        }
    }

    /// Sends what is there to a bank of which nothing is known.
    async fn relay(&self) {
        let Ok(claimed) = self.ledger.outbox(Target::new("bank")).claim(3, LEASE).await else { return pause().await };
        if claimed.is_empty() {
            return pause().await;
        }
        self.trap.pass(POINTS[0]);
        for delivery in claimed {
            let text = str::from_utf8(delivery.payload()).unwrap();
            if !delivery.is_live() {
                continue;
            }
            self.note(&format!("message send {text}"));
            self.trap.pass(POINTS[1]);
            if delivery.report(Report::Delivered).await.is_ok() {
                self.note(&format!("message heard {text}"));
            }
        }
    }

    /// An effect in another system.
    async fn outside(&self, number: usize) {
        let text = format!("outside-{number}");
        let (scope, key) = (Scope::new("tenant-1", "outside"), key(&text));
        match self.ledger.begin::<String>(&Request::new(&scope, &key, "{}"), &External::new(LEASE)).await {
            Ok(PgBegun::Send(attempt)) => {
                self.trap.pass(POINTS[2]);
                if attempt.is_live() {
                    self.note(&format!("outside send {text}"));
                    self.trap.pass(POINTS[3]);
                    if attempt.commit(&text).await.is_ok() {
                        self.note(&format!("outside heard {text}"));
                    }
                }
            }
            Ok(PgBegun::Replayed(value)) => self.note(&format!("outside heard {value}")),
            Err(_) => pause().await,
        }
    }

    /// Creates a task, and works on one.
    async fn work(&self, number: usize) {
        let text = format!("task-{number}");
        let (scope, key, tasks) = (Scope::new("tenant-1", "pack"), key(&text), self.ledger.tasks());
        if tasks.create(&Request::new(&scope, &key, "{}"), TaskSpec::default()).await.is_ok() {
            self.note(&format!("task heard {text}"));
        }
        let Ok(Some(claimed)) = tasks.claim(&["pack"], &self.name, LEASE).await else { return pause().await };
        self.trap.pass(POINTS[4]);
        let text = claimed.key.as_ref().unwrap().as_str();
        for step in 1..=2 {
            let name = format!("{text}/{step}");
            let name = &*name;
            let done = tasks.checkpoint_with(&claimed.lease, Progress { step, ..Progress::default() }, |tx| {
                Box::pin(async move {
                    tx.execute("INSERT INTO effect(key) VALUES ($1)", &[(&name, Type::TEXT)]).await?;
                    Ok(())
                })
            });
            if done.await.is_err() {
                return pause().await;
            }
            self.note(&format!("step heard {name}"));
            self.trap.pass(POINTS[5]);
        }
        if tasks.complete(&claimed.lease, Body::new("packed").unwrap()).await.is_ok() {
            self.note(&format!("end heard {text}"));
        }
    }
}

/// Not a test by itself: a replica, until it is killed.
#[test]
fn process_that_does_all_of_it() {
    let Ok(config) = std::env::var(CONFIG) else { return };
    let text = |name: &str| std::env::var(name).unwrap_or_default();
    let (name, first): (String, usize) = (text(NAME), text(FIRST).parse().unwrap());
    let trap: &'static Trap = Box::leak(Box::new(Trap::of_process()));
    let log: &'static File = Box::leak(Box::new(OpenOptions::new().append(true).create(true).open(text(LOG)).unwrap()));
    runtime().block_on(async {
        let ledger = loop {
            // The server may be down.
            if let Ok(ledger) = PgLedger::open(&config, options()).await {
                break ledger;
            }
            pause().await;
        };
        let hasty = std::env::var_os(HASTY).is_some();
        let replica = Replica { ledger, name: name.clone(), log, trap, hasty };
        let mut workers = Vec::new();
        for worker in 0..4 {
            let replica = replica.clone();
            let seed = name.bytes().fold(worker, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(byte));
            workers.push(tokio::spawn(async move {
                let mut rng = Rng::new(seed);
                for step in 0.. {
                    // All replicas move over the same few keys, slowly.
                    let number = first + step / 2 + rng.below(3);
                    match worker {
                        0 => replica.leave(number, rng.below(6000) as u64).await,
                        1 => replica.relay().await,
                        2 => replica.outside(number).await,
                        _ => replica.work(number).await,
                    }
                }
            }));
        }
        for worker in workers {
            worker.await.unwrap();
        }
    });
}

/// What the database holds in the end.
#[derive(Clone, Debug, Default)]
struct Held {
    /// The key of each row that an effect left.
    effects: Vec<String>,
    /// Key, state and line of each message, in the order in which they were left.
    messages: Vec<(String, i16, Option<String>)>,
    outside: BTreeMap<String, i16>,
    tasks: BTreeMap<String, String>,
}

impl Held {
    async fn read(config: &str) -> Self {
        let client = stranger(config).await;
        let rows = async |sql: &str| client.query(sql, &[]).await.unwrap();
        let effects = rows("SELECT key FROM effect").await;
        let messages = rows("SELECT key, state, ordering_key FROM ledger_outbox ORDER BY id").await;
        let outside = rows("SELECT key, state FROM ledger_key WHERE operation = 'outside'").await;
        let tasks = rows("SELECT key, status FROM ledger_task").await;
        Self {
            effects: effects.iter().map(|row| row.get(0)).collect(),
            messages: messages.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect(),
            outside: outside.iter().map(|row| (row.get(0), row.get(1))).collect(),
            tasks: tasks.iter().map(|row| (row.get(0), row.get(1))).collect(),
        }
    }
}

const COMMITTED: i16 = 2;
const DELIVERED: i16 = 3;

/// How often each was heard or sent; or what no such database can have told.
fn check<'a>(lines: &'a [String], held: &Held) -> Result<BTreeMap<&'a str, usize>, String> {
    let effects: BTreeSet<&str> = held.effects.iter().map(String::as_str).collect();
    if effects.len() < held.effects.len() {
        return Err("an effect is there twice".into());
    }
    let messages: BTreeMap<&str, i16> = held.messages.iter().map(|(key, state, _)| (&**key, *state)).collect();
    let orders = effects.iter().copied().filter(|key| key.starts_with("order-"));
    if messages.len() < held.messages.len() || !messages.keys().copied().eq(orders) {
        return Err("an effect and its message are not both there, once".into());
    }
    let mut counts = BTreeMap::new();
    let mut sent: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, line) in lines.iter().enumerate() {
        let (what, key) = line.rsplit_once(' ').ok_or_else(|| line.clone())?;
        *counts.entry(what).or_insert(0) += 1;
        let holds = match what {
            "message send" | "outside send" => sent.insert(key, at).is_none(),
            "left heard" => messages.contains_key(key),
            "message heard" => messages.get(key) == Some(&DELIVERED) && sent.contains_key(key),
            "outside heard" => held.outside.get(key) == Some(&COMMITTED) && sent.contains_key(key),
            "task heard" => held.tasks.contains_key(key),
            "step heard" => effects.contains(key),
            "end heard" => held.tasks.get(key).is_some_and(|status| status == "completed"),
            _ => false,
        };
        if !holds {
            return Err(format!("line {at}: {line}"));
        }
    }
    let delivered = messages.iter().filter(|(_, state)| **state == DELIVERED);
    if let Some((key, _)) = delivered.into_iter().find(|(key, _)| !sent.contains_key(**key)) {
        return Err(format!("{key} is delivered and was never sent"));
    }
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    for (key, _, ordering_key) in &held.messages {
        if let (Some(ordering_key), Some(at)) = (ordering_key, sent.get(key.as_str()))
            && last.insert(ordering_key, *at).is_some_and(|before| before > *at)
        {
            return Err(format!("{key} went out before one that comes before it in {ordering_key}"));
        }
    }
    Ok(counts)
}

#[test]
fn what_no_database_can_have_told_is_refused() {
    let lines = |text: &str| text.split('\n').map(str::to_owned).collect::<Vec<_>>();
    let good = "left heard order-0\nmessage send order-0\nmessage heard order-0\nmessage send order-1\noutside send outside-1\n\
                outside heard outside-1\noutside heard outside-1\ntask heard task-1\nstep heard task-1/1\nend heard task-1";
    let line = || Some("line-0".to_owned());
    let held = Held {
        effects: ["order-0", "order-1", "task-1/1"].map(str::to_owned).to_vec(),
        messages: vec![("order-0".into(), DELIVERED, line()), ("order-1".into(), 5, line())],
        outside: BTreeMap::from([("outside-1".into(), COMMITTED)]),
        tasks: BTreeMap::from([("task-1".into(), "completed".into())]),
    };
    assert_eq!(check(&lines(good), &held).unwrap()["outside heard"], 2);
    let wrong = |text: &str, held: &Held| assert!(check(&lines(text), held).is_err(), "{text}\n{held:?}");
    let spoil = |act: &dyn Fn(&mut Held)| {
        let mut other = held.clone();
        act(&mut other);
        wrong(good, &other);
    };
    for twice in ["message send order-0", "outside send outside-1"] {
        wrong(&format!("{good}\n{twice}"), &held);
    }
    for lost in
        ["left heard order-9", "task heard task-9", "step heard task-1/2", "end heard task-9", "message heard order-1"]
    {
        wrong(&format!("{good}\n{lost}"), &held);
    }
    wrong(&good.replace("message send order-0\n", ""), &held);
    wrong(&good.replace("message send order-0\nmessage heard order-0\n", ""), &held);
    wrong(&good.replace("order-0", "order-x").replace("order-1", "order-0").replace("order-x", "order-1"), &held);
    spoil(&|held| held.effects.push("task-1/1".into()));
    spoil(&|held| drop(held.effects.remove(0)));
    spoil(&|held| drop(held.messages.pop()));
    spoil(&|held| held.messages.push(("order-1".into(), 1, None)));
    spoil(&|held| held.outside = BTreeMap::from([("outside-1".into(), 4)]));
    spoil(&|held| drop(held.tasks.insert("task-1".into(), "working".into())));
    spoil(&|held| held.messages.reverse());
}

fn read(log: &Path) -> Vec<String> {
    fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect()
}

const PART: (&str, &str) = ("chaos::process_that_does_all_of_it", "-");

/// Starts a replica and ends it at its point.
fn kill_one(config: &str, log: &Path, name: &str, trap: (&str, usize), hasty: bool) {
    let mut peer = spawn(PART, config, log, name, trap, hasty);
    while let Some(found) = peer.line() {
        if found.starts_with("at ") {
            break;
        }
    }
    peer.kill();
}

#[test]
fn messages_tasks_and_outside_effects_survive_killed_servers_connections_and_replicas() {
    let name = "messages_tasks_and_outside_effects_survive_killed_servers_connections_and_replicas";
    let Some(cluster) = Cluster::start() else { return skip(name, "PostgreSQL with its server programs") };
    let config = cluster.config("postgres");
    let (kills, cuts) = (amount("STEADY_PG_KILLS", 28), amount("STEADY_PG_CUTS", 24));
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("history");
    runtime().block_on(PgLedger::open(&config, options())).unwrap();
    let done = AtomicBool::new(false);
    let config = &*config;
    thread::scope(|threads| {
        let slots: Vec<_> = (0..2)
            .map(|slot| {
                let log = &log;
                threads.spawn(move || {
                    for round in (slot..kills).step_by(2) {
                        let trap = (POINTS[round % POINTS.len()], 1 + round * 5 % 7);
                        kill_one(config, log, &format!("r{round}"), trap, false);
                    }
                })
            })
            .collect();
        // One that goes on until the others are done, so that something is always under way.
        let (steady, is_done) = (&log, &done);
        let lasting = threads.spawn(move || {
            let mut peer = spawn(PART, config, steady, "steady", ("never", usize::MAX), false);
            while !is_done.load(Ordering::SeqCst) {
                thread::park_timeout(Duration::from_millis(20));
            }
            peer.kill();
        });
        disturb(&cluster, config, cuts, &log);
        slots.into_iter().for_each(|slot| slot.join().unwrap());
        done.store(true, Ordering::SeqCst);
        lasting.join().unwrap();
    });
    // Whatever a killed replica had sent to the server is done, or never will be.
    cluster.down();
    cluster.up();
    runtime().block_on(async {
        let lines = read(&log);
        let held = Held::read(config).await;
        let counts = check(&lines, &held).unwrap_or_else(|violation| panic!("{violation}\n{held:?}"));
        println!("{kills} replicas killed, {cuts} cuts of connections and power: {counts:?}");
        assert_eq!(counts.len(), 8, "something of everything: {counts:?}");
        let ledger = PgLedger::open(config, options()).await.unwrap();
        assert!(ledger.check(|_, _| {}).await.unwrap().is_sound());
    });
}

/// The test of the test: a replica that says that a message is left before that is committed.
#[test]
fn a_replica_that_leaves_a_message_too_early_is_caught() {
    let name = "a_replica_that_leaves_a_message_too_early_is_caught";
    let Some(cluster) = Cluster::start() else { return skip(name, "PostgreSQL with its server programs") };
    let config = cluster.config("postgres");
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("history");
    runtime().block_on(PgLedger::open(&config, options())).unwrap();
    for round in 0..60 {
        kill_one(&config, &log, &format!("r{round}"), (POINTS[6], 1), true);
        // Nobody is at a commit any more.
        cluster.down();
        cluster.up();
        if check(&read(&log), &runtime().block_on(Held::read(&config))).is_err() {
            return;
        }
    }
    panic!("nobody noticed");
}
