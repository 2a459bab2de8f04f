//! Decides what an effect can do to the database, and what becomes of what it returns.

use std::cell::RefCell;
use std::fmt;

use rusqlite::{Connection, Params, Row, Statement, ffi};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::BoxError;
use crate::guard::names_ledger;
use crate::outbox::message::{EnqueueError, Message, Outgoing, enqueue};

/// Why an effect did not succeed. What it wrote is rolled back in either case.
///
/// Every error converts into [`EffectError::Abort`], so `?` never makes a technical failure final.
#[expect(clippy::exhaustive_enums, reason = "a failure is either the business's answer or it is not")]
pub enum EffectError<T> {
    /// The business refuses, for good: this answer is stored, and replayed to every retry.
    Reject(T),
    /// Something failed: nothing is stored, and a retry runs the effect again.
    Abort(BoxError),
}

/// Shows no refusal: it is a result.
impl<T> fmt::Debug for EffectError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reject(_) => f.write_str("Reject(..)"),
            Self::Abort(cause) => f.debug_tuple("Abort").field(cause).finish(),
        }
    }
}

impl<T, E: std::error::Error + Send + Sync + 'static> From<E> for EffectError<T> {
    fn from(error: E) -> Self {
        Self::Abort(error.into())
    }
}

/// What an effect came to, without its type.
pub(crate) enum Outcome {
    Commit(Vec<u8>),
    Reject(Vec<u8>),
    Abort(BoxError),
    Unencodable,
}

/// An effect without its types, so that another thread can run it.
pub(crate) type Job = Box<dyn FnMut(&mut EffectTx<'_>) -> Outcome + Send>;

/// Takes the types off an effect.
pub(crate) fn job<T, F>(mut effect: F) -> Job
where
    T: Serialize + DeserializeOwned,
    F: FnMut(&mut EffectTx<'_>) -> Result<T, EffectError<T>> + Send + 'static,
{
    Box::new(move |tx| match effect(tx) {
        Ok(value) => encode(&value).map_or(Outcome::Unencodable, Outcome::Commit),
        Err(EffectError::Reject(value)) => encode(&value).map_or(Outcome::Unencodable, Outcome::Reject),
        Err(EffectError::Abort(cause)) => Outcome::Abort(cause),
    })
}

/// The bytes of a result, if they can be read back: better to learn that before the commit than at the first replay.
pub(crate) fn encode<T: Serialize + DeserializeOwned>(value: &T) -> Option<Vec<u8>> {
    let body = serde_json::to_vec(value).ok()?;
    decode::<T>(&body)?;
    Some(body)
}

/// The result in stored bytes. The parser's complaint is dropped: it can quote the result.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body).ok()
}

/// The database, as an effect sees it: inside the ledger's transaction, and unable to leave it.
///
/// It may read and write rows of the application's tables. It may not end or nest transactions, change the schema or
/// settings, attach files, or touch tables named `ledger_*`: such a statement fails, and so does the whole call, even if
/// the effect goes on. Compiled statements are kept, so pass values as parameters, not in the text.
pub struct EffectTx<'a> {
    rows: Rows<'a>,
    outgoing: Option<&'a mut Vec<Outgoing>>,
}

impl<'a> EffectTx<'a> {
    pub(crate) fn new(conn: &'a Connection, outgoing: Option<&'a mut Vec<Outgoing>>) -> Self {
        Self { rows: Rows::new(conn), outgoing }
    }

    /// What SQLite said when it ended the transaction, if it did.
    pub(crate) fn into_loss(self) -> Option<BoxError> {
        self.rows.loss.into_inner()
    }

    /// Runs one statement. Returns how many rows it changed.
    ///
    /// # Errors
    ///
    /// What SQLite says; also for every statement after one that ended the transaction.
    pub fn execute(&mut self, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
        self.rows.with(sql, |statement| statement.execute(params))
    }

