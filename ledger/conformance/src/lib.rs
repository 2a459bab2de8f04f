//! What every ledger of mcp-steady answers, whatever it stores in: one suite, for each of them.
//!
//! A test makes its ledger a [`Subject`] and hands a way to make new ones to [`run`]. [`compare`] lets two of them answer
//! the same random commands. The suite itself is tested on a model that is faulty on request, in `tests/`.
#![forbid(unsafe_code)]

mod cases;
mod command;

use std::fmt;
use std::time::Duration;

pub use cases::{CASES, Case};
pub use command::{Command, compare};

/// What the clock of a new [`Subject`] shows, in Unix milliseconds.
pub const START_MS: i64 = 1_790_000_000_000;
/// How long a [`Subject`] replays results.
pub const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// How old a key may be that carries its time: the horizon that a [`Subject`] is opened with.
pub const HORIZON: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The lease that a [`Subject`] begins attempts with.
pub const LEASE: Duration = Duration::from_secs(30);

/// Who calls what with which key and arguments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Call {
    /// Who calls.
    pub principal: String,
    /// What is called.
    pub operation: String,
    /// The business key.
    pub key: String,
    /// The text of a JSON object.
    pub arguments: String,
}

impl Call {
    /// A call with this key; all else is the same for each.
    #[must_use]
    pub fn new(key: &str) -> Self {
        let [principal, operation, arguments] = ["tenant-1", "charge", "{}"].map(str::to_owned);
        Self { principal, operation, key: key.to_owned(), arguments }
    }

    /// The same call of somebody else.
    #[must_use]
    pub fn principal(self, principal: &str) -> Self {
        Self { principal: principal.to_owned(), ..self }
    }

    /// The same call of something else.
    #[must_use]
    pub fn operation(self, operation: &str) -> Self {
        Self { operation: operation.to_owned(), ..self }
    }

    /// The same call with other arguments.
    #[must_use]
    pub fn arguments(self, arguments: &str) -> Self {
        Self { arguments: arguments.to_owned(), ..self }
    }
}

/// What an effect does, after it has left one row for its key: see [`Subject::rows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a subject has to know all of them")]
pub enum Effect {
    /// It succeeds with this value.
    Commit(i64),
    /// The business refuses with this value.
    Reject(i64),
    /// It fails.
    Abort,
    /// It panics.
    Panic,
}

/// What another system does with a request that it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a subject has to know all of them")]
pub enum Upstream {
    /// Nobody knows.
    Unknown,
    /// It recognises it for so long.
    Idempotent(Duration),
}

/// An attempt that was begun: a number of the subject's choice.
pub type Ticket = usize;

/// What the owner of an attempt says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a subject has to know all of them")]
pub enum Word {
    /// The other system did it.
    Commit(i64),
    /// The other system refused.
    Reject(i64),
    /// Nobody knows.
    InDoubt,
    /// Nothing was sent.
    NotSent,
}

/// What a subject answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a case names the one that it expects")]
pub enum Answer {
    /// The effect ran.
    Fresh(i64),
    /// An earlier effect ran, and this is what it came to.
    Replayed(i64),
    /// The caller is to send it: with this ticket, as attempt of this number.
    Send(Ticket, u32),
    /// The report or the decision was taken.
    Done,
    /// Other arguments.
    Mismatch,
    /// Another attempt has its lease.
    InFlight,
    /// Nobody knows what became of it.
    InDoubt,
    /// Its result is not kept any more.
    Expired,
    /// Its key is beyond the horizon.
    TooOld,
    /// Somebody else decided.
    Stale,
    /// There is nothing to decide.
    NotInDoubt,
    /// The effect failed.
    Aborted,
    /// The effect panicked.
    Panicked,
    /// The arguments have no canonical form.
    InvalidArguments,
    /// Anything else, as a text.
    Other(String),
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a subject makes it")]
pub struct Known {
    /// Its state.
    pub state: KeyState,
    /// How often its effect was committed.
    pub executions: u64,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a subject has to know all of them")]
pub enum KeyState {
    /// An attempt was begun.
    Started,
    /// Its effect is there.
    Committed,
    /// The business refused.
    Rejected,
    /// Nobody knows.
    InDoubt,
    /// It is a tombstone.
    Expired,
}

/// A ledger of its own under test: empty at first, with [`START_MS`], [`RETENTION`] and [`HORIZON`].
pub trait Subject {
    /// Runs an effect under a key, which leaves a row for its key if it is kept.
    fn execute(&mut self, call: &Call, effect: Effect) -> Answer;
    /// Begins an attempt outside of the ledger, with [`LEASE`].
    fn begin(&mut self, call: &Call, upstream: Upstream) -> Answer;
    /// Says what became of an attempt. The subject keeps all attempts that it gave tickets for.
    fn report(&mut self, ticket: Ticket, word: Word) -> Answer;
    /// Gives a key in doubt its outcome: committed or rejected, with this value.
    fn resolve(&mut self, call: &Call, committed: bool, value: i64) -> Answer;
    /// What is known of the key of this call.
    fn look(&mut self, call: &Call) -> Option<Known>;
    /// How many rows effects have left for the key of this call.
    fn rows(&mut self, call: &Call) -> u64;
    /// Lets the clock go on.
    fn advance(&mut self, by: Duration);
    /// Collects what may go: all of it, with a clock that is sure. What is lost is put in doubt.
    fn collect(&mut self);
    /// Loses all that is not durable, and opens the ledger again. Tickets stay good.
    fn restart(&mut self);
}

/// Where a subject is not what it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// The case.
    pub case: &'static str,
    /// What was wrong in it.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.case, self.what)
    }
}

impl std::error::Error for Broken {}

/// Runs every case, each on a new subject. Returns how many there were.
///
/// # Errors
///
/// The first case that does not hold.
pub fn run<S: Subject>(mut make: impl FnMut() -> S) -> Result<usize, Broken> {
    for (case, work) in CASES {
        work(&mut make()).map_err(|what| Broken { case, what })?;
    }
    Ok(CASES.len())
}
