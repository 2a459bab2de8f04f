//! Decides what a relay does in one transaction.

use super::store::{self, Placed};
use super::{Place, Side};
use crate::audit::{About, Action, By, LEDGER};
use crate::error::LedgerError;
use crate::external::store::Token;
use crate::outbox::machine::{Due, Message, Sender, Told, Word};
use crate::postgres::audit;
use crate::postgres::tx::Tx;

/// How many messages one transaction looks at beyond those that it hands out.
const MORE: u32 = 250;

/// Hands out up to `max` messages, after it has put those in order whose sender fell silent.
pub(super) async fn claim(
    tx: &Tx,
    side: &Side<'_>,
    token: Token,
    max: u32,
    lease: i64,
) -> Result<Vec<(Placed, Vec<u8>)>, LedgerError> {
    let tick = tx.tick;
    for placed in store::leased(tx, side.target, MORE).await? {
        if placed.message.is_abandoned(tick.shown) {
            let told = placed.message.lost("its lease is over", Action::LeaseExpired, side.terms, tick, 0);
            settle(tx, side, &placed, told, LEDGER).await?;
        }
    }
    let mut claimed = Vec::new();
    // Those that are locked and not sent are passed by for a moment: no more than are wanted.
    for mut placed in store::due(tx, side.target, side.longest_pause, max).await? {
        match placed.message.claimed(token, lease, side.terms, tick) {
            Due::Wait => {}
            Due::Stop(message, action) => settle(tx, side, &placed, (message, action), LEDGER).await?,
            Due::Send(message) => {
                store::put(tx, side.target, &placed, &message).await?;
                placed.message = message;
                let payload = store::payload(tx, placed.id).await?;
                claimed.push((placed, payload));
            }
        }
    }
    Ok(claimed)
}

/// Takes down what the sender of an attempt says.
pub(super) async fn report(
    tx: &Tx,
    side: &Side<'_>,
    place: Place<'_>,
    (sender, word): (Sender, &Word),
    pause: i64,
) -> Result<(), LedgerError> {
    let placed = store::find(tx, side.target, place).await?.ok_or(LedgerError::Stale)?;
    let told = placed.message.told(sender, word, side.terms, tx.tick, pause).ok_or(LedgerError::Stale)?;
    settle(tx, side, &placed, told, LEDGER).await
}

/// What a person does to a message that is stuck.
pub(super) enum Decision {
    Requeue { deadline: Option<i64> },
    Skip,
}

impl Decision {
    fn apply(&self, message: &Message, now: i64) -> Option<(Message, Action)> {
        match self {
            Self::Requeue { deadline } => Some((message.requeued(now, *deadline)?, Action::Requeued)),
            Self::Skip => Some((message.skipped()?, Action::Skipped)),
        }
    }
}

pub(super) async fn decide(
    tx: &Tx,
    side: &Side<'_>,
    place: Place<'_>,
    decision: &Decision,
    by: By<'_>,
) -> Result<(), LedgerError> {
    let placed = store::find(tx, side.target, place).await?.ok_or(LedgerError::NotStuck)?;
    let (after, action) = decision.apply(&placed.message, tx.tick.shown).ok_or(LedgerError::NotStuck)?;
    settle(tx, side, &placed, (after, Some(action)), by).await
}

/// Puts a message where it goes, with what the audit says of it.
async fn settle(
    tx: &Tx,
    side: &Side<'_>,
    placed: &Placed,
    (after, action): Told,
    by: By<'_>,
) -> Result<(), LedgerError> {
    store::put(tx, side.target, placed, &after).await?;
    let Some(action) = action else { return Ok(()) };
    let about = About { scope: &placed.scope, key: placed.key.as_str(), message: Some(placed.ordinal.into()) };
    audit::write(tx, about, action, by).await
}
