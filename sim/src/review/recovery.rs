//! Lost subscriptions and durable tasks: rules L4, L5, K1 to K3.

use steady_core::subscription::Filter;

use super::design::CancelAck;
use super::finding::{Area, Notes};
use super::{Design, Finding};

/// Adds what is wrong; the methods that the recovery plan names.
pub(super) fn check(design: &Design, findings: &mut Vec<Finding>) -> Vec<&'static str> {
    tasks(design, &mut Notes::new(Area::Tasks, findings));
    let Some(recovery) = &design.recovery else { return Vec::new() };
    let notes = &mut Notes::new(Area::Recovery, findings);
    let filter = Filter::parse(&recovery.filter);
    if let Err(why) = &filter {
        notes.blocks(true, "L3", &format!("the filter cannot be read: {why}"), "write it as the listen request's JSON");
    }
    let mut methods: Vec<&'static str> =
        filter.iter().flat_map(|filter| filter.refetch()).map(|refetch| refetch.method()).collect();
    methods.dedup();
    let missing: Vec<&str> =
        methods.iter().copied().filter(|method| !recovery.refetch.iter().any(|named| named == method)).collect();
    notes.blocks(
        !missing.is_empty(),
        "L5",
        &format!("after a gap nothing reads {}: what changed meanwhile stays unknown", missing.join(", ")),
        "read everything that the filter covers from its authoritative method",
    );
    notes.blocks(
        !recovery.refetch_first,
        "L5",
        "what comes after the gap is used before the state is read afresh: it is applied to an old state",
        "read first, then go on",
    );
    notes.blocks(
        !recovery.fresh_id,
        "H7, L5",
        "the new listen re-uses its id: notices of the dead stream are taken for its own",
        "send a new listen request under a new id, with the same filter",
    );
    notes.warns(
        !recovery.deduplicates,
        "L5",
        "what is read afresh and told again is handled twice",
        "recognise it by its stable identifier",
    );
    methods
}

fn tasks(design: &Design, notes: &mut Notes<'_>) {
    let Some(task) = &design.task else { return };
    notes.blocks(
        !task.durable_first,
        "K1",
        "the task is announced before it is durable: a crash leaves the client with an id that nobody knows",
        "commit the task, then answer",
    );
    notes.blocks(
        task.cancel_ack == CancelAck::Stopped,
        "K3",
        "an acknowledged cancellation is taken for the end: the task may still complete",
        "wait for a terminal status; the acknowledgement says that the wish is recorded",
    );
    notes.blocks(
        task.ends_with_stream,
        "K3",
        "the end of a stream ends the task: a client that reconnects finds its work gone",
        "end a task by tasks/cancel alone",
    );
    notes.blocks(
        !task.keyed,
        "K1",
        "a lost reply leaves an orphan, and the retry creates a second task",
        "map the business key to the task in the transaction that creates it",
    );
}
