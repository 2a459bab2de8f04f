//! What the schema option may define, and what an effect can do with it.

use super::*;

fn with(schema: &'static str) -> (tempfile::TempDir, Result<Ledger, LedgerError>) {
    let dir = tempfile::tempdir().unwrap();
    let opened = Ledger::open(dir.path().join("shop.db"), Options { schema: schema.into(), ..Options::default() });
    (dir, opened)
}

#[test]
fn the_schema_option_cannot_bind_itself_to_the_ledgers_tables() {
    for schema in [
        "CREATE TABLE t(x REFERENCES ledger_result(id) ON DELETE CASCADE)",
        "CREATE TABLE t(x REFERENCES \"LEDGER_result\")",
        "CREATE TABLE t(x, FOREIGN KEY(x) REFERENCES [ledger_task](id))",
        "CREATE TABLE t(x); CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM ledger_key; END",
        "CREATE VIEW v AS SELECT * FROM ledger_meta",
    ] {
        let (_dir, opened) = with(schema);
        assert!(matches!(opened, Err(LedgerError::Forbidden)), "{schema}: {opened:?}");
    }
}

#[test]
fn statistics_are_kept_of_the_applications_tables_alone() {
    let (_dir, opened) = with("CREATE TABLE t(x); ANALYZE");
    assert!(opened.is_err());
    assert!(with("CREATE TABLE IF NOT EXISTS t(x); ANALYZE t").1.is_ok());
}

#[test]
fn a_name_that_only_holds_the_word_is_the_applications() {
    let (_dir, opened) = with("CREATE TABLE general_ledger_entry(my_ledger_id) -- a_ledger_ of sales");
    let ledger = opened.unwrap();
    let write = |tx: &mut EffectTx<'_>| Ok(tx.execute("INSERT INTO general_ledger_entry VALUES (1)", [])?);
    assert_eq!(ledger.execute_keyless(&scope(), write).unwrap().into_inner(), 1);
}

#[test]
fn full_text_and_spatial_tables_can_be_used() {
    let (_dir, opened) = with(
        "CREATE VIRTUAL TABLE IF NOT EXISTS note USING fts5(body);
         CREATE VIRTUAL TABLE IF NOT EXISTS span USING rtree(id, low, high);",
    );
    let ledger = opened.unwrap();
    let write = |tx: &mut EffectTx<'_>| {
        tx.execute("INSERT INTO note VALUES ('two red chairs')", [])?;
        tx.execute("INSERT INTO span VALUES (1, 10, 20)", [])?;
        Ok(tx.query_row("SELECT count(*) FROM note WHERE note MATCH 'red'", [], |row| row.get::<_, i64>(0))?)
    };
    for count in 1..=2 {
        let key = key(&format!("order-{count}"));
        let done = ledger.execute(&Request::new(&scope(), &key, "{}"), move |tx: &mut EffectTx<'_>| {
            tx.execute("DELETE FROM span", [])?;
            write(tx)
        });
        assert_eq!(done.unwrap().into_inner(), count);
    }
    let found = ledger.read(|tx| {
        let text = tx.query_row("SELECT count(*) FROM note('chairs')", [], |row| row.get::<_, i64>(0))?;
        Ok((text, tx.query_row("SELECT count(*) FROM span WHERE low > 5", [], |row| row.get::<_, i64>(0))?))
    });
    assert_eq!(found.unwrap(), (2, 1));
    let setting = |tx: &mut EffectTx<'_>| Ok(tx.execute("PRAGMA page_size = 512", [])?);
    assert!(matches!(ledger.execute_keyless(&scope(), setting), Err(LedgerError::Forbidden)));
}
