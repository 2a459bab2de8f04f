//! Decides how one message moves. Pure: a message and a word in, a message out.
//!
//! ```text
//!              claim                  delivered
//!  pending ───────────────► sending ─────────────► delivered
//!   ▲  │ ▲                   │ │ │ rejected, or no attempts left
//!   │  │ └─── retry, not ────┘ │ └───────────────► dead ─┐
//!   │  │      sent             │                         │ a person: requeue
//!   │  │ deadline over         │ lease over, or nobody   │ (to pending) or
//!   │  └──────► dead           ▼ knows                   │ skip
//!   │                   sent again if that is safe,      │
//!   └────────────────── else in doubt ───────────────────┴─► skipped
//! ```
//!
//! A deadline is over for good once the clock shows it and is sure. If only the latest time that the file knows is past
//! it, the message waits.
//!
//! | at the same instant | wins |
//! |---|---|
//! | deadline and due | the deadline: it is not sent |
//! | lease over and the sender's word | the word, as long as no other claim came between |

use crate::audit::Action;
use crate::external::store::Token;
use crate::external::{Upstream, Window};
use crate::time::{Tick, is_reached, millis};

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits until `next`, in milliseconds.
    Pending {
        next: i64,
    },
    /// It is being sent.
    Sending {
        lease_until: i64,
    },
    Delivered,
    Dead,
    InDoubt,
    Skipped,
}

/// The first attempt of which nobody knows what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsure {
    pub(crate) since: i64,
    pub(crate) attempt: u32,
}

/// What changes of a message. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) phase: Phase,
    pub(crate) attempts: u32,
    pub(crate) token: Option<Token>,
    pub(crate) sent: i64,
    pub(crate) lease: i64,
    pub(crate) deadline: Option<i64>,
    pub(crate) unsure: Option<Unsure>,
    pub(crate) reason: Option<Box<str>>,
}

/// What a target allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) upstream: Upstream,
    /// How often a message is sent, at most.
    pub(crate) attempts: u32,
}

/// What becomes of a message that is due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Send(Message),
    /// It is not sent; this is what it becomes, and what the audit says.
    Stop(Message, Option<Action>),
    /// The clock is not sure enough for either.
    Wait,
}

/// What the sender of an attempt says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Delivered,
    Retry(Box<str>),
    Reject(Box<str>),
    InDoubt(Box<str>),
    NotSent,
}

/// Which attempt says it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) token: Token,
    pub(crate) attempt: u32,
}

/// A message after a word, and what the audit says.
pub(crate) type Told = (Message, Option<Action>);

impl Message {
    pub(crate) fn new(now: i64, deadline: Option<i64>) -> Self {
        Self {
            phase: Phase::Pending { next: now },
            attempts: 0,
            token: None,
            sent: now,
            lease: 0,
            deadline,
            unsure: None,
            reason: None,
        }
    }

    /// What becomes of a pending message when it is claimed by `token` for `lease`.
    pub(crate) fn claimed(&self, token: Token, lease: i64, terms: Terms, tick: Tick) -> Due {
        if self.deadline.is_some_and(|deadline| tick.at_latest >= deadline) {
            // A clock that is behind the latest sure time may be one that was put right: it is asked again later.
            return match (tick.sure && self.deadline.is_some_and(|deadline| tick.shown >= deadline), self.unsure) {
                (false, _) => Due::Wait,
                (true, None) => Due::Stop(self.ended(Phase::Dead, "its deadline is over"), None),
                (true, Some(_)) => Due::Stop(self.doubtful("its deadline is over"), Some(Action::NotResent)),
            };
        }
        let until = self.deadline.unwrap_or(i64::MAX);
        let lease_until = tick.shown.saturating_add(lease).min(until);
        let lease = lease_until.saturating_sub(tick.shown);
        match self.unsure.map(|unsure| terms.window(unsure, lease, tick)) {
            None | Some(Window::Open) => Due::Send(Self {
                phase: Phase::Sending { lease_until },
                attempts: self.attempts.saturating_add(1),
                token: Some(token),
                sent: tick.shown,
                lease,
                ..self.clone()
            }),
            Some(Window::Unsure) => Due::Wait,
            Some(Window::Over) => Due::Stop(self.doubtful("the target may have forgotten it"), Some(Action::NotResent)),
        }
    }

    /// Whether it is being sent by somebody whose lease is over.
    pub(crate) fn is_abandoned(&self, now: i64) -> bool {
        match self.phase {
            Phase::Sending { lease_until } => is_reached(lease_until, self.lease, now),
            Phase::Pending { .. } | Phase::Delivered | Phase::Dead | Phase::InDoubt | Phase::Skipped => false,
        }
    }

    /// What becomes of a message that is being sent when nobody knows what became of it. The sender keeps its say.
    pub(crate) fn lost(&self, reason: &str, why: Action, terms: Terms, tick: Tick, pause: i64) -> Told {
        let unsure = self.unsure.unwrap_or(Unsure { since: self.sent, attempt: self.attempts });
        let unsure_self = Self { unsure: Some(unsure), ..self.clone() };
        if self.attempts < terms.attempts && terms.window(unsure, self.lease, tick) != Window::Over {
            return (unsure_self.pending(tick.shown.saturating_add(pause), reason), None);
        }
        (unsure_self.doubtful(reason), Some(why))
    }

