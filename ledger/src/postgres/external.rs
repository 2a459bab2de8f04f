//! Decides how a key whose effect is outside of the database moves, over all replicas: the row of the key is locked by
//! whoever moves it, and what becomes of it is decided as for a file.

use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use steady_core::idempotency::{Key, Scope, State, Verdict, decide};
use steady_core::time::WallTime;

use super::audit;
use super::ledger::{Inner, PgLedger};
use super::record::{self, Call, Kept};
use super::tx::Tx;
use super::wire::args;
use crate::audit::{About, Action, By, LEDGER};
use crate::effect::decode;
use crate::error::LedgerError;
use crate::external::attempt::body;
use crate::external::run::{Word, is_said, may_resend};
use crate::external::store::{Open, SWEEP, Token, is_abandoned, stored_key};
use crate::external::{External, InDoubt, Resolved, Upstream};
use crate::record::{Stored, code};
use crate::request::Request;
use crate::time::{JUMP, millis};
use crate::transaction::settle_at;

/// What a call with an outside effect comes to: as [`Begun`](crate::Begun).
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "a call is either answered or has to be sent")]
pub enum PgBegun<T> {
    /// It came to its end earlier: its answer, decoded from the stored bytes.
    Replayed(T),
    /// It is this caller's to send, and that is durable.
    Send(PgAttempt),
}

/// Shows no result.
impl<T> fmt::Debug for PgBegun<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replayed(_) => f.write_str("Replayed(..)"),
            Self::Send(attempt) => f.debug_tuple("Send").field(attempt).finish(),
        }
    }
}

enum Began {
    Settled(Vec<u8>),
    Held { number: u32, lease_until: i64 },
    InDoubt,
}

const CHANGED: &str = "an open key changed inside a transaction";
/// How often a key that comes and goes is looked at.
const LOOKS: usize = 3;

impl PgLedger {
    /// Asks for the right to send the effect of `request` to another system: as [`Ledger::begin`](crate::Ledger::begin).
    ///
    /// # Errors
    ///
    /// As [`Ledger::begin`](crate::Ledger::begin).
    pub async fn begin<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        external: &External,
    ) -> Result<PgBegun<T>, LedgerError> {
        let inner = &*self.inner;
        let external = External { lease: inner.lease(external.lease), ..*external };
        let (call, token): (_, Token) = (inner.call(request)?, inner.entropy.bytes()?);
        let started = Instant::now();
        let tx = inner.begin().await?;
        let began = begin(&tx, inner, &call, external, token).await;
        match tx.end(inner, began).await? {
            Began::Settled(body) => {
                inner.meters.replays.add();
                Ok(PgBegun::Replayed(decode(&body).ok_or(LedgerError::ResultType)?))
            }
            Began::InDoubt => Err(LedgerError::InDoubt),
            Began::Held { number, lease_until } => Ok(PgBegun::Send(PgAttempt {
                ledger: self.clone(),
                upstream_key: inner.secret.upstream_key(&call.scope, &call.key),
                call,
                token,
                number,
                lease_until: WallTime::from_unix_millis(lease_until),
                live: (started, external.lease),
            })),
        }
    }

    /// Gives a key in doubt the outcome that `actor` found out: as [`Ledger::resolve`](crate::Ledger::resolve).
    ///
    /// # Errors
    ///
    /// As [`Ledger::resolve`](crate::Ledger::resolve).
    pub async fn resolve<T: Serialize + DeserializeOwned>(
        &self,
        scope: &Scope,
        key: &Key,
        resolved: &Resolved<T>,
        actor: &str,
        note: &str,
    ) -> Result<(), LedgerError> {
        let by = By { actor, note };
        by.check()?;
        let (state, value) = match resolved {
            Resolved::Committed(value) => (State::Committed, body(value)?),
            Resolved::Rejected(value) => (State::Rejected, body(value)?),
        };
        let inner = &*self.inner;
        let tx = inner.begin().await?;
        let done = resolve(&tx, inner, (scope, key), state, &value, by).await;
        tx.end(inner, done).await
    }

    /// Keys that are in doubt: as [`Ledger::in_doubt`](crate::Ledger::in_doubt).
    ///
    /// # Errors
    ///
    /// [`LedgerError`], as far as reading and writing can fail.
    pub async fn in_doubt(&self, limit: u32) -> Result<Vec<InDoubt>, LedgerError> {
        let inner = &*self.inner;
        loop {
            let tx = inner.begin().await?;
            let swept = sweep(&tx).await;
            if tx.end(inner, swept).await? < SWEEP as usize {
                break;
            }
        }
        let conn = inner.pool.get().await?;
        let sql = "SELECT k.principal, k.operation, k.key, k.recorded_ms, coalesce(a.number, 1), a.first_sent_ms
                   FROM ledger_key AS k LEFT JOIN ledger_attempt AS a USING (principal, operation, key)
                   WHERE k.state = 4
                   ORDER BY CASE k.state WHEN 1 THEN k.lease_until_ms WHEN 4 THEN k.recorded_ms ELSE k.born_ms END LIMIT $1";
        let rows = conn.rows(sql, args![i64::from(limit) => INT8]).await?;
        conn.put_back();
        let listed = rows.iter().map(|row| {
            let scope = Scope::new(row.get::<_, String>(0), row.get::<_, String>(1));
            let key = stored_key(row.get(2))?;
            Ok(InDoubt {
                upstream_key: self.upstream_key(&scope, &key),
                scope,
                key,
                since: WallTime::from_unix_millis(row.get(3)),
                attempts: u32::try_from(row.get::<_, i32>(4)).unwrap_or(1),
                first_sent_at: row.get::<_, Option<i64>>(5).map(WallTime::from_unix_millis),
            })
        });
        listed.collect()
    }

    /// The idempotency key that another system gets for this key: as
    /// [`Ledger::upstream_key`](crate::Ledger::upstream_key).
    #[must_use]
    pub fn upstream_key(&self, scope: &Scope, key: &Key) -> Box<str> {
        self.inner.secret.upstream_key(scope, key)
    }
}

