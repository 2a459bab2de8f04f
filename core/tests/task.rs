//! The durable task machine: a readable script for each rule, and every reachable state times every event.

#[path = "support/invariants/mod.rs"]
mod invariants;
#[path = "support/searched.rs"]
mod searched;

use std::collections::{BTreeMap, HashSet, VecDeque};

use steady_core::task::{Effect, Event, Record, Revision, Status, Task};

use invariants::{
    task_1_a_terminal_status_stays, task_2_a_cancel_request_keeps_the_status, task_3_only_what_the_store_has,
    task_4_the_first_end_wins, task_5_cancelled_needs_an_observed_intent, task_6_one_write_at_a_time,
    task_7_no_change_is_forgotten,
};
use searched::Searched;

/// A task whose creation is durable.
fn live() -> Task {
    let (mut task, record) = Task::create();
    assert_eq!(
        task.handle(Event::Persisted(record.revision)),
        Effect::Announce { record, acknowledge_cancel: false, next: None }
    );
    task
}

fn persist(task: &mut Task, event: Event) -> Record {
    let effect = task.handle(event);
    let Effect::Persist(record) = effect else { panic!("{event:?} gave {effect:?}") };
    record
}

#[test]
fn statement_12_a_cancel_acknowledgement_leaves_the_task_non_terminal_until_the_worker_observes_it() {
    let mut task = live();
    let record = persist(&mut task, Event::CancelRequested);
    assert_eq!(
        task.handle(Event::Persisted(record.revision)),
        Effect::Announce { record, acknowledge_cancel: true, next: None }
    );
    assert_eq!(record.status, Status::Working, "acknowledged, and still working");
    // As long as the worker does not look, nothing but the flag changes, however often one asks.
    for _ in 0..3 {
        assert_eq!(task.handle(Event::CancelRequested), Effect::Acknowledged);
        assert_eq!(task.status(), Status::Working);
    }
    assert_eq!(task.handle(Event::Checkpoint), Effect::ObserveCancel);
    assert!(!task.status().is_terminal(), "a checkpoint tells; it does not end");

    let mut stops = task.clone();
    let end = persist(&mut stops, Event::ObservedCancel);
    assert_eq!(end.status, Status::Cancelled);

    // Having been told, the worker may still finish its work.
    let mut finishes = task;
    let end = persist(&mut finishes, Event::Complete);
    assert_eq!((end.status, end.cancel_requested), (Status::Completed, true));

    // And over all reachable states: no handling of a cancel request, and no acknowledgement, changes the status.
    let mut acknowledged_alive = 0;
    explore(|before, event, effect, after| {
        let acks = matches!(effect, Effect::Acknowledged | Effect::Announce { acknowledge_cancel: true, .. });
        if acks || event == Event::CancelRequested {
            assert_eq!(before.status(), after.status());
            acknowledged_alive += u32::from(acks && !after.status().is_terminal());
        }
        if after.status() == Status::Cancelled && before.status() != Status::Cancelled {
            assert_eq!(event, Event::ObservedCancel);
        }
    });
    assert!(acknowledged_alive > 0);
}

#[test]
fn a_terminal_task_acknowledges_a_cancel_request_and_does_not_change() {
    for end in [Event::Complete, Event::Fail] {
        let mut task = live();
        let record = persist(&mut task, end);
        let _ = task.handle(Event::Persisted(record.revision));
        let before = task.clone();
        assert_eq!(task.handle(Event::CancelRequested), Effect::Acknowledged);
        assert_eq!(task, before);
    }
}

#[test]
fn a_cancel_request_during_the_terminal_write_is_acknowledged_with_it() {
    let mut task = live();
    let record = persist(&mut task, Event::Complete);
    assert_eq!(task.handle(Event::CancelRequested), Effect::Deferred);
    assert_eq!(
        task.handle(Event::Persisted(record.revision)),
        Effect::Announce { record, acknowledge_cancel: true, next: None }
    );
}

#[test]
fn nothing_is_announced_while_the_store_refuses() {
    let mut task = live();
    let first = persist(&mut task, Event::Fail);
    let second = persist(&mut task, Event::PersistFailed(first.revision));
    assert!(second.revision > first.revision);
    assert_eq!(task.handle(Event::Persisted(first.revision)), Effect::Ignored, "not in flight");
    assert_eq!(task.durable().map(|record| record.status), Some(Status::Working));
    assert_eq!(
        task.handle(Event::Persisted(second.revision)),
        Effect::Announce { record: second, acknowledge_cancel: false, next: None }
    );
}

