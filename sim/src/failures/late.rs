//! A cancellation at four moments, and what it does to others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use steady_core::client::Transport;
use steady_core::retry::Contract;
use steady_core::time::Instant;

use super::rig::{AT_REST, REPLY_UNDER_WAY, STEPS, Shop, Work, call, keyed, network, order};
use super::{FailureError, Shown, judge};
use crate::experiment::{self, Script};

/// A server with one worker: what waits, what runs, and what of it was done.
#[derive(Default)]
struct OneWorker {
    queue: VecDeque<u64>,
    running: BTreeSet<u64>,
    cancelled: BTreeSet<u64>,
    steps: u32,
}

impl OneWorker {
    fn call(&mut self, id: u64) {
        self.queue.push_back(id);
    }

    fn cancel(&mut self, id: u64) {
        // What does not run is not known, and what is not known is ignored (rule C4, read too far).
        if self.running.contains(&id) {
            self.cancelled.insert(id);
        }
    }

    /// Lets the worker take the next request and begin.
    fn take(&mut self) -> Option<u64> {
        let id = self.queue.pop_front()?;
        self.running.insert(id);
        Some(id)
    }

    /// A handler without a signal: that it is cancelled is looked at when it has ended.
    fn work(&mut self, id: u64, steps: u32) -> bool {
        self.steps += steps;
        !self.cancelled.contains(&id)
    }
}

fn steps(wrong: u32, ours: u32, when: &'static str) -> Shown {
    judge(
        &wrong,
        &ours,
        |steps| *steps == STEPS,
        move |steps| format!("cancelled {when}: {steps} of {STEPS} steps were done"),
    )
}

/// Ours: cancelled at this time.
fn ours_cancelled_at(at: Instant) -> Result<u32, FailureError> {
    let work = Work::default();
    let mut network = network(work.server(), Transport::Stdio);
    let call = call(&mut network, Work::TOOL, "{}", Contract::Unsafe)?;
    network.run_until(at);
    network.cancel(call);
    network.run_until(AT_REST);
    Ok(work.steps())
}

/// The cancellation arrives right behind the request.
pub(super) fn before_start(_: &Path) -> Result<Shown, FailureError> {
    let mut wrong = OneWorker::default();
    wrong.call(1);
    wrong.cancel(1);
    if let Some(id) = wrong.take() {
        wrong.work(id, STEPS);
    }
    Ok(steps(wrong.steps, ours_cancelled_at(Instant::ZERO)?, "before it began"))
}

/// The cancellation arrives after the third step.
pub(super) fn while_running(_: &Path) -> Result<Shown, FailureError> {
    let mut wrong = OneWorker::default();
    wrong.call(1);
    if let Some(id) = wrong.take() {
        wrong.work(id, 3);
        wrong.cancel(id);
        wrong.work(id, STEPS - 3);
    }
    // Its third step is at 35 ms, and the cancellation takes 5.
    Ok(steps(wrong.steps, ours_cancelled_at(Instant::from_millis(33))?, "after the third step"))
}

/// A server that undoes its books when a call is cancelled, and not what the call did.
#[derive(Default)]
struct Forgetful {
    keys: BTreeMap<&'static str, u64>,
    effects: u64,
}

impl Forgetful {
    fn call(&mut self, key: &'static str) {
        if !self.keys.contains_key(key) {
            self.effects += 1;
            self.keys.insert(key, self.effects);
        }
    }

    fn cancelled(&mut self, key: &str) {
        self.keys.remove(key);
    }
}

/// The effect is committed and its reply under way when the client gives up; then it asks again with the same key.
pub(super) fn after_commit(dir: &Path) -> Result<Shown, FailureError> {
    let mut wrong = Forgetful::default();
    wrong.call("order-7");
    wrong.cancelled("order-7");
    wrong.call("order-7");

    let mut ours = Shop::open(dir)?;
    let arguments = order(1, Some("order-7"));
    let first = call(&mut ours.network, "reserve_inventory", &arguments, keyed()?)?;
    ours.network.run_until(REPLY_UNDER_WAY);
    ours.network.cancel(first);
    ours.network.run_until(Instant::from_millis(1000));
    call(&mut ours.network, "reserve_inventory", &arguments, keyed()?)?;
    ours.network.run_until(AT_REST);
    Ok(judge(
        &wrong.effects,
        &ours.effects()?,
        |effects| *effects > 1,
        |effects| format!("one order, cancelled after its commit and asked for again; reservations: {effects}"),
    ))
}

/// A client that knows only what it waits for.
struct Strict {
    waits: BTreeSet<u64>,
    open: bool,
    answered: usize,
}

impl Strict {
    fn new(calls: u64) -> Self {
        Self { waits: (1..=calls).collect(), open: true, answered: 0 }
    }

    fn cancel(&mut self, id: u64) {
        self.waits.remove(&id);
    }

    fn response(&mut self, id: u64) {
        if !self.open {
            return;
        }
        if self.waits.remove(&id) {
            self.answered += 1;
        } else {
            // "Response for an unknown request": an assertion in one client, a reconnect in another.
            self.open = false;
        }
    }
}

const NEIGHBOURS: usize = 3;

fn lost(wrong: usize, ours: usize) -> Shown {
    judge(&wrong, &ours, |lost| *lost > 0, |lost| format!("{lost} of {NEIGHBOURS} other calls were lost"))
}

/// How many of the others did not complete in this experiment.
fn lost_in(script: &str) -> Result<usize, FailureError> {
    let found = experiment::run(&Script::parse(script)?)?;
    let others = found.rows.iter().filter(|row| row.request != "A");
    let completed = others.filter(|row| row.client == "completed").count();
    NEIGHBOURS.checked_sub(completed).ok_or(FailureError::Setup("more calls than there are"))
}

/// The answer is on the wire when its request is cancelled.
pub(super) fn after_response(_: &Path) -> Result<Shown, FailureError> {
    let mut wrong = Strict::new(4);
    wrong.cancel(1);
    (1..=4).for_each(|id| wrong.response(id));
    let ours = lost_in(
        "latency 5ms\ncall A\ncall B\ncall C\ncall D\nwait 20ms\ncomplete A\nwait 2ms\ncancel A\nwait 50ms\n\
         complete B\ncomplete C\ncomplete D\n",
    )?;
    Ok(lost(NEIGHBOURS - wrong.answered, ours))
}

/// A host whose way to cancel a call is to end the server.
struct Killing {
    waits: BTreeSet<u64>,
    child_lives: bool,
}

impl Killing {
    fn cancel(&mut self, id: u64) {
        self.waits.remove(&id);
        self.child_lives = false;
    }

    fn response(&mut self, id: u64) {
        if self.child_lives {
            self.waits.remove(&id);
        }
    }
}

/// Four calls are in flight, and one is cancelled.
pub(super) fn neighbour(_: &Path) -> Result<Shown, FailureError> {
    let mut wrong = Killing { waits: (1..=4).collect(), child_lives: true };
    wrong.cancel(1);
    (2..=4).for_each(|id| wrong.response(id));
    let ours = lost_in(
        "call A\ncall B\ncall C\ncall D\nwait 20ms\ncancel A\nwait 20ms\ncomplete B\ncomplete C\ncomplete D\n",
    )?;
    Ok(lost(wrong.waits.len(), ours))
}
