//! Decides how a ledger in a file becomes one on PostgreSQL: offline, in one transaction, and only if every row arrives.
//!
//! Each table is read in the order of its key, written, and read back. What was read and what is there must have the same
//! number of rows and the same digest.

mod tables;

use rusqlite::types::Value;
use rusqlite::{Connection, Rows};
use serde::Serialize;
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio_postgres::Row;

use super::ledger::PgLedger;
use super::options::PgOptions;
use super::pool::Conn;
use super::wire::args;
use crate::error::LedgerError;
use crate::file::Access;
use crate::ledger::Ledger;
use crate::options::Opening;
use tables::{Kind, TABLES, Table};

/// Why a ledger was not imported. Nothing of it is in the database then, but empty tables.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// There is a ledger with contents already.
    #[error("the ledger in the database is not empty: import into a new one, two ledgers cannot be merged")]
    NotEmpty,
    /// What arrived is not what was sent.
    #[error("{table} differs after the import: nothing was kept; check the database's encoding, it has to be UTF8")]
    Differs {
        /// The table.
        table: &'static str,
    },
    /// One of the two cannot be read or written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl From<tokio_postgres::Error> for ImportError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Ledger(error.into())
    }
}

impl From<rusqlite::Error> for ImportError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Ledger(error.into())
    }
}

/// A table that was imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Imported {
    /// Its name.
    pub table: &'static str,
    /// Its rows, counted in the file and in the database.
    pub rows: u64,
    /// The SHA-256 of them, made in the file and in the database: 64 hexadecimal digits.
    pub digest: String,
}

/// Rows that are sent at once.
const PAGE: usize = 500;

impl PgLedger {
    /// Imports the ledger in `file` into an empty one in the database of `config`, and opens that with the same secret. The
    /// application's own tables are not looked at. `progress` hears how many rows are written, of how many.
    ///
    /// The file is locked for writes meanwhile. **From then on nobody may use it**: a key that runs in the database does
    /// not in the file, and would run again there.
    ///
    /// # Errors
    ///
    /// [`ImportError`]; the file is as it was.
    pub async fn import(
        config: &str,
        file: &Ledger,
        options: PgOptions,
        mut progress: impl FnMut(u64, u64) + Send,
    ) -> Result<(Self, Vec<Imported>), ImportError> {
        let options = PgOptions { secret: Some(file.secret().clone()), opening: Opening::CreateOrMigrate, ..options };
        let from = file.site().connect(Access::Write)?;
        let source = Source { conn: &from.conn, file };
        let all = source.lock()?;
        let opened = Self::open(config, options).await;
        if matches!(opened, Err(LedgerError::WrongSecret)) {
            return Err(ImportError::NotEmpty);
        }
        let ledger = opened?;
        let conn = ledger.inner.pool.get().await?;
        conn.batch("BEGIN; SET LOCAL synchronous_commit = on; LOCK TABLE ledger_key, ledger_meta IN EXCLUSIVE MODE")
            .await?;
        let mut done = 0;
        let mut imported = Vec::new();
        for table in TABLES {
            let there = conn.first(&format!("SELECT 1 FROM {} LIMIT 1", table.name), args![]).await?;
            if there.is_some() {
                return Err(ImportError::NotEmpty);
            }
            imported.push(
                import_table(&source, &conn, table, |rows| {
                    done += rows;
                    progress(done, all);
                })
                .await?,
            );
        }
        source.settle(&conn).await?;
        conn.batch("COMMIT").await?;
        conn.put_back();
        source.unlock()?;
        Ok((ledger, imported))
    }
}

/// The ledger in the file.
struct Source<'a> {
    conn: &'a Connection,
    file: &'a Ledger,
}

/// A row as both sides understand it.
type Cells = Vec<Value>;