#[test]
fn the_first_terminal_wins_and_later_ones_are_too_late() {
    let mut task = live();
    let record = persist(&mut task, Event::CancelRequested);
    assert_eq!(task.handle(Event::Complete), Effect::Deferred);
    for late in [Event::Fail, Event::ObservedCancel, Event::Complete, Event::InputRequired] {
        assert_eq!(task.handle(late), Effect::TooLate(Status::Completed));
    }
    let Effect::Announce { next: Some(next), .. } = task.handle(Event::Persisted(record.revision)) else {
        panic!("the completion still has to be written");
    };
    assert_eq!(next.status, Status::Completed);
    assert_eq!(task.handle(Event::Checkpoint), Effect::TooLate(Status::Completed));
}

#[test]
fn input_is_taken_only_after_it_was_asked_for() {
    let mut task = live();
    assert_eq!(task.handle(Event::InputProvided), Effect::Ignored);
    let record = persist(&mut task, Event::InputRequired);
    assert_eq!(task.handle(Event::InputProvided), Effect::Ignored, "nobody was asked yet");
    let _ = task.handle(Event::Persisted(record.revision));
    let second = persist(&mut task, Event::InputRequired);
    assert_eq!(second.status, Status::InputRequired, "a second round is written too");
    let _ = task.handle(Event::Persisted(second.revision));
    assert_eq!(persist(&mut task, Event::InputProvided).status, Status::Working);
}

#[test]
fn a_worker_cannot_cancel_on_its_own() {
    let mut task = live();
    assert_eq!(task.handle(Event::ObservedCancel), Effect::NotRequested);
    assert_eq!(task.status(), Status::Working);
}

#[test]
fn each_waiting_cancel_request_is_acknowledged_once() {
    let mut task = live();
    let record = persist(&mut task, Event::CancelRequested);
    assert_eq!(task.handle(Event::CancelRequested), Effect::Deferred, "a second one waits with the first");
    let announced = task.handle(Event::Persisted(record.revision));
    assert_eq!(announced, Effect::Announce { record, acknowledge_cancel: true, next: None });
    let record = persist(&mut task, Event::Complete);
    let announced = task.handle(Event::Persisted(record.revision));
    assert_eq!(announced, Effect::Announce { record, acknowledge_cancel: false, next: None });
}

#[test]
fn a_restored_task_goes_on_where_the_store_left_it() {
    let record = Record { revision: Revision::new(41), status: Status::InputRequired, cancel_requested: true };
    let mut task = Task::restore(record);
    assert_eq!(task.handle(Event::CancelRequested), Effect::Acknowledged);
    assert_eq!(task.handle(Event::Checkpoint), Effect::ObserveCancel);
    assert_eq!(persist(&mut task, Event::ObservedCancel).revision.number(), 42);
}

#[test]
fn every_reachable_state_and_every_event() {
    let mut tally: BTreeMap<&'static str, u32> = BTreeMap::new();
    let searched = explore(|before, event, effect, after| {
        check(before, event, effect, after);
        *tally.entry(name(effect)).or_default() += 1;
    });
    searched.report("task");
    assert_eq!(tally.len(), 9, "every effect occurs: {tally:?}");
}

/// Breadth first to the fixed point. The key forgets how many writes there were, and nothing else.
fn explore(mut visit: impl FnMut(&Task, Event, Effect, &Task)) -> Searched {
    let mut searched = Searched::begin();
    let mut seen = HashSet::new();
    let mut queue = VecDeque::from([Task::create().0]);
    for status in STATUSES {
        for cancel_requested in [false, true] {
            if status != Status::Cancelled || cancel_requested {
                queue.push_back(Task::restore(Record { revision: Revision::new(1), status, cancel_requested }));
            }
        }
    }
    while let Some(task) = queue.pop_front() {
        if !searched.state(seen.insert(key(&task))) {
            continue;
        }
        for event in events(&task) {
            let mut after = task.clone();
            let effect = after.handle(event);
            visit(&task, event, effect, &after);
            searched.transitions += 1;
            queue.push_back(after);
        }
    }
    searched
}

const STATUSES: [Status; 5] =
    [Status::Working, Status::InputRequired, Status::Completed, Status::Failed, Status::Cancelled];

