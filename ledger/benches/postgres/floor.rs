//! What the two forms could come to at best with this client library on this machine: the same statements without a ledger.
//! One table with a key of one column, no rule and no other index; no lock, no clock, no digest, no limits of time, no pool.

use std::sync::{Mutex, PoisonError};

use steady_ledger::tokio_postgres::types::ToSql;
use steady_ledger::tokio_postgres::{Client, NoTls, Statement, connect};

/// Of `PgOptions::schema`: the names of the ledger's own tables are its own.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS floor(key text COLLATE \"C\" PRIMARY KEY, print bytea NOT NULL, result text) WITH (fillfactor = 80);
";

/// One connection.
pub(crate) struct Line {
    client: Client,
    claim: Statement,
    effect: Statement,
    finish: Statement,
    all: Statement,
}

/// A connection for each caller.
pub(crate) struct Floor(Mutex<Vec<Line>>);

impl Floor {
    pub(crate) async fn open(config: &str, connections: u32) -> Self {
        let mut lines = Vec::new();
        for _ in 0..connections {
            let (client, connection) = connect(config, NoTls).await.unwrap();
            tokio::spawn(connection);
            let claim = "INSERT INTO floor(key, print) VALUES ($1, $2) ON CONFLICT DO NOTHING";
            let effect = "UPDATE account SET balance = balance + 1 WHERE id = $1";
            let all = "WITH effect AS (UPDATE account SET balance = balance + 1 WHERE id = $1
                                       RETURNING repeat('x', 198) AS result)
                       INSERT INTO floor(key, print, result) SELECT $2, $3, result FROM effect RETURNING result";
            lines.push(Line {
                claim: client.prepare(claim).await.unwrap(),
                effect: client.prepare(effect).await.unwrap(),
                finish: client.prepare("UPDATE floor SET result = $2 WHERE key = $1").await.unwrap(),
                all: client.prepare(all).await.unwrap(),
                client,
            });
        }
        Self(Mutex::new(lines))
    }

    /// There is one for every caller.
    pub(crate) fn take(&self) -> Line {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap()
    }

    pub(crate) fn put_back(&self, line: Line) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

impl Line {
    /// Claim, effect and result in one transaction, in three round trips.
    pub(crate) async fn closure(&self, key: &str, account: i64, result: &str) {
        let Self { client, claim, effect, finish, .. } = self;
        let print: &[u8] = &[7; 32];
        let values: [&(dyn ToSql + Sync); 2] = [&key, &print];
        let (begun, claimed) = tokio::join!(client.batch_execute("BEGIN"), client.execute(claim, &values));
        begun.unwrap();
        assert_eq!(claimed.unwrap(), 1);
        client.execute(effect, &[&account]).await.unwrap();
        let values: [&(dyn ToSql + Sync); 2] = [&key, &result];
        let (stored, done) = tokio::join!(client.execute(finish, &values), client.batch_execute("COMMIT"));
        assert_eq!(stored.unwrap(), 1);
        done.unwrap();
    }

    /// All of it in one statement.
    pub(crate) async fn statement(&self, key: &str, account: i64) {
        let Self { client, all, .. } = self;
        let print: &[u8] = &[7; 32];
        client.query(all, &[&account, &key, &print]).await.unwrap();
    }
}
