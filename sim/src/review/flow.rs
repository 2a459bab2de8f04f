//! Slow readers: the policy as it is planned, and the shipped buffer at the planned capacity, overloaded. The buffer's own
//! policy stays as it is shipped: what a plan without reserved places or marks would do is in the findings.

use std::time::Duration;

use serde::Serialize;
use steady_core::coordinator::{Effect, Event, ServedRequest};
use steady_core::deadline::Limits;
use steady_core::id::ProgressToken;
use steady_core::kernel::OutboundQueue;
use steady_core::outbound::{Coalesce, Config, Handle, Item};
use steady_core::rpc::encode;
use steady_core::time::Instant;

use super::design::Full;
use super::finding::{Area, Notes};
use super::{Design, Finding};

/// What the shipped buffer does while nobody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Overload {
    /// Places for progress, as they were played.
    pub capacity: usize,
    /// Whether these are the planned ones: else the plan has no bound, or more places than are played.
    pub as_planned: bool,
    /// Requests that report.
    pub requests: u32,
    /// Reports of each.
    pub reports: u32,
    /// Most messages that waited at once.
    pub highest: usize,
    /// Progress values that the reader gets in the end.
    pub progress: usize,
    /// Final responses that the reader gets: all.
    pub finals: usize,
    /// Whether the reader can learn that something was dropped.
    pub loss_known: bool,
}

/// No more places than this are tried.
const LARGEST: usize = 4096;
const REPORTS: u32 = 20;
/// Requests that report into a queue without a bound.
const UNBOUNDED: u32 = 100;

pub(super) fn check(design: &Design, findings: &mut Vec<Finding>) {
    let (queue, notes) = (&design.queue, &mut Notes::new(Area::Flow, findings));
    notes.blocks(
        queue.capacity == 0,
        "OUT-1",
        "the progress queue has no bound: one slow reader takes the memory of all",
        "set queue.capacity; the newest progress of each request is what matters",
    );
    notes.blocks(
        queue.full == Full::DropNewest && !queue.reserves_finals,
        "OUT-2",
        "a full queue drops final responses: work is done and its outcome lost",
        "reserve the place of a final response when its request is admitted",
    );
    notes.warns(
        queue.full == Full::DropNewest && queue.reserves_finals,
        "P3",
        "a full queue keeps old progress and drops new: the reader sees where the work was",
        "coalesce by request, and drop the oldest",
    );
    notes.blocks(
        queue.full == Full::Block && queue.write_stall.is_none(),
        "H6",
        "a full queue blocks the handler, and no write ever counts as stalled: one reader that stops holds it for ever",
        "drop and coalesce progress, and set queue.write_stall",
    );
    notes.warns(
        queue.full == Full::Block && queue.write_stall.is_some(),
        "P4",
        "a full queue blocks the handler while its client is slow",
        "report without waiting; keep the waiting kind for what must not be lost",
    );
    notes.warns(
        !queue.reserves_finals && queue.full != Full::DropNewest,
        "OUT-2",
        "a final response has no place of its own: under pressure it waits behind progress",
        "reserve its place when the request is admitted",
    );
    notes.warns(
        !queue.coalesces,
        "P4",
        "every report waits on its own: a slow reader catches up with the past",
        "let the newest progress of a request replace the one that waits",
    );
    notes.blocks(
        !queue.marks_losses && design.recovery.is_some(),
        "OUT-5, L5",
        "dropped notices leave no mark: the subscriber acts on what it believes is current",
        "mark the loss, and tell the subscriber what to read afresh",
    );
    notes.warns(
        queue.write_stall.is_none(),
        "H6",
        "no write ever counts as stalled: a connection that hangs is kept for ever",
        "set queue.write_stall",
    );
}

