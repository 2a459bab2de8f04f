//! A file that is not a ledger of ours is refused and left alone; a damaged one answers nothing.

use steady_ledger::Secret;

use super::*;

/// Opens a file that must be refused, and shows that it was left as it was.
fn refused(path: &Path) -> LedgerError {
    let before = std::fs::read(path).unwrap();
    let error = Ledger::open(path, options()).map(drop).unwrap_err();
    assert_eq!(std::fs::read(path).unwrap(), before, "the file changed");
    error
}

fn database(path: &Path, sql: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn foreign_files_are_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name| dir.path().join(name);
    database(&file("other.db"), "PRAGMA application_id = 7; CREATE TABLE t(x)");
    database(&file("empty-but-claimed.db"), "PRAGMA application_id = 7");
    database(&file("nameless.db"), "CREATE TABLE t(x)");
    database(&file("versioned.db"), "PRAGMA user_version = 3");
    std::fs::write(file("text.db"), "not a database, but longer than its header would be ".repeat(40)).unwrap();
    for name in ["other.db", "empty-but-claimed.db", "nameless.db", "versioned.db", "text.db"] {
        let error = refused(&file(name));
        assert!(matches!(error, LedgerError::ForeignFile), "{name}: {error:?}");
    }
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let shop = Shop::open();
    shop.ledger.close().unwrap();
    database(&shop.path(), "PRAGMA user_version = 3");
    let error = refused(&shop.path());
    assert!(matches!(error, LedgerError::NewerSchema { found: 3, known: 2 }), "{error:?}");
}

#[test]
fn an_empty_file_becomes_a_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    std::fs::write(&path, "").unwrap();
    assert!(!call(&open(&path), "order-7").unwrap().is_replay());
}

#[test]
fn a_path_that_cannot_be_opened_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = Ledger::open(dir.path().join("missing/shop.db"), options()).unwrap_err();
    assert!(matches!(error, LedgerError::Storage(_)), "{error:?}");
    assert!(Ledger::open("", options()).is_err());
}

#[test]
fn the_longest_durations_are_accepted() {
    let longest = std::time::Duration::MAX;
    let shop = Shop::open_with(Options { busy_timeout: longest, retention: longest, ..options() });
    assert!(!call(&shop.ledger, "order-7").unwrap().is_replay());
    assert!(call(&shop.ledger, "order-7").unwrap().is_replay());
}

#[test]
fn the_file_is_durable_by_its_settings() {
    let shop = Shop::open();
    let text = |sql| shop.stranger().query_row(sql, [], |row| row.get::<_, rusqlite::types::Value>(0)).unwrap();
    assert_eq!(text("PRAGMA journal_mode"), rusqlite::types::Value::Text("wal".into()));
    assert_eq!(text("PRAGMA application_id"), rusqlite::types::Value::Integer(0x4C44_4752));
    assert_eq!(text("PRAGMA user_version"), rusqlite::types::Value::Integer(2));
    assert_eq!(text("PRAGMA auto_vacuum"), rusqlite::types::Value::Integer(2));
    let loose = "SELECT count(*) FROM pragma_table_list WHERE name LIKE 'ledger%' AND strict = 0";
    assert_eq!(text(loose), rusqlite::types::Value::Integer(0));
}

#[test]
fn a_changed_or_missing_result_is_corrupt_and_not_run_again() {
    let tampering = [
        "UPDATE ledger_result SET body = CAST(replace(body, 'kept', 'lost') AS BLOB)",
        "UPDATE ledger_result SET body = x''",
        "DELETE FROM ledger_result",
        "UPDATE ledger_key SET result_digest = zeroblob(32)",
        // A refusal that was an execution, with the very bytes of it.
        "UPDATE ledger_key SET state = 3, executions = 0",
        // The result of another key.
        "UPDATE ledger_key SET result_id = 2 WHERE key = 'order-7'",
    ];
    for sql in tampering {
        let shop = Shop::open();
        call(&shop.ledger, "order-7").unwrap().into_inner();
        call(&shop.ledger, "order-8").unwrap().into_inner();
        assert!(shop.stranger().execute(sql, []).unwrap() > 0);
        let answer = call(&shop.ledger, "order-7");
        assert!(matches!(answer, Err(LedgerError::Corrupt { .. })), "{sql}: {answer:?}");
        assert_eq!(shop.reservations(), 2, "{sql}");
    }
}

#[test]
fn a_configured_secret_is_not_stored_and_must_stay_the_same() {
    let secret = |byte| Options { secret: Some(Secret::new([byte; 32])), ..options() };
    let shop = Shop::open_with(secret(7));
    call(&shop.ledger, "order-7").unwrap().into_inner();
    let stored = "SELECT count(*) FROM ledger_meta WHERE secret IS NOT NULL";
    assert_eq!(shop.stranger().query_row(stored, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    for other in [secret(8), options()] {
        let error = Ledger::open(shop.path(), other).unwrap_err();
        assert!(matches!(error, LedgerError::WrongSecret), "{error:?}");
    }
    assert!(call(&Ledger::open(shop.path(), secret(7)).unwrap(), "order-7").unwrap().is_replay());
}

#[test]
fn the_schema_option_is_confined_and_all_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let schemas = [
        "CREATE TABLE t(x); COMMIT",
        "CREATE TABLE t(x); PRAGMA foreign_keys = OFF",
        "CREATE TABLE t(x); CREATE TABLE ledger_mine(x)",
        "CREATE TABLE t(x); CREATE TABLE Ledger_Mine(x)",
        "CREATE TABLE t(x); DROP TABLE ledger_key",
        "CREATE TABLE t(x); DELETE FROM ledger_key",
        "CREATE TABLE t(x); ATTACH ':memory:' AS other",
        "CREATE TABLE t(x); this is no SQL",
    ];
    for schema in schemas {
        let error = Ledger::open(&path, Options { schema: schema.into(), ..Options::default() }).unwrap_err();
        let refused = matches!(error, LedgerError::Storage(_) | LedgerError::Forbidden);
        assert!(refused, "{schema}: {error:?}");
    }
    let ledger = open(&path);
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 't'";
    assert_eq!(ledger.read(|tx| tx.query_row(tables, [], |row| row.get::<_, i64>(0))).unwrap(), 0);
}

#[test]
fn handles_that_create_the_same_file_at_once_agree_on_its_secret() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..60 {
        let path = dir.path().join(format!("{round}.db"));
        let barrier = std::sync::Barrier::new(6);
        let replays: usize = std::thread::scope(|threads| {
            let open_and_call = || {
                barrier.wait();
                usize::from(call(&open(&path), "order-7").unwrap().is_replay())
            };
            let workers = [(); 6].map(|()| threads.spawn(open_and_call));
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert_eq!(replays, 5, "round {round}");
    }
}
