//! Commits that hang on their way: their connection is lost, and the server reads them later, when the caller has long
//! been answered.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use steady_ledger::tokio_postgres::types::Type;
use steady_ledger::{LedgerError, PgLedger, Request, TaskSpec};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;

use crate::cluster::{Cluster, skip};
use crate::runtime;
use crate::shop::{charge, charge_on, key, number, options, scope};

/// What is to be held: everything from the first text to the second one, until somebody lets it go.
struct Hold {
    from: &'static str,
    to: &'static str,
    go: oneshot::Receiver<()>,
    done: oneshot::Sender<()>,
}

/// A way to the server on which what a client sends can be held while its connection is lost.
#[derive(Clone, Default)]
struct Way(Arc<Mutex<VecDeque<Hold>>>);

impl Way {
    /// Listens beside the server, on another port.
    fn open(cluster: &Cluster) -> Self {
        let way = Self::default();
        let server = cluster.folder().join(".s.PGSQL.5432");
        let listener = UnixListener::bind(cluster.folder().join(".s.PGSQL.7777")).unwrap();
        let all = way.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(all.clone().carry(client, server.clone()));
            }
        });
        way
    }

    async fn carry(self, client: UnixStream, server: PathBuf) {
        let (mut from_server, mut to_server) = UnixStream::connect(server).await.unwrap().into_split();
        let (mut from_client, mut to_client) = client.into_split();
        let (cut, is_cut) = oneshot::channel::<()>();
        tokio::spawn(async move {
            tokio::select! {
                _ = copy(&mut from_server, &mut to_client) => {}
                _ = is_cut => {}
            }
            drop(to_client);
            // The server does not see that nobody listens any more.
            drop(copy(&mut from_server, &mut sink()).await);
        });
        let mut bytes = vec![0; 1 << 16];
        loop {
            let mut read = from_client.read(&mut bytes).await.unwrap_or(0);
            if read == 0 {
                return;
            }
            leave(&mut bytes[..read]);
            let hold = self.next(&bytes[..read]);
            if let Some(hold) = hold {
                while !holds(&bytes[..read], hold.to) {
                    read += from_client.read(&mut bytes[read..]).await.unwrap();
                }
                drop((cut, from_client));
                hold.go.await.unwrap();
                to_server.write_all(&bytes[..read]).await.unwrap();
                drop(to_server);
                return hold.done.send(()).unwrap();
            }
            if to_server.write_all(&bytes[..read]).await.is_err() {
                return;
            }
        }
    }

    /// What is to be held next, if this begins it.
    fn next(&self, sent: &[u8]) -> Option<Hold> {
        let mut waiting = self.0.lock().unwrap();
        if waiting.front().is_some_and(|hold| holds(sent, hold.from)) { waiting.pop_front() } else { None }
    }

    /// Who sends this next, after what was to be held before, is cut off. What it sent goes on once the first is used; the
    /// second hears that it has.
    fn hold(&self, from: &'static str, to: &'static str) -> (oneshot::Sender<()>, oneshot::Receiver<()>) {
        let ((release, go), (done, gone)) = (oneshot::channel(), oneshot::channel());
        self.0.lock().unwrap().push_back(Hold { from, to, go, done });
        (release, gone)
    }
}

/// A statement that the way turns into another one, which an effect is not allowed.
const STAYS: &str = "SELECT 1111 AS one";
const LEAVES: &str = "ROLLBACK AND CHAIN";