/// The right to send one effect to another system, and the duty to say what became of it: as
/// [`Attempt`](crate::Attempt), whose rules hold.
#[must_use = "a key whose attempt says nothing ends up in doubt"]
pub struct PgAttempt {
    ledger: PgLedger,
    call: Call,
    token: Token,
    upstream_key: Box<str>,
    number: u32,
    lease_until: WallTime,
    /// When it was asked for, and how long it lasts: by the clock of this machine, whatever that shows.
    live: (Instant, Duration),
}

impl PgAttempt {
    /// The idempotency key for the other system: as [`Attempt::upstream_key`](crate::Attempt::upstream_key).
    #[must_use]
    pub fn upstream_key(&self) -> &str {
        &self.upstream_key
    }

    /// Which attempt of the key this is, from 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Until when it may be sent and its answer be waited for, by the clock of the ledger.
    #[must_use]
    pub const fn lease_until(&self) -> WallTime {
        self.lease_until
    }

    /// Whether its lease is still running. Look at it right before sending.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.live.0.elapsed() < self.live.1
    }

    /// As [`Attempt::commit`](crate::Attempt::commit).
    ///
    /// # Errors
    ///
    /// As [`Attempt::commit`](crate::Attempt::commit).
    pub async fn commit<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<(), LedgerError> {
        let word = Word::Outcome(State::Committed, body(value)?);
        self.say(word).await
    }

    /// As [`Attempt::reject`](crate::Attempt::reject).
    ///
    /// # Errors
    ///
    /// As [`Attempt::commit`](crate::Attempt::commit).
    pub async fn reject<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<(), LedgerError> {
        let word = Word::Outcome(State::Rejected, body(value)?);
        self.say(word).await
    }

    /// As [`Attempt::in_doubt`](crate::Attempt::in_doubt).
    ///
    /// # Errors
    ///
    /// As [`Attempt::in_doubt`](crate::Attempt::in_doubt).
    pub async fn in_doubt(&self) -> Result<(), LedgerError> {
        self.say(Word::InDoubt).await
    }

    /// As [`Attempt::not_sent`](crate::Attempt::not_sent).
    ///
    /// # Errors
    ///
    /// As [`Attempt::in_doubt`](crate::Attempt::in_doubt).
    pub async fn not_sent(&self) -> Result<(), LedgerError> {
        self.say(Word::NotSent).await
    }

    async fn say(&self, word: Word) -> Result<(), LedgerError> {
        let inner = &*self.ledger.inner;
        let tx = inner.begin().await?;
        let said = report(&tx, inner, &self.call, self.token, &word).await;
        tx.end(inner, said).await
    }
}