    /// What becomes of a message when the sender of an attempt speaks; none if that has no say any more.
    pub(crate) fn told(&self, sender: Sender, word: &Word, terms: Terms, tick: Tick, pause: i64) -> Option<Told> {
        if self.token != Some(sender.token) {
            return None;
        }
        let late = self.phase == Phase::InDoubt;
        let audited = |action: Action| late.then_some(action);
        match (word, self.phase) {
            (Word::Delivered, Phase::Delivered) | (Word::Reject(_) | Word::Retry(_), Phase::Dead) => {
                Some((self.clone(), None))
            }
            (Word::Delivered, Phase::Pending { .. } | Phase::Sending { .. } | Phase::InDoubt) => {
                Some((Self { phase: Phase::Delivered, ..self.clone() }, audited(Action::DeliveredLate)))
            }
            (Word::Reject(reason), Phase::Pending { .. } | Phase::Sending { .. } | Phase::InDoubt) => {
                Some((self.ended(Phase::Dead, reason), audited(Action::RejectedLate)))
            }
            (Word::Retry(_) | Word::NotSent, Phase::Pending { .. } | Phase::Sending { .. } | Phase::InDoubt) => {
                Some(self.not_done(sender, word, terms, tick, pause, audited(Action::NeverSent)))
            }
            (Word::InDoubt(reason), Phase::Sending { .. }) => {
                Some(self.lost(reason, Action::ReportedInDoubt, terms, tick, pause))
            }
            (Word::InDoubt(_), Phase::Pending { .. } | Phase::InDoubt) => Some((self.clone(), None)),
            (Word::Delivered | Word::InDoubt(_) | Word::NotSent, Phase::Dead)
            | (Word::Reject(_) | Word::Retry(_) | Word::InDoubt(_) | Word::NotSent, Phase::Delivered)
            | (_, Phase::Skipped) => None,
        }
    }

    /// The sender is certain that its attempt did nothing. What is not known of earlier ones stays.
    fn not_done(
        &self,
        sender: Sender,
        word: &Word,
        terms: Terms,
        tick: Tick,
        pause: i64,
        audited: Option<Action>,
    ) -> Told {
        let was_sending = matches!(self.phase, Phase::Sending { .. });
        if !was_sending && self.unsure.is_none_or(|unsure| unsure.attempt != sender.attempt) {
            // It has said so before, or an earlier attempt is the one that nobody knows about.
            return (self.clone(), None);
        }
        let unsure = self.unsure.filter(|unsure| unsure.attempt != sender.attempt);
        let known = Self { unsure, ..self.clone() };
        match word {
            Word::Retry(reason) if self.attempts < terms.attempts => {
                (known.pending(tick.shown.saturating_add(pause), reason), audited)
            }
            Word::Retry(reason) if unsure.is_some() => (known.doubtful(reason), Some(Action::NotResent)),
            Word::Retry(reason) => (known.ended(Phase::Dead, reason), audited),
            Word::NotSent | Word::Delivered | Word::Reject(_) | Word::InDoubt(_) => {
                let attempts = sender.attempt.saturating_sub(1);
                let phase = Phase::Pending { next: tick.shown };
                (Self { phase, attempts, ..known }, audited)
            }
        }
    }

    /// What becomes of it when a person wants it sent again; none if nobody may want that.
    pub(crate) fn requeued(&self, now: i64, deadline: Option<i64>) -> Option<Self> {
        match self.phase {
            Phase::Dead | Phase::InDoubt => Some(Self { sent: self.sent, ..Self::new(now, deadline) }),
            Phase::Pending { .. } | Phase::Sending { .. } | Phase::Delivered | Phase::Skipped => None,
        }
    }

    /// What becomes of it when a person gives it up; none if it is being sent, or done.
    pub(crate) fn skipped(&self) -> Option<Self> {
        match self.phase {
            Phase::Pending { .. } | Phase::Dead | Phase::InDoubt => {
                Some(Self { phase: Phase::Skipped, token: None, ..self.clone() })
            }
            Phase::Sending { .. } | Phase::Delivered | Phase::Skipped => None,
        }
    }

    /// Waits until `next`, or until its deadline if that is earlier, so that the end is not found late.
    fn pending(self, next: i64, reason: &str) -> Self {
        let next = self.deadline.map_or(next, |deadline| deadline.min(next));
        Self { phase: Phase::Pending { next }, reason: Some(reason.into()), ..self }
    }

    fn doubtful(&self, reason: &str) -> Self {
        self.ended(Phase::InDoubt, reason)
    }

    fn ended(&self, phase: Phase, reason: &str) -> Self {
        Self { phase, reason: Some(reason.into()), ..self.clone() }
    }
}

impl Terms {
    /// Whether the target still knows a message that it may have seen.
    fn window(self, unsure: Unsure, lease: i64, tick: Tick) -> Window {
        match self.upstream {
            Upstream::Unknown => Window::Over,
            Upstream::Idempotent { window } => {
                Window::of(unsure.since, unsure.since.saturating_add(millis(window)), lease, tick)
            }
        }
    }
}
