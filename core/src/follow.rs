//! A client that follows a durable task to its end by asking for it, in the server's rhythm (rules K2 to K4).
//!
//! ```text
//!   start ──► Asking ── Seen, not terminal ──► Waiting ── Clock at `until` ──► Asking
//!               │  └──── Failed ─────────────► Waiting (backoff)
//!               │        Notified, not terminal: in a pause the pause starts anew, while Asking nothing
//!               │        Missed: the next question comes `shortest` from now at the latest, or after the
//!               │                answer that is awaited, which may be older
//!               │        Answered: in a pause ──► Asking, while Asking as Missed
//!               ├── Seen or Notified, terminal ──► Over(Terminal)
//!               └── Gone ────────────► Over(Gone)
//!   everywhere: Stop ──► Over(Stopped);  the maximum ran out ──► Over(GaveUp)
//! ```
//!
//! Following only reads: it never creates a task again because an answer was lost, and giving up leaves the task alone
//! (rule K3). The server's interval is kept within the configured bounds and spread a little, so that the followers of one
//! server do not ask in step.
//!
//! | at the same instant | who wins |
//! |---|---|
//! | a status in hand and the maximum, not handled yet | the status |
//! | a notification while an answer is awaited | the answer, unless the notification is of the task's end: an end is final |
//!
//! Invariants: `FOLLOW-1` Over is never left; `FOLLOW-2` one question is out at a time; `FOLLOW-3` every deadline lies after
//! the `now` that set it.
//!
//! ```
//! use core::time::Duration;
//! use steady_core::backoff::Jitter;
//! use steady_core::follow::{Config, Effect, End, Event, Follow};
//! use steady_core::id::ClientId;
//! use steady_core::time::Instant;
//!
//! let (start, jitter) = (Instant::ZERO, Jitter::seeded(ClientId::new(1), 0));
//! let mut follow = Follow::start(start, Config::default(), jitter); // and ask tasks/get
//! let interval = Some(Duration::from_secs(2));
//! let Effect::Wait { until } = follow.handle(start, Event::Seen { terminal: false, interval }) else { panic!() };
//! assert!(until >= start + Duration::from_secs(2));
//! assert_eq!(follow.handle(until, Event::Clock), Effect::Ask);
//! assert_eq!(follow.handle(until, Event::Seen { terminal: true, interval }), Effect::Finish(End::Terminal));
//! ```

use core::time::Duration;

use crate::backoff::{Backoff, Jitter};
use crate::id::Attempt;
use crate::time::Instant;

/// The limits of following.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct Config {
    /// Shortest pause between two questions, whatever the server says. Default 500 ms.
    pub shortest: Duration,
    /// Longest pause, before a tenth is spread on top. Default 30 s.
    pub longest: Duration,
    /// The pause when the server names none. Default 5 s.
    pub usual: Duration,
    /// Pauses after a question that got no answer.
    pub backoff: Backoff,
    /// How long to follow at most. The task lives on. Default: no limit.
    pub maximum: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            shortest: Duration::from_millis(500),
            longest: Duration::from_secs(30),
            usual: Duration::from_secs(5),
            backoff: Backoff::default(),
            maximum: None,
        }
    }
}

/// Where following is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a state of a leaf machine is matched without a rest arm")]
pub enum State {
    /// A question is out.
    Asking,
    /// The next question is due at `until`.
    Waiting {
        /// When.
        until: Instant,
    },
    /// Over. Terminal.
    Over(End),
}

/// Why following is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every way it can end")]
pub enum End {
    /// The task reached a terminal status.
    Terminal,
    /// The server does not know the task: expired, or another caller's (rule K4).
    Gone,
    /// The caller stopped following.
    Stopped,
    /// The maximum ran out. Nothing is known of the task but its last status.
    GaveUp,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "an event of a leaf machine is matched without a rest arm")]
pub enum Event {
    /// The answer to the question.
    Seen {
        /// Whether the status is terminal.
        terminal: bool,
        /// The server's poll interval, if it named one.
        interval: Option<Duration>,
    },
    /// A notification, which carries the whole state too (rule K6). It answers no question that is out.
    Notified {
        /// Whether the status is terminal.
        terminal: bool,
        /// The server's poll interval, if it named one.
        interval: Option<Duration>,
    },
    /// Something may have changed of which no notification tells: notifications were lost.
    Missed,
    /// The caller gave the task input: its state is looked at, without a pause.
    Answered,
    /// The question got no answer, or one that a later question may cure.
    Failed,
    /// The server does not know the task.
    Gone,
    /// The caller stops following. It does not cancel the task.
    Stop,
    /// Time has passed.
    Clock,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "an effect of a leaf machine is matched without a rest arm")]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// Ask `tasks/get`, a safe request.
    Ask,
    /// Come back at this time.
    Wait {
        /// When the next question is due.
        until: Instant,
    },
    /// Following is over.
    Finish(End),
    /// It was over before.
    TooLate,
}

