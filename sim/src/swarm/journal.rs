//! What is seen of a world from outside, and whether it keeps its promises.
//!
//! The journal hears what crosses each end of each link, what handlers and the ledger do, and how calls end. It knows
//! nothing of the machines: each check compares two things that were seen. Everything that is heard goes into the trace,
//! whose hash is that of the run.

mod book;
mod calls;
mod listens;
mod rest;
mod tasks;
mod trace;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use steady_core::retry::Safety;
use steady_core::time::Instant;

use super::script::{Server, Shape, Tool, World};
use super::store::Receipt;
pub(super) use rest::{LOSSLESS, REFUSALS};
pub(super) use tasks::{Held, TTL_MS};
pub use trace::{Seen, Trace};
pub(super) use trace::{mix, mix_bytes};

/// Most violations that are kept: what follows the first is seldom news.
const VIOLATIONS: usize = 32;

/// A promise, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums, reason = "each is checked by a function of the journal")]
pub enum Check {
    /// A request has at most one final response, and nothing after it (REQ-1, rule P3).
    OneFinal,
    /// After an accepted cancellation no message of the request starts (rule C3).
    SilenceAfterCancel,
    /// Progress of a token strictly increases (rule P2).
    ProgressIncreases,
    /// A server sends responses and notifications for requests that it got, and nothing else (rules M1 and C5).
    ServerSpeaksWhenAsked,
    /// A cancellation names a request that was sent, once, and is no message over HTTP (CALL-5, rule C1).
    CancelSignal,
    /// Each attempt has an id that was never used (CALL-2).
    FreshId,
    /// Each attempt has the same bytes but for id and token (RETRY-2).
    SameBytes,
    /// An unsafe call that may have been sent is not sent again (CALL-4, RETRY-1).
    UnsafeOnce,
    /// A call has no more attempts than it was given.
    Attempts,
    /// A call ends once (CALL-1).
    OneOutcome,
    /// A call ends at its maximum at the latest, and nothing of it is sent later (CALL-3).
    Deadline,
    /// An outcome and its verdict are those of the retry matrix for what was sent (RETRY-1, RETRY-3).
    Matrix,
    /// A key has one effect, and a call without one no more than it was delivered.
    OneEffect,
    /// What was acknowledged is in the ledger at the end.
    DurableAnswer,
    /// A key is answered with the same result for ever.
    StableAnswer,
    /// A key is refused to other arguments, and to no others.
    KeyArguments,
    /// No more waits in a server's buffer than its capacity (OUT-1), and no more is in flight than its cap (COORD-1).
    BufferBound,
    /// A handler ends within its grace period once nobody waits for it.
    Grace,
    /// A subscription's first message is its acknowledgement, what follows is stamped with its id, and its end is a result
    /// (rules L1, L2, L4 and C5).
    ListenOrder,
    /// When all is healed, every reader of a subscription hears of the last change (rule L5).
    NothingMissed,
    /// A task is known from its creation on for as long as it lives, and a key has one (TASK-3, rules K1 and K4).
    TaskKept,
    /// A task ends once, by its worker, and is cancelled only where that was asked for (TASK-1, TASK-4, TASK-5, rule K3).
    TaskEnd,
    /// One worker has a task at a time: another gets it when its lease is over, and the first then writes nothing.
    TaskLease,
    /// A worker goes on after the last step that was stored, and each step is stored once.
    TaskProgress,
    /// When all is healed, every task ends, and who follows it is told.
    TasksInCalm,
    /// When all is healed, a call is answered.
    AnsweredInCalm,
    /// When all is healed, the world comes to rest: nothing is in flight, nothing runs, nothing waits.
    ComesToRest,
    /// Nothing panics.
    NoPanic,
    /// The same script is the same run.
    SameRun,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Violation {
    /// Which.
    pub check: Check,
    /// When, in nanoseconds of virtual time.
    pub at: u64,
    /// What was seen.
    pub what: String,
}

impl Check {
    /// All of them.
    pub const ALL: [Self; 29] = [
        Self::OneFinal,
        Self::SilenceAfterCancel,
        Self::ProgressIncreases,
        Self::ServerSpeaksWhenAsked,
        Self::CancelSignal,
        Self::FreshId,
        Self::SameBytes,
        Self::UnsafeOnce,
        Self::Attempts,
        Self::OneOutcome,
        Self::Deadline,
        Self::Matrix,
        Self::OneEffect,
        Self::DurableAnswer,
        Self::StableAnswer,
        Self::KeyArguments,
        Self::BufferBound,
        Self::Grace,
        Self::ListenOrder,
        Self::NothingMissed,
        Self::TaskKept,
        Self::TaskEnd,
        Self::TaskLease,
        Self::TaskProgress,
        Self::TasksInCalm,
        Self::AnsweredInCalm,
        Self::ComesToRest,
        Self::NoPanic,
        Self::SameRun,
    ];
}

impl Violation {
    pub(super) fn not_the_same() -> Self {
        Self { check: Check::SameRun, at: 0, what: "the same script ran differently the second time".to_owned() }
    }
}

/// How often each thing happened, by its name.
pub type Coverage = BTreeMap<&'static str, u64>;

/// One attempt of a call, as it left its client.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    link: usize,
    id: i64,
    bytes: u64,
    /// The link has proved that it did not leave.
    refused: bool,
}