fn events(task: &Task) -> Vec<Event> {
    let current = task.writing().map_or(Revision::new(u64::MAX), |record| record.revision);
    let stale = Revision::new(0);
    vec![
        Event::CancelRequested,
        Event::Checkpoint,
        Event::Complete,
        Event::Fail,
        Event::ObservedCancel,
        Event::InputRequired,
        Event::InputProvided,
        Event::Persisted(current),
        Event::PersistFailed(current),
        Event::Persisted(stale),
        Event::PersistFailed(stale),
    ]
}

/// The task with its write counter forgotten. `Debug` shows every field, so only the revisions are taken out.
fn key(task: &Task) -> String {
    let text = format!("{task:?}");
    let mut key = String::new();
    let mut rest = text.as_str();
    while let Some((head, tail)) = rest.split_once("Revision(") {
        key.push_str(head);
        rest = tail.split_once(')').map_or("", |(_, after)| after);
    }
    key + rest
}

fn check(before: &Task, event: Event, effect: Effect, after: &Task) {
    let context = format!("{before:?} --{event:?}--> {effect:?} {after:?}");
    let decided = |task: &Task| (task.status(), task.cancel_requested());
    let stored = |record: Record| (record.status, record.cancel_requested);
    task_1_a_terminal_status_stays(decided(before), decided(after), &context);
    if let (Some(old), Some(new)) = (before.durable(), after.durable()) {
        task_1_a_terminal_status_stays(stored(old), stored(new), &context);
        assert!(old.revision <= new.revision, "{context}");
    }
    if event == Event::CancelRequested {
        task_2_a_cancel_request_keeps_the_status(before.status(), after.status(), &context);
    }
    let observed = event == Event::ObservedCancel;
    let statuses = (before.status(), after.status());
    task_5_cancelled_needs_an_observed_intent(statuses, before.cancel_requested(), observed, &context);
    let ends = matches!(event, Event::Complete | Event::Fail | Event::ObservedCancel);
    if ends && before.status().is_terminal() {
        task_4_the_first_end_wins(before.status(), effect, &context);
        assert_eq!(before, after, "{context}");
    }
    check_effect(before, event, effect, after, &context);
    // Let the store confirm everything; it then has what was decided.
    let mut settled = after.clone();
    for _ in 0..2 {
        if let Some(record) = settled.writing() {
            let _ = settled.handle(Event::Persisted(record.revision));
        }
    }
    assert_eq!(settled.writing(), None, "{context}");
    task_7_no_change_is_forgotten(decided(after), settled.durable(), &context);
}

fn check_effect(before: &Task, event: Event, effect: Effect, after: &Task, context: &String) {
    match effect {
        Effect::Announce { record, acknowledge_cancel, next } => {
            assert_eq!(event, Event::Persisted(record.revision), "{context}");
            task_3_only_what_the_store_has(record, before.writing(), context);
            task_3_only_what_the_store_has(record, after.durable(), context);
            assert!(!acknowledge_cancel || settles(record), "TASK-3 {context}");
            assert_eq!(next, after.writing(), "{context}");
            if let Some(next) = next {
                task_6_one_write_at_a_time(None, Some(record.revision), next, context);
            }
        }
        Effect::Persist(record) => {
            let failed = matches!(event, Event::PersistFailed(_));
            let newest = before.writing().or_else(|| before.durable()).map(|record| record.revision);
            task_6_one_write_at_a_time(before.writing().filter(|_| !failed), newest, record, context);
            assert_eq!(after.writing(), Some(record), "{context}");
            assert_eq!(before.durable(), after.durable(), "TASK-3 {context}");
        }
        Effect::Acknowledged => {
            assert!(before.durable().is_some_and(settles), "TASK-3 {context}");
            assert_eq!(before, after, "{context}");
        }
        Effect::Deferred => assert!(after.writing().is_some(), "TASK-7 {context}"),
        Effect::Continue | Effect::ObserveCancel | Effect::TooLate(_) | Effect::NotRequested | Effect::Ignored => {
            assert_eq!(before, after, "{context}")
        }
    }
}

fn settles(record: Record) -> bool {
    record.cancel_requested || record.status.is_terminal()
}

fn name(effect: Effect) -> &'static str {
    match effect {
        Effect::Persist(_) => "Persist",
        Effect::Deferred => "Deferred",
        Effect::Announce { .. } => "Announce",
        Effect::Acknowledged => "Acknowledged",
        Effect::Continue => "Continue",
        Effect::ObserveCancel => "ObserveCancel",
        Effect::TooLate(_) => "TooLate",
        Effect::NotRequested => "NotRequested",
        Effect::Ignored => "Ignored",
    }
}
