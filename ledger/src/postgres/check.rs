//! Decides whether a ledger on PostgreSQL is sound: every record against the result that it names, and the tables against
//! each other. Whether the database's own files are, `pg_amcheck` says.

use steady_core::idempotency::{Key, Scope};

use super::ledger::PgLedger;
use super::record;
use super::wire::args;
use crate::admin::Checked;
use crate::error::LedgerError;

/// Keys that are read at once.
const PAGE: i64 = 500;

/// What must find nothing.
const RULES: [(&str, &str, &str); 4] = [
    (
        "ledger_attempt",
        "no open key has this attempt",
        "SELECT a.key FROM ledger_attempt AS a WHERE NOT EXISTS (SELECT 1 FROM ledger_key AS k
         WHERE k.principal = a.principal AND k.operation = a.operation AND k.key = a.key AND k.state IN (1, 4))",
    ),
    (
        "ledger_outbox",
        "this message waits, but another one is marked as the first of its line",
        "SELECT min(id)::text FROM ledger_outbox WHERE ordering_key IS NOT NULL AND state IN (1, 2, 4, 5)
         GROUP BY target, ordering_key HAVING min(id) IS DISTINCT FROM max(id) FILTER (WHERE head)",
    ),
    (
        "ledger_outbox",
        "this message waits for no other and is not marked as the first",
        "SELECT id::text FROM ledger_outbox WHERE ordering_key IS NULL AND state = 1 AND NOT head",
    ),
    (
        "ledger_key",
        "this key is committed without a result: it is never run again, and nothing is there to replay",
        "SELECT key FROM ledger_key WHERE state IN (2, 3) AND result_digest IS NULL",
    ),
];

impl PgLedger {
    /// Reads every key with its result, and compares the tables: as [`Ledger::check`](crate::Ledger::check), as far as that
    /// is not the database's own business. `progress` hears how many keys are done, of how many.
    ///
    /// # Errors
    ///
    /// [`LedgerError`] if the check could not be made; what it finds is no error.
    pub async fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<Checked, LedgerError> {
        let conn = self.inner.pool.get().await?;
        let mut checked = Checked::default();
        let all = conn.first("SELECT count(*) FROM ledger_key", args![]).await?;
        let all = all.map_or(0, |row| row.get::<_, i64>(0).unsigned_abs());
        progress(0, all);
        for (table, what, sql) in RULES {
            for row in conn.rows(sql, args![]).await? {
                checked.find(format!("{table} {}", row.get::<_, &str>(0)), what);
            }
        }
        let mut last = (String::new(), String::new(), String::new());
        while !checked.is_full() {
            let sql = "SELECT principal, operation, key, clock.now FROM ledger_key,
                           (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS clock
                       WHERE (principal, operation, key) > ($1, $2, $3) ORDER BY principal, operation, key LIMIT $4";
            let values = args![last.0 => TEXT, last.1 => TEXT, last.2 => TEXT, PAGE => INT8];
            let rows = conn.rows(sql, values).await?;
            let Some(end) = rows.last() else { break };
            last = (end.get(0), end.get(1), end.get(2));
            for row in &rows {
                checked.keys += 1;
                let (principal, operation, text): (String, String, String) = (row.get(0), row.get(1), row.get(2));
                let place = format!("{principal} / {operation} / {text}");
                let Ok(key) = Key::parse(&text) else {
                    checked.find(place, "the key has characters that a key cannot have");
                    continue;
                };
                let now = self.inner.times(self.inner.clock_ms().unwrap_or_else(|| row.get(3))).1;
                match record::find(&conn, &Scope::new(principal, operation), &key).await {
                    // A large one goes with its day, which may be before its key becomes a tombstone.
                    Ok(Some((stored, _))) if stored.has_result() && now < stored.record.expires_at => {
                        match stored.verified(&self.inner.secret) {
                            Ok(_) => {}
                            Err(LedgerError::Corrupt { part }) => checked.find(place, part),
                            Err(error) => return Err(error),
                        }
                    }
                    Ok(_) => {}
                    Err(LedgerError::Corrupt { part }) => checked.find(place, part),
                    Err(error) => return Err(error),
                }
            }
            progress(checked.keys, all.max(checked.keys));
        }
        conn.put_back();
        Ok(checked)
    }
}
