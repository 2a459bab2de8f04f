//! One subscription of a client, over all the listen requests that carry it (rules L1 to L6, T1).
//!
//! The leaf machine [`Subscription`] decides when a listen request is sent, when its stream counts as open, and how long
//! to pause before the next one. [`RecoveryPlan`], which the [client](crate::client) makes for each of them, says what it
//! looks like and what must be read afresh.
//!
//! ```text
//!              open()                    Acknowledged
//!   (caller) ─────────► ┌─────────┐ ──────────────────► ┌──────┐
//!      sends listen     │ Opening │                     │ Open │──┐ Message: Deliver
//!                       └─────────┘                     └──────┘◄─┘
//!             Listen      ▲  │  Lost, or                  │  │
//!       (deadline reached)│  │  acknowledgement deadline  │  │ Lost, or silent for too long
//!                       ┌─────────┐ ◄─────────────────────┘  │
//!                       │ Waiting │                          │ FinalResult
//!                       └─────────┘                          │
//!            Refused, Close, FinalResult: from everywhere    ▼
//!            ─────────────────────────────────────────► ┌───────┐
//!                                                       │ Ended │
//!                                                       └───────┘
//! ```
//!
//! The deadline of a stream is the one of its acknowledgement (T1). After it any byte counts as a sign of life, a comment or
//! another message of the same link as well; with [`Config::liveness`] a stream without one is lost, without it an open
//! stream may be silent for ever. The pause grows with each failure and starts over once a stream has stayed open for
//! [`Config::stable_after`]: a server that acknowledges and drops does not get a reconnect storm.
//!
//! | tie | rule |
//! |---|---|
//! | acknowledgement in hand at its deadline | it wins as long as the timer has not been handled |
//! | loss at the acknowledgement deadline | whichever is handled first; both lead to Waiting |
//! | a sign of life in hand at the end of the liveness | it wins as long as the timer has not been handled |
//! | loss exactly `stable_after` after the acknowledgement | the stream was stable |
//! | anything of an older listen request | the shell matches by wire id and does not hand it in; in Waiting it is stale |
//!
//! Invariants:
//! - `SUB-1` a message is delivered only on an acknowledged stream (L1); one before that is counted and dropped;
//! - `SUB-2` every recovery is a new listen request with a new wire id, the same filter and no Last-Event-ID (L5, H7);
//! - `SUB-3` once a stream is acknowledged, everything the filter covers is read afresh (L5), at the first one as well: what
//!   a reader read before is older than the stream, and no notice tells of a change in between;
//! - `SUB-4` Ended is never left, and a graceful end starts no recovery unless the caller asked for it (L4);
//! - `SUB-5` every deadline lies after the `now` that set it, so after [`Event::Clock`] none at or before `now` remains
//!   and no loop runs without time moving;
//! - `SUB-6` a pause never exceeds the backoff's ceiling for the failures so far, or one nanosecond if that is less;
//! - `SUB-7` after a loss one listen request of a client goes out at a time, until the server has answered one;
//! - `SUB-8` an open stream is given up for its silence at the end of its liveness and not before, and never without one.
//!
//! ```
//! use steady_core::backoff::Jitter;
//! use steady_core::id::ClientId;
//! use steady_core::subscription::{Config, Effect, Event, Subscription};
//! use steady_core::time::Instant;
//!
//! let start = Instant::ZERO;
//! let jitter = Jitter::seeded(ClientId::new(1), 0);
//! let mut subscription = Subscription::open(start, Config::default(), jitter); // and send the listen request
//! assert_eq!(subscription.handle(start, Event::Acknowledged), Effect::Opened); // and read what it covers
//! assert_eq!(subscription.handle(start, Event::Message), Effect::Deliver);
//!
//! let Effect::Wait { until } = subscription.handle(start, Event::Lost) else { panic!() };
//! assert_eq!(subscription.handle(until, Event::Clock), Effect::Listen);
//! assert_eq!(subscription.handle(until, Event::Acknowledged), Effect::Opened); // and read it again
//! ```

use core::time::Duration;

use crate::backoff::{Backoff, Jitter};
use crate::id::Attempt;
use crate::time::Instant;

mod recovery;

pub use recovery::{Filter, FilterError, RecoveryPlan, Refetch};

