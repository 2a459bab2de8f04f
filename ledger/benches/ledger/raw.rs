//! The same statements in one transaction after another, without a ledger: what SQLite allows.

use std::time::{Duration, Instant};

use steady_crash_vfs::Rng;
use steady_ledger::rusqlite::{Connection, OptionalExtension};

use crate::clients::{Measured, Shop, Stopwatch, UPDATE, account, key};

pub(crate) struct Batches {
    shop: Shop,
    conn: Connection,
    size: u64,
    next: u64,
}

impl Batches {
    pub(crate) fn new(size: u64) -> Self {
        // A ledger makes the tables.
        let shop = Shop::new();
        let conn = Connection::open(shop.path()).unwrap();
        shop.ledger.close().unwrap();
        conn.execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY",
        )
        .unwrap();
        conn.set_prepared_statement_cache_capacity(64);
        Self { shop, conn, size, next: 0 }
    }

    pub(crate) fn turn(&mut self, time: Duration) -> Measured {
        assert!(self.shop.path().exists());
        let mut watch = Stopwatch::start();
        while watch.runs(time) {
            let began = Instant::now();
            self.conn.execute_batch("BEGIN IMMEDIATE").unwrap();
            (0..self.size).for_each(|_| self.one());
            self.conn.execute_batch("COMMIT").unwrap();
            (0..self.size).for_each(|_| watch.lap(began.elapsed()));
        }
        watch.stop()
    }

    fn one(&mut self) {
        let (conn, number) = (&self.conn, self.next);
        self.next += 1;
        let (key, mut rng) = (key(number), Rng::new(!number));
        let digest: Vec<u8> = (0..4).flat_map(|_| rng.next().to_le_bytes()).collect();
        conn.prepare_cached("SAVEPOINT one").unwrap().execute([]).unwrap();
        let find = "SELECT k.fingerprint, k.state, k.lease_until_ms, k.executions, k.recorded_ms, k.expires_ms,
                    k.result_digest, r.body FROM ledger_key AS k LEFT JOIN ledger_result AS r ON r.id = k.result_id
                    WHERE k.principal = ?1 AND k.operation = ?2 AND k.key = ?3";
        let found: Option<i64> = conn
            .prepare_cached(find)
            .unwrap()
            .query_row(("tenant-1", "charge", &key), |row| row.get(1))
            .optional()
            .unwrap();
        assert_eq!(found, None);
        conn.prepare_cached(UPDATE).unwrap().execute([account(number)]).unwrap();
        conn.prepare_cached("INSERT INTO ledger_result(body) VALUES (?1)").unwrap().execute([[b'r'; 202]]).unwrap();
        let result = conn.last_insert_rowid();
        let insert = "INSERT INTO ledger_key(principal, operation, key, fingerprint, state, executions, result_id,
                      result_digest, recorded_ms, expires_ms) VALUES (?1, ?2, ?3, ?4, 2, 1, ?5, ?6, ?7, ?8)";
        let values = ("tenant-1", "charge", &key, &digest, result, &digest, 1, 2);
        conn.prepare_cached(insert).unwrap().execute(values).unwrap();
        conn.prepare_cached("RELEASE one").unwrap().execute([]).unwrap();
    }
}
