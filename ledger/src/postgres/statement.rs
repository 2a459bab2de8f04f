//! Decides how an effect that is one statement runs with its key in that very statement: one round trip, one commit.

use serde::de::DeserializeOwned;
use steady_core::idempotency::State;

use super::effect::PgSqlError;
use super::fault::{Kind, kind};
use super::guard::is_allowed;
use super::ledger::{Inner, PgLedger};
use super::record::Call;
use super::run::{Runs, SOON};
use super::schema;
use super::wire::{Arg, Wire, args};
use crate::error::LedgerError;
use crate::record::code;
use crate::request::{Executed, Request};
use crate::retention::age::carried_time;
use crate::transaction::Answer;

/// What the statement raises if it may not have run. An application can raise the same.
const REFUSAL: &str = "22012";

impl PgLedger {
    /// As [`PgLedger::execute`], for an effect that is one statement, which returns one row with one column named
    /// `result`: anything that `to_json` takes. It runs in one round trip together with its key.
    ///
    /// ```no_run
    /// # use steady_ledger::{Executed, Key, PgLedger, Request, Scope, tokio_postgres::types::Type};
    /// # async fn reserve(ledger: &PgLedger, request: &Request<'_>) -> Result<(), Box<dyn std::error::Error>> {
    /// let sql = "UPDATE stock SET units = units - $1 WHERE sku = $2 RETURNING units AS result";
    /// let left: i64 = ledger.execute_sql(request, sql, &[(&2_i64, Type::INT8), (&"a-1", Type::TEXT)]).await?.into_inner();
    /// # Ok(()) }
    /// ```
    ///
    /// A statement that returns no row, or several, is rolled back as [`LedgerError::Aborted`]: let it return the refusal
    /// itself, or use [`PgLedger::execute`]. So is one whose result holds the word `input_required` (rule I5). That the
    /// result is a `T` shows only after the commit: [`LedgerError::ResultType`] then says that it is there. It always runs
    /// under [`Isolation::ReadCommitted`](crate::Isolation), and once. It waits for rows that others have locked, also for
    /// those of a call with its own key that is under way.
    ///
    /// # Errors
    ///
    /// As [`PgLedger::execute`].
    pub async fn execute_sql<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        sql: &str,
        args: &[Arg<'_>],
    ) -> Result<Executed<T>, LedgerError> {
        let inner = &*self.inner;
        let call = inner.call(request)?;
        if !is_allowed(sql) {
            return Err(LedgerError::Forbidden);
        }
        if let Some(answer) = inner.look(&call).await? {
            return inner.executed(answer);
        }
        let mut conn = inner.pool.get().await?;
        if conn.is_closed() {
            conn = inner.pool.fresh().await?;
        }
        let ran = run(inner, &conn, &call, sql, args).await;
        let error = match ran {
            Ok(body) => {
                conn.put_back();
                inner.meters.committed.add();
                return inner.executed(Answer { body, replayed: false });
            }
            Err(error) => error,
        };
        match kind(&error) {
            Kind::Lost => {
                drop(conn);
                let answer = Runs::new(inner).find_out(&call, error).await?;
                inner.executed(answer)
            }
            Kind::GivenUp => {
                conn.put_back();
                Err(error.into())
            }
            Kind::Refused => {
                conn.put_back();
                if error.code().is_some_and(|code| code.code() == REFUSAL)
                    && let Some(answer) = inner.known(&call).await?
                {
                    return inner.executed(answer);
                }
                Err(why(inner, &call, error).await?)
            }
        }
    }
}

/// The bytes of the result. Everything is rolled back unless the claim took exactly one row.
async fn run(
    inner: &Inner,
    wire: &Wire,
    call: &Call,
    sql: &str,
    given: &[Arg<'_>],
) -> Result<Vec<u8>, tokio_postgres::Error> {
    let n = given.len();
    let [clock, lock, principal, operation, key, print, retention, seal, born, horizon, schema] =
        std::array::from_fn::<_, 11, _>(|at| n + 1 + at);
    let text = format!(
        "WITH effect AS ({sql}),
         claim AS (
             INSERT INTO ledger_key(principal, operation, key, fingerprint, state, executions, recorded_ms, expires_ms,
                                    result, result_digest)
             SELECT ${principal}, ${operation}, ${key}, ${print}, 2, 1, greatest(shown, latest_ms),
                    greatest(shown, latest_ms) + ${retention}, bytes, sha256(${seal} || sha256(${seal} || bytes))
             FROM (SELECT convert_to(body, 'UTF8') AS bytes, latest_ms, forgotten_ms,
                          coalesce(${clock}, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS shown
                   FROM (SELECT to_json(result)::text AS body FROM effect) AS answer, ledger_meta
                   WHERE schema = ${schema} AND body NOT LIKE '%input\\_required%'
                       AND pg_try_advisory_xact_lock(${lock}) OFFSET 0) AS answer
             WHERE ${born} IS NULL OR (${born} >= coalesce(forgotten_ms, ${born})
                                       AND ${born} >= coalesce(shown - ${horizon}, ${born}))
             ON CONFLICT DO NOTHING RETURNING result)
         SELECT (array_agg(result))[1], 1 / (count(*) * ((SELECT count(*) FROM effect) = 1)::integer),
                set_config('synchronous_commit', 'on', true)
         FROM claim"
    );
    let result_key = inner.secret.result_key(&call.fingerprint, code(State::Committed));
    let (shown, born) = (inner.clock_ms(), carried_time(&call.key).map(|born| born.unix_millis()));
    let own = args![
        shown => INT8, call.lock => INT8, &*call.scope.principal => TEXT, &*call.scope.operation => TEXT,
        call.key.as_str() => TEXT, &call.fingerprint[..] => BYTEA, call.retention_ms => INT8, &result_key[..] => BYTEA,
        born => INT8, inner.horizon_ms => INT8, schema::NEWEST => INT8,
    ];
    let all: Vec<Arg<'_>> = given.iter().chain(own).cloned().collect();
    let row = wire.first(&text, &all).await?;
    Ok(row.and_then(|row| row.get::<_, Option<Vec<u8>>>(0)).unwrap_or_default())
}

/// Why a statement was refused whose key has no record.
async fn why(inner: &Inner, call: &Call, error: tokio_postgres::Error) -> Result<LedgerError, LedgerError> {
    let code = error.code().map(|code| code.code().to_owned()).unwrap_or_default();
    match &*code {
        "57014" => return Ok(LedgerError::TimeLimit),
        REFUSAL => {}
        _ => return Ok(LedgerError::Aborted(PgSqlError::from(error).into())),
    }
    let tx = inner.begin().await?;
    let free = tx.first("SELECT pg_try_advisory_xact_lock($1)", args![call.lock => INT8]).await?;
    let free = free.is_some_and(|row| row.get(0));
    let age = tx.check_age(inner, &call.key);
    tx.roll_back().await;
    age?;
    if !free {
        return Ok(LedgerError::InFlight { retry_after: SOON });
    }
    let told = "the statement did not return exactly one row with a result, or divided by zero itself";
    Ok(LedgerError::Aborted(told.into()))
}
