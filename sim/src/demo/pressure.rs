//! A reader that does not read, and a task that is asked to stop.

use std::time::Duration;

use steady_core::coordinator::{Effect, Event, ServedRequest};
use steady_core::deadline::Limits;
use steady_core::id::ProgressToken;
use steady_core::kernel::OutboundQueue;
use steady_core::outbound::{Config, Handle, Item};
use steady_core::rpc::encode;
use steady_core::task::{self, Status, Task};
use steady_core::time::Instant;

use super::Section;

const REQUESTS: u32 = 100;
const CAPACITY: usize = 64;
const UPDATES: u32 = 1000;

/// A hundred requests report a thousand times each, and complete, while nobody reads.
pub(super) fn buffer() -> Section {
    let queue = OutboundQueue::new(Config { capacity: CAPACITY, ..Config::default() });
    let mut highest = 0;
    let handles: Vec<Handle> = (0..REQUESTS).map(|index| Handle::new(index, 1)).collect();
    for (handle, index) in handles.iter().zip(0i64..) {
        let mut prefix = String::new();
        encode::progress_prefix(&mut prefix, &ProgressToken(index.into()));
        queue.open(*handle, &prefix);
    }
    for update in 0..UPDATES {
        for handle in &handles {
            let _policy = queue.progress(*handle, update.into(), Some(UPDATES.into()), "working");
        }
        highest = highest.max(queue.occupancy().0);
    }
    for handle in &handles {
        let mut request = ServedRequest::start(Instant::ZERO, *handle, Limits::default(), true, Duration::ZERO);
        if let Effect::Respond { permit, .. } = request.handle(Instant::ZERO, Event::Complete) {
            queue.finish(permit, b"{}".to_vec());
        }
    }
    let (mut progress, mut finals) = (0, 0);
    while let Some((popped, is_progress)) = queue.pop(|item| matches!(item, Item::Progress { .. })) {
        progress += usize::from(is_progress);
        finals += usize::from(popped.last);
    }
    let mut section = Section::new("an overloaded progress buffer");
    section.event(format!(
        "{REQUESTS} requests report {UPDATES} times each into {CAPACITY} places while nobody reads, then complete"
    ));
    section.event(format!("the reader comes back: it gets {progress} progress values and {finals} final responses"));
    section.claim("the buffer never held more than its capacity", highest, CAPACITY);
    section.claim("every final response arrives", finals, handles.len());
    let lost = queue.take_lost().is_some_and(|lost| lost.progress > 0);
    section.claim("that progress was dropped is known, not guessed", lost, true);
    section
}

/// From the acknowledged cancellation of a task to the worker that observes it.
pub(super) fn task() -> Section {
    let mut section = Section::new("a durable task, from acknowledged to observed");
    let (mut task, mut record) = Task::create();
    let mut acknowledged = false;
    let mut persist = |task: &mut Task, record: &mut task::Record| {
        // What is written becomes durable; what that allows to be said is said then.
        if let task::Effect::Announce { record: durable, acknowledge_cancel, .. } =
            task.handle(task::Event::Persisted(record.revision))
        {
            *record = durable;
            acknowledged |= acknowledge_cancel;
        }
    };
    persist(&mut task, &mut record);
    section.event("the task is created and durable: working");
    if let task::Effect::Persist(next) = task.handle(task::Event::CancelRequested) {
        record = next;
        persist(&mut task, &mut record);
    }
    section.event(format!("tasks/cancel is acknowledged; the status is {}", task.status().as_str()));
    section.claim("after the acknowledgement the task is not terminal", task.status().is_terminal(), false);
    let seen = matches!(task.handle(task::Event::Checkpoint), task::Effect::ObserveCancel);
    section.event("the worker reaches a checkpoint, whose answer carries the request to stop");
    section.claim("the worker's checkpoint tells it to stop", seen, true);
    if let task::Effect::Persist(next) = task.handle(task::Event::ObservedCancel) {
        record = next;
        persist(&mut task, &mut record);
    }
    section.event(format!("the worker observed it; the status is {}", task.status().as_str()));
    section.claim("only then it is cancelled", task.status(), Status::Cancelled);
    section.claim("the acknowledgement came once the intent was durable", acknowledged, true);
    section
}
