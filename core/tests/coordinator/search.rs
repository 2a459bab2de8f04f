//! Every sequence of events of two requests, breadth first to the fixed point.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use steady_core::coordinator::{Config, Refusal, Start};
use steady_core::deadline::Limits;
use steady_core::id::ProgressToken;
use steady_core::outbound::Handle;
use steady_core::request::Terminal;
use steady_core::time::Instant;

use super::invariants::{
    coord_1_no_more_than_the_cap, coord_2_an_id_names_one_request, coord_3_a_cancelled_request_is_gone,
    coord_5_only_an_open_listen_is_ended, out_3_nothing_follows_the_end, prog_1_values_increase,
    prog_3_nothing_passes_after_the_end, req_1_one_terminal_state,
};
use super::key;
use super::searched::Searched;
use super::world::World;

const CAP: usize = 2;
const STRAGGLERS: usize = 1;
const LISTENS: usize = 1;

/// Short clocks, so that every relative time is reached.
fn config() -> Config {
    let ns = |nanos| Some(Duration::from_nanos(nanos));
    Config {
        in_flight: CAP,
        stragglers: STRAGGLERS,
        listens: LISTENS,
        limits: Limits { idle: ns(1), maximum: ns(2) },
        progress_interval: Duration::from_nanos(1),
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Start(&'static str),
    Report(Handle),
    Repeat(Handle),
    Complete(Handle),
    Late(Handle),
    Cancel(&'static str),
    CancelUnknown,
    JustBefore,
    Onto,
    Poll,
    Pop,
    EndListen(Handle),
    Close,
}

/// Two requests: `a`, which asks for progress, and `b`, which does not and may be a listen.
struct Search {
    listen: bool,
    seen: HashSet<String>,
    queue: VecDeque<World>,
}

impl Search {
    fn run(listen: bool) -> Searched {
        let start = World::new(config());
        let mut searched = Searched::begin();
        let mut search = Self { listen, seen: HashSet::new(), queue: VecDeque::new() };
        searched.state(search.seen.insert(key(&start)));
        search.queue.push_back(start);
        while let Some(world) = search.queue.pop_front() {
            let before = terminals(&world);
            for op in ops(&world, &before) {
                let mut after = world.clone();
                search.apply(&mut after, op);
                check(&before, op, &after);
                searched.transitions += 1;
                if searched.state(search.seen.insert(key(&after))) {
                    search.probe(&after);
                    search.queue.push_back(after);
                }
            }
        }
        searched
    }

    fn apply(&self, world: &mut World, op: Op) {
        match op {
            Op::Start(id) => {
                let known = world.coordinator.knows(&id.into());
                let token = (id == "a").then(|| ProgressToken(id.into()));
                let start = Start { id: id.into(), token, listen: self.listen && id == "b" };
                let started = world.start_with(start);
                coord_2_an_id_names_one_request(known, started.is_ok(), &id);
                assert_eq!(started == Err(Refusal::DuplicateId), known);
            }
            Op::Report(handle) => {
                let _accepted: Option<bool> = world.report(handle, false);
            }
            Op::Repeat(handle) => {
                let value = f64::from(world.handlers[&handle]);
                if world.report(handle, true) == Some(true) {
                    prog_1_values_increase(Some(value), value, &op);
                }
            }
            Op::Complete(handle) => world.complete(handle),
            Op::Late(handle) => {
                let before = world.outbound.kept() + world.outbound.evictable();
                prog_3_nothing_passes_after_the_end(true, world.report(handle, false) == Some(true), &op);
                world.complete(handle);
                let more = world.outbound.kept() + world.outbound.evictable() != before;
                out_3_nothing_follows_the_end(more, &op);
            }
            Op::Cancel(id) => {
                let ended = world.cancel(&id.into());
                let known = world.coordinator.knows(&id.into());
                coord_3_a_cancelled_request_is_gone(ended == Some(true), known, &op);
                assert_eq!(known, ended == Some(false), "{op:?}");
            }
            Op::CancelUnknown => {
                let before = key(world);
                assert_eq!(world.cancel(&7.into()), None);
                assert_eq!(world.cancel(&"c".into()), None);
                assert_eq!(key(world), before, "C4: nothing but a counter");
            }
            Op::JustBefore | Op::Onto => {
                if let Some(at) = next_deadline(world).filter(|at| *at > world.now) {
                    let before = u64::from(matches!(op, Op::JustBefore));
                    world.now = world.now.max(Instant::from_nanos(at.as_nanos() - before));
                }
            }
            Op::Poll => {
                let _wake_at: Option<Instant> = world.poll();
            }
            Op::Pop => {
                let _line = world.pop();
            }
            Op::EndListen(handle) => {
                let listen = self.listen && world.coordinator.id(handle) == Some(&"b".into());
                let open = world.coordinator.seat(handle).is_some_and(|seat| seat.terminal().is_none());
                let ended = world.coordinator.end_listen(world.now, handle);
                coord_5_only_an_open_listen_is_ended(listen && open, ended.is_ok(), &op);
                if let Ok(end) = ended {
                    assert_eq!(*end.cancellation.id(), "b".into());
                    world.act(handle, end.effect);
                }
            }
            Op::Close => world.close(),
        }
    }

    /// What a further request is answered in this state (COORD-1, COORD-3).
    fn probe(&self, world: &World) {
        let coordinator = &world.coordinator;
        let mut closed = world.clone();
        closed.close();
        assert_eq!(closed.start("c", false), Err(Refusal::Closed));
        let full = coordinator.in_flight() >= CAP || coordinator.stragglers() >= STRAGGLERS;
        let mut probe = world.clone();
        let answer = probe.start("c", false);
        if answer != Err(Refusal::Closed) {
            coord_1_no_more_than_the_cap(probe.coordinator.in_flight(), CAP, &answer);
            assert_eq!(answer == Err(Refusal::Full(CAP)), full);
            assert_eq!(answer.is_ok(), !full);
        }
    }
}

fn ops(world: &World, terminals: &Terminals) -> Vec<Op> {
    let mut ops = vec![
        Op::Start("a"),
        Op::Start("b"),
        Op::Cancel("a"),
        Op::Cancel("b"),
        Op::CancelUnknown,
        Op::JustBefore,
        Op::Onto,
        Op::Poll,
        Op::Pop,
        Op::Close,
    ];
    for (&handle, &value) in &world.handlers {
        if terminals.get(&handle) == Some(&None) {
            ops.extend([Op::Report(handle), Op::Complete(handle)]);
            ops.extend((value > 0).then_some(Op::Repeat(handle)));
        } else {
            // Nobody waits for this one; what it still says has no effect, and then it ends.
            ops.push(Op::Late(handle));
        }
    }
    ops.extend(world.coordinator.handles().map(Op::EndListen));
    ops
}

fn next_deadline(world: &World) -> Option<Instant> {
    // A deadline can be read only after the work is drained; the copy is drained at a time before all of them.
    match world.coordinator.clone().poll(Instant::ZERO) {
        steady_core::coordinator::Polled::Idle { wake_at } => wake_at,
        steady_core::coordinator::Polled::Acted(..) => unreachable!("nothing is due at the origin"),
    }
}

/// How each request in the table has ended, if it has.
type Terminals = BTreeMap<Handle, Option<Terminal>>;

fn terminals(world: &World) -> Terminals {
    let mut coordinator = world.coordinator.clone();
    let handles: Vec<Handle> = coordinator.handles().collect();
    let terminal = |handle| coordinator.seat(handle).and_then(|seat| seat.terminal());
    handles.iter().copied().zip(handles.iter().copied().map(terminal)).collect()
}

fn check(before: &Terminals, op: Op, after: &World) {
    let coordinator = &after.coordinator;
    coord_1_no_more_than_the_cap(coordinator.in_flight(), CAP, &op);
    coord_1_no_more_than_the_cap(coordinator.listens(), LISTENS, &op);
    assert!(coordinator.stragglers() <= CAP + STRAGGLERS, "{op:?}");
    assert!(coordinator.armed() <= coordinator.in_flight(), "{op:?}");
    let after = terminals(after);
    assert_eq!(after.len(), coordinator.in_flight(), "{op:?}");
    for (handle, new) in after {
        let old = before.get(&handle).copied().flatten();
        req_1_one_terminal_state(old, new, &op);
        let silent = matches!(new, Some(Terminal::Cancelled | Terminal::Lost));
        coord_3_a_cancelled_request_is_gone(silent, true, &op);
    }
}

/// The state with times relative to now and generations forgotten: the coordinator holds none but current ones, and
/// compares values and generations for order and equality only.
fn key(world: &World) -> String {
    let mut key = key::key(&world.coordinator, ("places", "counters"), world.now.as_nanos());
    // The buffer by what it would hand out, and by the places of purged messages between.
    let mut outbound = world.outbound.clone();
    while let Some((popped, last)) = outbound.pop(|item| matches!(item, steady_core::outbound::Item::Text(_))) {
        let index = popped.handle.map(Handle::index);
        key.push_str(&format!("|{index:?} {last} {}", outbound.evictable()));
    }
    key
}

fn report(name: &str, searched: &Searched) {
    searched.report(name);
    assert!(searched.states > 1000, "the search is not cut short");
}

#[test]
fn every_sequence_of_two_requests() {
    report("coordinator, two requests", &Search::run(false));
}

#[test]
fn every_sequence_of_a_request_and_a_listen() {
    report("coordinator, a request and a listen", &Search::run(true));
}
