//! Decides how a statement goes over one connection: unnamed, or prepared once if the deployment says so.
//!
//! [`Wire`] waits for its answers; [`Raw`] leaves that to [`Wire::both`], so that two go out together.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use super::drive::{Driver, Running};

/// A value and its type, as the database knows it.
pub(crate) type Arg<'a> = (&'a (dyn ToSql + Sync), Type);

/// Values with their types: `args![1_i64 => INT8, "a" => TEXT]`.
macro_rules! args {
    ($($value:expr => $kind:ident),* $(,)?) => {
        &[$((&$value as &(dyn tokio_postgres::types::ToSql + Sync), tokio_postgres::types::Type::$kind)),*]
    };
}
pub(crate) use args;

/// How many statements a connection keeps. Then it begins anew.
const MAX_STATEMENTS: usize = 256;

/// One connection.
pub(crate) struct Wire {
    /// It goes before its driver, which then says so to the server.
    raw: Raw,
    driver: Driver,
}

/// What is asked for on a connection. Nothing moves before somebody waits for it.
pub(super) struct Raw {
    client: Client,
    /// None if statements are not prepared.
    prepared: Option<Mutex<HashMap<Box<str>, Statement>>>,
}

type Answer<T> = Result<T, tokio_postgres::Error>;

impl Wire {
    pub(super) fn new(client: Client, running: Running, prepared: bool) -> Self {
        let raw = Raw { client, prepared: prepared.then(Mutex::default) };
        Self { raw, driver: Driver::new(running) }
    }

    /// Whether the server or this side has closed it, as far as that has arrived.
    pub(super) fn is_closed(&self) -> bool {
        self.driver.is_over() || self.raw.client.is_closed()
    }

    /// Statements without values, and without an answer.
    pub(super) async fn batch(&self, sql: &str) -> Answer<()> {
        self.driver.wait(self.raw.batch(sql)).await
    }

    /// The rows of a statement.
    pub(crate) async fn rows(&self, sql: &str, args: &[Arg<'_>]) -> Answer<Vec<Row>> {
        self.driver.wait(self.raw.rows(sql, args)).await
    }

    /// The first row of a statement.
    pub(crate) async fn first(&self, sql: &str, args: &[Arg<'_>]) -> Answer<Option<Row>> {
        self.driver.wait(self.raw.first(sql, args)).await
    }

    /// How many rows a statement changed.
    pub(crate) async fn run(&self, sql: &str, args: &[Arg<'_>]) -> Answer<u64> {
        self.driver.wait(self.raw.run(sql, args)).await
    }

    /// Sees to it that this statement goes out at once when it is asked for, before what is asked for after it.
    pub(super) async fn ready(&self, sql: &str, args: &[Arg<'_>]) -> Answer<()> {
        match &self.raw.prepared {
            Some(prepared) => self.driver.wait(self.raw.statement(prepared, sql, args)).await.map(drop),
            None => Ok(()),
        }
    }

    /// What [`Wire::both`] takes.
    pub(super) const fn raw(&self) -> &Raw {
        &self.raw
    }

    /// Does two things in one round trip: the first is sent before the second, and both are answered. A statement that comes
    /// first has to be [ready](Wire::ready).
    pub(super) async fn both<A, B>(&self, first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
        self.driver.wait(pair(first, second)).await
    }
}

impl Raw {
    pub(super) async fn batch(&self, sql: &str) -> Answer<()> {
        self.client.batch_execute(sql).await
    }

    pub(super) async fn rows(&self, sql: &str, args: &[Arg<'_>]) -> Answer<Vec<Row>> {
        let Some(prepared) = &self.prepared else { return self.client.query_typed(sql, args).await };
        let statement = self.statement(prepared, sql, args).await?;
        let values: Vec<_> = args.iter().map(|(value, _)| *value).collect();
        self.client.query(&statement, &values).await
    }

    pub(super) async fn first(&self, sql: &str, args: &[Arg<'_>]) -> Answer<Option<Row>> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    pub(super) async fn run(&self, sql: &str, args: &[Arg<'_>]) -> Answer<u64> {
        let Some(prepared) = &self.prepared else { return self.client.execute_typed(sql, args).await };
        let statement = self.statement(prepared, sql, args).await?;
        let values: Vec<_> = args.iter().map(|(value, _)| *value).collect();
        self.client.execute(&statement, &values).await
    }

    async fn statement(
        &self,
        prepared: &Mutex<HashMap<Box<str>, Statement>>,
        sql: &str,
        args: &[Arg<'_>],
    ) -> Answer<Statement> {
        // The types belong to it: the same text with other types is another statement.
        let known = prepared.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        if let Some(statement) = known
            && statement.params().iter().eq(args.iter().map(|(_, kind)| kind))
        {
            return Ok(statement);
        }
        let types: Vec<_> = args.iter().map(|(_, kind)| kind.clone()).collect();
        let statement = self.client.prepare_typed(sql, &types).await?;
        let mut prepared = prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if prepared.len() >= MAX_STATEMENTS {
            prepared.clear();
        }
        prepared.insert(sql.into(), statement.clone());
        Ok(statement)
    }
}

async fn pair<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut one, mut other) = (None, None);
    poll_fn(|cx| {
        if one.is_none()
            && let Poll::Ready(value) = first.as_mut().poll(cx)
        {
            one = Some(value);
        }
        if other.is_none()
            && let Poll::Ready(value) = second.as_mut().poll(cx)
        {
            other = Some(value);
        }
        match (one.take(), other.take()) {
            (Some(value), Some(second)) => Poll::Ready((value, second)),
            (waits, too) => {
                (one, other) = (waits, too);
                Poll::Pending
            }
        }
    })
    .await
}
