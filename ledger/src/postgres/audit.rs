//! Decides how the audit of keys and messages lies in the tables.

use steady_core::idempotency::{Key, Scope};
use steady_core::time::WallTime;

use super::ledger::PgLedger;
use super::tx::Tx;
use super::wire::args;
use crate::audit::{About, Action, AuditEntry, By, MAX_ENTRIES};
use crate::error::LedgerError;

/// Writes an entry beside what it is about.
pub(super) async fn write(tx: &Tx, about: About<'_>, action: Action, by: By<'_>) -> Result<(), LedgerError> {
    let About { scope, key, message } = about;
    let sql = "INSERT INTO ledger_audit(at_ms, principal, operation, key, message, action, actor, note)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let values = args![
        tx.tick.now => INT8, &*scope.principal => TEXT, &*scope.operation => TEXT, key => TEXT, message => INT8,
        action.as_str() => TEXT, by.actor => TEXT, by.note => TEXT,
    ];
    tx.run(sql, values).await.map(drop)
}

impl PgLedger {
    /// As [`Ledger::audit`](crate::Ledger::audit).
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading can fail.
    pub async fn audit(&self, scope: &Scope, key: &Key) -> Result<Vec<AuditEntry>, LedgerError> {
        let conn = self.inner.pool.get().await?;
        let sql = "SELECT at_ms, action, message, actor, note FROM ledger_audit
                   WHERE principal = $1 AND operation = $2 AND key = $3 ORDER BY id DESC LIMIT $4";
        let values = args![
            &*scope.principal => TEXT, &*scope.operation => TEXT, key.as_str() => TEXT, MAX_ENTRIES => INT8,
        ];
        let rows = conn.rows(sql, values).await?;
        conn.put_back();
        let entries = rows.iter().rev().map(|row| {
            Some(AuditEntry {
                at: WallTime::from_unix_millis(row.get(0)),
                action: Action::parse(row.get(1))?,
                message: row.get::<_, Option<i64>>(2).and_then(|message| u32::try_from(message).ok()),
                actor: row.get::<_, String>(3).into(),
                note: row.get::<_, String>(4).into(),
            })
        });
        let entries: Option<Vec<_>> = entries.collect();
        entries.ok_or(LedgerError::Corrupt { part: "the audit has an action that does not exist" })
    }
}
