//! Decides which connection serves which question, and what is said when a commit fails.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use steady_core::idempotency::{Key, Scope, canonical_arguments};

use crate::effect::{EffectError, EffectTx, Job, ReadTx, decode, job};
use crate::error::LedgerError;
use crate::file::{Access, Found, Keeping, Site};
use crate::guard::{Inside, Speaker};
use crate::lane::Lane;
use crate::options::{Entropy, Options};
use crate::reads::Reads;
use crate::record::{self, Call};
use crate::request::{Executed, Reconciled, Request, Unkeyed};
use crate::secret::Secret;
use crate::stats::{Meters, SharedMeters};
use crate::task::{TaskLimits, Tasks, Watchers};
use crate::time::{Timekeeper, millis};
use crate::transaction::{Answer, look_up, run_keyed, run_unkeyed, settle};
use crate::writer::Writer;
use crate::writer::unit::{Answering, Unit};

/// A handle to a ledger: one SQLite file that holds keys, results and the application's own tables.
///
/// Clones share their connections. Other handles to the same file, in this process or another, are safe: a key runs once
/// over all of them. All methods block but those named `_async`, which need no particular runtime.
#[derive(Clone)]
pub struct Ledger {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) secret: Secret,
    pub(crate) clock: Timekeeper,
    pub(crate) entropy: Entropy,
    retention_ms: i64,
    pub(crate) horizon_ms: Option<i64>,
    min_key_len: usize,
    outbox_capacity: u32,
    max_lease: Duration,
    pub(crate) meters: SharedMeters,
    pub(crate) task_limits: TaskLimits,
    pub(crate) task_watchers: Arc<Watchers>,
    site: Arc<Site>,
    /// For the ledger's own questions, which are short.
    pub(crate) reader: Lane,
    reads: Reads,
    pub(crate) writer: Writer,
}

/// The longest wait that SQLite can count, in milliseconds.
const MAX_BUSY_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);

