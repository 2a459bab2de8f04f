//! A ledger in a file that moves to PostgreSQL.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use steady_ledger::{
    Begun, Body, EffectError, Executed, External, ImportError, Ledger, Message, Options, PgLedger, PgOptions, Report,
    Request, Resolution, Resolved, Scope, Secret, State, Status, Target, TaskSpec, rusqlite,
};

use crate::cluster;
use crate::shop::{key, scope};

/// A ledger with something in every table.
pub(crate) fn fill(path: &Path, secret: Option<Secret>) -> Ledger {
    let ledger = Ledger::open(path, Options { secret, ..Options::default() }).unwrap();
    let (scope, print) = (scope(), Scope::new("tenant-1", "print"));
    let execute = |name: &str, result: Result<i64, i64>, message: bool| {
        let key = key(name);
        let done = ledger.execute(&Request::new(&scope, &key, "{}"), move |tx| {
            if message {
                tx.enqueue(Message::new("bank", "x").ordering_key("line"))?;
            }
            result.map_err(EffectError::Reject)
        });
        done.unwrap().into_inner();
    };
    for number in 0..1200 {
        execute(&format!("order-{number}"), Ok(number), number < 3);
    }
    execute("refused", Err(-1), false);
    ledger.execute_keyless(&scope, |_| Ok(0)).unwrap().into_inner();
    for name in ["sent", "doubtful", "resolved"] {
        let key = key(name);
        let external = External::new(Duration::from_secs(3600));
        let Begun::Send(attempt) = ledger.begin::<i64>(&Request::new(&scope, &key, "{}"), &external).unwrap() else {
            panic!("a new key")
        };
        if name != "sent" {
            attempt.in_doubt().unwrap();
        }
        if name == "resolved" {
            ledger.resolve(&scope, &key, &Resolved::Committed(9), "operator", "seen").unwrap();
        }
    }
    let delivery = ledger.outbox(Target::new("bank")).claim(1, Duration::from_secs(3600)).unwrap();
    delivery[0].report(Report::Delivered).unwrap();
    let tasks = ledger.tasks();
    let spec = TaskSpec { payload: Some(Body::new("p").unwrap()), ..TaskSpec::default() };
    let lost = tasks.create_keyless(&print, spec.clone()).unwrap();
    let claimed = tasks.claim(&["print"], "w", Duration::ZERO).unwrap().unwrap();
    tasks.external_started(&claimed.lease).unwrap();
    assert_eq!(tasks.expire_leases(9).unwrap(), 1);
    tasks.resolve(&lost.id, Resolution::Fail(Body::new("lost").unwrap()), "operator", "not there").unwrap();
    for name in ["task-1", "task-2"] {
        tasks.create(&Request::new(&print, &key(name), "{}"), spec.clone()).unwrap().into_inner();
    }
    let claimed = tasks.claim(&["print"], "w", Duration::from_secs(3600)).unwrap().unwrap();
    tasks.complete(&claimed.lease, Body::new("done").unwrap()).unwrap();
    let claimed = tasks.claim(&["print"], "w", Duration::from_secs(3600)).unwrap().unwrap();
    tasks.ask(&claimed.lease, vec![("name".into(), Body::new("who?").unwrap())]).unwrap();
    ledger.trust_clock("operator", "a test").unwrap();
    ledger
}

#[test]
fn every_row_of_a_file_arrives_and_every_key_is_answered_as_before() {
    let name = "every_row_of_a_file_arrives_and_every_key_is_answered_as_before";
    let Some(config) = cluster::database(name) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = fill(&dir.path().join("shop.db"), None);
    crate::runtime().block_on(async {
        let mut heard = Vec::new();
        let import = PgLedger::import(&config, &file, PgOptions::default(), |done, all| heard.push((done, all)));
        let (ledger, imported) = import.await.unwrap();
        let rows: BTreeMap<&str, u64> = imported.iter().map(|table| (table.table, table.rows)).collect();
        assert_eq!(rows["ledger_key"], 1206);
        assert!(rows.values().all(|rows| *rows > 0), "nothing is tested of an empty table: {rows:?}");
        let sum: u64 = rows.values().sum();
        assert_eq!(heard.last(), Some(&(sum, sum)));
        assert!(ledger.check(|_, _| {}).await.unwrap().is_sound());

        let scope = scope();
        for (name, value) in [("order-7", 7), ("order-1199", 1199), ("refused", -1), ("resolved", 9)] {
            let key = key(name);
            let request = Request::new(&scope, &key, "{}");
            let again = ledger.execute(&request, |_| Box::pin(async { Ok(0_i64) })).await.unwrap();
            assert_eq!(again, Executed::Replayed(value), "{name}");
        }
        let state = async |name: &str| ledger.reconcile(&scope, &key(name)).await.unwrap().unwrap().state;
        assert!(matches!(state("sent").await, State::Started { .. }));
        assert_eq!(state("doubtful").await, State::InDoubt);
        assert_eq!(ledger.upstream_key(&scope, &key("sent")), file.upstream_key(&scope, &key("sent")));
        let next = ledger.outbox(Target::new("bank")).claim(9, Duration::from_secs(60)).await.unwrap();
        assert_eq!(next[0].id().key, key("order-1"), "the line goes on where it was");
        let print = Scope::new("tenant-1", "print");
        let (first, second) = (key("task-1"), key("task-2"));
        let task = ledger.tasks().create(&Request::new(&print, &first, "{}"), TaskSpec::default()).await.unwrap();
        assert!(task.is_replay() && task.into_inner().status == Status::Completed);
        let task = ledger.tasks().create(&Request::new(&print, &second, "{}"), TaskSpec::default()).await.unwrap();
        assert_eq!(task.into_inner().input_requests.len(), 1);

        let again = PgLedger::import(&config, &file, PgOptions::default(), |_, _| {}).await;
        assert!(matches!(again, Err(ImportError::NotEmpty)), "{again:?}");
        // The secret that the file kept is kept here.
        PgLedger::open(&config, PgOptions::default()).await.unwrap();
    });
}

#[test]
fn a_damaged_file_does_not_arrive() {
    let Some(config) = cluster::database("a_damaged_file_does_not_arrive") else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    let file = fill(&path, Some(Secret::new([7; 32])));
    let stranger = rusqlite::Connection::open(&path).unwrap();
    stranger.execute("UPDATE ledger_result SET body = x'30' WHERE id = 900", []).unwrap();
    crate::runtime().block_on(async {
        let damaged = PgLedger::import(&config, &file, PgOptions::default(), |_, _| {}).await;
        assert!(matches!(damaged, Err(ImportError::Ledger(_))), "{damaged:?}");
        assert_eq!(crate::shop::number(&config, "SELECT count(*) FROM ledger_key").await, 0);
    });
}
