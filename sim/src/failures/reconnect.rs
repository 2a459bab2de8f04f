//! What was missed, who comes back when, and what an acknowledgement means.

use std::path::Path;
use std::time::Duration;

use steady_core::backoff::Jitter;
use steady_core::client::{Client, Config, Input, Output, Transport};
use steady_core::follow::{self, Follow};
use steady_core::id::{ClientId, WireId};
use steady_core::subscription::{self, Filter, Refetch};
use steady_core::task::{self, Status, Task};
use steady_core::time::Instant;

use super::{FailureError, Shown, judge};
use crate::herd::{self, Herd, Retry};

/// What a client believes the list of tools to be, and what it is.
struct View {
    seen: u32,
    is: u32,
}

/// The client that asks for a replay. A server of this revision has none: it ignores the header (rule H7).
#[derive(Default)]
struct Resuming {
    seen: u32,
    last_event: Option<u32>,
}

impl Resuming {
    fn notice(&mut self, version: u32) {
        (self.seen, self.last_event) = (version, Some(version));
    }

    /// The header of the next GET: from there on, it thinks, the server repeats what it missed.
    const fn reconnects(&self) -> Option<u32> {
        self.last_event
    }
}

/// The shipped client machine, with one subscription.
struct Listening {
    machine: Client<Refetch, ()>,
    subscription: steady_core::id::SubscriptionId,
    wire: Option<WireId>,
    seen: u32,
    sent_last_event_id: bool,
}

impl Listening {
    fn open() -> Result<Self, FailureError> {
        let jitter = |stream| Jitter::seeded(ClientId::new(1), stream);
        let mut machine = Client::new(Instant::ZERO, Config::new(Transport::Http), jitter(0));
        let filter = Filter::parse(r#"{"toolsListChanged":true}"#);
        let filter = filter.map_err(|_| FailureError::Setup("the filter is refused"))?;
        let subscription = machine.listen(Instant::ZERO, filter, subscription::Config::default(), jitter(1));
        let subscription = subscription.map_err(|_| FailureError::Setup("no room for a subscription"))?;
        Ok(Self { machine, subscription, wire: None, seen: 0, sent_last_event_id: false })
    }

    /// Does what the machine says; the server's list is at this version.
    fn look(&mut self, version: u32) -> Option<Instant> {
        loop {
            match self.machine.poll_output() {
                Output::Idle { wake_at } => return wake_at,
                Output::Listen { plan, .. } => {
                    self.sent_last_event_id |= plan.send_last_event_id();
                    self.wire = Some(plan.wire());
                }
                // Reading is asking the server that has it.
                Output::Gap { .. } => {
                    self.seen = version;
                    self.machine.refetched(self.subscription);
                }
                Output::Notice { .. } => self.seen = version,
                Output::Send { .. }
                | Output::Signal { .. }
                | Output::Progress { .. }
                | Output::Finished { .. }
                | Output::Unsubscribed { .. } => {}
            }
        }
    }

    fn hear(&mut self, now: Instant, version: u32, input: impl FnOnce(WireId) -> Input<()>) -> Option<Instant> {
        if let Some(wire) = self.wire {
            self.machine.handle_input(now, input(wire));
        }
        self.look(version)
    }
}

/// The list changes once while the client listens, and once while its stream is broken.
pub(super) fn last_event_id(_: &Path) -> Result<Shown, FailureError> {
    let mut wrong = Resuming::default();
    wrong.notice(1);
    // Version 2 comes while nobody listens. What the server repeats for the header: nothing.
    let replayed: [u32; 0] = [];
    let asked = wrong.reconnects();
    replayed.into_iter().filter(|version| asked.is_some_and(|last| *version > last)).for_each(|v| wrong.notice(v));

    let at = Instant::from_millis;
    let mut ours = Listening::open()?;
    ours.look(0);
    ours.hear(at(1), 0, |wire| Input::Acknowledged { wire });
    ours.hear(at(2), 1, |wire| Input::Notice { wire, notice: (), about: Some(Refetch::Tools) });
    let wake_at = ours.hear(at(90_000), 1, |wire| Input::StreamLost { wire });
    let wake_at = wake_at.ok_or(FailureError::Setup("it does not ask again"))?;
    ours.machine.handle_timeout(wake_at);
    ours.look(2);
    ours.hear(wake_at, 2, |wire| Input::Acknowledged { wire });
    if ours.sent_last_event_id {
        return Err(FailureError::Setup("the shipped client sent Last-Event-ID"));
    }
    let (wrong, ours) = (View { seen: wrong.seen, is: 2 }, View { seen: ours.seen, is: 2 });
    Ok(judge(
        &wrong,
        &ours,
        |view| view.seen != view.is,
        |view| format!("after the reconnect the client has version {}, the server {}", view.seen, view.is),
    ))
}

/// The server is away for a second, and all its clients ask again.
pub(super) fn herd(_: &Path) -> Result<Shown, FailureError> {
    const CLIENTS: u32 = 2000;
    let run = |retry| herd::run(&Herd { clients: CLIENTS, retry, ..Herd::default() });
    let (wrong, ours) = (run(Retry::Fixed(Duration::from_secs(1))), run(Retry::Jittered));
    Ok(judge(
        &wrong,
        &ours,
        |report| !report.holds(),
        |report| {
            let first = report.attempts.first();
            let (busiest, allowed) = first.map_or((0, 0), |windows| (windows.busiest, windows.allowed));
            format!("{busiest} of {CLIENTS} clients in the busiest 100 ms of the first attempt; {allowed} are allowed")
        },
    ))
}

/// The status that a client reports, and the one that the task has in the end.
struct Told {
    client: Status,
    task: Status,
}

/// What is written becomes durable.
fn persist(task: &mut Task, effect: task::Effect) -> bool {
    let task::Effect::Persist(record) = effect else { return false };
    matches!(
        task.handle(task::Event::Persisted(record.revision)),
        task::Effect::Announce { acknowledge_cancel: true, .. }
    )
}

/// A task is cancelled while its worker is past the last checkpoint: it completes.
pub(super) fn task_ack(_: &Path) -> Result<Shown, FailureError> {
    let (mut task, record) = Task::create();
    persist(&mut task, task::Effect::Persist(record));
    let cancel = task.handle(task::Event::CancelRequested);
    if !persist(&mut task, cancel) {
        return Err(FailureError::Setup("the cancellation is not acknowledged"));
    }
    // The wrong client has its answer: an empty result, so the task must be cancelled.
    let wrong = Status::Cancelled;
    // The shipped client goes on asking.
    let now = Instant::ZERO;
    let mut follow = Follow::start(now, follow::Config::default(), Jitter::seeded(ClientId::new(1), 0));
    let mut ours = task.status();
    let mut wait = follow.handle(now, follow::Event::Seen { terminal: ours.is_terminal(), interval: None });
    let completed = task.handle(task::Event::Complete);
    persist(&mut task, completed);
    while let follow::Effect::Wait { until } = wait {
        if follow.handle(until, follow::Event::Clock) != follow::Effect::Ask {
            return Err(FailureError::Setup("it does not ask again"));
        }
        ours = task.status();
        wait = follow.handle(until, follow::Event::Seen { terminal: ours.is_terminal(), interval: None });
    }
    let task = task.status();
    let (wrong, ours) = (Told { client: wrong, task }, Told { client: ours, task });
    Ok(judge(
        &wrong,
        &ours,
        |told| told.client != told.task,
        |told| format!("the client reports {}, the task is {}", told.client, told.task),
    ))
}
