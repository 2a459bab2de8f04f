//! A ledger in a database of its own, with an account and a list of effects, for tests.

use std::sync::Arc;

use steady_ledger::tokio_postgres::types::Type;
use steady_ledger::{
    EffectError, Executed, Key, LedgerError, PgLedger, PgOptions, PgTx, Request, Scope, tokio_postgres,
};
use tokio::runtime::Runtime;

use crate::cluster::Cluster;
use crate::{cluster, runtime};

pub(crate) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS account(id bigint PRIMARY KEY, balance bigint NOT NULL CHECK(balance < 1000000000));
    INSERT INTO account VALUES (1, 0) ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS effect(id bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL);
    CREATE TABLE IF NOT EXISTS late(id bigint PRIMARY KEY, of bigint REFERENCES late DEFERRABLE INITIALLY DEFERRED);
";

pub(crate) struct Shop {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) config: String,
    pub(crate) ledger: PgLedger,
}

pub(crate) fn options() -> PgOptions {
    PgOptions { schema: SCHEMA.into(), ..PgOptions::default() }
}

pub(crate) fn scope() -> Scope {
    Scope::new("tenant-1", "charge")
}

pub(crate) fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

/// The effect of most tests: a row for its key, and one more on the account. Its result is the number of the row.
pub(crate) async fn charge(tx: &mut PgTx<'_>, key: &str) -> Result<i64, EffectError<i64>> {
    tx.execute("UPDATE account SET balance = balance + 1 WHERE id = 1", &[]).await?;
    let row = tx.query_opt("INSERT INTO effect(key) VALUES ($1) RETURNING id", &[(&key, Type::TEXT)]).await?;
    Ok(row.map_or(0, |row| row.get(0)))
}

impl Shop {
    /// None if the test is to be skipped.
    pub(crate) fn open(test: &str, options: PgOptions) -> Option<Self> {
        let config = cluster::database(test)?;
        let runtime = runtime();
        let ledger = runtime.block_on(PgLedger::open(&config, options)).unwrap();
        Some(Self { runtime, config, ledger })
    }

    /// As [`Shop::open`], on a server on which nobody else writes.
    pub(crate) fn alone(test: &str, options: PgOptions) -> Option<(Cluster, Self)> {
        let Some(cluster) = Cluster::start() else {
            cluster::skip(test, "PostgreSQL with its server programs");
            return None;
        };
        let (config, runtime) = (cluster.config("postgres"), runtime());
        let ledger = runtime.block_on(PgLedger::open(&config, options)).unwrap();
        Some((cluster, Self { runtime, config, ledger }))
    }

    pub(crate) async fn charge(&self, text: &str) -> Result<Executed<i64>, LedgerError> {
        charge_on(&self.ledger, text).await
    }

    /// One number that some SQL finds, on a connection that knows nothing of the ledger.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        number(&self.config, sql).await
    }

    pub(crate) async fn stranger(&self) -> tokio_postgres::Client {
        stranger(&self.config).await
    }
}

pub(crate) async fn charge_on(ledger: &PgLedger, text: &str) -> Result<Executed<i64>, LedgerError> {
    let (scope, key) = (scope(), key(text));
    ledger.execute(&Request::new(&scope, &key, "{}"), |tx| Box::pin(charge(tx, text))).await
}

pub(crate) async fn stranger(config: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(config, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) async fn number(config: &str, sql: &str) -> i64 {
    stranger(config).await.query_one(sql, &[]).await.unwrap().get(0)
}
