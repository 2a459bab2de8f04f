//! Calls of a client that a server of an older revision has asked something: each waits for the application, which may never
//! come back to it. Their number is bounded; at the bound the one that has waited longest makes room.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use crate::id::RequestId;
use crate::kernel::port::Unanswered;

/// Questions that wait for the application at most.
pub(super) const MAX_QUESTIONS: usize = 64;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Parked {
    /// By the id under which the server knows the call.
    calls: BTreeMap<i64, Waiting>,
    /// How many there were.
    times: u64,
}

/// A call that was answered by a demand for input.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The id under which the client knew it.
    now: i64,
    since: u64,
    /// The question that is out.
    pub(super) question: RequestId,
    /// Questions that came after the one that is out.
    pub(super) more: VecDeque<(RequestId, String, String)>,
    /// Its end, if it came all the same.
    pub(super) done: Option<Done>,
    /// The session that asked is over: what the application answers would reach one that has not asked, perhaps as the answer
    /// to another question.
    pub(super) is_lost: bool,
}

impl Waiting {
    /// Whether its server waits for what the application says.
    fn is_open(&self) -> bool {
        !self.is_lost && !matches!(self.done, Some(Done::None(_)))
    }

    /// It ended, if that was not known yet.
    pub(super) fn end(&mut self, done: Done) {
        if self.is_open() {
            self.done = Some(done);
        }
    }
}

#[derive(Debug)]
pub(super) enum Done {
    /// The final answer: its member and its text.
    Answer(&'static str, String),
    /// There will be none.
    None(Unanswered),
}

impl Parked {
    /// Whether this call takes a further question.
    pub(super) fn takes(&self, call: i64) -> bool {
        self.calls.get(&call).is_some_and(Waiting::is_open)
    }

    /// The newest call that takes a further question.
    pub(super) fn newest(&self) -> Option<i64> {
        self.calls.iter().rev().find(|(_, waiting)| waiting.is_open()).map(|(call, _)| *call)
    }

    /// The call that the client knew under this id when it was asked.
    pub(super) fn known_as(&self, now: i64) -> Option<i64> {
        self.calls.iter().find(|(_, waiting)| waiting.now == now).map(|(call, _)| *call)
    }

    pub(super) fn is_full(&self) -> bool {
        self.calls.values().map(|waiting| 1 + waiting.more.len()).sum::<usize>() >= MAX_QUESTIONS
    }

    /// The call that has waited longest, but for this one.
    pub(super) fn oldest_beside(&self, call: Option<i64>) -> Option<i64> {
        let others = self.calls.iter().filter(|(other, _)| Some(**other) != call);
        others.min_by_key(|(_, waiting)| waiting.since).map(|(other, _)| *other)
    }

    pub(super) fn park(&mut self, call: i64, now: i64, question: RequestId) {
        self.times += 1;
        let waiting = Waiting { now, since: self.times, question, more: VecDeque::new(), done: None, is_lost: false };
        self.calls.insert(call, waiting);
    }

    pub(super) fn get_mut(&mut self, call: i64) -> Option<&mut Waiting> {
        self.calls.get_mut(&call)
    }

    pub(super) fn take(&mut self, call: i64) -> Option<Waiting> {
        self.calls.remove(&call)
    }

    /// The session that asked is over. The calls of which no end was known: nothing more is to be heard of them.
    pub(super) fn lose(&mut self) -> Vec<i64> {
        let mut unheard = Vec::new();
        for (call, waiting) in &mut self.calls {
            waiting.is_lost = true;
            waiting.more.clear();
            if waiting.done.is_none() {
                waiting.done = Some(Done::None(Unanswered::Lost("the server has forgotten the session".into())));
                unheard.push(*call);
            }
        }
        unheard
    }
}