/// The limits of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// How long a listen request may stay without its acknowledgement (T1), a minute at most: others wait for it while a
    /// client is in doubt. Default 30 s.
    pub ack_deadline: Duration,
    /// The pauses between listen requests. Default 250 ms doubling to 8 s, full jitter.
    pub backoff: Backoff,
    /// How long a stream must stay open for the pauses to start over. Default 8 s. With zero, every acknowledgement
    /// starts them over.
    pub stable_after: Duration,
    /// How long an open stream may stay without any sign of life before it is given up and asked for again (T1). At least
    /// a nanosecond. Default `None`: for ever, for links on which a server that has nothing to say says nothing. The kernel
    /// takes whole messages of the link for signs of life. A transport that hears less than a message, as the comments of an
    /// HTTP stream are, has a limit of its own for that: set the HTTP client's `listen_silence` instead.
    pub liveness: Option<Duration>,
    /// Whether to subscribe again after the server ended the subscription gracefully (L4). Default false.
    pub reopen_after_end: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ack_deadline: Duration::from_secs(30),
            backoff: Backoff::default(),
            stable_after: Duration::from_secs(8),
            liveness: None,
            reopen_after_end: false,
        }
    }
}

/// Where a subscription is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// A listen request is out and not acknowledged.
    Opening {
        /// When it is given up.
        deadline: Instant,
    },
    /// The server acknowledged.
    Open {
        /// When it did.
        since: Instant,
        /// The last sign of life.
        heard: Instant,
    },
    /// No listen request is out.
    Waiting {
        /// When the next one is due.
        until: Instant,
    },
    /// Over. Terminal.
    Ended(End),
}

/// Why a subscription is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The server answered the listen request with its final result (L4).
    Graceful,
    /// The server answered the listen request with an error: asking again would be refused again.
    Refused,
    /// The caller closed it.
    Closed,
}

/// What happened. Everything from the peer concerns the current listen request: the shell matches the wire id first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// `notifications/subscriptions/acknowledged` for this listen request (L1).
    Acknowledged,
    /// Any other notification stamped with this listen request's id (L2).
    Message,
    /// Anything came at this time: a sign of life, told when it is asked for (T1).
    Heard {
        /// When.
        at: Instant,
    },
    /// The final result of the listen request: a graceful end (L4).
    FinalResult,
    /// An error answered the listen request, one that asking again would not cure. A passing one (overload) is a loss.
    Refused,
    /// The stream or the link is gone without a final result, or the request could not be sent.
    Lost,
    /// The caller does not want the subscription any more.
    Close,
    /// Time has passed. Too early is a no-op.
    Clock,
}

/// What the shell must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// Send a new listen request as [`RecoveryPlan`] says (`SUB-2`).
    Listen,
    /// The stream is open: run the plan's refetches now, at the first stream as at every later one (`SUB-3`).
    Opened,
    /// Hand the message to the consumer.
    Deliver,
    /// Call [`Subscription::handle`] with [`Event::Clock`] at this time.
    Wait {
        /// When the next listen request is due.
        until: Instant,
    },
    /// Cancel the listen request, which was not acknowledged in time or fell silent, in the transport's own way (C1, C2), then
    /// as [`Effect::Wait`].
    AbortAndWait {
        /// When the next listen request is due.
        until: Instant,
    },
    /// The subscription is over.
    Finish {
        /// Why.
        end: End,
        /// Whether the listen request is still alive and must be cancelled in the transport's own way (C1, C2).
        abort: bool,
    },
    /// The peer broke a rule. Drop what came; it was counted and nothing else changed.
    Violation(Violation),
    /// A late event of a request that is already given up. Drop it; this is normal.
    Stale,
    /// The subscription was already over; nothing was changed (`SUB-4`).
    TooLate,
}

/// How the peer broke a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// A message came before the acknowledgement (L1).
    MessageBeforeAcknowledgement,
    /// The acknowledgement came twice.
    AcknowledgedTwice,
}

/// One subscription of a client. A small value; the filter lives with the shell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subscription {
    config: Config,
    jitter: Jitter,
    state: State,
    /// The attempt that the next failure ends.
    attempt: Attempt,
    violations: u32,
}

impl Subscription {
    /// A new subscription. The caller sends its first listen request at `now`.
    #[must_use]
    pub fn open(now: Instant, config: Config, jitter: Jitter) -> Self {
        Self {
            config,
            jitter,
            state: State::Opening { deadline: later(now, config.ack_deadline.min(LONGEST_ACK)) },
            attempt: Attempt::FIRST,
            violations: 0,
        }
    }

