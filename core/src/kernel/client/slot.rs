//! The slot of one call: its progress and its end, for the one who waits.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::task::{Context, Poll, Waker};

use super::error::CallError;
use super::tools::Raw;
use crate::kernel::sync::{Mutex, wait};

/// One progress value of a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// How far it is. Values of one attempt strictly increase (rule P2).
    pub progress: f64,
    /// Of how much, if the server said.
    pub total: Option<f64>,
    /// What for people; cut at [`Report::MAX_MESSAGE`] bytes.
    pub message: Box<str>,
}

impl Report {
    /// Longest message that is kept, in bytes.
    pub const MAX_MESSAGE: usize = 8 << 10;
}

/// A call that its caller and the loop share.
#[derive(Debug, Default)]
pub(super) struct CallSlot {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The newest values that were not read yet.
    reports: VecDeque<Report>,
    outcome: Option<Result<Raw, CallError>>,
    /// The outcome was there, and may have been taken.
    over: bool,
    waker: Option<Waker>,
}

impl CallSlot {
    /// Keeps a value, and the newest `capacity` of all. Whether an older one made room; and whom to wake.
    pub(super) fn report(&self, report: Report, capacity: usize) -> (bool, Option<Waker>) {
        let mut state = self.state.lock();
        let full = state.reports.len() >= capacity.max(1);
        if full {
            state.reports.pop_front();
        }
        state.reports.push_back(report);
        (full, state.waker.take())
    }

    /// Ends the call. After an answer what was reported before it can still be read; otherwise nothing can.
    pub(super) fn settle(&self, outcome: Result<Raw, CallError>, keep_reports: bool) -> Option<Waker> {
        let mut state = self.state.lock();
        if !keep_reports {
            state.reports.clear();
        }
        state.outcome = Some(outcome);
        state.over = true;
        state.waker.take()
    }

    pub(super) fn poll_outcome(&self, cx: &Context<'_>) -> Poll<Result<Raw, CallError>> {
        let mut state = self.state.lock();
        if let Some(outcome) = state.outcome.take() {
            return Poll::Ready(outcome);
        }
        wait(state, cx, |state| &mut state.waker);
        Poll::Pending
    }

    /// The end, if it is there and nobody has looked at it.
    pub(super) fn take_outcome(&self) -> Option<Result<Raw, CallError>> {
        self.state.lock().outcome.take()
    }

    pub(super) fn poll_report(&self, cx: &Context<'_>) -> Poll<Option<Report>> {
        let mut state = self.state.lock();
        let next = state.reports.pop_front();
        if next.is_some() || state.over {
            return Poll::Ready(next);
        }
        wait(state, cx, |state| &mut state.waker);
        Poll::Pending
    }
}