    /// The first row of a query.
    ///
    /// # Errors
    ///
    /// As [`EffectTx::execute`], and [`rusqlite::Error::QueryReturnedNoRows`] if there is none
    /// ([`rusqlite::OptionalExtension`] turns that into an `Option`).
    pub fn query_row<R>(
        &self,
        sql: &str,
        params: impl Params,
        map: impl FnOnce(&Row<'_>) -> rusqlite::Result<R>,
    ) -> rusqlite::Result<R> {
        self.rows.first(sql, params, map)
    }

    /// All rows of a query.
    ///
    /// # Errors
    ///
    /// As [`EffectTx::execute`].
    pub fn query<R>(
        &self,
        sql: &str,
        params: impl Params,
        map: impl FnMut(&Row<'_>) -> rusqlite::Result<R>,
    ) -> rusqlite::Result<Vec<R>> {
        self.rows.all(sql, params, map)
    }

    /// Leaves a message for another system, which is stored with the effect if that succeeds, and sent after its commit:
    /// see [`Outbox`](crate::Outbox). Returns its place among the messages of this effect, from 0.
    ///
    /// Whether there is room in the outbox shows at the end of the effect: see
    /// [`LedgerError::OutboxFull`](crate::LedgerError::OutboxFull).
    ///
    /// # Errors
    ///
    /// [`EnqueueError`]. What was left before stays.
    pub fn enqueue(&mut self, message: Message) -> Result<u32, EnqueueError> {
        enqueue(self.outgoing.as_deref_mut(), message)
    }

    /// The row id of the last insert.
    #[must_use]
    pub fn last_insert_rowid(&self) -> i64 {
        self.rows.conn.last_insert_rowid()
    }
}

/// Shows neither the database nor a message.
impl fmt::Debug for EffectTx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EffectTx")
            .field("messages", &self.outgoing.as_ref().map(|all| all.len()))
            .finish_non_exhaustive()
    }
}

/// One snapshot of the database, to read the application's tables from.
pub struct ReadTx<'a> {
    rows: Rows<'a>,
}

impl<'a> ReadTx<'a> {
    pub(crate) fn new(conn: &'a Connection) -> Self {
        Self { rows: Rows::new(conn) }
    }

    /// The first row of a query.
    ///
    /// # Errors
    ///
    /// What SQLite says; it refuses writes, settings and the ledger's own tables.
    pub fn query_row<R>(
        &self,
        sql: &str,
        params: impl Params,
        map: impl FnOnce(&Row<'_>) -> rusqlite::Result<R>,
    ) -> rusqlite::Result<R> {
        self.rows.first(sql, params, map)
    }

    /// All rows of a query.
    ///
    /// # Errors
    ///
    /// As [`ReadTx::query_row`].
    pub fn query<R>(
        &self,
        sql: &str,
        params: impl Params,
        map: impl FnMut(&Row<'_>) -> rusqlite::Result<R>,
    ) -> rusqlite::Result<Vec<R>> {
        self.rows.all(sql, params, map)
    }
}

/// Does not show the database.
impl fmt::Debug for ReadTx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadTx").finish_non_exhaustive()
    }
}

/// Queries inside a transaction.
struct Rows<'a> {
    conn: &'a Connection,
    /// The error with which the transaction ended, as a text: the error itself is the effect's, which may drop it.
    loss: RefCell<Option<BoxError>>,
}

impl<'a> Rows<'a> {
    fn new(conn: &'a Connection) -> Self {
        Self { conn, loss: RefCell::default() }
    }

    /// Refuses to go on without a transaction: each statement would commit by itself.
    fn check(&self) -> rusqlite::Result<()> {
        if !self.conn.is_autocommit() {
            return Ok(());
        }
        let message = "an earlier statement ended the transaction".to_owned();
        Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_ABORT_ROLLBACK), Some(message)))
    }

    /// Does something with a statement. Compiled ones are kept where the ledger keeps its own, which name itself: what
    /// could be one of those is compiled anew, so that the guard is asked.
    fn with<R>(&self, sql: &str, work: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<R>) -> rusqlite::Result<R> {
        self.check()?;
        let done = if names_ledger(sql) {
            work(&mut self.conn.prepare(sql)?)
        } else {
            work(&mut *self.conn.prepare_cached(sql)?)
        };
        if let Err(error) = &done
            && self.conn.is_autocommit()
        {
            self.loss.replace(Some(error.to_string().into()));
        }
        done
    }

    fn first<R>(
        &self,
        sql: &str,
        params: impl Params,
        map: impl FnOnce(&Row<'_>) -> rusqlite::Result<R>,
    ) -> rusqlite::Result<R> {
        self.with(sql, |statement| statement.query_row(params, map))
    }

    fn all<R>(
        &self,
        sql: &str,
        params: impl Params,
        map: impl FnMut(&Row<'_>) -> rusqlite::Result<R>,
    ) -> rusqlite::Result<Vec<R>> {
        self.with(sql, |statement| statement.query_map(params, map)?.collect())
    }
}
