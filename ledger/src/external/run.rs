//! Decides how a key whose effect is outside of this file moves. Each function is one savepoint of the writer, and has a
//! second one beside it that finds out what an unknown commit came to.

use steady_core::idempotency::{State, Verdict, decide};
use steady_core::time::WallTime;

use super::store::{self, Open, Token};
use super::{External, Upstream, Window};
use crate::audit::{Action, By, LEDGER};
use crate::error::LedgerError;
use crate::file::Db;
use crate::record::{self, Call, Stored};
use crate::secret::Secret;
use crate::time::{self, Tick, millis};
use crate::transaction::{Answer, settle};

/// What a call with an outside effect came to.
pub(crate) enum Began {
    /// It has an answer.
    Settled(Answer),
    /// It is to be sent.
    Held(Held),
    /// It may have been sent. That is stored too, so it is no failure of the transaction.
    InDoubt,
}

pub(crate) struct Held {
    pub(crate) number: u32,
    pub(crate) lease_until: WallTime,
}

pub(crate) fn begin(db: &Db, call: &Call, external: External, token: Token) -> Result<Began, LedgerError> {
    let tick = call.clock.tick(&db.conn)?;
    let stored = record::find(&db.conn, &call.scope, &call.key)?;
    let open = store::find(&db.conn, &call.scope, &call.key)?;
    if let Some(record) = stored.as_ref().map(|stored| stored.record)
        && record.fingerprint == call.fingerprint
        && store::is_abandoned(record.state, open.as_ref(), tick.shown)
    {
        return take_over(db, call, external, token, (record.state, open), tick);
    }
    if let Some(answer) = settle(stored, call)? {
        return Ok(Began::Settled(answer));
    }
    call.check_age(&db.conn)?;
    let resend_until_ms = match external.upstream {
        Upstream::Unknown => None,
        Upstream::Idempotent { window } => Some(tick.shown.saturating_add(millis(window))),
    };
    let open = Open { token, number: 1, lease_ms: millis(external.lease), first_sent_ms: tick.shown, resend_until_ms };
    store::start(&db.conn, call, &open)?;
    Ok(Began::Held(held(&open, tick)))
}

/// Sends again what was abandoned, if that is safe; else leaves it in doubt.
fn take_over(
    db: &Db,
    call: &Call,
    external: External,
    token: Token,
    (state, open): (State, Option<Open>),
    tick: Tick,
) -> Result<Began, LedgerError> {
    match open {
        Some(open) if may_resend(&open, external, tick) => {
            let number = open.number.saturating_add(1);
            let next = Open { token, number, lease_ms: millis(external.lease), ..open };
            store::restart(&db.conn, call, &next, tick)?;
            Ok(Began::Held(held(&next, tick)))
        }
        Some(_) | None => {
            if let State::Started { .. } = state {
                store::doubt(&db.conn, &call.scope, &call.key, tick.now, Action::LeaseExpired)?;
            }
            Ok(Began::InDoubt)
        }
    }
}

/// Whether the upstream still knows the first request. Both the first call and this one must say that it does.
pub(crate) fn may_resend(open: &Open, external: External, tick: Tick) -> bool {
    let (Some(until), Upstream::Idempotent { window }) = (open.resend_until_ms, external.upstream) else {
        return false;
    };
    let until = until.min(open.first_sent_ms.saturating_add(millis(window)));
    Window::of(open.first_sent_ms, until, millis(external.lease), tick) == Window::Open
}

fn held(open: &Open, tick: Tick) -> Held {
    Held { number: open.number, lease_until: WallTime::from_unix_millis(tick.shown.saturating_add(open.lease_ms)) }
}

/// What [`begin`] came to, if it is there.
pub(crate) fn look_up_begin(db: &Db, call: &Call, token: Token) -> Result<Option<Began>, LedgerError> {
    let stored = record::find(&db.conn, &call.scope, &call.key).map_err(unknown)?;
    let open = store::find(&db.conn, &call.scope, &call.key).map_err(unknown)?;
    if let (Some(State::Started { lease_until }), Some(open)) = (stored.as_ref().map(|s| s.record.state), open)
        && open.token == token
    {
        return Ok(Some(Began::Held(Held { number: open.number, lease_until })));
    }
    Ok(settle(stored, call)?.map(Began::Settled))
}

/// What the owner of an attempt says about it.
pub(crate) enum Word {
    /// It knows the outcome.
    Outcome(State, Vec<u8>),
    /// It does not know whether it was sent, or what became of it.
    InDoubt,
    /// It knows that it was not sent.
    NotSent,
}

