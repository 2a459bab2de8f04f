//! Decides the order of things on PostgreSQL: claim, effect, result, commit, and only then an answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use steady_core::idempotency::{Key, Scope, canonical_arguments};
use steady_core::time::WallTime;
use tokio::runtime::Handle;
use tokio_postgres::Config;
use tokio_postgres::Socket;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};

use super::effect::{PgEffect, PgTx};
use super::external::sweep;
use super::options::{Isolation, PgOptions};
use super::partition;
use super::pool::{Connector, Pool};
use super::record::{self, Call};
use super::run::{Ran, Runs};
use super::schema;
use super::wire::args;
use crate::effect::{decode, encode};
use crate::error::LedgerError;
use crate::options::{Clock, Entropy, Opening};
use crate::request::{Executed, Reconciled, Request, Unkeyed};
use crate::secret::Secret;
use crate::stats::Meters;
use crate::task::{TaskLimits, Watchers};
use crate::time::millis;
use crate::transaction::{Answer, settle_at};

/// A handle to a ledger on PostgreSQL: keys, results and the application's own tables in one database, for many replicas.
///
/// It answers as [`Ledger`](crate::Ledger) does, with the same verdicts and errors; its effects are asynchronous, see
/// [`PgTx`]. Clones share their connections. A call whose future is dropped is rolled back, unless its commit was already
/// sent: a retry with the same key finds out. It needs a tokio runtime with IO and time.
#[derive(Clone)]
pub struct PgLedger {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) pool: Pool,
    pub(crate) secret: Secret,
    pub(crate) clock: Option<Clock>,
    pub(crate) entropy: Entropy,
    /// The latest time that is sure, as far as this handle knows.
    pub(crate) latest: AtomicI64,
    pub(crate) retention_ms: i64,
    pub(crate) horizon_ms: Option<i64>,
    min_key_len: usize,
    pub(crate) outbox_capacity: u32,
    pub(crate) max_lease: Duration,
    pub(crate) isolation: Isolation,
    pub(crate) attempts: u32,
    pub(crate) effect_time: Duration,
    /// After this many milliseconds of silence the database gives a transaction up.
    pub(crate) idle_limit: String,
    /// After this many milliseconds the database ends a statement of an effect.
    pub(crate) effect_limit: String,
    pub(crate) commit_time: Duration,
    pub(crate) notify: bool,
    pub(crate) task_limits: TaskLimits,
    pub(crate) meters: Meters,
    pub(crate) watchers: Watchers,
    /// Where work goes on that nobody waits for.
    pub(crate) runtime: Handle,
    /// How many of the next calls look for an answer before they claim: many, after one that found its key taken.
    looks: AtomicU32,
    /// When messages were last counted, in milliseconds, and how many there were.
    pub(crate) outbox_seen: (AtomicI64, AtomicU32),
}

/// How many calls after a replay are expected to be some too. That only decides which question comes first.
const LOOKS: u32 = 64;

impl PgLedger {
    /// Opens the ledger in the database of `config`, a URL or a list of settings as libpq takes them, and creates its
    /// tables if they are not there, in the schema that comes first in the `search_path` of the role.
    ///
    /// Without encryption, so only over a Unix socket or to this machine; to others only with `sslmode=disable`, which says
    /// that the network is trusted. Use [`PgLedger::open_tls`] otherwise.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Unencrypted`], [`LedgerError::NotPrimary`], [`LedgerError::NotDurable`],
    /// [`LedgerError::WrongSecret`], [`LedgerError::NewerSchema`]; [`LedgerError::ForeignFile`] if there is no ledger and
    /// none is to be created; [`LedgerError::Storage`], also for what is wrong in [`PgOptions::schema`].
    pub async fn open(config: &str, options: PgOptions) -> Result<Self, LedgerError> {
        let connector = Connector::plain(parse(config)?)?;
        Self::opened(connector, options).await
    }