/// Shows no key.
impl fmt::Debug for PgAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgAttempt")
            .field("scope", &self.call.scope)
            .field("number", &self.number)
            .field("lease_until", &self.lease_until)
            .finish_non_exhaustive()
    }
}

async fn begin(tx: &Tx, inner: &Inner, call: &Call, external: External, token: Token) -> Result<Began, LedgerError> {
    let free = tx.first("SELECT pg_try_advisory_xact_lock($1)", args![call.lock => INT8]).await?;
    if !free.is_some_and(|row| row.get(0)) {
        return Err(LedgerError::InFlight { retry_after: super::run::SOON });
    }
    for _ in 0..LOOKS {
        let stored = record::lock(tx.wire(), &call.scope, &call.key).await?;
        let is_new = stored.is_none();
        let began = begin_once(tx, inner, call, (external, token), stored).await?;
        if !is_new || began.is_some() {
            return began.ok_or(LedgerError::Corrupt { part: CHANGED });
        }
    }
    Err(LedgerError::Busy { operation: None })
}

/// None if somebody else has made the key meanwhile.
async fn begin_once(
    tx: &Tx,
    inner: &Inner,
    call: &Call,
    (external, token): (External, Token),
    stored: Option<Stored>,
) -> Result<Option<Began>, LedgerError> {
    let open = find(tx, &call.scope, &call.key).await?;
    let tick = tx.tick;
    if let Some(record) = stored.as_ref().map(|stored| stored.record)
        && record.fingerprint == call.fingerprint
        && is_abandoned(record.state, open.as_ref(), tick.shown)
    {
        if let Some(open) = open
            && may_resend(&open, external, tick)
        {
            let next = Open { token, number: open.number.saturating_add(1), lease_ms: millis(external.lease), ..open };
            restart(tx, call, &next).await?;
            return Ok(Some(held(&next, tick.shown)));
        }
        if let State::Started { .. } = record.state {
            doubt(tx, &call.scope, &call.key, Action::LeaseExpired).await?;
        }
        return Ok(Some(Began::InDoubt));
    }
    if let Some(answer) = settle_at(stored, &call.fingerprint, &inner.secret, (tx.shown(), tx.now()))? {
        return Ok(Some(Began::Settled(answer.body)));
    }
    tx.check_age(inner, &call.key)?;
    let resend_until_ms = match external.upstream {
        Upstream::Unknown => None,
        Upstream::Idempotent { window } => Some(tick.shown.saturating_add(millis(window))),
    };
    let open = Open { token, number: 1, lease_ms: millis(external.lease), first_sent_ms: tick.shown, resend_until_ms };
    let started = start(tx, call, &open).await?;
    Ok(started.then(|| held(&open, tick.shown)))
}

fn held(open: &Open, shown: i64) -> Began {
    Began::Held { number: open.number, lease_until: shown.saturating_add(open.lease_ms) }
}

async fn find(tx: &Tx, scope: &Scope, key: &Key) -> Result<Option<Open>, LedgerError> {
    let sql = "SELECT token, number, lease_ms, first_sent_ms, resend_until_ms FROM ledger_attempt
               WHERE principal = $1 AND operation = $2 AND key = $3";
    let names = args![&*scope.principal => TEXT, &*scope.operation => TEXT, key.as_str() => TEXT];
    let Some(row) = tx.first(sql, names).await? else { return Ok(None) };
    let part = "the attempt of a key is none";
    Ok(Some(Open {
        token: row.get::<_, &[u8]>(0).try_into().map_err(|_| LedgerError::Corrupt { part })?,
        number: u32::try_from(row.get::<_, i32>(1)).map_err(|_| LedgerError::Corrupt { part })?,
        lease_ms: row.get(2),
        first_sent_ms: row.get(3),
        resend_until_ms: row.get(4),
    }))
}

fn number(open: &Open) -> i32 {
    i32::try_from(open.number).unwrap_or(i32::MAX)
}

