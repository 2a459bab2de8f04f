//! A file of an older schema keeps every answer that it gave.

use steady_ledger::{Clock, State, WallTime};

use super::*;

const SCHEMA_1: &str = include_str!("../fixtures/schema-1.sql");

fn fixture(sql: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.db");
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch(sql).unwrap();
    conn.close().unwrap();
    (dir, path)
}

fn answer(ledger: &Ledger, key_text: &str) -> Result<Executed<String>, LedgerError> {
    let run = |_: &mut EffectTx<'_>| Ok("ran again".to_owned());
    ledger.execute(&Request::new(&scope(), &key(key_text), &arguments("a-1", 2)), run)
}

#[test]
fn a_file_of_schema_1_answers_as_before() {
    let (_dir, path) = fixture(SCHEMA_1);
    let clock = Clock::new(|| WallTime::from_unix_millis(1_790_000_000_000));
    let open = || Ledger::open(&path, Options { clock: clock.clone(), ..Options::default() }).unwrap();
    for ledger in [open(), open()] {
        assert_eq!(answer(&ledger, "order-1").unwrap(), Executed::Replayed("reserved".into()));
        assert_eq!(answer(&ledger, "order-2").unwrap(), Executed::Replayed("sold out".into()));
        assert!(matches!(answer(&ledger, "order-3"), Err(LedgerError::InFlight { .. })));
        assert!(matches!(answer(&ledger, "order-4"), Err(LedgerError::InDoubt)));
        assert!(matches!(answer(&ledger, "order-5"), Err(LedgerError::ResultExpired)));
        assert_eq!(ledger.keyless_executions(&scope()).unwrap(), 1);
        let rejected = ledger.reconcile(&scope(), &key("order-2")).unwrap().unwrap();
        assert_eq!((rejected.state, rejected.executions), (State::Rejected, 0));
        ledger.close().unwrap();
    }
    let conn = rusqlite::Connection::open(&path).unwrap();
    let schema = |sql| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(schema("PRAGMA user_version"), 2);
}

#[test]
fn a_migrated_file_has_the_tables_of_a_new_one() {
    let (_dir, path) = fixture(SCHEMA_1);
    let ledger = Ledger::open(&path, Options::default()).unwrap();
    let new = Shop::open_with(Options::default());
    let tables = |conn: rusqlite::Connection| -> Vec<(String, String)> {
        let named = "SELECT name, sql FROM sqlite_schema WHERE name GLOB 'ledger_*' ORDER BY name";
        let mut statement = conn.prepare(named).unwrap();
        let plain = |sql: String| sql.split_whitespace().collect::<Vec<_>>().join(" ");
        let rows = statement.query_map([], |row| Ok((row.get(0)?, plain(row.get(1)?)))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    ledger.close().unwrap();
    assert_eq!(tables(rusqlite::Connection::open(&path).unwrap()), tables(new.stranger()));
}

#[test]
fn a_migration_that_fails_leaves_the_old_file() {
    let (_dir, path) = fixture(SCHEMA_1);
    let spoilt =
        Options { schema: "CREATE TABLE reservation(x); CREATE TABLE reservation(x)".into(), ..Options::default() };
    assert!(Ledger::open(&path, spoilt).is_err());
    let conn = rusqlite::Connection::open(&path).unwrap();
    let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 1);
    assert!(conn.prepare("SELECT * FROM ledger_task").is_err());
}

#[test]
fn no_application_table_becomes_one_of_the_ledgers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    for sql in [
        "CREATE TABLE mine(x); ALTER TABLE mine RENAME TO ledger_mine",
        "CREATE TABLE mine(x); CREATE INDEX ledger_mine ON mine(x)",
    ] {
        let refused = Ledger::open(&path, Options { schema: sql.into(), ..Options::default() });
        assert!(matches!(refused, Err(LedgerError::Forbidden)), "{sql}: {refused:?}");
    }
}
