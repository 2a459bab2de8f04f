//! The same alphabet, searched in two other ways: all sequences of a few events in small worlds, and random ones that
//! shrink.

use proptest::prelude::*;
use steady_sim::swarm::script::{Form, Server, Shape, Tool, Way, World};
use steady_sim::swarm::{Event, Script, play};

/// Events of a sequence in the search of all.
const DEPTH: usize = 4;

fn world(clients: Vec<Shape>) -> World {
    World {
        clients,
        replicas: 2,
        ledger: Form::Memory,
        delay_ms: 1,
        pipe_bytes: 512,
        server_in_flight: 8,
        server_buffer: 2,
        server_max_ms: 4000,
        server_idle_ms: 0,
        grace_ms: 50,
        client_in_flight: 8,
        idle_ms: 500,
        max_ms: 2000,
        attempts: 2,
        write_stall_ms: 300,
        probe: false,
        retention_ms: 60_000,
        horizon_ms: 0,
        workers: 0,
        lease_ms: 0,
        mutant: None,
    }
}

fn check(script: &Script) -> Result<(), String> {
    let run = play(script, false).map_err(|error| error.to_string())?;
    match run.violations.first() {
        None => Ok(()),
        Some(broken) => Err(format!("{broken:?}\n{}", script.text())),
    }
}

/// Calls are numbered in the order of their sequence.
fn alphabet(server: Server) -> Vec<fn(u32, Server) -> Event> {
    let mut all: Vec<fn(u32, Server) -> Event> = vec![
        |call, _| Event::Call { client: 0, call, tool: Tool::AddOnce { key: 0, amount: 5 } },
        |call, _| Event::Call { client: 0, call, tool: Tool::Add { amount: 5 } },
        |call, _| Event::Call { client: 0, call, tool: Tool::Work { steps: 2, step_ms: 2 } },
        |call, _| Event::Cancel { client: 0, call: call.saturating_sub(1) },
        |_, _| Event::Wait { ms: 1 },
        |_, _| Event::Wait { ms: 500 },
        |_, _| Event::Step { polls: 1 },
        |_, _| Event::Cut { client: 0 },
        |_, server| Event::Crash(server),
        |_, server| Event::DieInCommit { server, committed: true },
    ];
    if matches!(server, Server::Replica(_)) {
        all.push(|_, _| Event::Double { client: 0 });
    }
    all
}

/// Runs every sequence of [`DEPTH`] events that starts with a call. How many there were.
fn search(shape: Shape, server: Server) -> usize {
    let alphabet = alphabet(server);
    let mut count = 0;
    let mut digits = [0; DEPTH];
    loop {
        let mut call = 0;
        let events = digits.map(|digit| {
            let event = alphabet[digit](call, server);
            call += u32::from(matches!(event, Event::Call { .. }));
            event
        });
        // What comes before the first call changes little, and is covered by shorter sequences after it.
        if matches!(events[0], Event::Call { .. }) {
            let script = Script { world: world(vec![shape]), events: events.to_vec() };
            check(&script).expect("every promise is kept");
            count += 1;
        }
        let Some(at) = digits.iter().rposition(|digit| digit + 1 < alphabet.len()) else { return count };
        digits[at] += 1;
        digits[at + 1..].fill(0);
    }
}

#[test]
fn all_short_sequences_keep_every_promise_on_stdio() {
    assert_eq!(search(Shape::Stdio, Server::Child(0)), 3 * 10 * 10 * 10);
}

#[test]
fn all_short_sequences_keep_every_promise_on_http() {
    assert_eq!(search(Shape::Http, Server::Replica(1)), 3 * 11 * 11 * 11);
}

/// What can happen to a task and to the first of its two workers.
const OF_TASKS: [Event; 7] = [
    Event::CancelTask { client: 0, call: 0 },
    Event::Crash(Server::Worker(0)),
    Event::Restart(Server::Worker(0)),
    Event::Freeze(Server::Worker(0)),
    Event::Thaw(Server::Worker(0)),
    Event::Wait { ms: 250 },
    Event::Wait { ms: 2500 },
];