impl Ledger {
    /// Opens the ledger at `path`, and creates it if there is no file or an empty one.
    ///
    /// # Errors
    ///
    /// [`LedgerError::ForeignFile`] and [`LedgerError::NewerSchema`] leave the file as it was. A failure of
    /// [`Options::schema`] is [`LedgerError::Storage`], or [`LedgerError::Forbidden`] if it names anything `ledger_*`.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, LedgerError> {
        if Inside::is_here() {
            return Err(LedgerError::Reentrant);
        }
        let Options { schema, busy_timeout, retention, secret, clock, entropy, outbox_capacity, .. } = options;
        let keeping = Keeping { retention_ms: millis(retention), horizon_ms: options.key_horizon.map(millis) };
        let meters = SharedMeters::default();
        // A later reconnection must find the same file, wherever the process is by then.
        let path = std::path::absolute(path).map_err(|error| LedgerError::Storage(error.into()))?;
        let site = Arc::new(Site {
            path,
            vfs: options.vfs,
            busy_timeout: busy_timeout.min(MAX_BUSY_TIMEOUT),
            durability: options.durability,
            effect_time: options.effect_time,
            meters: Arc::clone(&meters),
            opening: options.opening,
            network_file_system: options.network_file_system,
        });
        let Found { db, secret, clock, keeping } = site.found(secret.as_ref(), &entropy, &schema, clock, keeping)?;
        let reader = Lane::new(Arc::clone(&site), Access::Read, site.connect(Access::Read)?);
        let reads = Reads::new(Arc::clone(&site));
        let lane = Lane::new(Arc::clone(&site), Access::Write, db);
        let writer =
            Writer::start(lane, options.executor, options.effect_time, options.wal_limit, Arc::clone(&meters))?;
        Ok(Self {
            inner: Arc::new(Inner {
                secret,
                clock,
                entropy,
                retention_ms: keeping.retention_ms,
                horizon_ms: keeping.horizon_ms,
                min_key_len: options.min_key_len,
                outbox_capacity,
                max_lease: options.max_lease,
                meters,
                task_limits: options.tasks,
                task_watchers: Arc::default(),
                site,
                reader,
                reads,
                writer,
            }),
        })
    }

    /// Runs `effect` once for the key of `request`, and answers every call with what it came to.
    ///
    /// The effect runs in the transaction that also stores its result; there is an answer only once that is durable. It
    /// runs on a thread of the ledger's choice, while every other effect on the file waits: keep it short, and free of
    /// any effect outside of its [`EffectTx`]. It may be called again if its first transaction was rolled back for a
    /// reason of its own, so it must not rely on what it captured having been used only once.
    ///
    /// A panic in it is caught, unless the program is built to abort on panic.
    ///
    /// # Errors
    ///
    /// Each variant of [`LedgerError`] says what is certain about the effect. It may be there, or an earlier one under this
    /// key, after [`LedgerError::CommitUnknown`], [`LedgerError::InDoubt`], [`LedgerError::InFlight`],
    /// [`LedgerError::ResultExpired`], [`LedgerError::KeyTooOld`], [`LedgerError::ResultType`],
    /// [`LedgerError::Mismatch`] and [`LedgerError::Corrupt`]; all others mean that it is not.
    pub fn execute<T, F>(&self, request: &Request<'_>, effect: F) -> Result<Executed<T>, LedgerError>
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(&mut EffectTx<'_>) -> Result<T, EffectError<T>> + Send + 'static,
    {
        let call = self.call(request)?;
        // An answer never changes, so what is found without the write lock holds. A miss proves nothing.
        let stored = self.inner.reader.with(|db| record::find(&db.conn, &call.scope, &call.key))?;
        let answer = match settle(stored, &call)? {
            Some(answer) => answer,
            None => self.inner.writer.wait(keyed(call, job(effect)))?,
        };
        answer.executed(&self.inner.meters)
    }

    /// As [`Ledger::execute`], without blocking the thread that polls, and on any runtime.
    ///
    /// The call is handed over at once, not at the first poll: **it runs to its end even if the future is dropped**, and
    /// a retry with the same key then replays it.
    ///
    /// # Errors
    ///
    /// As [`Ledger::execute`].
    pub fn execute_async<T, F>(
        &self,
        request: &Request<'_>,
        effect: F,
    ) -> impl Future<Output = Result<Executed<T>, LedgerError>> + Send + use<T, F>
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(&mut EffectTx<'_>) -> Result<T, EffectError<T>> + Send + 'static,
    {
        // Replays go the same way: a lookup on this thread could wait for the disk.
        let answering = self.call(request).and_then(|call| self.inner.writer.submit(keyed(call, job(effect))));
        let meters = Arc::clone(&self.inner.meters);
        async move { answering?.await.unwrap_or(Err(LedgerError::Closed))?.executed(&meters) }
    }

    /// Runs `effect` in one transaction, and counts it. **Every call runs it**, also a retry of a call that succeeded.
    ///
    /// [`EffectError::Reject`] rolls the effect back and answers with the refusal; it is not counted.
    ///
    /// # Errors
    ///
    /// As [`Ledger::execute`]. After [`LedgerError::CommitUnknown`] nothing can tell whether the effect is there.
    pub fn execute_keyless<T, F>(&self, scope: &Scope, effect: F) -> Result<Unkeyed<T>, LedgerError>
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(&mut EffectTx<'_>) -> Result<T, EffectError<T>> + Send + 'static,
    {
        let body = self.inner.writer.wait(unkeyed(scope, job(effect)))?;
        decode(&body).map(Unkeyed).ok_or(LedgerError::ResultType)
    }

    /// As [`Ledger::execute_keyless`], in the way of [`Ledger::execute_async`].
    ///
    /// # Errors
    ///
    /// As [`Ledger::execute_keyless`].
    pub fn execute_keyless_async<T, F>(
        &self,
        scope: &Scope,
        effect: F,
    ) -> impl Future<Output = Result<Unkeyed<T>, LedgerError>> + Send + use<T, F>
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(&mut EffectTx<'_>) -> Result<T, EffectError<T>> + Send + 'static,
    {
        let answering = self.inner.writer.submit(unkeyed(scope, job(effect)));
        async move {
            let body = answering?.await.unwrap_or(Err(LedgerError::Closed))?;
            decode(&body).map(Unkeyed).ok_or(LedgerError::ResultType)
        }
    }

    /// What is known of a key. Reads only: it never creates a record, and never waits for an effect.
    ///
    /// `None` means that nothing is committed under the key yet; a call that is under way can still commit.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading can fail.
    pub fn reconcile(&self, scope: &Scope, key: &Key) -> Result<Option<Reconciled>, LedgerError> {
        self.inner.reader.with(|db| Ok(record::find(&db.conn, scope, key)?.map(|stored| stored.reconciled())))
    }

    /// How many effects without a key were committed in this scope.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading can fail.
    pub fn keyless_executions(&self, scope: &Scope) -> Result<u64, LedgerError> {
        self.inner.reader.with(|db| record::unkeyed(&db.conn, scope))
    }

    /// Reads the application's tables, in one snapshot, on a connection of its own: neither calls nor other reads wait
    /// for it. The write-ahead log keeps growing until it ends: see [`Options::wal_limit`].
    ///
    /// # Errors
    ///
    /// What `work` returned, as [`LedgerError::Storage`] or a closer variant; [`LedgerError::TimeLimit`] if its SQL ran
    /// for longer than [`Options::effect_time`]; [`LedgerError::Busy`] if eight other reads went on for the whole
    /// [`Options::busy_timeout`].
    pub fn read<R>(&self, work: impl FnOnce(&ReadTx<'_>) -> rusqlite::Result<R>) -> Result<R, LedgerError> {
        self.inner.reads.with(|db| {
            let snapshot = db.conn.unchecked_transaction()?;
            let result = {
                let _speaking = db.guard.speak(Speaker::Effect);
                let _limit = db.guard.limit_time();
                let _inside = Inside::enter();
                work(&ReadTx::new(&db.conn))
            };
            if db.guard.is_out_of_time() {
                return Err(LedgerError::TimeLimit);
            }
            snapshot.finish()?;
            Ok(result?)
        })
    }

    /// The durable tasks in the file.
    #[must_use]
    pub fn tasks(&self) -> Tasks {
        Tasks::new(self.clone())
    }

    /// Closes the file, once the calls that use it are done. From then on all clones answer [`LedgerError::Closed`].
    ///
    /// The last handle closes the file by itself when it is dropped; this is for those who want to see an error.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Storage`]. What was acknowledged is durable all the same.
    pub fn close(&self) -> Result<(), LedgerError> {
        let reads = self.inner.reads.close();
        let reader = self.inner.reader.close();
        self.inner.writer.close().and(reader).and(reads)
    }

    /// A lease that may be given to whoever asks for this one.
    pub(crate) fn lease(&self, asked: Duration) -> Duration {
        asked.min(self.inner.max_lease)
    }

    pub(crate) fn site(&self) -> &Site {
        &self.inner.site
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.inner.secret
    }

    pub(crate) fn call(&self, request: &Request<'_>) -> Result<Call, LedgerError> {
        let Request { scope, key, arguments, version, exclude } = *request;
        let min = self.inner.min_key_len;
        if key.as_str().len() < min {
            return Err(LedgerError::InvalidKey { min });
        }
        let canonical = canonical_arguments(arguments, exclude).map_err(LedgerError::InvalidArguments)?;
        let fingerprint = self.inner.secret.fingerprint(scope, version, &canonical);
        Ok(Call { fingerprint, ..self.call_without_fingerprint(scope, key) })
    }

    /// A call that is compared with nothing.
    pub(crate) fn call_without_fingerprint(&self, scope: &Scope, key: &Key) -> Call {
        let Inner { secret, clock, retention_ms, horizon_ms, outbox_capacity, .. } = &*self.inner;
        Call {
            scope: scope.clone(),
            key: key.clone(),
            fingerprint: [0; 32],
            secret: secret.clone(),
            clock: clock.clone(),
            retention_ms: *retention_ms,
            horizon_ms: *horizon_ms,
            outbox_capacity: *outbox_capacity,
        }
    }
}

fn keyed(call: Call, mut job: Job) -> (Unit<Answer>, Answering<Answer>) {
    let call = Arc::new(call);
    let later = Arc::clone(&call);
    let operation = Arc::clone(&call);
    let (unit, answering) = Unit::new(&operation.scope.operation, move |db| run_keyed(db, &call, &mut job));
    (unit.look_up(move |db| look_up(db, &later)), answering)
}

fn unkeyed(scope: &Scope, mut job: Job) -> (Unit<Vec<u8>>, Answering<Vec<u8>>) {
    let owned = scope.clone();
    Unit::new(&scope.operation, move |db| run_unkeyed(db, &owned, &mut job))
}

impl Answer {
    fn executed<T: DeserializeOwned>(self, meters: &Meters) -> Result<Executed<T>, LedgerError> {
        let value = decode(&self.body).ok_or(LedgerError::ResultType)?;
        if !self.replayed {
            return Ok(Executed::Fresh(value));
        }
        meters.replays.add();
        Ok(Executed::Replayed(value))
    }
}

/// Shows neither the path nor the secret.
impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}