async fn start(tx: &Tx, call: &Call, open: &Open) -> Result<bool, LedgerError> {
    let Call { scope, key, fingerprint, .. } = call;
    let sql = "INSERT INTO ledger_key(principal, operation, key, fingerprint, state, executions, lease_until_ms,
                                      recorded_ms, expires_ms)
               VALUES ($1, $2, $3, $4, 1, 0, $5, $6, $6) ON CONFLICT DO NOTHING";
    let lease_until = open.first_sent_ms.saturating_add(open.lease_ms);
    let values = args![
        &*scope.principal => TEXT, &*scope.operation => TEXT, key.as_str() => TEXT, &fingerprint[..] => BYTEA,
        lease_until => INT8, open.first_sent_ms => INT8,
    ];
    if tx.run(sql, values).await? == 0 {
        return Ok(false);
    }
    let sql = "INSERT INTO ledger_attempt(principal, operation, key, token, number, lease_ms, first_sent_ms,
                                          resend_until_ms)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let values = args![
        &*scope.principal => TEXT, &*scope.operation => TEXT, key.as_str() => TEXT, &open.token[..] => BYTEA,
        number(open) => INT4, open.lease_ms => INT8, open.first_sent_ms => INT8, open.resend_until_ms => INT8,
    ];
    tx.one(CHANGED, sql, values).await.map(|()| true)
}

async fn restart(tx: &Tx, call: &Call, next: &Open) -> Result<(), LedgerError> {
    let Call { scope, key, .. } = call;
    let sql = "UPDATE ledger_key SET state = 1, lease_until_ms = $4, recorded_ms = $5
               WHERE principal = $1 AND operation = $2 AND key = $3 AND state IN (1, 4)";
    let lease_until = tx.tick.shown.saturating_add(next.lease_ms);
    let values = args![
        &*scope.principal => TEXT, &*scope.operation => TEXT, key.as_str() => TEXT, lease_until => INT8,
        tx.tick.now => INT8,
    ];
    tx.one(CHANGED, sql, values).await?;
    let sql = "UPDATE ledger_attempt SET token = $4, number = $5, lease_ms = $6
               WHERE principal = $1 AND operation = $2 AND key = $3 AND number = $5 - 1";
    let values = args![
        &*scope.principal => TEXT, &*scope.operation => TEXT, key.as_str() => TEXT, &next.token[..] => BYTEA,
        number(next) => INT4, next.lease_ms => INT8,
    ];
    tx.one(CHANGED, sql, values).await?;
    audit::write(tx, About::key(scope, key), Action::Resent, LEDGER).await
}

async fn doubt(tx: &Tx, scope: &Scope, key: &Key, why: Action) -> Result<(), LedgerError> {
    let sql = "UPDATE ledger_key SET state = 4, lease_until_ms = NULL, recorded_ms = $4
               WHERE principal = $1 AND operation = $2 AND key = $3 AND state = 1";
    let values = args![
        &*scope.principal => TEXT, &*scope.operation => TEXT, key.as_str() => TEXT, tx.tick.now => INT8,
    ];
    tx.one(CHANGED, sql, values).await?;
    audit::write(tx, About::key(scope, key), why, LEDGER).await
}

/// An open key gets its outcome, and nobody has a say in it any more.
async fn finish(
    tx: &Tx,
    inner: &Inner,
    (scope, key, fingerprint): (&Scope, &Key, &[u8; 32]),
    state: State,
    body: &[u8],
) -> Result<(), LedgerError> {
    let expires = tx.tick.now.saturating_add(inner.retention_ms);
    let Kept { small, day, id } = record::keep(tx.wire(), body, expires).await?;
    let seal = record::seal(&inner.secret, fingerprint, code(state), body);
    let sql = "UPDATE ledger_key SET state = $4, executions = $5, result = $6, result_day = $7, result_id = $8,
                                     result_digest = $9, lease_until_ms = NULL, recorded_ms = $10, expires_ms = $11
               WHERE principal = $1 AND operation = $2 AND key = $3 AND state IN (1, 4)";
    let values = args![
        &*scope.principal => TEXT, &*scope.operation => TEXT, key.as_str() => TEXT, i16::from(code(state)) => INT2,
        i16::from(state == State::Committed) => INT2, small => BYTEA, day => INT4, id => INT8, &seal[..] => BYTEA,
        tx.tick.now => INT8, expires => INT8,
    ];
    tx.one(CHANGED, sql, values).await?;
    end_attempt(tx, scope, key).await
}

