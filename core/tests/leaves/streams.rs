//! Golden tables of a subscription, of a followed task and of a durable task.

use steady_core::backoff::{Backoff, Jitter};
use steady_core::follow::{self, Follow};
use steady_core::id::ClientId;
use steady_core::subscription::{self, Subscription};
use steady_core::task::{self, Task};
use steady_core::time::Instant;

use super::{explore_by, golden, ns, time};

/// Without pauses, so that what is left of time is the shortest step.
const NO_PAUSE: Backoff = Backoff { base: ns(0), cap: ns(0) };

fn jitter() -> Jitter {
    Jitter::seeded(ClientId::new(1), 0)
}

#[test]
fn the_subscription() {
    use subscription::{Event, State};
    let config = subscription::Config {
        ack_deadline: ns(2),
        backoff: NO_PAUSE,
        stable_after: ns(1),
        liveness: None,
        reopen_after_end: false,
    };
    let events = [
        ("acknowledged", Event::Acknowledged),
        ("message", Event::Message),
        ("heard", Event::Heard { at: Instant::ZERO }),
        ("final result", Event::FinalResult),
        ("refused", Event::Refused),
        ("lost", Event::Lost),
        ("close", Event::Close),
        ("clock", Event::Clock),
    ];
    let show = |machine: &Subscription| match machine.state() {
        State::Opening { deadline } => format!("opening until {}", deadline.as_nanos()),
        State::Open { since, heard: _ } => format!("open since {}", since.as_nanos()),
        State::Waiting { until } => format!("waiting until {}", until.as_nanos()),
        State::Ended(end) => format!("ended-{end:?}").to_lowercase(),
    };
    let start = Subscription::open(Instant::ZERO, config, jitter());
    let handle = |machine: &mut Subscription, now, event| machine.handle(now, event);
    // Without pauses the attempts make no difference.
    golden("subscription", explore_by(show, start, 4, &events, handle, show, |_, _, _, _, _| ()));
}

#[test]
fn the_followed_task() {
    use follow::{Event, State};
    let config =
        follow::Config { shortest: ns(1), longest: ns(2), usual: ns(2), backoff: NO_PAUSE, maximum: Some(ns(3)) };
    let status = |terminal| (Event::Seen { terminal, interval: None }, Event::Notified { terminal, interval: None });
    let ((seen, notified), (end_seen, end_notified)) = (status(false), status(true));
    let events = [
        ("seen", seen),
        ("notified", notified),
        ("seen at its end", end_seen),
        ("notified of its end", end_notified),
        ("missed", Event::Missed),
        ("answered", Event::Answered),
        ("failed", Event::Failed),
        ("gone", Event::Gone),
        ("stop", Event::Stop),
        ("clock", Event::Clock),
    ];
    let show = |machine: &Follow| match machine.state() {
        State::Asking if machine.has_missed() => format!("asking to ask again, wakes {}", time(machine.wake_at())),
        State::Asking => format!("asking, wakes {}", time(machine.wake_at())),
        State::Waiting { until } => format!("waiting until {}", until.as_nanos()),
        State::Over(end) => format!("over-{end:?}").to_lowercase(),
    };
    let start = Follow::start(Instant::ZERO, config, jitter());
    let handle = |machine: &mut Follow, now, event| machine.handle(now, event);
    let key = |machine: &Follow| format!("{}, {}", show(machine), time(machine.wake_at()));
    golden("follow", explore_by(key, start, 4, &events, handle, show, |_, _, _, _, _| ()));
}

#[test]
fn the_durable_task() {
    use task::{Event, Revision};
    let events = [
        ("cancel requested", Event::CancelRequested),
        ("checkpoint", Event::Checkpoint),
        ("complete", Event::Complete),
        ("fail", Event::Fail),
        ("observed cancel", Event::ObservedCancel),
        ("input required", Event::InputRequired),
        ("input provided", Event::InputProvided),
    ];
    // Each event, then the store makes it durable: how a task moves when nothing is concurrent. What happens between a
    // write and its durability is searched in `core/tests/task.rs`.
    let settle = |machine: &mut Task| {
        // The write under way, and one for what came during it.
        for _ in 0..2 {
            if let Some(written) = machine.writing() {
                let _announced: task::Effect = machine.handle(Event::Persisted(written.revision));
            }
        }
        assert_eq!(machine.writing(), None);
        // Revisions count up for ever, and nothing else depends on them.
        let durable = machine.durable().expect("settled");
        *machine = Task::restore(task::Record { revision: Revision::new(1), ..durable });
    };
    let handle = |machine: &mut Task, _, event| {
        let effect = machine.handle(event);
        settle(machine);
        if let task::Effect::Persist(record) = effect {
            return format!("Persist({})", record.status.as_str());
        }
        format!("{effect:?}")
    };
    let show = |machine: &Task| {
        let cancel = if machine.cancel_requested() { ", cancel requested" } else { "" };
        format!("{}{cancel}", machine.status().as_str())
    };
    let (mut start, _written) = Task::create();
    settle(&mut start);
    golden("task", explore_by(show, start, 0, &events, handle, show, |_, _, _, _, _| ()));
}
