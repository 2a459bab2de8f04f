//! What is answered after a commit of unknown outcome, from what the file says.

use std::time::Duration;

use steady_core::idempotency::{Key, Scope};

use super::*;
use crate::file::Access;
use crate::options::{Entropy, Executor, Options};
use crate::request::{Executed, Request};
use crate::transaction::{CommitFailure, Savepoint, Transaction};
use crate::writer::unit::Work as _;
use lease::End;

struct File {
    tasks: Tasks,
    scope: Scope,
    _dir: tempfile::TempDir,
}

impl File {
    fn open() -> Self {
        Self::open_with(Entropy::default())
    }

    fn open_with(entropy: Entropy) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { entropy, executor: Executor::Inline, ..Options::default() };
        let tasks = Ledger::open(dir.path().join("shop.db"), options).unwrap().tasks();
        Self { tasks, scope: Scope::new("tenant-1", "pack_order"), _dir: dir }
    }

    /// The answer to work whose commit failed, and which was committed all the same, or not.
    fn recovered<T: Send>(&self, (mut unit, answering): Work<T>) -> Result<T, TaskError> {
        let reader = &self.tasks.ledger.inner.reader;
        let recover = |db: &_| {
            unit.recover(&CommitFailure::unknown(), db);
            Ok(())
        };
        reader.with(recover).unwrap();
        Box::new(unit).answer();
        answering.wait().unwrap()?
    }

    fn creation(&self) -> client::Creation {
        let key = Key::parse("order-7").unwrap();
        self.tasks.creation(&Request::new(&self.scope, &key, "{}"), TaskSpec::default()).unwrap()
    }

    /// A task and the lease on it.
    fn claimed(&self) -> Lease {
        self.tasks.create_keyless(&self.scope, TaskSpec::default()).unwrap();
        self.tasks.claim(&["pack_order"], "worker-1", Duration::from_secs(60)).unwrap().unwrap().lease
    }
}

fn is_not_there<T>(answer: Result<T, TaskError>) -> bool {
    matches!(answer, Err(TaskError::Ledger(LedgerError::Storage(_))))
}

#[test]
fn a_creation_is_fresh_if_its_own_task_is_there_and_replayed_if_another_is() {
    let file = File::open();
    assert!(is_not_there(file.recovered(file.tasks.creating(file.creation()))));
    let first = file.creation();
    let again = client::Creation { call: file.creation().call, id: first.id.clone(), spec: TaskSpec::default() };
    let task = file.tasks.wait(Ok(file.tasks.creating(first))).unwrap().into_inner();
    assert_eq!(file.recovered(file.tasks.creating(again)).unwrap(), Executed::Fresh(task.clone()));
    assert_eq!(file.recovered(file.tasks.creating(file.creation())).unwrap(), Executed::Replayed(task));
}

#[test]
fn a_creation_without_a_key_is_found_by_its_id() {
    let file = File::open_with(Entropy::new(|bytes| {
        bytes.fill(7);
        Ok(())
    }));
    let same = || file.tasks.creating_keyless(&file.scope, TaskSpec::default()).unwrap();
    assert!(is_not_there(file.recovered(same())));
    let task = file.tasks.wait(Ok(same())).unwrap();
    assert_eq!(file.recovered(same()).unwrap(), task);
}

#[test]
fn an_end_is_there_if_it_is_this_leases_end() {
    let file = File::open();
    let lease = file.claimed();
    let ends = || [End::Complete(Body::new("done").unwrap()), End::Fail(Body::new("down").unwrap()), End::Cancel];
    let recovered = |end| file.recovered(file.tasks.finishing(&lease, end).unwrap());
    assert!(ends().into_iter().all(|end| is_not_there(recovered(end))));
    file.tasks.complete(&lease, Body::new("done").unwrap()).unwrap();
    let [complete, fail, cancel] = ends();
    recovered(complete).unwrap();
    assert!(is_not_there(recovered(fail)) && is_not_there(recovered(cancel)));
    let other = Lease { epoch: 2, ..lease.clone() };
    let work = file.tasks.finishing(&other, End::Complete(Body::new("done").unwrap())).unwrap();
    assert!(matches!(file.recovered(work), Err(TaskError::LeaseLost)));
}

