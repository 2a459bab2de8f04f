//! Faults that are built in on purpose, chosen at run time, for the swarm to find.
//!
//! A swarm that finds nothing could as well be blind. Each of these breaks one promise in the way that implementations
//! break it, around the shipped code or in the fake ledger; the tests demand that the swarm finds each of them within the
//! number of seeds that verify runs, and shrinks it to a handful of events.

use serde::{Deserialize, Serialize};

/// One thing that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums, reason = "each has its place in the world and its test")]
pub enum Mutant {
    /// A server that does not listen to `notifications/cancelled`, and answers.
    AnswersAfterCancel,
    /// A server that does not notice that a client has closed a response stream, and works on.
    IgnoresDisconnect,
    /// A server that sends an answer twice.
    AnswersTwice,
    /// A server that repeats a progress value.
    RepeatsProgress,
    /// A server that drops final answers when progress waits.
    DropsFinal,
    /// A server whose buffer takes whatever comes.
    UnboundedBuffer,
    /// A server that lets handlers go on for ever after their request is over.
    NoGrace,
    /// A ledger that checks the key in one transaction and runs the effect in another.
    KeyApart,
    /// A ledger that keeps its keys in the memory of one process.
    VolatileKeys,
    /// A ledger that answers before it commits.
    AnswersBeforeCommit,
    /// A ledger that takes any arguments for the same.
    IgnoresArguments,
    /// A ledger that forgets a key with its result.
    ForgetsKeys,
    /// A ledger that hands out what it stores as it is now, not as it was.
    MutableResult,
    /// A client that takes every call for one that only reads, and sends it again.
    ResendsUnsafe,
    /// A client that chooses a new key for each attempt.
    NewKey,
    /// A client whose calls have no maximum.
    NoMaximum,
    /// A client that posts `notifications/cancelled` over HTTP.
    PostsCancel,
    /// A client that says of a lost call that it was never sent.
    SaysNeverSent,
    /// A client that uses an id again.
    ReusesIds,
    /// A client that makes an attempt more than it was given.
    OneAttemptMore,
    /// A client that tells the end of a call twice.
    EndsTwice,
    /// A client that does not tell the end of a call.
    NeverEnds,
    /// A client that panics when a call fails.
    Panics,
    /// A server that asks its client.
    AsksClient,
    /// A server that does not acknowledge a subscription.
    ListensUnacknowledged,
    /// A server that does not publish what changes.
    LosesChanges,
    /// A server that keeps the tasks that it made in the memory of its process.
    TasksOfProcess,
    /// A server that takes a key for nothing when a call becomes a task.
    TaskPerCall,
    /// A server that takes the acknowledgement of `tasks/cancel` for the end of the task.
    CancelIsEnd,
    /// A store that takes what a worker writes whose lease another has by now.
    LeaseNotFenced,
    /// A store whose leases never end.
    LeaseForever,
    /// A store that forgets how far a task was when it gives it to the next worker.
    StartsOver,
    /// A ledger that collects its tombstones with the results.
    CollectsTombstones,
    /// A client that does not tell its application that something may have been missed.
    SwallowsGaps,
    /// A ledger that tells arguments apart by their text, with what is no part of them.
    ComparesText,
    /// A server that answers everything with an error once a handler has panicked, as behind a lock that is poisoned.
    StaysPoisoned,
    /// A world that takes something of its process into what it does, so that no two runs are the same.
    Unsteady,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 37] = [
        Self::AnswersAfterCancel,
        Self::IgnoresDisconnect,
        Self::AnswersTwice,
        Self::RepeatsProgress,
        Self::DropsFinal,
        Self::UnboundedBuffer,
        Self::NoGrace,
        Self::KeyApart,
        Self::VolatileKeys,
        Self::AnswersBeforeCommit,
        Self::IgnoresArguments,
        Self::ForgetsKeys,
        Self::MutableResult,
        Self::ResendsUnsafe,
        Self::NewKey,
        Self::NoMaximum,
        Self::PostsCancel,
        Self::SaysNeverSent,
        Self::ReusesIds,
        Self::OneAttemptMore,
        Self::EndsTwice,
        Self::NeverEnds,
        Self::Panics,
        Self::AsksClient,
        Self::ListensUnacknowledged,
        Self::LosesChanges,
        Self::TasksOfProcess,
        Self::TaskPerCall,
        Self::CancelIsEnd,
        Self::LeaseNotFenced,
        Self::LeaseForever,
        Self::StartsOver,
        Self::CollectsTombstones,
        Self::SwallowsGaps,
        Self::ComparesText,
        Self::StaysPoisoned,
        Self::Unsteady,
    ];

    /// Whether it is in the fake ledger, and nowhere in a real one.
    #[must_use]
    pub const fn is_of_ledger(self) -> bool {
        matches!(
            self,
            Self::KeyApart
                | Self::VolatileKeys
                | Self::AnswersBeforeCommit
                | Self::IgnoresArguments
                | Self::ForgetsKeys
                | Self::MutableResult
                | Self::CollectsTombstones
                | Self::ComparesText
        )
    }

    /// Whether it is in the store of tasks: it needs the real ledger, and workers.
    #[must_use]
    pub const fn is_of_tasks(self) -> bool {
        matches!(
            self,
            Self::TasksOfProcess
                | Self::TaskPerCall
                | Self::CancelIsEnd
                | Self::LeaseNotFenced
                | Self::LeaseForever
                | Self::StartsOver
        )
    }
}
