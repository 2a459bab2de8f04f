//! Decides what an effect can do to the database, and what is found of what it did.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;
use tokio_postgres::Row;

use super::fault::{Kind, kind};
use super::guard::is_allowed;
use super::wire::{Arg, Wire};
use crate::effect::EffectError;
use crate::outbox::message::{EnqueueError, Message, Outgoing, enqueue};

/// What an effect returns: `Box::pin(async move { .. })`.
pub type PgEffect<'a, T> = Pin<Box<dyn Future<Output = Result<T, EffectError<T>>> + Send + 'a>>;

/// Why a statement of an effect failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PgSqlError {
    /// It is none that an effect may use. The whole call fails.
    #[error("an effect reads and writes rows: this statement does something else, or names a table of the ledger")]
    Forbidden,
    /// The database refused it. In PostgreSQL the transaction is then lost, whatever the effect goes on to do.
    #[error(transparent)]
    Database(#[from] tokio_postgres::Error),
}

/// What went wrong in an effect, whatever it made of it.
#[derive(Default)]
pub(super) struct Trouble {
    pub(super) forbidden: bool,
    /// The first error of the database: how it is to be taken, and what it says.
    pub(super) failed: Option<(Kind, String)>,
}

/// The database, as an effect sees it: inside the ledger's transaction, and unable to leave it.
///
/// It may read and write rows of the application's tables, with `SELECT`, `INSERT`, `UPDATE`, `DELETE`, `MERGE`, `WITH`
/// and `VALUES`. Every other statement, and every one that names `ledger_`, fails, and so does the whole call, even if the
/// effect goes on. Functions of the application are not looked into: they must not reach the ledger's tables either.
///
/// Values come with their types: `&[(&sku, Type::TEXT)]`. So a statement needs one round trip, and no prepared statement
/// that a pooler would have to know.
///
/// `'env` is how long that lives which the effect borrows from those who call it.
pub struct PgTx<'env> {
    wire: Arc<Wire>,
    outgoing: Option<Vec<Outgoing>>,
    trouble: Mutex<Trouble>,
    env: PhantomData<&'env ()>,
}

impl PgTx<'_> {
    pub(super) fn new(wire: Arc<Wire>, outgoing: Option<Vec<Outgoing>>) -> Self {
        Self { wire, outgoing, trouble: Mutex::default(), env: PhantomData }
    }

    /// What it leaves, and what went wrong.
    pub(super) fn end(self) -> (Vec<Outgoing>, Trouble) {
        (self.outgoing.unwrap_or_default(), self.trouble.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs one statement. Returns how many rows it changed.
    ///
    /// # Errors
    ///
    /// [`PgSqlError`]; then the call fails too.
    pub async fn execute(&self, sql: &str, args: &[Arg<'_>]) -> Result<u64, PgSqlError> {
        self.check(sql)?;
        self.note(self.wire.run(sql, args).await)
    }

    /// All rows of a query.
    ///
    /// # Errors
    ///
    /// As [`PgTx::execute`].
    pub async fn query(&self, sql: &str, args: &[Arg<'_>]) -> Result<Vec<Row>, PgSqlError> {
        self.check(sql)?;
        self.note(self.wire.rows(sql, args).await)
    }

    /// The first row of a query, if there is one.
    ///
    /// # Errors
    ///
    /// As [`PgTx::execute`].
    pub async fn query_opt(&self, sql: &str, args: &[Arg<'_>]) -> Result<Option<Row>, PgSqlError> {
        Ok(self.query(sql, args).await?.into_iter().next())
    }

    /// As [`EffectTx::enqueue`](crate::EffectTx::enqueue).
    ///
    /// # Errors
    ///
    /// [`EnqueueError`]. What was left before stays.
    pub fn enqueue(&mut self, message: Message) -> Result<u32, EnqueueError> {
        enqueue(self.outgoing.as_mut(), message)
    }

    fn check(&self, sql: &str) -> Result<(), PgSqlError> {
        if is_allowed(sql) {
            return Ok(());
        }
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).forbidden = true;
        Err(PgSqlError::Forbidden)
    }

    fn note<T>(&self, answer: Result<T, tokio_postgres::Error>) -> Result<T, PgSqlError> {
        if let Err(error) = &answer {
            let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            trouble.failed.get_or_insert_with(|| (kind(error), error.to_string()));
        }
        Ok(answer?)
    }
}

/// Shows neither the database nor a message.
impl fmt::Debug for PgTx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgTx").field("messages", &self.outgoing.as_ref().map(Vec::len)).finish_non_exhaustive()
    }
}