#[test]
fn all_short_sequences_keep_every_promise_to_a_task() {
    let world = World { ledger: Form::Sqlite, workers: 2, lease_ms: 2000, ..world(vec![Shape::Http]) };
    let job = |call, key| Event::Call { client: 0, call, tool: Tool::Job { key: Some(key), steps: 3, step_ms: 200 } };
    let mut count = 0;
    for first in OF_TASKS {
        for second in OF_TASKS {
            for third in OF_TASKS {
                let begin = [job(0, 0), job(1, 1), Event::Wait { ms: 250 }];
                // The key again, whatever has become of its task.
                let events = begin.into_iter().chain([first, second, third, job(2, 0)]).collect();
                check(&Script { world: world.clone(), events }).expect("every promise is kept");
                count += 1;
            }
        }
    }
    assert_eq!(count, 343);
}

fn tool() -> impl Strategy<Value = Tool> {
    prop_oneof![
        (0..2000_u32).prop_map(|bytes| Tool::Read { bytes }),
        (1..120_u32).prop_map(|amount| Tool::Add { amount }),
        (0..4_u32, 1..3_u32).prop_map(|(key, amount)| Tool::AddOnce { key, amount }),
        (0..8_u32, 0..300_u32).prop_map(|(steps, step_ms)| Tool::Work { steps, step_ms }),
        (1..20_u32, 0..200_u32).prop_map(|(steps, bytes)| Tool::Flood { steps, bytes }),
        (0..900_u32).prop_map(|ms| Tool::Deaf { ms }),
        (0..900_u32).prop_map(|ms| Tool::Stubborn { ms }),
        Just(Tool::Hang),
        Just(Tool::Fail),
        Just(Tool::Panic),
    ]
}

fn server() -> impl Strategy<Value = Server> {
    prop_oneof![(0..2_usize).prop_map(Server::Child), (0..2_usize).prop_map(Server::Replica)]
}

fn event() -> impl Strategy<Value = Event> {
    let client = 0..3_usize;
    let way = prop_oneof![Just(Way::Up), Just(Way::Down)];
    prop_oneof![
        8 => (client.clone(), 0..40_u32, tool()).prop_map(|(client, call, tool)| Event::Call { client, call, tool }),
        3 => (client.clone(), 0..40_u32).prop_map(|(client, call)| Event::Cancel { client, call }),
        1 => (client.clone(), 0..40_u32).prop_map(|(client, call)| Event::Drop { client, call }),
        1 => (client.clone(), 0..2_u32).prop_map(|(client, listen)| Event::Listen { client, listen }),
        1 => (client.clone(), 0..2_u32).prop_map(|(client, listen)| Event::Unlisten { client, listen }),
        1 => Just(Event::Change),
        6 => (0..800_u64).prop_map(|ms| Event::Wait { ms }),
        4 => (1..20_u32).prop_map(|polls| Event::Step { polls }),
        1 => (client.clone(), 0..300_u64).prop_map(|(client, ms)| Event::Delay { client, ms }),
        1 => (client.clone(), way.clone()).prop_map(|(client, way)| Event::Hold { client, way }),
        1 => (client.clone(), way).prop_map(|(client, way)| Event::Release { client, way }),
        1 => client.clone().prop_map(|client| Event::Cut { client }),
        1 => client.clone().prop_map(|client| Event::StopReading { client }),
        1 => client.clone().prop_map(|client| Event::Read { client }),
        1 => server().prop_map(Event::Freeze),
        1 => server().prop_map(Event::Thaw),
        1 => server().prop_map(Event::Crash),
        1 => server().prop_map(Event::Drain),
        1 => server().prop_map(Event::Restart),
        1 => server().prop_map(Event::Collect),
        1 => (server(), any::<bool>()).prop_map(|(server, committed)| Event::DieInCommit { server, committed }),
        1 => client.clone().prop_map(|client| Event::CrashClient { client }),
        1 => client.clone().prop_map(|client| Event::RestartClient { client }),
        1 => client.clone().prop_map(|client| Event::Close { client }),
        1 => (-100_000..100_000_i64).prop_map(|ms| Event::Clock { ms }),
        1 => client.prop_map(|client| Event::Double { client }),
        1 => (0..300_u64).prop_map(|ms| Event::Disk { ms }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn random_sequences_keep_every_promise(events in prop::collection::vec(event(), 0..80), probe in any::<bool>()) {
        let world = World { probe, ..world(vec![Shape::Stdio, Shape::Http, Shape::Stdio]) };
        let script = Script { world, events };
        prop_assert_eq!(Script::parse(&script.text()), Ok(script.clone()));
        if let Err(broken) = check(&script) {
            return Err(TestCaseError::fail(broken));
        }
    }
}
