//! Decides what is written down for people: each decision about a key or a message that time or a caller alone cannot
//! explain, by whom, and why.

use rusqlite::Connection;
use steady_core::idempotency::{Key, Scope};
use steady_core::time::WallTime;

use crate::error::LedgerError;

/// The longest name of an actor, in bytes.
const MAX_ACTOR: usize = 255;
/// The longest note, in bytes.
const MAX_NOTE: usize = 4096;
/// How many entries are listed, at most.
pub(crate) const MAX_ENTRIES: i64 = 1000;
/// The actor of what the ledger does by itself.
pub(crate) const LEDGER: By<'static> = By { actor: "ledger", note: "" };

/// An entry of the audit of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditEntry {
    /// When it was decided.
    pub at: WallTime,
    /// What was decided.
    pub action: Action,
    /// Which of the key's outbox messages it is about, from 0; none if it is about the key itself.
    pub message: Option<u32>,
    /// Who decided it: as given, or `ledger`.
    pub actor: Box<str>,
    /// Why, as given.
    pub note: Box<str>,
}

/// A decision about a key or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Its lease ended without a word: it is in doubt.
    LeaseExpired,
    /// Its sender does not know what became of it: it is in doubt.
    ReportedInDoubt,
    /// It may have arrived, and cannot be sent again: it is in doubt.
    NotResent,
    /// It was sent again under the same upstream key.
    Resent,
    /// Its sender reported a commit after it was in doubt.
    CommittedLate,
    /// Its sender reported a refusal after it was in doubt.
    RejectedLate,
    /// Its sender reported, after it was in doubt, that it was never sent, or not taken.
    NeverSent,
    /// Its sender reported, after it was in doubt, that it was delivered.
    DeliveredLate,
    /// Somebody wants it to be sent again.
    Requeued,
    /// Somebody gave it up.
    Skipped,
    /// Somebody found that it is committed.
    ResolvedCommitted,
    /// Somebody found that it is rejected.
    ResolvedRejected,
}

/// Each action, as it is stored.
const ACTIONS: [(Action, &str); 12] = [
    (Action::LeaseExpired, "lease_expired"),
    (Action::ReportedInDoubt, "reported_in_doubt"),
    (Action::NotResent, "not_resent"),
    (Action::Resent, "resent"),
    (Action::CommittedLate, "committed_late"),
    (Action::RejectedLate, "rejected_late"),
    (Action::NeverSent, "never_sent"),
    (Action::DeliveredLate, "delivered_late"),
    (Action::Requeued, "requeued"),
    (Action::Skipped, "skipped"),
    (Action::ResolvedCommitted, "resolved_committed"),
    (Action::ResolvedRejected, "resolved_rejected"),
];

impl Action {
    /// Its name, as it is stored: lower case with underscores.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        ACTIONS.iter().find(|(action, _)| *action == self).map_or("", |(_, name)| name)
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        ACTIONS.iter().find(|(_, stored)| *stored == name).map(|(action, _)| *action)
    }
}

/// Who decides, and why.
#[derive(Clone, Copy)]
pub(crate) struct By<'a> {
    pub(crate) actor: &'a str,
    pub(crate) note: &'a str,
}

impl By<'_> {
    pub(crate) fn check(&self) -> Result<(), LedgerError> {
        at_most(self.actor, "actor", MAX_ACTOR)?;
        at_most(self.note, "note", MAX_NOTE)
    }
}

/// Refuses a text that is too long to be stored.
pub(crate) fn at_most(text: &str, part: &'static str, limit: usize) -> Result<(), LedgerError> {
    if text.len() > limit { Err(LedgerError::TooLarge { part, limit }) } else { Ok(()) }
}

/// What an entry is about.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) key: &'a str,
    pub(crate) message: Option<i64>,
}

impl<'a> About<'a> {
    pub(crate) fn key(scope: &'a Scope, key: &'a Key) -> Self {
        Self { scope, key: key.as_str(), message: None }
    }
}

/// Writes an entry beside what it is about.
pub(crate) fn write(
    conn: &Connection,
    about: About<'_>,
    at: i64,
    action: Action,
    by: By<'_>,
) -> Result<(), LedgerError> {
    let About { scope, key, message } = about;
    let mut statement = conn.prepare_cached(
        "INSERT INTO ledger_audit(at_ms, principal, operation, key, message, action, actor, note)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    statement.execute((at, &*scope.principal, &*scope.operation, key, message, action.as_str(), by.actor, by.note))?;
    Ok(())
}

/// The latest entries of a key, the oldest of them first.
pub(crate) fn list(conn: &Connection, scope: &Scope, key: &Key) -> Result<Vec<AuditEntry>, LedgerError> {
    let mut statement = conn.prepare_cached(
        "SELECT at_ms, action, message, actor, note FROM ledger_audit
         WHERE principal = ?1 AND operation = ?2 AND key = ?3 ORDER BY id DESC LIMIT ?4",
    )?;
    let rows = statement.query_map((&*scope.principal, &*scope.operation, key.as_str(), MAX_ENTRIES), |row| {
        let Some(action) = Action::parse(row.get_ref(1)?.as_str()?) else { return Ok(None) };
        Ok(Some(AuditEntry {
            at: WallTime::from_unix_millis(row.get(0)?),
            action,
            message: row.get(2)?,
            actor: row.get(3)?,
            note: row.get(4)?,
        }))
    })?;
    let mut entries = Vec::new();
    for row in rows {
        entries.push(row?.ok_or(LedgerError::Corrupt { part: "the audit has an action that does not exist" })?);
    }
    entries.reverse();
    Ok(entries)
}
