//! What repeating an operation can do: the class of the contract, the boundary of the key, and the policy on top.

use std::time::Duration;

use steady_core::retry::Safety;

use super::design::{
    Automatic, Boundary, Effect, Idempotency, JitterKind, KeySource, KeyStore, LeaseEnd, Replay, Where,
};
use super::finding::{Area, Notes};
use super::{Design, Finding, Fixture};

const LOST_REPLY: Fixture = Fixture {
    name: "lost-reply-no-key",
    failure: Some("lost-reply-no-key"),
    script: "transport http\ncall A\nwait 20ms\nbreak A\nwait 1s\ncomplete A\n",
    ends: "client: unknown; final response: no; signal: none; ignored: the late completion (by the server)",
};
const LOST_REPLY_KEYED: Fixture = Fixture {
    name: "lost-reply-same-key",
    failure: Some("lost-reply-same-key"),
    script: "transport http\ncall A key order-7\nwait 20ms\nbreak A\nwait 1s\ncomplete A\n",
    ends: "client: completed; final response: yes; signal: none; ignored: nothing",
};
const KEY_OF_THE_BUSINESS: Fixture =
    Fixture { name: "request-id-as-key", failure: Some("request-id-as-key"), ..LOST_REPLY_KEYED };

/// The class that the design earns, and why it is no better.
pub(super) fn class(design: &Design) -> (Safety, String) {
    if design.operation.effect == Effect::Read {
        return (Safety::Safe, "it only reads".into());
    }
    let Some(idempotency) = &design.idempotency else {
        return (Safety::Unsafe, "it changes something, and nothing binds a repetition to the first call".into());
    };
    match flaws(design, idempotency).first() {
        None => (Safety::Conditional, "one key runs once, with the same arguments".into()),
        Some(flaw) => (Safety::Unsafe, (*flaw).into()),
    }
}

/// Why a key does not make it conditional.
fn flaws(design: &Design, idempotency: &Idempotency) -> Vec<&'static str> {
    let external = design.operation.place == Where::External;
    let mut flaws = Vec::new();
    let mut flaw = |when: bool, what: &'static str| flaws.extend(when.then_some(what));
    flaw(idempotency.key != KeySource::Business, "its key is new for every attempt");
    flaw(idempotency.store == KeyStore::Memory, "its keys die with the process");
    flaw(idempotency.store != KeyStore::Postgres && idempotency.replicas > 1, "its replicas do not share their keys");
    flaw(
        !external && idempotency.boundary != Boundary::OneTransaction,
        "key, effect and result are not one transaction",
    );
    flaw(
        external && idempotency.boundary != Boundary::StartedThenReported,
        "the effect elsewhere is not durably started before it is sent",
    );
    flaw(!idempotency.refuses_other_arguments, "other arguments under the same key are not refused");
    flaw(idempotency.lease_end == LeaseEnd::Free, "a key whose owner is gone runs again");
    flaws
}

pub(super) fn check(design: &Design, class: Safety, findings: &mut Vec<Finding>) {
    if let Some(idempotency) = &design.idempotency {
        let notes = &mut Notes::new(Area::Idempotency, findings);
        boundary(design, idempotency, notes);
        memory(design, idempotency, notes);
    }
    policy(design, class, &mut Notes::new(Area::Retry, findings));
}

/// Where the key comes from, where it is kept, and what is one transaction with it.
fn boundary(design: &Design, idempotency: &Idempotency, notes: &mut Notes<'_>) {
    let external = design.operation.place == Where::External;
    notes.blocks(
        idempotency.key == KeySource::RequestId,
        "H7",
        "the key is the JSON-RPC id: it correlates messages and is new for every attempt, so it de-duplicates nothing",
        "take a business key that stays the same for every attempt of one logical operation",
    );
    notes.blocks(
        idempotency.key == KeySource::Attempt,
        "RETRY-2",
        "the key is drawn for each attempt: the retry is a new operation",
        "draw it once, before the first attempt, and store it with the arguments",
    );
    notes.shown_by(idempotency.key == KeySource::RequestId, KEY_OF_THE_BUSINESS);
    notes.shown_by(idempotency.key == KeySource::Attempt, LOST_REPLY_KEYED);
    notes.blocks(
        idempotency.store == KeyStore::Memory,
        "S4",
        "keys are kept in memory: after a restart, and in a second process, a retry runs again",
        "keep keys in the database of the effect",
    );
    notes.blocks(
        idempotency.store == KeyStore::Sqlite && idempotency.replicas > 1,
        "S4",
        "replicas do not share one SQLite file: each would run the key once",
        "use PostgreSQL, or one process",
    );
    notes.blocks(
        !external && idempotency.boundary == Boundary::CheckThenAct,
        "LEDGER",
        "the key is checked apart from the effect: two callers pass the check, or a crash loses the key",
        "put key, effect and result into one transaction",
    );
    notes.blocks(
        !external && matches!(idempotency.boundary, Boundary::ActThenStore | Boundary::StartedThenReported),
        "LEDGER",
        "the effect and its key are not one transaction: a crash between them runs it again or leaves it in doubt",
        "put key, effect and result into one transaction",
    );
    notes.blocks(
        external && idempotency.boundary != Boundary::StartedThenReported,
        "LEDGER",
        "the effect is in another system, and no transaction spans both: a crash in between leaves no trace of it",
        "start the key durably, send with a key of the other system, then report what it answered",
    );
}