/// One call.
#[derive(Clone, Debug)]
struct Order {
    client: usize,
    name: u32,
    tool: Tool,
    safety: Safety,
    max_at: Instant,
    attempts: Vec<Attempt>,
    /// How often a server got it.
    deliveries: u32,
    effects: u32,
    ended: Option<&'static str>,
    /// It ended with the last word on what it asked for.
    settled: bool,
    /// Made when all was healed.
    in_calm: bool,
}

/// Where a handler is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handler {
    NotStarted,
    Runs,
    Answered,
    Gone,
}

/// A request as its server sees it.
#[derive(Clone, Debug)]
struct Served {
    got_at: Instant,
    reported_at: Instant,
    handler: Handler,
    /// The cancellation was accepted at this moment.
    cancelled: Option<u64>,
    /// Nobody waits for it since then.
    over_at: Option<Instant>,
    /// Until when its handler is in a section that is not cancelled.
    shielded_until: Instant,
    finals: u32,
    progress: Option<f64>,
    /// Of a subscription: whether it was acknowledged.
    listen: Option<bool>,
}

/// A link, or one exchange of HTTP.
#[derive(Clone, Debug)]
struct Conn {
    shape: Shape,
    client: usize,
    server: Server,
    sent: BTreeSet<i64>,
    signalled: BTreeSet<i64>,
    served: BTreeMap<i64, Served>,
}

/// What is known of a key.
#[derive(Clone, Debug, Default)]
struct KeyFacts {
    /// How much it was first committed or refused for.
    amount: Option<u32>,
    effects: u32,
    answer: Option<(Receipt, bool)>,
}

/// See the [module](self).
pub struct Journal {
    now: Instant,
    moment: u64,
    /// What was seen, and its hash.
    pub trace: Trace,
    world: World,
    orders: Vec<Order>,
    conns: Vec<Conn>,
    keys: BTreeMap<u32, KeyFacts>,
    newest_id: BTreeMap<(usize, u32), i64>,
    acknowledged: Vec<(usize, Receipt)>,
    thawed_at: BTreeMap<Server, Option<Instant>>,
    handlers: usize,
    /// What each reader of a subscription knows.
    listeners: BTreeMap<(usize, u32), u64>,
    draining: BTreeSet<Server>,
    tasks: tasks::Tasks,
    /// Requests that servers read.
    pub requests: u64,
    /// What happened how often.
    pub coverage: Coverage,
    /// What was broken.
    pub violations: Vec<Violation>,
}

/// A journal that all parts of a world write to.
#[derive(Clone)]
pub(super) struct Log(Arc<Mutex<Journal>>);

impl Log {
    pub(super) fn new(world: World, record: bool) -> Self {
        Self(Arc::new(Mutex::new(Journal::new(world, record))))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Journal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal {
    fn new(world: World, record: bool) -> Self {
        Self {
            now: Instant::ZERO,
            moment: 0,
            trace: Trace::new(record),
            world,
            orders: Vec::new(),
            conns: Vec::new(),
            keys: BTreeMap::new(),
            newest_id: BTreeMap::new(),
            acknowledged: Vec::new(),
            thawed_at: BTreeMap::new(),
            handlers: 0,
            listeners: BTreeMap::new(),
            draining: BTreeSet::new(),
            tasks: tasks::Tasks::default(),
            requests: 0,
            coverage: Coverage::new(),
            violations: Vec::new(),
        }
    }

    /// Time has come this far; the wall clock shows so many milliseconds since 1970.
    pub(super) fn tick(&mut self, now: Instant, wall: i64) {
        self.now = now;
        self.tasks.shows(wall);
    }

    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    /// The next moment; moments are in the order in which things happen, also at one time.
    pub(super) const fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub(super) fn count(&mut self, name: &'static str) {
        self.count_more(name, 1);
    }

    pub(super) fn count_more(&mut self, name: &'static str, more: u64) {
        if more > 0 {
            *self.coverage.entry(name).or_default() += more;
        }
    }

    pub(super) fn broken(&mut self, check: Check, what: impl Into<String>) {
        let what = what.into();
        self.trace.note(self.now, Seen::Broken, 0, 0, what.as_bytes());
        if self.violations.len() < VIOLATIONS {
            self.violations.push(Violation { check, at: self.now.as_nanos(), what });
        }
    }

    fn demand(&mut self, holds: bool, check: Check, what: impl FnOnce() -> String) {
        if !holds {
            self.broken(check, what());
        }
    }

    /// Something that the script did.
    pub(super) fn event(&mut self, at: usize, text: &str) {
        self.trace.note(self.now, Seen::Event, at as u64, 0, text.as_bytes());
    }

    /// Calls that were made.
    pub(super) const fn calls(&self) -> u64 {
        self.orders.len() as u64
    }

    /// Handlers that run.
    pub(super) const fn running(&self) -> usize {
        self.handlers
    }

    /// A process began or ended.
    pub(super) fn process(&mut self, what: &'static str) {
        self.trace.note(self.now, Seen::Process, 0, 0, what.as_bytes());
        self.count(what);
    }

    /// Whether a server process is stopped, from now on.
    pub(super) fn frozen(&mut self, server: Server, frozen: bool) {
        let since = if frozen { None } else { Some(self.now) };
        self.thawed_at.insert(server, since);
    }
}

/// The name of a call: `2.17` is call 17 of client 2.
fn name(order: &Order) -> String {
    format!("{}.{}", order.client, order.name)
}