async fn end_attempt(tx: &Tx, scope: &Scope, key: &Key) -> Result<(), LedgerError> {
    let sql = "DELETE FROM ledger_attempt WHERE principal = $1 AND operation = $2 AND key = $3";
    let names = args![&*scope.principal => TEXT, &*scope.operation => TEXT, key.as_str() => TEXT];
    tx.run(sql, names).await.map(drop)
}

async fn forget(tx: &Tx, scope: &Scope, key: &Key) -> Result<(), LedgerError> {
    end_attempt(tx, scope, key).await?;
    let sql = "DELETE FROM ledger_key WHERE principal = $1 AND operation = $2 AND key = $3 AND state IN (1, 4)";
    let names = args![&*scope.principal => TEXT, &*scope.operation => TEXT, key.as_str() => TEXT];
    tx.one(CHANGED, sql, names).await
}

async fn report(tx: &Tx, inner: &Inner, call: &Call, token: Token, word: &Word) -> Result<(), LedgerError> {
    let (scope, key) = (&call.scope, &call.key);
    let stored = record::lock(tx.wire(), scope, key).await?;
    let late = match stored.as_ref().map(|stored| stored.record.state) {
        Some(State::Started { .. }) => Some(false),
        Some(State::InDoubt) => Some(true),
        Some(State::Committed | State::Rejected | State::Expired) | None => None,
    };
    let open = find(tx, scope, key).await?.filter(|open| open.token == token);
    let (Some(late), Some(open)) = (late, open) else {
        let said = is_said(&inner.secret, word, stored.as_ref());
        return if said { Ok(()) } else { Err(LedgerError::Stale) };
    };
    let audited = match word {
        Word::Outcome(state, body) => {
            finish(tx, inner, (scope, key, &call.fingerprint), *state, body).await?;
            if *state == State::Committed { Action::CommittedLate } else { Action::RejectedLate }
        }
        Word::NotSent if open.number == 1 => {
            forget(tx, scope, key).await?;
            Action::NeverSent
        }
        // That this attempt was not sent says nothing of those before it.
        Word::InDoubt | Word::NotSent if late => return Ok(()),
        Word::InDoubt | Word::NotSent => return doubt(tx, scope, key, Action::ReportedInDoubt).await,
    };
    if late { audit::write(tx, About::key(scope, key), audited, LEDGER).await } else { Ok(()) }
}

async fn resolve(
    tx: &Tx,
    inner: &Inner,
    (scope, key): (&Scope, &Key),
    state: State,
    body: &[u8],
    by: By<'_>,
) -> Result<(), LedgerError> {
    let stored = record::lock(tx.wire(), scope, key).await?.ok_or(LedgerError::NotInDoubt)?;
    let open = find(tx, scope, key).await?;
    let record = stored.record;
    if !is_abandoned(record.state, open.as_ref(), tx.tick.shown) {
        return Err(match decide(Some(&record), &record.fingerprint, tx.shown()) {
            Verdict::InFlight { retry_after } => LedgerError::InFlight { retry_after },
            Verdict::Execute | Verdict::Replay | Verdict::Mismatch | Verdict::InDoubt | Verdict::Expired => {
                LedgerError::NotInDoubt
            }
        });
    }
    finish(tx, inner, (scope, key, &record.fingerprint), state, body).await?;
    let action = if state == State::Committed { Action::ResolvedCommitted } else { Action::ResolvedRejected };
    audit::write(tx, About::key(scope, key), action, by).await
}

/// Puts keys in doubt whose lease is over and that nobody else is at. Returns how many; there may be more.
pub(super) async fn sweep(tx: &Tx) -> Result<usize, LedgerError> {
    let sql = "SELECT k.principal, k.operation, k.key
               FROM ledger_key AS k LEFT JOIN ledger_attempt AS a USING (principal, operation, key)
               WHERE k.state = 1 AND (k.lease_until_ms <= $1 OR k.lease_until_ms - $1 - $2 > a.lease_ms)
               LIMIT $3 FOR UPDATE OF k SKIP LOCKED";
    let rows = tx.rows(sql, args![tx.tick.shown => INT8, JUMP => INT8, i64::from(SWEEP) => INT8]).await?;
    for row in &rows {
        let scope = Scope::new(row.get::<_, String>(0), row.get::<_, String>(1));
        doubt(tx, &scope, &stored_key(row.get(2))?, Action::LeaseExpired).await?;
    }
    Ok(rows.len())
}