impl Source<'_> {
    /// Keeps writers away. Returns how many rows there are.
    fn lock(&self) -> Result<u64, ImportError> {
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        let mut all = 0;
        for table in TABLES {
            let sql = format!("SELECT count(*) FROM {}", table.name);
            all += self.conn.query_row(&sql, [], |row| row.get::<_, i64>(0))?.unsigned_abs();
        }
        Ok(all)
    }

    fn unlock(&self) -> Result<(), ImportError> {
        Ok(self.conn.execute_batch("ROLLBACK")?)
    }

    /// The next rows, as they are to be in the database.
    fn page(&self, table: &Table, rows: &mut Rows<'_>) -> Result<Vec<Cells>, ImportError> {
        let width = table.columns.len();
        let mut page = Vec::new();
        while page.len() < PAGE
            && let Some(row) = rows.next()?
        {
            let mut cells = (0..width).map(|at| row.get::<_, Value>(at)).collect::<Result<Cells, _>>()?;
            if table.name == "ledger_key" {
                self.reseal(&mut cells)?;
            }
            page.push(cells);
        }
        Ok(page)
    }

    /// A result gets the digest that the database can make too, if it has the one that the file gave it.
    fn reseal(&self, cells: &mut Cells) -> Result<(), ImportError> {
        let [.., fingerprint, state, _, _, _, _, _, digest, body] = cells.as_mut_slice() else { return Ok(()) };
        let (Value::Blob(fingerprint), Value::Integer(state), Value::Blob(body)) = (&*fingerprint, &*state, &*body)
        else {
            return Ok(());
        };
        let damaged = LedgerError::Corrupt { part: "the result of a key does not match its digest" };
        let (Ok(fingerprint), Ok(state)) = (<[u8; 32]>::try_from(&fingerprint[..]), u8::try_from(*state)) else {
            return Err(damaged.into());
        };
        let secret = self.file.secret();
        if *digest != Value::Blob(secret.digest(&fingerprint, state, body).to_vec()) {
            return Err(damaged.into());
        }
        *digest = Value::Blob(super::record::seal(secret, &fingerprint, state, body).to_vec());
        Ok(())
    }

    /// Takes over what the file knows of the time and of itself.
    async fn settle(&self, conn: &Conn) -> Result<(), ImportError> {
        let sql =
            "SELECT secret, created_ms, latest_ms, ahead_ms, forgotten_ms, retention_ms, horizon_ms FROM ledger_meta";
        type Meta = (Option<Vec<u8>>, i64, i64, Option<i64>, Option<i64>, i64, Option<i64>);
        let meta: Meta = self.conn.query_row(sql, [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?))
        })?;
        let (secret, created, latest, ahead, forgotten, retention, horizon) = meta;
        let sql =
            "UPDATE ledger_meta SET secret = $1, created_ms = $2, latest_ms = $3, ahead_ms = $4, forgotten_ms = $5,
                                          retention_ms = $6, horizon_ms = $7";
        let values = args![
            secret => BYTEA, created => INT8, latest => INT8, ahead => INT8, forgotten => INT8, retention => INT8,
            horizon => INT8,
        ];
        conn.run(sql, values).await?;
        let sql = "SELECT setval(pg_get_serial_sequence('ledger_outbox', 'id'), coalesce(max(id), 0) + 1, false)
                   FROM ledger_outbox";
        conn.run(sql, args![]).await?;
        Ok(())
    }
}

async fn import_table(
    source: &Source<'_>,
    conn: &Conn,
    table: &Table,
    mut progress: impl FnMut(u64),
) -> Result<Imported, ImportError> {
    let mut sent = Sum::default();
    let mut statement = source.conn.prepare(table.from)?;
    let mut rows = statement.query([])?;
    loop {
        let page = source.page(table, &mut rows)?;
        if page.is_empty() {
            break;
        }
        page.iter().for_each(|cells| sent.add(cells));
        send(conn, table, &page).await?;
        progress(page.len() as u64);
    }
    let mut there = Sum::default();
    // Both sides are read in one go: a place to begin at would be looked for from the start each time.
    conn.batch(&format!("DECLARE {}_back NO SCROLL CURSOR FOR {}", table.name, table.back())).await?;
    let next = format!("FETCH {PAGE} FROM {}_back", table.name);
    loop {
        let rows = conn.rows(&next, args![]).await?;
        if rows.is_empty() {
            break;
        }
        rows.iter().for_each(|row| there.add(&cells(table, row)));
    }
    let (rows, digest) = (sent.rows, sent.hex());
    if (there.rows, there.hex()) != (rows, digest.clone()) {
        return Err(ImportError::Differs { table: table.name });
    }
    Ok(Imported { table: table.name, rows, digest })
}