    /// The one transition.
    pub fn handle(&mut self, now: Instant, event: Event) -> Effect {
        let effect = match self.state {
            State::Opening { deadline } => self.opening(now, event, deadline),
            State::Open { since, heard } => self.open_stream(now, event, since, heard),
            State::Waiting { until } => self.waiting(now, event, until),
            State::Ended(_) => match event {
                Event::Clock | Event::Heard { .. } => Effect::Nothing,
                Event::Acknowledged
                | Event::Message
                | Event::FinalResult
                | Event::Refused
                | Event::Lost
                | Event::Close => Effect::TooLate,
            },
        };
        if let Effect::Violation(_) = effect {
            self.violations = self.violations.saturating_add(1);
        }
        effect
    }

    /// Where it is.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// When [`Event::Clock`] is due, if at all. An open stream has a deadline only with [`Config::liveness`] (T1).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Opening { deadline } => Some(deadline),
            State::Waiting { until } => Some(until),
            State::Open { heard, .. } => self.config.liveness.map(|liveness| later(heard, liveness)),
            State::Ended(_) => None,
        }
    }

    /// The attempt that the next failure ends: it grows with every loss that was not preceded by a stable stream.
    #[must_use]
    pub const fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// How often the peer broke a rule, saturating.
    #[must_use]
    pub const fn violations(&self) -> u32 {
        self.violations
    }

    fn opening(&mut self, now: Instant, event: Event, deadline: Instant) -> Effect {
        match event {
            Event::Acknowledged => {
                self.state = State::Open { since: now, heard: now };
                Effect::Opened
            }
            Event::Message => Effect::Violation(Violation::MessageBeforeAcknowledgement),
            Event::FinalResult => self.graceful(now),
            Event::Refused => self.finish(End::Refused, false),
            Event::Lost => Effect::Wait { until: self.pause(now) },
            Event::Close => self.finish(End::Closed, true),
            Event::Clock if now >= deadline => Effect::AbortAndWait { until: self.pause(now) },
            Event::Clock | Event::Heard { .. } => Effect::Nothing,
        }
    }

    fn open_stream(&mut self, now: Instant, event: Event, since: Instant, heard: Instant) -> Effect {
        match event {
            Event::Acknowledged => Effect::Violation(Violation::AcknowledgedTwice),
            Event::Message => {
                self.state = State::Open { since, heard: heard.max(now) };
                Effect::Deliver
            }
            Event::Heard { at } => {
                self.state = State::Open { since, heard: heard.max(at.min(now)) };
                Effect::Nothing
            }
            Event::FinalResult => {
                self.forgive(now, since);
                self.graceful(now)
            }
            Event::Refused => self.finish(End::Refused, false),
            Event::Lost => {
                self.forgive(now, since);
                Effect::Wait { until: self.pause(now) }
            }
            Event::Close => self.finish(End::Closed, true),
            Event::Clock if self.poll_timeout().is_some_and(|at| now >= at) => {
                self.forgive(heard, since);
                Effect::AbortAndWait { until: self.pause(now) }
            }
            Event::Clock => Effect::Nothing,
        }
    }

    fn waiting(&mut self, now: Instant, event: Event, until: Instant) -> Effect {
        match event {
            Event::Acknowledged | Event::Message | Event::FinalResult | Event::Refused | Event::Lost => Effect::Stale,
            Event::Close => self.finish(End::Closed, false),
            Event::Clock if now >= until => {
                self.state = State::Opening { deadline: later(now, self.config.ack_deadline.min(LONGEST_ACK)) };
                Effect::Listen
            }
            Event::Clock | Event::Heard { .. } => Effect::Nothing,
        }
    }

    fn graceful(&mut self, now: Instant) -> Effect {
        if self.config.reopen_after_end {
            Effect::Wait { until: self.pause(now) }
        } else {
            self.finish(End::Graceful, false)
        }
    }

    fn finish(&mut self, end: End, abort: bool) -> Effect {
        self.state = State::Ended(end);
        Effect::Finish { end, abort }
    }

    /// Starts the pauses over if the stream was stable.
    fn forgive(&mut self, now: Instant, since: Instant) {
        if now.saturating_since(since) >= self.config.stable_after {
            self.attempt = Attempt::FIRST;
        }
    }

    /// Enters Waiting and counts the failure (`SUB-6`).
    fn pause(&mut self, now: Instant) -> Instant {
        let delay = self.config.backoff.delay(self.attempt, &mut self.jitter);
        self.attempt = self.attempt.next();
        let until = later(now, delay);
        self.state = State::Waiting { until };
        until
    }
}

/// The longest that a listen request may stay without its acknowledgement.
const LONGEST_ACK: Duration = Duration::from_secs(60);

/// `now + delay`, but never `now` itself (`SUB-5`).
fn later(now: Instant, delay: Duration) -> Instant {
    now + delay.max(Duration::from_nanos(1))
}
