//! A ledger on PostgreSQL, as the suite of `mcp-steady-ledger-conformance` asks it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use steady_conformance::{Answer, Call, Effect, HORIZON, Known, RETENTION, Subject, Ticket, Upstream, Word};
use steady_ledger::tokio_postgres::types::Type;
use steady_ledger::{
    EffectError, Isolation, PgAttempt, PgBegun, PgLedger, PgOptions, PgTx, Request, Resolved, tokio_postgres,
};
use tokio::runtime::Runtime;

use crate::sqlite::{Hands, done, executed, external, known, names, refused};

/// How the effects of a subject run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As a closure, with unnamed statements.
    Plain,
    /// As a closure, with prepared statements, serializable.
    Prepared,
    /// As one statement, if it can.
    Statement,
}

/// The subject. Each has a schema of its own in one database.
pub(crate) struct Postgres {
    runtime: Arc<Runtime>,
    config: String,
    form: Form,
    hands: Hands,
    ledger: PgLedger,
    attempts: Vec<PgAttempt>,
}

impl Postgres {
    pub(crate) fn new(runtime: &Arc<Runtime>, database: &str, form: Form) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let schema = format!("s{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let config = format!("{database} options='-c search_path={schema}'");
        let hands = Hands::new();
        let ledger = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(database, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
            Self::open(&config, &hands, form).await
        });
        Self { runtime: Arc::clone(runtime), config, form, hands, ledger, attempts: Vec::new() }
    }

    async fn open(config: &str, hands: &Hands, form: Form) -> PgLedger {
        let schema = "CREATE TABLE IF NOT EXISTS effect(principal text, operation text, key text)";
        let isolation = if form == Form::Prepared { Isolation::Serializable } else { Isolation::ReadCommitted };
        let options = PgOptions {
            schema: schema.into(),
            clock: Some(hands.clock()),
            retention: RETENTION,
            key_horizon: Some(HORIZON),
            prepared: form == Form::Prepared,
            isolation,
            ..PgOptions::default()
        };
        PgLedger::open(config, options).await.unwrap()
    }
}

const INSERT: &str = "INSERT INTO effect VALUES ($1, $2, $3)";

async fn run(tx: &mut PgTx<'_>, call: &Call, effect: Effect) -> Result<i64, EffectError<i64>> {
    let Call { principal, operation, key, .. } = call;
    tx.execute(INSERT, &[(principal, Type::TEXT), (operation, Type::TEXT), (key, Type::TEXT)]).await?;
    match effect {
        Effect::Commit(value) => Ok(value),
        Effect::Reject(value) => Err(EffectError::Reject(value)),
        Effect::Abort => Err(EffectError::Abort("planned".into())),
        Effect::Panic => std::panic::resume_unwind(Box::new("planned")),
    }
}

impl Subject for Postgres {
    fn execute(&mut self, call: &Call, effect: Effect) -> Answer {
        let (scope, key) = names(call);
        let request = Request::new(&scope, &key, &call.arguments);
        self.runtime.block_on(async {
            if let (Form::Statement, Effect::Commit(value)) = (self.form, effect) {
                let sql = format!("{INSERT} RETURNING $4 AS result");
                let Call { principal, operation, key, .. } = call;
                let args: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] =
                    [(principal, Type::TEXT), (operation, Type::TEXT), (key, Type::TEXT), (&value, Type::INT8)];
                return executed(self.ledger.execute_sql(&request, &sql, &args).await);
            }
            executed(self.ledger.execute(&request, |tx| Box::pin(run(tx, call, effect))).await)
        })
    }

    fn begin(&mut self, call: &Call, upstream: Upstream) -> Answer {
        let (scope, key) = names(call);
        let request = Request::new(&scope, &key, &call.arguments);
        match self.runtime.block_on(self.ledger.begin::<i64>(&request, &external(upstream))) {
            Ok(PgBegun::Replayed(value)) => Answer::Replayed(value),
            Ok(PgBegun::Send(attempt)) => {
                let number = attempt.number();
                self.attempts.push(attempt);
                Answer::Send(self.attempts.len() - 1, number)
            }
            Err(error) => refused(&error, Some(&error)),
        }
    }

    fn report(&mut self, ticket: Ticket, word: Word) -> Answer {
        let attempt = &self.attempts[ticket];
        done(self.runtime.block_on(async {
            match word {
                Word::Commit(value) => attempt.commit(&value).await,
                Word::Reject(value) => attempt.reject(&value).await,
                Word::InDoubt => attempt.in_doubt().await,
                Word::NotSent => attempt.not_sent().await,
            }
        }))
    }

    fn resolve(&mut self, call: &Call, committed: bool, value: i64) -> Answer {
        let (scope, key) = names(call);
        let outcome = if committed { Resolved::Committed(value) } else { Resolved::Rejected(value) };
        done(self.runtime.block_on(self.ledger.resolve(&scope, &key, &outcome, "operator", "")))
    }

    fn look(&mut self, call: &Call) -> Option<Known> {
        let (scope, key) = names(call);
        let found = self.runtime.block_on(self.ledger.reconcile(&scope, &key)).unwrap();
        found.map(|found| known(found.state, found.executions))
    }

    fn rows(&mut self, call: &Call) -> u64 {
        let sql = "SELECT count(*) FROM effect WHERE principal = $1 AND operation = $2 AND key = $3";
        let count = self.runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.config, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            let names = [&call.principal, &call.operation, &call.key].map(|name| name as _);
            client.query_one(sql, &names).await.unwrap().get::<_, i64>(0)
        });
        u64::try_from(count).unwrap()
    }

    fn advance(&mut self, by: Duration) {
        self.hands.advance(by);
    }

    fn collect(&mut self) {
        self.runtime.block_on(async {
            self.ledger.trust_clock("operator", "").await.unwrap();
            while self.ledger.collect(1000).await.unwrap().more {}
        });
    }

    /// Attempts keep the handle that began them, as those of another replica would.
    fn restart(&mut self) {
        self.ledger = self.runtime.block_on(Self::open(&self.config, &self.hands, self.form));
    }
}
