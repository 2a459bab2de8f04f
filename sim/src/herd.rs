//! A fleet of clients that loses its server at one instant: when does each ask again, and how crowded is the server's door?
//!
//! Every client is the shipped client machine with one subscription, in virtual time and with jitter of its own. The server
//! goes at instant zero, refuses connections for the outage, then acknowledges again; each client then reads what it may
//! have missed. Nothing here knows of the policy but through [`Backoff`]: times come out of the machines.
//!
//! The share that a policy allows is known beforehand: a pause is drawn evenly up to a ceiling, so a window can hold at most
//! its length over that ceiling ([`Backoff::share_permille`]). For 250 ms and 100 ms windows that is 40 % of the fleet after
//! the first failure, 20 % after the second, and so on to 1.25 % at 8 s. [`Backoff::FLEET`] starts at 5 %.
//!
//! A server may be several replicas behind a load balancer, which are lost together and take so many connections in 100 ms
//! (`doors`). [`table`] compares policies by what a replica has to take.

mod client;
mod doors;
mod histogram;
pub mod table;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use serde::Serialize;
use steady_core::backoff::{Backoff, Jitter};
use steady_core::id::Attempt;
use steady_core::time::Instant;

use client::{Member, Question};
use doors::Door;
pub use doors::Load;
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
    /// Servers behind a load balancer, all of them lost at once. It sends a client to the same one each time. Default 1.
    pub replicas: u32,
    /// Questions that one replica takes in 100 ms; what is over is refused. Default: no limit.
    pub accepts: Option<u32>,
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
            replicas: 1,
            accepts: None,
            hasty: false,
        }
    }
}

/// How clients pick their pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the shipped policy, and others to compare it with")]
pub enum Retry {
    /// As shipped: anything up to the ceiling.
    Jittered,
    /// Half of the ceiling, and anything up to the other half.
    EqualJitter,
    /// The ceiling itself: growing pauses, and no jitter.
    NoJitter,
    /// The mutant: each client asks again after exactly this pause, as with a retry that knows no jitter.
    Fixed(Duration),
}

impl Retry {
    /// The pause after this attempt.
    fn pause(self, backoff: &Backoff, failed: Attempt, jitter: &mut Jitter) -> Duration {
        let ceiling = backoff.ceiling(failed);
        match self {
            Self::Jittered => backoff.delay(failed, jitter),
            Self::EqualJitter => {
                let half = ceiling / 2;
                half + Backoff { base: half, cap: half }.delay(failed, jitter)
            }
            Self::NoJitter => ceiling,
            Self::Fixed(pause) => pause,
        }
    }
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
    /// The longest that the policy allows for that: its cap, and one window. Nothing if a replica refuses what is over its
    /// limit.
    pub allowed_back_ms: Option<u64>,
    /// What the replicas had to take.
    pub load: Load,
    /// Listen requests that were sent with an id that was used before, or with another filter: none may be.
    pub not_new: u64,
    /// Notices that a client handed out before it had read what it missed: none may be.
    pub before_refetch: u64,
}

impl HerdReport {
    /// Whether every attempt keeps its share, and what chance adds, and every client is back in time, in the right order.
    #[must_use]
    pub fn holds(&self) -> bool {
        let spread = self.attempts.iter().all(AttemptWindows::keeps_its_share);
        let in_time = self.allowed_back_ms.is_none_or(|allowed| self.last_back_ms <= allowed);
        let back = self.back == self.clients && in_time;
        spread && back && self.not_new == 0 && self.before_refetch == 0
    }
}

/// Runs a herd to its end, or for an hour after the server is back: one replica with its clients after the other, since they
/// have nothing to do with each other. So no more machines are there at once than one replica has clients.
#[must_use]
pub fn run(herd: &Herd) -> HerdReport {
    let mut report = HerdReport {
        clients: herd.clients,
        outage_ms: millis(herd.outage),
        attempts: Vec::new(),
        questions: 0,
        back: 0,
        last_back_ms: 0,
        allowed_back_ms: herd.accepts.is_none().then(|| millis(herd.backoff.cap + WINDOW)),
        load: Load::of(herd),
        not_new: 0,
        before_refetch: 0,
    };
    for clients in doors::shares(herd) {
        replica(herd, &clients, &mut report);
    }
    for windows in &mut report.attempts {
        windows.finish(herd);
    }
    report.load.finish(herd);
    report
}

/// Runs one replica, and adds what came of it.
fn replica(herd: &Herd, clients: &[u32], report: &mut HerdReport) {
    let mut members: Vec<Member> = clients.iter().map(|id| Member::open((*id).into(), herd)).collect();
    let lost = Instant::ZERO + START;
    let end = lost + herd.outage + LONGEST;
    let mut door = Door::new(lost, herd);
    let mut due: BinaryHeap<Reverse<(Instant, usize)>> = BinaryHeap::with_capacity(members.len());
    for (at, member) in members.iter_mut().enumerate() {
        member.lose(lost);
        due.extend(member.wake_at().map(|wake| Reverse((wake, at))));
    }
    while let Some(Reverse((now, at))) = due.pop() {
        let Some(member) = members.get_mut(at).filter(|_| now <= end) else { break };
        if let Some(Question { attempt }) = member.ask(now) {
            report.questions += 1;
            let nth = usize::from(attempt.saturating_sub(1));
            while report.attempts.len() <= nth {
                report.attempts.push(AttemptWindows::new(report.attempts.len(), herd));
            }
            if let Some(windows) = report.attempts.get_mut(nth) {
                windows.add(now.saturating_since(lost));
            }
            let arrives = now + herd.latency;
            if door.takes(arrives, &mut report.load) {
                member.served(arrives + herd.latency);
            } else {
                member.refused(arrives + herd.latency);
            }
        }
        due.extend(member.wake_at().map(|wake| Reverse((wake, at))));
    }
    for member in &members {
        if let Some(back_at) = member.back_at() {
            report.back += 1;
            report.last_back_ms = report.last_back_ms.max(millis(back_at.saturating_since(lost + herd.outage)));
        }
        report.not_new += member.not_new();
        report.before_refetch += member.before_refetch();
    }
}

/// How long the streams are open before the server goes: stable.
const START: Duration = Duration::from_secs(60);
/// How long clients may take, once the server is back.
const LONGEST: Duration = Duration::from_secs(3600);

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