    /// As [`PgLedger::open`], over TLS, by any connector for `tokio-postgres`: the choice of the TLS library, and of which
    /// certificates are trusted, is the deployment's. A server without TLS is refused, unless `config` says
    /// `sslmode=disable`.
    ///
    /// # Errors
    ///
    /// As [`PgLedger::open`].
    pub async fn open_tls<T>(config: &str, tls: T, options: PgOptions) -> Result<Self, LedgerError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let connector = Connector::secured(parse(config)?, tls);
        Self::opened(connector, options).await
    }

    async fn opened(connector: Connector, options: PgOptions) -> Result<Self, LedgerError> {
        let pool = Pool::new(connector, options.connections.get(), options.prepared, options.busy_timeout);
        let conn = pool.get().await?;
        let found = schema::open(&conn, &options).await?;
        if options.opening == Opening::CreateOrMigrate {
            partition::prepare(&conn, options.clock.as_ref(), options.retention).await?;
        }
        conn.put_back();
        let existing = options.opening == Opening::Existing;
        let inner = Inner {
            pool,
            secret: found.secret,
            clock: options.clock,
            entropy: options.entropy,
            latest: AtomicI64::new(found.latest_ms),
            retention_ms: if existing { found.retention_ms } else { millis(options.retention) },
            horizon_ms: if existing { found.horizon_ms } else { options.key_horizon.map(millis) },
            min_key_len: options.min_key_len,
            outbox_capacity: options.outbox_capacity,
            max_lease: options.max_lease,
            isolation: options.isolation,
            attempts: options.attempts.get(),
            effect_time: options.effect_time,
            idle_limit: millis(options.effect_time.saturating_mul(2)).clamp(1, i32::MAX.into()).to_string(),
            effect_limit: millis(options.effect_time).clamp(1, i32::MAX.into()).to_string(),
            commit_time: options.commit_time,
            notify: options.notify,
            task_limits: options.tasks,
            meters: Meters::default(),
            watchers: Watchers::default(),
            runtime: Handle::current(),
            looks: AtomicU32::new(0),
            outbox_seen: (AtomicI64::new(i64::MIN), AtomicU32::new(0)),
        };
        if !existing {
            // As a file does it: who looks first after a crash sees what is in doubt.
            let tx = inner.begin().await?;
            let swept = sweep(&tx).await;
            tx.end(&inner, swept).await?;
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Runs `effect` once for the key of `request`, and answers every call with what it came to: as
    /// [`Ledger::execute`](crate::Ledger::execute).
    ///
    /// ```no_run
    /// use steady_ledger::tokio_postgres::types::Type;
    /// use steady_ledger::{EffectError, Executed, Key, PgLedger, PgOptions, Request, Scope};
    ///
    /// # async fn reserve() -> Result<(), Box<dyn std::error::Error>> {
    /// let ledger = PgLedger::open("host=/run/postgresql dbname=shop", PgOptions::default()).await?;
    /// let (scope, key) = (Scope::new("tenant-1", "reserve_inventory"), Key::parse("order-7")?);
    /// let request = Request::new(&scope, &key, r#"{"sku":"a-1"}"#);
    /// let left = ledger.execute(&request, |tx| {
    ///     Box::pin(async move {
    ///         let sql = "UPDATE stock SET units = units - 1 WHERE sku = $1 AND units > 0 RETURNING units";
    ///         match tx.query_opt(sql, &[(&"a-1", Type::TEXT)]).await? {
    ///             Some(row) => Ok(row.get::<_, i64>(0)),
    ///             None => Err(EffectError::Reject(-1)),
    ///         }
    ///     })
    /// });
    /// let (Executed::Fresh(left) | Executed::Replayed(left)) = left.await?;
    /// # Ok(()) }
    /// ```
    ///
    /// The effect is called again if the database gave its transaction up for the sake of another: see [`Isolation`]. So it
    /// must have no effect outside of its [`PgTx`].
    ///
    /// # Errors
    ///
    /// As [`Ledger::execute`](crate::Ledger::execute). [`LedgerError::InFlight`] while another call with this key runs, in
    /// whichever replica: nobody waits for it.
    pub async fn execute<'e, T, F>(&self, request: &Request<'_>, mut effect: F) -> Result<Executed<T>, LedgerError>
    where
        T: Serialize + DeserializeOwned + Send,
        F: for<'a> FnMut(&'a mut PgTx<'e>) -> PgEffect<'a, T> + Send,
    {
        let call = self.inner.call(request)?;
        if let Some(answer) = self.inner.look(&call).await? {
            return self.inner.executed(answer);
        }
        let runs = Runs::new(&self.inner);
        let answer = runs.keyed(&call, &mut effect).await?;
        self.inner.executed(answer)
    }

    /// Runs `effect` in one transaction, and counts it. **Every call runs it**, also a retry of a call that succeeded.
    ///
    /// # Errors
    ///
    /// As [`Ledger::execute_keyless`](crate::Ledger::execute_keyless).
    pub async fn execute_keyless<'e, T, F>(&self, scope: &Scope, mut effect: F) -> Result<Unkeyed<T>, LedgerError>
    where
        T: Serialize + DeserializeOwned + Send,
        F: for<'a> FnMut(&'a mut PgTx<'e>) -> PgEffect<'a, T> + Send,
    {
        let body = Runs::new(&self.inner).unkeyed(scope, &mut effect).await?;
        decode(&body).map(Unkeyed).ok_or(LedgerError::ResultType)
    }

    /// What is known of a key, from the primary: as [`Ledger::reconcile`](crate::Ledger::reconcile).
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading can fail.
    pub async fn reconcile(&self, scope: &Scope, key: &Key) -> Result<Option<Reconciled>, LedgerError> {
        let conn = self.inner.pool.get().await?;
        let found = record::find(&conn, scope, key).await?;
        conn.put_back();
        Ok(found.map(|(stored, _)| stored.reconciled()))
    }

    /// How many effects without a key were committed in this scope.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading can fail.
    pub async fn keyless_executions(&self, scope: &Scope) -> Result<u64, LedgerError> {
        let conn = self.inner.pool.get().await?;
        let sql =
            "SELECT coalesce(sum(executions), 0)::bigint FROM ledger_unkeyed WHERE principal = $1 AND operation = $2";
        let row = conn.first(sql, args![&*scope.principal => TEXT, &*scope.operation => TEXT]).await?;
        conn.put_back();
        Ok(row.map_or(0, |row| u64::try_from(row.get::<_, i64>(0)).unwrap_or(0)))
    }

    /// Closes the connections that nobody uses. From then on all clones answer [`LedgerError::Closed`].
    pub fn close(&self) {
        self.inner.pool.close();
    }
}

