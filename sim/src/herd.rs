//! A fleet of clients that loses its server at one instant: when does each ask again, and how crowded is the server's door?
//!
//! Every client is the shipped client machine with one subscription, in virtual time and with jitter of its own. The server
//! goes at instant zero, refuses connections for the outage, then acknowledges again; each client then reads what it may
//! have missed. Nothing here knows of the policy but through [`Backoff`]: times come out of the machines.
//!
//! The share that a policy allows is known beforehand: a pause is drawn evenly up to a ceiling, so a window can hold at most
//! its length over that ceiling ([`Backoff::share_permille`]). For 250 ms and 100 ms windows that is 40 % of the fleet after
//! the first failure, 20 % after the second, and so on to 1.25 % at 8 s. [`Backoff::FLEET`] starts at 5 %.

mod client;
mod histogram;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use serde::Serialize;
use steady_core::backoff::Backoff;
use steady_core::time::Instant;

use client::{Member, Question};
pub use histogram::{AttemptWindows, WINDOW};

/// A fleet and what happens to it.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Herd::default()")]
pub struct Herd {
    /// How many clients. Default 10,000.
    pub clients: u32,
    /// How long the server is away. Default 1 s.
    pub outage: Duration,
    /// The pauses of each client. Default: those of a client.
    pub backoff: Backoff,
    /// How each client picks its pause.
    pub retry: Retry,
    /// How long a message is under way. Default 1 ms.
    pub latency: Duration,
    /// The mutant that the harness must catch: a client that hands out notices while what it missed is still being read.
    /// Default false.
    pub hasty: bool,
}

impl Default for Herd {
    fn default() -> Self {
        Self {
            clients: 10_000,
            outage: Duration::from_secs(1),
            backoff: Backoff::default(),
            retry: Retry::Jittered,
            latency: Duration::from_millis(1),
            hasty: false,
        }
    }
}

/// How clients pick their pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the shipped policy, and the mutant that the harness must catch")]
pub enum Retry {
    /// As shipped.
    Jittered,
    /// The mutant: each client asks again after exactly this pause, as with a retry that knows no jitter.
    Fixed(Duration),
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct HerdReport {
    /// Clients.
    pub clients: u32,
    /// How long the server was away, in milliseconds.
    pub outage_ms: u64,
    /// Each attempt, in windows of [`WINDOW`].
    pub attempts: Vec<AttemptWindows>,
    /// Questions of all clients together, the answered ones included.
    pub questions: u64,
    /// Clients that are back, with their state read.
    pub back: u32,
    /// When the last one was acknowledged, after the server was back, in milliseconds.
    pub last_back_ms: u64,
    /// The longest that the policy allows for that: its cap, and one window.
    pub allowed_back_ms: u64,
    /// Listen requests that were sent with an id that was used before, or with another filter: none may be.
    pub not_new: u64,
    /// Notices that a client handed out before it had read what it missed: none may be.
    pub before_refetch: u64,
}

impl HerdReport {
    /// Whether every attempt keeps its share, with a fifth on top, and every client is back in time, in the right order.
    #[must_use]
    pub fn holds(&self) -> bool {
        let spread = self.attempts.iter().all(AttemptWindows::keeps_its_share);
        let back = self.back == self.clients && self.last_back_ms <= self.allowed_back_ms;
        spread && back && self.not_new == 0 && self.before_refetch == 0
    }
}

/// Runs a herd to its end.
#[must_use]
pub fn run(herd: &Herd) -> HerdReport {
    let mut members: Vec<Member> = (0..herd.clients).map(|id| Member::open(id.into(), herd)).collect();
    let (lost, back_at) = (Instant::ZERO + START, Instant::ZERO + START + herd.outage);
    let mut due: BinaryHeap<Reverse<(Instant, u32)>> = BinaryHeap::new();
    let mut attempts: Vec<AttemptWindows> = Vec::new();
    let mut questions = 0;
    for (id, member) in (0_u32..).zip(&mut members) {
        member.lose(lost);
        due.extend(member.wake_at().map(|at| Reverse((at, id))));
    }
    while let Some(Reverse((now, id))) = due.pop() {
        let Some(member) = usize::try_from(id).ok().and_then(|id| members.get_mut(id)) else { continue };
        if let Some(Question { attempt }) = member.ask(now) {
            questions += 1;
            let nth = usize::from(attempt.saturating_sub(1));
            while attempts.len() <= nth {
                attempts.push(AttemptWindows::new(attempts.len(), herd));
            }
            if let Some(windows) = attempts.get_mut(nth) {
                windows.add(now.saturating_since(lost));
            }
            let arrives = now + herd.latency;
            if arrives < back_at {
                member.refused(arrives + herd.latency);
            } else {
                member.served(arrives + herd.latency);
            }
        }
        due.extend(member.wake_at().map(|at| Reverse((at, id))));
    }
    for windows in &mut attempts {
        windows.finish(herd);
    }
    let last = members.iter().filter_map(Member::back_at).max();
    let count = |which: fn(&Member) -> u64| members.iter().map(which).sum();
    HerdReport {
        clients: herd.clients,
        outage_ms: millis(herd.outage),
        attempts,
        questions,
        back: u32::try_from(members.iter().filter(|member| member.back_at().is_some()).count()).unwrap_or(u32::MAX),
        last_back_ms: millis(last.map(|last| last.saturating_since(back_at)).unwrap_or_default()),
        allowed_back_ms: millis(herd.backoff.cap + WINDOW),
        not_new: count(Member::not_new),
        before_refetch: count(Member::before_refetch),
    }
}

/// How long the streams are open before the server goes: stable.
const START: Duration = Duration::from_secs(60);

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
