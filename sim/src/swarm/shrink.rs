//! Makes a failing script small: delta debugging over its events, then over what is in them and in its world.

use super::journal::Check;
use super::script::{Event, Form, Script, Tool, World};

/// Makes `script` smaller while it still breaks `check`. `breaks` runs a script and says what it breaks first; it is asked
/// at most `runs` times.
pub fn shrink(script: &Script, check: Check, runs: usize, breaks: impl Fn(&Script) -> Option<Check>) -> Script {
    let mut left = runs;
    let mut fails = |candidate: &Script| {
        if left == 0 {
            return false;
        }
        left -= 1;
        breaks(candidate) == Some(check)
    };
    let mut best = script.clone();
    loop {
        let before = best.clone();
        remove_events(&mut best, &mut fails);
        smaller_events(&mut best, &mut fails);
        smaller_world(&mut best, &mut fails);
        if best == before {
            return best;
        }
    }
}

/// Removes runs of events, long ones first.
fn remove_events(best: &mut Script, fails: &mut impl FnMut(&Script) -> bool) {
    let mut size = best.events.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        let mut removed = false;
        while at < best.events.len() {
            let mut candidate = best.clone();
            candidate.events.drain(at..(at + size).min(best.events.len()));
            if fails(&candidate) {
                *best = candidate;
                removed = true;
            } else {
                at += size;
            }
        }
        if size > 1 || !removed {
            size /= 2;
        }
    }
}

/// Replaces events by simpler ones.
fn smaller_events(best: &mut Script, fails: &mut impl FnMut(&Script) -> bool) {
    for at in 0..best.events.len() {
        for simpler in simpler(best.events[at]) {
            if simpler == best.events[at] {
                continue;
            }
            let mut candidate = best.clone();
            candidate.events[at] = simpler;
            if fails(&candidate) {
                *best = candidate;
                break;
            }
        }
    }
}

fn simpler(event: Event) -> Vec<Event> {
    match event {
        Event::Wait { ms } => {
            [1, 10, 100, 1000, ms / 2].into_iter().filter(|less| *less < ms).map(|ms| Event::Wait { ms }).collect()
        }
        Event::Step { polls } => {
            [1, 2, 4, polls / 2].into_iter().filter(|less| *less < polls).map(|polls| Event::Step { polls }).collect()
        }
        Event::Call { client, call, tool } => {
            let with = |tool| Event::Call { client, call, tool };
            match tool {
                Tool::Work { steps, step_ms } => {
                    let fewer = [1, 2, steps / 2].into_iter().filter(|less| *less < steps);
                    fewer.map(|steps| with(Tool::Work { steps, step_ms })).collect()
                }
                Tool::Flood { steps, bytes } => {
                    let fewer = [1, 2, steps / 2].into_iter().filter(|less| *less < steps);
                    fewer.map(|steps| with(Tool::Flood { steps, bytes })).collect()
                }
                Tool::Job { key, steps, step_ms } => {
                    let fewer = [1, 2, steps / 2].into_iter().filter(|less| *less < steps);
                    fewer.map(|steps| with(Tool::Job { key, steps, step_ms })).collect()
                }
                Tool::Read { bytes } if bytes > 0 => vec![with(Tool::Read { bytes: 0 })],
                Tool::AddOnce { key, amount } if key > 0 => vec![with(Tool::AddOnce { key: 0, amount })],
                Tool::Read { .. }
                | Tool::Add { .. }
                | Tool::AddOnce { .. }
                | Tool::Hang
                | Tool::Deaf { .. }
                | Tool::Stubborn { .. }
                | Tool::Fail
                | Tool::Panic => Vec::new(),
            }
        }
        Event::Cancel { .. }
        | Event::CancelTask { .. }
        | Event::Drop { .. }
        | Event::Listen { .. }
        | Event::Unlisten { .. }
        | Event::Change
        | Event::Delay { .. }
        | Event::Hold { .. }
        | Event::Release { .. }
        | Event::Cut { .. }
        | Event::StopReading { .. }
        | Event::Read { .. }
        | Event::Freeze(_)
        | Event::Thaw(_)
        | Event::Crash(_)
        | Event::DieInCommit { .. }
        | Event::Drain(_)
        | Event::Restart(_)
        | Event::Collect(_)
        | Event::CrashClient { .. }
        | Event::RestartClient { .. }
        | Event::Close { .. }
        | Event::Clock { .. }
        | Event::Double { .. }
        | Event::Disk { .. } => Vec::new(),
    }
}

/// Brings what is special of the world back to what is usual.
fn smaller_world(best: &mut Script, fails: &mut impl FnMut(&Script) -> bool) {
    let usual: [fn(&mut World); 16] = [
        |world| world.ledger = Form::Memory,
        |world| world.replicas = 1,
        |world| world.horizon_ms = 0,
        |world| (world.workers, world.lease_ms) = (0, 0),
        |world| world.workers = world.workers.min(1),
        |world| world.attempts = 1,
        |world| world.delay_ms = 1,
        |world| world.pipe_bytes = 65536,
        |world| world.server_in_flight = 256,
        |world| world.server_buffer = 64,
        |world| (world.server_max_ms, world.server_idle_ms) = (600_000, 0),
        |world| world.client_in_flight = 256,
        |world| world.grace_ms = 500,
        |world| world.write_stall_ms = 60_000,
        |world| world.probe = false,
        |world| (world.idle_ms, world.max_ms) = (10_000, 20_000),
    ];
    for change in usual {
        let mut candidate = best.clone();
        change(&mut candidate.world);
        // What an event names has to be there.
        if candidate != *best && Script::parse(&candidate.text()).is_ok() && fails(&candidate) {
            *best = candidate;
        }
    }
    while best.world.clients.len() > 1 {
        let mut candidate = best.clone();
        candidate.world.clients.pop();
        if Script::parse(&candidate.text()).is_err() || !fails(&candidate) {
            return;
        }
        *best = candidate;
    }
}
