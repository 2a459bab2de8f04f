//! A reader that does not read, and a task that is asked to stop.

use steady_core::outbound::Coalesce;
use steady_core::task::{self, Status, Task};

use super::Section;
use crate::review::{Overload, overload_buffer};

const REQUESTS: u32 = 100;
const CAPACITY: usize = 64;
const UPDATES: u32 = 1000;

/// A hundred requests report a thousand times each, and complete, while nobody reads.
pub(super) fn buffer() -> Section {
    let Overload { highest, progress, finals, loss_known, .. } =
        overload_buffer(CAPACITY, Coalesce::default(), REQUESTS, UPDATES);
    let mut section = Section::new("an overloaded progress buffer");
    section.event(format!(
        "{REQUESTS} requests report {UPDATES} times each into {CAPACITY} places while nobody reads, then complete"
    ));
    section.event(format!("the reader comes back: it gets {progress} progress values and {finals} final responses"));
    section.claim("the buffer never held more than its capacity", highest, CAPACITY);
    section.claim("every final response arrives", u32::try_from(finals).ok(), Some(REQUESTS));
    section.claim("that progress was dropped is known, not guessed", loss_known, true);
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