fn leave(sent: &mut [u8]) {
    if let Some(at) = sent.windows(STAYS.len()).position(|part| part == STAYS.as_bytes()) {
        sent[at..at + LEAVES.len()].copy_from_slice(LEAVES.as_bytes());
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    text.is_empty() || bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Until the server has done, or refused, all that was sent to it.
async fn settle(config: &str, ledger: &PgLedger) {
    ledger.close();
    let others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mcp-steady-ledger'";
    while number(config, others).await > 0 {
        tokio::task::yield_now().await;
    }
}

/// A server, and a ledger that goes by the way.
macro_rules! on_a_way {
    ($name:expr, |$direct:ident, $way:ident, $ledger:ident| $test:block) => {
        let Some(cluster) = Cluster::start() else { return skip($name, "PostgreSQL with its server programs") };
        let $direct = cluster.config("postgres");
        runtime().block_on(async {
            let $way = Way::open(&cluster);
            let $ledger = PgLedger::open(&format!("{} port=7777", $direct), options()).await.unwrap();
            $test
        });
    };
}

#[test]
fn a_lost_commit_without_a_key_is_fenced() {
    on_a_way!("a_lost_commit_without_a_key_is_fenced", |direct, way, ledger| {
        let (release, gone) = way.hold("ledger_receipt", "COMMIT");
        let answer = ledger.execute_keyless(&scope(), |tx| Box::pin(charge(tx, "none"))).await;
        assert!(matches!(answer, Err(LedgerError::Storage(_))), "{answer:?}");
        release.send(()).unwrap();
        gone.await.unwrap();
        settle(&direct, &ledger).await;
        // It was answered as absent, so it stays so, although its commit came in the end.
        assert_eq!(number(&direct, "SELECT count(*) FROM effect").await, 0);
    });
}

/// Who looks leaves a row of its own, and must not take that for the answer when it has to look again.
#[test]
fn a_lost_answer_to_a_fence_is_no_word_of_what_it_fences() {
    on_a_way!("a_lost_answer_to_a_fence_is_no_word_of_what_it_fences", |direct, way, ledger| {
        let (release, gone) = way.hold("ledger_receipt", "COMMIT");
        let (goes_on, has_come) = way.hold("COMMIT", "COMMIT");
        goes_on.send(()).unwrap();
        let answer = ledger.execute_keyless(&scope(), |tx| Box::pin(charge(tx, "none"))).await;
        has_come.await.unwrap();
        assert!(matches!(answer, Err(LedgerError::Storage(_))), "{answer:?}");
        release.send(()).unwrap();
        gone.await.unwrap();
        settle(&direct, &ledger).await;
        assert_eq!(number(&direct, "SELECT count(*) FROM effect").await, 0);
    });
}

#[test]
fn a_lost_commit_of_a_task_is_fenced() {
    on_a_way!("a_lost_commit_of_a_task_is_fenced", |direct, way, ledger| {
        let (release, gone) = way.hold("ledger_receipt", "COMMIT");
        let answer = ledger.tasks().create_keyless(&scope(), TaskSpec::default()).await;
        assert!(answer.is_err());
        release.send(()).unwrap();
        gone.await.unwrap();
        settle(&direct, &ledger).await;
        assert_eq!(number(&direct, "SELECT count(*) FROM ledger_task").await, 0);
    });
}

#[test]
fn a_statement_that_may_still_come_is_answered_as_unknown() {
    on_a_way!("a_statement_that_may_still_come_is_answered_as_unknown", |direct, way, ledger| {
        assert!(!charge_on(&ledger, "order-1").await.unwrap().is_replay());
        let (scope, key) = (scope(), key("order-2"));
        let request = Request::new(&scope, &key, "{}");
        let sql = "INSERT INTO effect(key) VALUES ($1) RETURNING id AS result";
        let (release, gone) = way.hold("WITH effect", "");
        let answer = ledger.execute_sql::<i64>(&request, sql, &[(&"order-2", Type::TEXT)]).await;
        assert!(matches!(answer, Err(LedgerError::CommitUnknown(_))), "{answer:?}");
        release.send(()).unwrap();
        gone.await.unwrap();
        settle(&direct, &ledger).await;
        let ledger = PgLedger::open(&direct, options()).await.unwrap();
        let done = ledger.execute_sql::<i64>(&request, sql, &[(&"order-2", Type::TEXT)]).await.unwrap();
        assert!(done.is_replay());
        assert_eq!(number(&direct, "SELECT count(*) FROM effect WHERE key = 'order-2'").await, 1);
    });
}

/// What it did is gone, and the transaction that it is in is another one, which has not claimed the key.
#[test]
fn an_effect_that_leaves_its_transaction_for_another_is_not_told_that_it_is_done() {
    let name = "an_effect_that_leaves_its_transaction_for_another_is_not_told_that_it_is_done";
    on_a_way!(name, |direct, way, ledger| {
        let (scope, key) = (scope(), key("order-1"));
        let request = Request::new(&scope, &key, "{}");
        let answer = ledger.execute(&request, |tx| {
            Box::pin(async move {
                let id = charge(tx, "order-1").await?;
                tx.execute(STAYS, &[]).await?;
                Ok(id)
            })
        });
        let answer = answer.await;
        assert!(matches!(answer, Err(LedgerError::TransactionLost(Some(_)))), "{answer:?}");
        assert_eq!(number(&direct, "SELECT count(*) FROM effect").await, 0);
        assert_eq!(number(&direct, "SELECT count(*) FROM ledger_key").await, 0);
        assert!(!charge_on(&ledger, "order-1").await.unwrap().is_replay());
        drop(way);
    });
}
