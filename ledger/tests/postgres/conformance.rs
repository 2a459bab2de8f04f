//! The suite that every ledger has to pass, and random commands that it has to answer as one in a file does.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use steady_conformance::{CASES, Command, compare};

use crate::pg_subject::{Form, Postgres};
use crate::sqlite::Sqlite;
use crate::{amount, cluster, runtime};

fn passes(test: &str, form: Form) {
    let Some(database) = cluster::database(test) else { return };
    let runtime = runtime();
    assert_eq!(steady_conformance::run(|| Postgres::new(&runtime, &database, form)), Ok(CASES.len()));
}

#[test]
fn a_ledger_on_postgresql_passes_the_suite_of_all_ledgers() {
    passes("a_ledger_on_postgresql_passes_the_suite_of_all_ledgers", Form::Plain);
}

#[test]
fn prepared_and_serializable_it_passes_the_suite() {
    passes("prepared_and_serializable_it_passes_the_suite", Form::Prepared);
}

#[test]
fn effects_of_one_statement_pass_the_suite() {
    passes("effects_of_one_statement_pass_the_suite", Form::Statement);
}

#[test]
fn random_commands_are_answered_as_by_a_ledger_in_a_file() {
    let Some(database) = cluster::database("random_commands_are_answered_as_by_a_ledger_in_a_file") else { return };
    let runtime = runtime();
    let cases = u32::try_from(amount("STEADY_PG_RANDOM", 24)).unwrap();
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let commands = proptest::collection::vec(any::<u64>().prop_map(Command::from_bits), 1..60);
    let outcome = runner.run(&(commands, any::<bool>()), |(commands, statement)| {
        let form = if statement { Form::Statement } else { Form::Plain };
        let (mut file, mut database) = (Sqlite::new(), Postgres::new(&runtime, &database, form));
        compare(&mut file, &mut database, &commands).map_err(TestCaseError::fail)
    });
    outcome.unwrap();
}