/// Following one task. See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Follow {
    config: Config,
    jitter: Jitter,
    state: State,
    give_up_at: Option<Instant>,
    /// The attempt that the next failure ends.
    attempt: Attempt,
    /// Something was missed since the question that is out: its answer may be older.
    again: bool,
}

impl Follow {
    /// Starts following at `now`; the caller asks the first question.
    #[must_use]
    pub fn start(now: Instant, config: Config, jitter: Jitter) -> Self {
        let give_up_at = config.maximum.map(|maximum| later(now, maximum));
        Self { config, jitter, state: State::Asking, give_up_at, attempt: Attempt::FIRST, again: false }
    }

    /// The one transition.
    pub fn handle(&mut self, now: Instant, event: Event) -> Effect {
        if let State::Over(_) = self.state {
            return if event == Event::Clock { Effect::Nothing } else { Effect::TooLate };
        }
        match event {
            Event::Seen { terminal: true, interval: _ } | Event::Notified { terminal: true, interval: _ } => {
                self.finish(End::Terminal)
            }
            Event::Notified { terminal: false, interval: _ } if self.state == State::Asking => Effect::Nothing,
            Event::Gone => self.finish(End::Gone),
            Event::Stop => self.finish(End::Stopped),
            Event::Seen { terminal: false, interval } | Event::Notified { terminal: false, interval } => {
                self.attempt = Attempt::FIRST;
                if core::mem::take(&mut self.again) {
                    return self.wait(now, self.config.shortest);
                }
                let pause = interval.unwrap_or(self.config.usual);
                let pause = pause.max(self.config.shortest).min(self.config.longest.max(self.config.shortest));
                // Up to a tenth more, so that followers do not ask in step.
                let tenth = pause / 10;
                let spread = Backoff { base: tenth, cap: tenth }.delay(Attempt::FIRST, &mut self.jitter);
                self.wait(now, pause.saturating_add(spread))
            }
            Event::Missed | Event::Answered if self.state == State::Asking => {
                self.again = true;
                Effect::Nothing
            }
            Event::Answered => {
                self.state = State::Asking;
                Effect::Ask
            }
            // Not at once: a server that says so all the time would set the pace.
            Event::Missed => {
                let soon = later(now, self.config.shortest);
                let until = if let State::Waiting { until } = self.state { until.min(soon) } else { soon };
                self.state = State::Waiting { until };
                Effect::Wait { until }
            }
            Event::Failed => {
                self.again = false;
                let pause = self.config.backoff.delay(self.attempt, &mut self.jitter);
                self.attempt = self.attempt.next();
                self.wait(now, pause)
            }
            Event::Clock => self.clock(now),
        }
    }

    /// Where it is.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether something was missed since the question that is out, so that its answer may be older.
    #[must_use]
    pub const fn has_missed(&self) -> bool {
        self.again
    }

    /// When [`Event::Clock`] is due, if at all.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        match self.state {
            State::Over(_) => None,
            State::Asking => self.give_up_at,
            State::Waiting { until } => Some(self.give_up_at.map_or(until, |at| at.min(until))),
        }
    }

    fn clock(&mut self, now: Instant) -> Effect {
        if self.give_up_at.is_some_and(|at| now >= at) {
            return self.finish(End::GaveUp);
        }
        match self.state {
            State::Waiting { until } if now >= until => {
                self.state = State::Asking;
                Effect::Ask
            }
            State::Waiting { .. } | State::Asking | State::Over(_) => Effect::Nothing,
        }
    }

    fn wait(&mut self, now: Instant, pause: Duration) -> Effect {
        let until = later(now, pause);
        self.state = State::Waiting { until };
        Effect::Wait { until }
    }

    fn finish(&mut self, end: End) -> Effect {
        self.state = State::Over(end);
        Effect::Finish(end)
    }
}

