//! The suite that every ledger has to pass, whatever it stores in.

use crate::sqlite::Sqlite;

#[test]
fn a_ledger_in_a_file_passes_the_suite_of_all_ledgers() {
    assert_eq!(steady_conformance::run(Sqlite::new), Ok(steady_conformance::CASES.len()));
}
