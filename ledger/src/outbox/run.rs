//! Decides what a relay does in one savepoint of the writer, and how an unknown commit of it is looked up.

use steady_core::idempotency::{Key, Scope};

use super::machine::{Due, Message, Phase, Sender, Terms, Told, Word};
use super::store::{self, Placed};
use crate::audit::{self, About, Action, By, LEDGER};
use crate::error::LedgerError;
use crate::external::store::Token;
use crate::file::Db;
use crate::time::{Tick, Timekeeper};

/// How many messages one transaction looks at beyond those that it hands out.
const MORE: u32 = 250;

/// A relay's side of a target, without its connection.
#[derive(Clone)]
pub(super) struct Side {
    pub(super) target: Box<str>,
    pub(super) terms: Terms,
    /// The longest pause between two attempts, in milliseconds.
    pub(super) longest_pause: i64,
    pub(super) clock: Timekeeper,
}

/// Which message.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) scope: Scope,
    pub(super) key: Key,
    pub(super) ordinal: u32,
}

/// A message that was claimed.
pub(super) struct Claimed {
    pub(super) placed: Placed,
    pub(super) payload: Vec<u8>,
}

/// Hands out up to `max` messages, after it has put those in order whose sender fell silent.
pub(super) fn claim(db: &Db, side: &Side, token: Token, max: u32, lease: i64) -> Result<Vec<Claimed>, LedgerError> {
    let tick = side.clock.tick(&db.conn)?;
    for placed in store::leased(&db.conn, &side.target, tick.shown, MORE)? {
        if placed.message.is_abandoned(tick.shown) {
            let told = placed.message.lost("its lease is over", Action::LeaseExpired, side.terms, tick, 0);
            settle(db, &placed, told, tick.now, LEDGER)?;
        }
    }
    let limit = max.saturating_add(MORE);
    let mut claimed = Vec::new();
    for mut placed in store::due(&db.conn, &side.target, tick.shown, side.longest_pause, limit)? {
        if claimed.len() >= max as usize {
            break;
        }
        match placed.message.claimed(token, lease, side.terms, tick) {
            Due::Wait => {}
            Due::Stop(message, action) => settle(db, &placed, (message, action), tick.now, LEDGER)?,
            Due::Send(message) => {
                store::put(&db.conn, &placed, &message)?;
                placed.message = message;
                let payload = store::payload(&db.conn, placed.id)?;
                claimed.push(Claimed { placed, payload });
            }
        }
    }
    Ok(claimed)
}

/// What [`claim`] came to. Nothing that was claimed is nothing that was lost.
pub(super) fn look_up_claim(db: &Db, side: &Side, token: Token) -> Result<Option<Vec<Claimed>>, LedgerError> {
    let found = store::claimed(&db.conn, &side.target, token).map_err(unknown)?;
    let with_payload = |placed: Placed| Ok(Claimed { payload: store::payload(&db.conn, placed.id)?, placed });
    let claimed = found.into_iter().map(with_payload).collect::<Result<Vec<_>, LedgerError>>()?;
    Ok(if claimed.is_empty() { None } else { Some(claimed) })
}

/// Takes down what the sender of an attempt says.
pub(super) fn report(
    db: &Db,
    side: &Side,
    place: &Place,
    sender: Sender,
    word: &Word,
    pause: i64,
) -> Result<(), LedgerError> {
    let tick = side.clock.tick(&db.conn)?;
    let placed = find(db, side, place)?.ok_or(LedgerError::Stale)?;
    let told = placed.message.told(sender, word, side.terms, tick, pause).ok_or(LedgerError::Stale)?;
    settle(db, &placed, told, tick.now, LEDGER)
}

/// What [`report`] came to, if it is there: then to say it again would change nothing.
pub(super) fn look_up_report(
    db: &Db,
    side: &Side,
    place: &Place,
    sender: Sender,
    word: &Word,
) -> Result<Option<()>, LedgerError> {
    let placed = find(db, side, place).map_err(unknown)?.ok_or(LedgerError::Stale)?;
    let (shown, now) = (side.clock.shown().unix_millis(), side.clock.now().unix_millis());
    let tick = Tick { shown, now, at_latest: now, sure: false };
    let told = placed.message.told(sender, word, side.terms, tick, 0).ok_or(LedgerError::Stale)?;
    Ok((told.0 == placed.message).then_some(()))
}

/// What a person does to a message that is stuck.
pub(super) enum Decision {
    Requeue { deadline: Option<i64> },
    Skip,
}

impl Decision {
    fn apply(&self, message: &Message, now: i64) -> Option<Message> {
        match self {
            Self::Requeue { deadline } => message.requeued(now, *deadline),
            Self::Skip => message.skipped(),
        }
    }
}

pub(super) fn decide(db: &Db, side: &Side, place: &Place, decision: &Decision, by: By<'_>) -> Result<(), LedgerError> {
    let Tick { shown, now, .. } = side.clock.tick(&db.conn)?;
    let placed = find(db, side, place)?.ok_or(LedgerError::NotStuck)?;
    let after = decision.apply(&placed.message, shown).ok_or(LedgerError::NotStuck)?;
    let action = match decision {
        Decision::Requeue { .. } => Action::Requeued,
        Decision::Skip => Action::Skipped,
    };
    settle(db, &placed, (after, Some(action)), now, by)
}

/// What [`decide`] came to, if it is there.
pub(super) fn look_up_decide(
    db: &Db,
    side: &Side,
    place: &Place,
    decision: &Decision,
) -> Result<Option<()>, LedgerError> {
    let placed = find(db, side, place).map_err(unknown)?.ok_or(LedgerError::NotStuck)?;
    Ok(match (decision, placed.message.phase) {
        (Decision::Skip, Phase::Skipped) => Some(()),
        (Decision::Requeue { .. }, Phase::Pending { .. }) if placed.message.attempts == 0 => Some(()),
        (Decision::Skip | Decision::Requeue { .. }, _) => None,
    })
}

fn find(db: &Db, side: &Side, place: &Place) -> Result<Option<Placed>, LedgerError> {
    store::find(&db.conn, &side.target, (&place.scope, &place.key, place.ordinal))
}

/// Puts a message where it goes, with what the audit says of it.
fn settle(db: &Db, placed: &Placed, (after, action): Told, now: i64, by: By<'_>) -> Result<(), LedgerError> {
    store::put(&db.conn, placed, &after)?;
    let Some(action) = action else { return Ok(()) };
    let about = About { scope: &placed.scope, key: placed.key.as_str(), message: Some(placed.ordinal.into()) };
    audit::write(&db.conn, about, now, action, by)
}

fn unknown(error: LedgerError) -> LedgerError {
    LedgerError::CommitUnknown(error.into())
}