#[test]
fn a_cancel_request_is_there_if_the_intent_is_or_the_end() {
    let file = File::open();
    let recovered = |lease: &Lease| file.recovered(file.tasks.cancelling("tenant-1", &lease.task));
    let (asked, over) = (file.claimed(), file.claimed());
    assert!(is_not_there(recovered(&asked)) && is_not_there(recovered(&over)));
    file.tasks.cancel("tenant-1", &asked.task).unwrap();
    file.tasks.complete(&over, Body::new("done").unwrap()).unwrap();
    recovered(&asked).unwrap();
    recovered(&over).unwrap();
}

/// The answer to work that was committed, whose commit seemed to fail.
fn lost<T: Send>(file: &File, (mut unit, answering): Work<T>) -> Result<T, TaskError> {
    let db = file.tasks.ledger.site().connect(Access::Write).unwrap();
    let transaction = Transaction::begin(&db).unwrap();
    let savepoint = Savepoint::set(&db).unwrap();
    let keep = unit.run(&db);
    savepoint.end(keep).unwrap();
    assert!(transaction.commit().is_ok());
    file.recovered((unit, answering))
}

#[test]
fn a_question_is_there_if_this_call_stored_it() {
    let file = File::open();
    let lease = file.claimed();
    let requests = |text| vec![("size".into(), Body::new(text).unwrap()), ("colour".into(), Body::new(text).unwrap())];
    let ask = || file.tasks.asking(&lease, requests("which?")).unwrap();
    assert!(is_not_there(file.recovered(ask())));
    lost(&file, ask()).unwrap();
    assert_eq!(file.tasks.get("tenant-1", &lease.task).unwrap().input_requests.len(), 2);
    assert!(is_not_there(lost(&file, ask())), "another call had stored it");
}

#[test]
fn a_resolution_is_there_if_the_audit_says_so() {
    let file = File::open();
    let lease = file.claimed();
    file.tasks.external_started(&lease).unwrap();
    let doubt = "UPDATE ledger_task SET in_doubt = 1";
    file.tasks.ledger.site().connect(Access::Write).unwrap().conn.execute(doubt, []).unwrap();
    let resolve = || file.tasks.resolving(&lease.task, Resolution::Requeue, "ada", "seen").unwrap();
    assert!(is_not_there(file.recovered(resolve())));
    lost(&file, resolve()).unwrap();
    assert!(file.tasks.in_doubt(None, 1).unwrap().is_empty());
    assert!(is_not_there(lost(&file, resolve())), "another call had resolved it");
}

#[test]
fn work_that_cannot_be_looked_up_stays_unknown() {
    let file = File::open();
    let work = file.tasks.claiming(&["pack_order"], "worker-1", Duration::ZERO).unwrap();
    assert!(matches!(file.recovered(work), Err(TaskError::Ledger(LedgerError::CommitUnknown(_)))));
}

/// However many tasks there are, over or not.
#[test]
fn a_claim_reads_the_head_of_the_queue() {
    let file = File::open();
    let plan = file.tasks.read(|tx| {
        let mut statement = tx.conn.prepare(&format!("EXPLAIN QUERY PLAN {}", lease::NEXT))?;
        let steps = statement.query_map(("pack_order", 0), |row| row.get::<_, String>(3))?;
        Ok(steps.collect::<Result<Vec<_>, _>>()?)
    });
    let queue = "SEARCH ledger_task USING INDEX ledger_task_queue (operation=? AND claimable_ms<?)";
    assert_eq!(plan.unwrap(), [queue], "and sorts nothing");
    let plan = file.tasks.read(|tx| {
        let mut statement = tx.conn.prepare(&format!("EXPLAIN QUERY PLAN {}", lease::UNREAL))?;
        let steps = statement.query_map(("pack_order", 0, 0), |row| row.get::<_, String>(3))?;
        Ok(steps.collect::<Result<Vec<_>, _>>()?)
    });
    let queue = "SEARCH ledger_task USING INDEX ledger_task_queue (operation=? AND claimable_ms>?)";
    assert_eq!(plan.unwrap(), [queue], "and sorts nothing");
}