pub(super) fn parse(config: &str) -> Result<Config, LedgerError> {
    config.parse().map_err(|error: tokio_postgres::Error| LedgerError::Storage(error.into()))
}

impl Inner {
    pub(crate) fn call(&self, request: &Request<'_>) -> Result<Call, LedgerError> {
        let Request { scope, key, arguments, version, exclude } = *request;
        let min = self.min_key_len;
        if key.as_str().len() < min {
            return Err(LedgerError::InvalidKey { min });
        }
        let canonical = canonical_arguments(arguments, exclude).map_err(LedgerError::InvalidArguments)?;
        let fingerprint = self.secret.fingerprint(scope, version, &canonical);
        Ok(Call {
            scope: scope.clone(),
            key: key.clone(),
            fingerprint,
            lock: self.secret.lock(scope, key),
            retention_ms: self.retention_ms,
        })
    }

    /// The answer that is there, if one is likely. An answer never changes, so it needs no transaction.
    pub(crate) async fn look(&self, call: &Call) -> Result<Option<Answer>, LedgerError> {
        let left = self.looks.load(Ordering::Relaxed);
        if left == 0 {
            return Ok(None);
        }
        self.looks.store(left - 1, Ordering::Relaxed);
        self.known(call).await
    }

    /// The answer that is committed.
    pub(crate) async fn known(&self, call: &Call) -> Result<Option<Answer>, LedgerError> {
        let mut conn = self.pool.get().await?;
        let found = match record::find(&conn, &call.scope, &call.key).await {
            // The server has closed it since it was last used.
            Err(LedgerError::Storage(_)) if conn.is_closed() => {
                conn = self.pool.anew(conn).await?;
                record::find(&conn, &call.scope, &call.key).await?
            }
            found => found?,
        };
        conn.put_back();
        let Some((stored, clock)) = found else { return Ok(None) };
        let shown = self.clock_ms().unwrap_or(clock);
        let answer = settle_at(Some(stored), &call.fingerprint, &self.secret, self.times(shown));
        if answer.is_ok() {
            self.looks.store(LOOKS, Ordering::Relaxed);
        }
        answer
    }

    /// What the clock shows, and the time that is never before one that was sure.
    pub(crate) fn times(&self, shown: i64) -> (WallTime, WallTime) {
        let now = shown.max(self.latest.load(Ordering::Relaxed));
        (WallTime::from_unix_millis(shown), WallTime::from_unix_millis(now))
    }

    pub(crate) fn executed<T: DeserializeOwned>(&self, answer: Answer) -> Result<Executed<T>, LedgerError> {
        let value = decode(&answer.body).ok_or(LedgerError::ResultType)?;
        if !answer.replayed {
            return Ok(Executed::Fresh(value));
        }
        self.meters.replays.add();
        Ok(Executed::Replayed(value))
    }

    /// A lease that may be given to whoever asks for this one.
    pub(crate) fn lease(&self, asked: Duration) -> Duration {
        asked.min(self.max_lease)
    }
}

/// Takes the type off what an effect came to.
pub(super) fn ran<T: Serialize + DeserializeOwned>(result: Result<T, crate::effect::EffectError<T>>) -> Ran {
    use crate::effect::EffectError;
    match result {
        Ok(value) => encode(&value).map_or(Ran::Unencodable, Ran::Commit),
        Err(EffectError::Reject(value)) => encode(&value).map_or(Ran::Unencodable, Ran::Reject),
        Err(EffectError::Abort(cause)) => Ran::Abort(cause),
    }
}

/// Shows neither the database nor the secret.
impl fmt::Debug for PgLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgLedger").field("idle connections", &self.inner.pool.idle()).finish_non_exhaustive()
    }
}