/// What a known key answers, to whom, and for how long.
fn memory(design: &Design, idempotency: &Idempotency, notes: &mut Notes<'_>) {
    notes.blocks(
        !idempotency.refuses_other_arguments,
        "LEDGER",
        "the key answers other arguments with the first result",
        "store a fingerprint of the canonical arguments, and refuse what differs",
    );
    notes.blocks(
        !idempotency.scoped_to_principal,
        "K5",
        "keys of all callers share one space: one can read, or block, another's result",
        "scope keys to the authenticated caller and the operation",
    );
    notes.blocks(
        idempotency.lease_end == LeaseEnd::Free,
        "S4",
        "a lease that ends frees the key: a committed effect whose report was lost runs again",
        "put it in doubt, and let a lookup or an operator resolve it",
    );
    notes.blocks(
        idempotency.replay == Replay::Reference,
        "LEDGER",
        "a replay hands out the stored value: whoever changes it changes every later answer",
        "decode a copy from stored bytes for each answer",
    );
    let horizon = horizon(design);
    notes.blocks(
        idempotency.key_retention.is_some_and(|kept| kept < horizon),
        "LEDGER",
        &format!("keys are forgotten before a client stops retrying, which may take {} s", horizon.as_secs()),
        "keep the key for longer than any client retries, or for ever; its result may go earlier",
    );
}

/// How long a client may come back with the same key.
fn horizon(design: &Design) -> Duration {
    let one = design.timeouts.max.unwrap_or(Duration::from_secs(86_400));
    one + design.retry.cap * u32::from(design.retry.attempts)
}

fn policy(design: &Design, class: Safety, notes: &mut Notes<'_>) {
    let retry = &design.retry;
    let twice = class == Safety::Unsafe && retry.automatic == Automatic::MaybeSent;
    notes.blocks(
        twice,
        "RETRY-1",
        "a call that may have run is sent again by itself: its effect can happen twice",
        "reconcile first, by a business key or by a read; or make it conditional",
    );
    notes.shown_by(twice, LOST_REPLY);
    notes.blocks(
        class == Safety::Conditional && retry.automatic == Automatic::MaybeSent && !retry.same_arguments,
        "RETRY-2",
        "a retry builds its arguments anew: the server refuses it as another operation, or runs it as one",
        "store the argument bytes with the key, and send those",
    );
    notes.blocks(
        !retry.fresh_id,
        "H7, M2",
        "a retry re-uses its JSON-RPC id: the late answer of the first attempt settles the second",
        "give every attempt an id of its own",
    );
    notes.blocks(
        retry.trusts_annotations,
        "RETRY-1",
        "the policy follows hints of the server, which may be wrong or hostile",
        "let the caller state the contract; an absent one is unsafe",
    );
    notes.warns(
        class == Safety::Conditional && retry.automatic != Automatic::MaybeSent,
        "RETRY-2",
        "the key makes a retry safe, but the client does not use it: a lost reply is left to the caller",
        "set retry.automatic to maybe_sent",
    );
    notes.shown_by(class == Safety::Conditional && retry.automatic != Automatic::MaybeSent, LOST_REPLY_KEYED);
    let retries = retry.automatic != Automatic::Never && retry.attempts > 1;
    notes.blocks(
        retries && retry.jitter == JitterKind::None,
        "BACKOFF-1",
        "pauses are not spread: all clients of a server that restarts come back in the same instant",
        "use full jitter, applied after the cap",
    );
    notes.warns(
        retries && !retry.budget,
        "RETRY-4",
        "retries are not bounded as a share of the traffic: an outage multiplies the load",
        "share one retry budget among all calls of a client",
    );
}