pub(crate) fn report(db: &Db, call: &Call, token: Token, word: &Word) -> Result<(), LedgerError> {
    let stored = record::find(&db.conn, &call.scope, &call.key)?;
    let Some((late, number)) = say(db, call, token, stored.as_ref())? else {
        return if is_said(&call.secret, word, stored.as_ref()) { Ok(()) } else { Err(LedgerError::Stale) };
    };
    let now = call.clock.tick(&db.conn)?.now;
    let audited = match word {
        Word::Outcome(state, body) => {
            store::finish(&db.conn, call, now, *state, body)?;
            if *state == State::Committed { Action::CommittedLate } else { Action::RejectedLate }
        }
        Word::NotSent if number == 1 => {
            store::forget(&db.conn, &call.scope, &call.key)?;
            Action::NeverSent
        }
        // That this attempt was not sent says nothing of those before it.
        Word::InDoubt | Word::NotSent if late => return Ok(()),
        Word::InDoubt | Word::NotSent => {
            return store::doubt(&db.conn, &call.scope, &call.key, now, Action::ReportedInDoubt);
        }
    };
    if late { store::note(&db.conn, call, now, audited, LEDGER) } else { Ok(()) }
}

/// Whether the owner of a token still has a say: then, whether it is late, and which attempt it is.
fn say(db: &Db, call: &Call, token: Token, stored: Option<&Stored>) -> Result<Option<(bool, u32)>, LedgerError> {
    let late = match stored.map(|stored| stored.record.state) {
        Some(State::Started { .. }) => false,
        Some(State::InDoubt) => true,
        Some(State::Committed | State::Rejected | State::Expired) | None => return Ok(None),
    };
    let open = store::find(&db.conn, &call.scope, &call.key)?.filter(|open| open.token == token);
    Ok(open.map(|open| (late, open.number)))
}

/// Whether what is stored is what the owner says. It can say so twice, as it may not have heard the first answer.
pub(crate) fn is_said(secret: &Secret, word: &Word, stored: Option<&Stored>) -> bool {
    match (word, stored) {
        (Word::Outcome(state, body), Some(stored)) => stored.is_outcome(secret, *state, body),
        (Word::NotSent, None) => true,
        (Word::Outcome(..), None) | (Word::InDoubt | Word::NotSent, Some(_)) | (Word::InDoubt, None) => false,
    }
}

/// What [`report`] came to, if it is there.
pub(crate) fn look_up_report(db: &Db, call: &Call, token: Token, word: &Word) -> Result<Option<()>, LedgerError> {
    let stored = record::find(&db.conn, &call.scope, &call.key).map_err(unknown)?;
    let Some((late, number)) = say(db, call, token, stored.as_ref()).map_err(unknown)? else {
        return if is_said(&call.secret, word, stored.as_ref()) { Ok(Some(())) } else { Err(LedgerError::Stale) };
    };
    Ok(match word {
        Word::InDoubt if late => Some(()),
        Word::NotSent if late && number > 1 => Some(()),
        Word::InDoubt | Word::NotSent | Word::Outcome(..) => None,
    })
}

/// Gives a key in doubt its outcome. `call` has no fingerprint of its own.
pub(crate) fn resolve(db: &Db, call: &Call, state: State, body: &[u8], by: By<'_>) -> Result<(), LedgerError> {
    let Tick { now, shown, .. } = call.clock.tick(&db.conn)?;
    let stored = record::find(&db.conn, &call.scope, &call.key)?.ok_or(LedgerError::NotInDoubt)?;
    let open = store::find(&db.conn, &call.scope, &call.key)?;
    if !store::is_abandoned(stored.record.state, open.as_ref(), shown) {
        return Err(refusal(&stored, call));
    }
    let call = call.of(&stored.record);
    store::finish(&db.conn, &call, now, state, body)?;
    let action = if state == State::Committed { Action::ResolvedCommitted } else { Action::ResolvedRejected };
    store::note(&db.conn, &call, now, action, by)
}

/// What [`resolve`] came to, if it is there.
pub(crate) fn look_up_resolve(db: &Db, call: &Call, state: State, body: &[u8]) -> Result<Option<()>, LedgerError> {
    let stored = record::find(&db.conn, &call.scope, &call.key).map_err(unknown)?.ok_or(LedgerError::NotInDoubt)?;
    let open = store::find(&db.conn, &call.scope, &call.key).map_err(unknown)?;
    if store::is_abandoned(stored.record.state, open.as_ref(), call.clock.shown().unix_millis()) {
        return Ok(None);
    }
    let call = call.of(&stored.record);
    if stored.is_outcome(&call.secret, state, body) { Ok(Some(())) } else { Err(refusal(&stored, &call)) }
}

/// Why a key that is not in doubt cannot be resolved.
fn refusal(stored: &Stored, call: &Call) -> LedgerError {
    match decide(Some(&stored.record), &stored.record.fingerprint, call.clock.shown()) {
        Verdict::InFlight { retry_after } => LedgerError::InFlight { retry_after },
        Verdict::Execute | Verdict::Replay | Verdict::Mismatch | Verdict::InDoubt | Verdict::Expired => {
            LedgerError::NotInDoubt
        }
    }
}

/// Puts keys in doubt whose lease is over, and says how many.
pub(crate) fn sweep(db: &Db, clock: &time::Timekeeper) -> Result<usize, LedgerError> {
    store::sweep(&db.conn, clock.tick(&db.conn)?)
}

fn unknown(error: LedgerError) -> LedgerError {
    LedgerError::CommitUnknown(error.into())
}
