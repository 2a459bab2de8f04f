//! Decides which tables a ledger has, and how a file of an older schema becomes one of the newest: forward only, in the
//! transaction that opens it.

use rusqlite::Connection;

/// What each schema adds to the one before it.
const STEPS: [&[&str]; 2] = [
    &[include_str!("schema/keys.sql")],
    &[
        include_str!("schema/retention.sql"),
        include_str!("schema/external.sql"),
        include_str!("schema/outbox.sql"),
        include_str!("schema/tasks.sql"),
    ],
];

/// The schema that this release reads and writes.
pub(crate) const NEWEST: i64 = STEPS.len() as i64;

/// Brings the tables of a file from this schema, 0 for an empty one, to the newest, in the current transaction. The caller
/// writes down that they are.
pub(crate) fn migrate(conn: &Connection, from: i64) -> rusqlite::Result<()> {
    let from = usize::try_from(from).unwrap_or(STEPS.len());
    for step in STEPS.iter().skip(from).copied().flatten() {
        conn.execute_batch(step)?;
    }
    Ok(())
}

/// The tables, indices and triggers whose names belong to the ledger, and what defines them.
pub(crate) fn objects(conn: &Connection) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    let named = "SELECT name, sql FROM sqlite_schema
                 WHERE lower(substr(name, 1, 7)) = 'ledger_' OR lower(substr(tbl_name, 1, 7)) = 'ledger_' ORDER BY name";
    conn.prepare(named)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