/// Writes rows, column by column.
async fn send(conn: &Conn, table: &Table, page: &[Cells]) -> Result<(), ImportError> {
    use super::wire::Arg;
    use tokio_postgres::types::Type;
    let strange = LedgerError::Corrupt { part: "a column of the file has a value of another type" };
    let (mut numbers, mut texts, mut blobs) = (Vec::new(), Vec::new(), Vec::new());
    for (at, column) in table.columns.iter().enumerate() {
        let cells = page.iter().map(|cells| &cells[at]);
        match column.kind {
            Kind::Number(_) => numbers.push(
                cells
                    .map(|cell| match cell {
                        Value::Integer(number) => Some(Some(*number)),
                        Value::Null => Some(None),
                        Value::Real(_) | Value::Text(_) | Value::Blob(_) => None,
                    })
                    .collect::<Option<Vec<Option<i64>>>>(),
            ),
            Kind::Text => texts.push(
                cells
                    .map(|cell| match cell {
                        Value::Text(text) => Some(Some(text.as_str())),
                        Value::Null => Some(None),
                        Value::Real(_) | Value::Integer(_) | Value::Blob(_) => None,
                    })
                    .collect::<Option<Vec<Option<&str>>>>(),
            ),
            Kind::Bytes => blobs.push(
                cells
                    .map(|cell| match cell {
                        Value::Blob(bytes) => Some(Some(bytes.as_slice())),
                        Value::Null => Some(None),
                        Value::Real(_) | Value::Integer(_) | Value::Text(_) => None,
                    })
                    .collect::<Option<Vec<Option<&[u8]>>>>(),
            ),
        }
    }
    let numbers: Option<Vec<_>> = numbers.into_iter().collect();
    let texts: Option<Vec<_>> = texts.into_iter().collect();
    let blobs: Option<Vec<_>> = blobs.into_iter().collect();
    let (Some(numbers), Some(texts), Some(blobs)) = (numbers, texts, blobs) else { return Err(strange.into()) };
    let (mut numbers, mut texts, mut blobs) = (numbers.iter(), texts.iter(), blobs.iter());
    let values: Option<Vec<Arg<'_>>> = table
        .columns
        .iter()
        .map(|column| -> Option<Arg<'_>> {
            Some(match column.kind {
                Kind::Number(_) => (numbers.next()?, Type::INT8_ARRAY),
                Kind::Text => (texts.next()?, Type::TEXT_ARRAY),
                Kind::Bytes => (blobs.next()?, Type::BYTEA_ARRAY),
            })
        })
        .collect();
    conn.run(&table.into(), &values.unwrap_or_default()).await?;
    Ok(())
}

/// A row of the database, as one of the file.
fn cells(table: &Table, row: &Row) -> Cells {
    let cell = |(at, column): (usize, &tables::Column)| match column.kind {
        Kind::Number(_) => row.get::<_, Option<i64>>(at).map_or(Value::Null, Value::Integer),
        Kind::Text => row.get::<_, Option<String>>(at).map_or(Value::Null, Value::Text),
        Kind::Bytes => row.get::<_, Option<Vec<u8>>>(at).map_or(Value::Null, Value::Blob),
    };
    table.columns.iter().enumerate().map(cell).collect()
}

/// The number and the digest of rows.
#[derive(Default)]
struct Sum {
    rows: u64,
    hash: Sha256,
}

impl Sum {
    fn add(&mut self, cells: &Cells) {
        self.rows += 1;
        for cell in cells {
            let (tag, bytes): (u8, Vec<u8>) = match cell {
                Value::Null => (0, Vec::new()),
                Value::Integer(number) => (1, number.to_be_bytes().to_vec()),
                Value::Real(number) => (2, number.to_be_bytes().to_vec()),
                Value::Text(text) => (3, text.as_bytes().to_vec()),
                Value::Blob(bytes) => (4, bytes.clone()),
            };
            self.hash.update([tag]);
            self.hash.update((bytes.len() as u64).to_be_bytes());
            self.hash.update(bytes);
        }
    }

    fn hex(&self) -> String {
        self.hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
