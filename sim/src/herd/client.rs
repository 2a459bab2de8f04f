//! One client of the fleet: the shipped machine, and what is seen of it from outside.

use std::time::Duration;

use steady_core::backoff::{Backoff, Jitter};
use steady_core::client::{CallOptions, Client, Config, Input, Output, Transport};
use steady_core::id::{Attempt, ClientId, SubscriptionId, WireId};
use steady_core::retry::Contract;
use steady_core::subscription::{self, Filter, Refetch};
use steady_core::time::Instant;

use super::{Herd, Retry};

const FILTER: &str = r#"{"toolsListChanged":true}"#;

/// A listen request that goes out, as the nth since the loss.
pub(super) struct Question {
    pub(super) attempt: u16,
}

pub(super) struct Member {
    machine: Client<Refetch, ()>,
    subscription: Option<SubscriptionId>,
    /// The request that is out, and the newest that ever was.
    wire: Option<WireId>,
    newest: Option<WireId>,
    attempts: u16,
    back_at: Option<Instant>,
    /// What a gap named is read.
    refetched: bool,
    /// Reads that are sent and not answered.
    reads: Vec<WireId>,
    /// The mutant does not wait for them.
    hasty: bool,
    not_new: u64,
    before_refetch: u64,
    /// Another policy's pauses; the machine's own are then cut to nothing.
    other: Option<Other>,
    not_before: Instant,
}

/// A policy that is not the shipped one.
struct Other {
    retry: Retry,
    backoff: Backoff,
    jitter: Jitter,
    failed: Attempt,
}

impl Other {
    /// The pause after one more attempt has failed; after the first, if `anew`.
    fn pause(&mut self, anew: bool) -> Duration {
        self.failed = if anew { Attempt::FIRST } else { self.failed.next() };
        self.retry.pause(&self.backoff, self.failed, &mut self.jitter)
    }
}

impl Member {
    /// A client whose stream is open.
    pub(super) fn open(id: u64, herd: &Herd) -> Self {
        let Herd { retry, backoff, .. } = *herd;
        let jittered = retry == Retry::Jittered;
        let seeded = Jitter::seeded(ClientId::new(id), 2);
        let other = (!jittered).then_some(Other { retry, backoff, jitter: seeded, failed: Attempt::FIRST });
        let none = Backoff { base: Duration::ZERO, cap: Duration::ZERO };
        let backoff = if jittered { backoff } else { none };
        let (calls, limits) = (Config::new(Transport::Http), subscription::Config::default());
        let jitter = |stream| Jitter::seeded(ClientId::new(id), stream);
        let mut machine = Client::new(Instant::ZERO, Config { backoff, ..calls }, jitter(0));
        let listened = Filter::parse(FILTER).ok().and_then(|filter| {
            let limits = subscription::Config { backoff, ..limits };
            machine.listen(Instant::ZERO, filter, limits, jitter(1)).ok()
        });
        let mut member = Self {
            machine,
            subscription: listened,
            wire: None,
            newest: None,
            attempts: 0,
            back_at: None,
            refetched: true,
            reads: Vec::new(),
            hasty: herd.hasty,
            not_new: 0,
            before_refetch: 0,
            other,
            not_before: Instant::ZERO,
        };
        member.look(Instant::ZERO);
        member.input(Instant::ZERO, |wire| Input::Acknowledged { wire });
        member.answer(Instant::ZERO);
        member
    }

    /// Its stream is gone, with the server.
    pub(super) fn lose(&mut self, now: Instant) {
        self.attempts = 0;
        self.refused(now);
    }

    /// When it does something next.
    pub(super) fn wake_at(&mut self) -> Option<Instant> {
        let waits = self.wire.is_none();
        let Output::Idle { wake_at } = self.machine.poll_local() else { return None };
        wake_at.map(|at| if waits { at.max(self.not_before) } else { at })
    }

    /// Its time has come; the listen request that it sends, if it does.
    pub(super) fn ask(&mut self, now: Instant) -> Option<Question> {
        self.machine.handle_timeout(now);
        let before = self.wire;
        self.look(now);
        if self.wire.is_none() || self.wire == before {
            return None;
        }
        self.attempts = self.attempts.saturating_add(1);
        Some(Question { attempt: self.attempts })
    }

    /// Nobody listens there: no byte left.
    pub(super) fn refused(&mut self, now: Instant) {
        // An open stream is lost; what was not answered was never sent.
        let open = self.attempts == 0;
        self.not_before = now + self.other.as_mut().map(|other| other.pause(open)).unwrap_or_default();
        self.input(now, |wire| if open { Input::StreamLost { wire } } else { Input::NotSent { wire } });
        self.wire = None;
    }

    /// The server acknowledges, and at once has something to tell; then it answers what is read.
    pub(super) fn served(&mut self, now: Instant) {
        self.input(now, |wire| Input::Acknowledged { wire });
        self.input(now, |wire| Input::Notice { wire, notice: (), about: Some(Refetch::Tools) });
        self.answer(now);
        self.back_at = Some(now);
    }

    /// The server answers what is read, also what is read for what changed meanwhile.
    fn answer(&mut self, now: Instant) {
        while let Some(wire) = self.reads.pop() {
            self.machine.handle_input(now, Input::Response { wire, answer: () });
            self.look(now);
        }
    }

    fn input(&mut self, now: Instant, input: impl FnOnce(WireId) -> Input<()>) {
        if let Some(wire) = self.wire {
            self.machine.handle_input(now, input(wire));
            self.look(now);
        }
    }

    /// Takes what the machine says, and does it, as an application does.
    fn look(&mut self, now: Instant) {
        loop {
            match self.machine.poll_output() {
                Output::Idle { .. } => return,
                Output::Listen { plan, .. } => {
                    let new = self.newest.is_none_or(|newest| newest < plan.wire());
                    let same = plan.filter().as_str() == FILTER && !plan.send_last_event_id();
                    self.not_new += u64::from(!new || !same);
                    (self.wire, self.newest) = (Some(plan.wire()), Some(plan.wire()));
                }
                Output::Gap { refetch, subscription } => {
                    self.refetched = false;
                    if self.hasty {
                        self.machine.refetched(subscription);
                    }
                    let options = || CallOptions { contract: Contract::Safe, ..CallOptions::default() };
                    for what in refetch {
                        // The caps are far above what one client asks for.
                        let _refused_at_the_cap = self.machine.call(now, what, options()).is_err();
                    }
                }
                Output::Send { wire, .. } => self.reads.push(wire),
                Output::Finished { .. } if self.reads.is_empty() => {
                    self.refetched = true;
                    if let Some(subscription) = self.subscription.filter(|_| !self.hasty) {
                        self.machine.refetched(subscription);
                    }
                }
                Output::Notice { .. } => self.before_refetch += u64::from(!self.refetched),
                Output::Finished { .. }
                | Output::Signal { .. }
                | Output::Progress { .. }
                | Output::Unsubscribed { .. } => {}
            }
        }
    }

    /// When it was acknowledged again; none before, or while what it missed is not read.
    pub(super) fn back_at(&self) -> Option<Instant> {
        self.back_at.filter(|_| self.refetched)
    }

    pub(super) const fn not_new(&self) -> u64 {
        self.not_new
    }

    pub(super) const fn before_refetch(&self) -> u64 {
        self.before_refetch
    }
}