/// `now` plus `pause`, and at least the next nanosecond (`FOLLOW-3`).
fn later(now: Instant, pause: Duration) -> Instant {
    now + pause.max(Duration::from_nanos(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ClientId;
    extern crate std;
    use std::collections::HashSet;
    use std::vec::Vec;

    fn seen(millis: Option<u64>) -> Event {
        Event::Seen { terminal: false, interval: millis.map(Duration::from_millis) }
    }

    #[test]
    fn the_servers_interval_is_kept_within_bounds_and_spread() {
        let config = Config::default();
        for (named, least) in [(Some(0), 500), (Some(2000), 2000), (Some(3_600_000), 30_000), (None, 5000)] {
            let mut pauses = HashSet::new();
            for client in 0..200 {
                let mut follow = Follow::start(Instant::ZERO, config, Jitter::seeded(ClientId::new(client), 0));
                let Effect::Wait { until } = follow.handle(Instant::ZERO, seen(named)) else { panic!("it waits") };
                let least = Instant::from_millis(least);
                assert!(until >= least && until <= least + (least.saturating_since(Instant::ZERO) / 10));
                pauses.insert(until);
            }
            assert!(pauses.len() > 150, "followers do not ask in step");
        }
    }

    #[test]
    fn what_may_have_been_missed_is_asked_for_soon_and_never_more_often_than_the_shortest_pause() {
        let mut follow = Follow::start(Instant::ZERO, Config::default(), Jitter::seeded(ClientId::new(1), 0));
        assert_eq!(follow.handle(Instant::ZERO, Event::Missed), Effect::Nothing, "the question is out");
        let soon = Effect::Wait { until: Instant::ZERO + Config::default().shortest };
        assert_eq!(follow.handle(Instant::ZERO, seen(Some(20_000))), soon, "its answer may be older");
        let mut questions = 0;
        // Something is missed every millisecond.
        for now in 1..=10_000 {
            let now = Instant::from_millis(now);
            if follow.handle(now, Event::Clock) == Effect::Ask {
                questions += 1;
                let _waits = follow.handle(now, seen(Some(20_000)));
            }
            let soon = now + Config::default().shortest;
            let Effect::Wait { until } = follow.handle(now, Event::Missed) else { panic!("it waits") };
            assert!(until > now && until <= soon, "each only shortens the pause");
        }
        assert_eq!(questions, 20, "one each 500 ms");
    }

    #[test]
    fn every_reachable_state_and_every_event() {
        let events = [
            seen(Some(1000)),
            Event::Seen { terminal: true, interval: None },
            Event::Notified { terminal: false, interval: Some(Duration::from_millis(700)) },
            Event::Notified { terminal: true, interval: None },
            Event::Missed,
            Event::Answered,
            Event::Failed,
            Event::Gone,
            Event::Stop,
            Event::Clock,
        ];
        let backoff = Backoff { base: Duration::ZERO, cap: Duration::ZERO };
        let config = Config { maximum: Some(Duration::from_secs(10)), backoff, ..Config::default() };
        let start = Follow::start(Instant::ZERO, config, Jitter::seeded(ClientId::new(7), 0));
        let (mut known, mut open, mut transitions) = (HashSet::new(), Vec::from([(Instant::ZERO, start)]), 0);
        while let Some((now, follow)) = open.pop() {
            for event in events {
                let (mut next, before) = (follow.clone(), follow.state());
                let effect = next.handle(now, event);
                transitions += 1;
                if let State::Over(_) = before {
                    assert_eq!(next.state(), before, "FOLLOW-1");
                    continue;
                }
                assert!(effect != Effect::Ask || before != State::Asking, "FOLLOW-2");
                if let (State::Asking, Event::Notified { terminal: false, .. }) = (before, event) {
                    assert_eq!(next.state(), before, "FOLLOW-2: the question is still out");
                }
                let wake_at = next.wake_at();
                assert!(event != Event::Clock || wake_at.is_none_or(|at| at > now), "FOLLOW-3");
                // Time only moves onto the next deadline; all that counts of it is the distance to the deadlines.
                for then in [Some(now), wake_at].into_iter().flatten() {
                    if known.insert(key(then, &next)) {
                        open.push((then, next.clone()));
                    }
                }
            }
        }
        assert!(known.len() > 20, "{} states, {transitions} transitions", known.len());
    }

    /// Times as distances from `now`, in whole seconds for the far one: equal keys go on in the same way.
    fn key(now: Instant, follow: &Follow) -> (u8, bool, Option<Duration>, Option<u64>) {
        let (state, until) = match follow.state() {
            State::Asking => (0, None),
            State::Waiting { until } => (1, Some(until.saturating_since(now))),
            State::Over(_) => (2, None),
        };
        (state, follow.again, until, follow.give_up_at.map(|at| at.saturating_since(now).as_secs()))
    }
}