/// Overloads the shipped buffer as the design plans it.
pub(super) fn overload(design: &Design) -> Overload {
    let planned = design.queue.capacity;
    let coalesce = if design.queue.coalesces { Coalesce::SameToken } else { Coalesce::Adjacent };
    if planned == 0 {
        // Room for whatever can come: nothing is ever dropped, as in a queue without a bound.
        let room = usize::try_from(UNBOUNDED * REPORTS).unwrap_or(usize::MAX);
        return Overload { as_planned: false, ..overload_buffer(room, coalesce, UNBOUNDED, REPORTS) };
    }
    let capacity = planned.min(LARGEST);
    let requests = u32::try_from(2 * capacity).unwrap_or(u32::MAX);
    Overload { as_planned: capacity == planned, ..overload_buffer(capacity, coalesce, requests, REPORTS) }
}

/// Lets so many requests report so often into the shipped buffer while nobody reads, and complete; then reads it empty.
pub(crate) fn overload_buffer(capacity: usize, coalesce: Coalesce, requests: u32, reports: u32) -> Overload {
    let finals = usize::try_from(requests).unwrap_or(usize::MAX);
    let queue = OutboundQueue::new(Config { capacity, coalesce, finals, ..Config::default() });
    let handles: Vec<Handle> = (0..requests).map(|index| Handle::new(index, 1)).collect();
    for (handle, index) in handles.iter().zip(0i64..) {
        let mut prefix = String::new();
        encode::progress_prefix(&mut prefix, &ProgressToken(index.into()));
        queue.open(*handle, &prefix);
    }
    let mut highest = 0;
    for report in 0..reports {
        for handle in &handles {
            let _policy = queue.progress(*handle, report.into(), None, "");
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
    let loss_known = queue.take_lost().is_some_and(|lost| lost.progress > 0);
    Overload { capacity, as_planned: true, requests, reports, highest, progress, finals, loss_known }
}

impl Overload {
    /// In words: what was played, and what came of it.
    pub(super) fn text(&self, planned: usize) -> String {
        let Self { capacity, requests, reports, highest, progress, finals, loss_known, .. } = self;
        let came = format!("the reader gets {progress} of them and {finals} of {requests} final responses");
        if planned == 0 {
            return format!(
                "The plan has no bound. {requests} requests report {reports} times each while nobody reads: {highest} \
                 progress messages wait, and more with each report that stands for itself; {came}."
            );
        }
        let lost = if *loss_known { "and the reader is told" } else { "and nothing had to be dropped" };
        let places = if self.as_planned {
            format!("In the shipped buffer with {capacity} places")
        } else {
            format!("In the shipped buffer, shown with {capacity} of the planned {planned} places")
        };
        format!(
            "{places}, {requests} requests report {reports} times each while nobody reads: at most {highest} progress \
             messages wait, {came}, {lost}."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(queue: &str) -> (Overload, String) {
        let text = format!("[operation]\nname = \"a\"\neffect = \"read\"\n[queue]\n{queue}\n");
        let design = Design::parse(&text).expect("a design");
        let load = overload(&design);
        (load, load.text(design.queue.capacity))
    }

    #[test]
    fn a_queue_without_a_bound_is_shown_as_one() {
        let (found, text) = load("capacity = 0\ncoalesces = false");
        assert_eq!((found.highest, found.progress, found.loss_known), (2000, 2000, false));
        assert!(text.starts_with("The plan has no bound.") && text.contains("2000 progress messages wait"), "{text}");
        let (found, _) = load("capacity = 0");
        assert_eq!(found.highest, 100, "one for each request that reports");
    }

    #[test]
    fn a_capacity_that_is_not_played_in_full_is_told() {
        let (found, text) = load("capacity = 100000");
        assert_eq!((found.capacity, found.as_planned), (LARGEST, false));
        assert!(text.contains("shown with 4096 of the planned 100000 places, "), "{text}");
        let (found, text) = load("capacity = 64");
        assert!(found.as_planned && text.contains("with 64 places, "), "{text}");
    }
}
