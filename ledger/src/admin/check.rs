//! Decides whether a file is sound: not only its pages, but also every record against the result that it names.

use rusqlite::Connection;
use serde::Serialize;
use steady_core::idempotency::{Key, Scope};

use crate::error::LedgerError;
use crate::file::Access;
use crate::ledger::Ledger;
use crate::record;

/// Something that no release of this ledger wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Where: the key as `principal / operation / key`, or a table.
    pub place: String,
    /// What is wrong there. It quotes no result.
    pub what: String,
}

/// What a check looked at, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Checked {
    /// Keys whose record and result were read.
    pub keys: u64,
    /// What is wrong, the first thousand.
    pub findings: Vec<Finding>,
}

/// Keys that are read in one snapshot.
const PAGE: u32 = 500;
/// After so many findings a check ends: a file that is this wrong needs a backup, not a list.
const MAX_FINDINGS: usize = 1000;

/// What must find nothing.
const RULES: [(&str, &str, &str); 5] = [
    (
        "ledger_result",
        "no key names this result",
        "SELECT CAST(r.id AS TEXT) FROM ledger_result AS r 
         WHERE r.id NOT IN (SELECT result_id FROM ledger_key WHERE result_id IS NOT NULL)",
    ),
    (
        "ledger_attempt",
        "no open key has this attempt",
        "SELECT a.key FROM ledger_attempt AS a WHERE NOT EXISTS (SELECT 1 FROM ledger_key AS k
         WHERE k.principal = a.principal AND k.operation = a.operation AND k.key = a.key AND k.state IN (1, 4))",
    ),
    (
        "ledger_outbox",
        "no key sent this message",
        "SELECT CAST(o.id AS TEXT) FROM ledger_outbox AS o WHERE NOT EXISTS (SELECT 1 FROM ledger_key AS k
         WHERE k.principal = o.principal AND k.operation = o.operation AND k.key = o.key)",
    ),
    (
        "ledger_outbox",
        "this message waits, but another one is marked as the first of its line",
        "SELECT CAST(min(id) AS TEXT) FROM ledger_outbox WHERE ordering_key IS NOT NULL AND state IN (1, 2, 4, 5)
         GROUP BY target, ordering_key HAVING min(id) IS NOT max(iif(head = 1, id, NULL))",
    ),
    (
        "ledger_meta",
        "the number of waiting messages is not what the outbox holds",
        "SELECT CAST(outbox_open AS TEXT) FROM ledger_meta
         WHERE outbox_open <> (SELECT count(*) FROM ledger_outbox WHERE state IN (1, 2, 4, 5))",
    ),
];

impl Ledger {
    /// Reads the whole file: SQLite's own check of its pages, the references between tables, and each key with its
    /// result. Calls go on meanwhile, but the write-ahead log grows for as long as the pages are read, which SQLite does in
    /// one snapshot. `progress` hears how many keys are done, of how many.
    ///
    /// # Errors
    ///
    /// [`LedgerError`] if the check could not be made; what it finds is no error.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<Checked, LedgerError> {
        let db = self.site().connect(Access::Read)?;
        let mut checked = Checked::default();
        let all = db.conn.query_row("SELECT count(*) FROM ledger_key", [], |row| row.get::<_, i64>(0))?.unsigned_abs();
        progress(0, all);
        check_pages(&db.conn, &mut checked)?;
        for (table, what, sql) in RULES {
            let mut statement = db.conn.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let id: String = row.get(0)?;
                checked.find(format!("{table} {id}"), what);
            }
        }
        let mut last = (String::new(), String::new(), String::new());
        while !checked.is_full() {
            let page = keys_after(&db.conn, &last)?;
            let Some(end) = page.last() else { break };
            last = end.clone();
            for (principal, operation, text) in page {
                checked.keys += 1;
                let place = format!("{principal} / {operation} / {text}");
                let Ok(key) = Key::parse(&text) else {
                    checked.find(place, "the key has characters that a key cannot have");
                    continue;
                };
                match record::find(&db.conn, &Scope::new(principal, operation), &key) {
                    Ok(Some(stored)) if stored.has_result() => match stored.verified(self.secret()) {
                        Ok(_) => {}
                        Err(LedgerError::Corrupt { part }) => checked.find(place, part),
                        Err(error) => return Err(error),
                    },
                    // Removed between the two reads: nothing to compare.
                    Ok(_) => {}
                    Err(LedgerError::Corrupt { part }) => checked.find(place, part),
                    Err(error) => return Err(error),
                }
            }
            progress(checked.keys, all.max(checked.keys));
        }
        Ok(checked)
    }
}

type Place = (String, String, String);

fn keys_after(conn: &Connection, last: &Place) -> Result<Vec<Place>, LedgerError> {
    let mut statement = conn.prepare_cached(
        "SELECT principal, operation, key FROM ledger_key WHERE (principal, operation, key) > (?1, ?2, ?3)
         ORDER BY principal, operation, key LIMIT ?4",
    )?;
    let rows =
        statement.query_map((&last.0, &last.1, &last.2, PAGE), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn check_pages(conn: &Connection, checked: &mut Checked) -> Result<(), LedgerError> {
    let mut statement = conn.prepare("PRAGMA integrity_check(100)")?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    for row in rows {
        let row = row?;
        if row != "ok" {
            checked.find("the file".to_owned(), &row);
        }
    }
    let mut statement = conn.prepare("PRAGMA foreign_key_check")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(2)?)))?;
    for row in rows {
        let (table, parent) = row?;
        checked.find(table, &format!("a row refers to a row of {parent} that is not there"));
    }
    Ok(())
}

impl Checked {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.findings.len() >= MAX_FINDINGS
    }

    pub(crate) fn find(&mut self, place: String, what: &str) {
        if !self.is_full() {
            self.findings.push(Finding { place, what: what.to_owned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::options::Options;
    use crate::request::Request;

    /// The work for each row does not depend on how many there are.
    #[test]
    fn the_rules_are_linear() {
        const ROWS: i32 = 2000;
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(dir.path().join("shop.db"), Options::default()).unwrap();
        let scope = Scope::new("tenant-1", "charge");
        let key = Key::parse("order-0").unwrap();
        ledger.execute(&Request::new(&scope, &key, "{}"), |_| Ok(())).unwrap().into_inner();
        let db = ledger.site().connect(Access::Write).unwrap();
        let copies = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < ?1)";
        let results = format!("{copies} INSERT INTO ledger_result(body) SELECT body FROM n, ledger_result");
        db.conn.execute(&results, [ROWS]).unwrap();
        let keys = format!(
            "{copies} INSERT INTO ledger_key(principal, operation, key, fingerprint, state, executions, result_id,
                                             result_digest, recorded_ms, expires_ms)
             SELECT principal, operation, 'copy-' || i, fingerprint, state, executions, 1 + i, result_digest,
                    recorded_ms, expires_ms FROM n, ledger_key"
        );
        db.conn.execute(&keys, [ROWS]).unwrap();
        for (table, what, sql) in RULES {
            let mut statement = db.conn.prepare(sql).unwrap();
            let found = statement.query_map([], |_| Ok(())).unwrap().count();
            assert_eq!(found, 0, "{table}: {what}");
            let steps = statement.get_status(StatementStatus::VmStep);
            assert!(steps < ROWS * 100, "{table}: {what}: {steps} steps for {ROWS} rows");
        }
    }
}
